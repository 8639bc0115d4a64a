//! HTTP clients, made at their first use.
//!
//! No limit on a whole request, as that would count the time in which a large body is read; limits
//! on connecting and on waiting for the next byte instead. Idle connections are dropped before S3
//! closes them (from 5 s on). HTTP/1, as one HTTP/2 connection is slower than many of HTTP/1. TLS is
//! rustls with `ring`, given to each client by hand: the process-wide default is left alone.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
};
use object_store::{ClientConfigKey, ClientOptions};
use reqwest::redirect::Policy;
use reqwest::{Client, ClientBuilder};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use rustls_platform_verifier::Verifier;

use crate::recipe;

use super::address::{PublicNames, redirects};
use super::environment::Environment;
use super::names::{Names, Watched};

/// S3 closes idle connections after 5 to 20 s.
const IDLE: Duration = Duration::from_secs(4);
/// How long the metadata service of a cloud machine may take; elsewhere nothing answers there, and
/// whoever has no credentials must hear of it soon.
const METADATA: Duration = Duration::from_millis(800);

/// The clients of one fetcher.
#[derive(Debug)]
pub(super) struct Clients {
    config: recipe::Fetch,
    ca_file: Option<PathBuf>,
    stores: OnceLock<Result<HttpClient, String>>,
    local: OnceLock<Result<HttpClient, String>>,
    web: OnceLock<Result<HttpClient, String>>,
}

impl Clients {
    /// Certificates that no machine knows come from the recipe or from the variable of AWS's tools
    /// (the usual `SSL_CERT_FILE` takes the place of the machine's own).
    pub(super) fn new(config: &recipe::Fetch, environment: &Environment) -> Self {
        let ca_file = config.ca_file.as_deref().or_else(|| environment.get("AWS_CA_BUNDLE"));
        Self {
            config: config.clone(),
            ca_file: ca_file.map(|path| environment.path(path)),
            stores: OnceLock::new(),
            local: OnceLock::new(),
            web: OnceLock::new(),
        }
    }

    /// A test's own client, for all stores.
    #[cfg(test)]
    pub(super) fn lent(config: &recipe::Fetch, client: HttpClient) -> Self {
        Self { stores: Ok(client).into(), ..Self::new(config, &Environment::default()) }
    }

    /// For stores that the recipe names.
    pub(super) fn stores(&self) -> Result<HttpClient, String> {
        let make = || {
            let builder = spread(self.builder()?, Names::default());
            self.finish(builder.redirect(Policy::none()))
        };
        self.stores.get_or_init(make).clone()
    }

    /// For services of this machine, which no proxy can reach and none may see.
    pub(super) fn local(&self) -> Result<HttpClient, String> {
        let make = || self.finish(self.builder()?.no_proxy().redirect(Policy::none()));
        self.local.get_or_init(make).clone()
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
            .tls_backend_preconfigured(tls(self.ca_file.as_deref())?))
    }

    #[expect(clippy::unused_self, reason = "reads as a step of the two above")]
    fn finish(&self, builder: ClientBuilder) -> Result<HttpClient, String> {
        builder.build().map(HttpClient::new).map_err(|error| error.to_string())
    }
}

/// Has connections go to all addresses of a name in turn.
pub(super) fn spread(builder: ClientBuilder, names: Names) -> ClientBuilder {
    builder.dns_resolver(Arc::new(names.clone())).connector_layer(Watched(names))
}

pub(super) fn tls(ca_file: Option<&Path>) -> Result<ClientConfig, String> {
    let more = ca_file.map_or(Ok(Vec::new()), certificates)?;
    let ring = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&ring))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let config = if let Ok(verifier) = Verifier::new_with_extra_roots(more.clone(), ring) {
        let verifier = Arc::new(verifier);
        builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth()
    } else {
        // A machine without certificates has those of the file; without them HTTPS fails by itself.
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(more);
        builder.with_root_certificates(roots).with_no_client_auth()
    };
    Ok(config)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let shown = path.display();
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    let read: Vec<_> =
        read.map_err(|error| format!("the certificates in {shown} can't be read ({error})"))?;
    if read.is_empty() {
        return Err(format!("{shown} holds no certificates (PEM)"));
    }
    Ok(read)
}

