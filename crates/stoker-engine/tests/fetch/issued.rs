//! Credentials that end: containers, machines, roles and SSO, and runs that outlive what they give.

use super::credentials::{fetcher_in, home, outcome, signed, store};
use super::*;
use stoker_s3::Issuer;

/// A store that only takes what its issuer gives out, and an issuer whose credentials last so long.
fn issued(every: Duration) -> (Server, Arc<Issuer>) {
    let issuer = Arc::new(Issuer::start(every).unwrap());
    let config = Config { issuer: Some(Arc::clone(&issuer)), ..Config::default() };
    let server = Server::start(&config, Backend::memory()).unwrap();
    for number in 0..100 {
        server.put("bucket", &format!("key-{number}"), format!("bytes {number}")).unwrap();
    }
    (server, issuer)
}

/// Reads all objects at once; each comes back as it is.
fn read_all(fetcher: &Fetcher) {
    let reads = (0..100).map(|number| async move {
        let bytes = fetcher.read(&whole(&format!("key-{number}")), |_| ready(Ok(()))).await;
        assert_eq!(bytes.unwrap(), format!("bytes {number}"));
    });
    run(futures::future::join_all(reads));
}

fn sources(issuer: &Issuer) -> [Vec<(&'static str, String)>; 2] {
    [
        vec![("AWS_CONTAINER_CREDENTIALS_FULL_URI", issuer.container())],
        vec![
            ("AWS_EC2_METADATA_DISABLED", "false".to_owned()),
            ("AWS_EC2_METADATA_SERVICE_ENDPOINT", issuer.machine()),
            ("HOME", "/nowhere".to_owned()),
        ],
    ]
}

#[test]
fn a_hundred_reads_whose_credentials_ended_ask_for_new_ones_once_and_none_fails() {
    let (server, issuer) = issued(Duration::from_hours(1));
    for environment in sources(&issuer) {
        let environment: Vec<_> =
            environment.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let (fetcher, metrics) = fetcher_in(&signed(server.endpoint()), &environment);
        let before = issuer.given();
        read_all(&fetcher);
        assert_eq!(issuer.given() - before, 1);
        for round in 1..=5 {
            issuer.rotate();
            read_all(&fetcher);
            // A size is asked for with HEAD, whose refusal does not say why.
            issuer.rotate();
            assert_eq!(fetcher.stat_blocking(&object("key-7")).unwrap().size, 7);
            assert_eq!(issuer.given() - before, 1 + 2 * round);
        }
        let fetch = metrics.report().fetch;
        assert_eq!(fetch.credential_renewals, 10);
        assert!(fetch.retries > 0 && fetch.retries == fetch.causes.credentials, "{fetch}");
    }
}

#[test]
fn a_run_over_many_rotations_loses_nothing() {
    let (server, issuer) = issued(Duration::from_millis(300));
    let url = issuer.container();
    let environment = [("AWS_CONTAINER_CREDENTIALS_FULL_URI", url.as_str())];
    let (fetcher, _) = fetcher_in(&signed(server.endpoint()), &environment);
    let mut rounds = 0;
    while issuer.rotations() < 8 {
        read_all(&fetcher);
        rounds += 1;
    }
    // Each rotation was asked for a few times at most, and not by each of the reads.
    assert!(issuer.given() <= 4 * issuer.rotations() + 4, "{} {rounds}", issuer.given());
}

#[test]
fn keys_of_the_environment_that_ended_are_an_error_that_says_what_lasts() {
    let (server, issuer) = issued(Duration::from_hours(1));
    let given = ask(&issuer.container());
    let given: serde_json::Value = serde_json::from_str(&given).unwrap();
    let of = |name: &str| given[name].as_str().unwrap().to_owned();
    let (id, secret, token) = (of("AccessKeyId"), of("SecretAccessKey"), of("Token"));
    let environment = [
        ("AWS_ACCESS_KEY_ID", id.as_str()),
        ("AWS_SECRET_ACCESS_KEY", secret.as_str()),
        ("AWS_SESSION_TOKEN", token.as_str()),
    ];
    // A token of another login is told apart from one that ended.
    let wrong = [environment[0], environment[1], ("AWS_SESSION_TOKEN", "planted-token")];
    let (fetcher, _) = fetcher_in(&signed(server.endpoint()), &wrong);
    let error = fetch_error(fetcher.read_blocking(&whole("key-1")));
    assert_eq!((error.kind, error.attempts), (FetchErrorKind::Denied, 1));
    assert!(error.reason.contains("InvalidToken"), "{error}");
    assert!(error.hint.as_ref().unwrap().contains("check the session token"), "{error}");
    assert!(!format!("{error:?}").contains("planted-token"), "{error:?}");
    let (fetcher, _) = fetcher_in(&signed(server.endpoint()), &environment);
    assert_eq!(fetcher.read_blocking(&whole("key-1")).unwrap(), "bytes 1");
    issuer.rotate();
    let error = fetch_error(fetcher.read_blocking(&whole("key-1")));
    assert_eq!((error.kind, error.attempts), (FetchErrorKind::Denied, 1));
    assert!(error.reason.contains("have expired"), "{error}");
    assert!(error.hint.as_ref().unwrap().contains("use a profile or the machine's role"));
    let shown = format!("{error:?} {error} {fetcher:?}");
    assert!(!shown.contains(&secret) && !shown.contains(&token), "{shown}");
}

/// The body of the answer to a plain GET.
fn ask(url: &str) -> String {
    let (host, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut stream = TcpStream::connect(host).unwrap();
    write!(stream, "GET /{path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text.split_once("\r\n\r\n").unwrap().1.to_owned()
}

/// A service over HTTP that hands the head of each request and its body to `answer`, and what it
/// was asked.
fn service(
    answer: impl Fn(&str, &str) -> (&'static str, String) + Send + 'static,
) -> (String, Arc<std::sync::Mutex<Vec<String>>>) {
    let asked = Arc::new(std::sync::Mutex::new(Vec::new()));
    let noted = Arc::clone(&asked);
    let endpoint = raw(move |_, head, stream| {
        let length = head
            .split_once("content-length: ")
            .and_then(|(_, rest)| rest.lines().next().unwrap().trim().parse::<usize>().ok());
        let mut body = vec![0; length.unwrap_or(0)];
        stream.read_exact(&mut body).unwrap();
        let body = String::from_utf8(body).unwrap();
        let (status, text) = answer(head, &body);
        noted.lock().unwrap().push(format!("{head}{body}"));
        reply(stream, status, &[("content-length", &text.len().to_string())], text.as_bytes());
    });
    (endpoint, asked)
}

/// STS's answer with the key pair that the test server takes.
fn taken(action: &str) -> String {
    format!(
        "<{action}Response xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><{action}Result>\
         <AssumedRoleUser><Arn>arn:x</Arn></AssumedRoleUser><Credentials><AccessKeyId>stoker\
         </AccessKeyId><SecretAccessKey>stoker-secret</SecretAccessKey><SessionToken>tok\
         </SessionToken><Expiration>2099-01-01T00:00:00Z</Expiration></Credentials></{action}Result>\
         </{action}Response>"
    )
}

#[test]
fn roles_are_taken_on_with_signed_requests_one_after_the_other() {
    let (sts, asked) = service(|_, _| ("200 OK", taken("AssumeRole")));
    let config = "[profile last]\nrole_arn = arn:aws:iam::2:role/b\nsource_profile = middle\n\
                  external_id = of:them\nrole_session_name = me\nduration_seconds = 900\n\
                  [profile middle]\nrole_arn = arn:aws:iam::1:role/a\nsource_profile = first\n\
                  [profile first]\naws_access_key_id = FIRSTKEY\naws_secret_access_key = \
                  planted-secret\nregion = eu-west-1\n";
    let (server, home) = (store(), home(&[(".aws/config", config)]));
    let environment = [("AWS_PROFILE", "last"), ("AWS_ENDPOINT_URL_STS", sts.as_str())];
    assert_eq!(outcome(&server, &home, &environment).unwrap(), "its bytes");
    let asked = asked.lock().unwrap();
    assert_eq!(asked.len(), 2);
    for (question, key, role) in [
        (&asked[0], "credential=firstkey/", "RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fa"),
        (&asked[1], "credential=stoker/", "RoleArn=arn%3Aaws%3Aiam%3A%3A2%3Arole%2Fb"),
    ] {
        assert!(question.contains(key) && question.contains(role), "{question}");
        assert!(question.contains("/us-east-1/sts/aws4_request"), "{question}");
        assert!(question.contains("Action=AssumeRole&"), "{question}");
        assert!(!question.contains("planted"), "{question}");
    }
    assert!(asked[1].contains("&ExternalId=of%3Athem&DurationSeconds=900"), "{}", asked[1]);
    assert!(asked[1].contains("RoleSessionName=me&"), "{}", asked[1]);
    assert!(asked[1].contains("x-amz-security-token: tok"), "{}", asked[1]);
}

/// The signature of a request as AWS's documentation of version 4 has it, worked out once more.
fn signature(head: &str, body: &str, secret: &str) -> (String, String) {
    use ring::{digest, hmac};
    let hex = |bytes: &[u8]| -> String {
        bytes.iter().fold(String::new(), |text, it| format!("{text}{it:02x}"))
    };
    let hash = |text: &str| hex(digest::digest(&digest::SHA256, text.as_bytes()).as_ref());
    let mac = |key: &[u8], text: &str| {
        hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes()).as_ref().to_vec()
    };
    let value = |name: &str| {
        let lines = head.lines().filter_map(|line| line.split_once(": "));
        let mut found = lines.filter(|line| line.0.eq_ignore_ascii_case(name));
        found.next().unwrap_or_else(|| panic!("{name}")).1.trim()
    };
    let authorization = value("authorization");
    let part = |name: &str| {
        let (_, rest) = authorization.split_once(&format!("{name}=")).unwrap();
        rest.split(',').next().unwrap()
    };
    let signed = part("SignedHeaders");
    for name in ["host", "x-amz-date", "content-type"] {
        assert!(signed.split(';').any(|header| header == name), "{signed}");
    }
    let lines: Vec<_> = signed.split(';').map(|name| format!("{name}:{}", value(name))).collect();
    let headers = lines.join("\n");
    let request = format!("POST\n/\n\n{headers}\n\n{signed}\n{}", hash(body));
    let (_, scope) = part("Credential").split_once('/').unwrap();
    let text = format!("AWS4-HMAC-SHA256\n{}\n{scope}\n{}", value("x-amz-date"), hash(&request));
    let first = format!("AWS4{secret}").into_bytes();
    let key = scope.split('/').fold(first, |key, step| mac(&key, step));
    (hex(&mac(&key, &text)), part("Signature").to_owned())
}

#[test]
fn the_request_for_a_role_is_signed_as_the_documentation_has_it() {
    let (sender, receiver) = mpsc::sync_channel(1);
    let sts = exact(move |head, stream| {
        let lower = head.to_lowercase();
        let (_, rest) = lower.split_once("content-length: ").unwrap();
        let mut body = vec![0; rest.lines().next().unwrap().trim().parse().unwrap()];
        stream.read_exact(&mut body).unwrap();
        let body = String::from_utf8(body).unwrap();
        sender.send(signature(head, &body, "planted-secret")).unwrap();
        let text = taken("AssumeRole");
        reply(stream, "200 OK", &[("content-length", &text.len().to_string())], text.as_bytes());
    });
    let config = "[default]\nrole_arn = arn:x\nsource_profile = default\n\
                  aws_access_key_id = FIRST\naws_secret_access_key = planted-secret\n";
    let (server, home) = (store(), home(&[(".aws/config", config)]));
    let environment = [("AWS_ENDPOINT_URL_STS", sts.as_str())];
    assert_eq!(outcome(&server, &home, &environment).unwrap(), "its bytes");
    let (expected, found) = receiver.recv().unwrap();
    assert_eq!(found, expected);
}

#[test]
fn a_role_that_is_refused_is_named_with_the_services_words_and_without_the_token() {
    let (sts, _) = service(|_, body| {
        let token = body.split("WebIdentityToken=").nth(1).unwrap_or("none");
        let text = format!(
            "<ErrorResponse><Error><Type>Sender</Type><Code>AccessDenied</Code><Message>Not \
             authorized to perform sts:AssumeRoleWithWebIdentity{}</Message></Error></ErrorResponse>",
            if token == "planted%2Dtoken%2Dlong" { " planted-token-long" } else { "" }
        );
        ("403 Forbidden", text)
    });
    let (server, home) =
        (store(), home(&[("token", "another-token-long\n"), ("planted", "planted-token-long")]));
    for (file, words) in [("~/token", "Not authorized to perform"), ("~/planted", "(AccessDenied)")]
    {
        let environment = [
            ("AWS_WEB_IDENTITY_TOKEN_FILE", file),
            ("AWS_ROLE_ARN", "arn:aws:iam::1:role/x"),
            ("AWS_ENDPOINT_URL_STS", sts.as_str()),
        ];
        let error = outcome(&server, &home, &environment).unwrap_err();
        assert_eq!(error.kind, FetchErrorKind::Denied, "{error}");
        assert!(error.reason.contains(words), "{error}");
        let hint = "check who may take on the role arn:aws:iam::1:role/x";
        assert_eq!(error.hint.as_deref(), Some(hint));
        assert!(!format!("{error:?}").contains("planted"), "{error:?}");
    }
}

#[test]
fn a_token_of_web_identity_is_exchanged_unsigned_and_read_anew() {
    let (sts, asked) = service(|_, _| ("200 OK", taken("AssumeRoleWithWebIdentity")));
    let (server, home) = (store(), home(&[("token", "first.token\n")]));
    let environment = [
        ("AWS_WEB_IDENTITY_TOKEN_FILE", "~/token"),
        ("AWS_ROLE_ARN", "arn:x"),
        ("AWS_ENDPOINT_URL_STS", sts.as_str()),
    ];
    assert_eq!(outcome(&server, &home, &environment).unwrap(), "its bytes");
    let question = asked.lock().unwrap().remove(0);
    assert!(question.contains("WebIdentityToken=first%2Etoken"), "{question}");
    assert!(question.contains("Action=AssumeRoleWithWebIdentity&"), "{question}");
    assert!(!question.contains("authorization:"), "{question}");
    let alone = [environment[0]];
    let error = outcome(&server, &home, &alone).unwrap_err();
    assert!(error.reason.contains("AWS_ROLE_ARN is not"), "{error}");
    let missing = [("AWS_WEB_IDENTITY_TOKEN_FILE", "~/none"), environment[1]];
    let error = outcome(&server, &home, &missing).unwrap_err();
    assert!(error.reason.contains("can't be read (No such file"), "{error}");
}

/// `sha1sum` of `my-sso` and of `https://my.awsapps.com/start`.
const SESSION: &str = ".aws/sso/cache/0ad374308c5a4e22f723adf10145eafad7c4031c.json";
const PORTAL: &str = ".aws/sso/cache/40840c65697c043e2a71754cccb2ab4de3acc1c1.json";

fn sso_config() -> &'static str {
    "[profile dev]\nsso_session = my-sso\nsso_account_id = 123\nsso_role_name = Train er\n\
     [sso-session my-sso]\nsso_region = eu-west-1\nsso_start_url = https://my.awsapps.com/start\n\
     [profile old]\nsso_start_url = https://my.awsapps.com/start\nsso_region = eu-west-1\n\
     sso_account_id = 123\nsso_role_name = Train er\n"
}

#[test]
fn the_token_of_a_login_buys_keys_and_an_ended_one_says_how_to_log_in() {
    let (portal, asked) = service(|head, _| {
        if head.contains("planted-ended") {
            return ("401 Unauthorized", r#"{"message":"Session token not found"}"#.to_owned());
        }
        let keys = r#"{"roleCredentials": {"accessKeyId": "stoker", "secretAccessKey":
            "stoker-secret", "sessionToken": "", "expiration": 4070908800000}}"#;
        ("200 OK", keys.to_owned())
    });
    let token =
        |token: &str, end: &str| format!(r#"{{"accessToken": "{token}", "expiresAt": "{end}"}}"#);
    let (good, late) = ("2099-01-01T00:00:00Z", "2019-11-14T04:05:45UTC");
    let server = store();
    let environment =
        |profile| [("AWS_PROFILE", profile), ("AWS_ENDPOINT_URL_SSO", portal.as_str())];
    let at = |file: &str, text: &str| home(&[(".aws/config", sso_config()), (file, text)]);
    for (profile, file) in [("dev", SESSION), ("old", PORTAL)] {
        let home = at(file, &token("planted-token", good));
        assert_eq!(outcome(&server, &home, &environment(profile)).unwrap(), "its bytes");
        let question = asked.lock().unwrap().pop().unwrap();
        let first = "get /federation/credentials?role_name=train%20er&account_id=123 http";
        assert!(question.starts_with(first), "{question}");
        assert!(question.contains("x-amz-sso_bearer_token: planted-token"), "{question}");
    }
    for (file, text, reason) in [
        (SESSION, token("planted-token", late), "has expired"),
        (SESSION, token("planted-ended", good), "has ended"),
        (SESSION, "planted".to_owned(), "can't be read"),
        ("elsewhere", String::new(), "was never begun"),
    ] {
        let error = outcome(&server, &at(file, &text), &environment("dev")).unwrap_err();
        let expected = format!("the SSO session of profile \"dev\" {reason}");
        assert_eq!((error.reason.as_str(), error.attempts), (expected.as_str(), 1));
        assert_eq!(error.hint.as_deref(), Some("run aws sso login --profile dev"));
        assert!(!format!("{error:?}").contains("planted"), "{error:?}");
    }
}

#[test]
fn a_login_that_can_be_renewed_is_and_the_new_token_is_kept_for_all() {
    let (aws, asked) = service(|head, body| {
        if head.starts_with("post /token ") {
            let body: serde_json::Value = serde_json::from_str(body).unwrap();
            assert_eq!(body["refreshToken"], "refresh-1");
            let renewed =
                r#"{"accessToken": "second", "expiresIn": 3600, "refreshToken": "refresh-2"}"#;
            return ("200 OK", renewed.to_owned());
        }
        assert!(head.contains("x-amz-sso_bearer_token: second"), "{head}");
        let keys = r#"{"roleCredentials": {"accessKeyId": "stoker", "secretAccessKey":
            "stoker-secret", "expiration": 4070908800000}}"#;
        ("200 OK", keys.to_owned())
    });
    let cached = r#"{"accessToken": "first", "expiresAt": "2020-01-01T00:00:00Z", "clientId": "id",
        "clientSecret": "of-client", "refreshToken": "refresh-1", "region": "eu-west-1"}"#;
    let (server, home) = (store(), home(&[(".aws/config", sso_config()), (SESSION, cached)]));
    let environment = [("AWS_PROFILE", "dev"), ("AWS_ENDPOINT_URL", aws.as_str())];
    // The store is named by the recipe; the variable is for all other services.
    for questions in [2, 3] {
        assert_eq!(outcome(&server, &home, &environment).unwrap(), "its bytes");
        assert_eq!(asked.lock().unwrap().len(), questions);
    }
    let kept = std::fs::read(home.path().join(SESSION)).unwrap();
    let kept: serde_json::Value = serde_json::from_slice(&kept).unwrap();
    let of = |name: &str| kept[name].as_str().unwrap().to_owned();
    assert_eq!([of("accessToken"), of("refreshToken")], ["second", "refresh-2"]);
    assert_eq!([of("clientSecret"), of("region")], ["of-client", "eu-west-1"]);
}

#[test]
fn tokens_are_not_sent_to_other_machines_without_tls() {
    let (server, home) = (store(), home(&[]));
    let environment = [
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://192.0.2.1/keys"),
        ("AWS_CONTAINER_AUTHORIZATION_TOKEN", "planted-token"),
    ];
    let error = outcome(&server, &home, &environment).unwrap_err();
    assert!(error.reason.contains("names another machine, without TLS"), "{error}");
    assert!(!format!("{error:?}").contains("planted"), "{error:?}");
}
