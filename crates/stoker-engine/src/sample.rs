//! The life of one sample: one type for each stage of it.
//!
//! [`SampleId`] → [`RawSample`] (as stored) → [`Sample`] (as meant) → [`Measured`] (sizes and
//! tokens known, pixels not yet decoded) → its rows in a batch. Rooms are functions between these.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

mod location;
mod pixels;

pub use location::{Location, Scheme, shown_address};
pub use pixels::{Decoded, PixelRows};

/// Place in the endless global stream of samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Position(pub u64);

/// Address of one sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SampleId {
    /// Number of the dataset in the recipe, from 0.
    pub dataset: u32,
    /// Row of the dataset, from 0.
    pub row: u64,
}

/// Bytes to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The object that they lie in.
    pub object: Arc<Location>,
    /// Which of its bytes; `None` is all of them.
    pub range: Option<Range<u64>>,
}

/// A sample as stored.
#[derive(Clone, Debug)]
pub struct RawSample {
    /// Which sample.
    pub id: SampleId,
    /// Its line, without the line break.
    pub bytes: Bytes,
    /// The file and line that it stands in, for errors.
    pub origin: String,
}

/// A sample as meant: a conversation and references to its images in the order of their mention.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Which sample.
    pub id: SampleId,
    /// Who said what.
    pub conversation: Conversation,
    /// The images, numbered as [`Part::Image`] names them.
    pub images: Vec<ImageRef>,
    /// The file and line that it stands in, for errors.
    pub origin: String,
}

/// Turns, and the tools that the assistant may call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Conversation {
    /// The turns, in order.
    pub turns: Vec<Turn>,
    /// Tool declarations as the chat template takes them.
    pub tools: Vec<serde_json::Value>,
}

/// One message.
#[derive(Clone, Debug, PartialEq)]
pub struct Turn {
    /// `system`, `user`, `assistant` or `tool`.
    pub role: String,
    /// What was said.
    pub content: Content,
    /// Other fields that chat templates read (`tool_calls`, `tool_call_id`, `name`,
    /// `reasoning_content`), as they stood in the data.
    pub extra: serde_json::Map<String, serde_json::Value>,
    /// The data's own word on whether this turn is learned, if it has one.
    pub train: Option<bool>,
}

/// What was said: chat templates tell a string from a list of parts.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// A string.
    Text(String),
    /// A list of parts.
    Parts(Vec<Part>),
}

/// A piece of a message.
#[derive(Clone, Debug, PartialEq)]
pub enum Part {
    /// Text.
    Text(String),
    /// The image of that number in [`Sample::images`].
    Image(usize),
}

/// Where an image comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageRef {
    /// It stood in the sample (a `data:` URI).
    Inline(Bytes),
    /// It has to be fetched.
    Stored(Extent),
}

/// Patches of an image as the model counts them: `image_grid_thw`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Grid {
    /// Frames divided by the temporal patch size; 1 for a still image.
    pub t: u32,
    /// Rows of patches (before merging).
    pub h: u32,
    /// Columns of patches (before merging).
    pub w: u32,
}

impl Grid {
    /// Number of patches: rows of `pixel_values`.
    pub fn patches(self) -> usize {
        self.t as usize * self.h as usize * self.w as usize
    }

    /// Number of image tokens, given the side of a merged block of patches.
    pub fn tokens(self, merge_size: u32) -> usize {
        self.patches() / (merge_size as usize * merge_size as usize)
    }
}

/// Token kinds, as `mm_token_type_ids` has them.
pub mod token_kind {
    /// Text.
    pub const TEXT: u8 = 0;
    /// An image placeholder.
    pub const IMAGE: u8 = 1;
}

/// The text of a sample with its placeholders expanded, and what the model is to learn of it. All
/// vectors have one entry per token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EncodedText {
    /// `input_ids`.
    pub tokens: Vec<u32>,
    /// Whether the token is a label (else -100).
    pub trained: Vec<bool>,
    /// `mm_token_type_ids`: see [`token_kind`].
    pub kinds: Vec<u8>,
    /// M-RoPE `position_ids`: temporal, height, width.
    pub positions: [Vec<u32>; 3],
    /// How many of the sample's images remain (the first ones); fewer than it had only where the
    /// policy for long samples dropped some.
    pub images: usize,
}

