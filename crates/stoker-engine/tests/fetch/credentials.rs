//! Who signs, with what: the sources of credentials, one by one, and what is said where they fail.

use super::*;
use stoker_engine::fetch::Environment;

/// Not a test: what some tests of credentials run in a process of its own, as proxies and some of
/// the clouds' tools read the environment themselves. Prints what became of each key.
#[test]
#[ignore = "run by other tests"]
fn read_with_the_credentials_of_the_environment() {
    #[expect(clippy::disallowed_methods, reason = "the parent process says it this way")]
    let given = |name| std::env::var(name).unwrap();
    let endpoint = Some(given("STOKER_TEST_ENDPOINT")).filter(|endpoint| !endpoint.is_empty());
    let settings = recipe::Fetch { endpoint, ..recipe::Fetch::default() };
    let (fetcher, _) = fetcher(&settings);
    for uri in given("STOKER_TEST_OBJECTS").split('\n') {
        let (scheme, rest) = uri.split_once("://").unwrap();
        let scheme = match scheme {
            "s3" => Scheme::S3,
            "gs" => Scheme::Gs,
            other => panic!("{other}"),
        };
        let (authority, key) = rest.split_once('/').unwrap();
        let object = Location { scheme, authority: authority.into(), key: key.into() };
        match fetcher.read_blocking(&Extent { object: Arc::new(object), range: None }) {
            Ok(bytes) => println!("read {}", String::from_utf8_lossy(&bytes)),
            Err(error) => println!("{error:?}: {error}"),
        }
    }
}

/// What that process prints.
pub(super) fn read_in_a_process(
    endpoint: &str,
    objects: &[&str],
    environment: &[(&str, &str)],
) -> String {
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--nocapture"])
        .arg("credentials::read_with_the_credentials_of_the_environment")
        .env_clear()
        .env("STOKER_TEST_ENDPOINT", endpoint)
        .env("STOKER_TEST_OBJECTS", objects.join("\n"))
        .envs(environment.iter().copied())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    text
}

/// A fetcher in an environment; no machine's service is asked unless it says so.
pub(super) fn fetcher_in(
    settings: &recipe::Fetch,
    environment: &[(&str, &str)],
) -> (Fetcher, Arc<Metrics>) {
    let off = [("AWS_EC2_METADATA_DISABLED", "true")];
    let environment: Environment = off.iter().chain(environment).copied().collect();
    let metrics = Arc::new(Metrics::default());
    let fetcher = Fetcher::with_environment(settings, Arc::clone(&metrics), environment).unwrap();
    (fetcher, metrics)
}

pub(super) fn signed(endpoint: String) -> recipe::Fetch {
    recipe::Fetch { anonymous: false, ..settings(endpoint) }
}

/// A store with one object, and its key pair.
pub(super) fn store() -> Server {
    let server = Server::start(&Config::default(), Backend::memory()).unwrap();
    server.put("bucket", "key", "its bytes").unwrap();
    server
}

const ID: (&str, &str) = ("AWS_ACCESS_KEY_ID", "stoker");
const SECRET: (&str, &str) = ("AWS_SECRET_ACCESS_KEY", "stoker-secret");

/// A home folder with files in it.
pub(super) fn home(files: &[(&str, &str)]) -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = home.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    home
}

/// What reading the one object of a store leads to.
pub(super) fn outcome(
    server: &Server,
    home: &tempfile::TempDir,
    environment: &[(&str, &str)],
) -> Result<Bytes, Box<FetchError>> {
    let home = ("HOME", home.path().to_str().unwrap());
    let environment: Vec<_> = [home].iter().chain(environment).copied().collect();
    let (fetcher, _) = fetcher_in(&signed(server.endpoint()), &environment);
    fetcher.read_blocking(&whole("key")).map_err(|error| Box::new(fetch_error(Err::<(), _>(error))))
}

#[test]
fn signed_requests_are_accepted_for_any_key_and_refused_with_a_wrong_secret() {
    let server = Server::start(&Config::default(), Backend::memory()).unwrap();
    let keys = ["plain.jpg", "a//b", "100% sure", "plus+and space", "ünïcode/日本語", "q?x=1&y#z"];
    for key in keys {
        server.put("bucket", key, key.to_owned()).unwrap();
    }
    let objects = keys.map(|key| format!("s3://bucket/{key}"));
    let objects: Vec<_> = objects.iter().map(String::as_str).collect();
    let text = read_in_a_process(&server.endpoint(), &objects, &[ID, SECRET]);
    for key in keys {
        assert!(text.contains(&format!("read {key}\n")), "{text}");
    }
    let wrong = ("AWS_SECRET_ACCESS_KEY", "not-the-right-one");
    let (fetcher, _) = fetcher_in(&signed(server.endpoint()), &[ID, wrong]);
    let error = fetch_error(fetcher.read_blocking(&whole("plain.jpg")));
    assert_eq!((error.kind, error.attempts), (FetchErrorKind::Denied, 1));
    let text = format!("{error:?} {error}");
    assert!(text.contains("SignatureDoesNotMatch") && text.contains("check the secret key"));
    assert!(!text.contains("not-the-right-one"), "{text}");
}

