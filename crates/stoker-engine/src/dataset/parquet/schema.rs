//! Which columns of a Parquet file are read, and what they are: text, or images.
//!
//! Only what a chat is made of is read: the other columns of a file (embeddings, scores, a second
//! copy of the images) may be larger than all of it. A file that lacks what is needed, or holds it
//! in a form that is not read, is refused as a whole, as all of its rows are alike in that.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema};

use crate::dataset::chat::MESSAGES;
use crate::recipe::Fields;

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Images, or references to them.
    Images,
    /// Anything that JSON can say.
    Value,
}

/// A column that is read.
#[derive(Clone, Debug)]
pub(super) struct Column {
    /// Its place in the file.
    pub(super) index: usize,
    /// Its place among those that are read.
    pub(super) position: usize,
    pub(super) name: String,
    pub(super) role: Role,
}

/// What is wrong with the columns of a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unsuitable(pub(super) String);

/// The columns to read; those of images in the order of the recipe.
pub(super) fn choose(schema: &Schema, fields: &Fields) -> Result<Vec<Column>, Unsuitable> {
    let wanted = Wanted::of(fields);
    let mut columns: Vec<Column> = Vec::new();
    for (index, field) in schema.fields().iter().enumerate() {
        let name = field.name();
        let Some(role) = wanted.role(name) else { continue };
        if columns.iter().any(|column| column.name == *name) {
            return Err(Unsuitable(format!("two columns are named `{name}`")));
        }
        let kind = field.data_type();
        let wrong = match role {
            Role::Images => (!is_images(kind)).then_some("no images and no references to them"),
            Role::Value => unreadable(kind),
        };
        if let Some(wrong) = wrong {
            return Err(Unsuitable(format!("the column `{name}` holds {wrong}: it is {kind}")));
        }
        let position = columns.len();
        columns.push(Column { index, position, name: name.clone(), role });
    }
    let has = |name: &str| columns.iter().any(|column| column.name == name);
    let missing = wanted.missing(has);
    if let Some(missing) = missing {
        let names = schema.fields().iter().map(|field| field.name().as_str()).take(30);
        let names = names.collect::<Vec<_>>().join(", ");
        return Err(Unsuitable(format!("there is no column {missing}; the columns are {names}")));
    }
    columns.sort_by_key(|column| wanted.images.iter().position(|name| *name == column.name));
    Ok(columns)
}

/// The names that are looked for.
struct Wanted<'a> {
    /// One of them has to be there.
    words: Vec<&'a str>,
    /// All of them have to be there.
    named: Vec<&'a str>,
    images: Vec<&'a str>,
}

impl<'a> Wanted<'a> {
    fn of(fields: &'a Fields) -> Self {
        let exchange = [&fields.question, &fields.answer];
        let exchange = exchange.into_iter().flatten().map(String::as_str).collect::<Vec<_>>();
        let words = match &fields.messages {
            Some(messages) => vec![messages.as_str()],
            None if exchange.is_empty() => MESSAGES.to_vec(),
            None => Vec::new(),
        };
        let images = fields.images.iter().flatten().map(String::as_str).collect::<Vec<_>>();
        let named = exchange.iter().chain(&images).copied().collect();
        let images = if images.is_empty() { vec!["images", "image"] } else { images };
        Self { words, named, images }
    }

    fn role(&self, name: &str) -> Option<Role> {
        if self.images.contains(&name) {
            Some(Role::Images)
        } else if self.words.contains(&name) || self.named.contains(&name) {
            Some(Role::Value)
        } else {
            // They say what a chat is too: tools are part of it, and videos are not read.
            ["tools", "video", "videos"].contains(&name).then_some(Role::Value)
        }
    }

    fn missing(&self, has: impl Fn(&str) -> bool) -> Option<String> {
        let quote = |name: &&str| format!("`{name}`");
        if !self.words.is_empty() && !self.words.iter().any(|name| has(name)) {
            return Some(self.words.iter().map(quote).collect::<Vec<_>>().join(" or "));
        }
        self.named.iter().find(|name| !has(name)).map(quote)
    }
}

/// An image, a reference to one, or a list of either.
fn is_images(kind: &DataType) -> bool {
    match kind {
        DataType::List(item) | DataType::LargeList(item) => is_image(item.data_type()),
        other => is_image(other),
    }
}

fn is_image(kind: &DataType) -> bool {
    is_image_struct(kind) || is_binary(kind) || is_text(kind)
}

/// Hugging Face's `Image`: bytes, a path, or both.
pub(super) fn is_image_struct(kind: &DataType) -> bool {
    let DataType::Struct(fields) = kind else { return false };
    fields.iter().any(|field| field.name() == "bytes" && is_binary(field.data_type()))
}

fn is_binary(kind: &DataType) -> bool {
    matches!(kind, DataType::Binary | DataType::LargeBinary | DataType::BinaryView)
}

fn is_text(kind: &DataType) -> bool {
    matches!(kind, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

/// What JSON can't say; images within messages are carried beside it.
fn unreadable(kind: &DataType) -> Option<&'static str> {
    match kind {
        DataType::Null | DataType::Boolean => None,
        kind if kind.is_integer() || kind.is_floating() || is_text(kind) => None,
        kind if is_image_struct(kind) => None,
        kind if is_binary(kind) => Some("bytes"),
        DataType::List(item) | DataType::LargeList(item) => unreadable(item.data_type()),
        DataType::Struct(fields) => fields.iter().find_map(|it| unreadable(it.data_type())),
        _ => Some("what is no text, number, list or struct"),
    }
}

/// The same schema with views in place of text and bytes: they may hold more than 2 GiB in a batch,
/// and share the memory of the pages that they were read from.
pub(super) fn with_views(schema: &Schema) -> Schema {
    let fields = schema.fields().iter().map(with_view);
    Schema::new(fields.collect::<Vec<_>>())
}

fn with_view(field: &Arc<Field>) -> Arc<Field> {
    let kind = match field.data_type() {
        DataType::Utf8 | DataType::LargeUtf8 => DataType::Utf8View,
        DataType::Binary | DataType::LargeBinary => DataType::BinaryView,
        DataType::List(item) => DataType::List(with_view(item)),
        DataType::LargeList(item) => DataType::LargeList(with_view(item)),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(with_view).collect()),
        _ => return Arc::clone(field),
    };
    Arc::new(field.as_ref().clone().with_data_type(kind))
}
