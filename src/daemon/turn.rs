//! Whose turn it is to work: without an election this process's, always; with one, the leader's.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::config::LeaderElectionConfig;
use crate::error::{Error, ErrorKind, Result};
use crate::leader::lease::{Cluster, HttpLease, SERVICE_ACCOUNT};
use crate::leader::record::Timing;
use crate::leader::{Election, LeadershipEnd};
use crate::permit::WritePermit;

/// This process's turn, from waiting for it to giving it back.
pub(super) struct Turn {
    /// Until it is won.
    election: Option<Election>,
    /// From then on.
    holding: Option<JoinHandle<(Election, LeadershipEnd)>>,
    stop: CancellationToken,
    timing: Timing,
    lost: bool,
}

impl Turn {
    /// Takes part in the election, if there is one. [`ErrorKind::Config`] outside a pod.
    pub(super) fn new(config: &LeaderElectionConfig, clock: Arc<dyn Clock>, permit: WritePermit) -> Result<Self> {
        let timing = Timing {
            lease_duration: config.lease_duration,
            renew_deadline: config.renew_deadline,
            retry_period: config.retry_period,
        };
        let election = if config.enabled { Some(election(config, timing, clock, permit)?) } else { None };
        Ok(Self { election, holding: None, stop: CancellationToken::new(), timing, lost: false })
    }

    /// Whether others may have the turn.
    pub(super) fn is_shared(&self) -> bool {
        self.election.is_some()
    }

    /// Waits for the turn; false if the token was cancelled before. `each_round` is called while waiting.
    pub(super) async fn win(&mut self, cancel: &CancellationToken, each_round: impl Fn()) -> bool {
        let Some(mut election) = self.election.take() else { return !cancel.is_cancelled() };
        if !election.win(cancel, each_round).await {
            return false;
        }
        let stop = self.stop.clone();
        self.holding = Some(tokio::spawn(async move {
            let ended = election.hold(&stop).await;
            (election, ended)
        }));
        true
    }

    /// Waits until the turn is lost, and says why. Without an election that is never.
    pub(super) async fn lost(&mut self) -> String {
        let Some(holding) = &mut self.holding else { return std::future::pending().await };
        let ended = holding.await;
        self.holding = None;
        self.lost = true;
        match ended {
            Ok((_, LeadershipEnd::Lost(why))) => why,
            Ok((_, LeadershipEnd::Stopped)) => "stopped".into(),
            Err(error) => error.to_string(),
        }
    }

    /// Whether it was this process's once and is not any more.
    pub(super) fn is_lost(&self) -> bool {
        self.lost
    }

    /// How long work under way may go on after the turn was lost: nothing new begins, and others do not begin before.
    pub(super) fn grace_after_loss(&self) -> Duration {
        self.timing.lease_duration.saturating_sub(self.timing.renew_deadline)
    }

    /// Gives the turn back, if it is still this process's. Nothing must be under way any more.
    pub(super) async fn end(mut self) {
        self.stop.cancel();
        if let Some(Ok((mut election, LeadershipEnd::Stopped))) = match self.holding.take() {
            Some(holding) => Some(holding.await),
            None => None,
        } {
            election.release().await;
        }
    }
}

fn election(
    config: &LeaderElectionConfig,
    timing: Timing,
    clock: Arc<dyn Clock>,
    permit: WritePermit,
) -> Result<Election> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let cluster = Cluster::of_pod(variable, Path::new(SERVICE_ACCOUNT))?;
    let namespace = config.namespace.clone().or(cluster.namespace.clone()).ok_or_else(|| {
        let message = "the pod's namespace is not told; set `leader-election.namespace`";
        Error::new(ErrorKind::Config, message)
    })?;
    let lease = HttpLease::new(&cluster, &namespace, &config.lease)?;
    let name = variable("POD_NAME").or(variable("HOSTNAME")).unwrap_or_else(|| "icewright".into());
    Ok(Election::new(&name, timing, Box::new(lease), clock, permit))
}
