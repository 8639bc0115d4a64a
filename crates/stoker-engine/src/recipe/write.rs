//! A recipe written out with all its defaults: for people to read, and for fingerprints.
//!
//! Reading what is written here gives the same recipe. Keys that are not set are `null` in the
//! value and a comment in TOML.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use super::choices::{
    ADDRESSING, FORMAT, LAYOUT, ON_BAD_SAMPLE, ON_TOO_LONG, PIXELS, REMAINDER, SHUFFLE, TRAIN_ON,
    name_of,
};
use super::compat::Compat;
use super::units::{write_duration, write_size};
use super::{Cache, Dataset, Fields, Recipe, mixture};

impl Recipe {
    /// The whole recipe, one object per section; keys and their order are always the same.
    pub fn to_value(&self) -> Value {
        let Self { model, compat, plan, fetch, image, vision, text, pack, engine, .. } = self;
        let (key, datasets) = mixture::write(self, dataset);
        json!({
            "model": model,
            "compat": name_of(&Compat::ALL, compat),
            key: datasets,
            "plan": {
                "seed": plan.seed,
                "shuffle": name_of(SHUFFLE, &plan.shuffle),
                "window": plan.window,
                "epochs": plan.epochs,
                "remainder": name_of(REMAINDER, &plan.remainder),
                "temperature": plan.temperature.map(mixture::number),
                "stages": mixture::write_stages(self),
                "lanes": plan.lanes,
            },
            "fetch": {
                "concurrency": fetch.concurrency,
                "attempts": fetch.attempts,
                "connect-timeout": write_duration(fetch.connect_timeout),
                "read-timeout": write_duration(fetch.read_timeout),
                "deadline": write_duration(fetch.deadline),
                "endpoint": fetch.endpoint,
                "region": fetch.region,
                "anonymous": fetch.anonymous,
                "addressing": fetch.addressing.map(|style| name_of(ADDRESSING, &style)),
                "requester-pays": fetch.requester_pays,
                "ca-file": fetch.ca_file,
                "cache": fetch.cache.as_ref().map(Cache::write),
                "checksum": fetch.checksum,
            },
            "image": {
                "max-pixels": image.max_pixels,
                "max-side": image.max_side,
                "max-bytes": write_size(image.max_bytes),
                "max-scans": image.max_scans,
                "approximate": image.approximate,
            },
            "vision": {
                "family": vision.family,
                "config": vision.config,
                "min-pixels": vision.min_pixels,
                "max-pixels": vision.max_pixels,
                "pixels": name_of(PIXELS, &vision.pixels),
            },
            "text": {
                "tokenizer": text.tokenizer,
                "chat-template": text.chat_template,
                "template-options": text.template_options,
                "train-on": name_of(TRAIN_ON, &text.train_on),
                "train-newline": text.train_newline,
                "max-tokens": text.max_tokens,
                "on-too-long": name_of(ON_TOO_LONG, &text.on_too_long),
            },
            "pack": {
                "batch-size": pack.batch_size,
                "max-tokens": pack.max_tokens,
                "max-images": pack.max_images,
                "max-patches": pack.max_patches,
                "min-images-per-batch": pack.min_images_per_batch,
                "layout": name_of(LAYOUT, &pack.layout),
                "pad-to-multiple": pack.pad_to_multiple,
            },
            "engine": {
                "memory": engine.memory.map(write_size),
                "workers": engine.workers,
                "local-world-size": engine.local_world_size,
                "prefetch": engine.prefetch,
                "on-bad-sample": name_of(ON_BAD_SAMPLE, &engine.on_bad_sample),
                "bad-sample-limit": engine.bad_sample_limit,
                "ledger": engine.ledger,
                "metrics": engine.metrics.map(|address| address.to_string()),
            },
        })
    }

    /// The same as TOML.
    pub fn to_toml(&self) -> String {
        let mut text = String::new();
        if let Value::Object(root) = self.to_value() {
            for (name, value) in &root {
                match value {
                    Value::Object(keys) => write_section(&mut text, &format!("[{name}]"), keys),
                    Value::Array(sections) => {
                        for keys in sections.iter().filter_map(Value::as_object) {
                            write_section(&mut text, &format!("[[{name}]]"), keys);
                        }
                    }
                    _ => write_key(&mut text, name, value),
                }
            }
        }
        text
    }
}

/// One name is text, more are a list; none is empty text.
fn one_or_list(names: &[String]) -> Value {
    match names {
        [] => "".into(),
        [only] => only.as_str().into(),
        _ => names.into(),
    }
}

/// The fields that are set.
fn fields(fields: &Fields) -> Map<String, Value> {
    let Fields { messages, images, question, answer } = fields;
    let text = |name: &Option<String>| name.as_deref().map(Value::from);
    let images = images.as_deref().map(one_or_list);
    let all = [
        ("messages", text(messages)),
        ("images", images),
        ("question", text(question)),
        ("answer", text(answer)),
    ];
    all.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect()
}

fn dataset(dataset: &Dataset) -> Value {
    json!({
        "source": one_or_list(&dataset.source),
        "format": dataset.format.map(|format| name_of(FORMAT, &format)),
        "fields": fields(&dataset.fields),
        "media-root": dataset.media_root,
        "allow-http": dataset.allow_http,
        "max-line": write_size(dataset.max_line),
        "max-copied": write_size(dataset.max_copied),
        "index-dir": dataset.index_dir,
    })
}

fn write_section(text: &mut String, title: &str, section: &Map<String, Value>) {
    writeln!(text, "\n{title}").expect("writing to a String does not fail");
    for (key, value) in section {
        write_key(text, key, value);
    }
}

fn write_key(text: &mut String, key: &str, value: &Value) {
    match toml::Value::try_from(value) {
        Ok(value) => writeln!(text, "{key} = {value}"),
        Err(_) => writeln!(text, "# {key} is not set"),
    }
    .expect("writing to a String does not fail");
}
