//! The store over the local file system, through the public door.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use futures::TryStreamExt;
use icewright::clock::{Clock, SystemClock};
use icewright::error::ErrorKind;
use icewright::storage::{self, StoreRef};

fn store() -> StoreRef {
    storage::open(&HashMap::new())
}

async fn listing(store: &StoreRef, prefix: &str) -> BTreeMap<String, u64> {
    let files: Vec<_> = store.list(prefix).try_collect().await.unwrap();
    files.into_iter().map(|f| (f.path, f.size)).collect()
}

#[tokio::test]
async fn the_file_systems_clock_is_told_and_nothing_is_left_behind() {
    let dir = tempfile::tempdir().unwrap();
    let near = format!("file://{}/v1.metadata.json", dir.path().display());
    let before = SystemClock.now_ms();
    let told = store().time_ms(&near).await.unwrap().expect("told");
    assert!((before - 5_000..=SystemClock.now_ms() + 5_000).contains(&told), "{told}, {before}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn odd_names_are_taken_verbatim() {
    let dir = tempfile::tempdir().unwrap();
    let base = format!("file://{}/t", dir.path().display());
    let store = store();
    let names = ["a b", "a%20b", "50%", "x#y", "x?y", "p+q", "k%3Av", "\u{e9}", "e\u{301}", "_h", ".h", "q'\"", " s "];
    for (i, name) in names.iter().enumerate() {
        store.write(&format!("{base}/d={name}/{name}"), Bytes::from(vec![b'x'; i + 1])).await.unwrap();
    }
    let expected: BTreeMap<String, u64> =
        names.iter().enumerate().map(|(i, n)| (format!("{base}/d={n}/{n}"), i as u64 + 1)).collect();
    assert_eq!(listing(&store, &format!("{base}/")).await, expected, "paths keep the spelling of the prefix");
    for name in names {
        let on_disk = dir.path().join("t").join(format!("d={name}")).join(name);
        assert!(on_disk.is_file(), "{name:?} is on disk as written");
    }
    let victim = format!("{base}/d=a%20b/a%20b");
    assert!(store.delete_batch(std::slice::from_ref(&victim)).await[0].is_ok());
    assert_eq!(store.stat(&victim).await.unwrap(), None);
    assert_eq!(store.read(&format!("{base}/d=a b/a b")).await.unwrap().len(), 1, "the like-named one stays");
}

#[tokio::test]
async fn every_spelling_opens_the_same_file() {
    let dir = tempfile::tempdir().unwrap();
    let plain = format!("{}/f", dir.path().display());
    let store = store();
    store.write(&plain, Bytes::from_static(b"0123456789")).await.unwrap();
    for spelling in [plain.clone(), format!("file:{plain}"), format!("file://{plain}"), format!("FILE:{plain}")] {
        assert_eq!(store.read(&spelling).await.unwrap(), "0123456789");
        assert_eq!(store.read_range(&spelling, 2..5).await.unwrap(), "234");
        let found = store.stat(&spelling).await.unwrap().unwrap();
        assert_eq!((found.path, found.size), (spelling, 10));
        assert!(found.last_modified_ms.unwrap() > 1_600_000_000_000);
    }
    for bad in ["f", "file:f", "file://host/f", &format!("{plain}/../f"), &format!("{plain}/.")] {
        assert_eq!(store.read(bad).await.unwrap_err().kind(), ErrorKind::DataInvalid, "{bad}");
    }
}

#[tokio::test]
async fn nothing_is_overwritten_and_nothing_half_written_shows() {
    let dir = tempfile::tempdir().unwrap();
    let path = format!("{}/deep/er/f", dir.path().display());
    let store = store();
    let mut first = store.writer(&path).await.unwrap();
    let mut second = store.writer(&path).await.unwrap();
    first.write(Bytes::from_static(b"first")).await.unwrap();
    second.write(Bytes::from_static(b"second")).await.unwrap();
    assert_eq!(store.stat(&path).await.unwrap(), None, "not visible before it is closed");
    assert_eq!(first.close().await.unwrap(), 5);
    let lost = second.close().await.unwrap_err().to_string();
    assert!(lost.contains("already exists"), "{lost}");
    drop(second);
    let refused = store.write(&path, Bytes::from_static(b"third")).await.unwrap_err().to_string();
    assert!(refused.contains("never overwritten"), "{refused}");
    assert_eq!(store.read(&path).await.unwrap(), "first");

    let other = format!("{}/deep/g", dir.path().display());
    let mut writer = store.writer(&other).await.unwrap();
    writer.write(Bytes::from_static(b"x")).await.unwrap();
    writer.abort().await.unwrap();
    let mut writer = store.writer(&other).await.unwrap();
    writer.write(Bytes::from_static(b"x")).await.unwrap();
    drop(writer);
    let left = listing(&store, &dir.path().display().to_string()).await;
    assert_eq!(left, BTreeMap::from([(path, 5)]), "no temporary file is left");
}

#[tokio::test]
async fn absent_files_and_short_files() {
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path().display().to_string();
    let store = store();
    store.write(&format!("{base}/f"), Bytes::from_static(b"abc")).await.unwrap();
    assert_eq!(store.read(&format!("{base}/none")).await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(store.read_range(&format!("{base}/none"), 0..1).await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(store.stat(&format!("{base}/none")).await.unwrap(), None);
    assert_eq!(store.stat(&base).await.unwrap(), None, "a directory is no file");
    let short = store.read_range(&format!("{base}/f"), 1..9).await.unwrap_err();
    assert_eq!(short.kind(), ErrorKind::DataInvalid, "{short}");
    assert_eq!(listing(&store, &format!("{base}/none")).await, BTreeMap::new());
    let paths = [format!("{base}/f"), format!("{base}/none"), base.clone(), "relative".to_owned()];
    let results: Vec<bool> = store.delete_batch(&paths).await.into_iter().map(|r| r.is_ok()).collect();
    assert_eq!(results, [true, true, false, false], "each file has its own result; a directory is never deleted");
}

#[tokio::test]
async fn listing_neither_follows_links_nor_takes_siblings() {
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path().display().to_string();
    let store = store();
    for name in ["t/data/f", "t_2/f", "t.bak"] {
        store.write(&format!("{base}/{name}"), Bytes::from_static(b"x")).await.unwrap();
    }
    std::os::unix::fs::symlink(format!("{base}/t_2"), format!("{base}/t/linked-dir")).unwrap();
    std::os::unix::fs::symlink(format!("{base}/t.bak"), format!("{base}/t/linked-file")).unwrap();
    for prefix in [format!("{base}/t"), format!("{base}/t/")] {
        assert_eq!(listing(&store, &prefix).await, BTreeMap::from([(format!("{base}/t/data/f"), 1)]));
    }
}

#[tokio::test]
async fn a_file_is_the_same_by_all_its_names() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| format!("{}/{name}", dir.path().display());
    let store = store();
    store.write(&at("d/f"), Bytes::from_static(b"x")).await.unwrap();
    store.write(&at("d/g"), Bytes::from_static(b"x")).await.unwrap();
    std::os::unix::fs::symlink(at("d"), at("link")).unwrap();
    std::os::unix::fs::symlink(at("d/f"), at("d/other")).unwrap();
    std::fs::hard_link(at("d/g"), at("d/hard")).unwrap();
    let names =
        ["d/f", "link/f", "d/other", "d/g", "d/hard", "d/none", "d/f/none"].map(|name| format!("file:{}", at(name)));
    let found = store.identities(&names).await.unwrap();
    assert!(found[0].is_some() && found[0] == found[1] && found[0] == found[2], "{found:?}");
    assert_eq!((found[3], found[3].unwrap().hard_links), (found[4], 2));
    assert_ne!(found[0], found[3]);
    assert_eq!(found[5..], [None, None]);
    let mixed = store.identities(&["s3://b/k".into(), at("d/f")]).await.unwrap();
    assert_eq!(mixed, [None, found[0]], "objects have one name each");
}
