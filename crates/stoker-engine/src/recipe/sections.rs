//! The sections of a recipe, typed. One field is one key (`batch_size` is `batch-size`), with its
//! default and the reason for it.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::{Compat, Component, Decimal, Fetch, Stage, choices};

/// What the user asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct Recipe {
    /// Folder of the model: `tokenizer.json`, the chat template and `preprocessor_config.json` are
    /// looked for here unless a section names them.
    pub model: Option<String>,
    /// Whose rules to follow where the references disagree.
    pub compat: Compat,
    /// What exists, and how much of it is asked for; at least one.
    pub datasets: Vec<Component>,
    /// In which order.
    pub plan: Plan,
    /// How bytes are brought in.
    pub fetch: Fetch,
    /// What images are accepted.
    pub image: Image,
    /// What the model sees of them.
    pub vision: Vision,
    /// What the model reads and learns.
    pub text: Text,
    /// What a batch holds.
    pub pack: Pack,
    /// How much memory and how many threads.
    pub engine: Engine,
}

/// `[plan]`: the order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Chooses the order. 0.
    pub seed: u64,
    /// How rows are shuffled. `full`.
    pub shuffle: Shuffle,
    /// Blocks of neighbouring rows that are mixed with one another, where `shuffle` is `block`; 16
    /// by default.
    pub window: Option<u32>,
    /// How often the data is seen; endless by default, as trainers count steps. Where datasets have
    /// weights, an epoch is as many samples as they have rows together.
    pub epochs: Option<u64>,
    /// What becomes of the end of a run, where it makes no whole round of batches. `fill`.
    pub remainder: Remainder,
    /// Evens out the sizes of datasets: their weights are the rows to the power of 1 / temperature.
    /// In proportion to the rows by default, as at 1.
    pub temperature: Option<Decimal>,
    /// Weights that change, in order; none by default.
    pub stages: Vec<Stage>,
    /// Number of fixed sub-streams; the number of ranks must divide it. 64, so that all usual
    /// numbers of ranks do.
    pub lanes: u32,
}

/// How rows are shuffled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shuffle {
    /// Any row anywhere, newly in each epoch.
    Full,
    /// Blocks of neighbouring rows in any order, newly in each epoch; mixed within a window of them.
    Block,
    /// In the order of the source.
    None,
}

impl Shuffle {
    /// The name that recipes use.
    pub fn as_str(self) -> &'static str {
        choices::name_of(choices::SHUFFLE, &self)
    }
}

/// What becomes of the last samples of a run, where they make no whole batch for every rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remainder {
    /// They come, and what is missing is filled up from the epoch after.
    Fill,
    /// They come, each row once, and what is missing is padded with what a mask leaves out: for
    /// evaluation.
    Pad,
    /// They are left out.
    Drop,
}

impl Remainder {
    /// The name that recipes use.
    pub fn as_str(self) -> &'static str {
        choices::name_of(choices::REMAINDER, &self)
    }
}

/// `[image]`: what is accepted, before any decoder runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Most pixels. 100 million, as most image servers have it.
    pub max_pixels: u64,
    /// Longest side, in pixels. 65,500, which is JPEG's own limit.
    pub max_side: u32,
    /// Largest file, in bytes. 64 MiB.
    pub max_bytes: u64,
    /// Most scans of a progressive JPEG. 100; hundreds are an attack on the decoder's time.
    pub max_scans: u32,
    /// Whether a JPEG of at least twice the size that the model sees may be decoded at a half, a
    /// quarter or an eighth of its size, which is quicker and not exact. No.
    pub approximate: bool,
}

/// `[vision]`: what the model sees.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Vision {
    /// Model family, such as `qwen3-vl`, where no `preprocessor_config.json` says it.
    pub family: Option<String>,
    /// Path of a `preprocessor_config.json` or `processor_config.json`, in place of the model
    /// folder's.
    pub config: Option<String>,
    /// Fewest pixels after resizing, in place of the model's.
    pub min_pixels: Option<u64>,
    /// Most pixels after resizing, in place of the model's.
    pub max_pixels: Option<u64>,
    /// What is written and moved.
    pub pixels: Pixels,
}

/// Element type of `pixel_values`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pixels {
    /// Normalised, 32 bits: what transformers' processor gives.
    #[default]
    F32,
    /// Normalised, rounded to the nearest even bf16: what the model makes of it first.
    Bf16,
    /// As bytes without the temporal copy, an eighth of the size; finished on the device.
    U8,
}

/// `[text]`: what the model reads and learns.
#[derive(Clone, Debug, PartialEq)]
pub struct Text {
    /// Path of a `tokenizer.json`, in place of the model folder's.
    pub tokenizer: Option<String>,
    /// Path of a Jinja chat template, in place of the model folder's.
    pub chat_template: Option<String>,
    /// More variables for the chat template, such as `add_vision_id`.
    pub template_options: serde_json::Map<String, serde_json::Value>,
    /// Which turns are learned. `assistant`.
    pub train_on: TrainOn,
    /// Whether the line break after the end-of-turn token is learned too. Yes, as the reference
    /// trainers do.
    pub train_newline: bool,
    /// Longest sample in tokens, image tokens included; no limit by default.
    pub max_tokens: Option<u32>,
    /// What becomes of longer ones. `refuse`.
    pub on_too_long: OnTooLong,
}

