//! Where a bucket of S3 is: its endpoint, its region and the style of its address.
//!
//! Each of the three is said by the recipe, else by the environment, else by the profile in use.
//! Where nobody says a region, it is learned: a store that is asked in the wrong one tells the right
//! one, and everything after the first answer goes there.

use std::net::IpAddr;

use reqwest::Url;

use crate::error::FetchErrorKind;
use crate::recipe::{self, Addressing};

use super::credentials::{Settings, domain};
use super::environment::Environment;
use super::failure::Failure;

/// The region that AWS's tools take where nobody says one.
const REGION: &str = "us-east-1";

/// The region in use.
pub(super) fn region(
    config: &recipe::Fetch,
    environment: &Environment,
    profile: &Settings,
) -> String {
    let said = config.region.as_deref();
    let said = said.or_else(|| environment.first(&["AWS_REGION", "AWS_DEFAULT_REGION"]));
    said.or(profile.region.as_deref()).unwrap_or(REGION).to_owned()
}

/// Where a bucket is, and in which region requests are signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// What a key is appended to.
    pub(super) base: String,
    pub(super) region: String,
}

impl Place {
    /// Where a request that was sent to `address` is led: as this place, at another host. `None` where
    /// that is no other way to the same thing, or no host of whoever runs this one: it would be given
    /// our signature.
    pub(super) fn led(&self, address: &str, to: &str) -> Option<Self> {
        let (here, there) = (Url::parse(address).ok()?, Url::parse(address).ok()?.join(to).ok()?);
        let safe = here.scheme() == there.scheme() || there.scheme() == "https";
        let below = address.strip_prefix(&self.base)?;
        let base = there.as_str().strip_suffix(below)?.to_owned();
        let known = safe && is_kin(here.host_str()?, there.host_str()?);
        known.then(|| Self { base, region: self.region.clone() })
    }
}

/// Whether two hosts are one, or lie in one domain of at least two levels.
fn is_kin(one: &str, other: &str) -> bool {
    let is_address = |host: &str| host.ends_with(']') || host.parse::<IpAddr>().is_ok();
    let domain = one.split_once('.').map(|(_, domain)| domain);
    let domain = domain.filter(|domain| domain.contains('.') && !is_address(one));
    one == other
        || domain.is_some_and(|domain| {
            other.strip_suffix(domain).is_some_and(|host| host.ends_with('.'))
        })
}

/// A bucket, wherever it is.
#[derive(Clone, Debug)]
pub(super) struct Bucket {
    name: String,
    /// Of a store that is named; AWS's own is found by region.
    endpoint: Option<Url>,
    virtual_host: bool,
    /// Of AWS's own endpoints.
    host: &'static str,
}

impl Bucket {
    pub(super) fn new(
        config: &recipe::Fetch,
        environment: &Environment,
        profile: &Settings,
        name: &str,
    ) -> Result<Self, Failure> {
        let ignored = environment.is_set("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS");
        let named = environment.first(&["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"]);
        let named = named.or(profile.endpoint.as_deref()).filter(|_| !ignored);
        let endpoint = config.endpoint.as_deref().or(named).map(parse).transpose()?;
        let style = match config.addressing {
            Some(style) => Some(style == Addressing::VirtualHost),
            None if environment.is_set("AWS_VIRTUAL_HOSTED_STYLE_REQUEST") => Some(true),
            None => profile.virtual_host,
        };
        let virtual_host = style.unwrap_or_else(|| endpoint.is_none() && is_label(name));
        let dual = environment.is_set("AWS_USE_DUALSTACK_ENDPOINT");
        let host = match (environment.is_set("AWS_USE_FIPS_ENDPOINT"), dual) {
            (false, false) => "s3",
            (false, true) => "s3.dualstack",
            (true, false) => "s3-fips",
            (true, true) => "s3-fips.dualstack",
        };
        Ok(Self { name: name.to_owned(), endpoint, virtual_host, host })
    }

