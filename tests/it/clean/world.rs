//! A table whose history is written by hand: real manifests and lists, metadata of any shape, files of any age.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use iceberg::spec::{
    DataContentType, DataFile, FormatVersion, ManifestContentType, ManifestFile, ManifestStatus, PartitionSpec,
    SchemaRef, Struct,
};
use iceberg::{NamespaceIdent, TableIdent};
use icewright::catalog::TableHandle;
use icewright::clean::{
    CANDIDATES_PER_RUN, Elsewhere, ExpireReport, NeighbourAnswer, OrphanReport, OrphanRequest, Refused, Suspects,
    expire_snapshots, find_orphan_files, remove_orphan_files,
};
use icewright::clock::{Clock, SystemClock};
use icewright::commit::CommitContext;
use icewright::plan::ExpirePlan;
use icewright::plan::expire_snapshots::plan_expire_snapshots;
use icewright::policy::{CommitInterval, Schedule, TablePolicy};
use icewright::run_id::RunId;
use icewright::testing::builder::{self, content_file, library_manifest, library_manifest_list, manifest_entry};
use icewright::testing::{FaultyStore, MemoryCatalog, MemoryStore};
use serde_json::{Value, json};

pub(super) const LOCATION: &str = "s3://b/db/t";
pub(super) const UUID: &str = "0b9a9e3c-5d0f-4e5c-9d5e-aaaaaaaaaaaa";
pub(super) const MINUTE: i64 = 60_000;
pub(super) const HOUR: i64 = 60 * MINUTE;
pub(super) const DAY: i64 = 24 * HOUR;
pub(super) const INTERVAL: Duration = Duration::from_secs(600);

/// A path below the table's location, unless it is absolute already.
pub(super) fn at(path: &str) -> String {
    if path.contains("://") { path.to_owned() } else { format!("{LOCATION}/{path}") }
}

/// The name of a metadata file.
pub(super) fn metadata_name(version: usize) -> String {
    format!("metadata/{version:05}-0b9a9e3c-5d0f-4e5c-9d5e-{version:012}.metadata.json")
}

/// A live file of a manifest: path, snapshot and sequence number that added it.
type Live = (String, i64, i64);

/// What other tables need; `None`: they cannot be read.
#[derive(Clone)]
pub(super) struct Needed(pub(super) Option<Vec<String>>);

#[async_trait::async_trait]
impl Elsewhere for Needed {
    async fn referenced(&self, mut suspects: Suspects) -> NeighbourAnswer {
        let refused = || Refused::new("neighbour_unreadable", "another table cannot be read".into());
        let needed = self.0.clone().unwrap_or_default();
        needed.iter().for_each(|path| suspects.spare_file(path).expect("a valid path"));
        suspects.into_answer(self.0.is_none().then(refused))
    }
}

#[derive(Clone)]
pub(super) struct World {
    pub(super) store: MemoryStore,
    pub(super) faulty: FaultyStore,
    pub(super) catalog: MemoryCatalog,
    pub(super) ident: TableIdent,
    pub(super) now_ms: i64,
    pub(super) metadata: Value,
    pub(super) policy: TablePolicy,
    pub(super) neighbours: Vec<(String, String)>,
    pub(super) active: Vec<RunId>,
    /// Paths that other tables need; an error if they cannot be read.
    pub(super) elsewhere: Needed,
    pub(super) candidates_max: usize,
    /// The snapshot made last, as the metadata has it.
    pub(super) last_snapshot: Value,
    /// Whether manifest lists tell wrong counts of files, as some writers' do.
    pub(super) wrong_counts: bool,
    version: usize,
    manifests: BTreeMap<i64, Vec<(ManifestFile, Vec<Live>)>>,
}

fn policy() -> TablePolicy {
    TablePolicy {
        commit_interval: CommitInterval::Fixed(INTERVAL),
        schedule: Schedule::Every(INTERVAL),
        ..TablePolicy::default()
    }
}