/// The answer to HEAD has no words; what they would be is asked for.
#[test]
fn a_size_that_is_refused_is_refused_with_the_stores_words() {
    let server = store();
    for (secret, attempts, words) in
        [("wrong", 1, "SignatureDoesNotMatch"), ("stoker-secret", 0, "")]
    {
        let environment = [ID, ("AWS_SECRET_ACCESS_KEY", secret)];
        let (fetcher, metrics) = fetcher_in(&signed(server.endpoint()), &environment);
        let stat = fetcher.stat_blocking(&object("key"));
        if attempts == 0 {
            assert_eq!(stat.unwrap().size, 9);
            continue;
        }
        let error = fetch_error(stat);
        assert!(error.reason.contains(words), "{error}");
        assert_eq!((error.attempts, metrics.fetch.requests.get()), (attempts, 2));
    }
}

#[test]
fn without_credentials_the_error_comes_soon_and_says_what_was_asked_and_why_it_gave_none() {
    let server = store();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let metadata = format!("http://{}", silent.local_addr().unwrap());
    let environment = [
        ("AWS_EC2_METADATA_DISABLED", "false"),
        ("AWS_METADATA_ENDPOINT", metadata.as_str()),
        ("HOME", "/nowhere"),
    ];
    let (fetcher, metrics) = fetcher_in(&signed(server.endpoint()), &environment);
    for _ in 0..2 {
        let error = fetch_error(fetcher.read_blocking(&whole("key")));
        assert_eq!((error.kind, error.attempts), (FetchErrorKind::Unconfigured, 1));
        for words in [
            "the environment (AWS_ACCESS_KEY_ID is not set)",
            "web identity (AWS_WEB_IDENTITY_TOKEN_FILE is not set)",
            "the container (neither AWS_CONTAINER_CREDENTIALS_RELATIVE_URI nor",
            "the default profile (AWS_PROFILE is not set, and /nowhere/.aws/config or \
             /nowhere/.aws/credentials has no default)",
            &format!("the EC2 instance (nothing answers at {metadata}, so"),
        ] {
            assert!(error.reason.contains(words), "{words}: {error}");
        }
        assert!(error.hint.unwrap().contains("for a public bucket set fetch.anonymous = true"));
    }
    assert_eq!((metrics.fetch.retries.get(), server.stats().requests), (0, 0));
}

#[test]
fn half_a_key_pair_is_refused_and_named() {
    let (server, home) = (store(), home(&[]));
    for (there, missing) in [(ID, SECRET), (SECRET, ID)] {
        let error = outcome(&server, &home, &[there]).unwrap_err();
        assert_eq!(error.reason, format!("{} is set, and {} is not", there.0, missing.0));
        assert_eq!(error.hint.as_deref(), Some("set both, or neither"));
    }
    let broken = ("AWS_SECRET_ACCESS_KEY", "planted\nsecret");
    let error = outcome(&server, &home, &[ID, broken]).unwrap_err();
    assert!(error.reason.contains("characters that no key has"), "{error}");
    assert!(!format!("{error:?}").contains("planted"), "{error:?}");
}

#[test]
fn a_profile_is_found_in_both_files_and_a_missing_one_is_named_with_its_neighbour() {
    let server = store();
    let config = "[default]\nregion = us-east-1\n[profile dev]\nregion = eu-west-1\n";
    let keys = "[default]\naws_access_key_id = nobody\naws_secret_access_key = nothing\n\
                [dev]\naws_access_key_id = stoker\naws_secret_access_key = stoker-secret\n";
    let home = home(&[(".aws/config", config), (".aws/credentials", keys), ("moved", keys)]);
    assert_eq!(outcome(&server, &home, &[("AWS_PROFILE", "dev")]).unwrap(), "its bytes");
    let moved = [
        ("AWS_PROFILE", "dev"),
        ("AWS_CONFIG_FILE", "/nowhere"),
        ("AWS_SHARED_CREDENTIALS_FILE", "~/moved"),
    ];
    assert_eq!(outcome(&server, &home, &moved).unwrap(), "its bytes");
    // The environment's own keys go before any profile; the default one comes after.
    let both = [("AWS_PROFILE", "default"), ID, SECRET];
    assert_eq!(outcome(&server, &home, &both).unwrap(), "its bytes");
    let error = outcome(&server, &home, &[]).unwrap_err();
    assert!(error.reason.contains("does not know the key (InvalidAccessKeyId"), "{error}");
    let error = outcome(&server, &home, &[("AWS_PROFILE", "deev")]).unwrap_err();
    assert_eq!(error.kind, FetchErrorKind::Unconfigured);
    assert!(error.reason.contains("there is no profile \"deev\" in "), "{error}");
    assert_eq!(error.hint.as_deref(), Some("did you mean \"dev\"?"));
}

