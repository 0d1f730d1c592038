//! A lake to call the commands on, and the calls.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use icewright::catalog::Catalog;
use icewright::catalog::rest::{Auth, RestCatalog, RestCatalogConfig};
use icewright::sandbox::catalog::CatalogServer;
use icewright::sandbox::writers::{create_tables, write_once};
use icewright::storage;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

use crate::interop::process::ICEWRIGHT;

/// An embedded catalog with the sandbox's two tables, three commits each.
pub(crate) struct Lake {
    dir: TempDir,
    pub(crate) uri: String,
    stop: CancellationToken,
    runtime: Runtime,
}

impl Lake {
    pub(crate) fn start() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let runtime = Runtime::new().expect("a runtime");
        let stop = CancellationToken::new();
        let uri = runtime.block_on(async {
            let server = CatalogServer::open(dir.path()).expect("open the catalog");
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("bind");
            let uri = format!("http://{}", listener.local_addr().expect("an address"));
            tokio::spawn(server.serve(listener, stop.clone()));
            create_tables(&uri).await.expect("create the tables");
            for _ in 0..3 {
                write(&uri).await;
            }
            uri
        });
        Self { dir, uri, stop, runtime }
    }

    /// One more commit to each table.
    pub(crate) fn write(&self) {
        self.runtime.block_on(write(&self.uri));
    }

    pub(crate) fn uri(&self) -> &str {
        &self.uri
    }

    /// Where everything of it lies.
    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// A configuration with this delay and more sections.
    pub(crate) fn config_with(&self, delay: &str, more: &str) -> PathBuf {
        let path = self.config(delay, 1);
        let text = std::fs::read_to_string(&path).expect("the file");
        std::fs::write(&path, format!("{more}{text}")).expect("write");
        path
    }

    /// A configuration with this delay, and a server on this port.
    pub(crate) fn config(&self, delay: &str, port: u16) -> PathBuf {
        let path = self.dir.path().join(format!("icewright-{port}.toml"));
        write_config(&path, &self.uri, delay, port);
        path
    }
}

async fn write(uri: &str) {
    let config = RestCatalogConfig {
        name: "lake".into(),
        uri: uri.to_owned(),
        warehouse: None,
        properties: Default::default(),
        auth: Auth::None,
    };
    let catalog: Arc<dyn Catalog> = Arc::new(RestCatalog::connect(config).await.expect("connect"));
    write_once(catalog, storage::open(&Default::default())).await.expect("write");
}

impl Drop for Lake {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

pub(crate) fn write_config(path: &Path, uri: &str, delay: &str, port: u16) {
    let text = format!(
        r#"[server]
listen = "127.0.0.1:{port}"
grace = "20s"
[limits]
memory = "512MiB"
[catalogs.lake]
uri = "{uri}"
auth = {{ type = "none" }}
properties = {{ "client.max-retries" = "0" }}
[[policies]]
name = "shop"
tables = ["lake.shop.*"]
commit-interval = "1s"
every = "1h"
delay = "{delay}"
[policies.rewrite-data-files]
rewrite-all = true
"#
    );
    std::fs::write(path, text).expect("write a configuration");
}

pub(crate) fn icewright(arguments: &[&str]) -> Command {
    let mut command = Command::new(ICEWRIGHT);
    command.args(arguments).env_remove("ICEWRIGHT_CONFIG").env_remove("ICEWRIGHT_LOG").stdin(Stdio::null());
    command
}

pub(crate) fn run(arguments: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = icewright(arguments).output().expect("start icewright");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (status.code(), text(stdout), text(stderr))
}