/// Lends our client to the credential providers of `object_store`.
#[derive(Debug)]
pub(super) struct Connector {
    pub(super) stores: HttpClient,
    pub(super) local: HttpClient,
}

impl HttpConnector for Connector {
    /// Providers that ask metadata services come with a shorter limit on connecting.
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let limit =
            |options: &ClientOptions| options.get_config_value(&ClientConfigKey::ConnectTimeout);
        if limit(options) == limit(&ClientOptions::default()) {
            return Ok(self.stores.clone());
        }
        Ok(HttpClient::new(Impatient(self.local.clone())))
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

#[cfg(test)]
mod tests {
    use std::error::Error;
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use reqwest::dns::Resolve;

    use super::*;

    /// What an error says, with all that caused it.
    fn chain(error: &dyn Error) -> String {
        let cause = error.source().map(|cause| format!(": {}", chain(cause)));
        format!("{error}{}", cause.unwrap_or_default())
    }

    /// Answers all that asks with a redirect to that address; how often it was asked.
    fn redirecting(store: TcpListener, to: String) -> Arc<AtomicUsize> {
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&asked);
        let serve = move || {
            for connection in store.incoming() {
                let mut connection = connection.unwrap();
                counted.fetch_add(1, Ordering::SeqCst);
                let head = BufReader::new(connection.try_clone().unwrap()).lines();
                head.map_while(Result::ok).take_while(|line| !line.is_empty()).for_each(drop);
                let head = "HTTP/1.1 302 Found\r\nContent-Length: 0\r\nConnection: close\r\n";
                // Who was refused does not read on.
                drop(write!(connection, "{head}Location: {to}\r\n\r\n"));
            }
        };
        std::thread::Builder::new().name("redirecting".into()).spawn(serve).unwrap();
        asked
    }

    /// A public name is looked up as this machine, as a hostile name server would have it after the
    /// first look.
    #[tokio::test]
    async fn no_redirect_leads_from_a_public_address_to_a_private_one() {
        for to in [
            "http://127.0.0.1:{port}/",
            "http://2130706433:{port}/",
            "http://0x7f.1:{port}/",
            "http://[::ffff:127.0.0.1]:{port}/",
            "http://169.254.169.254/latest/meta-data/",
            "http://user@public.example:{port}/",
            "file:///etc/passwd",
        ] {
            let store = TcpListener::bind("127.0.0.1:0").unwrap();
            let here = store.local_addr().unwrap();
            let to = to.replace("{port}", &here.port().to_string());
            let asked = redirecting(store, to.clone());
            let clients = Clients::new(&recipe::Fetch::default(), &Environment::default());
            let builder = clients.builder().unwrap();
            let builder = builder.no_proxy().redirect(redirects());
            let client = builder.resolve("public.example", here).build().unwrap();
            let url = format!("http://public.example:{}/a.jpg", here.port());
            match client.get(url).send().await {
                Err(error) => {
                    let told = chain(&error);
                    assert!(told.contains("is not a public address"), "{to}: {told}");
                }
                // What is no web address is no redirect, and its answer an error like any other.
                Ok(answer) => assert!(answer.status().is_redirection(), "{to} was followed"),
            }
            assert_eq!(asked.load(Ordering::SeqCst), 1, "{to} was asked");
        }
    }

    /// What is connected to is what was judged: the names of this machine have no public address.
    #[tokio::test]
    async fn a_name_that_resolves_to_private_addresses_has_none() {
        let refused = PublicNames.resolve("localhost".parse().unwrap()).await.err().unwrap();
        assert_eq!(refused.to_string(), "localhost is not a public address");
    }
}
