//! What a reference in the data may name, and what not.

use super::parse_with;
use crate::error::Flaw;
use crate::recipe;
use crate::sample::ImageRef;

struct Case {
    source: &'static str,
    media_root: Option<&'static str>,
    allow_http: bool,
}

const REMOTE: Case =
    Case { source: "s3://bucket/data/x.jsonl", media_root: None, allow_http: false };
const LOCAL: Case = Case { source: "/data/x.jsonl", media_root: None, allow_http: false };
const HTTP: Case = Case { allow_http: true, ..REMOTE };

impl Case {
    /// The address that a reference means.
    fn resolve(&self, reference: &str) -> Result<String, Flaw> {
        let config = recipe::Dataset {
            source: vec![self.source.to_owned()],
            media_root: self.media_root.map(str::to_owned),
            allow_http: self.allow_http,
            ..recipe::Dataset::default()
        };
        let part = serde_json::json!({"type": "image", "image": reference});
        let line = serde_json::json!({"messages": [{"role": "user", "content": [part]}]});
        let sample = parse_with(&config, line.to_string())?;
        match &sample.images[0] {
            ImageRef::Stored(extent) => {
                assert_eq!(extent.range, None);
                Ok(extent.object.to_string())
            }
            ImageRef::Inline(bytes) => Ok(format!("{bytes:?}")),
        }
    }

    fn code(&self, reference: &str) -> &'static str {
        match self.resolve(reference) {
            Ok(found) => panic!("{reference} was taken for {found}"),
            Err(flaw) => flaw.code,
        }
    }
}

#[test]
fn relative_references_start_at_the_root_or_at_the_folder_of_the_source() {
    for (source, media_root, expected) in [
        ("s3://bucket/data/x.jsonl", None, "s3://bucket/data/img/a b.jpg"),
        ("s3://bucket/x.jsonl", None, "s3://bucket/img/a b.jpg"),
        ("/data/x.jsonl", None, "/data/img/a b.jpg"),
        ("/x.jsonl", None, "/img/a b.jpg"),
        ("https://host.example/d/x.jsonl?sig=1", None, "https://host.example/d/img/a%20b.jpg"),
        ("https://host.example/x.jsonl", None, "https://host.example/img/a%20b.jpg"),
        ("/data/x.jsonl", Some("s3://media"), "s3://media/img/a b.jpg"),
        ("/data/x.jsonl", Some("s3://media/"), "s3://media/img/a b.jpg"),
        ("/data/x.jsonl", Some("gs://media/deep/er/"), "gs://media/deep/er/img/a b.jpg"),
        ("s3://b/x.jsonl", Some("/images"), "/images/img/a b.jpg"),
        ("s3://b/x.jsonl", Some("/"), "/img/a b.jpg"),
        ("s3://b/x.jsonl", Some("az://box/p"), "az://box/p/img/a b.jpg"),
        (
            "s3://b/x.jsonl",
            Some("http://localhost:9000/p"),
            "http://localhost:9000/p/img/a%20b.jpg",
        ),
    ] {
        let case = Case { source, media_root, allow_http: false };
        for reference in ["img/a b.jpg", "./img//a b.jpg", "img/x/../a b.jpg"] {
            assert_eq!(case.resolve(reference).unwrap(), expected, "{reference} from {source}");
        }
    }
}

#[test]
fn a_relative_reference_is_a_name_and_not_a_url() {
    assert_eq!(REMOTE.resolve("50%25 off?.jpg#1").unwrap(), "s3://bucket/data/50%25 off?.jpg#1");
    let http = Case { media_root: Some("https://h.example/p/"), ..REMOTE };
    assert_eq!(http.resolve("50%25?.jpg#1").unwrap(), "https://h.example/p/50%2525%3F.jpg%231");
}

