//! What a pass tells a Pushgateway about each table.

use crate::action::{Action, Doing, Outcome, RunStep};
use crate::actions::env::Env;
use crate::actions::subject::Subject;
use crate::config::PushgatewayConfig;
use crate::daemon::secret_source;
use crate::error::Result;
use crate::fleet::Fleet;
use crate::report::metrics::{Backoff, Metrics};
use crate::report::push::Pushgateway;
use crate::report::vitals::Vital;
use crate::schedule::collector::collect_of;
use crate::table::TableName;

use super::once::TableReport;

pub(super) fn gateway(config: &PushgatewayConfig) -> Result<Pushgateway> {
    Pushgateway::new(&config.url, config.token.as_ref().map(secret_source))
}

/// Looks at the table as the pass has left it, and pushes that with what the pass did. What fails is logged; a gateway
/// that does not answer is left alone for the rest of the pass.
pub(super) async fn push(gateway: &Pushgateway, env: &Env, fleet: &Fleet, name: &TableName, report: &TableReport) {
    // Metrics of its own: a table that shares series with others has no group of its own.
    let metrics = Metrics::new(1);
    metrics.register_table(name);
    let mut vital = Vital {
        consecutive_failures: u32::from(report.outcome == Outcome::Failed),
        last_failure: report.error.clone(),
        ..Vital::default()
    };
    tokio::select! {
        biased;
        () = env.cancel.cancelled() => {}
        looked = look(env, fleet, name, &metrics, &mut vital) => {
            if let Err(error) = looked {
                tracing::warn!(table = %name, %error, "numbers not collected");
                vital.unreadable = Some(error.to_string());
            }
        }
    }
    let now_ms = env.clock.now_ms();
    for step in &report.steps {
        step.actions.iter().for_each(|action| metrics.record_run(name, action, now_ms));
        if step.step == RunStep::LAST {
            vital.refused = step.refusal().map(|refused| format!("{}: {}", refused.reason, refused.detail));
        }
    }
    metrics.set_step(name, Doing::Idle);
    metrics.set_backoff(name, Backoff { consecutive_failures: vital.consecutive_failures, ..Backoff::default() });
    let reasons: Vec<_> = vital.judge(now_ms, false).into_iter().map(|reason| reason.kind).collect();
    metrics.set_health(name, &reasons, vital.last_healthy_ms);
    if let Err(error) = gateway.push(name, &metrics).await {
        tracing::warn!(table = %name, %error, "metrics not pushed; the pass itself is not concerned");
    }
}

async fn look(env: &Env, fleet: &Fleet, name: &TableName, metrics: &Metrics, vital: &mut Vital) -> Result<()> {
    let subject = Subject::load(fleet, name).await?;
    if let Some(run) = subject.last_run().filter(|run| run.complete) {
        metrics.set_last_success(name, Action::RewriteDataFiles, run.committed_ms);
    }
    let collected = collect_of(env, &subject).await?;
    metrics.record_stats(name, &collected.stats);
    metrics.set_target_file_size(name, collected.target_file_size_bytes);
    vital.period = Some(collected.period);
    vital.stats = Some(collected.stats);
    Ok(())
}
