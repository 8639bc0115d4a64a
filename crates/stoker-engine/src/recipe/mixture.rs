//! Several datasets in one recipe: `[[datasets]]`, how much of each, and how that changes.
//!
//! A dataset of the list has the keys of `[dataset]` and a name, by which all else speaks of it.
//! `[dataset]` alone is one dataset with the name `dataset`.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::decimal::Decimal;
use super::reader::Reader;
use super::{Dataset, Recipe, read, suggest};

/// The name of the dataset of `[dataset]`.
pub(super) const ONLY: &str = "dataset";

/// Longest name of a dataset.
const LONGEST_NAME: usize = 64;

/// One dataset of a mixture.
#[derive(Clone, Debug, PartialEq)]
pub struct Component {
    /// What it is called.
    pub name: String,
    /// How much of it is asked for.
    pub share: Share,
    /// Where it lies and what it means.
    pub dataset: Dataset,
}

/// How much of a dataset is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// As many samples as it has rows, or what a temperature makes of them.
    Rows,
    /// So much relative to the weights of the others.
    Weight(Decimal),
    /// So many times all of its rows.
    Epochs(Decimal),
}

/// Weights from a position on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stage {
    /// The first position that they are for.
    pub from: u64,
    /// The weight of each dataset, in order.
    pub weights: Vec<Decimal>,
}

impl Default for Component {
    fn default() -> Self {
        Self { name: ONLY.to_owned(), share: Share::Rows, dataset: Dataset::default() }
    }
}

impl Recipe {
    /// What people know the data by: its source, or the first of them.
    pub fn sources(&self) -> String {
        match self.datasets.as_slice() {
            [] => String::new(),
            [only] => only.dataset.shown(),
            [first, rest @ ..] => format!("{} and {} more", first.dataset.shown(), rest.len()),
        }
    }
}

impl Component {
    /// Where its keys stand in the recipe.
    pub fn path(&self) -> String {
        if self.is_only() { ONLY.to_owned() } else { format!("datasets.{}", self.name) }
    }

    fn is_only(&self) -> bool {
        self.name == ONLY && self.share == Share::Rows
    }
}

/// Reads `[dataset]` or `[[datasets]]`.
pub(super) fn read(top: &mut Reader<'_>) -> Vec<Component> {
    if !top.has("datasets") {
        top.drop("datasets");
        let dataset = top.section(ONLY, read::dataset);
        return vec![Component { dataset, ..Component::default() }];
    }
    if top.has(ONLY) {
        top.problem(ONLY, "is given beside [[datasets]]", Some("make it one of [[datasets]]"));
    }
    top.drop(ONLY);
    let components = top.list("datasets", "name", component);
    components.inspect(|components| check(top, components)).unwrap_or_default()
}

fn component(entry: &mut Reader<'_>) -> Component {
    let name = name(entry).unwrap_or_default();
    let (weight, epochs) =
        (entry.decimal("weight", &(0.0..=1e6)), entry.decimal("epochs", &(1e-6..=1e6)));
    let share = match (weight, epochs) {
        (None, None) => Share::Rows,
        (Some(weight), None) => Share::Weight(weight),
        (None, Some(epochs)) => Share::Epochs(epochs),
        (Some(_), Some(epochs)) => {
            entry.problem("weight", "is given beside epochs", Some("keep one of them"));
            Share::Epochs(epochs)
        }
    };
    Component { name, share, dataset: read::dataset(entry) }
}

fn name(entry: &mut Reader<'_>) -> Option<String> {
    if !entry.has("name") {
        entry.problem("name", "is missing", Some("give each dataset a name of its own"));
    }
    let name = entry.text("name")?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if name.len() > LONGEST_NAME || !name.chars().all(is_plain) {
        let hint = format!("names are up to {LONGEST_NAME} letters, digits, - and _");
        entry.problem("name", "is no name for a dataset", Some(hint));
        return None;
    }
    Some(name)
}

/// What must hold of all datasets together.
fn check(top: &mut Reader<'_>, components: &[Component]) {
    if components.is_empty() {
        top.problem("datasets", "is empty", Some("write [[datasets]] once for each dataset"));
    }
    let mut seen = BTreeMap::new();
    for (number, component) in components.iter().enumerate() {
        if !component.name.is_empty() && seen.insert(&component.name, number).is_some() {
            let path = format!("datasets.{}", component.name);
            top.problem(&path, "is the name of two datasets", Some("rename one of them"));
        }
    }
    let is_weight = |component: &&Component| matches!(component.share, Share::Weight(_));
    let is_epochs = |component: &&Component| matches!(component.share, Share::Epochs(_));
    let (weights, epochs) =
        (components.iter().filter(is_weight).count(), components.iter().filter(is_epochs).count());
    let has_share = |component: &&Component| component.share != Share::Rows;
    if let Some(odd) = components.iter().find(|component| !has_share(component))
        && weights + epochs > 0
    {
        let key = if weights > 0 { "weight" } else { "epochs" };
        let reason = format!("has no {key}, and other datasets have");
        top.problem(&odd.path(), reason, Some(format!("give all datasets {key}, or none")));
    }
    if weights > 0 && epochs > 0 {
        let hint = "give all datasets weight, or all of them epochs";
        top.problem("datasets", "some have weight and some have epochs", Some(hint));
    }
    let is_drawn = |component: &Component| component.share != Share::Weight(Decimal::ZERO);
    if !components.is_empty() && !components.iter().any(is_drawn) {
        top.problem("datasets", "all weights are 0", Some("give one a weight above 0"));
    }
}

