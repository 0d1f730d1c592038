//! What happens, as the API and the page show it.

use std::collections::BTreeMap;

use crate::action::Doing;
use crate::actions::report::ActionReport;
use crate::report::board::view;
use crate::report::board::{Board, TableLook};
use crate::schedule::observer::{Event, Observer, TableEvent};
use crate::table::TableName;

impl Observer for Board {
    fn observe(&self, event: Event<'_>, now_ms: i64) {
        match event {
            Event::Started { loaded, .. } | Event::ConfigReloaded { loaded, .. } => self.config_loaded(now_ms, loaded),
            Event::ConfigRefused(problems) => self.config_refused(problems),
            Event::Leads(leads) => self.leads(leads),
            Event::Paused(pause) => self.paused(None, Some(pause.clone())),
            Event::Resumed => self.paused(None, None),
            Event::Queue(queue) => self.queue(queue),
            Event::Table(name, event) => of_table(self, name, event, now_ms),
            _ => {}
        }
    }
}

fn of_table(board: &Board, name: &TableName, event: TableEvent<'_>, now_ms: i64) {
    match event {
        TableEvent::Found => board.table_found(name),
        TableEvent::Gone => board.table_gone(name),
        TableEvent::Waits { next, failures, quarantined, .. } => {
            let doing = Doing::waiting_for(next.step);
            let shown = view::Next { step: next.step.as_str(), at_ms: next.at_ms, why: next.why };
            board.table_waits(name, doing, shown, failures, quarantined);
        }
        TableEvent::Paused(pause) => board.paused(Some(name), Some(pause.clone())),
        TableEvent::Resumed => board.paused(Some(name), None),
        TableEvent::ActionStarted(action) => board.table_works(name, Doing::Running(action)),
        TableEvent::Rewriting(progress) => board.rewriting(name, progress.clone(), now_ms),
        TableEvent::ActionPlanned(action, plan) => board.planned(name, &BTreeMap::from([(action, plan)]), now_ms),
        TableEvent::Planned(plan) => board.planned(name, plan, now_ms),
        TableEvent::StepDone(run, done) => {
            let actions = done.report.actions.iter();
            actions.for_each(|report| board.ran(name, &run.run_id.to_string(), report, now_ms));
        }
        TableEvent::StepFailed(run, step, error) => {
            board.ran(name, &run.run_id.to_string(), &ActionReport::of_error(step, error), now_ms);
        }
        TableEvent::Looked { subject, collected, partitions } => {
            let look = TableLook {
                stats: collected.stats.clone(),
                partitions: partitions.to_vec(),
                target_file_size_bytes: collected.target_file_size_bytes,
                loaded: &subject.table.loaded,
                policy: &subject.resolved,
            };
            board.looked(name, look, now_ms);
        }
        _ => {}
    }
}
