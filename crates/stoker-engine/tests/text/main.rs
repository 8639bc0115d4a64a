//! The text room against transformers, with the real Qwen tokenizer and chat templates.
#![expect(clippy::unwrap_used, reason = "a test that can't go on fails")]

mod files;
mod length;
mod packed;
mod specials;
mod turns;

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use serde_json::{Map, Value, json};
use stoker_engine::error::{Error, Flaw};
use stoker_engine::recipe::{self, OnTooLong, TrainOn};
use stoker_engine::sample::{Content, Conversation, EncodedText, Grid, Part, Turn, token_kind};
use stoker_engine::text::Encoder;

const IM_START: u32 = 151_644;
const IM_END: u32 = 151_645;
const IMAGE_PAD: u32 = 151_655;
const NEWLINE: u32 = 198;

// ── helpers ──────────────────────────────────────────────────

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn golden(name: &str) -> Value {
    let text = std::fs::read_to_string(root().join("testdata/golden/text").join(name)).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn model(kind: &str) -> PathBuf {
    let name = if kind == "qwen3_vl" { "qwen3-vl" } else { "qwen2.5-vl" };
    let folder = root().join(".setup/models").join(name);
    assert!(folder.join("tokenizer.json").is_file(), "run `make setup` first");
    folder
}

fn open(kind: &str, config: &recipe::Text) -> Encoder {
    Encoder::open(Some(&model(kind)), config, None).unwrap()
}

/// The encoder of Qwen3-VL with the recipe's defaults.
fn qwen3() -> &'static Encoder {
    static ENCODER: OnceLock<Encoder> = OnceLock::new();
    ENCODER.get_or_init(|| open("qwen3_vl", &recipe::Text::default()))
}

/// The encoder of Qwen2.5-VL with the recipe's defaults.
fn qwen25() -> &'static Encoder {
    static ENCODER: OnceLock<Encoder> = OnceLock::new();
    ENCODER.get_or_init(|| open("qwen2_5_vl", &recipe::Text::default()))
}

/// Encoders of both models that number the images, by model.
fn numbering(kind: &str) -> &'static Encoder {
    static ENCODERS: [OnceLock<Encoder>; 2] = [OnceLock::new(), OnceLock::new()];
    ENCODERS[usize::from(kind == "qwen3_vl")].get_or_init(|| {
        let template_options = json!({"add_vision_id": true}).as_object().unwrap().clone();
        open(kind, &recipe::Text { template_options, ..Default::default() })
    })
}

fn encoder(kind: &str, options: &Value) -> &'static Encoder {
    match (options["add_vision_id"] == true, kind) {
        (true, kind) => numbering(kind),
        (false, "qwen3_vl") => qwen3(),
        (false, _) => qwen25(),
    }
}

/// Messages as transformers takes them.
fn conversation(messages: &Value, tools: &Value) -> Conversation {
    let mut images = 0..;
    let mut part = |part: &Value| match part["text"].as_str() {
        Some(text) => Part::Text(text.to_owned()),
        None => Part::Image(images.next().unwrap()),
    };
    let turns = messages.as_array().unwrap().iter().map(|message| {
        let mut extra = message.as_object().unwrap().clone();
        let role = extra.shift_remove("role").unwrap().as_str().unwrap().to_owned();
        let content = match extra.shift_remove("content").unwrap() {
            Value::String(text) => Content::Text(text),
            parts => Content::Parts(parts.as_array().unwrap().iter().map(&mut part).collect()),
        };
        Turn { role, content, extra, train: None }
    });
    Conversation { turns: turns.collect(), tools: tools.as_array().cloned().unwrap_or_default() }
}

fn turn(role: &str, text: &str) -> Turn {
    Turn { role: role.into(), content: Content::Text(text.into()), extra: Map::new(), train: None }
}

fn chat(turns: impl IntoIterator<Item = Turn>) -> Conversation {
    Conversation { turns: turns.into_iter().collect(), tools: Vec::new() }
}

fn with_image(mut turn: Turn, number: usize) -> Turn {
    let Content::Text(text) = turn.content else { panic!("a turn of text") };
    turn.content = Content::Parts(vec![Part::Image(number), Part::Text(text)]);
    turn
}

fn grids(value: &Value) -> Vec<Grid> {
    let grids: Vec<[u32; 3]> = serde_json::from_value(value.clone()).unwrap();
    grids.into_iter().map(|[t, h, w]| Grid { t, h, w }).collect()
}

fn square(side: u32) -> Grid {
    Grid { t: 1, h: side, w: side }
}

fn spell<'a>(encoder: &Encoder, tokens: impl IntoIterator<Item = &'a u32>) -> String {
    tokens.into_iter().map(|token| encoder.token_text(*token)).collect()
}

