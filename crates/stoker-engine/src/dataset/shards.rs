//! From what the recipe names to the shards of a dataset: which objects, in which order, of which
//! format.
//!
//! Sizes and versions are learned with as few requests as can be: a pattern is one listing, and
//! shards that stand side by side are listed together rather than asked for one by one.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use glob::{MatchOptions, Pattern};

use super::location::split_scheme;
use super::mds::{self, Columns};
use super::{Store, energon, failure, problem};
use crate::error::{Error, FetchErrorKind, Flaw, Problem, Result};
use crate::fetch::ObjectInfo;
use crate::recipe::{self, Format, patterns};
use crate::sample::{Location, Scheme};

/// As shells have it: `*` stays within a folder and does not find hidden files.
const RULES: MatchOptions = MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: true,
};
/// So many shards of one folder are listed; fewer are asked for one by one.
const LISTED: usize = 32;

/// One shard.
#[derive(Clone, Debug)]
pub(super) struct Shard {
    pub(super) location: Arc<Location>,
    pub(super) info: ObjectInfo,
    /// What its rows are made of, where another file says so.
    pub(super) columns: Option<Arc<Columns>>,
}

/// All shards, in order, and what they are.
#[derive(Debug)]
pub(super) struct Shards {
    pub(super) format: Format,
    pub(super) all: Vec<Shard>,
    /// How many samples some of them have, where another file tells it.
    pub(super) told: HashMap<Location, u64>,
}

/// The shards that the recipe names.
pub(super) fn find(config: &recipe::Dataset, store: &impl Store) -> Result<Shards> {
    let mut found: Vec<(Location, Option<ObjectInfo>)> = Vec::new();
    let mut told = HashMap::new();
    for source in &config.source {
        let names = patterns::expand(source).map_err(|reason| wrong(reason, None))?;
        for name in names {
            let Some(plain) = plain(&name) else {
                found.extend(matching(&name, store)?);
                continue;
            };
            let object = |name: &str| Location::parse_object(name).map_err(problem(KEY));
            let Some((file, part)) = energon::split_file(&plain) else {
                found.push((object(&plain)?, None));
                continue;
            };
            for shard in energon::shards(store, &object(file)?, part)? {
                told.extend(shard.told.map(|told| (shard.location.clone(), told)));
                found.push((shard.location, None));
            }
        }
    }
    refuse_twice(&found)?;
    let format = match config.format {
        Some(format) => format,
        None => common_format(&found)?,
    };
    let mut shards = of_objects(found, store)?;
    if format == Format::Mds {
        shards = of_indexes(shards, config, store)?;
    }
    Ok(Shards { format, all: shards, told })
}

fn of_objects(
    found: Vec<(Location, Option<ObjectInfo>)>,
    store: &impl Store,
) -> Result<Vec<Shard>> {
    let (locations, known): (Vec<_>, Vec<_>) =
        found.into_iter().map(|(location, info)| (Arc::new(location), info)).unzip();
    let infos = described(&locations, known, store)?;
    let shards = locations.into_iter().zip(infos);
    Ok(shards.map(|(location, info)| Shard { location, info, columns: None }).collect())
}

/// The shards that index files name.
fn of_indexes(
    indexes: Vec<Shard>,
    config: &recipe::Dataset,
    store: &impl Store,
) -> Result<Vec<Shard>> {
    let mut named = Vec::new();
    for Shard { location, info, .. } in indexes {
        named.extend(mds::shards(store, &location, info.size, &config.fields)?);
    }
    let (found, columns): (Vec<_>, Vec<_>) =
        named.into_iter().map(|shard| ((shard.location, None), shard.columns)).unzip();
    refuse_twice(&found)?;
    let shards = of_objects(found, store)?.into_iter().zip(columns);
    Ok(shards.map(|(shard, columns)| Shard { columns: Some(columns), ..shard }).collect())
}

const KEY: &str = "dataset.source";

