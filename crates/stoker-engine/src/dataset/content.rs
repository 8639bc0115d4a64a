//! What is said in a turn, and which image is meant where.
//!
//! A string with `<image>` placeholders becomes parts; all text around them is kept to the letter,
//! line breaks included, as LLaVA, LLaMA-Factory and ms-swift keep it (Qwen's own fine-tuning script
//! strips white space around each piece). Placeholders count in turns other than the assistant's,
//! and only where they can be meant: in the LLaVA form, or if the sample has images of its own; in
//! other strings `<image>` is text. The number of images and of their mentions must agree.

use std::collections::VecDeque;

use serde_json::{Map, Value};

use super::chat::is_absent;
use super::media::{Media, inline};
use super::{flaw, quoted};
use crate::error::Flaw;
use crate::sample::{Content, ImageRef, Part};

const PLACEHOLDER: &str = "<image>";
/// Where a part or an image object may keep its reference, in the order of trust.
const REFERENCES: [&str; 5] = ["image", "image_url", "url", "path", "base64"];

/// The images of one sample while it is read.
pub(super) struct Images<'a> {
    media: &'a Media,
    /// Images of the sample that no mention has taken yet.
    waiting: VecDeque<Value>,
    given: usize,
    mentions: usize,
    taken: Vec<ImageRef>,
}

impl<'a> Images<'a> {
    pub(super) fn new(given: Vec<Value>, media: &'a Media) -> Self {
        let count = given.len();
        Self { media, waiting: given.into(), given: count, mentions: 0, taken: Vec::new() }
    }

    /// Whether the sample has images of its own.
    pub(super) fn are_given(&self) -> bool {
        self.given > 0
    }

    /// Whether it has, and no turn has any.
    pub(super) fn none_mentioned(&self) -> bool {
        self.given > 0 && self.mentions == 0 && self.taken.is_empty()
    }

    /// All images of the sample, as if each were mentioned.
    pub(super) fn take_all(&mut self) -> Result<Vec<Part>, Flaw> {
        (0..self.given).map(|_| self.mention()).collect()
    }

    /// A mention without a reference takes the next image of the sample.
    fn mention(&mut self) -> Result<Part, Flaw> {
        self.mentions += 1;
        match self.waiting.pop_front() {
            Some(image) => self.add(&image),
            // One too many: `finish` counts to the end and refuses the sample.
            None => Ok(Part::Image(self.taken.len())),
        }
    }

    fn add(&mut self, image: &Value) -> Result<Part, Flaw> {
        let image = self.reference(image).map_err(|flaw| {
            let number = self.taken.len();
            Flaw { reason: format!("image {}: {}", number + 1, flaw.reason), ..flaw }
        })?;
        self.taken.push(image);
        Ok(Part::Image(self.taken.len() - 1))
    }

    /// A string, or an object that holds one.
    fn reference(&self, image: &Value) -> Result<ImageRef, Flaw> {
        match image {
            Value::String(text) => self.media.resolve(text),
            Value::Object(object) => match own_reference(object) {
                Some(("base64", Value::String(text))) if !text.starts_with("data:") => inline(text),
                Some((_, Value::String(text))) => self.media.resolve(text),
                Some(("image" | "image_url", Value::Object(inner))) => match own_reference(inner) {
                    Some((_, Value::String(text))) => self.media.resolve(text),
                    _ => Err(no_reference(image)),
                },
                _ => Err(no_reference(image)),
            },
            _ => Err(no_reference(image)),
        }
    }

    pub(super) fn finish(self) -> Result<Vec<ImageRef>, Flaw> {
        let Self { given, mentions, .. } = self;
        if given == mentions {
            return Ok(self.taken);
        }
        let reason = format!("the sample has {given} images and mentions {mentions} of them");
        Err(flaw("image-count", reason).hint(
            "each image needs one `<image>` placeholder or one image part without a reference",
        ))
    }
}

fn own_reference(object: &Map<String, Value>) -> Option<(&'static str, &Value)> {
    REFERENCES
        .into_iter()
        .filter_map(|key| Some((key, object.get(key)?)))
        .find(|(_, value)| !is_absent(Some(value)))
}

fn no_reference(image: &Value) -> Flaw {
    let reason = format!("{} holds no reference to an image", quoted(&image.to_string()));
    flaw("bad-image", reason).hint("write an address, a path or a data: URI")
}

/// The content of one turn. `placeholders`: whether `<image>` in a string means an image.
pub(super) fn content(
    value: Value,
    placeholders: bool,
    place: &str,
    images: &mut Images<'_>,
) -> Result<Content, Flaw> {
    match value {
        Value::String(text) if placeholders => split(text, images),
        Value::String(text) => Ok(Content::Text(text)),
        Value::Array(parts) => {
            let parts = parts.into_iter().enumerate();
            let parts = parts.map(|(number, value)| {
                part(value, images).map_err(|flaw| {
                    let reason = format!("{place}, part {number}: {}", flaw.reason);
                    Flaw { reason, ..flaw }
                })
            });
            Ok(Content::Parts(parts.collect::<Result<_, _>>()?))
        }
        _ => Err(flaw("bad-turn", format!("the content of {place} is no string and no list"))),
    }
}

fn split(text: String, images: &mut Images<'_>) -> Result<Content, Flaw> {
    if !text.contains(PLACEHOLDER) {
        return Ok(Content::Text(text));
    }
    let mut parts = Vec::new();
    for (number, piece) in text.split(PLACEHOLDER).enumerate() {
        if number > 0 {
            parts.push(images.mention()?);
        }
        if !piece.is_empty() {
            parts.push(Part::Text(piece.to_owned()));
        }
    }
    Ok(Content::Parts(parts))
}

fn part(value: Value, images: &mut Images<'_>) -> Result<Part, Flaw> {
    let Value::Object(mut part) = value else {
        return Err(flaw("bad-part", "it is not an object"));
    };
    let kind = match part.get("type") {
        None | Some(Value::Null) if !is_absent(part.get("text")) => "text",
        None | Some(Value::Null) if own_reference(&part).is_some() => "image",
        Some(Value::String(kind)) => kind,
        _ => return Err(flaw("bad-part", "it has no `type`, `text` or `image`")),
    };
    match kind {
        "text" => match part.remove("text") {
            Some(Value::String(text)) => Ok(Part::Text(text)),
            _ => Err(flaw("bad-part", "its `text` is not a string")),
        },
        "image" | "image_url" if own_reference(&part).is_some() => images.add(&Value::Object(part)),
        "image" => images.mention(),
        "image_url" => Err(no_reference(&Value::Object(part))),
        "video" | "video_url" | "audio" | "input_audio" | "file" => {
            let reason = format!("parts of type `{kind}` are not read");
            Err(flaw("unsupported", reason).hint("leave these samples out"))
        }
        other => Err(flaw("bad-part", format!("its type is {}", quoted(other)))
            .hint("types are text, image and image_url")),
    }
}
