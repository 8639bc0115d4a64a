//! What each step from an encoded photo to its patches costs, against libjpeg-turbo by itself.
//!
//! In each round all stages take turns, each on all photos one after the other, so that whatever else
//! the machine does meets all alike, and each photo finds a cache full of others. Of each photo and
//! stage the median of the rounds counts. Times are those of this thread. What is written goes round an
//! arena that no cache holds, as in a batch.
//!
//! cargo run --release -p stoker-engine --example chain -- FOLDER [rounds=N] [max-pixels=N] [approximate=1]
//!
//! One stage alone, for callgrind to count (valgrind has no AVX-512, so it counts the AVX2 kernels):
//!
//! valgrind --tool=callgrind target/release/examples/chain FOLDER stage=NAME times=N
#![expect(clippy::print_stdout, reason = "a bench prints")]
#![expect(clippy::unwrap_used, reason = "a bench that can't go on stops")]

mod machine;

use std::collections::BTreeMap;
use std::fs;
use std::hint::black_box;

use machine::{Turbo, busy};
use memmap2::{Advice, MmapMut};
use stoker_engine::image::{self, Decoder};
use stoker_engine::recipe::{self, Compat, Pixels};
use stoker_engine::sample::{Decoded, ImageHeader, ImagePlan, RgbImage};
use stoker_engine::vision::{Preprocessor, Scratch};

const COMPAT: Compat = Compat::AsDisplayed;
const TYPES: [(&str, Pixels); 3] =
    [("u8", Pixels::U8), ("bf16", Pixels::Bf16), ("f32", Pixels::F32)];
/// Bytes that the output goes round in: a batch of eight megapixels as f32.
const ARENA: usize = 200 << 20;

/// A photo, its pixels, and those after the resize.
struct Photo {
    bytes: Vec<u8>,
    header: ImageHeader,
    plan: ImagePlan,
    decoded: RgbImage,
    resized: RgbImage,
}

/// What the engine keeps for a worker, and one preprocessor for each element type.
struct Bench {
    limits: recipe::Image,
    turbo: Turbo,
    warm: Vec<u8>,
    decoder: Decoder,
    scratch: Scratch,
    arena: MmapMut,
    next: usize,
    preprocessors: Vec<Preprocessor>,
}

#[derive(Clone, Copy)]
enum Stage {
    /// libjpeg-turbo alone, into a warm buffer.
    Pure,
    /// Reading the header.
    Inspect,
    /// Decoding as the engine does it.
    Decode,
    /// Resizing and patchifying decoded pixels.
    Write(usize),
    /// Patchifying pixels that need no resizing.
    Patchify(usize),
    /// All of it.
    Whole(usize),
}

impl Stage {
    fn all() -> Vec<(String, Self)> {
        let mut all = vec![
            ("pure".to_owned(), Self::Pure),
            ("inspect".to_owned(), Self::Inspect),
            ("decode".to_owned(), Self::Decode),
        ];
        let stages = [
            ("patchify", Self::Patchify as fn(usize) -> Self),
            ("write", Self::Write),
            ("whole", Self::Whole),
        ];
        for (name, stage) in stages {
            for (index, (pixels, _)) in TYPES.iter().enumerate() {
                all.push((format!("{name}-{pixels}"), stage(index)));
            }
        }
        all
    }

    /// Brings the pixels that a stage begins with into the cache, where the one before leaves them.
    fn warm(self, photo: &Photo) {
        let pixels = match self {
            Self::Write(_) => &photo.decoded.pixels,
            Self::Patchify(_) => &photo.resized.pixels,
            Self::Pure | Self::Inspect | Self::Decode | Self::Whole(_) => &photo.bytes,
        };
        black_box(pixels.iter().fold(0_u8, |all, byte| all ^ byte));
    }
}

impl Bench {
    fn new(max_pixels: Option<u64>, approximate: bool) -> Self {
        let mut arena = MmapMut::map_anon(ARENA).unwrap();
        let _huge = arena.advise(Advice::HugePage);
        arena.fill(1);
        let open = |(_, pixels)| {
            let family = Some("qwen3-vl".into());
            let config = recipe::Vision { family, pixels, max_pixels, ..recipe::Vision::default() };
            Preprocessor::open(None, &config, COMPAT).unwrap()
        };
        Self {
            limits: recipe::Image { approximate, ..recipe::Image::default() },
            turbo: Turbo::new(),
            warm: Vec::new(),
            decoder: Decoder::default(),
            scratch: Scratch::default(),
            arena,
            next: 0,
            preprocessors: TYPES.into_iter().map(open).collect(),
        }
    }

    fn read(&mut self, bytes: Vec<u8>) -> Photo {
        let header = image::inspect(&bytes, &self.limits, COMPAT.rgb()).unwrap();
        let plan = self.preprocessors[0].plan(header.size()).unwrap();
        let decoded = self.decoder.decode(&bytes, &header, &self.limits, COMPAT.rgb()).unwrap();
        let decoded = decoded.clone();
        self.warm.resize(self.warm.len().max(decoded.pixels.len()), 1);
        let whole = Decoded::Whole(&decoded);
        let resized = self.preprocessors[0].resize(whole, &plan, &mut self.scratch).unwrap();
        let photo = Photo { bytes, header, plan, decoded, resized };
        self.run(&photo, Stage::Pure);
        let pure = &self.warm[..photo.decoded.pixels.len()];
        assert!(pure == photo.decoded.pixels, "the engine decodes as libjpeg-turbo does");
        photo
    }

