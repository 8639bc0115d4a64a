use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;

use super::*;

fn written(recording: &Recording) -> Value {
    let mut file = Vec::new();
    recording.write("stoker", &mut file).unwrap();
    serde_json::from_slice(&file).unwrap()
}

fn events<'a>(trace: &'a Value, kind: &str) -> Vec<&'a Value> {
    let all = trace["traceEvents"].as_array().unwrap();
    all.iter().filter(|event| event["ph"] == kind).collect()
}

/// Name, thread, begin and end of each span, in nanoseconds.
fn spans(trace: &Value) -> Vec<(String, u64, i64, i64)> {
    let nanos = |value: &Value| (value.as_f64().unwrap() * 1000.0).round() as i64;
    let span = |event: &&Value| {
        let (begin, long) = (nanos(&event["ts"]), nanos(&event["dur"]));
        let name = event["name"].as_str().unwrap().to_owned();
        (name, event["tid"].as_u64().unwrap(), begin, begin + long)
    };
    events(trace, "X").iter().map(span).collect()
}

fn step(tracer: &Tracer, sequence: u64) {
    let now = Instant::now();
    tracer.step(sequence, None, now, now);
}

#[test]
fn off_it_records_nothing_and_asks_for_nothing() {
    let tracer = Tracer::default();
    drop(tracer.span("never", || panic!("nobody wants to know")));
    tracer.count(Count::Ready, || panic!("nobody wants to know"));
    tracer.batch(1, Stage::Bytes);
    tracer.since("never", Stopwatch::start());
    step(&tracer, 1);
    assert!(tracer.take().is_none());
}

#[test]
fn it_ends_by_itself_after_the_last_step_and_another_may_begin_once_it_was_taken() {
    let tracer = Tracer::default();
    assert!(tracer.start(Some(2)));
    assert!(!tracer.start(None));
    step(&tracer, 10);
    assert!(tracer.is_on());
    step(&tracer, 11);
    assert!(!tracer.is_on());
    step(&tracer, 12);
    drop(tracer.span("late", Vec::new));
    assert!(!tracer.start(None), "it was not taken yet");
    let recording = tracer.take().unwrap();
    assert_eq!((recording.steps(), recording.dropped()), (2, 0));
    let blocked = spans(&written(&recording)).len();
    assert_eq!(blocked, 2);
    assert!(tracer.start(None));
    tracer.finish();
    assert_eq!(tracer.take().unwrap().steps(), 0);
}

#[test]
fn who_takes_it_waits_for_its_end() {
    let tracer = Tracer::default();
    assert!(tracer.start(None));
    std::thread::scope(|scope| {
        let taker = std::thread::Builder::new().spawn_scoped(scope, || tracer.take());
        step(&tracer, 1);
        tracer.finish();
        assert_eq!(taker.unwrap().join().unwrap().unwrap().steps(), 1);
    });
}

#[test]
fn memory_is_bounded_and_what_is_left_out_is_counted_and_told() {
    let tracer = Tracer::default();
    let most = 20 << 10;
    assert!(tracer.start_within(None, most));
    tracer.batch(1, Stage::Bytes);
    for number in 0..1000_u64 {
        drop(tracer.span("work", || vec![("object", format!("{number:0100}").into())]));
    }
    std::thread::sleep(Duration::from_millis(1));
    tracer.finish();
    let recording = tracer.take().unwrap();
    assert!(recording.bytes <= most);
    let (kept, dropped) = (recording.events.len() as u64, recording.dropped());
    assert!(kept > 50 && kept + dropped == 1001, "{kept} and {dropped}");
    let trace = written(&recording);
    let spans = events(&trace, "X");
    let works = spans.iter().filter(|event| event["name"] == "work");
    let objects: Vec<_> = works.map(|event| &event["args"]["object"]).collect();
    let first: Vec<_> =
        (1..kept).map(|number| Value::from(format!("{:0100}", number - 1))).collect();
    assert_eq!(objects, first.iter().collect::<Vec<_>>());
    assert_eq!(trace["stoker"]["dropped"], dropped);
    let marks = events(&trace, "i");
    let full = marks[0]["ts"].as_f64().unwrap();
    let life = spans.iter().find(|event| event["name"] == "batch 1").unwrap();
    let end = life["ts"].as_f64().unwrap() + life["dur"].as_f64().unwrap();
    assert!(marks.len() == 1 && (end - full).abs() < 0.01, "known until then: {end} and {full}");
    assert!(recording.full.unwrap().elapsed() >= Duration::from_millis(1));
}

