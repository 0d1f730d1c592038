//! What the operating system tells about this process, under the names that Prometheus' own libraries use. Linux only.

use prometheus::{Counter, Gauge, Opts, Registry};

use super::VALID;

/// Read from `/proc` each time that metrics are asked for.
pub(super) struct ProcessMetrics {
    cpu: Counter,
    resident: Gauge,
    virtual_memory: Gauge,
    open_files: Gauge,
    max_files: Gauge,
    threads: Gauge,
    start: Gauge,
}

impl ProcessMetrics {
    /// Number of series.
    pub(super) const SERIES: usize = 7;

    pub(super) fn register(registry: &Registry) -> Self {
        let gauge = |name: &str, help: &str| {
            let gauge = Gauge::with_opts(Opts::new(name, help)).expect(VALID);
            registry.register(Box::new(gauge.clone())).expect(VALID);
            gauge
        };
        let help = "Total user and system CPU time spent in seconds.";
        let cpu = Counter::with_opts(Opts::new("process_cpu_seconds_total", help)).expect(VALID);
        registry.register(Box::new(cpu.clone())).expect(VALID);
        Self {
            cpu,
            resident: gauge("process_resident_memory_bytes", "Resident memory size in bytes."),
            virtual_memory: gauge("process_virtual_memory_bytes", "Virtual memory size in bytes."),
            open_files: gauge("process_open_fds", "Number of open file descriptors."),
            max_files: gauge("process_max_fds", "Maximum number of open file descriptors."),
            threads: gauge("process_threads", "Number of OS threads in the process."),
            start: gauge("process_start_time_seconds", "Start time of the process since unix epoch in seconds."),
        }
    }

    /// Reads everything anew; what cannot be read stays as it was.
    pub(super) fn update(&self) {
        let read = |name: &str| std::fs::read_to_string(format!("/proc/{name}")).unwrap_or_default();
        let (boot_time, limits) = (read("stat"), read("self/limits"));
        if let Some(stat) = Stat::parse(&read("self/stat")) {
            let ticks = rustix::param::clock_ticks_per_second() as f64;
            self.cpu.inc_by((stat.cpu_ticks as f64 / ticks - self.cpu.get()).max(0.0));
            self.resident.set((stat.resident_pages * rustix::param::page_size() as u64) as f64);
            self.virtual_memory.set(stat.virtual_bytes as f64);
            self.threads.set(stat.threads as f64);
            if let Some(boot) = number_after(&boot_time, "btime ") {
                self.start.set(boot as f64 + stat.start_ticks as f64 / ticks);
            }
        }
        if let Ok(files) = std::fs::read_dir("/proc/self/fd") {
            self.open_files.set(files.count() as f64);
        }
        if let Some(limit) = number_after(&limits, "Max open files ") {
            self.max_files.set(limit as f64);
        }
    }
}

/// The number at the beginning of what follows `key` at the beginning of a line.
fn number_after(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(key))?.split_whitespace().next()?.parse().ok()
}

/// Some fields of `/proc/self/stat`.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    cpu_ticks: u64,
    threads: u64,
    start_ticks: u64,
    virtual_bytes: u64,
    resident_pages: u64,
}

impl Stat {
    fn parse(text: &str) -> Option<Self> {
        // The second field is the program's name in parentheses, which may hold anything.
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        // Fields are numbered from 1 in the manual; the first of these is the third.
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        Some(Self {
            cpu_ticks: field(14)? + field(15)?,
            threads: field(20)?,
            start_ticks: field(22)?,
            virtual_bytes: field(23)?,
            resident_pages: field(24)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_behind_any_name() {
        let text = "42 (a) b 7) S 1 42 42 0 -1 4194560 5000 0 3 0 250 50 0 0 20 0 9 0 1234567 99000000 2500 18446744073709551615";
        let stat = Stat {
            cpu_ticks: 300,
            threads: 9,
            start_ticks: 1_234_567,
            virtual_bytes: 99_000_000,
            resident_pages: 2500,
        };
        assert_eq!(Stat::parse(text), Some(stat));
        assert_eq!(Stat::parse("42 (a) S 1"), None);
        assert_eq!(number_after("cpu 1\nbtime 1796000000\n", "btime "), Some(1_796_000_000));
        assert_eq!(number_after("Max open files            unlimited  4096 files", "Max open files "), None);
    }

    #[test]
    fn this_process_has_memory_files_and_an_age() {
        let process = ProcessMetrics::register(&Registry::new());
        process.update();
        let gauges =
            [&process.resident, &process.virtual_memory, &process.open_files, &process.threads, &process.start];
        assert!(gauges.iter().all(|gauge| gauge.get() >= 1.0));
        assert!(process.resident.get() < process.virtual_memory.get());
    }
}