    fn run(&mut self, photo: &Photo, stage: Stage) {
        match stage {
            Stage::Pure => {
                let pixels = &mut self.warm[..photo.decoded.pixels.len()];
                self.turbo.decode(&photo.bytes, photo.decoded.width, pixels);
            }
            Stage::Inspect => {
                image::inspect(&photo.bytes, &self.limits, COMPAT.rgb()).unwrap();
            }
            Stage::Decode => {
                self.decoder
                    .decode(&photo.bytes, &photo.header, &self.limits, COMPAT.rgb())
                    .unwrap();
            }
            Stage::Write(pixels) => self.write(&photo.decoded, &photo.plan, pixels),
            Stage::Patchify(pixels) => self.write(&photo.resized, &photo.plan, pixels),
            Stage::Whole(pixels) => {
                let header = image::inspect(&photo.bytes, &self.limits, COMPAT.rgb()).unwrap();
                let (limits, rules) = (&self.limits, COMPAT.rgb());
                let seen = photo.plan.resized;
                let opened = self.decoder.open(&photo.bytes, &header, seen, limits, rules).unwrap();
                let preprocessor = &self.preprocessors[pixels];
                let out = place(&mut self.arena, &mut self.next, preprocessor, &photo.plan);
                preprocessor.write(opened, &photo.plan, out, &mut self.scratch).unwrap();
            }
        }
    }

    /// How near what the model sees is to what it would see without approximation, in decibels.
    fn closeness(&mut self, photo: &Photo) -> f64 {
        let (limits, seen) = (&self.limits, photo.plan.resized);
        let rgb = COMPAT.rgb();
        let opened = self.decoder.open(&photo.bytes, &photo.header, seen, limits, rgb).unwrap();
        let near = self.preprocessors[0].resize(opened, &photo.plan, &mut self.scratch).unwrap();
        let both = near.pixels.iter().zip(&photo.resized.pixels);
        let squares: f64 = both.map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2)).sum();
        10.0 * (255.0 * 255.0 * near.pixels.len() as f64 / squares).log10()
    }

    fn write(&mut self, image: &RgbImage, plan: &ImagePlan, pixels: usize) {
        let preprocessor = &self.preprocessors[pixels];
        let out = place(&mut self.arena, &mut self.next, preprocessor, plan);
        preprocessor.write(Decoded::Whole(image), plan, out, &mut self.scratch).unwrap();
    }
}

/// The next part of the arena.
fn place<'a>(
    arena: &'a mut MmapMut,
    next: &mut usize,
    preprocessor: &Preprocessor,
    plan: &ImagePlan,
) -> &'a mut [u8] {
    let bytes = plan.grid.patches() * preprocessor.columns() * preprocessor.dtype().size();
    let start = if *next + bytes > arena.len() { 0 } else { *next };
    *next = (start + bytes).next_multiple_of(64);
    &mut arena[start..start + bytes]
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().expect("the folder of the photos comes first");
    let setting = |argument: String| {
        let (name, value) = argument.split_once('=').expect("settings are name=value");
        (name.to_owned(), value.to_owned())
    };
    let settings: BTreeMap<String, String> = arguments.map(setting).collect();
    let number = |name: &str| settings.get(name).map(|value| value.parse::<u64>().unwrap());
    let mut bench = Bench::new(number("max-pixels"), number("approximate") == Some(1));
    let mut files: Vec<_> =
        fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    let photos: Vec<_> = files.iter().map(|file| bench.read(fs::read(file).unwrap())).collect();
    match settings.get("stage") {
        Some(name) => {
            let stages = Stage::all();
            let (_, stage) = stages.iter().find(|(known, _)| known == name).expect("a stage");
            for _ in 0..number("times").unwrap_or(1) {
                for photo in &photos {
                    bench.run(photo, *stage);
                }
            }
        }
        None => compare(&mut bench, &photos, number("rounds").unwrap_or(11)),
    }
}

fn compare(bench: &mut Bench, photos: &[Photo], rounds: u64) {
    let stages = Stage::all();
    let mut times = vec![vec![Vec::new(); photos.len()]; stages.len()];
    for _ in 0..rounds {
        for ((_, stage), times) in stages.iter().zip(&mut times) {
            for (number, photo) in photos.iter().enumerate() {
                stage.warm(photo);
                let begin = busy();
                bench.run(photo, *stage);
                times[number].push(busy() - begin);
            }
        }
    }
    let mean = |of: fn(&Photo) -> usize| {
        photos.iter().map(of).sum::<usize>() as f64 / photos.len() as f64 / 1e6
    };
    let pixels = mean(|photo| photo.decoded.width * photo.decoded.height);
    let bits = mean(|photo| photo.bytes.len()) * 8.0 / pixels;
    let seen = mean(|photo| photo.resized.width * photo.resized.height);
    let count = photos.len();
    println!("{count} photos of {pixels:.2} megapixels, {bits:.2} bits a pixel, seen at {seen:.2}");
    if bench.limits.approximate {
        let mut closeness: Vec<_> = photos.iter().map(|photo| bench.closeness(photo)).collect();
        closeness.sort_by(f64::total_cmp);
        let (least, median) = (closeness[0], closeness[count / 2]);
        println!("PSNR to what is exact: {median:.1} dB in the median, {least:.1} at least");
    }
    println!("stage              ms a photo    pure / stage");
    let median = |times: &mut Vec<f64>| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    };
    let mut pure = 0.0;
    for ((name, _), times) in stages.iter().zip(&mut times) {
        let time = times.iter_mut().map(median).sum::<f64>() / photos.len() as f64;
        if name == "pure" {
            pure = time;
        }
        println!("{name:16} {:12.3} {:15.3}", time * 1e3, pure / time);
    }
}
