//! Failures on demand, for tests of clients. Nothing is injected unless somebody asks.

use std::sync::Arc;
use std::time::Duration;

use iceberg::TableIdent;
use parking_lot::Mutex;

/// What goes wrong with a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Refused with 409 `CommitFailedException`; nothing is applied.
    Conflict,
    /// Answered with this status (such as 500 or 503) before anything is applied.
    FailBefore(u16),
    /// Applied, then answered with this status (500, 502, 503, 504).
    FailAfter(u16),
    /// Applied, then the connection is closed without a byte of answer.
    DropAfter,
    /// Applied only after this long, even if the client has gone away by then.
    Delay(Duration),
}

/// The failures that wait for their commits; shared with the server.
#[derive(Debug, Default)]
pub struct Faults {
    waiting: Vec<Waiting>,
}

/// Faults as the server and a test hold them together.
pub type SharedFaults = Arc<Mutex<Faults>>;

#[derive(Debug)]
struct Waiting {
    table: Option<TableIdent>,
    times: usize,
    fault: Fault,
}

impl Faults {
    /// Lets the next `times` commits fail, of one table or of any; earlier requests are used up first.
    pub fn inject(&mut self, table: Option<TableIdent>, times: usize, fault: Fault) {
        self.waiting.push(Waiting { table, times, fault });
    }

    /// Forgets whatever still waits.
    pub fn clear(&mut self) {
        self.waiting.clear();
    }

    /// How many commits are still to fail.
    pub fn remaining(&self) -> usize {
        self.waiting.iter().map(|w| w.times).sum()
    }

    /// The fault for a commit to these tables, used up by this call.
    fn take(&mut self, tables: &[TableIdent]) -> Option<Fault> {
        self.waiting.retain(|w| w.times > 0);
        let hit = self.waiting.iter_mut().find(|w| w.table.as_ref().is_none_or(|t| tables.contains(t)))?;
        hit.times -= 1;
        Some(hit.fault)
    }
}

/// Takes the next fault for a commit to these tables.
pub(super) fn take(faults: &SharedFaults, tables: &[TableIdent]) -> Option<Fault> {
    faults.lock().take(tables)
}

#[cfg(test)]
mod tests {
    use iceberg::NamespaceIdent;

    use super::*;

    #[test]
    fn faults_are_used_up_in_order_and_only_by_their_table() {
        let table = |name: &str| TableIdent::new(NamespaceIdent::new("ns".into()), name.into());
        let mut faults = Faults::default();
        faults.inject(Some(table("a")), 2, Fault::Conflict);
        faults.inject(None, 1, Fault::DropAfter);
        assert_eq!(faults.take(&[table("a")]), Some(Fault::Conflict));
        assert_eq!(faults.take(&[table("b")]), Some(Fault::DropAfter));
        assert_eq!(faults.take(&[table("b")]), None);
        assert_eq!(faults.remaining(), 1);
        assert_eq!(faults.take(&[table("b"), table("a")]), Some(Fault::Conflict));
        assert_eq!(faults.take(&[table("a")]), None);
    }
}
