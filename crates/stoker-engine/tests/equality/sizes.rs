//! Where sizes come from: each sample is measured once, by its images' beginnings, and what is
//! measured is kept; resuming needs the current window and nothing before it.

use stoker_engine::loader;
use stoker_engine::plan::Cursor;
use stoker_engine::testing::ChatDataset;
use stoker_s3::{Backend, Config, Server};
use tempfile::TempDir;

use super::*;

const SAMPLES: usize = 400;

/// A store with photos that are several times larger than their beginnings, and a local list of
/// samples over them.
struct Store {
    folder: TempDir,
    server: Server,
    /// Bytes of all photos.
    bytes: u64,
}

impl Store {
    /// Every sample is about one of 40 photos of its own choice.
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = Config { unsigned: true, ..Config::default() };
        let server = Server::start(&config, Backend::memory()).unwrap();
        let photos = ChatDataset::new(5, 44, 600_000..=700_000);
        let mut bytes = 0;
        for number in 0..40 {
            let (_, photo) = photos.object(number + 1);
            assert!(photo.len() > 2 * stoker_engine::image::BEGINNING, "{}", photo.len());
            bytes += photo.len() as u64;
            server.put("media", &format!("{number}.jpg"), photo).unwrap();
        }
        let line = |sample: usize| {
            let text = "word ".repeat(1 + sample * 37 % 120);
            let image = format!("{}.jpg", sample % 40);
            json!({"messages": [
                {"role": "user", "content": [{"type": "image", "image": image}, {"type": "text", "text": text}]},
                {"role": "assistant", "content": format!("Sample {sample}.")},
            ]})
            .to_string()
        };
        let lines: Vec<_> = (0..SAMPLES).map(line).collect();
        std::fs::write(folder.path().join("train.jsonl"), lines.join("\n")).unwrap();
        Self { folder, server, bytes }
    }

    /// 64 batches a window, of about three samples each.
    fn recipe(&self, more: Value) -> Recipe {
        let mut recipe = json!({
            "dataset": {"media-root": "s3://media/"},
            "plan": {"lanes": 8, "shuffle": "none"},
            "fetch": {"endpoint": self.server.endpoint(), "anonymous": true},
            "vision": {"pixels": "u8", "max-pixels": 16384},
            "pack": {"max-tokens": 320},
            "engine": {"prefetch": 0, "workers": 2},
        });
        common::merge(&mut recipe, more);
        made(&self.folder.path().join("train.jsonl"), recipe)
    }

    /// Requests and bytes of what is done.
    fn cost(&self, work: impl FnOnce()) -> (u64, u64) {
        let before = self.server.stats();
        work();
        let after = self.server.stats();
        (after.requests - before.requests, after.bytes - before.bytes)
    }
}

fn first(loader: &Loader) -> Box<Batch> {
    match loader.next(PATIENCE).unwrap() {
        Next::Batch(batch) => batch,
        other => panic!("a batch in time, not {other:?}"),
    }
}

#[test]
fn a_window_is_measured_by_the_beginnings_of_its_images_and_only_once() {
    let store = Store::start();
    let mut expected = reference(store.recipe(json!({})), 0..1).remove(0);
    let mut images = 0;
    let (requests, bytes) = store.cost(|| {
        let loader = Loader::open(store.recipe(json!({})), rank(0, 1)).unwrap();
        let batch = first(&loader);
        images = batch.images();
        assert_eq!(see(&batch), expected);
    });
    let window = requests - images;
    assert!((64..SAMPLES as u64).contains(&window), "an image of each of its samples: {window}");
    let beginning = stoker_engine::image::BEGINNING as u64;
    assert!(bytes <= window * beginning + images * store.bytes, "{bytes}");
    assert!(bytes < window * store.bytes / 40, "less than all of each image: {bytes}");

    // Another rank, another process: nothing is measured again.
    for (index, of) in [(0, 1), (1, 2), (3, 8)] {
        expected = reference(store.recipe(json!({})), std::iter::once(index.into())).remove(0);
        let (requests, _) = store.cost(|| {
            let loader = Loader::open(store.recipe(json!({})), rank(index, of)).unwrap();
            let batch = first(&loader);
            images = batch.images();
            assert_eq!(see(&batch), expected);
        });
        assert_eq!(requests, images, "rank {index} of {of}");
    }
    // Another model sees other sizes.
    let (requests, _) = store.cost(|| {
        let more = json!({"vision": {"max-pixels": 12288}});
        first(&Loader::open(store.recipe(more), rank(0, 1)).unwrap());
    });
    assert!(requests > 100, "{requests}: a window was measured anew");
}