#[test]
fn no_relative_reference_leaves_the_root() {
    for media_root in [None, Some("s3://media/a/b"), Some("/images"), Some("https://h.example/a/b")]
    {
        let case = Case { media_root, ..REMOTE };
        for reference in ["..", "../a.jpg", "a/../../b.jpg", "./../a", "a/b/../../../../etc/passwd"]
        {
            assert_eq!(case.code(reference), "outside-root", "{reference} from {media_root:?}");
        }
        for reference in [".", "a/..", "a/", "./"] {
            assert_eq!(case.code(reference), "bad-address", "{reference} from {media_root:?}");
        }
    }
    assert_eq!(REMOTE.code("a\0b"), "bad-address");
}

#[test]
fn addresses_in_stores_are_taken_as_they_stand() {
    for (reference, expected) in [
        ("s3://other/k/a.jpg", "s3://other/k/a.jpg"),
        ("S3://other/k%20/a?b#c", "s3://other/k%20/a?b#c"),
        ("s3a://other/a.jpg", "s3://other/a.jpg"),
        ("gs://b/a.jpg", "gs://b/a.jpg"),
        ("gcs://b/a.jpg", "gs://b/a.jpg"),
        ("az://box/a.jpg", "az://box/a.jpg"),
        ("abfs://box/a.jpg", "az://box/a.jpg"),
        ("abfss://box/a.jpg", "az://box/a.jpg"),
    ] {
        for case in [REMOTE, LOCAL] {
            assert_eq!(case.resolve(reference).unwrap(), expected);
        }
    }
    for (reference, code) in [
        ("s3://", "bad-address"),
        ("s3://bucket", "bad-address"),
        ("s3://bucket/folder/", "bad-address"),
        ("s3:///key", "bad-address"),
        ("s3://key:secret@bucket/a", "bad-address"),
        ("abfss://box@account.dfs.core.windows.net/a", "bad-address"),
        ("ftp://host/a", "unsupported-scheme"),
        ("gopher://127.0.0.1/a", "unsupported-scheme"),
        ("jar+file:///etc/passwd", "unsupported-scheme"),
    ] {
        assert_eq!(REMOTE.code(reference), code, "{reference}");
    }
}

#[test]
fn local_files_are_read_only_if_the_source_is_local() {
    for (reference, expected) in [
        ("/images/a.jpg", "/images/a.jpg"),
        ("file:///images/a%20b.jpg", "/images/a b.jpg"),
        ("FILE://localhost/images/a.jpg", "/images/a.jpg"),
        ("file:/images/a.jpg", "/images/a.jpg"),
    ] {
        let local = Case { media_root: Some("/images"), ..LOCAL };
        assert_eq!(local.resolve(reference).unwrap(), expected);
        for media_root in [None, Some("/images")] {
            let remote = Case { media_root, ..REMOTE };
            assert_eq!(remote.code(reference), "local-file", "{reference}");
        }
    }
    for reference in ["file://host/a", "file:a", "file:///a%00b", "file:///a%ff", "file:///", "/"] {
        assert_eq!(LOCAL.code(reference), "bad-address", "{reference}");
    }
}

#[test]
fn no_local_path_leaves_the_root() {
    for (source, media_root, inside) in [
        ("/data/x.jsonl", None, "/data/a.jpg"),
        ("/data/x.jsonl", Some("/images/"), "/images/a.jpg"),
        ("/data/x.jsonl", Some("/data/../images"), "/data/../images/a.jpg"),
        ("/data/x.jsonl", Some("file:///im%20ages"), "/im ages/a.jpg"),
    ] {
        let case = Case { source, media_root, allow_http: false };
        let (folder, _) = inside.rsplit_once('/').unwrap();
        for spelling in ["{}/a.jpg", "{}/./a.jpg", "/{}//a.jpg", "{}/b/../a.jpg", "/x/..{}/a.jpg"] {
            let reference = spelling.replace("{}", folder);
            assert_eq!(case.resolve(&reference).unwrap(), inside, "{reference}");
        }
        for spelling in [
            "/etc/passwd",
            "file:///etc/passwd",
            "file:///%65tc/passwd",
            "file:{}/../etc/passwd",
            "{}/../etc/passwd",
            "{}/%2e%2e/../../etc/passwd",
            "file:{}/%2e%2e/etc/passwd",
            "file:{}/..%2f..%2fetc%2fpasswd",
            "{}.jpg",
            "{}-private/a.jpg",
            "/proc/self/environ",
            "/dev/zero",
            "//etc/passwd",
            "/..",
            "/../../etc/passwd",
        ] {
            let reference = spelling.replace("{}", folder);
            assert_eq!(case.code(&reference), "outside-root", "{reference} from {media_root:?}");
        }
    }
    // The recipe's word for any file there is.
    let any = Case { media_root: Some("/"), ..LOCAL };
    assert_eq!(any.resolve("/etc/passwd").unwrap(), "/etc/passwd");
    let remote = Case { media_root: Some("s3://media/"), ..LOCAL };
    assert_eq!(remote.code("/data/a.jpg"), "outside-root");
}