/// Which turns are learned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrainOn {
    /// All assistant turns.
    Assistant,
    /// The last assistant turn.
    LastAssistant,
    /// All turns (content and end of turn; never image placeholders).
    All,
}

/// What becomes of samples over `max-tokens`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnTooLong {
    /// The sample is a bad sample.
    Refuse,
    /// Whole turns are dropped from the end, with their images.
    DropTurns,
    /// Whole images are dropped from the end; the text stays.
    DropImages,
}

/// `[pack]`: what a batch holds, and how. Either `batch_size` or `max_tokens` is set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pack {
    /// Samples per batch and rank. 8.
    pub batch_size: Option<u32>,
    /// Most tokens per batch and rank, image tokens and padding included, in place of
    /// `batch-size`: as many samples share a batch as go into it.
    pub max_tokens: Option<u32>,
    /// With `max-tokens`: most images per batch; no limit by default.
    pub max_images: Option<u32>,
    /// With `max-tokens`: most rows of `pixel_values` per batch; no limit by default.
    pub max_patches: Option<u32>,
    /// Fewest images per batch; what is missing is made up with neutral ones. 0; 1 is what sharded
    /// vision towers need, as ranks without an image would hang them.
    pub min_images_per_batch: u32,
    /// How samples lie in a batch. `padded`; with `max-tokens` it is `packed`.
    pub layout: BatchLayout,
    /// The token dimension is padded to a multiple of this. 1.
    pub pad_to_multiple: u32,
}

/// How samples lie in a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchLayout {
    /// Each in a row of its own.
    Padded,
    /// All in one row, as transformers takes it.
    Packed,
    /// All in one row, as Qwen's finetuning code takes it.
    OfficialFinetune,
}

/// `[engine]`: memory and threads.
#[derive(Clone, Debug, PartialEq)]
pub struct Engine {
    /// Bytes for compressed images and batches together; by default a quarter of the memory that
    /// the process may use, shared with the other ranks on the machine, at most 16 GiB.
    pub memory: Option<u64>,
    /// Worker threads; by default the cores that the process may use, shared with the other ranks on
    /// the machine.
    pub workers: Option<u32>,
    /// Ranks that share the machine, its cores and its memory; in Python by default what the launcher
    /// says, else 1.
    pub local_world_size: Option<u32>,
    /// Batches whose samples are brought in ahead of the one that is asked for, as far as memory
    /// allows; by default those of half a second at the pace of the trainer, and at least 256 samples once
    /// the first batch is taken.
    /// At 0 a batch is made when it is asked for.
    pub prefetch: Option<u32>,
    /// What becomes of bad samples. `replace`.
    pub on_bad_sample: OnBadSample,
    /// Largest share of bad samples before the run is stopped. 0.01.
    pub bad_sample_limit: f64,
    /// Folder that bad samples are written down in while the run goes on, a file for each rank; not
    /// written down by default.
    pub ledger: Option<String>,
    /// Address and port at which what the loader does is read over HTTP, by Prometheus and others.
    /// Ranks that share the machine take the first free port from there on; 0 is any free port. Not
    /// served by default.
    pub metrics: Option<SocketAddr>,
}

/// What becomes of bad samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnBadSample {
    /// Replaced by another row, or neutralised where that is too late; counted.
    Replace,
    /// The run stops with an error.
    Stop,
}

impl Default for Recipe {
    fn default() -> Self {
        Self {
            model: None,
            compat: Compat::default(),
            datasets: vec![Component::default()],
            plan: Plan::default(),
            fetch: Fetch::default(),
            image: Image::default(),
            vision: Vision::default(),
            text: Text::default(),
            pack: Pack::default(),
            engine: Engine::default(),
        }
    }
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            seed: 0,
            shuffle: Shuffle::Full,
            window: None,
            epochs: None,
            remainder: Remainder::Fill,
            temperature: None,
            stages: Vec::new(),
            lanes: 64,
        }
    }
}

impl Default for Image {
    fn default() -> Self {
        Self {
            max_pixels: 100_000_000,
            max_side: 65_500,
            max_bytes: 64 << 20,
            max_scans: 100,
            approximate: false,
        }
    }
}

impl Default for Text {
    fn default() -> Self {
        Self {
            tokenizer: None,
            chat_template: None,
            template_options: serde_json::Map::new(),
            train_on: TrainOn::Assistant,
            train_newline: true,
            max_tokens: None,
            on_too_long: OnTooLong::Refuse,
        }
    }
}

impl Default for Pack {
    fn default() -> Self {
        Self {
            batch_size: Some(8),
            max_tokens: None,
            max_images: None,
            max_patches: None,
            min_images_per_batch: 0,
            layout: BatchLayout::Padded,
            pad_to_multiple: 1,
        }
    }
}

impl Default for Engine {
    fn default() -> Self {
        Self {
            memory: None,
            workers: None,
            local_world_size: None,
            prefetch: None,
            on_bad_sample: OnBadSample::Replace,
            bad_sample_limit: 0.01,
            ledger: None,
            metrics: None,
        }
    }
}
