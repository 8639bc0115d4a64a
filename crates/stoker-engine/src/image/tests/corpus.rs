//! A folder of 120 odd and hostile files, each with Pillow's verdict, where it is at hand: it lies
//! beside the repository and not in it, as some of the files are large.

use serde_json::Value;

use super::{decode_with, repository, sha256};
use crate::recipe::{Alpha, RgbRules, SixteenBit};

/// What is refused, and how; all others must give Pillow's pixels.
const REFUSED: [(&str, &str); 1] = [("", "")];

/// Pillow's own `convert("RGB")`, which drops alpha.
fn pillow(name: &str) -> RgbRules {
    let gif = name.ends_with(".gif");
    let alpha = if gif { Alpha::WhiteIfRgba } else { Alpha::Drop };
    RgbRules { exif: false, alpha, sixteen_bit: SixteenBit::Clip }
}

#[test]
fn corpus_files_give_pillows_pixels_or_are_refused_with_the_right_code() {
    let repository = repository().canonicalize().unwrap();
    let mut beside = repository.ancestors().map(|above| above.join("shared/corpus"));
    let Some(folder) = beside.find(|folder| folder.join("manifest.jsonl").exists()) else {
        println!("skipped: there is no shared/corpus beside or above the repository");
        return;
    };
    let manifest = std::fs::read_to_string(folder.join("manifest.jsonl")).unwrap();
    let mut differ = Vec::new();
    for line in manifest.lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        let name = row["file"].as_str().unwrap();
        let expected = REFUSED.iter().find(|(file, _)| *file == name).map_or("", |row| row.1);
        let bytes = std::fs::read(folder.join(name)).unwrap();
        let found = match decode_with(&bytes, pillow(name)) {
            Ok(image) if row["pillow_13_0_0"]["rgb_sha256_16"] == sha256(&image.pixels)[..16] => "",
            Ok(_) => "other pixels",
            Err(flaw) => flaw.code,
        };
        if found != expected {
            let wanted = (&row["expect"], &row["odd"], &row["pillow_13_0_0"]["error"]);
            differ.push(format!("(\"{name}\", \"{found}\"), // {wanted:?}"));
        }
    }
    assert!(differ.is_empty(), "{}", differ.join("\n"));
}