/// A bucket's name stands in the path of a request: none asks the store for anything but an object.
#[test]
fn no_name_of_a_bucket_leads_elsewhere() {
    for bucket in
        ["..", ".", "a?acl", "a#b", "a%2f..", "a\\b", "b:9000", "[::1]", "a b", "é", "a;b", "a&b"]
    {
        for scheme in ["s3", "gs", "az"] {
            let reference = format!("{scheme}://{bucket}/minio/admin");
            assert_eq!(REMOTE.code(&reference), "bad-address", "{reference}");
        }
    }
    for bucket in ["a.b-c_d", "UPPER", "$root", "127.0.0.1"] {
        REMOTE.resolve(&format!("az://{bucket}/a.jpg")).unwrap();
    }
}

#[test]
fn http_is_off_unless_it_is_allowed() {
    for case in [REMOTE, LOCAL] {
        for reference in ["http://example.com/a.jpg", "HTTPS://example.com/a.jpg"] {
            assert_eq!(case.code(reference), "http-off");
        }
    }
    for (reference, expected) in [
        ("http://example.com/a%20b.jpg?x=1#part", "http://example.com/a%20b.jpg?x=1"),
        ("https://Example.COM:443/a b.jpg", "https://example.com/a%20b.jpg"),
        ("https://example.com:8443", "https://example.com:8443/"),
        ("http://8.8.8.8/a", "http://8.8.8.8/a"),
        ("http://[2606:4700:4700::1111]:80/a", "http://[2606:4700:4700::1111]/a"),
        ("http://localhost.example.com/a", "http://localhost.example.com/a"),
    ] {
        assert_eq!(HTTP.resolve(reference).unwrap(), expected);
    }
    for reference in
        ["http://", "http:///a", "http://a b/", "http://user:pw@example.com/a", "http://[::1"]
    {
        let code = HTTP.code(reference);
        assert!(["bad-address", "private-address"].contains(&code), "{reference}: {code}");
    }
    let flaw = HTTP.resolve("http://10.0.0.1/a?token=secret").unwrap_err().to_string();
    assert!(flaw.contains("http://10.0.0.1/a") && !flaw.contains("secret"), "{flaw}");
}

