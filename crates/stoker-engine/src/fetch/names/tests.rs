//! Spreading over addresses, with a stand-in for the name server.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

fn v4(last: u8) -> IpAddr {
    Ipv4Addr::new(127, 0, 0, last).into()
}

/// How often each of the addresses is the first of so many connections.
fn drawn(known: &mut Known, connections: usize, now: Instant) -> Vec<(IpAddr, usize)> {
    let mut count = std::collections::BTreeMap::new();
    for _ in 0..connections {
        *count.entry(known.next(now)[0]).or_insert(0) += 1;
    }
    count.into_iter().collect()
}

#[test]
fn each_address_has_its_share_and_the_other_family_stands_by() {
    let (now, v6) = (Instant::now(), "::1".parse().unwrap());
    let mut known = Known::begun_anywhere();
    known.learn(vec![v4(2), v6, v4(3), v4(4)], now);
    assert_eq!(drawn(&mut known, 30, now), [(v4(2), 10), (v4(3), 10), (v4(4), 10)]);
    assert_eq!(known.next(now)[1..], [v6]);
    let mut known = Known::default();
    known.learn(vec![v6, v4(2)], now);
    assert_eq!(known.next(now), [v6, v4(2)], "the system's preference");
}

#[test]
fn addresses_of_several_answers_are_used_until_they_are_old() {
    let now = Instant::now();
    let mut known = Known::default();
    known.learn(vec![v4(2)], now);
    known.learn(vec![v4(3)], now + KEPT / 2);
    assert_eq!(drawn(&mut known, 4, now), [(v4(2), 2), (v4(3), 2)]);
    known.learn(vec![v4(4)], now + KEPT);
    assert_eq!(drawn(&mut known, 4, now), [(v4(3), 2), (v4(4), 2)]);
    known.learn((0..200).map(v4).collect(), now + KEPT);
    assert_eq!(known.addresses.len(), MOST);
}

#[test]
fn a_failed_address_is_left_aside_for_a_while_unless_there_is_no_other() {
    let now = Instant::now();
    let mut known = Known::default();
    known.learn(vec![v4(2), v4(3)], now);
    known.fail(v4(2), now);
    assert_eq!(drawn(&mut known, 4, now + ASIDE / 2), [(v4(3), 4)]);
    assert_eq!(drawn(&mut known, 4, now + ASIDE), [(v4(2), 2), (v4(3), 2)]);
    known.fail(v4(2), now);
    known.fail(v4(3), now);
    assert_eq!(drawn(&mut known, 4, now), [(v4(2), 2), (v4(3), 2)]);
}

fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.unwrap().block_on(future)
}

#[test]
fn a_name_is_asked_for_once_by_many_and_its_failure_takes_nothing_away() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let names = Names::asking(move |_| {
        let number = count.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            tokio::task::yield_now().await;
            if number == 1 { Ok(vec![v4(2)]) } else { Err(io::Error::other("no answer")) }
        })
    });
    run(async {
        names.next("store").await.unwrap_err();
        let many = (0..20).map(|_| names.next("store"));
        for found in futures::future::join_all(many).await {
            assert_eq!(found.unwrap(), [v4(2)]);
        }
        assert_eq!(asked.load(Ordering::SeqCst), 2);
        let later = Instant::now() + FRESH;
        assert!(names.is_due("store", later) && !names.is_due("store", later));
        names.ask("store").await.unwrap_err();
        assert_eq!(names.next("store").await.unwrap(), [v4(2)]);
    });
}

/// Servers at one port of several addresses, and how many connections each had.
fn servers(addresses: &[u8]) -> (u16, Vec<Arc<AtomicUsize>>) {
    let bind = |port| {
        let bind = |last: &u8| TcpListener::bind((v4(*last), port));
        addresses[1..].iter().map(bind).collect::<io::Result<Vec<_>>>()
    };
    let (first, others) = (0..20)
        .find_map(|_| {
            let first = TcpListener::bind((v4(addresses[0]), 0)).unwrap();
            let others = bind(first.local_addr().unwrap().port()).ok()?;
            Some((first, others))
        })
        .unwrap();
    let port = first.local_addr().unwrap().port();
    let counts = std::iter::once(first).chain(others).map(|listener| {
        let count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&count);
        let serve = move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                counted.fetch_add(1, Ordering::SeqCst);
                let _head = stream.read(&mut [0; 4096]).unwrap();
                let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
                stream.write_all(answer).unwrap();
            }
        };
        std::thread::Builder::new().spawn(serve).unwrap();
        count
    });
    (port, counts.collect())
}

#[test]
fn connections_are_spread_and_an_address_without_a_server_is_met_once() {
    let (port, counts) = servers(&[2, 3, 4]);
    // Nothing listens at the last one.
    let names = Names::asking(|name| {
        assert_eq!(name, "store.invalid");
        Box::pin(async { Ok([2, 3, 4, 5].map(v4).to_vec()) })
    });
    let client = super::super::client::spread(
        reqwest::Client::builder()
            .no_proxy()
            .tls_backend_preconfigured(super::super::client::tls(None).unwrap()),
        names,
    );
    let client = client.build().unwrap();
    let failed = run(async {
        let mut failed = 0;
        for _ in 0..31 {
            let answer = client.get(format!("http://store.invalid:{port}/")).send().await;
            failed += usize::from(answer.is_err());
        }
        failed
    });
    let counts: Vec<usize> = counts.iter().map(|count| count.load(Ordering::SeqCst)).collect();
    assert_eq!((failed, counts.iter().sum::<usize>()), (1, 30), "{counts:?}");
    assert!(counts.iter().all(|count| (8..=12).contains(count)), "{counts:?}");
}
