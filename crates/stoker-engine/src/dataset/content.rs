//! What is said in a turn, and which image is meant where.
//!
//! A string with `<image>` placeholders becomes parts; all text around them is kept to the letter,
//! line breaks included, as LLaVA, LLaMA-Factory and ms-swift keep it (Qwen's own fine-tuning script
//! strips white space around each piece). Placeholders count in turns other than the assistant's,
//! and only where they can be meant: in the LLaVA form, or if the sample has images of its own; in
//! other strings `<image>` is text. The number of images and of their mentions must agree.
//!
//! Rows of archives and tables carry their images themselves. A reference in such a row is the name
//! of one of them, or, where no name fits, stands for the next: it names where the image once was.
//! It never leads out of the row.

use std::collections::VecDeque;

use serde_json::{Map, Value};

use super::chat::is_absent;
use super::location::strip_prefix_ignoring_case;
use super::media::{Media, inline};
use super::{flaw, quoted};
use crate::error::Flaw;
use crate::sample::{Content, ImageRef, Part};

const PLACEHOLDER: &str = "<image>";
/// Most images of one sample: each costs a request, and a place in the batch. The longest videos that
/// are cut into frames have 768.
pub(super) const MOST_IMAGES: usize = 1024;
/// Where a part or an image object may keep its reference, in the order of trust.
const REFERENCES: [&str; 5] = ["image", "image_url", "url", "path", "base64"];

/// An image that a row carries.
#[derive(Clone, Debug)]
pub(super) struct Carried {
    /// What a reference may call it.
    pub(super) names: Vec<String>,
    pub(super) image: ImageRef,
}

impl Carried {
    /// Whether a reference means it: names and last components are compared, in any case.
    fn is_named(&self, reference: &str) -> bool {
        let last = |path: &str| path.rsplit('/').next().unwrap_or_default().to_ascii_lowercase();
        self.names.iter().any(|name| name == reference || last(name) == last(reference))
    }
}

/// An image of the sample as a whole.
#[derive(Debug)]
enum Given {
    Reference(Value),
    Carried(Carried),
}

/// How references of a row with images of its own are understood; all in the same way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Naming {
    Name,
    Place,
}

/// The images of one sample while it is read.
pub(super) struct Images<'a> {
    media: &'a Media,
    /// Images of the sample that no mention has taken yet.
    waiting: VecDeque<Given>,
    /// Whether the row carries its images itself.
    carried: bool,
    naming: Option<Naming>,
    given: usize,
    mentions: usize,
    taken: Vec<ImageRef>,
}

impl<'a> Images<'a> {
    /// `references` are those of the sample as a whole, `carried` what stands in the row itself.
    pub(super) fn new(
        references: Vec<Value>,
        carried: Vec<Carried>,
        media: &'a Media,
    ) -> Result<Self, Flaw> {
        let is_carried = !carried.is_empty();
        let carried = carried.into_iter().map(Given::Carried);
        let mut images = Self {
            media,
            waiting: carried.collect(),
            carried: is_carried,
            naming: None,
            given: 0,
            mentions: 0,
            taken: Vec::new(),
        };
        if !is_carried {
            images.waiting = references.into_iter().map(Given::Reference).collect();
        } else if !references.is_empty() {
            images.waiting = images.meant(&references)?;
        }
        images.given = images.waiting.len();
        Ok(images)
    }

    /// The carried images that the sample's own list of references means. By name they may be some
    /// of them; by place they must be as many.
    fn meant(&mut self, references: &[Value]) -> Result<VecDeque<Given>, Flaw> {
        let (listed, held) = (references.len(), self.waiting.len());
        let mut meant = VecDeque::new();
        for reference in references {
            meant.push_back(match reference_text(reference) {
                Some(Reference::Address(text)) => Given::Carried(self.take_carried(text)?),
                _ => Given::Reference(reference.clone()),
            });
        }
        if self.naming == Some(Naming::Place) && listed != held {
            let reason = format!("the sample lists {listed} images and holds {held}");
            return Err(flaw("image-count", reason)
                .hint("name the images that are meant in dataset.fields.images"));
        }
        Ok(meant)
    }

    /// The carried image that a reference means.
    fn take_carried(&mut self, reference: &str) -> Result<Carried, Flaw> {
        let named = self.waiting.iter().position(
            |given| matches!(given, Given::Carried(carried) if carried.is_named(reference)),
        );
        let naming = if named.is_some() { Naming::Name } else { Naming::Place };
        if *self.naming.get_or_insert(naming) != naming {
            let reason = format!("the sample holds no image {}", quoted(reference));
            return Err(
                flaw("bad-image", reason).hint("name all images as the sample holds them, or none")
            );
        }
        match self.waiting.remove(named.unwrap_or(0)) {
            Some(Given::Carried(carried)) => Ok(carried),
            _ => Err(flaw(
                "image-count",
                format!("the sample refers to {} and holds too few images", quoted(reference)),
            )),
        }
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
            Some(Given::Reference(image)) => self.add(&image),
            Some(Given::Carried(carried)) => Ok(self.push(carried.image)),
            // One too many: `finish` counts to the end and refuses the sample.
            None => Ok(Part::Image(self.taken.len())),
        }
    }

    fn add(&mut self, image: &Value) -> Result<Part, Flaw> {
        let image = self.reference(image).map_err(|flaw| {
            let number = self.taken.len();
            Flaw { reason: format!("image {}: {}", number + 1, flaw.reason), ..flaw }
        })?;
        Ok(self.push(image))
    }

    fn push(&mut self, image: ImageRef) -> Part {
        self.taken.push(image);
        Part::Image(self.taken.len() - 1)
    }

    fn reference(&mut self, image: &Value) -> Result<ImageRef, Flaw> {
        match reference_text(image) {
            Some(Reference::Base64(text)) => inline(text),
            Some(Reference::Address(text)) if self.carried => {
                self.mentions += 1;
                self.take_carried(text).map(|carried| carried.image)
            }
            Some(Reference::Data(text) | Reference::Address(text)) => self.media.resolve(text),
            None => Err(no_reference(image)),
        }
    }

    pub(super) fn finish(self) -> Result<Vec<ImageRef>, Flaw> {
        let Self { given, mentions, .. } = self;
        if self.taken.len() > MOST_IMAGES {
            let reason = format!(
                "the sample has {} images, and up to {MOST_IMAGES} are read",
                self.taken.len()
            );
            return Err(flaw("too-many-images", reason).hint("make several samples of it"));
        }
        if given == mentions {
            return Ok(self.taken);
        }
        let reason = format!("the sample has {given} images and mentions {mentions} of them");
        Err(flaw("image-count", reason).hint(
            "each image needs one `<image>` placeholder or one image part without a reference",
        ))
    }
}

/// What a reference is by its letters.
enum Reference<'a> {
    Base64(&'a str),
    Data(&'a str),
    Address(&'a str),
}

/// The reference in a string, or in an object that holds one.
fn reference_text(image: &Value) -> Option<Reference<'_>> {
    let text = match image {
        Value::String(text) => text,
        Value::Object(object) => match own_reference(object)? {
            ("base64", Value::String(text)) if !text.starts_with("data:") => {
                return Some(Reference::Base64(text));
            }
            (_, Value::String(text)) => text,
            ("image" | "image_url", Value::Object(inner)) => match own_reference(inner)? {
                (_, Value::String(text)) => text,
                _ => return None,
            },
            _ => return None,
        },
        _ => return None,
    };
    Some(match strip_prefix_ignoring_case(text, "data:") {
        Some(_) => Reference::Data(text),
        None => Reference::Address(text),
    })
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
