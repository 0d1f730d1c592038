//! What other tables mean for the files of one: where they lie, and which of its unreferenced files they need. The tables of all configured
//! catalogs count.
//!
//! One pass over the catalogs answers all clean-ups that wait for it. It begins after they have asked: so what a table needs is never older
//! than the finding that nothing of its own table refers to a file. While a clean-up waits it holds no place of other tables.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::future::join_all;
use futures::{StreamExt, stream};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;
use uuid::Uuid;

use super::Fleet;
use super::known::{Known, Looked};
use super::listing::Unclear;
use crate::clean::{Elsewhere, NeighbourAnswer, Refused, Suspects};
use crate::concurrent::concurrent;
use crate::error::{Error, ErrorKind, Result};
use crate::policy::TablePattern;
use crate::table::TableName;

/// Tables looked at at the same time.
const LOOKS_AT_ONCE: usize = 8;
/// A listing, and for plans a look at a table, this old is taken as it is.
const REUSED_FOR: Duration = Duration::from_secs(60);
/// A pass begins when no clean-up has joined it for so long.
const QUIET: Duration = Duration::from_millis(250);
/// Time between two passes, as a multiple of the time that the last one took.
const REST: u32 = 10;
/// Longest time between two passes.
const REST_MAX: Duration = Duration::from_secs(5 * 60);
/// Suspects of all waiting clean-ups with which a pass begins at once: they take memory.
const SUSPECTS_MAX: usize = 1_000_000;
/// Clean-ups with which a pass begins at once.
const WAITING_MAX: usize = 1000;
/// Clean-ups that delete at the same time after a pass has answered them.
const DELETE_AT_ONCE: usize = 16;
/// Neighbours named in a refusal.
const NAMED_MAX: usize = 3;

/// The catalogs by their names.
pub(super) type KnownCatalogs = BTreeMap<String, Arc<Known>>;

/// What lies around a table.
#[derive(Debug, Clone, Default)]
pub struct Surroundings {
    /// Directories of every other table, each with the table's name.
    pub directories: Vec<(String, String)>,
    /// Why they do not tell which files are this table's alone.
    pub unclear: Option<Refused>,
}

impl Surroundings {
    /// The directories, or the reason why files stay, as reports of expiry name it.
    pub fn for_expiry(&self) -> Result<&[(String, String)], &'static str> {
        match &self.unclear {
            Some(Refused { reason: REGISTERED_TWICE, .. }) => Err("registered-twice"),
            Some(_) => Err("neighbours-unknown"),
            None => Ok(&self.directories),
        }
    }

    /// Why no file of the table may go, whatever the other tables need.
    pub fn shared(&self) -> Option<&Refused> {
        self.unclear.as_ref().filter(|refused| refused.reason == REGISTERED_TWICE)
    }
}

const REGISTERED_TWICE: &str = "registered_twice";

/// A table among others.
#[derive(Debug, Clone, Copy)]
pub struct Own<'a> {
    pub name: &'a TableName,
    pub uuid: Uuid,
    /// Other tables whose being unreadable is accepted.
    pub ignore_unreadable: &'a [TablePattern],
}

/// What was found out about the tables around one.
#[derive(Debug, Default)]
struct NeighbourFindings {
    /// Who cannot be read, and why.
    unreadable: Vec<String>,
    /// Whether one of them has answered that it cannot be.
    lasting: bool,
    /// The other name of the same table.
    twice: Option<TableName>,
}

impl NeighbourFindings {
    fn unreadable(&mut self, name: &TableName, error: &Error, own: &Own<'_>) {
        if !own.ignore_unreadable.iter().any(|pattern| pattern.matches(name)) {
            self.unreadable.push(format!("table {name}: {error}"));
            self.lasting |= error.kind() != ErrorKind::Unavailable;
        }
    }

    fn unclear(&mut self, unclear: &Unclear, own: &Own<'_>) {
        if !unclear.is_covered_by(own.ignore_unreadable) {
            self.unreadable.push(unclear.to_string());
            self.lasting |= unclear.error.kind() != ErrorKind::Unavailable;
        }
    }

    /// Notes what the listing of a catalog lacks.
    fn listed(&mut self, known: &Known, listed: &Result<Arc<super::listing::Listed>>, own: &Own<'_>) {
        match listed {
            Ok(listed) => {
                listed.unclear.iter().for_each(|unclear| self.unclear(unclear, own));
                if own.name.catalog == known.name && !listed.tables.contains(own.name) {
                    self.unreadable.push(format!("catalog {}: it does not list {} itself", known.name, own.name));
                }
            }
            Err(error) => {
                let unclear = Unclear { catalog: known.name.clone(), namespace: None, error: error.clone() };
                self.unclear(&unclear, own);
            }
        }
    }

    fn uuid(&mut self, name: &TableName, uuid: Option<Uuid>, own: &Own<'_>) {
        if uuid == Some(own.uuid) {
            self.twice = Some(name.clone());
        }
    }