/// Width and height in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Size {
    /// Pixels across.
    pub width: u32,
    /// Pixels down.
    pub height: u32,
}

impl Size {
    /// Number of pixels.
    pub fn pixels(self) -> u64 {
        u64::from(self.width) * u64::from(self.height)
    }
}

/// The formats that are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ImageFormat {
    /// JPEG.
    Jpeg,
    /// PNG.
    Png,
    /// WebP.
    WebP,
    /// GIF (its first frame).
    Gif,
    /// Windows bitmap.
    Bmp,
}

/// What the header of an encoded image says, checked against the limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageHeader {
    /// By its magic bytes; names are not believed.
    pub format: ImageFormat,
    /// As stored in the file.
    pub stored: Size,
    /// EXIF orientation 1 to 8 that decoding will apply; 1 where there is none, where it is invalid
    /// or where the recipe's `compat` ignores it.
    pub orientation: u8,
}

impl ImageHeader {
    /// The size after decoding: as stored, with the sides swapped where the orientation turns it.
    pub fn size(&self) -> Size {
        let Size { width, height } = self.stored;
        if self.orientation >= 5 { Size { width: height, height: width } } else { self.stored }
    }
}

/// A decoded image: 8-bit RGB, rows from the top without padding. Reused from image to image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RgbImage {
    /// Pixels across.
    pub width: usize,
    /// Pixels down.
    pub height: usize,
    /// `height * width * 3` bytes.
    pub pixels: Vec<u8>,
}

/// What the model will see of an image, known before its pixels are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImagePlan {
    /// The size it is resized to.
    pub resized: Size,
    /// Its patches.
    pub grid: Grid,
}

/// An image that is measured and still encoded.
#[derive(Clone, Debug)]
pub struct EncodedImage {
    /// What people know it by: its number in the sample and where it lies.
    pub name: String,
    /// The file.
    pub bytes: Bytes,
    /// What its header says.
    pub header: ImageHeader,
    /// What becomes of it.
    pub plan: ImagePlan,
}

/// A sample whose sizes and tokens are known, and whose pixels are not decoded yet.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Which sample.
    pub id: SampleId,
    /// Its text.
    pub text: EncodedText,
    /// Its remaining images: `text.images` of them.
    pub images: Vec<EncodedImage>,
    /// The file and line that it stands in, for errors.
    pub origin: String,
    /// What it is there for.
    pub standing: Standing,
}

impl Measured {
    /// Whether it is learned and shown.
    pub fn is_shown(&self) -> bool {
        self.standing == Standing::Sample
    }
}

/// What a measured sample is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// For itself.
    Sample,
    /// To keep the place of a bad one, which it has the name of: with the tokens and the sizes of
    /// another row, of which nothing is learned or shown.
    Neutral,
    /// To pad the last batches of a pass: as a neutral one, and it counts for nothing.
    Padding,
}

/// This process in the data-parallel group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rank {
    /// Which, from 0.
    pub index: u32,
    /// Of how many.
    pub of: u32,
}

/// The name of a batch: any worker anywhere can make it from this alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BatchName {
    /// Index of the lane.
    pub lane: u32,
    /// Number of the batch in its lane, from 0.
    pub number: u64,
}

/// Where a window begins whose samples are packed together: all that there is to remember of those
/// before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowStart {
    /// Which window, from 0.
    pub number: u64,
    /// Its first sample.
    pub position: Position,
}

/// Element types of tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    /// 8-bit unsigned integer.
    U8,
    /// 32-bit signed integer.
    I32,
    /// 64-bit signed integer.
    I64,
    /// Brain float: 8 bits of exponent, 7 of mantissa.
    Bf16,
    /// IEEE 754 single precision.
    F32,
}

impl Dtype {
    /// Bytes of one element.
    pub fn size(self) -> usize {
        match self {
            Self::U8 => 1,
            Self::Bf16 => 2,
            Self::I32 | Self::F32 => 4,
            Self::I64 => 8,
        }
    }
}
