//! What the tests of the whole engine share: the model folder that `make setup` assembles, and a
//! small data set on disk with every kind of bad sample in it.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use stoker_engine::recipe::Recipe;
use stoker_engine::testing::{CHAT_KEY, ChatDataset};

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// A model folder with the real tokenizer and template.
pub(crate) fn model(name: &str) -> PathBuf {
    let folder = root().join(".setup/models").join(name);
    assert!(folder.is_dir(), "{} is missing: run `make setup` first", folder.display());
    folder
}

/// Samples in [`dataset`].
pub(crate) const SAMPLES: usize = 48;

/// Rows of [`dataset`] that can't be used, each for another reason, with the flaw's code.
pub(crate) const BAD: [(usize, &str); 5] = [
    (3, "not-json"),
    (11, "missing"),
    (19, "aspect-ratio"),
    (27, "nothing-to-learn"),
    (35, "corrupt"),
];

/// Writes a data set with the bad samples of [`BAD`]; the last is known only when it is decoded.
pub(crate) fn dataset(folder: &Path) -> PathBuf {
    let data = ChatDataset::new(7, SAMPLES, 4_000..=60_000);
    let mut lines = Vec::new();
    for (key, bytes) in data.objects() {
        let path = folder.join(&key);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        if key == CHAT_KEY {
            lines = String::from_utf8(bytes).unwrap().lines().map(str::to_owned).collect();
        } else {
            fs::write(path, bytes).unwrap();
        }
    }
    let photo = fs::read(folder.join("images/000000.jpg")).unwrap();
    fs::write(folder.join("corrupt.jpg"), with_broken_codes(photo)).unwrap();
    fs::write(folder.join("thin.bmp"), thin_bmp()).unwrap();
    for (row, code) in BAD {
        lines[row] = match code {
            "not-json" => "{\"messages\": [".into(),
            "missing" => chat("nowhere.jpg", "assistant"),
            "aspect-ratio" => chat("thin.bmp", "assistant"),
            "nothing-to-learn" => chat("images/000000.jpg", "user"),
            _ => chat("corrupt.jpg", "assistant"),
        };
    }
    let path = folder.join(CHAT_KEY);
    fs::write(&path, lines.join("\n")).unwrap();
    path
}

pub(crate) fn chat(image: &str, answerer: &str) -> String {
    json!({"messages": [
        {"role": "user", "content": [{"type": "image", "image": image}, {"type": "text", "text": "What is it?"}]},
        {"role": answerer, "content": "Hard to say."},
    ]})
    .to_string()
}

/// A JPEG with a sound header whose Huffman tables are nonsense.
pub(crate) fn with_broken_codes(mut jpeg: Vec<u8>) -> Vec<u8> {
    let table = jpeg.windows(2).position(|bytes| bytes == [0xFF, 0xC4]).unwrap();
    jpeg[table + 5..table + 21].fill(0xFF);
    jpeg
}

/// 1 pixel wide, 300 high: a valid image that no Qwen model takes.
fn thin_bmp() -> Vec<u8> {
    let (width, height) = (1_u32, 300_u32);
    let pixels = 4 * height;
    let mut bytes = b"BM".to_vec();
    for word in [54 + pixels, 0, 54, 40, width, height, 1 | 24 << 16, 0, pixels, 0, 0, 0, 0] {
        bytes.extend(word.to_le_bytes());
    }
    bytes.resize((54 + pixels) as usize, 0x40);
    bytes
}

/// A recipe over a local data set, with more keys.
pub(crate) fn recipe(source: &Path, more: Value) -> Recipe {
    let mut value = json!({
        "model": model("qwen3-vl"),
        "dataset": {"source": source},
        "vision": {"min-pixels": 4096, "max-pixels": 65536},
        "engine": {"bad-sample-limit": 0.5},
    });
    merge(&mut value, more);
    Recipe::from_value(value).unwrap()
}

/// Lays one document over another.
pub(crate) fn merge(into: &mut Value, more: Value) {
    match (into, more) {
        (Value::Object(into), Value::Object(more)) => {
            for (key, value) in more {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, more) => *into = more,
    }
}