    fn refused(&self) -> Option<Refused> {
        if let Some(other) = &self.twice {
            let detail = format!(
                "{other} is the same table, by its UUID: what one of the two names has expired the other may still need; \
                 drop one of the registrations"
            );
            return Some(Refused::new(REGISTERED_TWICE, detail));
        }
        if self.unreadable.is_empty() {
            return None;
        }
        let named = self.unreadable.iter().take(NAMED_MAX).map(String::as_str).collect::<Vec<_>>().join("; ");
        let more = match self.unreadable.len().saturating_sub(NAMED_MAX) {
            0 => String::new(),
            more => format!("; and {more} more"),
        };
        let detail = format!(
            "what other tables need is not known ({named}{more}): mend that, or, if they surely need no file in this table's \
             folders, name them under remove-orphan-files.ignore-unreadable"
        );
        Some(Refused { reason: "neighbour_unreadable", detail, passes: !self.lasting })
    }
}

/// Where all other tables lie.
pub(super) async fn surroundings(catalogs: &KnownCatalogs, own: Own<'_>) -> Surroundings {
    let oldest = Instant::now().checked_sub(REUSED_FOR).unwrap_or_else(Instant::now);
    let listings = join_all(catalogs.values().map(|known| known.listed_for_clean_up(oldest))).await;
    let (mut findings, mut others) = (NeighbourFindings::default(), Vec::new());
    for (known, listed) in catalogs.values().zip(listings) {
        findings.listed(known, &listed, &own);
        let tables = listed.iter().flat_map(|listed| listed.tables.iter());
        others.extend(tables.filter(|other| *other != own.name).map(|other| (known.clone(), other.clone())));
    }
    let mut look_ups = concurrent(LOOKS_AT_ONCE, others, place_of);
    let mut directories = Vec::new();
    while let Some((name, place)) = look_ups.next().await {
        match place {
            Ok(None) => {}
            Ok(Some(place)) => {
                findings.uuid(&name, place.uuid, &own);
                directories.extend(place.directories.into_iter().map(|directory| (name.to_string(), directory)));
            }
            Err(error) => findings.unreadable(&name, &error, &own),
        }
    }
    Surroundings { directories, unclear: findings.refused() }
}

async fn place_of((known, name): (Arc<Known>, TableName)) -> (TableName, Result<Option<super::known::TablePlace>>) {
    let place = known.place_of(&name).await;
    (name, place)
}

/// A table's question to all others.
struct Inquiry {
    name: TableName,
    uuid: Uuid,
    ignore_unreadable: Vec<TablePattern>,
    progress: Mutex<PassState>,
}

struct PassState {
    asked: usize,
    suspects: Option<Suspects>,
    answer: Option<NeighbourAnswer>,
}

impl Inquiry {
    fn own(&self) -> Own<'_> {
        Own { name: &self.name, uuid: self.uuid, ignore_unreadable: &self.ignore_unreadable }
    }

    /// Takes in what was found of another table.
    fn take_in(&self, name: &TableName, look: &Looked, findings: &mut NeighbourFindings) {
        let (own, mut progress) = (self.own(), self.progress.lock());
        let Some(suspects) = &mut progress.suspects else { return };
        match look {
            Looked::Gone => {}
            Looked::Seen(known) => {
                findings.uuid(name, known.uuid, &own);
                if let Err(error) = suspects.spare(&known.needs) {
                    findings.unreadable(name, &error, &own);
                }
            }
            Looked::Unreadable { error, stores } => {
                if stores.as_ref().is_none_or(|stores| suspects.lie_in_any(stores)) {
                    findings.unreadable(name, error, &own);
                }
            }
        }
    }
}

/// The clean-ups that wait for a pass.
pub(super) struct Inquiries {
    queue: Mutex<Vec<Arc<Inquiry>>>,
    /// Held by whoever makes the pass: when the last one ended, and how long it took.
    pass: tokio::sync::Mutex<Option<(Instant, Duration)>>,
    waiting: watch::Sender<usize>,
    turns: Arc<Semaphore>,
}

impl Default for Inquiries {
    fn default() -> Self {
        let turns = Arc::new(Semaphore::new(DELETE_AT_ONCE));
        Self { queue: Mutex::default(), pass: tokio::sync::Mutex::default(), waiting: watch::Sender::new(0), turns }
    }
}

impl Inquiries {
    /// How many clean-ups wait for an answer, now and from now on.
    pub(super) fn waiting(&self) -> watch::Receiver<usize> {
        self.waiting.subscribe()
    }

    /// Waits for the next pass, or makes it.
    async fn ask(&self, catalogs: &KnownCatalogs, inquiry: Arc<Inquiry>) -> NeighbourAnswer {
        let _queued = Queued::enter(self, inquiry.clone());
        let mut last = self.pass.lock().await;
        if inquiry.progress.lock().answer.is_none() {
            self.gather(*last).await;
            let asked = self.queue.lock().clone();
            let asked: Vec<_> = asked.into_iter().filter(|inquiry| inquiry.progress.lock().answer.is_none()).collect();
            let began = Instant::now();
            pass(catalogs, &asked, began).await;
            *last = Some((Instant::now(), began.elapsed()));
        }
        drop(last);
        let turn = self.turns.clone().acquire_owned().await.ok();
        let answer = inquiry.progress.lock().answer.take();
        let lost = || NeighbourAnswer { needed: Vec::new(), refused: None, turn: None };
        NeighbourAnswer { turn, ..answer.unwrap_or_else(lost) }
    }

