//! Credentials of AWS: where they come from, in which order, and for how long they are good.
//!
//! [`Chain`] asks one source after the other, as AWS's own tools do: the environment, a profile
//! that is named, a token of web identity, a container's service, the default profile, the machine's
//! service. The first that has any is the source from then on. One that is there and fails ends the
//! search with its own error: going on would sign as somebody else. Where none has any, the error
//! says of each why.
//!
//! What they hold is in no error, no `Debug` and no panic. Requests to the services of this machine
//! go past all proxies.

mod ask;
mod chain;
mod ini;
mod machine;
mod process;
mod profile;
mod renewing;
mod sso;
mod sts;

pub(super) use profile::{Profiles, Settings};
pub(super) use renewing::{Lent, Obtained, Remedy, Renewing};

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use chain::Chain;
use chrono::DateTime;
use object_store::aws::AwsCredential;
use object_store::client::HttpClient;

use crate::error::FetchErrorKind;
use crate::metrics::Metrics;

use super::door::Credentials;
use super::environment::Environment;
use super::failure::Failure;

/// The credentials of a fetcher, whichever of AWS's sources they come from.
pub(super) struct Aws {
    chain: Chain,
    renewing: Renewing<AwsCredential>,
}

impl Aws {
    pub(super) fn new(means: Means, metrics: Arc<Metrics>) -> Self {
        Self { chain: Chain::new(means), renewing: Renewing::new(metrics) }
    }

    pub(super) async fn get(&self) -> Result<Lent<AwsCredential>, Failure> {
        self.renewing.get(|| self.chain.obtain()).await
    }

    /// Has them, and says where they come from and how long they are good.
    pub(super) async fn described(&self) -> Result<Credentials, Failure> {
        let temporary = self.get().await?.credential.token.is_some();
        let (life, renews) = self.renewing.outlook().unwrap_or((None, false));
        Ok(Credentials { source: self.chain.found_in(), life, temporary, renews })
    }

    /// The store does not take the credentials of that number, or no longer.
    pub(super) fn refused(&self, number: u64, failure: &Failure) {
        self.renewing.refused(number, failure);
    }
}

/// Nothing of what is held.
impl fmt::Debug for Aws {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Aws").finish_non_exhaustive()
    }
}

/// What the sources are asked with.
#[derive(Clone, Debug)]
pub(super) struct Means {
    pub(super) environment: Environment,
    /// For services on the network.
    pub(super) remote: HttpClient,
    /// For services of this machine: past all proxies.
    pub(super) local: HttpClient,
    /// Of the services that have one in each region.
    pub(super) region: String,
}

impl Means {
    /// The address of one of AWS's services: where the environment says, or in its region.
    fn service(&self, name: &str, region: &str, host: &str) -> String {
        let named = format!("AWS_ENDPOINT_URL_{name}");
        let said = self.environment.first(&[&named, "AWS_ENDPOINT_URL"]);
        let said = said.map(|address| address.trim_end_matches('/').to_owned());
        said.unwrap_or_else(|| format!("https://{host}.{region}.{}", domain(region)))
    }
}

/// Where AWS is, seen from a region.
pub(super) fn domain(region: &str) -> &'static str {
    if region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" }
}

/// A key pair with its token, checked: it must go into a header.
fn key(id: &str, secret: &str, token: Option<&str>) -> Result<AwsCredential, Failure> {
    let token = token.filter(|token| !token.is_empty());
    let plain = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
    if !plain(id) || !plain(secret) || !token.is_none_or(plain) {
        return Err(unconfigured("the keys hold characters that no key has")
            .hint("look for quotes, spaces and line breaks in them"));
    }
    Ok(AwsCredential {
        key_id: id.to_owned(),
        secret_key: secret.to_owned(),
        token: token.map(str::to_owned),
    })
}

fn unconfigured(reason: impl Into<String>) -> Failure {
    Failure::permanent(FetchErrorKind::Unconfigured, reason)
}

/// Time until a moment that is written in one of the ways that services and tools use; none is left
/// of one that is past.
fn time_until(moment: &str) -> Option<Duration> {
    let moment = moment.replace("UTC", "Z");
    let at = DateTime::parse_from_rfc3339(&moment).ok()?;
    Some(until(at.timestamp_millis()))
}

/// Time until a moment, in milliseconds since 1970.
fn until(milliseconds: i64) -> Duration {
    #[expect(clippy::disallowed_methods, reason = "the end of credentials is a date")]
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Duration::from_millis(u64::try_from(milliseconds).unwrap_or_default()).saturating_sub(now)
}