impl World {
    /// A table without snapshots, thirty days old.
    pub(super) async fn new() -> Self {
        let store = MemoryStore::new();
        let faulty = FaultyStore::new(Arc::new(store.clone()));
        let now_ms = SystemClock.now_ms();
        let metadata = builder::metadata(json!({
            "table-uuid": UUID, "location": LOCATION, "current-snapshot-id": -1, "refs": {},
            "snapshot-log": [], "metadata-log": [], "statistics": [], "partition-statistics": [],
        }));
        let mut world = Self {
            catalog: MemoryCatalog::new(Arc::new(faulty.clone())),
            store,
            faulty,
            ident: TableIdent::new(NamespaceIdent::new("db".into()), "t".into()),
            now_ms,
            metadata,
            policy: policy(),
            neighbours: vec![],
            active: vec![],
            elsewhere: Needed(Some(Vec::new())),
            candidates_max: CANDIDATES_PER_RUN,
            last_snapshot: Value::Null,
            wrong_counts: false,
            version: 0,
            manifests: BTreeMap::new(),
        };
        world.publish(30 * DAY);
        world
    }

    /// Puts a file of a given age into the store.
    pub(super) fn file(&self, path: &str, age_ms: i64) {
        self.file_of(path, age_ms, b"0123456789".to_vec());
    }

    pub(super) fn file_of(&self, path: &str, age_ms: i64, content: Vec<u8>) {
        self.store.set_now_ms(self.now_ms - age_ms);
        self.store.put(&at(path), content);
        self.store.set_now_ms(self.now_ms);
    }

    pub(super) fn exists(&self, path: &str) -> bool {
        self.store.paths().contains(&at(path))
    }

    /// Writes the metadata as the next version and lets the catalog point to it.
    pub(super) fn publish(&mut self, age_ms: i64) {
        let path = at(&metadata_name(self.version));
        self.metadata["last-updated-ms"] = (self.now_ms - age_ms).into();
        let main = self.metadata["refs"]["main"]["snapshot-id"].clone();
        let log = self.metadata["snapshot-log"].as_array_mut().unwrap();
        if !main.is_null() && log.last().is_none_or(|entry| entry["snapshot-id"] != main) {
            log.push(json!({"snapshot-id": main, "timestamp-ms": self.now_ms - age_ms}));
        }
        self.file_of(&path, age_ms, self.metadata.to_string().into_bytes());
        self.catalog.register_json(&self.ident, path.clone(), self.metadata.clone()).unwrap();
        let entry = json!({"metadata-file": path, "timestamp-ms": self.now_ms - age_ms});
        self.metadata["metadata-log"].as_array_mut().unwrap().push(entry);
        self.version += 1;
    }

    /// A snapshot on main that adds and removes data files (put into the store if they are not there).
    pub(super) async fn commit(&mut self, id: i64, parent: Option<i64>, age_ms: i64, add: &[&str], remove: &[&str]) {
        self.snapshot(id, parent, age_ms, add, remove).await;
        self.metadata["current-snapshot-id"] = id.into();
        self.metadata["refs"]["main"] = json!({"snapshot-id": id, "type": "branch"});
        self.publish(age_ms);
    }

