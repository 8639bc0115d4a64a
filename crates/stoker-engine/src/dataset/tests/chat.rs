//! Lines that mean nothing: each is a flaw of one sample, with a name, a reason and advice.

use proptest::prelude::*;
use serde_json::json;

use super::parse;

fn flaw(line: impl Into<Vec<u8>>) -> (&'static str, String) {
    let flaw = parse(line).unwrap_err();
    (flaw.code, flaw.to_string())
}

#[test]
fn what_is_not_json_says_so_and_why() {
    for (line, part_of_message) in [
        (r#"{"a": NaN}"#, "NaN and Infinity are not JSON"),
        (r#"{"a": [1, -Infinity]}"#, "NaN and Infinity are not JSON"),
        (r#"{"a": Infinity, "b": 1}"#, "NaN and Infinity are not JSON"),
        (r#"[{"a":NaN}]"#, "NaN and Infinity are not JSON"),
        (r#"{"a": 1"#, "a sample stands on one line"),
        ("{", "a sample stands on one line"),
        ("\0\0", "a crash or a full disk"),
        (r#"{"a": 1} {"b": 2}"#, "trailing characters"),
        (r"{'a': 1}", "key must be a string"),
        (r#"{"a": "\ud800"}"#, "not JSON"),
        ("hello", "not JSON"),
    ] {
        let (code, message) = flaw(line);
        assert_eq!(code, "not-json", "{line}");
        assert!(message.contains(part_of_message), "{line}: {message}");
    }
    let (_, message) = flaw(r#"{"say": "NaN", "a": x}"#);
    assert!(!message.contains("Infinity"), "NaN in a string is not to blame: {message}");
}

#[test]
fn json_is_read_as_python_reads_it() {
    let text = |line: &str| format!("{:?}", parse(line).unwrap().conversation.turns[0].content);
    let twice =
        r#"{"messages": [], "messages": [{"role": "user", "content": "a", "content": "b"}]}"#;
    assert_eq!(text(twice), r#"Text("b")"#, "the last of two equal keys counts");
    let marked =
        "\u{feff}{\"messages\": [{\"role\": \"user\", \"content\": \"\\ud83d\\ude00\"}]} \r";
    assert_eq!(text(marked), "Text(\"\u{1f600}\")");
}

#[test]
fn nesting_without_end_is_a_flaw_and_no_crash() {
    let (code, message) = flaw("[".repeat(1 << 17));
    assert_eq!(code, "not-json");
    assert!(message.contains("recursion limit"), "{message}");
}

#[test]
fn invalid_utf8_names_the_byte() {
    let (code, message) = flaw(b"{\"a\": \"\xc3\x28\"}".to_vec());
    assert_eq!(code, "invalid-utf8");
    assert!(message.starts_with("byte 7 of the line is not UTF-8"), "{message}");
}

#[test]
fn lines_of_another_shape_are_named() {
    let user = json!({"role": "user", "content": "x"});
    let image = json!([{"type": "image", "image": "a.jpg"}]);
    for (line, code, message) in [
        (json!([1]), "not-an-object", "JSON, but not an object"),
        (json!("text"), "not-an-object", "JSON, but not an object"),
        (json!({"prompt": 1, "answer": 2}), "no-conversation", "the keys are `prompt, answer`"),
        (json!({}), "no-conversation", "the keys are none"),
        (json!({"messages": {"role": "user"}}), "no-conversation", "`messages` is not a list"),
        (json!({"messages": []}), "empty-conversation", "`messages` is empty"),
        (json!({"conversations": []}), "empty-conversation", "`conversations` is empty"),
        (json!({"messages": ["hi"]}), "bad-turn", "messages[0] is not an object"),
        (json!({"messages": [user, {"role": "user", "content": 5}]}), "bad-turn", "messages[1]"),
        (json!({"messages": [{"role": "user"}]}), "no-content", "messages[0] has no content"),
        (json!({"messages": [{"content": "x"}]}), "unknown-role", "is nothing"),
        (
            json!({"messages": [{"role": "critic", "content": "x"}]}),
            "unknown-role",
            "is `\"critic\"`",
        ),
        (json!({"messages": [{"role": 1, "content": "x"}]}), "unknown-role", "is `1`"),
        (json!({"messages": [user], "video": "a.mp4"}), "unsupported", "has videos"),
        (
            json!({"messages": [{"role": "user", "content": [{"type": "video", "video": "v"}]}]}),
            "unsupported",
            "messages[0], part 0: parts of type `video` are not read",
        ),
        (json!({"messages": [{"role": "user", "content": ["x"]}]}), "bad-part", "not an object"),
        (
            json!({"messages": [{"role": "user", "content": [{"type": "text"}]}]}),
            "bad-part",
            "`text`",
        ),
        (
            json!({"messages": [{"role": "user", "content": [{"type": "smell"}]}]}),
            "bad-part",
            "`smell`",
        ),
        (json!({"messages": [{"role": "user", "content": [{}]}]}), "bad-part", "has no `type`"),
        (
            json!({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}),
            "bad-image",
            "no reference",
        ),
        (
            json!({"messages": [{"role": "user", "content": [{"type": "image", "image": 5}]}]}),
            "bad-image",
            "image 1",
        ),
        (
            json!({"messages": [{"role": "user", "content": [{"type": "image", "image": {"bytes": "x"}}]}]}),
            "bad-image",
            "image 1",
        ),
        (json!({"messages": [user], "images": "a.jpg", "image": "b.jpg"}), "bad-image", "both"),
        (
            json!({"messages": [{"role": "user", "content": image}], "images": ["b.jpg"]}),
            "image-count",
            "the sample has 1 images and mentions 0 of them",
        ),
        (
            json!({"messages": [{"role": "user", "content": [{"type": "image"}]}]}),
            "image-count",
            "the sample has 0 images and mentions 1 of them",
        ),
        (
            json!({"conversations": [{"from": "human", "value": "<image><image>"}], "image": "a"}),
            "image-count",
            "the sample has 1 images and mentions 2 of them",
        ),
        (
            json!({"conversations": [{"from": "human", "value": "what?"}], "image": "a"}),
            "image-count",
            "the sample has 1 images and mentions 0 of them",
        ),
    ] {
        let (found, text) = flaw(line.to_string());
        assert_eq!(found, code, "{line}: {text}");
        assert!(text.contains(message), "{line}: {text}");
    }
}

#[test]
fn messages_about_hostile_lines_stay_short() {
    let long = "k".repeat(1 << 16);
    for line in [
        json!({&long: 1}),
        json!({"messages": [{"role": &long, "content": "x"}]}),
        json!({"messages": [{"role": "user", "content": [{"type": &long}]}]}),
        json!({"messages": [{"role": "user", "content": "x", "train": &long}]}),
        json!({"messages": [{"role": "user", "content": [{"image": {"bytes": &long}}]}]}),
        json!({"messages": [{"role": "user", "content": [{"image": format!("../{long}")}]}]}),
        json!({"messages": [{"role": "user", "content": [{"image": format!("{long}://x")}]}]}),
        json!({"messages": [{"role": "user", "content": [{"image": format!("http://x/{long}")}]}]}),
        json!({"messages": [{"role": "user", "content": [{"image": format!("s3:///{long}")}]}]}),
        json!({"messages": [{"role": "user", "content": [{"image": format!("data:{long},")}]}]}),
    ] {
        let (_, message) = flaw(line.to_string());
        assert!(message.len() < 600, "{} bytes", message.len());
    }
}

proptest! {
    #[test]
    fn no_line_makes_it_panic(
        pieces in prop::collection::vec(prop::sample::select(vec![
            "{", "}", "[", "]", ":", ",", "\"", "null", "1", "\"messages\"", "\"role\"",
            "\"user\"", "\"content\"", "\"type\"", "\"image\"", "\"image_url\"", "\"url\"",
            "\"data:;base64,QQ==\"", "\"../a\"", "\"http://[\"", "\"<image>\"", "\"conversations\"",
            "\"from\"", "\"value\"", "\"human\"", "\"images\"", "\\", "\u{0}", "é",
        ]), 0..40),
    ) {
        parse(pieces.concat()).ok();
    }

    #[test]
    fn no_shape_makes_it_panic(value in shape()) {
        parse(value.to_string()).ok();
        parse(json!({"messages": value}).to_string()).ok();
        parse(json!({"messages": [{"role": "user", "content": value}]}).to_string()).ok();
        parse(json!({"images": value, "messages": [{"from": "human", "value": "<image>"}]}).to_string()).ok();
    }
}

fn shape() -> impl Strategy<Value = serde_json::Value> {
    let key = prop::sample::select(vec![
        "type",
        "text",
        "image",
        "image_url",
        "url",
        "path",
        "base64",
        "role",
        "content",
        "from",
        "value",
        "messages",
        "conversations",
        "images",
        "tools",
        "train",
    ]);
    let leaf = prop_oneof![
        Just(json!(null)),
        Just(json!(true)),
        Just(json!(0)),
        key.clone().prop_map(|key| json!(key)),
        Just(json!("<image>")),
        Just(json!("human")),
        Just(json!("")),
    ];
    leaf.prop_recursive(4, 40, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(serde_json::Value::Array),
            prop::collection::vec((key.clone(), inner), 0..5).prop_map(|fields| {
                fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
            }),
        ]
    })
}
