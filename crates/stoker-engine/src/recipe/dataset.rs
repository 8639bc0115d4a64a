//! The section `[dataset]`, typed: what there is to read, and what it is.

use crate::sample::shown_address;

/// `[dataset]`: chat samples with images, in shards.
#[derive(Clone, Debug, PartialEq)]
pub struct Dataset {
    /// URIs or paths of the shards, in order; each may be a pattern of many.
    pub source: Vec<String>,
    /// What the shards are; by default what their names say.
    pub format: Option<Format>,
    /// Which key, column or member holds what, where names are not the usual ones.
    pub fields: Fields,
    /// URI or folder that relative image paths start from; by default the folder of the source.
    pub media_root: Option<String>,
    /// Whether images may lie at `http(s)` addresses (public ones only). Off, because data could
    /// otherwise make the cluster call any address.
    pub allow_http: bool,
    /// Longest line or text of a sample that is read, in bytes. 16 MiB: inline images are rare and
    /// larger lines are mostly a missing line break.
    pub max_line: u64,
    /// Largest dataset that is copied to where the index lies, in bytes of all its shards, if its
    /// rows can't be read at random (compressed shards, Parquet). 64 GiB: as much as any disk has.
    pub max_copied: u64,
    /// Folder for indexes; by default beside a local source, or `~/.cache/stoker`.
    pub index_dir: Option<String>,
}

impl Dataset {
    /// What people know it by: its source, or the first of them, without what may be secret in it.
    pub fn shown(&self) -> String {
        match self.source.as_slice() {
            [] => String::new(),
            [only] => shown_address(only),
            [first, rest @ ..] => format!("{} and {} more", shown_address(first), rest.len()),
        }
    }
}

/// The kinds of shard that are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// A JSON object per line; images are references, or stand in the line as `data:` URIs.
    Jsonl,
    /// A tar archive as WebDataset has it: the members of a sample stand together under one key.
    WebDataset,
    /// Parquet as Hugging Face has it: images are structs of bytes and path.
    Parquet,
    /// Mosaic's MDS, named by its `index.json`.
    Mds,
}

/// `[dataset.fields]`: names of JSON keys, Parquet columns or WebDataset members.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Fields {
    /// The list of messages; by default `messages`, `conversations` or `texts`.
    pub messages: Option<String>,
    /// An image or a list of them each, in this order; by default `images` or `image`, and in a
    /// WebDataset all members that are named as images.
    pub images: Option<Vec<String>>,
    /// In place of messages: what the user asks, beside the images.
    pub question: Option<String>,
    /// In place of messages: what the assistant answers; without a question, a caption.
    pub answer: Option<String>,
}

impl Default for Dataset {
    fn default() -> Self {
        Self {
            source: Vec::new(),
            format: None,
            fields: Fields::default(),
            media_root: None,
            allow_http: false,
            max_line: 16 << 20,
            max_copied: 64 << 30,
            index_dir: None,
        }
    }
}
