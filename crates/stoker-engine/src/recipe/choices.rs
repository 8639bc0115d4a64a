//! The names that recipes use for closed choices (those of `compat` stand with its table).

use super::{
    Addressing, BatchLayout, Format, OnBadSample, OnTooLong, Pixels, Remainder, Shuffle, TrainOn,
};

/// The choices of one key, by name.
pub(super) type Choices<T> = [(&'static str, T)];

pub(super) const FORMAT: &Choices<Format> = &[
    ("jsonl", Format::Jsonl),
    ("webdataset", Format::WebDataset),
    ("parquet", Format::Parquet),
    ("mds", Format::Mds),
];

pub(super) const SHUFFLE: &Choices<Shuffle> =
    &[("full", Shuffle::Full), ("block", Shuffle::Block), ("none", Shuffle::None)];

pub(super) const REMAINDER: &Choices<Remainder> =
    &[("fill", Remainder::Fill), ("pad", Remainder::Pad), ("drop", Remainder::Drop)];

pub(super) const ADDRESSING: &Choices<Addressing> =
    &[("path", Addressing::Path), ("virtual-host", Addressing::VirtualHost)];

pub(super) const PIXELS: &Choices<Pixels> =
    &[("f32", Pixels::F32), ("bf16", Pixels::Bf16), ("u8", Pixels::U8)];

pub(super) const TRAIN_ON: &Choices<TrainOn> = &[
    ("assistant", TrainOn::Assistant),
    ("last-assistant", TrainOn::LastAssistant),
    ("all", TrainOn::All),
];

pub(super) const ON_TOO_LONG: &Choices<OnTooLong> = &[
    ("refuse", OnTooLong::Refuse),
    ("drop-turns", OnTooLong::DropTurns),
    ("drop-images", OnTooLong::DropImages),
];

pub(super) const LAYOUT: &Choices<BatchLayout> = &[
    ("padded", BatchLayout::Padded),
    ("packed", BatchLayout::Packed),
    ("official-finetune", BatchLayout::OfficialFinetune),
];

pub(super) const ON_BAD_SAMPLE: &Choices<OnBadSample> =
    &[("replace", OnBadSample::Replace), ("stop", OnBadSample::Stop)];

/// The name of a choice.
pub(super) fn name_of<T: PartialEq>(choices: &Choices<T>, choice: &T) -> &'static str {
    choices
        .iter()
        .find(|(_, known)| known == choice)
        .map(|(name, _)| *name)
        .expect("each variant has a name: a test walks them all")
}
