//! S3 and stores that speak its protocol.
//!
//! Properties are Iceberg's: `s3.endpoint`, `s3.region` (or `client.region`), `s3.access-key-id`, `s3.secret-access-key`,
//! `s3.session-token`, `s3.path-style-access`, `s3.anonymous`, `s3.sse.type` (`none`, `s3`, `kms`) and `s3.sse.key`. Without
//! keys the usual chain applies: environment, profile, web identity, container and instance roles. Without
//! `s3.path-style-access` a bucket of AWS is addressed by host name and one of a named endpoint by path.
//! [`CONDITIONAL_WRITES`] = `false` is for stores that do not know `If-None-Match`; then only the unique names of files
//! protect what is there.

use std::collections::HashMap;

use opendal::{Operator, services};
use reqsign_aws_v4::Credential;
use reqsign_core::{ProvideCredential, ProvideCredentialChain};

use super::credentials::VendedSettings;
use super::scheme::Scheme;
use crate::error::{Context, Error, ErrorKind, Result};

/// Property: whether the store honours `If-None-Match: *`; true unless set.
pub const CONDITIONAL_WRITES: &str = "s3.conditional-writes";

pub(super) const ACCESS_KEY: &str = "s3.access-key-id";
pub(super) const SECRET_KEY: &str = "s3.secret-access-key";
pub(super) const SESSION_TOKEN: &str = "s3.session-token";
pub(super) const EXPIRES_AT_MS: &str = "s3.session-token-expires-at-ms";

#[derive(Debug)]
pub(super) struct S3;

impl Scheme for S3 {
    fn family(&self) -> &'static str {
        "s3"
    }

    fn operator(&self, root: &str, properties: &HashMap<String, String>, vended: VendedSettings) -> Result<Operator> {
        refuse_unknown(properties)?;
        let get = |key: &str| properties.get(key).map(String::as_str).filter(|v| !v.is_empty());
        let flag = |key: &str| match get(key) {
            None => Ok(None),
            Some(text) => text
                .parse::<bool>()
                .map(Some)
                .map_err(|_| config_error(format!("{key} = {text:?}: expected true or false"))),
        };
        let mut builder = services::S3::default().bucket(root);
        let endpoint = get("s3.endpoint");
        match (get("s3.region").or_else(|| get("client.region")), endpoint) {
            (Some(region), _) => builder = builder.region(region),
            // Stores of one's own mostly do not care, but the signature needs one.
            (None, Some(_)) => builder = builder.region("us-east-1"),
            (None, None) => {}
        }
        if let Some(endpoint) = endpoint {
            builder = builder.endpoint(endpoint);
        }
        let by_host = match flag("s3.path-style-access")? {
            Some(path_style) => !path_style,
            None => endpoint.is_none() && !root.contains('.'),
        };
        if by_host {
            builder = builder.enable_virtual_host_style();
        }
        builder = encryption(builder, get("s3.sse.type").unwrap_or("none"), get("s3.sse.key"))?;
        if flag("s3.anonymous")?.or(flag("s3.allow-anonymous")?).unwrap_or(false) {
            builder = builder.skip_signature();
        } else if has_keys(properties) {
            builder = builder.credential_provider_chain(ProvideCredentialChain::new().push(KeysInForce(vended)));
        }
        let fail = |e: opendal::Error| config_error(e.to_string());
        Ok(Operator::new(builder).map_err(fail).context(|| format!("reach bucket {root}"))?.finish())
    }

    fn has_conditional_writes(&self, properties: &HashMap<String, String>) -> bool {
        properties.get(CONDITIONAL_WRITES).is_none_or(|v| v != "false")
    }

    fn expires_at_ms(&self, properties: &HashMap<String, String>) -> Option<i64> {
        properties.get(EXPIRES_AT_MS)?.parse().ok()
    }

    /// Who brings an access key also decides whether there is a session token.
    fn drop_replaced(&self, weaker: &mut HashMap<String, String>, stronger: &HashMap<String, String>) {
        if stronger.contains_key(ACCESS_KEY) {
            for key in [ACCESS_KEY, SECRET_KEY, SESSION_TOKEN, EXPIRES_AT_MS] {
                weaker.remove(key);
            }
        }
    }

    fn rejection_codes(&self) -> &'static [&'static str] {
        &["ExpiredToken", "TokenRefreshRequired", "InvalidToken", "InvalidAccessKeyId"]
    }

    fn throttling_codes(&self) -> &'static [&'static str] {
        &["SlowDown", "ServiceUnavailable", "TooManyRequests"]
    }
}

