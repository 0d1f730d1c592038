//! What one kind of object store has of its own. Everything else about objects is in [`super::object`].

use std::collections::HashMap;

use opendal::Operator;

use super::credentials::VendedSettings;
use super::s3::S3;
use crate::error::Result;

/// Every kind of object store that this version reaches.
pub(super) const SCHEMES: [&dyn Scheme; 1] = [&S3];

/// One kind of object store. Roots and keys are the parts of a path as [`crate::table::path::SplitPath`] cuts it, verbatim.
///
/// What others would answer, each in a file of its own, with its URI schemes in [`crate::table::path::FAMILIES`]:
/// - **GCS** (`gs`): the root is a bucket; `gcs.oauth2.token` with `gcs.oauth2.token-expires-at`; opendal's builder takes a
///   provider of credentials as S3's does, and has conditional writes.
/// - **ADLS** (`abfs`, `abfss`, `wasb`, `wasbs`): the root is `container@account.host`; credentials are by account,
///   `adls.sas-token.<account>` with `adls.sas-token-expires-at-ms.<account>`, so the keys to drop are found by their beginning.
///   opendal 0.57 takes a fixed token: the cache of [`super::object`] must then tell operators apart by renewal, too.
/// - **HDFS** (`hdfs`): the root is a name node; no properties that expire; created only if absent by the protocol itself.
pub(super) trait Scheme: Send + Sync {
    /// The family of its URI schemes, as in [`crate::table::path::FAMILIES`].
    fn family(&self) -> &'static str;

    /// The way to a root, without layers, by Iceberg's properties. Credentials among them can change: whoever signs a
    /// request asks `vended` for those in force.
    fn operator(&self, root: &str, properties: &HashMap<String, String>, vended: VendedSettings) -> Result<Operator>;

    /// Whether the store can be told to create a file only if there is none.
    fn has_conditional_writes(&self, properties: &HashMap<String, String>) -> bool;

    /// When the credentials among some properties expire, milliseconds since the epoch.
    fn expires_at_ms(&self, properties: &HashMap<String, String>) -> Option<i64>;

    /// Takes out of `weaker` what must not be mixed with the credentials that `stronger` brings, if it brings any.
    fn drop_replaced(&self, weaker: &mut HashMap<String, String>, stronger: &HashMap<String, String>);

    /// In the text of an error: credentials are expired or wrong, and new ones could help.
    fn rejection_codes(&self) -> &'static [&'static str];

    /// In the text of an error: the store is asked too much.
    fn throttling_codes(&self) -> &'static [&'static str];
}
