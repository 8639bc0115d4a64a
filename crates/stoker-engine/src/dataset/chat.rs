//! A row becomes a conversation, in the forms that people have.
//!
//! - `messages`: `role` and `content`, a string or a list of parts (OpenAI, Hugging Face, TRL);
//! - `conversations`: `from` and `value` with `<image>` placeholders (LLaVA, ShareGPT);
//! - `texts`: `user` and `assistant` in one object (the Cauldron and what followed it);
//! - a question and an answer, or a caption, where the recipe or the format says which.
//!
//! The keys may be mixed (`messages` with `from`, `conversations` with `role`), and a list may stand
//! as JSON in a string. The images of the whole sample are taken in order by placeholders and by
//! image parts without a reference of their own; `content` has the rules. JSON is read as Python
//! reads it, but for NaN and Infinity: of two equal keys the last one counts.

use serde_json::{Map, Value};

use super::content::{Carried, Images, content};
use super::json::{MOST_VALUES, Unread, parse};
use super::media::Media;
use super::packing::BYTE_ORDER_MARK;
use super::{flaw, quoted};
use crate::error::Flaw;
use crate::recipe::Fields;
use crate::sample::{Content, Conversation, Part, Sample, SampleId, Turn};

pub(super) type Object = Map<String, Value>;

/// What a row of JSON lines is called.
pub(super) const LINE: &str = "the line";

/// A row before it is known what it means.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) object: Object,
    /// Images that stand in the row itself.
    pub(super) carried: Vec<Carried>,
    /// Which keys are captions where there are no messages.
    pub(super) captions: &'static [&'static str],
}

impl Record {
    /// What the JSON of a row says; `what` is shown in front of what is wrong with it.
    pub(super) fn from_json(bytes: &[u8], what: &str) -> Result<Self, Flaw> {
        Ok(Self { object: object(bytes, what)?, carried: Vec::new(), captions: &[] })
    }
}

/// What a row means.
pub(super) fn sample(
    id: SampleId,
    record: Record,
    fields: &Fields,
    media: &Media,
    origin: &str,
) -> Result<Sample, Flaw> {
    let Record { object: mut record, carried, captions } = record;
    if ["video", "videos"].into_iter().any(|key| !is_absent(record.get(key))) {
        return Err(has_videos());
    }
    let mut images = Images::new(sample_images(&mut record, fields)?, carried, media)?;
    let tools = tools(record.remove("tools"))?;
    let mut turns = Vec::new();
    match said(&mut record, fields, captions)? {
        Said::Exchange { question, answer } => {
            let asked = match question {
                Some(question) => content(question.into(), images.are_given(), "", &mut images)?,
                None if !images.are_given() => {
                    return Err(flaw("missing-image", "a caption without an image"));
                }
                None => Content::Parts(images.take_all()?),
            };
            turns.push(plain("user", asked));
            turns.push(plain("assistant", Content::Text(answer)));
            place_unmentioned(&mut turns, &mut images)?;
        }
        Said::Messages(key, messages) => {
            let mut llava = false;
            for (number, message) in messages.into_iter().enumerate() {
                let place = format!("{key}[{number}]");
                let Value::Object(message) = message else {
                    return Err(flaw("bad-turn", format!("{place} is not an object")));
                };
                llava |= message.contains_key("from");
                for message in apart(message) {
                    turns.push(turn(message, &place, &mut images)?);
                }
            }
            if !llava {
                place_unmentioned(&mut turns, &mut images)?;
            }
        }
    }
    Ok(Sample {
        id,
        conversation: Conversation { turns, tools },
        images: images.finish()?,
        origin: origin.to_owned(),
    })
}

pub(super) fn has_videos() -> Flaw {
    flaw("unsupported", "the sample has videos")
        .hint("videos are not read yet: leave these samples out")
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

fn object(line: &[u8], what: &str) -> Result<Object, Flaw> {
    match value(line, what)? {
        Value::Object(object) => Ok(object),
        _ => Err(flaw("not-an-object", format!("{what} is JSON, but not an object"))),
    }
}

/// Any JSON; `what` is shown in front of what is wrong with it.
pub(super) fn value(line: &[u8], what: &str) -> Result<Value, Flaw> {
    let text = text(line, what)?;
    parse(text).map_err(|unread| match unread {
        Unread::TooManyValues => too_many_values(what),
        Unread::NotJson(error) => not_json(text, &error, what),
    })
}

fn too_many_values(what: &str) -> Flaw {
    flaw("too-many-values", format!("{what} is JSON of more than {MOST_VALUES} values"))
        .hint("keep what is no part of the chat elsewhere")
}

/// Text, without a byte order mark.
pub(super) fn text<'a>(bytes: &'a [u8], what: &str) -> Result<&'a str, Flaw> {
    let bytes = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes);
    str::from_utf8(bytes).map_err(|error| {
        let offset = error.valid_up_to();
        flaw("invalid-utf8", format!("byte {offset} of {what} is not UTF-8"))
            .hint("write the file in UTF-8")
    })
}

