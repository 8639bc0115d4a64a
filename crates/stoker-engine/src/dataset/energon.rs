//! Energon's `.nv-meta`: which archives a part of a dataset is made of.
//!
//! A split file names the shards of each part (`train`, `val`, …), and `.info.json` tells how many
//! samples each of them has, which is compared with what is found. The archives themselves are
//! walked as any others: its index files name where samples lie, and not what is in them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::{Store, failure};
use crate::error::{Bytes, Error, FetchErrorKind, Result};
use crate::recipe::patterns;
use crate::sample::Location;

const FOLDER: &str = ".nv-meta";
const USUAL: &str = "train";
/// Where the numbers of samples stand: in files of today and of earlier versions.
const COUNTS: [&str; 2] = [".info.json", ".info.yaml"];
/// Largest file that is read: a shard takes some 50 bytes.
const LARGEST: u64 = 64 << 20;
/// Most shards that its lines name together, as in a recipe.
const MOST_SHARDS: usize = 1_000_000;

#[derive(Deserialize)]
struct Splits {
    split_parts: BTreeMap<String, Vec<String>>,
    exclude: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct Info {
    shard_counts: HashMap<String, u64>,
}

/// A shard that a split file names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shard {
    pub(super) location: Location,
    /// Samples that Energon counted in it.
    pub(super) told: Option<u64>,
}

/// The address of a split file and the part that is meant, if that is what a name is:
/// `…/.nv-meta/split.yaml`, with `#part` behind it or without.
pub(super) fn split_file(name: &str) -> Option<(&str, &str)> {
    let part = name.rsplit_once('#').filter(|(_, part)| !part.contains('/'));
    let (address, part) = part.unwrap_or((name, USUAL));
    let (folder, file) = address.rsplit_once('/').unwrap_or(("", address));
    let is_inside = folder.rsplit('/').next() == Some(FOLDER);
    let is_named = [".yaml", ".yml", ".json"].iter().any(|ending| file.ends_with(ending));
    (is_inside && is_named && !file.starts_with('.')).then_some((address, part))
}

/// The shards of a part, in order.
pub(super) fn shards(store: &impl Store, file: &Location, part: &str) -> Result<Vec<Shard>> {
    let refuse = |reason: String, hint: &str| failure(file.shown(), reason, Some(hint));
    let Splits { split_parts: parts, exclude } = document(store, file)?;
    let Some(meant) = parts.get(part) else {
        let known = parts.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        let reason = format!("there is no part {part:?}; the parts are {known}");
        return Err(refuse(reason, "write #part behind the name of the split file"));
    };
    let expanded = |names: &[String]| {
        let hint = "give the part fewer shards";
        let mut all = Vec::new();
        for name in names {
            all.extend(patterns::expand(name).map_err(|reason| refuse(reason, hint))?);
            if all.len() > MOST_SHARDS {
                return Err(refuse(format!("it names more than {MOST_SHARDS} shards"), hint));
            }
        }
        Ok(all)
    };
    let excluded: HashSet<String> = expanded(&exclude.unwrap_or_default())?.into_iter().collect();
    let mut names = expanded(meant)?;
    // A sample is left out by the name of its shard, a slash and its own.
    let known: HashSet<&str> = names.iter().map(String::as_str).collect();
    let inside = excluded.iter().filter(|name| {
        let shard = name.rsplit_once('/').map(|(shard, _)| shard);
        shard.is_some_and(|shard| known.contains(shard))
    });
    if let Some(sample) = inside.min() {
        let reason = format!("the part leaves out single samples, such as {sample:?}");
        let hint = "only whole shards can be left out: write the shards anew without these samples";
        return Err(refuse(reason, hint));
    }
    names.retain(|name| !excluded.contains(name));
    if names.is_empty() {
        return Err(refuse(format!("the part {part:?} has no shards"), "name another part"));
    }
    let folder = file.folder();
    let counts = counts(store, &folder)?;
    let root = folder.folder();
    let shard = |name: String| match root.join(&name) {
        Ok(location) => Ok(Shard { location, told: counts.get(&name).copied() }),
        Err(flaw) => Err(refuse(flaw.reason, "shards lie in the folder that holds .nv-meta")),
    };
    names.into_iter().map(shard).collect()
}

/// How many samples each shard has, where that is told.
fn counts(store: &impl Store, folder: &Location) -> Result<HashMap<String, u64>> {
    for name in COUNTS {
        let file = Location { key: format!("{}/{name}", folder.key), ..folder.clone() };
        match document(store, &file) {
            Ok(Info { shard_counts }) => return Ok(shard_counts),
            Err(Error::Fetch(error)) if error.kind == FetchErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(HashMap::new())
}

/// Reads YAML, of which JSON is a part.
fn document<T: DeserializeOwned>(store: &impl Store, file: &Location) -> Result<T> {
    let size = store.stat(file)?.size;
    let hint = "name the split file of an Energon dataset, such as .nv-meta/split.yaml";
    let refuse = |reason: String| failure(file.shown(), reason, Some(hint));
    if size > LARGEST {
        return Err(refuse(format!("the file has {}", Bytes(size))));
    }
    let bytes = store.ranges(&Arc::new(file.clone()))(0..size)?;
    serde_saphyr::from_slice(&bytes)
        .map_err(|error| refuse(format!("the file is none of Energon's: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_files_are_known_by_their_place_and_may_name_a_part() {
        for (name, expected) in [
            ("s3://b/d/.nv-meta/split.yaml", Some(("s3://b/d/.nv-meta/split.yaml", "train"))),
            ("/d/.nv-meta/split.json#val", Some(("/d/.nv-meta/split.json", "val"))),
            (".nv-meta/mine.yml#a-b", Some((".nv-meta/mine.yml", "a-b"))),
            ("/a#b/.nv-meta/split.yaml", Some(("/a#b/.nv-meta/split.yaml", "train"))),
            ("/d/.nv-meta/.info.json", None),
            ("/d/.nv-meta/index.sqlite", None),
            ("/d/nv-meta/split.yaml", None),
            ("/d/x.nv-meta/split.yaml", None),
            ("/d/.nv-meta/x/split.yaml", None),
            ("split.yaml", None),
            ("s3://b/train.jsonl", None),
        ] {
            assert_eq!(split_file(name), expected, "{name}");
        }
    }
}
