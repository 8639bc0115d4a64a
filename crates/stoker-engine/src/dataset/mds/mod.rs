//! Mosaic's MDS: an `index.json` that names shards and their columns, and shards of samples.
//!
//! A sample is its columns side by side, behind the sizes of those that vary; so like a row of an
//! archive it lies in one stretch, and what of it is read is up to the recipe. Columns are told apart
//! by the index file, which is read anew at each opening. A pickled column can run any code when it
//! is read, so it never is.

mod build;
mod columns;
mod values;

use std::sync::Arc;

use serde::Deserialize;

use super::{Store, failure};
use crate::error::{Bytes, Result};
use crate::recipe::Fields;
use crate::sample::{Location, Scheme};

pub(super) use build::build;
pub(super) use columns::{Column, Columns, Role};
pub(super) use values::{images, value};

/// Largest index file: it takes some 500 bytes a shard.
const LARGEST_INDEX: u64 = 256 << 20;

#[derive(Deserialize)]
struct Document {
    version: u32,
    shards: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    version: u32,
    format: String,
    compression: Option<String>,
    column_names: Vec<String>,
    column_encodings: Vec<String>,
    column_sizes: Vec<Option<u64>>,
    raw_data: File,
    zip_data: Option<File>,
}

#[derive(Deserialize)]
struct File {
    basename: String,
    bytes: u64,
}

/// A shard that an index file names.
#[derive(Clone, Debug)]
pub(super) struct Shard {
    pub(super) location: Location,
    pub(super) columns: Arc<Columns>,
}

/// The shards that an index file names, in order. Of a compressed shard the raw form is taken where
/// it is there too.
pub(super) fn shards(
    store: &impl Store,
    index: &Location,
    size: u64,
    fields: &Fields,
) -> Result<Vec<Shard>> {
    let uri = index.shown();
    let refuse = |reason: String, hint: &str| failure(uri.clone(), reason, Some(hint));
    if size > LARGEST_INDEX {
        let reason = format!("the index file has {}", Bytes(size));
        return Err(refuse(reason, "name the index.json of an MDS dataset"));
    }
    let bytes = store.ranges(&Arc::new(index.clone()))(0..size)?;
    let document: Document = serde_json::from_slice(&bytes).map_err(|error| {
        let reason = format!("the file is no index of an MDS dataset: {error}");
        refuse(reason, "name its index.json")
    })?;
    if document.version != 2 {
        let reason = format!("the index is of version {}, and 2 is read", document.version);
        return Err(refuse(reason, "write the dataset anew with mosaicml-streaming"));
    }
    let raw_is_there = raw_files(store, index, &document)?;
    let mut shards: Vec<Shard> = Vec::new();
    for (number, entry) in document.shards.iter().enumerate() {
        let of_shard = |reason: String| format!("shard {number}: {reason}");
        if entry.version != 2 || entry.format != "mds" {
            let reason = format!("it is {} of version {}", entry.format, entry.version);
            return Err(refuse(of_shard(reason), "write it as MDS, version 2"));
        }
        let columns =
            Columns::new(&entry.column_names, &entry.column_encodings, &entry.column_sizes, fields);
        let columns = columns.map_err(|reason| {
            refuse(of_shard(reason), "dataset.fields says which columns are read")
        })?;
        let columns = match shards.last() {
            Some(last) if *last.columns == columns => Arc::clone(&last.columns),
            _ => Arc::new(columns),
        };
        let file = match &entry.zip_data {
            Some(zip) if !raw_is_there(&entry.raw_data) => {
                let packing = entry.compression.as_deref().unwrap_or_default();
                if !["zstd", "gz"].contains(&packing.split(':').next().unwrap_or_default()) {
                    let reason = of_shard(format!("it is compressed with {packing}"));
                    return Err(refuse(reason, "use zstd, gz or no compression"));
                }
                zip
            }
            _ => &entry.raw_data,
        };
        let location = index.folder().join(&file.basename);
        let location = location.map_err(|flaw| {
            refuse(of_shard(flaw.reason), "the files of a dataset lie beside its index")
        })?;
        shards.push(Shard { location, columns });
    }
    Ok(shards)
}

/// Which raw files are there: asked once for all, and only if some are compressed.
fn raw_files(
    store: &impl Store,
    index: &Location,
    document: &Document,
) -> Result<impl Fn(&File) -> bool> {
    let folder = index.folder();
    let is_packed = document.shards.iter().any(|entry| entry.zip_data.is_some());
    let mut found = std::collections::HashMap::new();
    let remote = matches!(index.scheme, Scheme::S3 | Scheme::Gs | Scheme::Az);
    if is_packed && remote {
        let key = if folder.key.is_empty() { String::new() } else { format!("{}/", folder.key) };
        let listed = store.list(&Location { key, ..folder.clone() })?;
        found.extend(listed.into_iter().map(|(location, info)| (location, info.size)));
    } else if is_packed && index.scheme == Scheme::File {
        for entry in &document.shards {
            if let Ok(location) = folder.join(&entry.raw_data.basename)
                && let Ok(known) = std::fs::metadata(&location.key)
            {
                found.insert(location, known.len());
            }
        }
    }
    Ok(move |file: &File| {
        let location = folder.join(&file.basename).ok();
        location.and_then(|location| found.get(&location).copied()) == Some(file.bytes)
    })
}