    /// The same without any ref or publication.
    pub(super) async fn snapshot(&mut self, id: i64, parent: Option<i64>, age_ms: i64, add: &[&str], remove: &[&str]) {
        let sequence = self.metadata["last-sequence-number"].as_i64().unwrap() + 1;
        let commit = format!("0b9a9e3c-5d0f-4e5c-9d5e-{id:012}");
        let mut manifests = Vec::new();
        let mut writer = 0;
        let mut next_path = || {
            writer += 1;
            at(&format!("metadata/{commit}-m{}.avro", writer - 1))
        };
        if !add.is_empty() {
            let live: Vec<Live> = add.iter().map(|p| (at(p), id, sequence)).collect();
            let present = self.store.paths();
            let missing = live.iter().filter(|(p, ..)| !present.contains(p) && !p.contains("/../"));
            missing.for_each(|(p, ..)| self.file(p, age_ms));
            manifests.push(self.manifest(next_path(), id, sequence, age_ms, &live, &[]).await);
        }
        let removed: Vec<String> = remove.iter().map(|p| at(p)).collect();
        for (manifest, live) in parent.and_then(|p| self.manifests.get(&p)).cloned().unwrap_or_default() {
            let (gone, left): (Vec<Live>, Vec<Live>) = live.into_iter().partition(|(p, ..)| removed.contains(p));
            if gone.is_empty() {
                manifests.push((manifest, left));
            } else {
                manifests.push(self.manifest(next_path(), id, sequence, age_ms, &left, &gone).await);
            }
        }
        let list = at(&format!("metadata/snap-{id}-1-{commit}.avro"));
        let mut files = manifests.iter().map(|(manifest, _)| manifest.clone()).collect::<Vec<_>>();
        if self.wrong_counts {
            files.iter_mut().for_each(|manifest| manifest.existing_files_count = Some(5));
        }
        self.file_of(&list, age_ms, library_manifest_list(id, parent, sequence, files).await.unwrap().to_vec());
        self.manifests.insert(id, manifests);
        let changes = json!({
            "sequence-number": sequence, "timestamp-ms": self.now_ms - age_ms, "manifest-list": list,
            "summary": {"operation": if remove.is_empty() { "append" } else { "replace" }},
        });
        let snapshot = builder::snapshot(id, parent, changes);
        self.metadata["last-sequence-number"] = sequence.into();
        self.last_snapshot = snapshot.clone();
        self.metadata["snapshots"].as_array_mut().unwrap().push(snapshot);
    }

    async fn manifest(
        &self,
        path: String,
        id: i64,
        sequence: i64,
        age_ms: i64,
        live: &[Live],
        gone: &[Live],
    ) -> (ManifestFile, Vec<Live>) {
        let (manifest, bytes) = write_manifest(&path, id, sequence, live, gone).await;
        self.file_of(&path, age_ms, bytes);
        (manifest, live.to_vec())
    }

    /// Sets entries of the newest snapshot's summary, without publication.
    pub(super) fn summary(&mut self, id: i64, key: &str, value: &str) {
        let snapshots = self.metadata["snapshots"].as_array_mut().unwrap();
        let snapshot = snapshots.iter_mut().find(|s| s["snapshot-id"] == id).unwrap();
        snapshot["summary"][key] = value.into();
    }

    /// Takes snapshots out of the metadata and leaves their files, as if a clean-up had died. Publishes.
    pub(super) fn forget(&mut self, ids: &[i64], age_ms: i64) {
        let gone = |s: &Value| ids.iter().any(|id| s["snapshot-id"] == *id);
        self.metadata["snapshots"].as_array_mut().unwrap().retain(|s| !gone(s));
        self.publish(age_ms);
    }

    /// Lets a snapshot name its manifests itself, as old writers of version 1 did; its list goes. Without publication.
    pub(super) fn inline_manifests(&mut self, id: i64) {
        let paths: Vec<&str> =
            self.manifests[&id].iter().map(|(manifest, _)| manifest.manifest_path.as_str()).collect();
        let snapshots = self.metadata["snapshots"].as_array_mut().unwrap();
        let snapshot = snapshots.iter_mut().find(|s| s["snapshot-id"] == id).unwrap().as_object_mut().unwrap();
        snapshot.insert("manifests".into(), json!(paths));
        snapshot.remove("manifest-list");
    }

    /// Statistics of a snapshot, of both kinds, without publication.
    pub(super) fn statistics(&mut self, id: i64, path: &str, partition_path: &str, age_ms: i64) {
        self.file(path, age_ms);
        self.file(partition_path, age_ms);
        self.metadata["statistics"].as_array_mut().unwrap().push(json!({
            "snapshot-id": id, "statistics-path": at(path), "file-size-in-bytes": 10,
            "file-footer-size-in-bytes": 5, "blob-metadata": [],
        }));
        self.metadata["partition-statistics"].as_array_mut().unwrap().push(json!({
            "snapshot-id": id, "statistics-path": at(partition_path), "file-size-in-bytes": 10,
        }));
    }

    pub(super) async fn table(&self) -> TableHandle {
        self.catalog.handle(&self.ident, Arc::new(self.faulty.clone())).await.unwrap()
    }

    pub(super) async fn plan(&self) -> ExpirePlan {
        plan_expire_snapshots(&self.table().await.loaded, &self.policy, INTERVAL, self.now_ms).unwrap()
    }

