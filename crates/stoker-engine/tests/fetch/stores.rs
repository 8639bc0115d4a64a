//! Where stores are and what they are sent: regions, styles of addresses, proxies, certificates, and
//! the other clouds.

use std::path::Path;
use std::sync::Mutex;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::credentials::{fetcher_in, read_in_a_process, signed};
use super::*;

const ID: (&str, &str) = ("AWS_ACCESS_KEY_ID", "stoker");
const SECRET: (&str, &str) = ("AWS_SECRET_ACCESS_KEY", "planted-secret");

/// A server that answers well, and the heads of the requests it got, in small letters.
fn good() -> (String, Arc<Mutex<Vec<String>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&asked);
    let endpoint = raw(move |_, head, stream| {
        noted.lock().unwrap().push(head.to_owned());
        reply(stream, "200 OK", &[("content-length", "5")], b"bytes");
    });
    (endpoint, asked)
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

#[test]
fn a_wrong_region_is_left_for_the_right_one_once_and_for_all() {
    for header_only in [false, true] {
        let endpoint = raw(move |_, head, stream| {
            if head.contains("/eu-central-1/s3/aws4_request") {
                return reply(stream, "200 OK", &[("content-length", "5")], b"bytes");
            }
            let body = "<Error><Code>AuthorizationHeaderMalformed</Code><Message>The authorization \
                        header is malformed; the region 'us-east-1' is wrong; expecting \
                        'eu-central-1'</Message><Region>eu-central-1</Region></Error>";
            let (body, region) = if header_only {
                (
                    "<Error><Code>PermanentRedirect</Code><Message>Use another endpoint</Message>\
                  </Error>",
                    "eu-central-1",
                )
            } else {
                (body, "")
            };
            let status = if header_only { "301 Moved Permanently" } else { "400 Bad Request" };
            let headers =
                [("content-length", &*body.len().to_string()), ("x-amz-bucket-region", region)];
            reply(stream, status, &headers, body.as_bytes());
        });
        let (fetcher, metrics) = fetcher_in(&signed(endpoint), &[ID, SECRET]);
        let region = || fetcher.door(&whole("key").object).unwrap().unwrap().region;
        assert_eq!(region().as_deref(), Some("us-east-1"), "it is told before anyone is asked");
        for requests in [2, 3, 4] {
            assert_eq!(fetcher.read_blocking(&whole("key")).unwrap(), "bytes");
            assert_eq!(metrics.fetch.requests.get(), requests);
        }
        assert_eq!(region().as_deref(), Some("eu-central-1"));
        assert_eq!(metrics.fetch.retries.get(), 1, "the one that went to the wrong region");
    }
}

#[test]
fn a_store_that_sends_us_round_in_circles_is_followed_once() {
    let turn = AtomicUsize::new(0);
    let endpoint = raw(move |_, _, stream| {
        let region = format!("region-{}", turn.fetch_add(1, Ordering::Relaxed));
        let headers = [("content-length", "0"), ("x-amz-bucket-region", region.as_str())];
        reply(stream, "301 Moved Permanently", &headers, b"");
    });
    let (fetcher, metrics) = fetcher_in(&signed(endpoint), &[ID, SECRET]);
    let error = fetch_error(fetcher.read_blocking(&whole("key")));
    assert_eq!((error.kind, error.status), (FetchErrorKind::Unconfigured, Some(301)));
    assert_eq!(error.hint.as_deref(), Some("the bucket is in region-1: set fetch.region"));
    assert_eq!(metrics.fetch.requests.get(), 2);
}

#[test]
fn who_pays_says_so_and_others_do_not() {
    let (endpoint, asked) = good();
    for (requester_pays, variable, expected) in [
        (false, "false", None),
        (true, "false", Some("requester")),
        (false, "true", Some("requester")),
    ] {
        let settings = recipe::Fetch { requester_pays, ..signed(endpoint.clone()) };
        let environment = [ID, SECRET, ("AWS_REQUEST_PAYER", variable)];
        let (fetcher, _) = fetcher_in(&settings, &environment);
        fetcher.read_blocking(&whole("key")).unwrap();
        let head = asked.lock().unwrap().pop().unwrap();
        assert_eq!(header(&head, "x-amz-request-payer"), expected, "{head}");
        let signed = header(&head, "authorization").unwrap();
        assert_eq!(signed.contains("x-amz-request-payer"), expected.is_some(), "{signed}");
    }
}