/// What an image, its request and its batch look like, with names that would end a string.
fn a_batch(tracer: &Tracer, object: &str) {
    tracer.batch(7, Stage::Bytes);
    let begin = Instant::now();
    std::thread::sleep(Duration::from_micros(50));
    tracer.request(begin, vec![("batch", 7_u64.into()), ("object", object.to_owned().into())]);
    tracer.count(Count::Requests, || 3);
    for stage in [Stage::Unwanted, Stage::Memory, Stage::Fill] {
        tracer.batch(7, stage);
    }
    {
        let _task = tracer.span("filling", || vec![("batch", 7_u64.into())]);
        let mut image =
            tracer.span("image", || vec![("image", format!("image 1: {object}").into())]);
        let decoding = Stopwatch::start();
        std::thread::sleep(Duration::from_micros(50));
        tracer.since("decode", decoding);
        image.tell("bytes", || 5_u64.into());
    }
    tracer.batch(7, Stage::Ready);
}

#[test]
fn arrows_lead_from_a_request_to_its_image_and_on_to_its_batch() {
    let tracer = Tracer::default();
    assert!(tracer.start(None));
    a_batch(&tracer, "s3://b/\"}]\u{1}<");
    tracer.finish();
    let trace = written(&tracer.take().unwrap());
    let (from, to) = (events(&trace, "s"), events(&trace, "f"));
    let spans = spans(&trace);
    let around = |event: &Value| {
        let at = (event["ts"].as_f64().unwrap() * 1000.0).round() as i64;
        let here = |(_, thread, begin, end): &&(String, u64, i64, i64)| {
            event["tid"] == *thread && *begin <= at && (at < *end || begin == end)
        };
        let inner = spans.iter().filter(here).min_by_key(|span| span.3 - span.2);
        inner.map(|span| span.0.clone()).unwrap_or_default()
    };
    let ends: Vec<_> = from.iter().zip(&to).map(|(from, to)| (around(from), around(to))).collect();
    let (first, second) = (ends[0].clone(), ends[1].clone());
    assert_eq!(first, ("request".to_owned(), "image".to_owned()));
    assert!(second.0 == "image" || second.0 == "filling" || second.0 == "decode", "{second:?}");
    assert_eq!((second.1.as_str(), ends.len()), ("ready", 2));
    assert_eq!(events(&trace, "C")[0]["args"]["value"], 3);
    let request = events(&trace, "X").into_iter().find(|event| event["name"] == "request").unwrap();
    assert_eq!(request["args"]["object"], "s3://b/\"}]\u{1}<");
}

#[test]
fn an_arrow_leads_from_an_image_whose_worker_is_slower_than_the_news() {
    let tracer = Tracer::default();
    assert!(tracer.start(None));
    tracer.batch(7, Stage::Fill);
    let task = tracer.span("filling", || vec![("batch", 7_u64.into())]);
    let image = tracer.span("image", || vec![("image", String::from("image 1, inline").into())]);
    tracer.batch(7, Stage::Ready);
    std::thread::sleep(Duration::from_millis(1));
    drop((image, task));
    tracer.finish();
    let trace = written(&tracer.take().unwrap());
    let at = |kind| events(&trace, kind)[0]["ts"].as_f64().unwrap();
    assert!(at("s") <= at("f"), "{} and {}", at("s"), at("f"));
}

#[test]
fn an_image_has_its_arrow_though_the_task_around_it_outlives_the_recording() {
    let tracer = Tracer::default();
    assert!(tracer.start(None));
    let task = tracer.span("filling", || vec![("batch", 7_u64.into())]);
    drop(tracer.span("image", || vec![("image", String::from("image 1, inline").into())]));
    tracer.batch(7, Stage::Ready);
    tracer.finish();
    drop(task);
    let trace = written(&tracer.take().unwrap());
    assert_eq!((events(&trace, "s").len(), events(&trace, "f").len()), (1, 1));
    assert!(tracer.start(None));
    drop(tracer.span("image", || vec![("image", String::from("image 2, inline").into())]));
    tracer.finish();
    let trace = written(&tracer.take().unwrap());
    assert_eq!(events(&trace, "X")[0]["args"].get("batch"), None, "the task is over");
}

#[test]
fn no_arrow_is_guessed_where_several_parts_of_an_object_were_read() {
    let tracer = Tracer::default();
    assert!(tracer.start(None));
    let told = |range: &str| {
        let object = String::from("s3://b/shard.tar").into();
        vec![("batch", 7_u64.into()), ("object", object), ("range", range.to_owned().into())]
    };
    tracer.request(Instant::now(), told("0-99"));
    tracer.request(Instant::now(), told("100-199"));
    fill_one(&tracer, "s3://b/shard.tar");
    tracer.finish();
    assert_eq!(events(&written(&tracer.take().unwrap()), "s").len(), 0);
}

#[test]
fn arrows_of_two_files_have_no_number_in_common() {
    let ids = [0, 1].map(|_| {
        let tracer = Tracer::default();
        assert!(tracer.start(None));
        a_batch(&tracer, "s3://b/1.jpg");
        tracer.finish();
        let trace = written(&tracer.take().unwrap());
        let ids: Vec<_> = events(&trace, "s").iter().map(|event| event["id"].clone()).collect();
        // 64 bits in hexadecimal: what viewers read of a text.
        let number = |id: &Value| u64::from_str_radix(&id.as_str().unwrap()[2..], 16).unwrap();
        ids.iter().map(number).collect::<Vec<_>>()
    });
    assert!(ids[0].len() == 2 && ids[0].iter().all(|id| !ids[1].contains(id)), "{ids:x?}");
}