/// A cursor far on, as a run that has come so far would have saved it.
fn far(loader: &Loader, step: u64, of: u64) -> Cursor {
    let mut cursor = serde_json::to_value(loader.state()).unwrap();
    cursor["batches"] = json!(step * of);
    cursor["window_start"] = json!(step * of * 3 / 64 * 64);
    serde_json::from_value(cursor).unwrap()
}

#[test]
fn the_first_batch_after_resuming_at_step_1_000_000_fetches_nothing_that_was_consumed() {
    let store = Store::start();
    let resume = |more: Value, index: u32| {
        let mut images = 0;
        let (requests, _) = store.cost(|| {
            let loader = Loader::open(store.recipe(more), rank(index, 8)).unwrap();
            loader.load_state(&far(&loader, 1_000_000, 8)).unwrap();
            images = first(&loader).images();
        });
        (requests, images)
    };
    // Nothing is known: the current window is measured, and no other.
    let fresh = json!({"dataset": {"index-dir": store.folder.path().join("fresh")}});
    let (requests, images) = resume(fresh.clone(), 5);
    assert!(requests - images < SAMPLES as u64, "{requests} for one window");
    let (requests, images) = resume(fresh, 2);
    assert_eq!(requests, images, "it was measured by the other rank");

    // All is known.
    let sizes = loader::measure(store.recipe(json!({})), &mut |_, _| {}).unwrap();
    assert_eq!((sizes[0].measured, sizes[0].bad), (SAMPLES as u64, 0));
    assert!(sizes[0].path.exists() && sizes[0].tokens > 0);
    for index in [0, 7] {
        let (requests, images) = resume(json!({}), index);
        assert_eq!(requests, images, "what the batch is made of, and nothing else");
    }
}

#[test]
fn measuring_all_measures_what_is_missing_and_tells_how_far_it_is() {
    let store = Store::start();
    store.server.put("media", "3.jpg", "no image").unwrap();
    let mut told = Vec::new();
    let (requests, _) = store.cost(|| {
        let sizes =
            loader::measure(store.recipe(json!({})), &mut |done, all| told.push((done, all)));
        let sizes = sizes.unwrap().remove(0);
        let bad = SAMPLES as u64 / 40;
        assert_eq!((sizes.measured, sizes.bad), (SAMPLES as u64 - bad, bad));
    });
    assert!(requests >= SAMPLES as u64);
    assert!(told.is_sorted() && told.iter().all(|(done, all)| done <= all));
    // Bad ones may be mended, and are looked at again.
    let (requests, _) = store.cost(|| {
        loader::measure(store.recipe(json!({})), &mut |_, _| {}).unwrap();
    });
    assert_eq!(requests, SAMPLES as u64 / 40);
}

/// What the beginning does not show is known when the batch is made, in both engines.
#[test]
fn an_image_that_is_cut_off_behind_its_beginning_is_replaced_when_its_batch_is_made() {
    let store = Store::start();
    let (_, photo) = ChatDataset::new(5, 44, 600_000..=700_000).object(3);
    store.server.put("media", "2.jpg", photo[..photo.len() / 2].to_vec()).unwrap();
    let recipe = store.recipe(json!({"engine": {"prefetch": 8}}));
    let loader = Loader::open(recipe.clone(), rank(0, 1)).unwrap();
    let fast = drain(&loader, 70);
    assert!(fast.iter().flat_map(|batch| &batch.bad).any(|bad| bad.contains("ends before")));
    assert_eq!(fast, reference(recipe, 0..70));
}