/// Reads `plan.stages`: each names the datasets whose weight changes, the others keep theirs.
pub(super) fn stages(plan: &mut Reader<'_>, components: &[Component]) -> Vec<Stage> {
    let raw = plan.list("plan.stages", "", |entry| stage(entry, components)).unwrap_or_default();
    let weight = |component: &Component| match component.share {
        Share::Weight(weight) => Some(weight),
        Share::Rows | Share::Epochs(_) => None,
    };
    let mut weights: Vec<_> = components.iter().filter_map(weight).collect();
    if weights.len() < components.len() && !raw.is_empty() {
        let hint = "give each of [[datasets]] a weight; a stage changes weights";
        plan.problem("stages", "the datasets have no weights", Some(hint));
        return Vec::new();
    }
    let mut from = 0;
    let mut stages = Vec::new();
    for (number, (begin, changes)) in raw.into_iter().enumerate() {
        if begin.is_some_and(|begin| begin <= from) {
            let path = format!("stages.{number}.from");
            let reason = format!("is not after the stage before, which is from {from}");
            plan.problem(&path, reason, Some("list the stages in their order"));
        }
        from = begin.unwrap_or(from);
        for (dataset, weight) in changes {
            weights[dataset] = weight;
        }
        if weights.iter().all(|weight| *weight == Decimal::ZERO) {
            let path = format!("stages.{number}.weights");
            plan.problem(&path, "all weights are 0", Some("give one a weight above 0"));
        }
        stages.push(Stage { from, weights: weights.clone() });
    }
    stages
}

/// Where a stage begins, and the weights that change, by number of the dataset.
fn stage(entry: &mut Reader<'_>, components: &[Component]) -> (Option<u64>, Vec<(usize, Decimal)>) {
    for key in ["from", "weights"] {
        if !entry.has(key) {
            let hint = "write { from = POSITION, weights = { NAME = WEIGHT } }";
            entry.problem(key, "is missing", Some(hint));
        }
    }
    let from = entry.whole("from", 1..=read::LARGEST);
    let names = || components.iter().map(|component| component.name.as_str());
    let mut changes = Vec::new();
    entry.own_keys("weights", |weights| {
        for name in weights.keys() {
            let Some(number) = names().position(|known| known == name) else {
                let near = suggest::nearest(&name, names());
                let hint = near.map(|near| format!("did you mean `{near}`?"));
                weights.problem(&name, "there is no such dataset", hint);
                weights.drop(&name);
                continue;
            };
            changes.extend(weights.decimal(&name, &(0.0..=1e6)).map(|weight| (number, weight)));
        }
    });
    (from, changes)
}

/// `dataset` or `datasets` with its value.
pub(super) fn write(recipe: &Recipe, dataset: fn(&Dataset) -> Value) -> (&'static str, Value) {
    match recipe.datasets.as_slice() {
        [only] if only.is_only() => (ONLY, dataset(&only.dataset)),
        several => ("datasets", several.iter().map(|one| write_component(one, dataset)).collect()),
    }
}

fn write_component(component: &Component, dataset: fn(&Dataset) -> Value) -> Value {
    let (weight, epochs) = match component.share {
        Share::Rows => (None, None),
        Share::Weight(weight) => (Some(number(weight)), None),
        Share::Epochs(epochs) => (None, Some(number(epochs))),
    };
    let mut value = json!({"name": component.name, "weight": weight, "epochs": epochs});
    if let (Some(keys), Value::Object(more)) = (value.as_object_mut(), dataset(&component.dataset))
    {
        keys.extend(more);
    }
    value
}

/// The stages of `[plan]`, with the weights of all datasets in each.
pub(super) fn write_stages(recipe: &Recipe) -> Value {
    let stage = |stage: &Stage| {
        let names = recipe.datasets.iter().map(|component| component.name.clone());
        let weights = names.zip(stage.weights.iter().map(|weight| number(*weight)));
        json!({"from": stage.from, "weights": weights.collect::<Map<_, _>>()})
    };
    recipe.plan.stages.iter().map(stage).collect()
}

/// A decimal as short as it can be written.
pub(super) fn number(decimal: Decimal) -> Value {
    match decimal.to_f64() {
        whole if whole.fract() == 0.0 => (whole as u64).into(),
        number => number.into(),
    }
}
