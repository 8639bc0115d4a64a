//! The stores: where an object's URL is and how a request for it is signed.
//!
//! Keys go into URLs as the store has them: every byte but the unreserved ones is escaped and `/`
//! stays, so that `//`, `%`, spaces and any Unicode reach the store unharmed (the paths of
//! `object_store` refuse or rewrite some of these). What can't be said in a URL, a `.` or `..`
//! segment, is refused rather than fetched from somewhere else.

mod opener;

use std::sync::{Arc, PoisonError, RwLock};

use object_store::aws::AwsAuthorizer;
use object_store::azure::{AzureAuthorizer, AzureCredential};
use object_store::client::{HttpClient, HttpRequest};
use object_store::gcp::GcpCredential;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::Url;
use reqwest::header::{AUTHORIZATION, HeaderValue};

use crate::error::FetchErrorKind;
use crate::sample::{Location, Scheme};

use super::address;
use super::cloud::Cloud;
use super::credentials::Aws;
use super::door::Credentials;
use super::failure::Failure;
use super::s3::{Bucket, Place};

pub(super) use opener::Opener;

/// What stays as it is in a key: the unreserved characters and the slash.
const KEY: AsciiSet =
    NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');

/// One bucket, container, host or file system.
#[derive(Debug)]
pub(super) enum Store {
    Files,
    Remote(Box<Remote>),
}

/// One that is asked over HTTP.
#[derive(Debug)]
pub(super) struct Remote {
    pub(super) client: HttpClient,
    signer: Signer,
    /// What keys were appended to at first: it stays when another region is learned.
    origin: String,
    place: RwLock<Arc<Place>>,
    /// Of a store that has regions.
    bucket: Option<Bucket>,
}

#[derive(Debug)]
enum Signer {
    Unsigned,
    Aws { keys: Arc<Aws>, requester_pays: bool },
    Gcp(Cloud<GcpCredential>),
    Azure { cloud: Cloud<AzureCredential>, account: String },
}

impl Remote {
    fn new(client: HttpClient, signer: Signer, base: String) -> Self {
        let origin = base.clone();
        let place = RwLock::new(Arc::new(Place { base, region: String::new() }));
        Self { client, signer, origin, place, bucket: None }
    }

    /// The address of the bucket or container by which its objects are known; nothing where addresses
    /// are whole.
    pub(super) fn origin(&self) -> Option<&str> {
        (!self.origin.is_empty()).then_some(&self.origin)
    }

    /// The object's URL.
    #[expect(clippy::unused_self, reason = "an address is one of a store's")]
    pub(super) fn url(&self, place: &Place, object: &Location) -> Result<Url, Failure> {
        let base = &place.base;
        if matches!(object.scheme, Scheme::Http | Scheme::Https) {
            let url = object.to_string().parse().map_err(|error| {
                let reason = format!("not a web address ({error})");
                Failure::permanent(FetchErrorKind::Forbidden, reason)
            })?;
            return match address::check(&url) {
                Ok(()) => Ok(url),
                Err(refused) => {
                    let reason = refused.to_string();
                    let refused = Failure::permanent(FetchErrorKind::Forbidden, reason);
                    Err(refused.hint(address::NotPublic::HINT))
                }
            };
        }
        if object.key.split('/').any(|segment| segment == "." || segment == "..") {
            let reason = "a key with a '.' or '..' segment can't be asked for over HTTP";
            return Err(Failure::permanent(FetchErrorKind::Forbidden, reason).hint("rename it"));
        }
        format!("{base}/{}", utf8_percent_encode(&object.key, &KEY)).parse().map_err(|error| {
            let reason = format!("the endpoint is not a URL ({error})");
            Failure::permanent(FetchErrorKind::Unconfigured, reason)
                .hint("write fetch.endpoint as http(s)://host:port")
        })
    }