#[test]
fn two_loaders_of_a_process_share_only_its_threads() {
    let [one, other] = [0, 1].map(|_| {
        let tracer = Tracer::default();
        assert!(tracer.start(None));
        a_batch(&tracer, "s3://b/1.jpg");
        step(&tracer, 7);
        tracer.finish();
        let trace = written(&tracer.take().unwrap());
        let threads: BTreeSet<_> = spans(&trace).iter().map(|span| span.1).collect();
        let count = events(&trace, "C")[0];
        (threads, (count["name"].clone(), count["id"].clone()))
    });
    let Track::Thread(this) = this_thread() else { panic!("it is one") };
    let shared: Vec<_> = one.0.intersection(&other.0).copied().collect();
    assert_eq!((shared, one.0.len(), other.0.len()), (vec![u64::from(this)], 4, 4));
    assert!(one.0.iter().chain(&other.0).all(|thread| *thread < 1 << 31));
    assert_ne!(one.1, other.1);
}

#[test]
fn an_arrow_leads_from_the_rest_of_an_object_that_stopped_coming() {
    let tracer = Tracer::default();
    assert!(tracer.start(None));
    let told = || vec![("batch", 7_u64.into()), ("object", String::from("s3://b/1.jpg").into())];
    tracer.request(Instant::now(), told());
    let range = ("range", String::from("100-199").into());
    tracer.request(Instant::now(), told().into_iter().chain([range]).collect());
    fill_one(&tracer, "s3://b/1.jpg");
    tracer.finish();
    assert_eq!(events(&written(&tracer.take().unwrap()), "s").len(), 1);
}

/// A task that fills batch 7 with the image of an object.
fn fill_one(tracer: &Tracer, object: &str) {
    let task = tracer.span("filling", || vec![("batch", 7_u64.into())]);
    drop(tracer.span("image", || vec![("image", format!("image 1: {object}").into())]));
    drop(task);
}

#[test]
fn batches_that_were_begun_before_or_go_on_after_are_in_it_for_the_time_of_it() {
    let tracer = Tracer::default();
    assert!(tracer.start(None));
    tracer.batch(1, Stage::Fill);
    tracer.batch(2, Stage::Bytes);
    tracer.batch(1, Stage::Ready);
    tracer.batch(1, Stage::Gone);
    tracer.batch(1, Stage::Bytes);
    tracer.batch(3, Stage::Gone);
    tracer.finish();
    let recording = tracer.take().unwrap();
    let spans = spans(&written(&recording));
    let lives: Vec<_> = spans.iter().filter(|span| span.0.starts_with("batch ")).collect();
    let names: Vec<_> = lives.iter().map(|span| span.0.as_str()).collect();
    assert_eq!(names, ["batch 1", "batch 3", "batch 1", "batch 2"]);
    let parts = |name: &str| spans.iter().filter(|span| span.0 == name).count();
    // Of batch 1 the memory was waited for until it was first seen; batch 3 was ready.
    assert_eq!([parts("wait for memory"), parts("fill"), parts("ready")], [1, 1, 2]);
    assert_eq!(parts("bring in and measure"), 2);
    let (begin, end) = (lives[0].2, lives[3].3);
    assert!(spans.iter().all(|span| begin <= span.2 && span.3 <= end), "{spans:?}");
}

#[test]
fn spans_of_a_thread_hold_each_other_or_are_apart() {
    let tracer = Tracer::default();
    assert!(tracer.start(None));
    std::thread::scope(|scope| {
        for number in 0..4 {
            let tracer = &tracer;
            let run = move || (0..20).for_each(|_| a_batch(tracer, "s3://b/k"));
            let thread = std::thread::Builder::new().name(format!("worker {number}"));
            thread.spawn_scoped(scope, run).unwrap();
        }
    });
    tracer.finish();
    let trace = written(&tracer.take().unwrap());
    let spans = spans(&trace);
    assert!(spans.len() > 400);
    for (number, one) in spans.iter().enumerate() {
        for other in spans[number + 1..].iter().filter(|other| other.1 == one.1) {
            let apart = one.3 <= other.2 || other.3 <= one.2;
            let within =
                one.2 <= other.2 && other.3 <= one.3 || other.2 <= one.2 && one.3 <= other.3;
            assert!(apart || within, "{one:?} and {other:?}");
        }
    }
    let names = events(&trace, "M");
    let workers = names.iter().filter(|event| {
        event["args"]["name"].as_str().is_some_and(|name| name.starts_with("worker "))
    });
    assert_eq!(workers.count(), 4);
}
