//! Who signs, with what.

use super::*;

/// Not a test: what the tests of credentials run in a process of its own, as credentials come from
/// the environment. Prints what became of each key.
#[test]
#[ignore = "run by other tests"]
fn read_with_the_credentials_of_the_environment() {
    #[expect(clippy::disallowed_methods, reason = "the parent process says it this way")]
    let given = |name| std::env::var(name).unwrap();
    let settings = recipe::Fetch { anonymous: false, ..settings(given("STOKER_TEST_ENDPOINT")) };
    let (fetcher, _) = fetcher(&settings);
    for key in given("STOKER_TEST_KEYS").split('\n') {
        let begin = Instant::now();
        match fetcher.read_blocking(&whole(key)) {
            Ok(bytes) => println!("read {}", String::from_utf8_lossy(&bytes)),
            Err(error) => println!("{:?} after {:?}: {error}", error, begin.elapsed()),
        }
        assert!(begin.elapsed() < Duration::from_secs(3), "{:?}", begin.elapsed());
    }
}

fn read_with(endpoint: &str, keys: &[&str], environment: &[(&str, &str)]) -> String {
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--nocapture"])
        .arg("credentials::read_with_the_credentials_of_the_environment")
        .env_clear()
        .env("STOKER_TEST_ENDPOINT", endpoint)
        .env("STOKER_TEST_KEYS", keys.join("\n"))
        .envs(environment.iter().copied())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    text
}

#[test]
fn signed_requests_are_accepted_for_any_key_and_refused_with_a_wrong_secret() {
    let server = Server::start(&Config::default(), Backend::memory()).unwrap();
    let keys = ["plain.jpg", "a//b", "100% sure", "plus+and space", "ünïcode/日本語", "q?x=1&y#z"];
    for key in keys {
        server.put("bucket", key, key.to_owned()).unwrap();
    }
    let id = ("AWS_ACCESS_KEY_ID", "stoker");
    let secret = ("AWS_SECRET_ACCESS_KEY", "stoker-secret");
    let text = read_with(&server.endpoint(), &keys, &[id, secret]);
    for key in keys {
        assert!(text.contains(&format!("read {key}\n")), "{text}");
    }
    let wrong = ("AWS_SECRET_ACCESS_KEY", "not-the-right-one");
    let text = read_with(&server.endpoint(), &["plain.jpg"], &[id, wrong]);
    assert!(text.contains("Denied") && text.contains("SignatureDoesNotMatch"), "{text}");
    assert!(text.contains("check the secret key"), "{text}");
    assert!(!text.contains("not-the-right-one"), "{text}");
}

#[test]
fn without_credentials_the_error_comes_soon_and_says_what_to_set() {
    let server = Server::start(&Config::default(), Backend::memory()).unwrap();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let metadata = format!("http://{}", silent.local_addr().unwrap());
    let environment = [("AWS_METADATA_ENDPOINT", metadata.as_str())];
    let text = read_with(&server.endpoint(), &["one", "two"], &environment);
    assert_eq!(text.matches("Unconfigured").count(), 2, "{text}");
    assert!(text.contains("AWS_ACCESS_KEY_ID") && text.contains("anonymous = true"), "{text}");
}
