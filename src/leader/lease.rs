//! Reads and writes one `coordination.k8s.io/v1` Lease over plain HTTPS, as the pod's service account.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::record::Record;
use crate::error::{Error, ErrorKind, Result};
use crate::http_client::{self, CA_FILE, chain};

/// Where a pod finds its service account.
pub const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Largest answer that is taken in.
const BODY_BYTES_MAX: usize = 1 << 20;

/// The Lease as stored: everything in it goes back with a change, and its version tells whether somebody else was faster.
#[derive(Debug, Clone, PartialEq)]
pub struct LeaseObject(pub Value);

impl LeaseObject {
    /// What it says about its holder.
    pub fn record(&self) -> Record {
        let spec = &self.0["spec"];
        let text = |key: &str| spec[key].as_str().unwrap_or_default().to_owned();
        Record {
            holder: text("holderIdentity"),
            lease_duration: Duration::from_secs(spec["leaseDurationSeconds"].as_u64().unwrap_or(0)),
            transitions: spec["leaseTransitions"].as_u64().and_then(|n| u32::try_from(n).ok()).unwrap_or(0),
            version: self.0["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned(),
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum LeaseWrite {
    Done(LeaseObject),
    /// Somebody else was faster; nothing was changed.
    Raced,
}

/// A Lease within reach. Any error of a write means that it may or may not have been done.
#[async_trait]
pub trait LeaseApi: Send + Sync {
    /// The Lease; `None` if there is none.
    async fn get(&self) -> Result<Option<LeaseObject>>;
    /// A new Lease with this `spec`.
    async fn create(&self, spec: Value) -> Result<LeaseWrite>;
    /// Changes it, if it still has the version of `lease`.
    async fn replace(&self, lease: LeaseObject) -> Result<LeaseWrite>;
}

/// The way to the API server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cluster {
    /// Base address without a slash at the end.
    pub uri: String,
    /// Holds the token; read anew for each request, since it rotates.
    pub token_file: PathBuf,
    /// Certificates that the server's must stem from; `None`: the system's.
    pub ca_file: Option<PathBuf>,
    /// Namespace of the pod; `None`: not told.
    pub namespace: Option<String>,
}

impl Cluster {
    /// As Kubernetes tells each pod: environment variables, and the folder of the service account.
    /// [`ErrorKind::Config`] outside a pod.
    pub fn of_pod(variable: impl Fn(&str) -> Option<String>, folder: &Path) -> Result<Self> {
        let read = |name: &str| {
            variable(name).filter(|value| !value.is_empty()).ok_or_else(|| {
                let cure = "run it in a pod, or set `leader-election.enabled = false`";
                Error::new(ErrorKind::Config, format!("leader election: {name} is not set; {cure}"))
            })
        };
        let (host, port) = (read("KUBERNETES_SERVICE_HOST")?, read("KUBERNETES_SERVICE_PORT")?);
        let host = if host.contains(':') { format!("[{host}]") } else { host };
        let namespace = std::fs::read_to_string(folder.join("namespace")).ok().map(|text| text.trim().to_owned());
        Ok(Self {
            uri: format!("https://{host}:{port}"),
            token_file: folder.join("token"),
            ca_file: Some(folder.join("ca.crt")),
            namespace,
        })
    }
}

/// A Lease at an API server.
pub struct HttpLease {
    client: reqwest::Client,
    collection: String,
    name: String,
    namespace: String,
    token_file: PathBuf,
}

impl HttpLease {
    /// The Lease of this name, which need not exist. Sends nothing yet.
    pub fn new(cluster: &Cluster, namespace: &str, name: &str) -> Result<Self> {
        let mut properties = HashMap::new();
        if let Some(file) = &cluster.ca_file {
            properties.insert(CA_FILE.to_owned(), file.to_string_lossy().into_owned());
        }
        let client = http_client::build(&properties).map_err(|e| e.context("set up leader election"))?;
        let collection = format!("{}/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases", cluster.uri);
        let (name, namespace) = (name.to_owned(), namespace.to_owned());
        Ok(Self { client, collection, name, namespace, token_file: cluster.token_file.clone() })
    }

    async fn send(&self, method: Method, url: &str, body: Option<&Value>) -> Result<(StatusCode, Value)> {
        let token = std::fs::read_to_string(&self.token_file)
            .map_err(|e| Error::new(ErrorKind::Config, format!("read the token {}: {e}", self.token_file.display())))?;
        let mut request = self.client.request(method, url).bearer_auth(token.trim());
        if let Some(body) = body {
            request = request.json(body);
        }
        let mut response = request.send().await.map_err(|e| Error::unavailable(chain(&e)))?;
        let status = response.status();
        let mut text = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|e| Error::unavailable(chain(&e)))? {
            if text.len() + chunk.len() > BODY_BYTES_MAX {
                return Err(Error::unavailable(format!(
                    "the API server's answer has more than {BODY_BYTES_MAX} bytes"
                )));
            }
            text.extend_from_slice(&chunk);
        }
        // What is no JSON matters only where the status says success.
        Ok((status, serde_json::from_slice(&text).unwrap_or(Value::Null)))
    }

    fn refused(&self, status: StatusCode, answer: &Value) -> Error {
        let why = answer["message"].as_str().unwrap_or("without a reason");
        let cure = match status {
            StatusCode::FORBIDDEN => "; the service account needs get, create and update on leases",
            _ => "",
        };
        let (namespace, name) = (&self.namespace, &self.name);
        Error::unavailable(format!("lease {namespace}/{name}: the API server answered {status}: {why}{cure}"))
    }

    async fn write(&self, method: Method, url: &str, lease: &Value) -> Result<LeaseWrite> {
        let (status, answer) = self.send(method.clone(), url, Some(lease)).await?;
        match status {
            StatusCode::OK | StatusCode::CREATED if answer["spec"].is_object() => {
                Ok(LeaseWrite::Done(LeaseObject(answer)))
            }
            StatusCode::CONFLICT => Ok(LeaseWrite::Raced),
            // Somebody has deleted it since it was read. For a new one it is the namespace that is missing.
            StatusCode::NOT_FOUND if method == Method::PUT => Ok(LeaseWrite::Raced),
            status => Err(self.refused(status, &answer)),
        }
    }
}

#[async_trait]
impl LeaseApi for HttpLease {
    async fn get(&self) -> Result<Option<LeaseObject>> {
        let (status, answer) = self.send(Method::GET, &format!("{}/{}", self.collection, self.name), None).await?;
        match status {
            StatusCode::OK if answer["metadata"]["resourceVersion"].is_string() => Ok(Some(LeaseObject(answer))),
            StatusCode::NOT_FOUND => Ok(None),
            status => Err(self.refused(status, &answer)),
        }
    }

    async fn create(&self, spec: Value) -> Result<LeaseWrite> {
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": self.name, "namespace": self.namespace}, "spec": spec,
        });
        self.write(Method::POST, &self.collection, &lease).await
    }

    async fn replace(&self, lease: LeaseObject) -> Result<LeaseWrite> {
        self.write(Method::PUT, &format!("{}/{}", self.collection, self.name), &lease.0).await
    }
}