fn wrong(reason: impl Into<String>, hint: Option<&str>) -> Error {
    let hint = hint.map(str::to_owned);
    Error::Recipe(vec![Problem { path: KEY.to_owned(), reason: reason.into(), hint }])
}

/// The letters of a name that is no pattern.
fn plain(name: &str) -> Option<String> {
    if is_web(name) { Some(name.to_owned()) } else { patterns::literal(name) }
}

fn is_web(name: &str) -> bool {
    matches!(split_scheme(name), Some(("http" | "https", _)))
}

/// What a pattern finds, sorted by name; or else the object of that very name.
fn matching(text: &str, store: &impl Store) -> Result<Vec<(Location, Option<ObjectInfo>)>> {
    let pattern = anchored(text).and_then(|text| Location::parse(&text)).map_err(problem(KEY))?;
    let mut found = match pattern.scheme {
        Scheme::File => local(&pattern)?,
        _ => listed(&pattern, store)?,
    };
    found.retain(|(location, _)| !is_ours(location));
    found.sort_by(|a, b| a.0.key.cmp(&b.0.key));
    if !found.is_empty() {
        return Ok(found);
    }
    let literal = Location::parse_object(&patterns::unquoted(text)).map_err(problem(KEY))?;
    match store.stat(&literal) {
        Ok(info) => Ok(vec![(literal, Some(info))]),
        Err(Error::Fetch(error)) if error.kind == FetchErrorKind::NotFound => {
            let hint = "check the name; `*` does not reach into folders, `**` does";
            Err(wrong(format!("{text} finds nothing"), Some(hint)))
        }
        Err(error) => Err(error),
    }
}

/// A relative path begins in the current folder, which is no part of the pattern.
fn anchored(text: &str) -> Result<String, Flaw> {
    if text.starts_with('/') || split_scheme(text).is_some() {
        return Ok(text.to_owned());
    }
    let folder = std::path::absolute(".").map_err(|error| {
        super::flaw("bad-address", format!("the current folder has no path: {error}"))
    })?;
    Ok(format!("{}/{text}", patterns::quoted(&folder.to_string_lossy())))
}

fn local(pattern: &Location) -> Result<Vec<(Location, Option<ObjectInfo>)>> {
    let Ok(paths) = glob::glob_with(&pattern.key, RULES) else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for path in paths {
        let path = path.map_err(|error| {
            let reason = format!("a folder can't be read: {}", error.error());
            failure(error.path().display().to_string(), reason, Some("check its permissions"))
        })?;
        if path.is_file() {
            let Some(_) = path.to_str() else {
                let reason = "the name of a file is not UTF-8";
                return Err(failure(path.display().to_string(), reason, Some("rename it")));
            };
            found.push((Location::of_file(&path), None));
        }
    }
    Ok(found)
}

fn listed(pattern: &Location, store: &impl Store) -> Result<Vec<(Location, Option<ObjectInfo>)>> {
    let Ok(rule) = Pattern::new(&pattern.key) else { return Ok(Vec::new()) };
    // What stands before the first letter with a meaning is the same in all names.
    let end = pattern.key.find(['*', '?', '[']).unwrap_or(pattern.key.len());
    let prefix = Location { key: pattern.key[..end].to_owned(), ..pattern.clone() };
    let found = store.list(&prefix)?.into_iter();
    let found = found.filter(|(location, _)| rule.matches_with(&location.key, RULES));
    Ok(found.map(|(location, info)| (location, Some(info))).collect())
}

/// Whether a file is one of those that stoker leaves beside local shards.
fn is_ours(location: &Location) -> bool {
    [".stoker-index", ".stoker-lines"].iter().any(|ending| location.key.ends_with(ending))
}

fn refuse_twice(found: &[(Location, Option<ObjectInfo>)]) -> Result<()> {
    let mut known = HashSet::new();
    match found.iter().find(|(location, _)| !known.insert(location)) {
        None => Ok(()),
        Some((location, _)) => {
            let reason = format!("{} is named twice", location.shown());
            Err(wrong(reason, Some("let no two patterns find the same shard")))
        }
    }
}

