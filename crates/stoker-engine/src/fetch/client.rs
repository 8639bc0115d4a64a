//! HTTP clients, made at their first use.
//!
//! No limit on a whole request, as that would count the time in which a large body is read; limits
//! on connecting and on waiting for the next byte instead. Idle connections are dropped before S3
//! closes them (from 5 s on). HTTP/1, as one HTTP/2 connection is slower than many of HTTP/1. TLS is
//! rustls with `ring`, given to each client by hand: the process-wide default is left alone.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
};
use object_store::{ClientConfigKey, ClientOptions};
use reqwest::redirect::Policy;
use reqwest::{Client, ClientBuilder};
use rustls::{ClientConfig, RootCertStore};
use rustls_platform_verifier::Verifier;

use crate::recipe;

use super::address::{PublicNames, redirects};

/// S3 closes idle connections after 5 to 20 s.
const IDLE: Duration = Duration::from_secs(4);
/// How long the metadata service of a cloud machine may take; elsewhere nothing answers there, and
/// whoever has no credentials must hear of it soon.
const METADATA: Duration = Duration::from_millis(800);

/// The clients of one fetcher.
#[derive(Debug)]
pub(super) struct Clients {
    config: recipe::Fetch,
    stores: OnceLock<Result<HttpClient, String>>,
    web: OnceLock<Result<HttpClient, String>>,
}

impl Clients {
    pub(super) fn new(config: &recipe::Fetch) -> Self {
        Self { config: config.clone(), stores: OnceLock::new(), web: OnceLock::new() }
    }

    /// A test's own client, for all stores.
    #[cfg(test)]
    pub(super) fn lent(config: &recipe::Fetch, client: HttpClient) -> Self {
        Self { stores: Ok(client).into(), ..Self::new(config) }
    }

    /// For stores that the recipe names.
    pub(super) fn stores(&self) -> Result<HttpClient, String> {
        let make = || self.finish(self.builder()?.redirect(Policy::none()));
        self.stores.get_or_init(make).clone()
    }

    /// For addresses that data names.
    pub(super) fn web(&self) -> Result<HttpClient, String> {
        let make = || {
            let resolver = Arc::new(PublicNames);
            self.finish(self.builder()?.no_proxy().dns_resolver(resolver).redirect(redirects()))
        };
        self.web.get_or_init(make).clone()
    }

    fn builder(&self) -> Result<ClientBuilder, String> {
        let config = &self.config;
        Ok(Client::builder()
            .user_agent(concat!("stoker/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(config.connect_timeout)
            .read_timeout(config.read_timeout)
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(config.concurrency as usize)
            .http1_only()
            .tls_backend_preconfigured(tls()?))
    }

    #[expect(clippy::unused_self, reason = "reads as a step of the two above")]
    fn finish(&self, builder: ClientBuilder) -> Result<HttpClient, String> {
        builder.build().map(HttpClient::new).map_err(|error| error.to_string())
    }
}

fn tls() -> Result<ClientConfig, String> {
    let ring = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&ring))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let config = match Verifier::new(ring) {
        Ok(verifier) => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_no_client_auth(),
        // A machine without certificates can still use plain HTTP; HTTPS then fails by itself.
        Err(_) => builder.with_root_certificates(RootCertStore::empty()).with_no_client_auth(),
    };
    Ok(config)
}

/// Lends our client to the credential providers of `object_store`.
#[derive(Debug)]
pub(super) struct Connector(pub(super) HttpClient);

impl HttpConnector for Connector {
    /// Providers that ask metadata services come with a shorter limit on connecting.
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let limit =
            |options: &ClientOptions| options.get_config_value(&ClientConfigKey::ConnectTimeout);
        if limit(options) == limit(&ClientOptions::default()) {
            return Ok(self.0.clone());
        }
        Ok(HttpClient::new(Impatient(self.0.clone())))
    }
}

#[derive(Debug)]
struct Impatient(HttpClient);

#[async_trait::async_trait]
impl HttpService for Impatient {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let answer = tokio::time::timeout(METADATA, self.0.execute(request)).await;
        answer.unwrap_or_else(|late| Err(HttpError::new(HttpErrorKind::Timeout, late)))
    }
}
