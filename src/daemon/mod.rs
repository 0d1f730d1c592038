//! Wiring: configuration -> catalogs, stores, budgets -> scheduler, collector and server. Owns the order of start and stop.

mod drain;
mod operator;
mod turn;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use drain::drain;
use operator::Operator;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use turn::Turn;

use crate::actions::env::{ActiveRuns, Env, Longest};
use crate::catalog::auth::{Auth, SecretSource};
use crate::catalog::rest::{RestCatalog, RestCatalogConfig};
use crate::clock::{Clock, SystemClock};
use crate::config::{AuthConfig, CatalogConfig, Config, LoadedConfig, Secret};
use crate::error::{Error, Result};
use crate::fleet::{ConfiguredStores, Fleet, Member};
use crate::inspect::ManifestCache;
use crate::permit::WritePermit;
use crate::reload::{BuildMember, Reloader};
use crate::report::board::Board;
use crate::report::events::Reporter;
use crate::report::metrics::{MemoryUse, Metrics};
use crate::report::probes::Probes;
use crate::rewrite::memory::{self, MemoryBudget};
use crate::schedule::control::control;
use crate::schedule::observer::{Event, Observer};
use crate::schedule::scheduler::Scheduler;
use crate::schedule::settings::LiveSettings;
use crate::server::{self, ApiState, Aside, ServerState};
use crate::telemetry::FilterHandle;

/// The scheduler goes round twice a second; one that did not for this long is stuck.
const LIVENESS_LIMIT: Duration = Duration::from_secs(60);

/// What every command that reaches tables needs.
pub struct Parts {
    pub env: Env,
    pub fleet: Arc<Fleet>,
    pub metrics: Arc<Metrics>,
}

/// Builds everything that needs no network yet, for a command in the foreground. A catalog that is down is no error here.
pub fn assemble(config: &Config, cancel: CancellationToken) -> Result<Parts> {
    assemble_permitted(config, &WritePermit::always(), cancel)
}

/// The same; tables are changed only while the permit holds.
fn assemble_permitted(config: &Config, permit: &WritePermit, cancel: CancellationToken) -> Result<Parts> {
    let metrics = Arc::new(Metrics::new(config.metrics.max_tables));
    let mut members = BTreeMap::new();
    for (name, settings) in &config.catalogs {
        members.insert(name.clone(), member(name, settings, &metrics, permit)?);
    }
    let (rewriting_bytes, cache_bytes) = memory::divide(config.limits.memory_budget_bytes());
    let env = Env {
        clock: SystemClock::shared(),
        memory: Arc::new(MemoryBudget::new(rewriting_bytes)),
        manifests: Arc::new(ManifestCache::new(usize::try_from(cache_bytes).unwrap_or(usize::MAX))),
        threads: std::thread::available_parallelism().map_or(1, usize::from),
        active: ActiveRuns::default(),
        run_timeout: config.limits.run_timeout,
        run_over_after: Longest::new(config.limits.run_timeout),
        cancel,
    };
    let (budget, manifests) = (env.memory.clone(), env.manifests.clone());
    metrics.watch_memory(move || MemoryUse {
        budget: budget.total(),
        reserved: budget.used(),
        manifest_cache: manifests.bytes() as u64,
    });
    Ok(Parts { env, fleet: Arc::new(Fleet::new(members, config.policies.clone())), metrics })
}

/// A catalog's client, and the way to its files.
fn member(name: &str, settings: &CatalogConfig, metrics: &Arc<Metrics>, permit: &WritePermit) -> Result<Member> {
    let catalog = RestCatalog::new(rest_config(name, settings)?)?;
    let catalog = catalog.with_observer(metrics.clone()).with_permit(permit.clone());
    let stores = ConfiguredStores { config: settings.clone(), observer: metrics.clone(), permit: permit.clone() };
    Ok(Member { catalog: Arc::new(catalog), stores: Arc::new(stores) })
}

/// Reads a secret anew each time, so that a rotated one takes effect.
pub fn secret_source(secret: &Secret) -> SecretSource {
    let secret = secret.clone();
    Arc::new(move || Ok(secret.resolve()?.expose().to_owned()))
}

fn rest_config(name: &str, settings: &CatalogConfig) -> Result<RestCatalogConfig> {
    let auth = match &settings.auth {
        AuthConfig::None => Auth::None,
        AuthConfig::Bearer { token } => Auth::Bearer(secret_source(token)),
        AuthConfig::OAuth2 { credential, scope, server_uri } => Auth::OAuth2 {
            credential: secret_source(credential),
            scope: Some(scope.clone()),
            server_uri: server_uri.clone(),
        },
    };
    let mut properties = settings.resolve_properties()?;
    if let Some(prefix) = &settings.prefix {
        properties.insert("prefix".into(), prefix.clone());
    }
    Ok(RestCatalogConfig {
        name: name.to_owned(),
        uri: settings.uri.clone(),
        warehouse: settings.warehouse.clone(),
        properties,
        auth,
    })
}

/// Whether to print a line for each step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Echo {
    Nothing,
    Lines,
}

