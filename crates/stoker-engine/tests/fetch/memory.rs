//! Slots, memory and the end of the thread.

use super::*;

#[test]
fn many_reads_share_the_allowed_number_of_requests() {
    let server = server(&Config { profile: Profile::Standard, ..Config::default() });
    for number in 0..40 {
        server.put("bucket", &format!("{number}"), pattern(1000 + number)).unwrap();
    }
    let settings = recipe::Fetch { concurrency: 8, ..settings(server.endpoint()) };
    let (fetcher, metrics) = fetcher(&settings);
    let reads: Vec<_> = (0..40)
        .map(|number| {
            let fetcher = fetcher.clone();
            let read =
                async move { fetcher.read(&whole(&format!("{number}")), |_| ready(Ok(()))).await };
            (number, read)
        })
        .map(|(number, read)| (number, fetcher.spawn(read)))
        .collect();
    for (number, read) in reads {
        assert_eq!(run(read).unwrap().unwrap(), pattern(1000 + number));
    }
    let peak = server.stats().peak_in_flight;
    assert!((2..=8).contains(&peak), "{peak}");
    assert_eq!(metrics.fetch.in_flight.peak(), 8);
}

#[test]
fn while_memory_is_waited_for_no_connection_and_no_slot_is_held() {
    let server = server(&Config::default());
    server.put("bucket", "large", pattern(5_000_000)).unwrap();
    server.put("bucket", "small", pattern(10)).unwrap();
    let settings = recipe::Fetch { concurrency: 1, ..settings(server.endpoint()) };
    let (fetcher, metrics) = fetcher(&settings);
    let (grant, granted) = tokio::sync::oneshot::channel::<()>();
    let (asked, was_asked) = mpsc::sync_channel(2);
    let waiting = fetcher.clone();
    let large = fetcher.spawn(async move {
        let granted = std::sync::Mutex::new(Some(granted));
        let admit = |size| {
            asked.send(size).unwrap();
            let granted = granted.lock().unwrap().take().expect("it is asked once");
            async move {
                granted.await.unwrap();
                Ok(())
            }
        };
        waiting.read(&whole("large"), admit).await
    });
    assert_eq!(was_asked.recv().unwrap(), 5_000_000);
    // The only slot is free, and little of the body has left the server's buffers.
    assert_eq!(fetcher.read_blocking(&whole("small")).unwrap(), pattern(10));
    assert_eq!(metrics.fetch.in_flight.get(), 0);
    grant.send(()).unwrap();
    assert_eq!(run(large).unwrap().unwrap(), pattern(5_000_000));
    assert_eq!((metrics.fetch.requests.get(), metrics.fetch.retries.get()), (3, 0));
}

#[test]
fn memory_that_is_refused_ends_the_read_with_that_error() {
    let server = server(&Config::default());
    server.put("bucket", "key", pattern(1000)).unwrap();
    let (fetcher, _) = fetcher(&settings(server.endpoint()));
    let refused = run(fetcher.read(&whole("key"), |size| {
        ready(if size > 999 { Err(Error::Bug("no room".into())) } else { Ok(()) })
    }));
    assert_eq!(refused.unwrap_err(), Error::Bug("no room".into()));
    let ranged = Extent { object: object("key"), range: Some(0..10) };
    let sizes = AtomicUsize::new(0);
    let read = fetcher.read(&ranged, |size| {
        sizes.fetch_add(size as usize, Ordering::Relaxed);
        ready(Ok(()))
    });
    assert_eq!(run(read).unwrap(), pattern(10));
    assert_eq!(sizes.into_inner(), 10);
}

