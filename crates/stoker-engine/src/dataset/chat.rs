//! A line becomes a conversation, in the forms that people have.
//!
//! - `messages`: `role` and `content`, a string or a list of parts (OpenAI, Hugging Face, TRL);
//! - `conversations`: `from` and `value` with `<image>` placeholders (LLaVA, ShareGPT).
//!
//! The keys may be mixed (`messages` with `from`, `conversations` with `role`). The images of the
//! whole sample, `image` or `images`, are taken in order by placeholders and by image parts without
//! a reference of their own; `content` has the rules. JSON is read as Python reads
//! it, but for NaN and Infinity: of two equal keys the last one counts.

use serde_json::{Map, Value};

use super::content::{Images, content};
use super::media::Media;
use super::packing::BYTE_ORDER_MARK;
use super::{flaw, quoted};
use crate::error::Flaw;
use crate::sample::{Content, Conversation, Part, RawSample, Sample, Turn};

type Object = Map<String, Value>;

pub(super) fn parse(raw: &RawSample, media: &Media) -> Result<Sample, Flaw> {
    let mut record = object(&raw.bytes)?;
    if ["video", "videos"].into_iter().any(|key| !is_absent(record.get(key))) {
        return Err(flaw("unsupported", "the sample has videos")
            .hint("videos are not read yet: leave these samples out"));
    }
    let mut images = Images::new(sample_images(&mut record)?, media);
    let tools = tools(record.remove("tools"))?;
    let (key, messages) = messages(&mut record)?;
    let mut turns = Vec::with_capacity(messages.len());
    let mut llava = false;
    for (number, message) in messages.into_iter().enumerate() {
        let place = format!("{key}[{number}]");
        let Value::Object(message) = message else {
            return Err(flaw("bad-turn", format!("{place} is not an object")));
        };
        llava |= message.contains_key("from");
        turns.push(turn(message, &place, &mut images)?);
    }
    if !llava {
        place_unmentioned(&mut turns, &mut images)?;
    }
    Ok(Sample {
        id: raw.id,
        conversation: Conversation { turns, tools },
        images: images.finish()?,
        origin: raw.origin.clone(),
    })
}

/// Whether a field says nothing: many writers fill all columns of a table.
pub(super) fn is_absent(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => true,
        Some(Value::String(text)) => text.is_empty(),
        Some(Value::Array(values)) => values.is_empty(),
        Some(_) => false,
    }
}

fn object(line: &[u8]) -> Result<Object, Flaw> {
    let line = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line);
    let text = str::from_utf8(line).map_err(|error| {
        let offset = error.valid_up_to();
        flaw("invalid-utf8", format!("byte {offset} of the line is not UTF-8"))
            .hint("write the file in UTF-8")
    })?;
    match serde_json::from_str(text) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(flaw("not-an-object", "the line is JSON, but not an object")),
        Err(error) => Err(not_json(text, &error)),
    }
}

fn not_json(text: &str, error: &serde_json::Error) -> Flaw {
    // serde_json's columns point at or just behind the byte that it stumbled over
    let place = error.column().saturating_sub(2).min(text.len());
    let near = &text.as_bytes()[place..];
    let names_no_number = [b"NaN".as_slice(), b"Infinity", b"-Infinity"]
        .iter()
        .any(|name| (0..2).any(|skip| near.get(skip..).is_some_and(|near| near.starts_with(name))));
    let flaw = flaw("not-json", format!("the line is not JSON: {error}"));
    if names_no_number {
        flaw.hint("NaN and Infinity are not JSON: in Python, write with allow_nan=False")
    } else if text.contains('\0') {
        flaw.hint("NUL bytes come from a write that a crash or a full disk cut short")
    } else if error.is_eof() {
        flaw.hint("the line ends in the middle: a sample stands on one line")
    } else {
        flaw
    }
}

/// The list of messages, and the key that it stood under.
fn messages(record: &mut Object) -> Result<(&'static str, Vec<Value>), Flaw> {
    let key = ["messages", "conversations"]
        .into_iter()
        .find(|key| !matches!(record.get(*key), None | Some(Value::Null)));
    let Some(key) = key else {
        let keys: Vec<&str> = record.keys().take(12).map(String::as_str).collect();
        let keys = quoted(&keys.join(", "));
        let reason = format!("there is no `messages` or `conversations`; the keys are {keys}");
        return Err(flaw("no-conversation", reason)
            .hint("turn questions and answers into a list of messages with role and content"));
    };
    match record.remove(key) {
        Some(Value::Array(messages)) if messages.is_empty() => {
            Err(flaw("empty-conversation", format!("`{key}` is empty")))
        }
        Some(Value::Array(messages)) => Ok((key, messages)),
        _ => Err(flaw("no-conversation", format!("`{key}` is not a list"))),
    }
}

