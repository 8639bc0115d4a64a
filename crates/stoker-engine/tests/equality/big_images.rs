//! Big images, whose work idle workers share.

use std::fs;

use serde_json::json;
use stoker_engine::loader::Loader;
use stoker_engine::metrics::Room;
use stoker_engine::testing::encode_jpeg;

use super::{common, drain, made, rank, reference};

const SIZE: (usize, usize) = (2000, 1600);

#[test]
fn what_workers_write_together_is_what_one_writes() {
    let folder = tempfile::tempdir().unwrap();
    let (width, height) = SIZE;
    let mut lines = Vec::new();
    for number in 0..3 {
        let pixel = |at: usize| ((at * (number + 3) / 7) ^ (at / (width * 3))) as u8;
        let rgb: Vec<u8> = (0..width * height * 3).map(pixel).collect();
        let jpeg = encode_jpeg(&rgb, width, height, 80);
        let jpeg = if number == 1 { common::with_broken_codes(jpeg) } else { jpeg };
        fs::write(folder.path().join(format!("{number}.jpg")), jpeg).unwrap();
        lines.push(common::chat(&format!("{number}.jpg"), "assistant"));
    }
    let source = folder.path().join("big.jsonl");
    fs::write(&source, lines.join("\n")).unwrap();
    for (pixels, workers) in [("u8", 4), ("bf16", 3), ("u8", 1)] {
        let recipe = made(
            &source,
            json!({
                "plan": {"epochs": 2},
                "vision": {"pixels": pixels, "max-pixels": 1_000_000},
                "pack": {"batch-size": 1},
                // Nothing else is there to do, so all but one have nothing to do.
                "engine": {"workers": workers, "prefetch": 0, "bad-sample-limit": 1.0},
            }),
        );
        let loader = Loader::open(recipe.clone(), rank(0, 1)).unwrap();
        assert_eq!(drain(&loader, 9), reference(recipe, 0..6));
        let report = loader.report();
        let items = |room| report.rooms.iter().find(|one| one.room == room).unwrap().items;
        let (decoded, written) = (items(Room::Image), items(Room::Vision));
        assert!(if workers == 1 { written == decoded } else { written > decoded }, "{report:?}");
    }
}