    /// Plans and expires.
    pub(super) async fn expire(&self) -> ExpireReport {
        let plan = self.plan().await;
        self.carry_out(&plan).await
    }

    pub(super) async fn carry_out(&self, plan: &ExpirePlan) -> ExpireReport {
        self.carry_out_on(&self.table().await, plan).await
    }

    pub(super) async fn carry_out_on(&self, table: &TableHandle, plan: &ExpirePlan) -> ExpireReport {
        let mut ctx = CommitContext::new(RunId(SystemClock.uuid()));
        (ctx.min_wait, ctx.max_wait) = (Duration::from_millis(1), Duration::from_millis(2));
        expire_snapshots(table, plan, &ctx, &SystemClock, Ok(&self.neighbours)).await
    }

    fn request<'a>(&'a self, is_active: &'a (dyn Fn(RunId) -> bool + Sync)) -> OrphanRequest<'a> {
        OrphanRequest {
            policy: &self.policy,
            commit_interval: INTERVAL,
            run_timeout: Duration::from_secs(6 * 3600),
            now_ms: self.now_ms,
            is_active,
            neighbours: &self.neighbours,
            elsewhere: &self.elsewhere,
            candidates_max: self.candidates_max,
        }
    }

    pub(super) async fn find_orphans(&self) -> OrphanReport {
        find_orphan_files(&self.table().await, &self.request(&|run| self.active.contains(&run))).await
    }

    pub(super) async fn remove_orphans(&self) -> OrphanReport {
        remove_orphan_files(&self.table().await, &self.request(&|run| self.active.contains(&run))).await
    }

    /// Content files of a retained snapshot, which must all be in the store.
    pub(super) fn assert_readable(&self, id: i64) {
        let paths = self.store.paths();
        for (manifest, live) in &self.manifests[&id] {
            assert!(paths.contains(&manifest.manifest_path), "{} of snapshot {id}", manifest.manifest_path);
            live.iter().for_each(|(path, ..)| assert!(paths.contains(path), "{path} of snapshot {id}"));
        }
        let snapshots = self.metadata["snapshots"].as_array().unwrap();
        if snapshots.iter().any(|s| s["snapshot-id"] == id && s["manifests"].is_array()) {
            return;
        }
        let prefix = at(&format!("metadata/snap-{id}-"));
        assert!(paths.iter().any(|p| p.starts_with(&prefix)), "the list of snapshot {id}");
    }

    /// Files below the location, without metadata files.
    pub(super) fn left(&self) -> Vec<String> {
        let prefix = at("");
        let names = self.store.paths().into_iter().filter_map(|p| p.strip_prefix(&prefix).map(str::to_owned));
        names.filter(|p| !p.ends_with(".metadata.json")).collect()
    }
}

fn data_file(path: &str) -> DataFile {
    content_file(DataContentType::Data, path, Struct::empty(), 1, 10).build().unwrap()
}

/// A manifest with files that are live and files that have left.
pub(super) async fn write_manifest(
    path: &str,
    id: i64,
    sequence: i64,
    live: &[Live],
    gone: &[Live],
) -> (ManifestFile, Vec<u8>) {
    let schema = json!({"type": "struct", "schema-id": 0,
        "fields": [{"id": 1, "name": "id", "required": false, "type": "long"}]});
    let schema: SchemaRef = Arc::new(serde_json::from_value(schema).unwrap());
    let entry = |status, (path, added, number): &Live| manifest_entry(status, *added, Some(*number), data_file(path));
    let live = live.iter().map(|file| match file.1 == id {
        true => entry(ManifestStatus::Added, file),
        false => entry(ManifestStatus::Existing, file),
    });
    let gone = gone.iter().map(|file| entry(ManifestStatus::Deleted, file));
    let entries: Vec<_> = live.chain(gone).collect();
    let kind = (FormatVersion::V2, ManifestContentType::Data);
    let layout = (schema, PartitionSpec::unpartition_spec());
    let (manifest, bytes) = library_manifest(path, kind, layout, (id, sequence), entries).await.unwrap();
    (manifest, bytes.to_vec())
}
