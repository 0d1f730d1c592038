//! What the operating system tells about this process, under the names that Prometheus' own libraries use. Linux only.
//! The `process` feature of the `prometheus` crate counts whole seconds of CPU time only, and needs a second version of rustix.

use prometheus::{Counter, Gauge, Opts, Registry};

use super::VALID;

const GAUGES: [(&str, &str); 6] = [
    ("process_resident_memory_bytes", "Resident memory size in bytes."),
    ("process_virtual_memory_bytes", "Virtual memory size in bytes."),
    ("process_threads", "Number of OS threads in the process."),
    ("process_start_time_seconds", "Start time of the process since unix epoch in seconds."),
    ("process_open_fds", "Number of open file descriptors."),
    ("process_max_fds", "Maximum number of open file descriptors."),
];

/// Read from `/proc` each time that metrics are asked for.
pub(super) struct ProcessMetrics {
    cpu: Counter,
    gauges: [Gauge; GAUGES.len()],
}

impl ProcessMetrics {
    pub(super) const SERIES: usize = GAUGES.len() + 1;

    pub(super) fn register(registry: &Registry) -> Self {
        let help = "Total user and system CPU time spent in seconds.";
        let cpu = Counter::with_opts(Opts::new("process_cpu_seconds_total", help)).expect(VALID);
        registry.register(Box::new(cpu.clone())).expect(VALID);
        let gauges = GAUGES.map(|(name, help)| Gauge::with_opts(Opts::new(name, help)).expect(VALID));
        for gauge in &gauges {
            registry.register(Box::new(gauge.clone())).expect(VALID);
        }
        Self { cpu, gauges }
    }

    /// Reads everything anew; what cannot be read stays as it was.
    pub(super) fn update(&self) {
        let read = |name: &str| std::fs::read_to_string(format!("/proc/{name}")).unwrap_or_default();
        let (stat, boot_time, limits) = (read("self/stat"), read("stat"), read("self/limits"));
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        let field = |number| stat_field(&stat, number);
        if let (Some(user), Some(system)) = (field(14), field(15)) {
            self.cpu.inc_by(((user + system) / ticks - self.cpu.get()).max(0.0));
        }
        let values = [
            field(24).map(|pages| pages * rustix::param::page_size() as f64),
            field(23),
            field(20),
            number_after(&boot_time, "btime ").zip(field(22)).map(|(boot, start)| boot + start / ticks),
            std::fs::read_dir("/proc/self/fd").ok().map(|files| files.count() as f64),
            number_after(&limits, "Max open files "),
        ];
        for (gauge, value) in self.gauges.iter().zip(values) {
            gauge.set(value.unwrap_or_else(|| gauge.get()));
        }
    }
}

/// The number at the beginning of what follows `key` at the beginning of a line.
fn number_after(text: &str, key: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix(key))?.split_whitespace().next()?.parse().ok()
}

/// A field of `/proc/self/stat`, numbered from 1 as in the manual.
fn stat_field(text: &str, number: usize) -> Option<f64> {
    // The second field is the program's name in parentheses, which may hold anything.
    text.rsplit_once(')')?.1.split_whitespace().nth(number - 3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_behind_any_name() {
        let text = "42 (a) b 7) S 1 42 42 0 -1 4194560 5000 0 3 0 250 50 0 0 20 0 9 0 1234567 99000000 2500 18446744073709551615";
        let fields = [14, 15, 20, 22, 23, 24].map(|number| stat_field(text, number));
        assert_eq!(fields, [250.0, 50.0, 9.0, 1_234_567.0, 99_000_000.0, 2500.0].map(Some));
        assert_eq!(stat_field("42 (a) S 1", 14), None);
        assert_eq!(number_after("cpu 1\nbtime 1796000000\n", "btime "), Some(1_796_000_000.0));
        assert_eq!(number_after("Max open files            unlimited  4096 files", "Max open files "), None);
    }

    #[test]
    fn this_process_has_memory_files_and_an_age() {
        let process = ProcessMetrics::register(&Registry::new());
        process.update();
        let [resident, virtual_memory, ..] = &process.gauges;
        assert!(process.gauges[..5].iter().all(|gauge| gauge.get() >= 1.0));
        assert!(resident.get() < virtual_memory.get());
    }
}
