//! Which web addresses data may name: public ones.
//!
//! Data could otherwise make the cluster call its own metadata service or any machine behind the
//! firewall. Names are judged by what they resolve to, at the moment of connecting, so that a name
//! that changes its address between check and use gains nothing; redirects are judged like first
//! addresses. No proxy is used, as it would resolve names for itself.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect::Policy;
use url::Host;

/// Most redirects that are followed.
const REDIRECTS: usize = 5;

/// An address that data may not name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NotPublic(String);

impl NotPublic {
    pub(super) const HINT: &str =
        "data may only name public http(s) addresses; put the object into a store";
}

impl fmt::Display for NotPublic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is not a public address", self.0)
    }
}

impl std::error::Error for NotPublic {}

/// Checks what the resolver does not see: literal addresses, and anything but plain http(s).
pub(super) fn check(url: &Url) -> Result<(), NotPublic> {
    let host = url.host_str().unwrap_or_default();
    let refuse = || NotPublic(host.to_owned());
    let plain = matches!(url.scheme(), "http" | "https")
        && url.username().is_empty()
        && url.password().is_none();
    let public = match url.host() {
        Some(Host::Ipv4(address)) => is_public(address.into()),
        Some(Host::Ipv6(address)) => is_public(address.into()),
        Some(Host::Domain(_)) => true,
        None => false,
    };
    if plain && public { Ok(()) } else { Err(refuse()) }
}

/// Follows a few redirects, to public addresses.
pub(super) fn redirects() -> Policy {
    Policy::custom(|attempt| {
        if attempt.previous().len() > REDIRECTS {
            return attempt.error(io::Error::other("too many redirects"));
        }
        match check(attempt.url()) {
            Ok(()) => attempt.follow(),
            Err(refused) => attempt.error(refused),
        }
    })
}

/// Resolves names to their public addresses.
#[derive(Debug)]
pub(super) struct PublicNames;

impl Resolve for PublicNames {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let name = name.as_str().to_owned();
            let all = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let public: Vec<SocketAddr> = all.filter(|address| is_public(address.ip())).collect();
            if public.is_empty() {
                return Err(NotPublic(name).into());
            }
            Ok(Box::new(public.into_iter()) as Addrs)
        })
    }
}

fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

/// All but the special-purpose blocks of IANA's registry.
fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let special = match (a, b, c) {
        (0 | 10 | 127 | 224.., _, _)
        | (169, 254, _)
        | (192, 168, _)
        | (192, 0, 0 | 2)
        | (192, 88, 99)
        | (198, 51, 100)
        | (203, 0, 113) => true,
        (100, b, _) => b & 0xC0 == 64,
        (172, b, _) => b & 0xF0 == 16,
        (198, b, _) => b & 0xFE == 18,
        _ => false,
    };
    !special
}

/// Global unicast only (2000::/3), without its special blocks; embedded IPv4 addresses are judged
/// as such.
fn is_public_v6(address: Ipv6Addr) -> bool {
    let segments = address.segments();
    let embedded = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        is_public_v4(Ipv4Addr::new(a, b, c, d))
    };
    match segments {
        [0, 0, 0, 0, 0, 0xFFFF, high, low] | [0x64, 0xFF9B, 0, 0, 0, 0, high, low] => {
            embedded(high, low)
        }
        [0x2002, high, low, ..] => embedded(high, low),
        // 2001::/23 (Teredo, ORCHID and other protocols) and the documentation blocks
        [0x2001, 0..0x200 | 0xDB8, ..] | [0x3FFF, 0..0x1000, ..] => false,
        [first, ..] => first & 0xE000 == 0x2000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(url: &str) -> bool {
        check(&url.parse().unwrap()).is_ok()
    }

    #[test]
    fn private_loopback_and_link_local_addresses_are_refused_however_they_are_written() {
        for host in [
            "127.0.0.1",
            "127.1",
            "0x7f000001",
            "2130706433",
            "017700000001",
            "0.0.0.0",
            "10.1.2.3",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "198.18.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "[::1]",
            "[::]",
            "[::ffff:127.0.0.1]",
            "[::ffff:a9fe:a9fe]",
            "[::127.0.0.1]",
            "[64:ff9b::10.0.0.1]",
            "[2002:7f00:1::]",
            "[2001:0:1::1]",
            "[fc00::1]",
            "[fe80::1]",
            "[ff02::1]",
        ] {
            assert!(!allowed(&format!("http://{host}/x.jpg")), "{host}");
        }
    }

    #[test]
    fn public_addresses_and_names_are_allowed() {
        for host in [
            "1.1.1.1",
            "172.32.0.1",
            "100.128.0.1",
            "192.0.1.1",
            "198.20.0.1",
            "[2606:4700:4700::1111]",
            "[64:ff9b::1.1.1.1]",
            "[2002:101:101::]",
            "example.com",
        ] {
            assert!(allowed(&format!("https://{host}/x.jpg")), "{host}");
        }
        assert!(!allowed("ftp://example.com/x"));
        assert!(!allowed("https://user:password@example.com/x"));
    }
}