/// The proxy sees the store's requests, with the bucket in the host's name, and nothing of what is
/// asked of this machine.
#[test]
fn a_proxy_is_used_for_stores_and_not_for_credentials_of_this_machine() {
    let (proxy, asked) = good();
    let keys = r#"{"AccessKeyId": "stoker", "SecretAccessKey": "planted-secret"}"#;
    let container = raw(move |_, _, stream| {
        reply(stream, "200 OK", &[("content-length", &keys.len().to_string())], keys.as_bytes());
    });
    let environment = [
        ("HTTP_PROXY", proxy.as_str()),
        ("http_proxy", proxy.as_str()),
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", container.as_str()),
        ("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "true"),
    ];
    let text = read_in_a_process("http://store.test:81", &["s3://bucket/a/key"], &environment);
    assert!(text.contains("read bytes"), "{text}");
    let asked = asked.lock().unwrap();
    assert_eq!(asked.len(), 1);
    assert!(asked[0].starts_with("get http://bucket.store.test:81/a/key http/1.1"), "{}", asked[0]);
    assert_eq!(header(&asked[0], "host"), Some("bucket.store.test:81"));
}

/// A server whose certificate no machine trusts.
fn tls(folder: &Path) -> String {
    let chain = CertificateDer::pem_file_iter(folder.join("server.pem")).unwrap();
    let chain = chain.collect::<Result<Vec<_>, _>>().unwrap();
    let key = PrivateKeyDer::from_pem_file(folder.join("server.key")).unwrap();
    let ring = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(ring)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("https://localhost:{}", listener.local_addr().unwrap().port());
    let serve = move || {
        for stream in listener.incoming() {
            let connection = rustls::ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut stream = rustls::StreamOwned::new(connection, stream.unwrap());
            let mut head = Vec::new();
            let mut byte = [0];
            // A client that does not trust us hangs up.
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) == 1 {
                head.push(byte[0]);
            }
            let answer = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 5\r\n\r\nbytes";
            if stream.write_all(answer).and_then(|()| stream.flush()).is_ok() {
                stream.conn.send_close_notify();
                stream.flush().unwrap_or_default();
            }
        }
    };
    std::thread::Builder::new().spawn(serve).unwrap();
    endpoint
}

#[test]
fn a_certificate_is_trusted_where_the_recipe_or_aws_own_variable_names_its_authority() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fetch/tls");
    let endpoint = tls(&folder);
    let authority = folder.join("authority.pem").to_str().unwrap().to_owned();
    let ca = Some(authority.clone());
    for (ca_file, bundle) in [(ca, ""), (None, authority.as_str())] {
        let settings = recipe::Fetch { ca_file, ..settings(endpoint.clone()) };
        let (fetcher, _) = fetcher_in(&settings, &[("AWS_CA_BUNDLE", bundle)]);
        assert_eq!(fetcher.read_blocking(&whole("key")).unwrap(), "bytes");
    }
    let (fetcher, metrics) = fetcher_in(&settings(endpoint.clone()), &[]);
    let error = fetch_error(fetcher.read_blocking(&whole("key")));
    assert_eq!((error.kind, error.attempts), (FetchErrorKind::Unconfigured, 1), "{error}");
    assert!(error.reason.starts_with("the store's certificate is not trusted"), "{error}");
    assert!(error.hint.unwrap().contains("set fetch.ca-file"));
    assert_eq!(metrics.fetch.requests.get(), 0, "there is no connection to send one over");
    for (file, reason) in [
        (folder.join("none.pem"), "can't be read"),
        (folder.join("make.sh"), "holds no certificates (PEM)"),
    ] {
        let ca_file = Some(file.to_str().unwrap().to_owned());
        let settings = recipe::Fetch { ca_file, ..settings(endpoint.clone()) };
        let (fetcher, _) = fetcher_in(&settings, &[]);
        let error = fetch_error(fetcher.read_blocking(&whole("key")));
        assert!(error.kind == FetchErrorKind::Unconfigured && error.reason.contains(reason));
    }
}

