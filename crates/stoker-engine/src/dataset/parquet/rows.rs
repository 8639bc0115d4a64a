//! A row of a table as a record and its images.
//!
//! The images of a row are taken out of it and numbered; where they stood within messages, a
//! reference stays that names them. Images that are given by path alone stay references.
//!
//! What a sample may have is limited where samples are read. Here it ends behind that limit, so that a
//! row of millions of values, or of a few bytes that a dictionary has it repeat, is refused there and
//! takes no memory or time before.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type,
    UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, RecordBatch, StructArray};
use arrow_schema::DataType;
use serde_json::Value;

use super::schema::{Column, Role, is_image_struct};
use crate::dataset::chat::Object;
use crate::dataset::content::MOST_IMAGES;
use crate::dataset::json::MOST_VALUES;

/// Longest name of an image: no path of a file and no key of a store is longer.
const LONGEST_NAME: usize = 4096;

/// An image that stands in a row.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Image<'a> {
    pub(super) name: String,
    pub(super) bytes: &'a [u8],
}

/// What a row says, and the images that stand in it.
#[derive(Debug, Default)]
pub(super) struct Row<'a> {
    pub(super) object: Object,
    pub(super) images: Vec<Image<'a>>,
    /// Values so far, images among them.
    values: usize,
    /// Bytes of text and of names that are still taken: one more than a sample may have.
    text_left: usize,
}

/// A row of a batch that holds these columns. It is refused if its text is longer than `max_text`.
pub(super) fn row<'a>(
    batch: &'a RecordBatch,
    columns: &[Column],
    number: usize,
    max_text: u64,
) -> Row<'a> {
    let text_left = usize::try_from(max_text).unwrap_or(usize::MAX).saturating_add(1);
    let mut row = Row { text_left, ..Row::default() };
    for column in columns {
        let array = batch.column(column.position).as_ref();
        let value = match column.role {
            Role::Images => row.images_of(array, number),
            Role::Value => row.value(array, number),
        };
        row.object.insert(column.name.clone(), value);
    }
    row
}

/// An image before it is known what else stands in its column.
#[derive(Clone, Copy)]
enum Found<'a> {
    Bytes(&'a [u8], Option<&'a str>),
    Path(&'a str),
}

impl<'a> Row<'a> {
    /// The value that stays in the record: nothing where all images stand in the row, which are then
    /// taken in order; else a list of references.
    fn images_of(&mut self, array: &'a dyn Array, number: usize) -> Value {
        if array.is_null(number) {
            return Value::Null;
        }
        let mut found = Vec::new();
        match list_range(array, number) {
            // One more than a sample may have, with those that are none.
            Some((items, range)) => {
                let images = range.take(MOST_VALUES + 1).filter_map(|at| image(items, at));
                found.extend(images.take(MOST_IMAGES + 1));
            }
            None => found.extend(image(array, number)),
        }
        let all_here = found.iter().all(|image| matches!(image, Found::Bytes(..)));
        let references: Vec<Value> = found.into_iter().map(|image| self.take(image)).collect();
        if all_here { Value::Null } else { references.into() }
    }

    /// A reference to an image, which is taken out of the row if it stands in it.
    fn take(&mut self, found: Found<'a>) -> Value {
        match found {
            Found::Path(path) => self.text(path),
            // The sample is refused, for having so many.
            Found::Bytes(..) if self.images.len() > MOST_IMAGES => Value::Null,
            Found::Bytes(bytes, path) => {
                let free = |name: &&str| self.images.iter().all(|image| image.name != **name);
                let path = path.filter(|path| (1..=LONGEST_NAME).contains(&path.len()));
                let name = path.filter(free).map(str::to_owned);
                let name = name.unwrap_or_else(|| format!("@{}", self.images.len()));
                self.images.push(Image { name: name.clone(), bytes });
                name.into()
            }
        }
    }

    /// A text, or as much of it as it takes for the row to be refused.
    fn text(&mut self, text: &str) -> Value {
        let mut ends = self.text_left..text.len();
        let end = ends.find(|end| text.is_char_boundary(*end)).unwrap_or(text.len());
        self.text_left = self.text_left.saturating_sub(end);
        text[..end].into()
    }

    fn value(&mut self, array: &'a dyn Array, number: usize) -> Value {
        self.values += 1;
        if self.values > MOST_VALUES + 1 || array.is_null(number) {
            return Value::Null;
        }
        macro_rules! number {
            ($kind:ty) => {
                array.as_primitive::<$kind>().value(number).into()
            };
        }
        match array.data_type() {
            DataType::Boolean => array.as_boolean().value(number).into(),
            DataType::Int8 => number!(Int8Type),
            DataType::Int16 => number!(Int16Type),
            DataType::Int32 => number!(Int32Type),
            DataType::Int64 => number!(Int64Type),
            DataType::UInt8 => number!(UInt8Type),
            DataType::UInt16 => number!(UInt16Type),
            DataType::UInt32 => number!(UInt32Type),
            DataType::UInt64 => number!(UInt64Type),
            DataType::Float16 => {
                f64::from(array.as_primitive::<Float16Type>().value(number)).into()
            }
            DataType::Float32 => number!(Float32Type),
            DataType::Float64 => number!(Float64Type),
            DataType::Utf8View => self.text(array.as_string_view().value(number)),
            kind if is_image_struct(kind) => {
                image(array, number).map_or(Value::Null, |found| self.take(found))
            }
            DataType::Struct(_) => self.object(array.as_struct(), number).into(),
            _ => match list_range(array, number) {
                Some((items, range)) => {
                    let rest = (MOST_VALUES + 1).saturating_sub(self.values);
                    range.take(rest).map(|at| self.value(items, at)).collect()
                }
                // What remains was refused with the schema, or is null in every row.
                None => Value::Null,
            },
        }
    }

    fn object(&mut self, array: &'a StructArray, number: usize) -> Object {
        let fields = array.fields().iter().zip(array.columns());
        let mut object = Object::new();
        for (field, column) in fields {
            if self.text_left == 0 {
                break;
            }
            self.text_left = self.text_left.saturating_sub(field.name().len());
            object.insert(field.name().clone(), self.value(column.as_ref(), number));
        }
        object
    }
}

/// The items of a list, and which of them are this row's.
fn list_range(array: &dyn Array, number: usize) -> Option<(&dyn Array, std::ops::Range<usize>)> {
    if let Some(list) = array.as_list_opt::<i32>() {
        let ends = list.value_offsets();
        return Some((list.values().as_ref(), ends[number] as usize..ends[number + 1] as usize));
    }
    let list = array.as_list_opt::<i64>()?;
    let ends = list.value_offsets();
    Some((list.values().as_ref(), ends[number] as usize..ends[number + 1] as usize))
}

fn image(array: &dyn Array, number: usize) -> Option<Found<'_>> {
    if array.is_null(number) {
        return None;
    }
    match array.data_type() {
        DataType::BinaryView => Some(Found::Bytes(array.as_binary_view().value(number), None)),
        DataType::Utf8View => Some(Found::Path(array.as_string_view().value(number))),
        _ => {
            let parts = array.as_struct_opt()?;
            let part = |name| parts.column_by_name(name).filter(|it| it.is_valid(number));
            let path = part("path").and_then(|path| path.as_string_view_opt());
            let path = path.map(|path| path.value(number));
            let bytes = part("bytes").and_then(|bytes| bytes.as_binary_view_opt());
            match bytes.map(|bytes| bytes.value(number)) {
                Some(bytes) => Some(Found::Bytes(bytes, path)),
                None => path.map(Found::Path),
            }
        }
    }
}
