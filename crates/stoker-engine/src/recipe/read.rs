//! From what was written to what was meant: each section, key by key, with its range.
//!
//! The defaults and their reasons stand with the sections. Whole numbers end at 2^63 - 1, so that
//! TOML, JSON and Python all hold them; the other upper ends are far beyond any use we know, and
//! catch a wrong unit or a slipped digit.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Map, Value};
use url::Url;

use super::choices::{
    ADDRESSING, FORMAT, LAYOUT, ON_BAD_SAMPLE, ON_TOO_LONG, PIXELS, REMAINDER, SHUFFLE, TRAIN_ON,
};
use super::reader::Reader;
use super::{
    BatchLayout, Cache, Compat, Component, Dataset, Engine, Fetch, Fields, Image, Pack, Plan,
    Recipe, Remainder, Share, Shuffle, Text, Vision, mixture, patterns, suggest,
};
use crate::error::{Error, Problem, Result};
use crate::sample::Scheme;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// Largest whole number.
pub(super) const LARGEST: u64 = i64::MAX as u64;
/// As many pixels as the largest JPEG has.
const MOST_PIXELS: u64 = 65_535 * 65_535;

/// Reads a document; `problems` are those that were found before.
pub(super) fn recipe(root: Map<String, Value>, mut problems: Vec<Problem>) -> Result<Recipe> {
    let mut top = Reader::new(root, &mut problems);
    let model = local_path(&mut top, "model");
    let compat = top.choice("compat", &Compat::ALL).unwrap_or_default();
    let datasets = mixture::read(&mut top);
    let recipe = Recipe {
        model,
        compat,
        plan: top.section("plan", |section| plan(section, &datasets)),
        datasets,
        fetch: top.section("fetch", fetch),
        image: top.section("image", image),
        vision: top.section("vision", vision),
        text: top.section("text", text),
        pack: top.section("pack", pack),
        engine: top.section("engine", engine),
    };
    top.finish();
    if problems.is_empty() { Ok(recipe) } else { Err(Error::Recipe(problems)) }
}

/// The keys of a dataset.
pub(super) fn dataset(section: &mut Reader<'_>) -> Dataset {
    let default = Dataset::default();
    if !section.has("source") {
        let hint = "give the URI or path of the samples, such as s3://bucket/train.jsonl or \
                    s3://bucket/train-{000..127}.tar";
        section.problem("source", "is missing", Some(hint));
    }
    Dataset {
        source: sources(section, "source").unwrap_or(default.source),
        format: section.choice("format", FORMAT),
        fields: section.inner("fields", "dataset.fields", fields),
        media_root: section
            .text("media-root")
            .and_then(|text| location(section, "media-root", text)),
        allow_http: section.flag("allow-http").unwrap_or(default.allow_http),
        max_line: section.size("max-line", KIB..=2 * GIB).unwrap_or(default.max_line),
        max_copied: section.size("max-copied", 0..=1024 * 1024 * GIB).unwrap_or(default.max_copied),
        index_dir: local_path(section, "index-dir"),
    }
}

/// URIs or paths, one or a list; each may be a pattern.
fn sources(section: &mut Reader<'_>, key: &'static str) -> Option<Vec<String>> {
    let mut sources = Vec::new();
    for text in section.texts(key)? {
        let text = location(section, key, text)?;
        if let Err(reason) = patterns::expand(&text) {
            let hint = "give a list of patterns, each for a part of them";
            section.problem(key, reason, Some(hint));
            return None;
        }
        sources.push(text);
    }
    Some(sources)
}

fn fields(section: &mut Reader<'_>) -> Fields {
    let fields = Fields {
        messages: section.text("messages"),
        images: section.texts("images"),
        question: section.text("question"),
        answer: section.text("answer"),
    };
    if fields.messages.is_some() && (fields.question.is_some() || fields.answer.is_some()) {
        let reason = "messages hold questions and answers already";
        section.problem("messages", reason, Some("name either messages, or question and answer"));
    } else if fields.question.is_some() && fields.answer.is_none() {
        let reason = "a question without an answer has nothing to learn";
        section.problem("question", reason, Some("name the answer too"));
    }
    fields
}

