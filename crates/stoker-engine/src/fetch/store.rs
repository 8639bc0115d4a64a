//! The stores: where an object's URL is and how a request for it is signed.
//!
//! Keys go into URLs as the store has them: every byte but the unreserved ones is escaped and `/`
//! stays, so that `//`, `%`, spaces and any Unicode reach the store unharmed (the paths of
//! `object_store` refuse or rewrite some of these). What can't be said in a URL, a `.` or `..`
//! segment, is refused rather than fetched from somewhere else.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, AwsAuthorizer, AwsCredential};
use object_store::azure::{
    AzureAuthorizer, AzureConfigKey, AzureCredential, MicrosoftAzureBuilder,
};
use object_store::client::{HttpClient, HttpRequest};
use object_store::gcp::{GcpCredential, GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::{CredentialProvider, RetryConfig};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::Url;
use reqwest::header::{AUTHORIZATION, HeaderValue};

use crate::error::FetchErrorKind;
use crate::recipe;
use crate::sample::{Location, Scheme};

use super::address;
use super::client::{Clients, Connector};
use super::failure::Failure;

/// What stays as it is in a key: the unreserved characters and the slash.
const KEY: AsciiSet =
    NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');
/// For how long a failure to find credentials stands: the reads that wait behind it fail at once.
const UNCONFIGURED_FOR: Duration = Duration::from_secs(10);

type Provider<C> = Arc<dyn CredentialProvider<Credential = C>>;

/// One bucket, container, host or file system.
#[derive(Debug)]
pub(super) enum Store {
    Files,
    Remote(Remote),
}

/// One that is asked over HTTP.
#[derive(Debug)]
pub(super) struct Remote {
    pub(super) client: HttpClient,
    signer: Signer,
    /// What the key is appended to; `None` where the object's address is its URL.
    base: Option<String>,
    unconfigured: Mutex<Option<(Instant, Failure)>>,
}

#[derive(Debug)]
enum Signer {
    Unsigned,
    Aws { provider: Provider<AwsCredential>, region: String, requester_pays: bool },
    Gcp(Provider<GcpCredential>),
    Azure { provider: Provider<AzureCredential>, account: String },
}

impl Store {
    pub(super) fn open(
        config: &recipe::Fetch,
        clients: &Clients,
        object: &Location,
    ) -> Result<Self, Failure> {
        let client = || clients.stores().map_err(unconfigured);
        let remote = |(signer, base), client| {
            Self::Remote(Remote { client, signer, base, unconfigured: Mutex::default() })
        };
        let bucket = &object.authority;
        Ok(match object.scheme {
            Scheme::File => Self::Files,
            Scheme::S3 => remote(s3(config, client()?, bucket)?, client()?),
            Scheme::Gs => remote(gcs(config, client()?, bucket)?, client()?),
            Scheme::Az => remote(azure(config, client()?, bucket)?, client()?),
            Scheme::Http | Scheme::Https => {
                remote((Signer::Unsigned, None), clients.web().map_err(unconfigured)?)
            }
        })
    }
}

type Opened = (Signer, Option<String>);

fn s3(config: &recipe::Fetch, client: HttpClient, bucket: &str) -> Result<Opened, Failure> {
    let mut builder = AmazonS3Builder::from_env()
        .with_bucket_name(bucket)
        .with_retry(credential_retries())
        .with_http_connector(Connector(client));
    if let Some(region) = &config.region {
        builder = builder.with_region(region);
    }
    let value = |key| builder.get_config_value(&key).filter(|value| !value.is_empty());
    let is_set = |key| value(key).is_some_and(|value| value == "true");
    let region = value(AmazonS3ConfigKey::Region).unwrap_or_else(|| "us-east-1".to_owned());
    let endpoint = config
        .endpoint
        .clone()
        .or_else(|| value(AmazonS3ConfigKey::S3Endpoint))
        .or_else(|| value(AmazonS3ConfigKey::Endpoint))
        .unwrap_or_else(|| format!("https://s3.{region}.amazonaws.com"));
    let endpoint = endpoint.trim_end_matches('/');
    // As object_store has it: a virtual-hosted endpoint names the bucket itself.
    let base = if is_set(AmazonS3ConfigKey::VirtualHostedStyleRequest) {
        endpoint.to_owned()
    } else {
        format!("{endpoint}/{bucket}")
    };
    let anonymous = config.anonymous || is_set(AmazonS3ConfigKey::SkipSignature);
    let requester_pays = is_set(AmazonS3ConfigKey::RequestPayer);
    let signer = if anonymous {
        Signer::Unsigned
    } else {
        let store = builder.build().map_err(unconfigured)?;
        Signer::Aws { provider: Arc::clone(store.credentials()), region, requester_pays }
    };
    Ok((signer, Some(base)))
}

fn gcs(config: &recipe::Fetch, client: HttpClient, bucket: &str) -> Result<Opened, Failure> {
    let builder = GoogleCloudStorageBuilder::from_env()
        .with_bucket_name(bucket)
        .with_retry(credential_retries())
        .with_http_connector(Connector(client));
    let value = |key| builder.get_config_value(&key).filter(|value| !value.is_empty());
    let host = value(GoogleConfigKey::BaseUrl);
    let host = host.unwrap_or_else(|| "https://storage.googleapis.com".to_owned());
    let anonymous = value(GoogleConfigKey::SkipSignature).is_some_and(|value| value == "true");
    let signer = if config.anonymous || anonymous {
        Signer::Unsigned
    } else {
        let store = builder.build().map_err(unconfigured)?;
        Signer::Gcp(Arc::clone(store.credentials()))
    };
    Ok((signer, Some(format!("{}/{bucket}", host.trim_end_matches('/')))))
}

fn azure(config: &recipe::Fetch, client: HttpClient, container: &str) -> Result<Opened, Failure> {
    let builder = MicrosoftAzureBuilder::from_env()
        .with_container_name(container)
        .with_retry(credential_retries())
        .with_http_connector(Connector(client));
    let value = |key| builder.get_config_value(&key).filter(|value| !value.is_empty());
    let account = value(AzureConfigKey::AccountName).ok_or_else(|| {
        Failure::permanent(FetchErrorKind::Unconfigured, "no Azure storage account is named")
            .hint("set AZURE_STORAGE_ACCOUNT_NAME")
    })?;
    let host = value(AzureConfigKey::Endpoint)
        .unwrap_or_else(|| format!("https://{account}.blob.core.windows.net"));
    let anonymous = value(AzureConfigKey::SkipSignature).is_some_and(|value| value == "true");
    let signer = if config.anonymous || anonymous {
        Signer::Unsigned
    } else {
        let store = builder.build().map_err(unconfigured)?;
        Signer::Azure { provider: Arc::clone(store.credentials()), account }
    };
    Ok((signer, Some(format!("{}/{container}", host.trim_end_matches('/')))))
}

impl Remote {
    /// The object's URL.
    pub(super) fn url(&self, object: &Location) -> Result<Url, Failure> {
        let Some(base) = &self.base else {
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
        };
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

    /// The address of the bucket or container; `None` where there is none.
    pub(super) fn base(&self) -> Option<&str> {
        self.base.as_deref()
    }

    /// Whether requests go unsigned, for hints.
    pub(super) fn is_unsigned(&self) -> bool {
        matches!(self.signer, Signer::Unsigned)
    }

    pub(super) async fn sign(&self, request: &mut HttpRequest) -> Result<(), Failure> {
        match &self.signer {
            Signer::Unsigned => Ok(()),
            Signer::Aws { provider, region, requester_pays } => {
                let credential = self.credential(provider, AWS_HINT).await?;
                AwsAuthorizer::new(&credential, "s3", region)
                    .with_request_payer(*requester_pays)
                    .try_authorize(request, None)
                    .map_err(unconfigured)
            }
            Signer::Gcp(provider) => {
                let credential = self.credential(provider, GCP_HINT).await?;
                let bearer = HeaderValue::try_from(format!("Bearer {}", credential.bearer));
                let bearer = bearer.map_err(|_| unconfigured("the token is not one"))?;
                request.headers_mut().insert(AUTHORIZATION, bearer);
                Ok(())
            }
            Signer::Azure { provider, account } => {
                let credential = self.credential(provider, AZURE_HINT).await?;
                AzureAuthorizer::new(&credential, account)
                    .try_authorize(request)
                    .map_err(unconfigured)
            }
        }
    }

    async fn credential<C>(&self, provider: &Provider<C>, hint: &str) -> Result<Arc<C>, Failure> {
        let known = || self.unconfigured.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((since, failure)) = &*known()
            && since.elapsed() < UNCONFIGURED_FOR
        {
            return Err(failure.clone());
        }
        match provider.get_credential().await {
            Ok(credential) => Ok(credential),
            Err(error) => {
                let failure = no_credentials(&error, hint);
                *known() = Some((Instant::now(), failure.clone()));
                Err(failure)
            }
        }
    }
}

const AWS_HINT: &str = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (or give the machine a \
                        role), or set fetch.anonymous = true for public data";
const GCP_HINT: &str = "set GOOGLE_APPLICATION_CREDENTIALS, or set fetch.anonymous = true for \
                        public data";
const AZURE_HINT: &str = "set AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_TOKEN, or set \
                          fetch.anonymous = true for public data";

/// Only the first line of the reason: answers of token services may quote what they were sent.
fn no_credentials(error: &object_store::Error, hint: &str) -> Failure {
    let reason = error.to_string();
    let reason = reason.lines().next().unwrap_or_default();
    Failure::permanent(FetchErrorKind::Unconfigured, format!("no credentials ({reason})"))
        .hint(hint)
}

#[expect(clippy::needless_pass_by_value, reason = "errors are mapped with it")]
fn unconfigured(error: impl ToString) -> Failure {
    Failure::permanent(FetchErrorKind::Unconfigured, error.to_string())
}

/// Token services are asked twice.
fn credential_retries() -> RetryConfig {
    RetryConfig { max_retries: 1, retry_timeout: Duration::from_secs(2), ..RetryConfig::default() }
}