/// What is learned, as text.
fn learned(encoder: &Encoder, text: &EncodedText) -> String {
    let learned = text.tokens.iter().zip(&text.trained).filter(|(_, trained)| **trained);
    spell(encoder, learned.map(|(token, _)| token))
}

/// Lengths agree, image tokens agree with the grids and are not learned.
fn check_agreement(text: &EncodedText, grids: &[Grid]) {
    let length = text.tokens.len();
    assert_eq!([text.trained.len(), text.kinds.len()], [length; 2]);
    assert_eq!([0, 1, 2].map(|row| text.positions[row].len()), [length; 3]);
    let images: usize = grids.iter().map(|grid| grid.tokens(2)).sum();
    assert_eq!(
        text.kinds.iter().map(|kind| usize::from(*kind == token_kind::IMAGE)).sum::<usize>(),
        images
    );
    assert_eq!(text.tokens.iter().filter(|token| **token == IMAGE_PAD).count(), images);
    assert!(text.kinds.iter().zip(&text.trained).all(|(kind, trained)| *kind == 0 || !trained));
    assert_eq!(text.images, grids.len());
}

// ── against transformers ─────────────────────────────────────

#[test]
fn golden_chats_equal_transformers_in_prompt_ids_labels_kinds_and_positions() {
    let chats = golden("chats.json");
    for case in chats.as_array().unwrap() {
        let kind = case["kind"].as_str().unwrap();
        let note = format!("{kind}: {}", case["note"]);
        let encoder = encoder(kind, &case["kwargs"]);
        let grids = grids(&case["image_grid_thw"]);
        let conversation = conversation(&case["messages"], &case["kwargs"]["tools"]);
        let mut text = encoder.encode(&conversation, &grids, 2).unwrap();

        assert_eq!(json!(text.tokens), case["input_ids"], "{note}");
        let labels = text.tokens.iter().zip(&text.trained);
        let labels = labels.map(|(id, trained)| if *trained { i64::from(*id) } else { -100 });
        assert_eq!(json!(labels.collect::<Vec<i64>>()), case["labels"], "{note}");
        assert_eq!(json!(text.kinds), case["mm_token_type_ids"], "{note}");
        let positions = match &case["position_ids"] {
            Value::String(_) => json!(vec![(0..text.tokens.len()).collect::<Vec<_>>(); 3]),
            rows => rows.clone(),
        };
        assert_eq!(json!(text.positions), positions, "{note}");
        check_agreement(&text, &grids);

        text.tokens.dedup_by(|a, b| *a == IMAGE_PAD && *b == IMAGE_PAD);
        let prompt = case["prompt"].as_str().unwrap();
        // a token that is part of a character can't be spelt by itself
        assert!(!prompt.is_ascii() || spell(encoder, &text.tokens) == prompt, "{note}");
    }
    assert_eq!(chats.as_array().unwrap().len(), 19);
}

#[test]
fn random_conversations_equal_transformers_in_ids_and_generation_spans() {
    let cases = golden("random.json");
    for (number, case) in cases["chats"].as_array().unwrap().iter().enumerate() {
        let encoder = encoder(case["kind"].as_str().unwrap(), &case["options"]);
        let grids = grids(&case["grids"]);
        let conversation = conversation(&case["messages"], &case["tools"]);
        let text = encoder.encode(&conversation, &grids, 2).unwrap();

        let mut tokens = Vec::new();
        for id in case["ids"].as_array().unwrap().iter().map(|id| id.as_i64().unwrap()) {
            match u32::try_from(id) {
                Ok(token) => tokens.push(token),
                Err(_) => tokens.extend(std::iter::repeat_n(IMAGE_PAD, id.unsigned_abs() as usize)),
            }
        }
        assert_eq!(text.tokens, tokens, "chat {number}: {}", case["messages"]);
        let mut trained = Vec::new();
        for (run, length) in case["learned"].as_array().unwrap().iter().enumerate() {
            trained.extend(vec![run % 2 == 1; length.as_u64().unwrap() as usize]);
        }
        assert_eq!(text.trained, trained, "chat {number}: {}", case["messages"]);
        check_agreement(&text, &grids);
    }
    assert_eq!(cases["chats"].as_array().unwrap().len(), 160);
}

/// A Qwen3-VL tokenizer with another chat template.
fn with_template(template: &str) -> Result<Encoder, Error> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("own.jinja");
    std::fs::write(&path, template).unwrap();
    let chat_template = Some(path.display().to_string());
    let config = recipe::Text { chat_template, ..Default::default() };
    Encoder::open(Some(&model("qwen3_vl")), &config, None)
}

fn talk() -> Conversation {
    chat([
        turn("system", "rules"),
        turn("user", "one"),
        turn("assistant", "first"),
        turn("user", "two"),
        turn("assistant", "second"),
    ])
}