fn sample_images(record: &mut Object) -> Result<Vec<Value>, Flaw> {
    let mut found = ["images", "image"]
        .into_iter()
        .filter_map(|key| record.remove(key).filter(|value| !is_absent(Some(value))));
    match (found.next(), found.next()) {
        (None, _) => Ok(Vec::new()),
        (Some(Value::Array(images)), None) => Ok(images),
        (Some(image), None) => Ok(vec![image]),
        (Some(_), Some(_)) => {
            Err(flaw("bad-image", "the sample has both `image` and `images`: which is meant?"))
        }
    }
}

fn tools(value: Option<Value>) -> Result<Vec<Value>, Flaw> {
    let bad = || flaw("bad-tools", "`tools` is not a list of objects, nor a string of one");
    let value = match value {
        value if is_absent(value.as_ref()) => return Ok(Vec::new()),
        Some(Value::String(text)) => serde_json::from_str(&text).map_err(|_| bad())?,
        value => value.unwrap_or_default(),
    };
    match value {
        Value::Array(tools) if tools.iter().all(Value::is_object) => Ok(tools),
        _ => Err(bad()),
    }
}

fn turn(mut message: Object, place: &str, images: &mut Images<'_>) -> Result<Turn, Flaw> {
    let llava = message.contains_key("from");
    let role = take(&mut message, ["role", "from"]);
    let role = role.as_ref().and_then(Value::as_str).and_then(role_of).ok_or_else(|| {
        let found = role.as_ref().map_or("nothing".to_owned(), |role| quoted(&role.to_string()));
        flaw("unknown-role", format!("the role of {place} is {found}"))
            .hint("roles are system, user, assistant, tool, developer; human and gpt are known too")
    })?;
    let train = train(&mut message, place)?;
    let value = take(&mut message, ["content", "value"]);
    message.retain(|_, value| !value.is_null());
    let speechless =
        ["tool_calls", "reasoning_content"].iter().any(|key| message.contains_key(*key));
    let content = match value {
        None if speechless => Content::Text(String::new()),
        None => return Err(flaw("no-content", format!("{place} has no content"))),
        Some(value) => {
            // Qwen's own trainer too takes `<image>` in an answer for text.
            let placeholders = role != "assistant" && (llava || images.are_given());
            content(value, placeholders, place, images)?
        }
    };
    Ok(Turn { role: role.to_owned(), content, extra: message, train })
}

/// Removes both fields; the first that says something counts.
fn take(message: &mut Object, keys: [&str; 2]) -> Option<Value> {
    let [first, second] = keys.map(|key| message.remove(key).filter(|value| !value.is_null()));
    first.or(second)
}

fn role_of(name: &str) -> Option<&str> {
    match name {
        "system" | "user" | "assistant" | "tool" | "developer" => Some(name),
        "human" => Some("user"),
        "gpt" | "chatgpt" | "bot" | "model" => Some("assistant"),
        "function" | "observation" => Some("tool"),
        _ => None,
    }
}

fn train(message: &mut Object, place: &str) -> Result<Option<bool>, Flaw> {
    let mut found = None;
    for key in ["train", "loss", "weight"] {
        let mark = match message.remove(key) {
            None | Some(Value::Null) => continue,
            Some(Value::Bool(mark)) => mark,
            Some(Value::Number(number)) if number.as_f64() == Some(0.0) => false,
            Some(Value::Number(number)) if number.as_f64() == Some(1.0) => true,
            Some(other) => {
                let reason = format!("`{key}` of {place} is {}", quoted(&other.to_string()));
                return Err(flaw("bad-train-mark", reason).hint("use true, false, 0 or 1"));
            }
        };
        if found.is_some_and(|found| found != mark) {
            let reason = format!("{place} has marks for training that contradict each other");
            return Err(flaw("bad-train-mark", reason));
        }
        found = Some(mark);
    }
    Ok(found)
}

/// TRL's form: images that nothing mentions stand before the first user turn, if that is a string.
fn place_unmentioned(turns: &mut [Turn], images: &mut Images<'_>) -> Result<(), Flaw> {
    if !images.none_mentioned() {
        return Ok(());
    }
    let first = turns.iter_mut().find(|turn| turn.role == "user").map(|turn| &mut turn.content);
    if let Some(Content::Text(text)) = first {
        let text = std::mem::take(text);
        let mut parts = images.take_all()?;
        parts.push(Part::Text(text));
        *first.expect("it was found above") = Content::Parts(parts);
    }
    Ok(())
}
