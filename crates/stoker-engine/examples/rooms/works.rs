//! One room's work each, on data that is always the same.

use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;

use serde_json::json;
use stoker_engine::dataset::Dataset;
use stoker_engine::fetch::Fetcher;
use stoker_engine::image::{self, Decoder};
use stoker_engine::pack::{NeutralImage, Packer, PatchRow};
use stoker_engine::plan::{Identity, Plan, Source};
use stoker_engine::recipe::{self, Compat, Decimal, Pixels, Recipe, Share};
use stoker_engine::sample::{
    Decoded, EncodedImage, Measured, Position, RawSample, RgbImage, Sample, SampleId, Standing,
};
use stoker_engine::text::Encoder;
use stoker_engine::vision::{Preprocessor, Scratch};

use crate::data::{CHATS, ODD, ROWS, WHOLE};

/// Samples of a batch.
pub(crate) const BATCH: usize = 8;

/// Side of a block of patches that is one token, in all families.
const MERGE_SIZE: u32 = 2;

/// What a room does, some times over.
pub(crate) struct Work {
    /// The room, and what of it.
    pub(crate) name: String,
    /// How many items one run makes: positions, lines, chats, images or samples.
    pub(crate) items: u64,
    pub(crate) run: Box<dyn FnMut()>,
}

fn work(name: &str, items: u64, run: impl FnMut() + 'static) -> Work {
    Work { name: name.to_owned(), items, run: Box::new(run) }
}

/// A recipe over the data, with some other keys.
pub(crate) fn recipe(data: &Path, model: &Path, pixels: Pixels) -> Recipe {
    let document = json!({
        "model": model,
        "dataset": {"source": data.join(CHATS)},
        "vision": {"pixels": pixels},
        "pack": {"batch-size": BATCH},
    });
    Recipe::from_value(document).unwrap()
}

/// All works, in the order of the flow.
pub(crate) fn all(data: &Path, model: &Path) -> Vec<Work> {
    let recipe = recipe(data, model, Pixels::U8);
    let mut works = vec![plan()];
    let (raw, dataset) = lines(data, &recipe);
    let samples = parsed(&raw, &dataset);
    works.push(parsing(raw, dataset));
    let text = Encoder::open(Some(model), &recipe.text, None).unwrap();
    let measured = Arc::new(measured(data, model, &recipe, &samples, &text));
    works.push(encoding(text, samples, &measured));
    works.extend(of_image(data, &recipe));
    for pixels in [Pixels::U8, Pixels::Bf16, Pixels::F32] {
        works.extend(of_vision(data, model, pixels));
    }
    works.extend(of_pack(model, &recipe, measured));
    works
}

/// A mixture of three datasets, shuffled: where each of so many positions is.
fn plan() -> Work {
    const POSITIONS: u64 = 1000;
    let source = |number: u64| {
        let rows = 1_000_000 * (number + 1);
        let share = Share::Weight(Decimal::new(number as f64 + 1.0).unwrap());
        Source { rows, shards: (0..10).map(|shard| rows * shard / 10).collect(), share }
    };
    let sources: Vec<Source> = (0..3).map(source).collect();
    let config = recipe::Plan::default();
    let plan = Plan::new(&config, BATCH as u32, &sources, Identity::default()).unwrap();
    work("plan", POSITIONS, move || {
        for position in 0..POSITIONS {
            black_box(plan.sample_at(Position(black_box(position))));
        }
    })
}

/// The lines of the dataset as they are stored.
fn lines(data: &Path, recipe: &Recipe) -> (Vec<RawSample>, Dataset) {
    let fetcher = Fetcher::new(&recipe.fetch, Arc::default()).unwrap();
    let config = &recipe.datasets[0].dataset;
    let dataset = Dataset::open(config, &fetcher, &mut |_, _| {}).unwrap();
    let text = fs::read_to_string(data.join(CHATS)).unwrap();
    let raw = text.lines().zip(0..).map(|(line, row)| {
        let bytes = line.as_bytes().to_vec().into();
        RawSample { id: SampleId { dataset: 0, row }, bytes, origin: dataset.origin(row) }
    });
    (raw.collect(), dataset)
}

fn parsed(raw: &[RawSample], dataset: &Dataset) -> Vec<Sample> {
    raw.iter().map(|raw| dataset.parse(raw).unwrap()).collect()
}

fn parsing(raw: Vec<RawSample>, dataset: Dataset) -> Work {
    work("dataset", ROWS, move || {
        for raw in &raw {
            black_box(dataset.parse(black_box(raw)).unwrap());
        }
    })
}

