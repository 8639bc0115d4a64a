//! Opening a store: its address, its client, and what its requests are signed with.

use std::str::FromStr;
use std::sync::{Arc, OnceLock, RwLock};
use std::time::Duration;

use object_store::RetryConfig;
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
#[cfg(test)]
use object_store::client::HttpClient;
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};

use super::super::client::{Clients, Connector};
use super::super::cloud::Cloud;
use super::super::credentials::{Aws, Means, Profiles, Settings};
use super::super::environment::Environment;
use super::super::failure::Failure;
use super::super::s3::{Bucket, region};
use super::{Remote, Signer, Store, unconfigured};
use crate::metrics::Metrics;
use crate::recipe;
use crate::sample::{Location, Scheme};

/// What stores are opened with; all of AWS's share their credentials.
#[derive(Debug)]
pub(in crate::fetch) struct Opener {
    config: recipe::Fetch,
    environment: Environment,
    metrics: Arc<Metrics>,
    clients: Clients,
    profile: OnceLock<Result<Settings, Failure>>,
    aws: OnceLock<Arc<Aws>>,
}

impl Opener {
    pub(in crate::fetch) fn new(
        config: &recipe::Fetch,
        environment: Environment,
        metrics: Arc<Metrics>,
    ) -> Self {
        let (clients, config) = (Clients::new(config, &environment), config.clone());
        let (profile, aws) = (OnceLock::new(), OnceLock::new());
        Self { config, environment, metrics, clients, profile, aws }
    }

    /// One with a test's own client for all stores.
    #[cfg(test)]
    pub(in crate::fetch) fn lent(config: &recipe::Fetch, client: HttpClient) -> Self {
        let opener = Self::new(config, Environment::default(), Arc::default());
        Self { clients: Clients::lent(config, client), ..opener }
    }

    pub(in crate::fetch) fn open(&self, object: &Location) -> Result<Store, Failure> {
        let bucket = &object.authority;
        let remote = match object.scheme {
            Scheme::File => return Ok(Store::Files),
            Scheme::S3 => self.s3(bucket)?,
            Scheme::Gs => self.gcs(bucket)?,
            Scheme::Az => self.azure(bucket)?,
            Scheme::Http | Scheme::Https => {
                let client = self.clients.web().map_err(unconfigured)?;
                Remote::new(client, Signer::Unsigned, String::new())
            }
        };
        Ok(Store::Remote(Box::new(remote)))
    }

    fn s3(&self, bucket: &str) -> Result<Remote, Failure> {
        let Self { config, environment, .. } = self;
        let profile = self.profile.get_or_init(|| {
            Profiles::read(environment).map(|profiles| profiles.settings(environment))
        });
        let profile = profile.clone()?;
        let region = region(config, environment, &profile);
        let bucket = Bucket::new(config, environment, &profile, bucket)?;
        let place = bucket.place(&region)?;
        let client = self.clients.stores().map_err(unconfigured)?;
        let signer = if config.anonymous || environment.is_set("AWS_SKIP_SIGNATURE") {
            Signer::Unsigned
        } else {
            let local = self.clients.local().map_err(unconfigured)?;
            let (environment, remote) = (environment.clone(), client.clone());
            let means = Means { environment, remote, local, region };
            let metrics = Arc::clone(&self.metrics);
            let keys = self.aws.get_or_init(|| Arc::new(Aws::new(means, metrics)));
            let requester_pays =
                config.requester_pays || self.environment.is_set("AWS_REQUEST_PAYER");
            Signer::Aws { keys: Arc::clone(keys), requester_pays }
        };
        let origin = place.base.clone();
        let place = RwLock::new(Arc::new(place));
        Ok(Remote { client, signer, origin, place, bucket: Some(bucket) })
    }