fn plan(section: &mut Reader<'_>, datasets: &[Component]) -> Plan {
    let default = Plan::default();
    let plan = Plan {
        seed: section.whole("seed", 0..=LARGEST).unwrap_or(default.seed),
        shuffle: section.choice("shuffle", SHUFFLE).unwrap_or(default.shuffle),
        window: section.whole("window", 1..=65_536),
        epochs: section.whole("epochs", 1..=1_000_000_000),
        remainder: section.choice("remainder", REMAINDER).unwrap_or(default.remainder),
        temperature: section.decimal("temperature", &(1.0..=1000.0)),
        stages: mixture::stages(section, datasets),
        lanes: section.whole("lanes", 1..=65_536).unwrap_or(default.lanes),
    };
    if plan.window.is_some() && plan.shuffle != Shuffle::Block {
        let hint = "set plan.shuffle = \"block\", or leave the window out";
        section.problem("window", "is for blocks, and rows are not shuffled in blocks", Some(hint));
    }
    if plan.temperature.is_some() && datasets.iter().any(|one| one.share != Share::Rows) {
        let hint = "leave it out, or take weight and epochs from all datasets";
        section.problem("temperature", "is for datasets without weight and epochs", Some(hint));
    }
    if plan.remainder != Remainder::Fill && plan.epochs.is_none() {
        let hint = "set plan.epochs, to 1 for one pass over the data";
        section.problem("remainder", "is for runs that end, and this one is endless", Some(hint));
    }
    if plan.remainder == Remainder::Pad && !sees_every_row_as_often(&plan, datasets) {
        let hint = "take weight from the datasets, and plan.temperature away; epochs may stay";
        let reason =
            "\"pad\" is for a pass over every row, and weights leave out some and repeat others";
        section.problem("remainder", reason, Some(hint));
    }
    plan
}

fn sees_every_row_as_often(plan: &Plan, datasets: &[Component]) -> bool {
    let by_weight = |one: &Component| matches!(one.share, Share::Weight(_));
    plan.temperature.is_none() && !datasets.iter().any(by_weight)
}

fn fetch(section: &mut Reader<'_>) -> Fetch {
    let default = Fetch::default();
    let timeouts = Duration::from_millis(1)..=Duration::from_hours(1);
    Fetch {
        concurrency: section.whole("concurrency", 1..=4096).unwrap_or(default.concurrency),
        attempts: section.whole("attempts", 1..=100).unwrap_or(default.attempts),
        connect_timeout: section
            .duration("connect-timeout", timeouts.clone())
            .unwrap_or(default.connect_timeout),
        read_timeout: section
            .duration("read-timeout", timeouts.clone())
            .unwrap_or(default.read_timeout),
        deadline: section.duration("deadline", timeouts).unwrap_or(default.deadline),
        endpoint: endpoint(section, "endpoint"),
        region: section.text("region"),
        anonymous: section.flag("anonymous").unwrap_or(default.anonymous),
        addressing: section.choice("addressing", ADDRESSING),
        requester_pays: section.flag("requester-pays").unwrap_or(default.requester_pays),
        ca_file: local_path(section, "ca-file"),
        cache: Cache::read(section),
        checksum: section.flag("checksum").unwrap_or(default.checksum),
    }
}

fn image(section: &mut Reader<'_>) -> Image {
    let default = Image::default();
    Image {
        max_pixels: section.whole("max-pixels", 1..=MOST_PIXELS).unwrap_or(default.max_pixels),
        max_side: section.whole("max-side", 1..=1_000_000).unwrap_or(default.max_side),
        max_bytes: section.size("max-bytes", KIB..=2 * GIB).unwrap_or(default.max_bytes),
        max_scans: section.whole("max-scans", 1..=10_000).unwrap_or(default.max_scans),
        approximate: section.flag("approximate").unwrap_or(default.approximate),
    }
}