#[test]
fn a_profile_that_leads_nowhere_says_where_it_ends() {
    let server = store();
    let config = "[profile round]\nrole_arn = arn:1\nsource_profile = about\n\
                  [profile about]\nrole_arn = arn:2\nsource_profile = round\n\
                  [profile half]\naws_access_key_id = x\n\
                  [profile code]\nrole_arn = arn:3\nsource_profile = half\nmfa_serial = 1\n\
                  [profile alone]\nrole_arn = arn:4\n\
                  [profile empty]\nregion = us-east-1\n\
                  [profile on-empty]\nrole_arn = arn:5\nsource_profile = empty\n\
                  [profile sso]\nsso_session = none\nsso_account_id = 1\nsso_role_name = r\n\
                  [profile new]\nlogin_session = arn:6\n";
    let home = home(&[(".aws/config", config)]);
    for (profile, reason, hint) in [
        ("round", "leads back to itself", "aws sts get-caller-identity --profile"),
        ("half", "has only one of aws_access_key_id and", "aws sts"),
        ("code", "asks for a code of an MFA device", "aws sts"),
        ("alone", "must have one of source_profile and credential_source", "aws sts"),
        ("empty", "names no credentials", "unset AWS_PROFILE"),
        ("on-empty", "holds no keys for another to start from", "aws sts"),
        ("sso", "names a section [sso-session none], and there is none", "aws sts"),
        ("new", "was made by aws login", "credential_process = aws configure export-credentials"),
    ] {
        let error = outcome(&server, &home, &[("AWS_PROFILE", profile)]).unwrap_err();
        assert_eq!((error.kind, error.attempts), (FetchErrorKind::Unconfigured, 1), "{error}");
        assert!(error.reason.contains(reason), "{profile}: {error}");
        assert!(error.hint.as_ref().unwrap().contains(hint), "{profile}: {error}");
    }
}

#[test]
fn a_program_gives_keys_and_what_it_says_otherwise_is_not_repeated() {
    let server = store();
    let good = r#"{"Version": 1, "AccessKeyId": "stoker", "SecretAccessKey": "stoker-secret"}"#;
    let config = format!(
        "[profile good]\ncredential_process = printf '%s' '{good}'\n\
         [profile bad]\ncredential_process = echo planted-secret; echo planted-secret >&2; exit 3\n\
         [profile other]\ncredential_process = echo '{{\"planted-secret\": 1}}'\n\
         [profile none]\ncredential_process = /nowhere/planted-secret\n"
    );
    let home = home(&[(".aws/config", config.as_str())]);
    assert_eq!(outcome(&server, &home, &[("AWS_PROFILE", "good")]).unwrap(), "its bytes");
    for (profile, reason) in [
        ("bad", "the credential_process of profile \"bad\" ends with an error"),
        ("other", "does not print what it should"),
        ("none", "ends with an error"),
    ] {
        let error = outcome(&server, &home, &[("AWS_PROFILE", profile)]).unwrap_err();
        assert!(error.reason.contains(reason), "{error}");
        assert_eq!(error.hint.as_deref(), Some("run the command by hand to see why"));
        assert!(!format!("{error:?}").contains("planted"), "{error:?}");
    }
}

#[test]
fn a_clock_that_is_wrong_is_told_how_far_it_is() {
    let endpoint = raw(|_, _, stream| {
        let body = b"<Error><Code>RequestTimeTooSkewed</Code><Message>The difference between the \
                     request time and the current time is too large.</Message></Error>";
        let length = body.len().to_string();
        // The server's time is long ago.
        let date = ("date", "Mon, 01 Jan 2024 00:00:00 GMT");
        reply(stream, "403 Forbidden", &[date, ("content-length", &length)], body);
    });
    let (fetcher, _) = fetcher_in(&signed(endpoint), &[ID, SECRET]);
    let error = fetch_error(fetcher.read_blocking(&whole("key")));
    let hint = error.hint.unwrap();
    assert!(hint.starts_with("set this machine's clock, which is "), "{hint}");
    assert!(hint.ends_with(" minutes ahead of the store's"), "{hint}");
}

#[test]
fn what_may_not_be_read_is_denied_with_what_to_check() {
    let endpoint = raw(|_, _, stream| {
        let body = b"<Error><Code>AccessDenied</Code><Message>User: arn:aws:iam::1:user/me is not \
                     authorized to perform: s3:GetObject</Message></Error>";
        let length = body.len().to_string();
        reply(stream, "403 Forbidden", &[("content-length", &length)], body);
    });
    let (fetcher, metrics) = fetcher_in(&signed(endpoint), &[ID, SECRET]);
    let error = fetch_error(fetcher.read_blocking(&whole("key")));
    assert_eq!((error.kind, metrics.fetch.requests.get()), (FetchErrorKind::Denied, 1));
    assert!(error.reason.contains("is not authorized to perform: s3:GetObject"), "{error}");
    assert_eq!(error.hint.as_deref(), Some("check the credentials and what they may read"));
}