/// The format that the names of all shards tell.
fn common_format(found: &[(Location, Option<ObjectInfo>)]) -> Result<Format> {
    let told = |location: &Location| format_of(&location.key);
    let Some((first, _)) = found.first() else { return Ok(Format::Jsonl) };
    match found.iter().find(|(location, _)| told(location) != told(first)) {
        None => Ok(told(first)),
        Some((other, _)) => {
            let names = (first.shown(), other.shown());
            let reason = format!("{} and {} are of different formats by name", names.0, names.1);
            Err(wrong(reason, Some("give each format a dataset of its own, or set dataset.format")))
        }
    }
}

/// What a name tells of the format; JSON lines come under all kinds of names.
fn format_of(key: &str) -> Format {
    let name = key.split('?').next().unwrap_or_default().to_ascii_lowercase();
    let unpacked = [".gz", ".zst", ".zstd"].iter().find_map(|ending| name.strip_suffix(ending));
    let name = unpacked.unwrap_or(&name);
    let is = |endings: &[&str]| endings.iter().any(|ending| name.ends_with(ending));
    if is(&[".tar", ".tgz"]) {
        Format::WebDataset
    } else if is(&[".parquet"]) {
        Format::Parquet
    } else if name == "index.json" || is(&["/index.json"]) {
        Format::Mds
    } else {
        Format::Jsonl
    }
}

/// Sizes and versions of all shards.
fn described(
    locations: &[Arc<Location>],
    mut known: Vec<Option<ObjectInfo>>,
    store: &impl Store,
) -> Result<Vec<ObjectInfo>> {
    let mut folders: BTreeMap<Location, Vec<usize>> = BTreeMap::new();
    for (number, location) in locations.iter().enumerate() {
        let remote = matches!(location.scheme, Scheme::S3 | Scheme::Gs | Scheme::Az);
        if remote && known[number].is_none() {
            folders.entry(location.folder()).or_default().push(number);
        }
    }
    for (folder, numbers) in folders.into_iter().filter(|(_, numbers)| numbers.len() >= LISTED) {
        let keys = numbers.iter().map(|number| locations[*number].key.as_str());
        let key = keys.reduce(common_beginning).unwrap_or_default().to_owned();
        let found: BTreeMap<Location, ObjectInfo> =
            store.list(&Location { key, ..folder })?.into_iter().collect();
        for number in numbers {
            known[number] = found.get(&*locations[number]).cloned();
        }
    }
    // What a listing does not have is asked for, so that what is wrong with it is told.
    let unknown = (0..locations.len()).filter(|number| known[*number].is_none());
    let unknown: Vec<usize> = unknown.collect();
    let asked: Vec<_> = unknown.iter().map(|number| Arc::clone(&locations[*number])).collect();
    for (number, info) in unknown.into_iter().zip(store.stat_all(&asked)?) {
        known[number] = Some(info);
    }
    Ok(known.into_iter().flatten().collect())
}

fn common_beginning<'a>(a: &'a str, b: &str) -> &'a str {
    let same = a.chars().zip(b.chars()).take_while(|(a, b)| a == b);
    &a[..same.map(|(letter, _)| letter.len_utf8()).sum()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_the_format() {
        for (name, expected) in [
            ("train.jsonl", Format::Jsonl),
            ("train.json.gz", Format::Jsonl),
            ("train", Format::Jsonl),
            ("a/b-000.tar", Format::WebDataset),
            ("A.TAR.GZ", Format::WebDataset),
            ("a.tar.zst", Format::WebDataset),
            ("a.tgz", Format::WebDataset),
            ("x.tar/train.jsonl", Format::Jsonl),
            ("train-00000-of-00041.parquet", Format::Parquet),
            ("a.tar?signature=x.parquet", Format::WebDataset),
            ("mds/train/index.json", Format::Mds),
            ("my-index.json", Format::Jsonl),
        ] {
            assert_eq!(format_of(name), expected, "{name}");
        }
    }
}