/// The samples with their text and what is known of their images.
fn measured(
    data: &Path,
    model: &Path,
    recipe: &Recipe,
    samples: &[Sample],
    text: &Encoder,
) -> Vec<Measured> {
    let vision = Preprocessor::open(Some(model), &recipe.vision, recipe.compat).unwrap();
    let bytes = bytes::Bytes::from(fs::read(data.join(ODD.name)).unwrap());
    let header = image::inspect(&bytes, &recipe.image, recipe.compat.rgb()).unwrap();
    let plan = vision.plan(header.size()).unwrap();
    let image = EncodedImage { name: ODD.name.to_owned(), bytes, header, plan };
    let measured = samples.iter().map(|sample| Measured {
        id: sample.id,
        text: text.encode(&sample.conversation, &[plan.grid], MERGE_SIZE).unwrap(),
        images: vec![image.clone()],
        origin: sample.origin.clone(),
        standing: Standing::Sample,
    });
    measured.collect()
}

fn encoding(text: Encoder, samples: Vec<Sample>, measured: &[Measured]) -> Work {
    let grids = [measured[0].images[0].plan.grid];
    work("text", ROWS, move || {
        for sample in &samples {
            let conversation = black_box(&sample.conversation);
            black_box(text.encode(conversation, &grids, MERGE_SIZE).unwrap());
        }
    })
}

fn of_image(data: &Path, recipe: &Recipe) -> [Work; 2] {
    const HEADERS: u64 = 100;
    let bytes = fs::read(data.join(ODD.name)).unwrap();
    let (limits, rules) = (recipe.image.clone(), recipe.compat.rgb());
    let header = image::inspect(&bytes, &limits, rules).unwrap();
    let (same, same_limits) = (bytes.clone(), limits.clone());
    let inspecting = work("image: header", HEADERS, move || {
        for _ in 0..HEADERS {
            black_box(image::inspect(black_box(&same), &same_limits, rules).unwrap());
        }
    });
    let mut decoder = Decoder::default();
    let decoding = work("image: decode", 1, move || {
        black_box(decoder.decode(black_box(&bytes), &header, &limits, rules).unwrap());
    });
    [inspecting, decoding]
}

/// Memory for patches that begins where a batch's would.
struct Slot {
    memory: Vec<u8>,
    start: usize,
    length: usize,
}

impl Slot {
    fn new(length: usize) -> Self {
        let memory = vec![1; length + stoker_engine::pack::ALIGNMENT];
        let start = memory.as_ptr().align_offset(stoker_engine::pack::ALIGNMENT);
        Self { memory, start, length }
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.length]
    }
}

fn of_vision(data: &Path, model: &Path, pixels: Pixels) -> [Work; 2] {
    let config = recipe::Vision { pixels, ..recipe::Vision::default() };
    let name = json!(pixels);
    let name = name.as_str().unwrap();
    [(WHOLE, ""), (ODD, ", resized")].map(|(photo, how)| {
        let vision = Preprocessor::open(Some(model), &config, Compat::default()).unwrap();
        let image = decoded(&fs::read(data.join(photo.name)).unwrap());
        let plan = vision.plan(size_of(&image)).unwrap();
        let row = vision.columns() * vision.dtype().size();
        let mut slot = Slot::new(plan.grid.patches() * row);
        let mut scratch = Scratch::default();
        work(&format!("vision: {name}{how}"), 1, move || {
            let whole = Decoded::Whole(black_box(&image));
            vision.write(whole, &plan, slot.bytes(), &mut scratch).unwrap();
        })
    })
}

fn size_of(image: &RgbImage) -> stoker_engine::sample::Size {
    let (width, height) = (image.width as u32, image.height as u32);
    stoker_engine::sample::Size { width, height }
}

fn decoded(bytes: &[u8]) -> RgbImage {
    let (limits, rules) = (recipe::Image::default(), Compat::default().rgb());
    let header = image::inspect(bytes, &limits, rules).unwrap();
    Decoder::default().decode(bytes, &header, &limits, rules).unwrap().clone()
}

fn of_pack(model: &Path, recipe: &Recipe, measured: Arc<Vec<Measured>>) -> [Work; 2] {
    const LAYOUTS: usize = 50;
    let vision = Preprocessor::open(Some(model), &recipe.vision, recipe.compat).unwrap();
    let row = PatchRow { dtype: vision.dtype(), columns: vision.columns() };
    let neutral = || {
        let grid = vision.smallest().grid;
        NeutralImage { text: measured[0].text.clone(), grid }
    };
    let packer = || Packer::open(&recipe.pack, row, 0, neutral()).unwrap();
    let (placer, writer) = (packer(), packer());
    let samples = Arc::clone(&measured);
    let placing = work("pack: layout", (LAYOUTS * BATCH) as u64, move || {
        for _ in 0..LAYOUTS {
            black_box(placer.layout(black_box(&samples[..BATCH])));
        }
    });
    let layout = writer.layout(&measured[..BATCH]);
    let mut rest = Slot::new(layout.rest().len());
    let writing = work("pack: text", BATCH as u64, move || {
        let samples = black_box(&measured[..BATCH]);
        writer.write_text(&layout, samples, &[true; BATCH], rest.bytes());
    });
    [placing, writing]
}
