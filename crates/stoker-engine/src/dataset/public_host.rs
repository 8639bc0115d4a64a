//! Which hosts an address in the data may name.
//!
//! Data are written by strangers and read inside a cluster: an image at
//! `http://169.254.169.254/…` would fetch the machine's credentials. Refused are addresses that are
//! not on the public internet, names that only make sense on the inside, and unusual spellings of
//! IPv4 numbers, which serve no purpose but to slip past such a list. A public name that *resolves*
//! to a private address can only be seen when it is resolved: in the fetch room.
//!
//! Source of the ranges: IANA's special-purpose address registries (RFC 6890 and its successors).

use std::net::{Ipv4Addr, Ipv6Addr};

use url::{Host, Url};

/// Name endings of the inside: cloud metadata, Kubernetes, mDNS, home and office networks.
const INSIDE: [&str; 9] = [
    "localhost",
    "internal",
    "local",
    "localdomain",
    "lan",
    "svc",
    "intranet",
    "home.arpa",
    "in-addr.arpa",
];

/// Why the host of `url`, which was written as `text`, is refused.
pub(super) fn refusal(url: &Url, text: &str) -> Option<&'static str> {
    match url.host() {
        None => Some("it has no host"),
        Some(Host::Ipv4(address)) if host_as_written(text) != address.to_string() => {
            Some("its host is an unusual spelling of a number")
        }
        Some(Host::Ipv4(address)) => (!is_public_v4(address)).then_some(NOT_PUBLIC),
        Some(Host::Ipv6(address)) => (!is_public_v6(address)).then_some(NOT_PUBLIC),
        Some(Host::Domain(name)) => inside(name).then_some("its host is a name of the inside"),
    }
}

const NOT_PUBLIC: &str = "its host is not on the public internet";

fn host_as_written(text: &str) -> &str {
    let rest = text.split_once("://").map_or(text, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#', '\\']).next().unwrap_or_default();
    authority.rsplit_once(':').map_or(authority, |(host, _)| host)
}

fn inside(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name);
    let ends_inside = |ending: &str| {
        name.strip_suffix(ending).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    !name.contains('.') || INSIDE.into_iter().any(ends_inside)
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [first, second, third, _] = address.octets();
    match first {
        // this network, private, loopback, and from 224 on multicast, reserved, broadcast
        0 | 10 | 127 | 224.. => false,
        // carrier-grade NAT
        100 => second & 0xc0 != 64,
        // link-local, where metadata services live
        169 => second != 254,
        // private
        172 => second & 0xf0 != 16,
        // private, protocol assignments, documentation, 6to4 relays
        192 => second != 168 && !matches!((second, third), (0, 0 | 2) | (88, 99)),
        // benchmarks, documentation
        198 => second & 0xfe != 18 && (second, third) != (51, 100),
        // documentation
        203 => (second, third) != (0, 113),
        _ => true,
    }
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let [first, second, ..] = address.segments();
    // Only 2000::/3 is handed out: this leaves out loopback, unspecified, link-local, unique local
    // and multicast addresses, and IPv4 in disguise (mapped, compatible, NAT64).
    let global = first & 0xe000 == 0x2000;
    // Teredo and other protocol assignments, documentation, 6to4 (IPv4 in disguise again).
    let special = match (first, second) {
        (0x2001, second) => second < 0x0200 || second == 0x0db8,
        (first, _) => first == 0x2002 || first == 0x3fff,
    };
    global && !special
}