#[test]
fn an_answer_of_untold_size_is_taken_up_to_a_limit_and_asks_for_memory_once() {
    let endpoint = raw(|_, head, stream| {
        let length = if head.contains("/large") { Fetcher::UNTOLD as usize + 1 } else { 1000 };
        // A client that has had enough hangs up.
        let head = "HTTP/1.1 200 OK\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n";
        let head = format!("{head}{length:x}\r\n");
        let answer = [head.as_bytes(), &pattern(length), b"\r\n0\r\n\r\n"].concat();
        drop(stream.write_all(&answer));
    });
    let (fetcher, metrics) = fetcher(&settings(endpoint));
    let asked = AtomicUsize::new(0);
    let admit = |size| {
        assert_eq!(size, Fetcher::UNTOLD);
        asked.fetch_add(1, Ordering::Relaxed);
        let mut late = true;
        std::future::poll_fn(move |context| {
            if std::mem::take(&mut late) {
                context.waker().wake_by_ref();
                return std::task::Poll::Pending;
            }
            std::task::Poll::Ready(Ok(()))
        })
    };
    assert_eq!(run(fetcher.read(&whole("small"), admit)).unwrap(), pattern(1000));
    assert_eq!((asked.into_inner(), metrics.fetch.requests.get()), (1, 2));
    let error = fetch_error(fetcher.read_blocking(&whole("large")));
    assert_eq!((error.kind, error.attempts), (FetchErrorKind::TooLarge, 1), "{error}");
}

/// A body that ends with its connection may be a part of one; who does not know ranges can't say.
#[test]
fn a_store_that_never_tells_how_long_an_object_is_can_not_be_read() {
    let endpoint = raw(|_, _, stream| {
        let head = "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n";
        drop(stream.write_all(&[head.as_bytes(), &pattern(1000)].concat()));
    });
    let config = recipe::Fetch { attempts: 2, ..settings(endpoint) };
    let (fetcher, _metrics) = fetcher(&config);
    let error = fetch_error(fetcher.read_blocking(&whole("object")));
    assert_eq!((error.kind, error.attempts), (FetchErrorKind::Transient, 2), "{error}");
    let told = "the store does not tell the length after 2 attempts; put the object into a store that does";
    assert!(error.to_string().contains(told), "{error}");
}

#[test]
fn dropping_the_last_clone_ends_the_thread_while_requests_stall() {
    let endpoint = raw(|_, _, stream| {
        // Held open, never answered.
        std::mem::forget(stream.try_clone().unwrap());
    });
    let (fetcher, metrics) = fetcher(&settings(endpoint.clone()));
    let stalled = Arc::new(fetcher.clone());
    let held = Arc::clone(&stalled);
    let thread = std::thread::Builder::new();
    let blocked = thread.spawn(move || held.read_blocking(&whole("key"))).unwrap();
    while metrics.fetch.in_flight.get() == 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    let begin = Instant::now();
    fetcher.close();
    assert!(begin.elapsed() < Duration::from_secs(1), "{:?}", begin.elapsed());
    assert_eq!(blocked.join().unwrap().unwrap_err(), Error::Stopped);
    assert_eq!(metrics.fetch.in_flight.get(), 0);
    assert_eq!(fetcher.read_blocking(&whole("key")).unwrap_err(), Error::Stopped);
    assert!(run(fetcher.spawn(async {})).unwrap_err().is_cancelled());
    drop(stalled);

    // Without `close`: the read is dropped by whoever awaits it, the fetcher in an async context.
    let (fetcher, metrics) = self::fetcher(&settings(endpoint));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let extent = whole("key");
        let read = fetcher.read(&extent, |_| ready(Ok(())));
        let late = tokio::time::timeout(Duration::from_millis(100), read).await;
        assert!(late.is_err());
        let begin = Instant::now();
        drop(fetcher);
        assert!(begin.elapsed() < Duration::from_secs(1), "{:?}", begin.elapsed());
    });
    assert_eq!(metrics.fetch.in_flight.get(), 0);
}

#[test]
fn the_last_clone_may_be_dropped_on_the_fetch_thread() {
    let (fetcher, _) = fetcher(&recipe::Fetch::default());
    let inner = fetcher.clone();
    let (go, gone) = tokio::sync::oneshot::channel::<()>();
    let task = fetcher.spawn(async move {
        gone.await.unwrap();
        drop(inner);
    });
    drop(fetcher);
    go.send(()).unwrap();
    // Done, or cancelled by the end of the runtime that it brought about: but no hang, no abort.
    drop(run(task));
}

#[test]
fn a_blocking_read_on_the_fetch_thread_is_an_error_not_a_deadlock() {
    let (fetcher, _) = fetcher(&recipe::Fetch::default());
    let inner = fetcher.clone();
    let task = fetcher.spawn(async move { inner.read_blocking(&whole("key")) });
    assert!(matches!(run(task).unwrap(), Err(Error::Bug(_))));
}
