//! What samples of WebDataset shards mean, and that compression changes nothing about it.

use serde_json::{Value, json};

use super::forms::short;
use super::tar::{URI, archive, dataset, entry, layout, settings};
use super::{Bucket, files, gzip, open, zstd};
use crate::error::Flaw;
use crate::recipe::{self, Fields};
use crate::sample::{ImageRef, Sample};

/// A chat that mentions an image.
fn chat(answer: &str) -> Vec<u8> {
    json!({"messages": [
        {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What?"}]},
        {"role": "assistant", "content": answer}]})
    .to_string()
    .into_bytes()
}

fn parsed(fields: Fields, members: &[(&str, &[u8])]) -> Vec<Result<Sample, Flaw>> {
    let folder = tempfile::tempdir().unwrap();
    let store = Bucket::new([("x.tar", archive(members))]);
    let data = open(&recipe::Dataset { fields, ..settings(&folder) }, &store).unwrap();
    (0..data.rows()).map(|row| store.sample(&data, row)).collect()
}

/// What the one sample says that these members are, or the code of its flaw.
fn meaning_with(fields: Fields, members: &[(&str, &[u8])]) -> String {
    let mut samples = parsed(fields, members);
    assert_eq!(samples.len(), 1);
    samples.pop().unwrap().map_or_else(|flaw| flaw.code.to_owned(), |sample| short(&sample))
}

fn meaning(members: &[(&str, &[u8])]) -> String {
    meaning_with(Fields::default(), members)
}

#[test]
fn a_sample_is_its_json_with_its_images() {
    let chat = chat("A cup.");
    let expected = "user: [JPG]|What? / assistant= A cup.";
    assert_eq!(meaning(&[("0.jpg", b"JPG"), ("0.json", &chat)]), expected);
    assert_eq!(meaning(&[("0.json", &chat), ("0.cls", b"7"), ("0.PNG", b"JPG")]), expected);
    let text = br#"{"messages": [{"role": "user", "content": "x"}]}"#;
    assert_eq!(meaning(&[("0.json", text)]), "user= x", "a sample of text alone");
    assert_eq!(meaning(&[("0.json", &chat)]), "image-count", "an image is missing");
}

#[test]
fn captions_are_answers_without_a_question() {
    for name in ["0.txt", "0.caption"] {
        let expected = "user: [JPG] / assistant= A cup.\n";
        assert_eq!(meaning(&[("0.jpg", b"JPG"), (name, b"A cup.\n")]), expected);
        let with_metadata: [(&str, &[u8]); 3] =
            [("0.jpg", b"JPG"), ("0.json", br#"{"width": 3, "url": "x"}"#), (name, b"A cup.\n")];
        assert_eq!(meaning(&with_metadata), expected);
        assert_eq!(meaning(&[(name, b"A cup.")]), "missing-image");
        assert_eq!(meaning(&[("0.jpg", b"JPG"), (name, b"")]), "no-conversation");
        assert_eq!(meaning(&[("0.jpg", b"JPG"), (name, b"\xff")]), "invalid-utf8");
    }
    let in_json = [("0.jpg", b"JPG".as_slice()), ("0.json", br#"{"caption": "A cup."}"#)];
    assert_eq!(meaning(&in_json), "user: [JPG] / assistant= A cup.");
}

/// A chat whose images are these references.
fn listing(images: &Value) -> Vec<u8> {
    let marks = "<image>".repeat(images.as_array().map_or(1, Vec::len));
    let turns = [json!({"from": "human", "value": marks}), json!({"from": "gpt", "value": "A"})];
    json!({"conversations": turns, "image": images}).to_string().into_bytes()
}

#[test]
fn references_name_members_or_stand_for_them_in_order() {
    let one = [("k.jpg", b"A".as_slice())];
    let ten: Vec<(String, Vec<u8>)> =
        (0..11).map(|number| (format!("k.{number}.jpg"), format!("{number}").into())).collect();
    let mut ten: Vec<(&str, &[u8])> =
        ten.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice())).collect();
    ten.sort_unstable();
    let images = |members: &[(&str, &[u8])], images: Value| {
        let json = listing(&images);
        let mut members = members.to_vec();
        members.push(("k.json", &json));
        let found = meaning(&members);
        let asked = found.strip_prefix("user: ").and_then(|it| it.strip_suffix(" / assistant= A"));
        asked.unwrap_or(&found).to_owned()
    };
    for reference in ["k.jpg", "jpg", "K.JPG", "coco/train/0001.jpg", "s3://elsewhere/k2.png"] {
        assert_eq!(images(&one, json!(reference)), "[A]", "{reference}");
    }
    assert_eq!(images(&one, json!(["a.jpg", "b.jpg"])), "image-count");
    assert_eq!(images(&ten, json!(["10.jpg", "k.2.jpg"])), "[10]|[2]", "by name, some of them");
    let all: Vec<String> = (0..11).map(|number| format!("images/{number:09}.png")).collect();
    assert_eq!(
        images(&ten, json!(all)),
        "[0]|[1]|[2]|[3]|[4]|[5]|[6]|[7]|[8]|[9]|[10]",
        "by place, all of them"
    );
    assert_eq!(images(&ten, json!(["x.jpg"])), "image-count");
    assert_eq!(images(&ten, json!(["0.jpg", "x.jpg"])), "bad-image", "by name, then not");
    assert_eq!(images(&ten, json!(["0.jpg", "0.jpg"])), "bad-image", "the same twice");
}

#[test]
fn parts_of_messages_name_members_too() {
    let messages = |first: &str, second: &str| {
        let part = |image: &str| json!({"type": "image", "image": image});
        let content = json!([part(first), {"type": "text", "text": "or"}, part(second)]);
        json!({"messages": [{"role": "user", "content": content}]}).to_string().into_bytes()
    };
    let images: [(&str, &[u8]); 2] = [("k.left.jpg", b"L"), ("k.right.jpg", b"R")];
    let of = |json: &[u8]| meaning(&[images[0], images[1], ("k.json", json)]);
    assert_eq!(of(&messages("right.jpg", "left.jpg")), "user: [R]|or|[L]");
    assert_eq!(of(&messages("a/1.png", "a/2.png")), "user: [L]|or|[R]");
    assert_eq!(of(&messages("right.jpg", "a/2.png")), "bad-image");
    let one = json!({"messages": [{"role": "user", "content": [{"type": "image", "image": "x"}]}]});
    assert_eq!(of(one.to_string().as_bytes()), "image-count", "no image is left out in silence");
}

#[test]
fn fields_choose_members_by_extension() {
    let text = |name: &str| Some(name.to_owned());
    let fields = |messages, question, answer, images: &[&str]| Fields {
        messages,
        question,
        answer,
        images: (!images.is_empty()).then(|| images.iter().map(ToString::to_string).collect()),
    };
    let list = br#"[{"role": "user", "content": "<image><image>"}]"#;
    let members: [(&str, &[u8]); 5] = [
        ("k.a.jpg", b"A"),
        ("k.b.jpg", b"B"),
        ("k.chat.json", list),
        ("k.json", b"{\"q\": \"Who?\"}"),
        ("k.label", b"me"),
    ];
    let chosen = fields(text("chat.json"), None, None, &["b.jpg", "a.jpg"]);
    assert_eq!(meaning_with(chosen, &members), "user: [B]|[A]");
    let asked = fields(None, text("q"), text("label"), &["b.jpg"]);
    assert_eq!(meaning_with(asked, &members), "user: [B]|Who? / assistant= me");
    let caption = fields(None, None, text("label"), &[]);
    assert_eq!(meaning_with(caption, &members), "user: [A]|[B] / assistant= me");
    let absent = fields(text("talk"), None, None, &[]);
    assert_eq!(meaning_with(absent, &members), "no-conversation");
}

#[test]
fn a_sample_that_lacks_or_repeats_a_member_is_a_flaw_and_its_neighbours_are_fine() {
    let chat = chat("A");
    let members: [(&str, &[u8]); 8] = [
        ("0.jpg", b"JPG"),
        ("1.jpg", b"JPG"),
        ("1.json", &chat),
        ("2.json", b"{\"messages\": NaN}"),
        ("3.jpg", b"JPG"),
        ("3.jpg", b"JPG"),
        ("4.mp4", b"MP4"),
        ("4.json", &chat),
    ];
    let samples = parsed(Fields::default(), &members);
    let codes = samples.iter().map(|sample| sample.as_ref().map_or_else(|flaw| flaw.code, |_| ""));
    let expected = ["missing-member", "", "not-json", "duplicate-member", "unsupported"];
    assert_eq!(codes.collect::<Vec<_>>(), expected);
    let lacking = samples[0].as_ref().unwrap_err().to_string();
    assert!(lacking.contains("has no json, txt or caption; its members are `jpg`"), "{lacking}");
}

#[test]
fn large_images_are_read_by_themselves() {
    let (chat, large) = (chat("A"), vec![b'x'; 9 << 20]);
    let samples = parsed(Fields::default(), &[("0.jpg", &large), ("0.json", &chat)]);
    let sample = samples[0].as_ref().unwrap();
    let [ImageRef::Stored(extent)] = sample.images.as_slice() else { panic!("{sample:?}") };
    assert_eq!(
        (extent.object.to_string().as_str(), extent.range.clone()),
        (URI, Some(512..512 + (9 << 20)))
    );
}

#[test]
fn a_compressed_archive_is_the_same_dataset_taken_out_once() {
    let chat = chat("A");
    let members: [(&str, &[u8]); 4] =
        [("0.jpg", b"JPG0"), ("0.json", &chat), ("d/1.png", b"PNG1"), ("d/1.txt", b"one")];
    let plain = archive(&members);
    let (data, store, _folder) = dataset(&plain).unwrap();
    for packed in [gzip(&plain), zstd(&plain), [gzip(&plain[..700]), gzip(&plain[700..])].concat()]
    {
        let (other, others, folder) = dataset(&packed).unwrap();
        assert_eq!(other.fingerprint(), data.fingerprint());
        assert_eq!(layout(&other), layout(&data));
        assert_eq!(files(&folder).len(), 2, "an index and what was taken out");
        for row in 0..data.rows() {
            let (a, b) = (store.sample(&data, row).unwrap(), others.sample(&other, row).unwrap());
            assert_eq!(a.images, b.images);
            assert_eq!(a.conversation, b.conversation);
            assert_eq!(a.origin, b.origin);
        }
        let again = open(&settings(&folder), &others).unwrap();
        assert_eq!((others.asked("read"), again.rows()), (1, 2));
    }
    assert_eq!(data.origin(1), format!("{URI}, sample `d/1` at byte {}", entry(&data, 1).place));
}