fn vision(section: &mut Reader<'_>) -> Vision {
    let vision = Vision {
        family: section.text("family"),
        config: local_path(section, "config"),
        min_pixels: section.whole("min-pixels", 1..=MOST_PIXELS),
        max_pixels: section.whole("max-pixels", 1..=MOST_PIXELS),
        pixels: section.choice("pixels", PIXELS).unwrap_or_default(),
    };
    if let (Some(min), Some(max)) = (vision.min_pixels, vision.max_pixels)
        && min > max
    {
        let hint = "exchange them, or leave one out to get the model's";
        let reason = format!("{min} is more than vision.max-pixels, which is {max}");
        section.problem("min-pixels", reason, Some(hint));
    }
    vision
}

fn text(section: &mut Reader<'_>) -> Text {
    let default = Text::default();
    Text {
        tokenizer: local_path(section, "tokenizer"),
        chat_template: local_path(section, "chat-template"),
        template_options: template_options(section, "template-options").unwrap_or_default(),
        train_on: section.choice("train-on", TRAIN_ON).unwrap_or(default.train_on),
        train_newline: section.flag("train-newline").unwrap_or(default.train_newline),
        max_tokens: section.whole("max-tokens", 1..=1 << 24),
        on_too_long: section.choice("on-too-long", ON_TOO_LONG).unwrap_or(default.on_too_long),
    }
}

fn pack(section: &mut Reader<'_>) -> Pack {
    let default = Pack::default();
    let batch_size = section.whole("batch-size", 1..=65_536);
    let max_tokens = section.whole("max-tokens", 1..=1 << 24);
    let pack = Pack {
        batch_size: batch_size.or(default.batch_size.filter(|_| max_tokens.is_none())),
        max_tokens,
        max_images: section.whole("max-images", 1..=65_536),
        max_patches: section.whole("max-patches", 1..=1 << 26),
        min_images_per_batch: section
            .whole("min-images-per-batch", 0..=1024)
            .unwrap_or(default.min_images_per_batch),
        layout: section.choice("layout", LAYOUT).unwrap_or(match max_tokens {
            Some(_) => BatchLayout::Packed,
            None => default.layout,
        }),
        pad_to_multiple: section
            .whole("pad-to-multiple", 1..=65_536)
            .unwrap_or(default.pad_to_multiple),
    };
    check_pack(section, &pack);
    pack
}

/// What does not go together.
fn check_pack(section: &mut Reader<'_>, pack: &Pack) {
    let Some(max_tokens) = pack.max_tokens else {
        let limits = [("max-images", pack.max_images), ("max-patches", pack.max_patches)];
        for (key, _) in limits.into_iter().filter(|(_, limit)| limit.is_some()) {
            let hint = "a batch of pack.batch-size holds what its samples have";
            section.problem(key, "goes with pack.max-tokens", Some(hint));
        }
        return;
    };
    if pack.batch_size.is_some() {
        let hint = "leave one of them out; in an override, null takes it out";
        let reason = "a batch holds so many tokens or pack.batch-size samples, not both";
        section.problem("max-tokens", reason, Some(hint));
    }
    if pack.layout == BatchLayout::Padded {
        let hint = "write \"packed\", or leave it out";
        section.problem("layout", "a batch of pack.max-tokens is one row", Some(hint));
    }
    if pack.pad_to_multiple > max_tokens {
        let reason = format!("no multiple of it fits into pack.max-tokens, which is {max_tokens}");
        section.problem("pad-to-multiple", reason, Some("lower it, or raise pack.max-tokens"));
    }
    if let Some(most) = pack.max_images.filter(|most| *most < pack.min_images_per_batch) {
        let reason = format!("is more than pack.max-images, which is {most}");
        section.problem(
            "min-images-per-batch",
            reason,
            Some("lower it; 1 is what is mostly needed"),
        );
    }
}