#[test]
fn hosts_of_the_inside_are_refused_in_every_spelling() {
    for host in [
        "localhost",
        "LOCALHOST",
        "localhost.",
        "a.localhost",
        "metadata",
        "instance-data",
        "metadata.google.internal",
        "Metadata.Google.Internal.",
        "ip-10-0-0-1.ec2.internal",
        "kubernetes.default.svc",
        "x.svc.cluster.local",
        "printer.local",
        "router.lan",
        "nas.home.arpa",
        "intranet",
        "wiki.intranet",
        "localhost.localdomain",
        // loopback and metadata, dotted and in odd spellings
        "127.0.0.1",
        "127.1",
        "127.0.1",
        "2130706433",
        "0x7f000001",
        "0x7f.0.0.1",
        "0177.0.0.1",
        "0177.0.0.01",
        "017700000001",
        "127.0.0.1.",
        "169.254.169.254",
        "2852039166",
        "0xa9fea9fe",
        "0xA9.0xFE.0xA9.0xFE",
        "0251.0376.0251.0376",
        "169.254.43518",
        "0",
        "0.0.0.0",
        "%31%32%37.0.0.1",
        "１２７.0.0.1",
        "127。0。0。1",
        "①②⑦.0.0.1",
        // odd spellings of a public address have no purpose either
        "134744072",
        "0x08080808",
        "8.8.2056",
        "010.8.8.8",
        // IPv4 in IPv6
        "[::ffff:127.0.0.1]",
        "[::ffff:a9fe:a9fe]",
        "[0:0:0:0:0:ffff:7f00:1]",
        "[::127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
        "[::ffff:8.8.8.8]",
        // IPv6
        "[::1]",
        "[::]",
        "[fe80::1]",
        "[fd00:ec2::254]",
        "[fc00::1]",
        "[ff02::1]",
        "[2001:db8::1]",
        "[2001::1]",
    ] {
        for reference in [
            format!("http://{host}/a"),
            format!("https://{host}:8080/a"),
            format!("http://{host}?a"),
            format!("http:\\\\{host}\\a"),
        ] {
            match HTTP.resolve(&reference) {
                Err(flaw) => assert!(
                    ["private-address", "bad-address"].contains(&flaw.code),
                    "{reference}: {flaw}"
                ),
                // Backslashes make it a path, and so a name below the root.
                Ok(found) => assert!(found.starts_with("s3://bucket/data/http:\\"), "{found}"),
            }
        }
    }
}

#[test]
fn every_special_address_that_python_knows_is_refused() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/golden/dataset/addresses.txt");
    let golden = std::fs::read_to_string(path).unwrap();
    let (mut special, mut public) = (0, 0);
    for line in golden.lines() {
        let (address, kind) = line.split_once(' ').unwrap();
        let host = if address.contains(':') { format!("[{address}]") } else { address.to_owned() };
        let found = HTTP.resolve(&format!("http://{host}/a"));
        if kind == "special" {
            special += 1;
            assert_eq!(found.unwrap_err().code, "private-address", "{address}");
        } else if address.starts_with("2606:") || address.starts_with("2a00:") {
            found.unwrap();
        } else if host == address && !address.starts_with("192.0.0.") {
            // Python 3.11 counts part of 192.0.0.0/24 as public; IANA does not.
            public += 1;
            found.unwrap_or_else(|flaw| panic!("{address}: {flaw}"));
        }
    }
    assert!(special > 40 && public > 20, "{special} special, {public} public");
}

#[test]
fn inline_images_are_checked() {
    assert_eq!(REMOTE.resolve("data:image/png;base64,QUJD").unwrap(), r#"b"ABC""#);
    assert_eq!(REMOTE.resolve("data:image/png;base64, QU\r\nJD ").unwrap(), r#"b"ABC""#);
    assert_eq!(REMOTE.resolve("data:image/png;name=a;BASE64,QUI=").unwrap(), r#"b"AB""#);
    for reference in [
        "data:",
        "data:image/png;base64",
        "data:image/png;base64,",
        "data:image/png,abc",
        "data:image/png;base64,QU!D",
        "data:image/png;base64,QUJDR",
        "data:image/png;base64,====",
    ] {
        assert_eq!(REMOTE.code(reference), "bad-base64", "{reference}");
    }
}

#[test]
fn the_web_servers_that_the_recipe_names_are_those_of_shards_and_media_root() {
    let servers = |source: &str, root: Option<&str>| {
        let folder = tempfile::tempdir().unwrap();
        let config = recipe::Dataset {
            source: vec![source.to_owned()],
            media_root: root.map(str::to_owned),
            allow_http: true,
            ..super::config(&folder)
        };
        let data = super::open(&config, &super::Memory::new("{}\n")).unwrap();
        data.web_servers().map(str::to_owned).collect::<Vec<_>>()
    };
    let (store, web) = ("s3://bucket/data/x.jsonl", "https://host.example:444/d/x.jsonl");
    assert_eq!(servers(web, None), ["host.example:444"]);
    assert_eq!(servers(store, Some("http://media.example/")), ["media.example"]);
    assert_eq!(servers(web, Some("s3://images/")), ["host.example:444"]);
    assert!(servers(store, Some("gs://images/")).is_empty());
    assert!(servers("/data/x.jsonl", None).is_empty());
}
