//! What the forms of chat data mean.

use serde_json::{Value, json};

use super::parse;
use crate::sample::{Content, ImageRef, Part, Sample};

/// A sample in short: `role: text [image]`, turns divided by ` / `.
pub(super) fn short(sample: &Sample) -> String {
    let image = |number: &usize| match &sample.images[*number] {
        ImageRef::Inline(bytes) => format!("[{}]", String::from_utf8_lossy(bytes)),
        ImageRef::Stored(extent) => {
            let uri = extent.object.to_string();
            format!("[{}]", uri.strip_prefix("s3://bucket/data/").unwrap_or(&uri))
        }
    };
    let part = |part: &Part| match part {
        Part::Text(text) => text.clone(),
        Part::Image(number) => image(number),
    };
    let turns = sample.conversation.turns.iter().map(|turn| match &turn.content {
        Content::Text(text) => format!("{}= {text}", turn.role),
        Content::Parts(parts) => {
            let parts: Vec<String> = parts.iter().map(part).collect();
            format!("{}: {}", turn.role, parts.join("|"))
        }
    });
    turns.collect::<Vec<_>>().join(" / ")
}

fn meaning(line: &Value) -> String {
    let sample = parse(line.to_string()).unwrap_or_else(|flaw| panic!("{flaw}: {line}"));
    short(&sample)
}

fn user(content: &Value) -> Value {
    json!({"messages": [{"role": "user", "content": content}]})
}

#[test]
fn strings_stay_strings_and_lists_stay_lists() {
    let line = json!({"id": 7, "messages": [
        {"role": "system", "content": "S"}, {"role": "developer", "content": "D"},
        {"role": "user", "content": [{"type": "text", "text": "U"}]},
        {"role": "assistant", "content": ""}, {"role": "tool", "content": []}]});
    assert_eq!(meaning(&line), "system= S / developer= D / user: U / assistant=  / tool: ");
}

#[test]
fn image_parts_of_all_spellings_mean_the_same() {
    for part in [
        json!({"type": "image", "image": "a.jpg"}),
        json!({"type": "image", "path": "a.jpg"}),
        json!({"type": "image", "url": "a.jpg"}),
        json!({"type": "image", "image": {"path": "a.jpg", "bytes": null}}),
        json!({"type": "image", "image": null, "text": null, "url": "a.jpg"}),
        json!({"type": "image_url", "image_url": {"url": "a.jpg", "detail": "high"}}),
        json!({"type": "image_url", "image_url": "a.jpg"}),
        json!({"image": "a.jpg"}),
        json!({"image_url": {"url": "a.jpg"}}),
    ] {
        let line =
            user(&json!([{"text": "see"}, part, {"type": "text", "text": "?", "image": null}]));
        assert_eq!(meaning(&line), "user: see|[a.jpg]|?", "{part}");
    }
    for part in [
        json!({"type": "image", "base64": "Ynl0ZXM="}),
        json!({"type": "image", "base64": "data:image/png;base64,Ynl0ZXM="}),
        json!({"type": "image", "url": "data:image/png;base64,Ynl0ZXM"}),
        json!({"type": "image_url", "image_url": {"url": "DATA:image/jpeg;base64,Ynl0\nZXM="}}),
        json!({"type": "image", "image": "data:;base64,Ynl0ZXM="}),
    ] {
        assert_eq!(meaning(&user(&json!([part]))), "user: [bytes]", "{part}");
    }
}

#[test]
fn images_of_the_sample_are_taken_in_order_and_numbered_by_mention() {
    let line = json!({"images": ["1.jpg", {"path": "2.jpg"}, {"url": "3.jpg"}], "messages": [
        {"role": "user", "content": [{"type": "image"}, {"type": "image", "image": "own.jpg"}]},
        {"role": "user", "content": "a <image> b"},
        {"role": "tool", "content": [{"type": "image", "image": null}]}]});
    let expected = "user: [1.jpg]|[own.jpg] / user: a |[2.jpg]| b / tool: [3.jpg]";
    assert_eq!(meaning(&line), expected);
    let sample = parse(line.to_string()).unwrap();
    let parts = sample.conversation.turns.iter().map(|turn| match &turn.content {
        Content::Parts(parts) => parts.as_slice(),
        Content::Text(_) => &[],
    });
    let numbers = parts.flatten().filter_map(|part| match part {
        Part::Image(number) => Some(*number),
        Part::Text(_) => None,
    });
    assert_eq!(numbers.collect::<Vec<_>>(), [0, 1, 2, 3]);
}

#[test]
fn llava_data_keep_their_text_to_the_letter() {
    let line = |value: &str, image: Value| {
        json!({"image": image, "conversations": [
            {"from": "human", "value": value}, {"from": "gpt", "value": "A <image>\n"}]})
    };
    for (value, image, expected) in [
        ("<image>\nWhat?", json!("a.jpg"), "user: [a.jpg]|\nWhat? / assistant= A <image>\n"),
        ("What?\n<image>", json!(["a.jpg"]), "user: What?\n|[a.jpg] / assistant= A <image>\n"),
        (
            " <image><image> x <image>",
            json!(["a", "b", "c"]),
            "user:  |[a]|[b]| x |[c] / assistant= A <image>\n",
        ),
        ("no image", json!(null), "user= no image / assistant= A <image>\n"),
        ("no image", json!(""), "user= no image / assistant= A <image>\n"),
        ("no image", json!([]), "user= no image / assistant= A <image>\n"),
    ] {
        assert_eq!(meaning(&line(value, image)), expected);
    }
}

#[test]
fn placeholders_are_text_where_no_image_can_be_meant() {
    assert_eq!(meaning(&user(&json!("write <image> here"))), "user= write <image> here");
    let part = json!([{"type": "text", "text": "<image>"}, {"type": "image", "image": "a.jpg"}]);
    assert_eq!(meaning(&user(&part)), "user: <image>|[a.jpg]");
}