    fn gcs(&self, bucket: &str) -> Result<Remote, Failure> {
        let mut builder = GoogleCloudStorageBuilder::new()
            .with_bucket_name(bucket)
            .with_retry(credential_retries())
            .with_http_connector(self.connector()?);
        if let Some(path) = self.environment.get("SERVICE_ACCOUNT") {
            builder = builder.with_service_account_path(path);
        }
        builder = self.told("GOOGLE_", builder, GoogleCloudStorageBuilder::with_config);
        let value = |key| builder.get_config_value(&key).filter(|value| !value.is_empty());
        let host = value(GoogleConfigKey::BaseUrl);
        let host = host.unwrap_or_else(|| "https://storage.googleapis.com".to_owned());
        let unsigned = value(GoogleConfigKey::SkipSignature);
        self.cloud(&host, bucket, unsigned.as_deref(), |metrics| {
            let make = move || builder.clone().build().map(|store| Arc::clone(store.credentials()));
            Ok(Signer::Gcp(Cloud::new(GCP_HINT, metrics, make)?))
        })
    }

    fn azure(&self, container: &str) -> Result<Remote, Failure> {
        let mut builder = MicrosoftAzureBuilder::new()
            .with_container_name(container)
            .with_retry(credential_retries())
            .with_http_connector(self.connector()?);
        if let Some(endpoint) = self.environment.get("IDENTITY_ENDPOINT") {
            builder = builder.with_msi_endpoint(endpoint);
        }
        builder = self.told("AZURE_", builder, MicrosoftAzureBuilder::with_config);
        let value = |key| builder.get_config_value(&key).filter(|value| !value.is_empty());
        let account = value(AzureConfigKey::AccountName).ok_or_else(|| {
            unconfigured("no Azure storage account is named").hint("set AZURE_STORAGE_ACCOUNT_NAME")
        })?;
        let host = value(AzureConfigKey::Endpoint)
            .unwrap_or_else(|| format!("https://{account}.blob.core.windows.net"));
        let unsigned = value(AzureConfigKey::SkipSignature);
        self.cloud(&host, container, unsigned.as_deref(), |metrics| {
            let make = move || builder.clone().build().map(|store| Arc::clone(store.credentials()));
            Ok(Signer::Azure { cloud: Cloud::new(AZURE_HINT, metrics, make)?, account })
        })
    }

    /// A builder of `object_store` with what the variables say whose names begin so.
    fn told<B, K: FromStr>(&self, prefix: &str, builder: B, with: fn(B, K, String) -> B) -> B {
        let variables = self.environment.starting(prefix);
        variables.fold(builder, |builder, (name, value)| match name.parse() {
            Ok(key) => with(builder, key, value.to_owned()),
            Err(_) => builder,
        })
    }

    /// A bucket or container below a cloud's host, signed for unless the recipe or the environment
    /// says otherwise.
    fn cloud(
        &self,
        host: &str,
        container: &str,
        unsigned: Option<&str>,
        signer: impl FnOnce(Arc<Metrics>) -> Result<Signer, Failure>,
    ) -> Result<Remote, Failure> {
        let signer = if self.config.anonymous || unsigned == Some("true") {
            Signer::Unsigned
        } else {
            signer(Arc::clone(&self.metrics))?
        };
        let base = format!("{}/{container}", host.trim_end_matches('/'));
        Ok(Remote::new(self.clients.stores().map_err(unconfigured)?, signer, base))
    }

    fn connector(&self) -> Result<Connector, Failure> {
        let stores = self.clients.stores().map_err(unconfigured)?;
        let local = self.clients.local().map_err(unconfigured)?;
        Ok(Connector { stores, local })
    }
}

const GCP_HINT: &str = "set GOOGLE_APPLICATION_CREDENTIALS, or set fetch.anonymous = true for \
                        public data";
const AZURE_HINT: &str = "set AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_TOKEN, or set \
                          fetch.anonymous = true for public data";

/// Token services are asked twice.
fn credential_retries() -> RetryConfig {
    RetryConfig { max_retries: 1, retry_timeout: Duration::from_secs(2), ..RetryConfig::default() }
}