fn engine(section: &mut Reader<'_>) -> Engine {
    let default = Engine::default();
    Engine {
        memory: section.size("memory", 16 * MIB..=1024 * 1024 * GIB),
        workers: section.whole("workers", 1..=1024),
        local_world_size: section.whole("local-world-size", 1..=1024),
        prefetch: section.whole("prefetch", 0..=1024),
        on_bad_sample: section
            .choice("on-bad-sample", ON_BAD_SAMPLE)
            .unwrap_or(default.on_bad_sample),
        bad_sample_limit: section.share("bad-sample-limit").unwrap_or(default.bad_sample_limit),
        ledger: local_path(section, "ledger"),
        metrics: socket_address(section, "metrics"),
    }
}

/// An address of this machine, and a port.
fn socket_address(section: &mut Reader<'_>, key: &'static str) -> Option<SocketAddr> {
    let text = section.text(key)?;
    let address = text.parse().ok();
    if address.is_none() {
        let hint = "write one such as \"127.0.0.1:9464\", or \"0.0.0.0:9464\" for other machines \
                    to read it";
        section.problem(key, format!("{text:?} is no address with a port"), Some(hint));
    }
    address
}

/// A URI of a known kind, or a path.
fn location(section: &mut Reader<'_>, key: &'static str, text: String) -> Option<String> {
    match scheme(&text) {
        None => unexpanded(section, key, text),
        Some(name) if Scheme::parse(name).is_some() => Some(text),
        Some(name) => {
            let known = ["s3", "gs", "az", "http", "https", "file"];
            let near = suggest::nearest(name, known.into_iter());
            let near = near.map_or_else(String::new, |near| format!("did you mean {near}://? "));
            let hint = format!("{near}allowed: {}, or a path", known.join(", "));
            section.problem(key, format!("unknown kind of store {name}://"), Some(hint));
            None
        }
    }
}

/// A path on this machine.
pub(super) fn local_path(section: &mut Reader<'_>, key: &'static str) -> Option<String> {
    let text = section.text(key)?;
    if let Some(name) = scheme(&text) {
        let reason = format!("expected a path on this machine, found {name}://");
        section.problem(key, reason, Some("copy it here first, and give its path"));
        return None;
    }
    unexpanded(section, key, text)
}

fn unexpanded(section: &mut Reader<'_>, key: &'static str, text: String) -> Option<String> {
    if text == "~" || text.starts_with("~/") {
        let reason = format!("{text:?} begins with ~, which only a shell expands");
        section.problem(key, reason, Some("write the path in full"));
        return None;
    }
    Some(text)
}

/// The scheme of a URI; `None` for a path.
pub(super) fn scheme(text: &str) -> Option<&str> {
    text.split_once("://").map(|(scheme, _)| scheme).filter(|scheme| !scheme.contains('/'))
}

fn endpoint(section: &mut Reader<'_>, key: &'static str) -> Option<String> {
    let text = section.text(key)?;
    let url = Url::parse(&text).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
    let Some(url) = url else {
        let hint = "write one such as http://localhost:9000";
        section.problem(key, format!("{text:?} is not an http(s) address"), Some(hint));
        return None;
    };
    if !url.username().is_empty() || url.password().is_some() {
        let hint = "credentials come from the environment (AWS_ACCESS_KEY_ID, …) or a profile";
        section.problem(key, "holds a user name or password", Some(hint));
        return None;
    }
    Some(text)
}

/// Variables for a chat template: what TOML can hold too, so that a recipe can always be written.
fn template_options(section: &mut Reader<'_>, key: &'static str) -> Option<Map<String, Value>> {
    let table = Value::Object(section.table(key)?);
    if let Some(what) = beyond_toml(&table) {
        let hint = "leave the variable out, or give it as text";
        section.problem(key, format!("holds {what}"), Some(hint));
    }
    let Value::Object(table) = table else { return None };
    Some(table)
}

fn beyond_toml(value: &Value) -> Option<&'static str> {
    match value {
        Value::Null => Some("a null"),
        Value::Number(number) if number.as_u64().is_some_and(|number| number > LARGEST) => {
            Some("a number that is too large")
        }
        Value::Array(items) => items.iter().find_map(beyond_toml),
        Value::Object(entries) => entries.values().find_map(beyond_toml),
        _ => None,
    }
}
