//! What was probably meant by a name that is not known.
//!
//! A key that stands in the wrong section is named first; then the nearest spelling in its own
//! section, then in the others. Without a near one, the hint lists what there is.

use serde_json::Value;

use super::Recipe;

/// What to write instead of an unknown key; `section` is empty at the top of the document.
pub(super) fn for_key(section: &str, key: &str) -> String {
    let mut known = known(section);
    if section == "dataset.fields" {
        let fields = ["messages", "images", "question", "answer"].map(str::to_owned);
        known.push((section.to_owned(), fields.into()));
    }
    if section == "fetch.cache" {
        known.push((section.to_owned(), super::Cache::KEYS.map(str::to_owned).into()));
    }
    let homes: Vec<String> =
        known.iter().filter(|(_, keys)| has(keys, key)).map(|(name, _)| place(name)).collect();
    if !homes.is_empty() {
        return format!("`{key}` belongs {}", homes.join(" or "));
    }
    let own = known.iter().find(|(name, _)| name == section).map_or(&[][..], |(_, keys)| keys);
    if section.is_empty() {
        let sections = known.iter().map(|(name, _)| name.as_str()).filter(|name| !name.is_empty());
        if let Some(name) = nearest(key, sections) {
            return format!("did you mean the section {}?", title(name));
        }
    }
    if let Some(near) = nearest(key, own.iter().map(String::as_str)) {
        return format!("did you mean `{near}`?");
    }
    let others = known.iter().filter(|(name, _)| name != section);
    let near = others.filter_map(|(name, keys)| {
        nearest(key, keys.iter().map(String::as_str)).map(|near| (distance(key, near), near, name))
    });
    if let Some((_, near, name)) = near.min_by_key(|(distance, ..)| *distance) {
        return format!("did you mean `{near}` {}?", place(name));
    }
    let (own, sections) = (own.join(", "), known.iter().map(|(name, _)| name.as_str()));
    if section.is_empty() {
        let sections: Vec<_> = sections.filter(|name| !name.is_empty()).map(title).collect();
        format!("there are: {own}, {}", sections.join(", "))
    } else {
        format!("{} has: {own}", title(section))
    }
}

/// The name that is spelled most like this one, if any is close: a quarter of its letters may
/// differ, and always one.
pub(crate) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let allowed = (name.chars().count() / 4).max(1);
    known
        .map(|candidate| (distance(name, candidate), candidate))
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

fn distance(a: &str, b: &str) -> usize {
    // Long names are not typing errors, and the distance takes time in proportion to their product.
    if a.len() > 64 { usize::MAX } else { strsim::damerau_levenshtein(&a.to_lowercase(), b) }
}

/// All sections and their keys in order, as a written recipe has them; the first is the top of the
/// document. Lists stand at the end; the keys of `[dataset]` are those of a dataset in the list too.
fn known(asked: &str) -> Vec<(String, Vec<String>)> {
    let mut known = vec![(String::new(), Vec::new())];
    if let Value::Object(root) = Recipe::default().to_value() {
        for (name, value) in root {
            match value {
                Value::Object(section) => {
                    known.push((name, section.into_iter().map(|(key, _)| key).collect()));
                }
                _ => known[0].1.push(name),
            }
        }
    }
    let mut of_one = ["name", "weight", "epochs"].map(str::to_owned).to_vec();
    if let Some(at) = known.iter().position(|(name, _)| name == "dataset" && asked == "datasets") {
        of_one.extend(known.remove(at).1);
    }
    known.push(("datasets".to_owned(), of_one));
    if asked == "plan.stages" {
        known.push((asked.to_owned(), ["from", "weights"].map(str::to_owned).to_vec()));
    }
    known
}

fn has(keys: &[String], key: &str) -> bool {
    keys.iter().any(|known| known == key)
}

fn place(section: &str) -> String {
    if section.is_empty() {
        "at the top, before the first section".to_owned()
    } else {
        format!("in {}", title(section))
    }
}

/// A section as it stands in TOML.
fn title(section: &str) -> String {
    match section {
        "datasets" => "[[datasets]]".to_owned(),
        "plan.stages" => "a stage".to_owned(),
        _ => format!("[{section}]"),
    }
}