    /// Where it is if it is in that region.
    pub(super) fn place(&self, region: &str) -> Result<Place, Failure> {
        let own = || parse(&format!("https://{}.{region}.{}", self.host, domain(region)));
        let mut endpoint = self.endpoint.clone().map_or_else(own, Ok)?;
        let host = endpoint.host_str().unwrap_or_default();
        let base = if !self.virtual_host {
            format!("{}/{}", shown(&endpoint), self.name)
        } else if host.starts_with(&format!("{}.", self.name)) {
            // An endpoint may name the bucket itself.
            shown(&endpoint).to_owned()
        } else {
            let with = format!("{}.{host}", self.name);
            endpoint.set_host(Some(&with)).map_err(|_| {
                let reason = format!("bucket {:?} can't be part of a host's name", self.name);
                Failure::permanent(FetchErrorKind::Unconfigured, reason)
                    .hint("set fetch.addressing = \"path\"")
            })?;
            shown(&endpoint).to_owned()
        };
        Ok(Place { base, region: region.to_owned() })
    }
}

fn shown(url: &Url) -> &str {
    url.as_str().trim_end_matches('/')
}

fn parse(endpoint: &str) -> Result<Url, Failure> {
    let url = Url::parse(endpoint).ok();
    let url = url.filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    url.ok_or_else(|| {
        Failure::permanent(FetchErrorKind::Unconfigured, "the endpoint is not a URL")
            .hint("write fetch.endpoint (or AWS_ENDPOINT_URL) as http(s)://host:port")
    })
}

/// Whether a certificate for all names below a host covers this one: a dot begins a new level.
fn is_label(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    name.bytes().all(plain) && !name.starts_with('-') && !name.ends_with('-')
}

