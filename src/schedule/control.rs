//! What operators may ask of the scheduler while it runs: pause, resume, and run now.

use std::time::Duration;

use serde::Serialize;
use tokio::sync::{mpsc, oneshot};
use utoipa::ToSchema;

use crate::error::{Error, Result};
use crate::table::TableName;

/// Orders that may wait for the scheduler; it takes them several times a second.
const ORDERS_MAX: usize = 64;
/// An order that is not taken by then is withdrawn.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// Characters of a reason; the rest is cut off.
const REASON_MAX: usize = 200;

/// A pause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Pause {
    /// What was said about it.
    pub reason: String,
    /// Since when.
    pub since_ms: i64,
}

/// Gives orders to the scheduler. Each ends with [`crate::error::ErrorKind::Unavailable`] if the scheduler does not take it:
/// too many wait, it has stopped, or it has not begun.
///
/// Pauses live in memory: a restart forgets them.
#[derive(Debug, Clone)]
pub struct Control {
    orders: mpsc::Sender<Order>,
}

/// The scheduler's end of a [`Control`].
#[derive(Debug)]
pub struct Orders(mpsc::Receiver<Order>);

#[derive(Debug, PartialEq, Eq)]
pub(super) enum OrderKind {
    RunNow(TableName),
    /// A table, or all.
    Pause(Option<TableName>, String),
    /// A table, or all.
    Resume(Option<TableName>),
}

#[derive(Debug)]
pub(super) struct Order {
    pub(super) kind: OrderKind,
    reply: oneshot::Sender<Result<()>>,
}

pub fn control() -> (Control, Orders) {
    let (sender, receiver) = mpsc::channel(ORDERS_MAX);
    (Control { orders: sender }, Orders(receiver))
}

impl Control {
    /// Compacts a table as soon as a worker is free, before other tables, whatever its schedule or a wait after a failure says.
    /// Its clean-ups keep their delay, and metadata found invalid is not touched until it changes.
    ///
    /// [`crate::error::ErrorKind::NotFound`] if the table is not maintained, [`crate::error::ErrorKind::Conflict`] if it,
    /// or everything, is paused. Fine if it runs or is due already.
    pub async fn run_now(&self, table: &TableName) -> Result<()> {
        self.order(OrderKind::RunNow(table.clone())).await
    }

    /// Begins no step of this table, or with `None` of any, until it is resumed. What runs comes to its end.
    /// A second pause replaces the reason. The pauses of tables and of all are apart from each other.
    ///
    /// [`crate::error::ErrorKind::NotFound`] if the table is not maintained.
    pub async fn pause(&self, table: Option<&TableName>, reason: String) -> Result<()> {
        let reason = reason.chars().take(REASON_MAX).collect();
        self.order(OrderKind::Pause(table.cloned(), reason)).await
    }

    /// Ends a pause; fine if there is none. [`crate::error::ErrorKind::NotFound`] if the table is not maintained.
    pub async fn resume(&self, table: Option<&TableName>) -> Result<()> {
        self.order(OrderKind::Resume(table.cloned())).await
    }

    async fn order(&self, kind: OrderKind) -> Result<()> {
        let (reply, answer) = oneshot::channel();
        self.orders.try_send(Order { kind, reply }).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => {
                Error::unavailable(format!("{ORDERS_MAX} orders wait for the scheduler already: try again in a moment"))
            }
            mpsc::error::TrySendError::Closed(_) => stopped(),
        })?;
        match tokio::time::timeout(ANSWER_WITHIN, answer).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(stopped()),
            Err(_) => Err(Error::unavailable(format!(
                "the scheduler of this process did not answer within {} s: try again, or ask the process that leads",
                ANSWER_WITHIN.as_secs()
            ))),
        }
    }
}

fn stopped() -> Error {
    Error::unavailable("the process is stopping: ask the one that takes its place")
}

impl Orders {
    /// The next order that somebody still waits for; `None` when there will be none.
    pub(super) async fn next(&mut self) -> Option<Order> {
        loop {
            let order = self.0.recv().await?;
            if !order.reply.is_closed() {
                return Some(order);
            }
        }
    }

    /// Refuses those that wait and all to come.
    pub(super) fn close(&mut self) {
        self.0.close();
        while self.0.try_recv().is_ok() {}
    }
}

impl Order {
    pub(super) fn answer(self, result: Result<()>) {
        // Whoever asked may have gone.
        let _ = self.reply.send(result);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn table() -> TableName {
        "lake.db.t".parse().expect("a name")
    }

    #[tokio::test(start_paused = true)]
    async fn orders_that_nobody_takes_are_withdrawn() {
        let (control, mut orders) = control();
        let error = control.run_now(&table()).await.expect_err("no answer");
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.to_string().contains("did not answer within 5 s"), "{error}");
        drop(control);
        assert!(orders.next().await.is_none(), "a scheduler that begins later does not find it");
    }

    #[tokio::test(start_paused = true)]
    async fn too_many_orders_are_refused_at_once() {
        let (control, mut orders) = control();
        let many: Vec<_> = (0..ORDERS_MAX).map(|_| Box::pin(control.resume(None))).collect();
        let mut waiting = futures::future::join_all(many);
        assert!(futures::poll!(&mut waiting).is_pending());
        let error = control.resume(None).await.expect_err("full");
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.to_string().starts_with("64 orders wait"), "{error}");
        orders.next().await.expect("the first").answer(Ok(()));
        assert!(futures::poll!(Box::pin(control.resume(None))).is_pending(), "there is room again");
        drop(orders);
        let error = control.resume(None).await.expect_err("closed");
        assert!(error.to_string().contains("stopping"), "{error}");
        let answers = waiting.await;
        assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_reason_is_cut_off() {
        let (control, mut orders) = control();
        let asking = tokio::spawn(async move { control.pause(Some(&table()), "ä".repeat(300)).await });
        let order = orders.next().await.expect("an order");
        assert_eq!(order.kind, OrderKind::Pause(Some(table()), "ä".repeat(200)));
        order.answer(Ok(()));
        asking.await.expect("no panic").expect("taken");
    }
}