    /// Where it is, as far as anyone has said.
    pub(super) fn place(&self) -> Arc<Place> {
        Arc::clone(&self.place.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Goes to another region from now on; not if it is the one that was asked already.
    pub(super) fn move_to(&self, asked: &Place, region: &str) -> Result<bool, Failure> {
        let Some(bucket) = self.bucket.as_ref().filter(|_| asked.region != region) else {
            return Ok(false);
        };
        let place = Arc::new(bucket.place(region)?);
        *self.place.write().unwrap_or_else(PoisonError::into_inner) = place;
        Ok(true)
    }

    /// The store does not take the credentials of that number, or no longer.
    pub(super) fn refused(&self, number: u64, failure: &Failure) {
        match &self.signer {
            Signer::Unsigned => {}
            Signer::Aws { keys, .. } => keys.refused(number, failure),
            Signer::Gcp(cloud) => cloud.refused(number, failure),
            Signer::Azure { cloud, .. } => cloud.refused(number, failure),
        }
    }

    /// Whether a token says who we are, which any refusal may mean.
    pub(super) fn is_bearer(&self) -> bool {
        matches!(self.signer, Signer::Gcp(_) | Signer::Azure { .. })
    }

    /// Whether requests go unsigned, for hints.
    pub(super) fn is_unsigned(&self) -> bool {
        matches!(self.signer, Signer::Unsigned)
    }

    /// Has the credentials that requests are signed with, and says which they are.
    pub(super) async fn credentials(&self) -> Result<Option<Credentials>, Failure> {
        let of_cloud = |source: &str| Credentials {
            source: source.to_owned(),
            life: None,
            temporary: false,
            renews: true,
        };
        match &self.signer {
            Signer::Unsigned => Ok(None),
            Signer::Aws { keys, .. } => keys.described().await.map(Some),
            Signer::Gcp(cloud) => {
                cloud.get().await?;
                Ok(Some(of_cloud("Google's application default credentials")))
            }
            Signer::Azure { cloud, .. } => {
                cloud.get().await?;
                Ok(Some(of_cloud("Azure's environment or managed identity")))
            }
        }
    }

    /// Signs a request; the number of the credentials.
    pub(super) async fn sign(
        &self,
        request: &mut HttpRequest,
        place: &Place,
    ) -> Result<Option<u64>, Failure> {
        match &self.signer {
            Signer::Unsigned => Ok(None),
            Signer::Aws { keys, requester_pays } => {
                let lent = keys.get().await?;
                AwsAuthorizer::new(&lent.credential, "s3", &place.region)
                    .with_request_payer(*requester_pays)
                    .try_authorize(request, None)
                    .map_err(unconfigured)?;
                Ok(Some(lent.number))
            }
            Signer::Gcp(cloud) => {
                let lent = cloud.get().await?;
                let bearer = HeaderValue::try_from(format!("Bearer {}", lent.credential.bearer));
                let mut bearer = bearer.map_err(|_| unconfigured("the token is not one"))?;
                bearer.set_sensitive(true);
                request.headers_mut().insert(AUTHORIZATION, bearer);
                Ok(Some(lent.number))
            }
            Signer::Azure { cloud, account } => {
                let lent = cloud.get().await?;
                AzureAuthorizer::new(&lent.credential, account)
                    .try_authorize(request)
                    .map_err(unconfigured)?;
                Ok(Some(lent.number))
            }
        }
    }
}

#[expect(clippy::needless_pass_by_value, reason = "errors are mapped with it")]
fn unconfigured(error: impl ToString) -> Failure {
    Failure::permanent(FetchErrorKind::Unconfigured, error.to_string())
}

#[cfg(test)]
mod tests {
    use object_store::client::HttpRequestBody;

    use super::*;
    use crate::recipe;

    /// What the tests of errors can't see: nothing that holds a secret shows it, not even to us.
    #[test]
    fn no_store_and_no_signed_request_shows_a_secret() {
        let variables = [
            ("AWS_ACCESS_KEY_ID", "PLANTEDID"),
            ("AWS_SECRET_ACCESS_KEY", "planted-secret"),
            ("AWS_SESSION_TOKEN", "planted-token"),
            (
                "GOOGLE_SERVICE_ACCOUNT_KEY",
                r#"{"private_key": "planted", "private_key_id": "planted",
              "client_email": "planted@x", "disable_oauth": true}"#,
            ),
            ("AZURE_STORAGE_ACCOUNT_NAME", "me"),
            ("AZURE_STORAGE_ACCOUNT_KEY", "cGxhbnRlZA=="),
        ];
        let opener =
            Opener::new(&recipe::Fetch::default(), variables.into_iter().collect(), Arc::default());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        for scheme in [Scheme::S3, Scheme::Gs, Scheme::Az] {
            let object = Location { scheme, authority: "bucket".into(), key: "key".into() };
            let store = opener.open(&object).map_err(|failure| failure.reason).unwrap();
            let Store::Remote(remote) = &store else { panic!() };
            let place = remote.place();
            let mut request = HttpRequest::new(HttpRequestBody::empty());
            let url = remote.url(&place, &object).map_err(|failure| failure.reason).unwrap();
            *request.uri_mut() = url.as_str().parse().unwrap();
            let signed = runtime.block_on(remote.sign(&mut request, &place));
            assert!(signed.is_ok_and(|number| number.is_some()), "{scheme:?}");
            assert!(request.headers().contains_key(AUTHORIZATION));
            let shown = format!("{store:?} {opener:?}").to_lowercase();
            assert!(!shown.contains("planted") && !shown.contains("cgxhbnrlza"), "{shown}");
        }
    }
}