/// The metadata service gives one token after the other; the store stops taking the first.
#[test]
fn google_is_asked_with_a_token_that_is_had_anew_when_it_ends() {
    let tokens = AtomicUsize::new(0);
    let metadata = raw(move |_, head, stream| {
        assert_eq!(header(head, "metadata-flavor"), Some("google"));
        let token = format!("planted-token-{}", tokens.fetch_add(1, Ordering::Relaxed));
        let text =
            format!(r#"{{"access_token":"{token}","expires_in":3600,"token_type":"Bearer"}}"#);
        let kind = ("content-type", "application/json");
        reply(
            stream,
            "200 OK",
            &[kind, ("content-length", &text.len().to_string())],
            text.as_bytes(),
        );
    });
    let asked = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&asked);
    let store = raw(move |number, head, stream| {
        noted.lock().unwrap().push(head.to_owned());
        // As Google answers: JSON without a code, or XML.
        let ended = br#"{"error": {"code": 401, "message": "Invalid Credentials"}}"#;
        let length = ended.len().to_string();
        if number > 0 && head.contains("planted-token-0") {
            return reply(stream, "401 Unauthorized", &[("content-length", &length)], ended);
        }
        reply(stream, "200 OK", &[("content-length", "5")], b"bytes");
    });
    let host = metadata.strip_prefix("http://").unwrap();
    let environment = [("GOOGLE_BASE_URL", store.as_str()), ("GCE_METADATA_HOST", host)];
    let objects = ["gs://bucket/a b//c", "gs://bucket/two", "gs://bucket/three"];
    let text = read_in_a_process("", &objects, &environment);
    assert_eq!(text.matches("read bytes").count(), 3, "{text}");
    let asked = asked.lock().unwrap();
    let lines: Vec<_> = asked
        .iter()
        .map(|head| (head.lines().next().unwrap(), header(head, "authorization").unwrap()))
        .collect();
    assert_eq!(
        lines,
        [
            ("get /bucket/a%20b//c http/1.1", "bearer planted-token-0"),
            ("get /bucket/two http/1.1", "bearer planted-token-0"),
            ("get /bucket/two http/1.1", "bearer planted-token-1"),
            ("get /bucket/three http/1.1", "bearer planted-token-1"),
        ]
    );
}

fn azure(key: &str) -> Arc<Location> {
    Arc::new(Location { scheme: Scheme::Az, authority: "box".into(), key: key.into() })
}

/// What Microsoft's documentation says of a request with a shared key is worked out here again.
#[test]
fn azure_is_asked_with_a_shared_key_as_its_documentation_has_it() {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    let secret = b"planted secret of an account";
    let encoded = STANDARD.encode(secret);
    let asked = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&asked);
    // The signature has capital letters: the request is read as it came.
    let endpoint = exact(move |head, stream| {
        noted.lock().unwrap().push(head.to_owned());
        let headers = [("content-length", "5"), ("content-range", "bytes 2-6/9")];
        reply(stream, "206 Partial Content", &headers, b"bytes");
    });
    let environment = [
        ("AZURE_STORAGE_ACCOUNT_NAME", "me"),
        ("AZURE_STORAGE_ACCOUNT_KEY", encoded.as_str()),
        ("AZURE_STORAGE_ENDPOINT", endpoint.as_str()),
    ];
    let (fetcher, _) = fetcher_in(&recipe::Fetch::default(), &environment);
    let extent = Extent { object: azure("a b/ü.jpg"), range: Some(2..7) };
    assert_eq!(fetcher.read_blocking(&extent).unwrap(), "bytes");
    let head = asked.lock().unwrap().pop().unwrap();
    assert!(head.starts_with("GET /box/a%20b/%C3%BC.jpg HTTP/1.1"), "{head}");
    let value = |name: &str| {
        let line = head.lines().find(|line| line.to_lowercase().starts_with(&format!("{name}: ")));
        line.unwrap_or_else(|| panic!("{name}: {head}")).split_once(": ").unwrap().1
    };
    let text = format!(
        "GET\n\n\n\n\n\n{}\n\n\n\n\n{}\nx-ms-version:{}\n/me/box/a%20b/%C3%BC.jpg",
        value("date"),
        value("range"),
        value("x-ms-version"),
    );
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, secret);
    let signature = STANDARD.encode(ring::hmac::sign(&key, text.as_bytes()));
    assert_eq!(value("authorization"), format!("SharedKey me:{signature}"));
}