fn not_json(text: &str, error: &serde_json::Error, what: &str) -> Flaw {
    // serde_json's columns point at or just behind the byte that it stumbled over
    let place = error.column().saturating_sub(2).min(text.len());
    let near = &text.as_bytes()[place..];
    let names_no_number = [b"NaN".as_slice(), b"Infinity", b"-Infinity"]
        .iter()
        .any(|name| (0..2).any(|skip| near.get(skip..).is_some_and(|near| near.starts_with(name))));
    let flaw = flaw("not-json", format!("{what} is not JSON: {error}"));
    if names_no_number {
        flaw.hint("NaN and Infinity are not JSON: in Python, write with allow_nan=False")
    } else if text.contains('\0') {
        flaw.hint("NUL bytes come from a write that a crash or a full disk cut short")
    } else if error.is_eof() && what == LINE {
        flaw.hint("the line ends in the middle: a sample stands on one line")
    } else {
        flaw
    }
}

/// What was said, as the row has it.
enum Said {
    /// A list of messages, and the key that it stood under.
    Messages(String, Vec<Value>),
    /// A question and its answer; without a question, a caption.
    Exchange { question: Option<String>, answer: String },
}

/// Where messages are looked for.
pub(super) const MESSAGES: [&str; 3] = ["messages", "conversations", "texts"];

fn said(record: &mut Object, fields: &Fields, captions: &[&str]) -> Result<Said, Flaw> {
    if let Some(answer) = &fields.answer {
        let question = fields.question.as_ref().map(|key| words(record, key)).transpose()?;
        return Ok(Said::Exchange { question, answer: words(record, answer)? });
    }
    let known = fields.messages.as_deref().map_or(&MESSAGES[..], |_| &[]);
    let mut keys = fields.messages.as_deref().into_iter().chain(known.iter().copied());
    let key = keys.find(|key| !matches!(record.get(*key), None | Some(Value::Null)));
    let Some(key) = key else {
        let caption = captions.iter().find(|key| record.contains_key(**key));
        return match caption.filter(|_| fields.messages.is_none()) {
            Some(key) => Ok(Said::Exchange { question: None, answer: words(record, key)? }),
            None => Err(no_conversation(record, fields)),
        };
    };
    let value = match record.remove(key) {
        Some(Value::String(text)) => match parse(&text) {
            Err(Unread::TooManyValues) => return Err(too_many_values(&format!("`{key}`"))),
            value => value.unwrap_or(Value::Null),
        },
        value => value.unwrap_or_default(),
    };
    match value {
        Value::Array(messages) if messages.is_empty() => {
            Err(flaw("empty-conversation", format!("`{key}` is empty")))
        }
        Value::Array(messages) => Ok(Said::Messages(key.to_owned(), messages)),
        _ => Err(flaw("no-conversation", format!("`{key}` is not a list"))),
    }
}

fn no_conversation(record: &Object, fields: &Fields) -> Flaw {
    let keys: Vec<&str> = record.keys().take(12).map(String::as_str).collect();
    let keys = if keys.is_empty() { "none".to_owned() } else { quoted(&keys.join(", ")) };
    let wanted = match &fields.messages {
        Some(name) => format!("`{name}`"),
        None => "`messages` or `conversations`".to_owned(),
    };
    let reason = format!("there is no {wanted}; the keys are {keys}");
    flaw("no-conversation", reason)
        .hint("name the key of the messages, or of question and answer, in dataset.fields")
}

/// Text that the recipe names.
fn words(record: &mut Object, key: &str) -> Result<String, Flaw> {
    match record.remove(key) {
        Some(Value::String(text)) if !text.is_empty() => Ok(text),
        None | Some(Value::Null | Value::String(_)) => {
            Err(flaw("no-conversation", format!("`{key}` is empty or not there")))
        }
        Some(_) => Err(flaw("no-conversation", format!("`{key}` is not text"))),
    }
}

/// The two turns of an object that holds both sides; else the object as it is.
fn apart(mut message: Object) -> Vec<Object> {
    let is_turn = ["role", "from"].iter().any(|key| message.contains_key(*key));
    let sides = ["user", "assistant"];
    if is_turn || !sides.iter().any(|key| message.contains_key(*key)) {
        return vec![message];
    }
    let turn = |side: &str| {
        let content = message.remove(side).filter(|content| !content.is_null())?;
        let turn = [("role", Value::from(side)), ("content", content)];
        Some(turn.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
    };
    sides.into_iter().filter_map(turn).collect()
}

/// References to the images of the whole sample.
fn sample_images(record: &mut Object, fields: &Fields) -> Result<Vec<Value>, Flaw> {
    let mut take = |key: &str| record.remove(key).filter(|value| !is_absent(Some(value)));
    let as_list = |value| match value {
        Value::Array(images) => images,
        image => vec![image],
    };
    if let Some(names) = &fields.images {
        return Ok(names.iter().filter_map(|name| take(name)).flat_map(as_list).collect());
    }
    match (take("images"), take("image")) {
        (Some(_), Some(_)) => {
            Err(flaw("bad-image", "the sample has both `image` and `images`: which is meant?"))
        }
        (images, image) => Ok(images.or(image).map(as_list).unwrap_or_default()),
    }
}

fn plain(role: &str, content: Content) -> Turn {
    Turn { role: role.to_owned(), content, extra: Map::new(), train: None }
}

fn tools(value: Option<Value>) -> Result<Vec<Value>, Flaw> {
    let bad = || flaw("bad-tools", "`tools` is not a list of objects, nor a string of one");
    let value = match value {
        value if is_absent(value.as_ref()) => return Ok(Vec::new()),
        Some(Value::String(text)) => parse(&text).map_err(|_| bad())?,
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
