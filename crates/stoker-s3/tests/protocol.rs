//! What an S3 client sees, with `object_store` as the client.

#![expect(clippy::unwrap_used, reason = "a test that can't go on has failed")]

use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::TryStreamExt;
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::path::Path;
use object_store::{
    Error, GetOptions, GetRange, ObjectStore, ObjectStoreExt, PutPayload, RetryConfig,
};
use stoker_s3::{Backend, Config, Profile, Server};

fn server(config: &Config) -> Server {
    Server::start(config, Backend::memory()).unwrap()
}

fn builder(server: &Server) -> AmazonS3Builder {
    // An error means that another test was first.
    drop(rustls::crypto::ring::default_provider().install_default());
    AmazonS3Builder::new()
        .with_endpoint(server.endpoint())
        .with_allow_http(true)
        .with_region("us-east-1")
        .with_bucket_name("bucket")
        .with_access_key_id("stoker")
        .with_secret_access_key("stoker-secret")
        .with_retry(RetryConfig { max_retries: 0, ..RetryConfig::default() })
}

fn client(server: &Server) -> AmazonS3 {
    builder(server).build().unwrap()
}

fn pattern(length: usize) -> Bytes {
    (0..length).map(|index| (index * 7 + index / 256) as u8).collect::<Vec<_>>().into()
}

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

#[test]
fn what_is_put_is_got_and_ranges_are_parts_of_it() {
    let server = server(&Config::default());
    let bytes = pattern(100_000);
    server.put("bucket", "a/b", bytes.clone()).unwrap();
    run(async {
        let client = client(&server);
        let path = Path::from("a/b");
        assert_eq!(client.get(&path).await.unwrap().bytes().await.unwrap(), bytes);
        let got = client.get_range(&path, 10..300).await.unwrap();
        assert_eq!(got, bytes.slice(10..300));
        let get = |range| {
            let options = GetOptions { range: Some(range), ..GetOptions::default() };
            let (client, path) = (&client, &path);
            async move { client.get_opts(path, options).await?.bytes().await }
        };
        assert_eq!(get(GetRange::Suffix(7)).await.unwrap(), bytes.slice(99_993..));
        assert_eq!(get(GetRange::Offset(99_000)).await.unwrap(), bytes.slice(99_000..));
        let outside = get(GetRange::Offset(100_000)).await.unwrap_err().to_string();
        assert!(outside.contains("416"), "{outside}");

        client.put(&"new".into(), PutPayload::from_bytes(bytes.slice(..9))).await.unwrap();
        assert_eq!(client.head(&"new".into()).await.unwrap().size, 9);
        client.delete(&"new".into()).await.unwrap();
        let missing = client.get(&"new".into()).await.unwrap_err();
        assert!(matches!(missing, Error::NotFound { .. }), "{missing}");
    });
    assert_eq!(server.stats().bytes, 100_000 + 290 + 7 + 1000);
}

#[test]
fn conditions_are_heard() {
    let server = server(&Config::default());
    server.put("bucket", "key", "one").unwrap();
    run(async {
        let client = client(&server);
        let path = Path::from("key");
        let etag = client.head(&path).await.unwrap().e_tag.unwrap();
        assert!(etag.starts_with('"') && etag.ends_with('"'), "{etag}");
        let get = |if_match: Option<&str>, if_none_match: Option<&str>| {
            let options = GetOptions {
                if_match: if_match.map(str::to_owned),
                if_none_match: if_none_match.map(str::to_owned),
                ..GetOptions::default()
            };
            let (client, path) = (&client, &path);
            async move { client.get_opts(path, options).await.map(drop) }
        };
        get(Some(&etag), None).await.unwrap();
        get(None, Some("\"other\"")).await.unwrap();
        let error = get(Some("\"other\""), None).await.unwrap_err();
        assert!(matches!(error, Error::Precondition { .. }), "{error}");
        let error = get(None, Some(&etag)).await.unwrap_err();
        assert!(matches!(error, Error::NotModified { .. }), "{error}");

        server.put("bucket", "key", "one").unwrap();
        assert_eq!(client.head(&path).await.unwrap().e_tag.unwrap(), etag, "same content");
        server.put("bucket", "key", "two").unwrap();
        assert_ne!(client.head(&path).await.unwrap().e_tag.unwrap(), etag, "other content");
    });
}

#[test]
fn only_the_right_secret_is_let_in_and_unsigned_requests_only_if_allowed() {
    let closed = server(&Config::default());
    let open = server(&Config { unsigned: true, ..Config::default() });
    for server in [&closed, &open] {
        server.put("bucket", "key", "x").unwrap();
    }
    run(async {
        let path = Path::from("key");
        let got = async |builder: AmazonS3Builder| builder.build().unwrap().get(&path).await;
        got(builder(&closed)).await.unwrap();
        let wrong = got(builder(&closed).with_secret_access_key("wrong")).await.unwrap_err();
        assert!(matches!(wrong, Error::PermissionDenied { .. }), "{wrong}");
        let unknown = got(builder(&closed).with_access_key_id("nobody")).await.unwrap_err();
        assert!(matches!(unknown, Error::PermissionDenied { .. }), "{unknown}");
        let unsigned = got(builder(&closed).with_skip_signature(true)).await.unwrap_err();
        assert!(matches!(unsigned, Error::PermissionDenied { .. }), "{unsigned}");
        got(builder(&open).with_skip_signature(true)).await.unwrap();
        got(builder(&open)).await.unwrap();
        let wrong = got(builder(&open).with_secret_access_key("wrong")).await.unwrap_err();
        assert!(matches!(wrong, Error::PermissionDenied { .. }), "{wrong}");
    });
}