    /// Waits for other clean-ups to join, and so long that passes take a small share of the time.
    async fn gather(&self, last: Option<(Instant, Duration)>) {
        let earliest = last.map(|(ended, took)| ended + (took * REST).min(REST_MAX));
        let mut joined = 0;
        loop {
            let (count, suspects) = {
                let queue = self.queue.lock();
                (queue.len(), queue.iter().map(|inquiry| inquiry.progress.lock().asked).sum::<usize>())
            };
            let rested = earliest.is_none_or(|earliest| earliest <= Instant::now());
            if (count == joined && rested) || suspects > SUSPECTS_MAX || count > WAITING_MAX {
                return;
            }
            joined = count;
            tokio::time::sleep(QUIET).await;
        }
    }
}

/// A clean-up that waits, until it has its answer or is given up.
struct Queued<'a> {
    inquiries: &'a Inquiries,
    inquiry: Arc<Inquiry>,
}

impl<'a> Queued<'a> {
    fn enter(inquiries: &'a Inquiries, inquiry: Arc<Inquiry>) -> Self {
        inquiries.queue.lock().push(inquiry.clone());
        inquiries.waiting.send_modify(|waiting| *waiting += 1);
        Self { inquiries, inquiry }
    }
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        self.inquiries.queue.lock().retain(|other| !Arc::ptr_eq(other, &self.inquiry));
        self.inquiries.waiting.send_modify(|waiting| *waiting = waiting.saturating_sub(1));
    }
}

/// Looks at every table once, no look being older than `oldest`, and answers all inquiries.
async fn pass(catalogs: &KnownCatalogs, asked: &[Arc<Inquiry>], oldest: Instant) {
    let mut findings: Vec<NeighbourFindings> = asked.iter().map(|_| NeighbourFindings::default()).collect();
    let listings = join_all(catalogs.values().map(|known| known.listed_for_clean_up(oldest))).await;
    let mut looks = Vec::new();
    for (known, listed) in catalogs.values().zip(&listings) {
        for (inquiry, findings) in asked.iter().zip(&mut findings) {
            findings.listed(known, listed, &inquiry.own());
        }
        let tables = listed.iter().flat_map(|listed| listed.tables.iter());
        let concern = |name: &&TableName| asked.iter().any(|inquiry| inquiry.name != **name);
        looks.extend(tables.filter(concern).map(|name| look(known.clone(), name.clone(), oldest)));
    }
    let mut looks = stream::iter(looks).buffer_unordered(LOOKS_AT_ONCE);
    while let Some((known, name, look)) = looks.next().await {
        for (inquiry, findings) in asked.iter().zip(&mut findings).filter(|(inquiry, _)| inquiry.name != name) {
            inquiry.take_in(&name, &look, findings);
        }
        if let Looked::Seen(seen) = look {
            known.remember_needs(&name, *seen);
        }
    }
    for (inquiry, findings) in asked.iter().zip(findings) {
        let mut progress = inquiry.progress.lock();
        progress.answer = progress.suspects.take().map(|suspects| suspects.into_answer(findings.refused()));
    }
}

async fn look(known: Arc<Known>, name: TableName, oldest: Instant) -> (Arc<Known>, TableName, Looked) {
    let look = known.look(&name, oldest).await;
    (known, name, look)
}

/// All other tables of all catalogs.
pub struct Others<'a> {
    pub fleet: &'a Fleet,
    /// The one that is not meant.
    pub own: Own<'a>,
    /// Whether nothing is deleted whatever the answer is: then nobody waits, and looks that were just made are used.
    pub plan: bool,
}

#[async_trait]
impl Elsewhere for Others<'_> {
    async fn referenced(&self, suspects: Suspects) -> NeighbourAnswer {
        let Own { name, uuid, ignore_unreadable } = self.own;
        let progress = PassState { asked: suspects.len(), suspects: Some(suspects), answer: None };
        let inquiry = Arc::new(Inquiry {
            name: name.clone(),
            uuid,
            ignore_unreadable: ignore_unreadable.to_vec(),
            progress: Mutex::new(progress),
        });
        let (catalogs, inquiries) = (self.fleet.catalogs(), self.fleet.inquiries());
        if !self.plan {
            return inquiries.ask(catalogs, inquiry).await;
        }
        let oldest = Instant::now().checked_sub(REUSED_FOR).unwrap_or_else(Instant::now);
        pass(catalogs, std::slice::from_ref(&inquiry), oldest).await;
        let answer = inquiry.progress.lock().answer.take();
        answer.unwrap_or(NeighbourAnswer { needed: Vec::new(), refused: None, turn: None })
    }
}