/// Runs the daemon until the token is cancelled. The listener is bound by the caller, so that a taken port is known at once.
///
/// When the token is cancelled no step begins any more and runs stop their groups; what is under way, such as a commit, has
/// the grace time to come to an end and is then dropped.
pub async fn run(
    loaded: &LoadedConfig,
    listener: TcpListener,
    echo: Echo,
    log_filter: FilterHandle,
    cancel: CancellationToken,
) -> Result<()> {
    let config = &loaded.config;
    let permit = if config.leader_election.enabled { WritePermit::withheld() } else { WritePermit::always() };
    let Parts { env, fleet, metrics } = assemble_permitted(config, &permit, cancel.clone())?;
    metrics.watch_process();
    let mut turn = Turn::new(&config.leader_election, env.clock.clone(), permit.clone())?;
    let probes = Arc::new(Probes::new(env.clock.now_ms(), LIVENESS_LIMIT, fleet.catalog_names()));
    let echo = echo == Echo::Lines;
    let board = Arc::new(Board::new(env.clock.now_ms(), env.memory.clone(), env.manifests.clone()));
    let observer: Arc<dyn Observer> = Arc::new(Reporter::new(metrics.clone(), board.clone(), probes.clone(), echo));
    let (teller, clock) = (observer.clone(), env.clock.clone());
    let tell = move |event: Event<'_>| teller.observe(event, clock.now_ms());
    let listen = listener.local_addr().map_or_else(|_| config.server.listen.to_string(), |a| a.to_string());
    tell(Event::Started { listen: &listen, loaded });

    // The server outlives the scheduler, so that health tells of the drain.
    let server_stop = CancellationToken::new();
    let (publish, settings) = watch::channel(LiveSettings::of(config, fleet));
    let (control, orders) = control();
    let operator = Operator {
        env: env.clone(),
        settings: settings.clone(),
        control,
        observer: observer.clone(),
        permit: permit.clone(),
        runtime: Handle::current(),
    };
    let api = api_state(config, board, operator);
    let clock = env.clock.clone();
    let state = ServerState { metrics: metrics.clone(), probes, clock, log_filter, api };
    let server = server::serve_apart(listener, state, server_stop.clone())?;
    let reloading = reload(loaded, publish, &metrics, &permit, &observer, &env.clock)?;
    let reloading = reloading.map(|task| AbortOnDropHandle::new(tokio::spawn(task)));
    tell(Event::Leads(!turn.is_shared()));
    if !turn.win(&cancel, || tell(Event::Heartbeat)).await {
        stop_server(server_stop, server).await;
        return Ok(());
    }
    tell(Event::Leads(true));
    let scheduler = Scheduler::new(env, settings.clone(), observer, orders);
    let collector = AbortOnDropHandle::new(tokio::spawn(scheduler.collector().run()));
    let mut scheduling = AbortOnDropHandle::new(tokio::spawn(scheduler.run()));

    let failure = tokio::select! {
        biased;
        () = cancel.cancelled() => None,
        // A process that does nothing is better ended: whoever watches it starts it again.
        ended = &mut scheduling => {
            let why = ended.err().map_or_else(|| "stopped".into(), |e| e.to_string());
            Some(Error::internal(format!("the scheduler ended by itself: {why}")))
        }
        // Likewise: a new process begins as a candidate, with nothing left of this one.
        why = turn.lost() => {
            cancel.cancel();
            Some(Error::unavailable(format!("this replica does not lead any more: {why}")))
        }
    };
    let configured = settings.borrow().grace;
    let grace = if turn.is_lost() { configured.min(turn.grace_after_loss()) } else { configured };
    tell(Event::Stopping(grace));
    drop((reloading, collector));
    let after_loss = turn.grace_after_loss();
    drain(scheduling, grace, turn.lost(), after_loss).await;
    tell(Event::Leads(false));
    turn.end().await;
    stop_server(server_stop, server).await;
    tracing::info!("stopped");
    failure.map_or(Ok(()), Err)
}

fn api_state(config: &Config, board: Arc<Board>, operator: Operator) -> ApiState {
    ApiState {
        board,
        operate: Arc::new(operator),
        admin: config.server.admin_token.as_ref().map(secret_source),
        planning: Arc::default(),
        aside: Aside::default(),
    }
}

/// Answers under way have a second; nothing depends on them.
async fn stop_server(stop: CancellationToken, server: oneshot::Receiver<()>) {
    stop.cancel();
    let _ = tokio::time::timeout(Duration::from_secs(1), server).await;
}

/// Keeps the settings as the file has them, where there is a file. From then on SIGHUP makes it look at once.
fn reload(
    loaded: &LoadedConfig,
    settings: watch::Sender<LiveSettings>,
    metrics: &Arc<Metrics>,
    permit: &WritePermit,
    observer: &Arc<dyn Observer>,
    clock: &Arc<dyn Clock>,
) -> Result<Option<impl Future<Output = ()> + use<>>> {
    let (metrics, permit) = (metrics.clone(), permit.clone());
    let build: BuildMember = Box::new(move |name, settings| member(name, settings, &metrics, &permit));
    let Some(reloader) = Reloader::new(loaded, build, settings, observer.clone(), clock.clone())? else {
        return Ok(None);
    };
    let hangup = signal(SignalKind::hangup()).map_err(|e| Error::internal(format!("listen for SIGHUP: {e}")))?;
    Ok(Some(reloader.watch(hangup)))
}

/// Binds an address to listen on, which the option `option` chose.
pub async fn bind(address: std::net::SocketAddr, option: &str) -> Result<TcpListener> {
    TcpListener::bind(address)
        .await
        .map_err(|e| Error::unavailable(format!("listen on {address}: {e} (choose another `{option}`)")))
}