#[test]
fn azure_is_asked_with_a_shared_access_signature_that_no_error_repeats() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&asked);
    let endpoint = exact(move |head, stream| {
        noted.lock().unwrap().push(head.to_owned());
        if head.contains("good") {
            return reply(stream, "200 OK", &[("content-length", "5")], b"bytes");
        }
        let body = b"<Error><Code>AuthenticationFailed</Code><Message>Signature did not match. \
                     String to sign was planted+signature/planted=</Message></Error>";
        let length = body.len().to_string();
        reply(stream, "403 Forbidden", &[("content-length", &length)], body);
    });
    let environment = [
        ("AZURE_STORAGE_ACCOUNT_NAME", "me"),
        ("AZURE_STORAGE_SAS_TOKEN", "?sv=2024-11-04&sp=r&sig=planted%2Bsignature%2Fplanted%3D"),
        ("AZURE_STORAGE_ENDPOINT", endpoint.as_str()),
    ];
    let (fetcher, _) = fetcher_in(&recipe::Fetch::default(), &environment);
    let extent = Extent { object: azure("good"), range: None };
    assert_eq!(fetcher.read_blocking(&extent).unwrap(), "bytes");
    let head = asked.lock().unwrap().pop().unwrap();
    let query = "GET /box/good?sv=2024-11-04&sp=r&sig=planted%2Bsignature%2Fplanted%3D HTTP/1.1";
    assert!(head.starts_with(query), "{head}");
    let error = fetch_error(fetcher.read_blocking(&Extent { object: azure("bad"), range: None }));
    assert_eq!((error.kind, error.status), (FetchErrorKind::Denied, Some(403)));
    assert!(!format!("{error:?} {error} {fetcher:?}").contains("planted"), "{error:?}");
}

#[test]
fn clouds_without_credentials_say_what_to_set() {
    let nobody = [("AZURE_STORAGE_ENDPOINT", "http://127.0.0.1:9")];
    let (fetcher, _) = fetcher_in(&recipe::Fetch::default(), &nobody);
    let error = fetch_error(fetcher.read_blocking(&Extent { object: azure("x"), range: None }));
    assert_eq!(error.kind, FetchErrorKind::Unconfigured);
    assert_eq!(error.hint.as_deref(), Some("set AZURE_STORAGE_ACCOUNT_NAME"));
    let broken = [
        ("AZURE_STORAGE_ACCOUNT_NAME", "me"),
        ("AZURE_STORAGE_ACCOUNT_KEY", "planted*key"),
        ("GOOGLE_SERVICE_ACCOUNT_KEY", r#"{"planted-secret": 1}"#),
    ];
    let (fetcher, _) = fetcher_in(&recipe::Fetch::default(), &broken);
    let google = Location { scheme: Scheme::Gs, authority: "b".into(), key: "k".into() };
    for object in [azure("x"), Arc::new(google)] {
        let error = fetch_error(fetcher.read_blocking(&Extent { object, range: None }));
        assert_eq!(error.kind, FetchErrorKind::Unconfigured, "{error}");
        assert!(!format!("{error:?} {fetcher:?}").contains("planted"), "{error:?}");
    }
}