/// A region's name as stores tell it, if it is one.
pub(super) fn is_region(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    (1..=64).contains(&name.len()) && name.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bases(
        config: &recipe::Fetch,
        variables: &[(&str, &str)],
        profile: &Settings,
        name: &str,
    ) -> String {
        let environment = variables.iter().copied().collect();
        let region = region(config, &environment, profile);
        let bucket = Bucket::new(config, &environment, profile, name).unwrap_or_else(|_| panic!());
        bucket.place(&region).unwrap_or_else(|failure| panic!("{}", failure.reason)).base
    }

    #[test]
    fn a_bucket_is_where_recipe_environment_and_profile_say_in_this_order() {
        let none = recipe::Fetch::default();
        let with = |endpoint: &str, addressing| recipe::Fetch {
            endpoint: Some(endpoint.to_owned()),
            addressing,
            ..none.clone()
        };
        let (silent, virtual_host) = (Settings::default(), Some(Addressing::VirtualHost));
        let profile = Settings {
            region: Some("eu-south-2".to_owned()),
            endpoint: Some("https://profile.test/".to_owned()),
            virtual_host: Some(true),
        };
        let path = recipe::Fetch { addressing: Some(Addressing::Path), ..none.clone() };
        let url = ("AWS_ENDPOINT_URL", "http://all.test:1/");
        let dual = ("AWS_USE_DUALSTACK_ENDPOINT", "true");
        let fips = ("AWS_USE_FIPS_ENDPOINT", "true");
        for (config, variables, profile, name, base) in [
            (&none, &[][..], &silent, "b-1", "https://b-1.s3.us-east-1.amazonaws.com"),
            (&none, &[], &silent, "b.1", "https://s3.us-east-1.amazonaws.com/b.1"),
            (&path, &[], &silent, "b-1", "https://s3.us-east-1.amazonaws.com/b-1"),
            (
                &none,
                &[("AWS_REGION", "cn-north-1")],
                &silent,
                "b",
                "https://b.s3.cn-north-1.amazonaws.com.cn",
            ),
            (
                &none,
                &[("AWS_DEFAULT_REGION", "r"), dual],
                &silent,
                "b",
                "https://b.s3.dualstack.r.amazonaws.com",
            ),
            (
                &none,
                &[fips, dual],
                &silent,
                "b",
                "https://b.s3-fips.dualstack.us-east-1.amazonaws.com",
            ),
            (&none, &[], &profile, "b", "https://b.profile.test"),
            (
                &none,
                &[("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true")],
                &profile,
                "b",
                "https://b.s3.eu-south-2.amazonaws.com",
            ),
            (&none, &[url], &silent, "b", "http://all.test:1/b"),
            (
                &none,
                &[url, ("AWS_ENDPOINT_URL_S3", "http://s3.test")],
                &silent,
                "b",
                "http://s3.test/b",
            ),
            (
                &with("http://recipe.test:9000/", None),
                &[url],
                &profile,
                "b",
                "http://b.recipe.test:9000",
            ),
            (
                &with("http://recipe.test/below/", None),
                &[],
                &silent,
                "b",
                "http://recipe.test/below/b",
            ),
            (
                &with("https://recipe.test", virtual_host),
                &[],
                &silent,
                "b",
                "https://b.recipe.test",
            ),
            (
                &with("https://b.recipe.test", virtual_host),
                &[],
                &silent,
                "b",
                "https://b.recipe.test",
            ),
            (
                &with("https://b.recipe.test", None),
                &[("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "true")],
                &silent,
                "b",
                "https://b.recipe.test",
            ),
        ] {
            assert_eq!(bases(config, variables, profile, name), base, "{variables:?}");
        }
    }

    #[test]
    fn what_is_no_address_is_refused_with_what_to_write() {
        let config = recipe::Fetch::default();
        let environment = [("AWS_ENDPOINT_URL", "localhost:9000")].into_iter().collect();
        let failure = Bucket::new(&config, &environment, &Settings::default(), "b").map(drop);
        assert!(failure.is_err_and(|failure| failure.hint.is_some_and(|it| it.contains("http"))));
        let config = recipe::Fetch {
            endpoint: Some("http://10.0.0.1:9000".to_owned()),
            addressing: Some(Addressing::VirtualHost),
            ..config
        };
        let bucket = Bucket::new(&config, &Environment::default(), &Settings::default(), "b");
        let placed = bucket.unwrap_or_else(|_| panic!()).place("r");
        assert!(placed.is_err_and(|failure| failure.hint.is_some_and(|it| it.contains("path"))));
        assert!(is_region("eu-west-1") && !is_region("") && !is_region("a.b/c"));
    }

    #[test]
    fn a_request_is_led_to_hosts_of_the_same_store_and_to_the_same_path() {
        let at = |base: &str| Place { base: base.to_owned(), region: "eu-west-1".to_owned() };
        let bucket = "https://b.s3.us-east-1.amazonaws.com";
        let other = "https://b.s3.eu-west-1.amazonaws.com";
        let node = "https://s3.example.com/b";
        for (base, to, expected) in [
            (bucket, format!("{other}/a%20b/c?x=1"), None),
            (bucket, format!("{other}/a%20b/c"), None),
            (
                node,
                "https://node-7.example.com/b/a%20b/c".to_owned(),
                Some("https://node-7.example.com/b"),
            ),
            (
                node,
                "https://node-7.example.com:9000/b/a%20b/c".to_owned(),
                Some("https://node-7.example.com:9000/b"),
            ),
            (node, "/b/a%20b/c".to_owned(), Some(node)),
            (node, "https://example.com/b/a%20b/c".to_owned(), None),
            (node, "https://s3.example.com.evil.test/b/a%20b/c".to_owned(), None),
            (node, "https://evilexample.com/b/a%20b/c".to_owned(), None),
            (node, "https://node-7.example.com/b/other".to_owned(), None),
            (node, "http://node-7.example.com/b/a%20b/c".to_owned(), None),
            (node, "file:///b/a%20b/c".to_owned(), None),
            (
                "http://10.0.0.1:9000/b",
                "http://10.0.0.1:9001/b/a%20b/c".to_owned(),
                Some("http://10.0.0.1:9001/b"),
            ),
            (
                "http://10.0.0.1:9000/b",
                "https://10.0.0.1/b/a%20b/c".to_owned(),
                Some("https://10.0.0.1/b"),
            ),
            ("http://10.0.0.1:9000/b", "http://20.0.0.1:9000/b/a%20b/c".to_owned(), None),
            ("https://store.test/b", "https://other.test/b/a%20b/c".to_owned(), None),
        ] {
            let led = at(base).led(&format!("{base}/a%20b/c"), &to);
            assert_eq!(led.map(|place| place.base).as_deref(), expected, "{base} {to}");
        }
    }
}