#[test]
fn a_listing_of_several_pages_has_every_key_once() {
    let root = tempfile::tempdir().unwrap();
    let folder = Server::start(&Config::default(), Backend::folder(root.path())).unwrap();
    for server in [folder, server(&Config::default())] {
        let mut keys: Vec<String> =
            (0..1200).map(|number| format!("d{}/k {number} ü%+&.bin", number % 3)).collect();
        for key in &keys {
            server.put("bucket", key, "").unwrap();
        }
        keys.sort();
        run(async {
            let client = client(&server);
            let all: Vec<_> = client.list(None).try_collect().await.unwrap();
            let found: Vec<String> =
                all.into_iter().map(|meta| meta.location.to_string()).collect();
            assert_eq!(found, keys);
            let after = Path::from_url_path(&keys[500])
                .unwrap_or_else(|_| Path::parse(&keys[500]).unwrap());
            let rest: Vec<_> = client.list_with_offset(None, &after).try_collect().await.unwrap();
            assert_eq!(rest.len(), keys.iter().filter(|key| key.as_str() > after.as_ref()).count());
            let rolled = client.list_with_delimiter(None).await.unwrap();
            let prefixes: Vec<_> = rolled.common_prefixes.iter().map(AsRef::as_ref).collect();
            assert_eq!(prefixes, ["d0", "d1", "d2"]);
            let inside = client.list_with_delimiter(Some(&"d1".into())).await.unwrap();
            assert_eq!(inside.objects.len(), 400);
        });
    }
}

#[test]
fn a_folder_is_served_as_it_lies_there() {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(root.path().join("bucket/sub")).unwrap();
    let bytes = pattern(3_000_000);
    std::fs::write(root.path().join("bucket/sub/file.bin"), &bytes).unwrap();
    let server = Server::start(&Config::default(), Backend::folder(root.path())).unwrap();
    run(async {
        let client = client(&server);
        let path = Path::from("sub/file.bin");
        let got = client.get(&path).await.unwrap();
        let etag = got.meta.e_tag.clone();
        assert_eq!(got.bytes().await.unwrap(), bytes);
        let range = 1_500_000..2_900_001;
        let part = client.get_range(&path, range.start..range.end).await.unwrap();
        assert_eq!(part, bytes.slice(range.start as usize..range.end as usize));
        assert_eq!(client.head(&path).await.unwrap().e_tag, etag);
        let folder = client.get(&"sub".into()).await.unwrap_err();
        assert!(matches!(folder, Error::NotFound { .. }), "{folder}");
    });
}

#[test]
fn a_response_takes_as_long_as_its_limits_say() {
    let megabyte = pattern(1_000_000);
    let elapsed = |config: &Config, together: usize| {
        let server = server(config);
        server.put("bucket", "key", megabyte.clone()).unwrap();
        let client = client(&server);
        run(async {
            let begin = Instant::now();
            let get = async || client.get(&"key".into()).await.unwrap().bytes().await.unwrap();
            let all = futures::future::join_all((0..together).map(|_| get())).await;
            assert!(all.iter().all(|bytes| *bytes == megabyte));
            begin.elapsed()
        })
    };
    let slow = Config { rate: Some(5_000_000), ..Config::default() };
    let own = elapsed(&slow, 3);
    assert!(own >= Duration::from_millis(190), "each at 5 MB/s: {own:?}");
    let shared = Config { total_bandwidth: Some(10_000_000), ..Config::default() };
    let together = elapsed(&shared, 3);
    assert!(together >= Duration::from_millis(280), "3 MB at 10 MB/s: {together:?}");
    let cold = Config { profile: Profile::Cold, seed: 5, ..Config::default() };
    let first_byte = Profile::Cold.draw(5, "bucket/key", 0).first_byte;
    let latency = elapsed(&cold, 1);
    assert!(latency >= first_byte, "{latency:?} {first_byte:?}");
}

#[test]
fn closing_cuts_what_is_in_flight_within_a_second() {
    let server = server(&Config { rate: Some(10), ..Config::default() });
    server.put("bucket", "key", pattern(1000)).unwrap();
    let client = client(&server);
    run(async {
        let got = client.get(&"key".into()).await.unwrap();
        let begin = Instant::now();
        server.close();
        assert!(begin.elapsed() < Duration::from_secs(1), "{:?}", begin.elapsed());
        got.bytes().await.unwrap_err();
    });
}