#[test]
fn the_two_forms_mix_and_know_each_others_roles() {
    for (name, role) in [
        ("human", "user"),
        ("user", "user"),
        ("gpt", "assistant"),
        ("chatgpt", "assistant"),
        ("bot", "assistant"),
        ("model", "assistant"),
        ("assistant", "assistant"),
        ("system", "system"),
        ("tool", "tool"),
        ("function", "tool"),
        ("observation", "tool"),
        ("developer", "developer"),
    ] {
        for line in [
            json!({"messages": [{"from": name, "value": "x"}]}),
            json!({"conversations": [{"role": name, "content": "x"}]}),
            json!({"messages": null, "conversations": [{"from": name, "content": "x"}]}),
        ] {
            assert_eq!(meaning(&line), format!("{role}= x"));
        }
    }
}

#[test]
fn unmentioned_images_stand_where_trl_puts_them() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/golden/dataset/trl.json");
    let golden: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let cases = golden["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 9);
    for case in cases {
        let parsed = parse(case.to_string());
        let Value::Array(expected) = &case["expected"] else {
            assert_eq!(parsed.unwrap_err().code, "image-count", "TRL refuses {case}");
            continue;
        };
        // TRL makes a list of each string: so does this, to compare.
        let found = short(&parsed.unwrap()).replace('=', ":");
        let turns = expected.iter().map(|message| {
            let parts = message["content"].as_array().unwrap().iter();
            let parts = parts.map(|part| match &part["image"] {
                Value::String(image) => format!("[{image}]"),
                _ => part["text"].as_str().unwrap().to_owned(),
            });
            let role = message["role"].as_str().unwrap();
            format!("{role}: {}", parts.collect::<Vec<_>>().join("|"))
        });
        assert_eq!(found, turns.collect::<Vec<_>>().join(" / "));
    }
}

#[test]
fn tool_calls_and_other_fields_are_kept_as_they_stand() {
    let calls = json!([
        {"type": "function", "function": {"name": "f", "arguments": {"z": 1, "a": 1.50}}},
        {"function": {"name": "g", "arguments": "{\"b\": 2}"}}]);
    let line = json!({
        "tools": [{"type": "function", "function": {"name": "f"}}],
        "messages": [
            {"role": "assistant", "content": null, "tool_calls": calls, "name": null},
            {"role": "tool", "tool_call_id": "1", "name": "f", "content": "4"},
            {"role": "assistant", "content": "5", "reasoning_content": "why", "tool_calls": null}]});
    let sample = parse(line.to_string()).unwrap();
    assert_eq!(short(&sample), "assistant=  / tool= 4 / assistant= 5");
    let extra = |turn: usize| Value::Object(sample.conversation.turns[turn].extra.clone());
    assert_eq!(extra(0), json!({"tool_calls": calls}));
    assert_eq!(extra(0)["tool_calls"].to_string(), calls.to_string(), "the order of keys too");
    assert_eq!(extra(1), json!({"tool_call_id": "1", "name": "f"}));
    assert_eq!(extra(2), json!({"reasoning_content": "why"}));
    assert_eq!(sample.conversation.tools, line["tools"].as_array().unwrap().clone());
}

#[test]
fn tools_may_be_a_list_or_a_string_of_one() {
    let tools = |tools: Value| {
        let line = json!({"tools": tools, "messages": [{"role": "user", "content": "x"}]});
        parse(line.to_string()).map(|sample| sample.conversation.tools)
    };
    assert_eq!(tools(json!([{"a": 1}])).unwrap(), [json!({"a": 1})]);
    assert_eq!(tools(json!("[{\"a\": 1}]")).unwrap(), [json!({"a": 1})]);
    for nothing in [json!(null), json!([]), json!(""), json!("[]")] {
        assert_eq!(tools(nothing).unwrap(), [Value::Null; 0]);
    }
    for bad in [json!({"a": 1}), json!(["f"]), json!("f"), json!("{}"), json!(1)] {
        assert_eq!(tools(bad).unwrap_err().code, "bad-tools");
    }
}

#[test]
fn marks_for_training_are_read_in_all_spellings() {
    let train = |fields: Value| {
        let mut message = json!({"role": "assistant", "content": "x"});
        message.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let sample = parse(json!({"messages": [message]}).to_string());
        sample.map(|sample| {
            (sample.conversation.turns[0].train, sample.conversation.turns[0].extra.len())
        })
    };
    assert_eq!(train(json!({})).unwrap(), (None, 0));
    for key in ["train", "loss", "weight"] {
        assert_eq!(train(json!({key: null})).unwrap(), (None, 0));
        for (mark, expected) in [
            (json!(true), true),
            (json!(1), true),
            (json!(1.0), true),
            (json!(false), false),
            (json!(0), false),
            (json!(0.0), false),
        ] {
            assert_eq!(train(json!({key: mark})).unwrap(), (Some(expected), 0));
        }
        for bad in [json!(0.5), json!(2), json!("true"), json!([])] {
            assert_eq!(train(json!({key: bad})).unwrap_err().code, "bad-train-mark");
        }
    }
    assert_eq!(train(json!({"loss": true, "weight": 1})).unwrap().0, Some(true));
    assert_eq!(train(json!({"loss": true, "weight": 0})).unwrap_err().code, "bad-train-mark");
}

#[test]
fn the_sample_keeps_its_address() {
    let sample = parse(user(&json!("x")).to_string()).unwrap();
    assert_eq!((sample.id.row, sample.origin.as_str()), (6, "s3://bucket/data/train.jsonl:7"));
}
