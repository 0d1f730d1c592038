//! What happens, as metrics.

use crate::action::Doing;
use crate::actions::report::ActionReport;
use crate::report::metrics::{Backoff, Metrics};
use crate::schedule::observer::{Event, Observer, TableEvent};
use crate::table::TableName;

impl Observer for Metrics {
    fn observe(&self, event: Event<'_>, now_ms: i64) {
        match event {
            Event::Started { loaded, .. } => self.record_config_load(now_ms, Some(loaded.warnings.len())),
            Event::ConfigReloaded { loaded, .. } => self.record_config_reload(now_ms, Some(loaded.warnings.len())),
            Event::ConfigRefused(_) => self.record_config_reload(now_ms, None),
            Event::CatalogGone(catalog) => self.forget_catalog(catalog),
            Event::Leads(leads) => self.set_leader(leads),
            Event::Paused(_) => self.set_paused(true),
            Event::Resumed => self.set_paused(false),
            Event::Queue(queue) => self.set_queue(queue),
            Event::Table(name, event) => of_table(self, name, event, now_ms),
            _ => {}
        }
    }
}

fn of_table(metrics: &Metrics, name: &TableName, event: TableEvent<'_>, now_ms: i64) {
    match event {
        TableEvent::Found => metrics.register_table(name),
        TableEvent::Gone => metrics.forget_table(name),
        TableEvent::Waits { next, next_run_ms, failures, quarantined } => {
            let doing = Doing::waiting_for(next.step);
            metrics.set_step(name, doing);
            metrics.set_next(name, next_run_ms, (doing == Doing::Delay).then_some(next.at_ms));
            let until_ms = next.is_backoff().then_some(next.at_ms);
            metrics.set_backoff(name, Backoff { consecutive_failures: failures, until_ms, quarantined });
        }
        TableEvent::Paused(_) => metrics.set_table_paused(name, true),
        TableEvent::Resumed => metrics.set_table_paused(name, false),
        TableEvent::KnownSuccess(action, finished_ms) => metrics.set_last_success(name, action, finished_ms),
        TableEvent::ActionStarted(action) => {
            metrics.set_step(name, Doing::Running(action));
            metrics.end_wait(name);
        }
        TableEvent::StepDone(_, done) => {
            done.report.actions.iter().for_each(|report| metrics.record_run(name, report, now_ms));
        }
        TableEvent::StepFailed(_, step, error) => {
            metrics.record_run(name, &ActionReport::of_error(step, error), now_ms);
        }
        _ => {}
    }
}