fn config_error(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Config, message)
}

fn has_keys(properties: &HashMap<String, String>) -> bool {
    [ACCESS_KEY, SECRET_KEY].iter().all(|key| properties.contains_key(*key))
}

/// Refuses settings that would be ignored, and tables whose catalog keeps the keys to itself.
fn refuse_unknown(properties: &HashMap<String, String>) -> Result<()> {
    let wanted = properties.get("s3.remote-signing-enabled").is_some_and(|v| v == "true");
    if wanted && !has_keys(properties) {
        return Err(Error::unsupported(
            "the catalog wants to sign requests itself (s3.remote-signing-enabled) and vends no keys; \
             this version needs vended credentials or keys of its own (s3.access-key-id)",
        ));
    }
    let unknown = ["client.assume-role.arn", "s3.access-points-enabled", "s3.cross-region-access-enabled"];
    match unknown.iter().find(|key| properties.get(**key).is_some_and(|v| !v.is_empty() && v != "false")) {
        Some(key) => {
            Err(Error::unsupported(format!("{key} is not supported by this version: remove it, or vend keys")))
        }
        None => Ok(()),
    }
}

fn encryption(builder: services::S3, kind: &str, key: Option<&str>) -> Result<services::S3> {
    match (kind, key) {
        ("none", _) => Ok(builder),
        ("s3", _) => Ok(builder.server_side_encryption_with_s3_key()),
        ("kms", Some(key)) => Ok(builder.server_side_encryption_with_customer_managed_kms_key(key)),
        ("kms", None) => Ok(builder.server_side_encryption_with_aws_managed_kms_key()),
        (other, _) => Err(Error::unsupported(format!("s3.sse.type = {other:?}: this version knows none, s3 and kms"))),
    }
}

/// Gives the signer the keys in force at each request.
#[derive(Debug)]
struct KeysInForce(VendedSettings);

impl ProvideCredential for KeysInForce {
    type Credential = Credential;

    async fn provide_credential(&self, _: &reqsign_core::Context) -> reqsign_core::Result<Option<Credential>> {
        let properties = self.0.in_force().await;
        let properties = properties.map_err(|e| reqsign_core::Error::credential_invalid(e.to_string()))?;
        let get = |key: &str| properties.get(key).cloned();
        let (Some(access_key_id), Some(secret_access_key)) = (get(ACCESS_KEY), get(SECRET_KEY)) else {
            return Ok(None);
        };
        // The signer keeps keys that last two minutes or more. These are kept here, so that a renewal counts at once.
        let soon = reqsign_core::time::Timestamp::from_millisecond(self.0.now_ms() + 60_000)?;
        Ok(Some(Credential {
            access_key_id,
            secret_access_key,
            session_token: get(SESSION_TOKEN),
            expires_in: Some(soon),
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::clock::SystemClock;
    use crate::storage::credentials::StoreSettings;
    use crate::table::TableCredentials;

    fn try_build(bucket: &str, pairs: &[(&str, &str)]) -> Result<Operator> {
        let properties = pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let settings = StoreSettings::new(HashMap::new(), TableCredentials::default(), None, SystemClock::shared());
        S3.operator(bucket, &properties, Arc::new(settings).vended(""))
    }

    #[test]
    fn settings_that_would_be_ignored_are_refused() {
        for (pairs, kind, named) in [
            (vec![("s3.sse.type", "custom")], ErrorKind::Unsupported, "s3.sse.type"),
            (vec![("client.assume-role.arn", "arn:x")], ErrorKind::Unsupported, "client.assume-role.arn"),
            (vec![("s3.remote-signing-enabled", "true")], ErrorKind::Unsupported, "remote-signing"),
            (vec![("s3.path-style-access", "yes")], ErrorKind::Config, "s3.path-style-access"),
        ] {
            let mut all = vec![("s3.region", "eu-west-1")];
            all.extend(pairs);
            let error = try_build("bkt", &all).map(|_| ()).unwrap_err();
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.to_string().contains(named), "{error}");
        }
        assert!(try_build("bkt", &[("s3.endpoint", "http://localhost:1")]).is_ok());
        assert!(try_build("b.k.t", &[("s3.region", "eu-west-1")]).is_ok(), "dots force path style");
    }
}
