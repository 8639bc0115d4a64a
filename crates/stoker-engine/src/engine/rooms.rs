//! What every batch passes through: the opened rooms, and the steps that both engines take.
//!
//! A step is a function of its arguments and the (immutable) rooms, so it gives the same on any
//! thread. The engines differ only in when and where they call the steps.

use std::path::Path;
use std::sync::Arc;

use super::batch::Batch;
use super::boundary::contained;
use super::catalog::Catalog;
use super::machine;
use super::opening::Opening;
use super::sizes::Sizes;
use crate::error::{
    BadSample, Bytes as Size, DatasetError, DatasetErrorKind, Error, FetchError, FetchErrorKind,
    Flaw, Outcome, Problem, Result, SampleError,
};
use crate::fetch::Fetcher;
use crate::metrics::{Metrics, Room};
use crate::pack::{self, Layout, NeutralImage, Packer, PatchRow};
use crate::plan::{Identity, Plan};
use crate::recipe::{self, OnBadSample, Recipe, RgbRules};
use crate::sample::{Extent, Measured, Position, RawSample, Sample, SampleId, Standing};
use crate::text::Encoder;
use crate::vision::Preprocessor;

/// How many spare rows are looked at before the dataset as a whole is called bad.
const MOST_ATTEMPTS: u32 = 100;

/// The opened rooms.
#[derive(Debug)]
pub struct Rooms {
    pub(crate) recipe: Recipe,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) plan: Plan,
    pub(crate) catalog: Catalog,
    pub(crate) fetcher: Fetcher,
    pub(crate) vision: Preprocessor,
    pub(crate) text: Encoder,
    pub(super) pack: Packer,
    pub(super) rgb: RgbRules,
    pub(crate) sizes: Sizes,
}

impl Rooms {
    /// Opens all rooms; `progress` is told bytes read and bytes in all while an index is built.
    pub fn open(recipe: Recipe, progress: &mut dyn FnMut(u64, u64)) -> Result<Self> {
        Self::open_in(&Opening::default(), recipe, progress)
    }

    /// The same, in an opening that may be given up.
    pub(crate) fn open_in(
        opening: &Opening,
        recipe: Recipe,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Self> {
        let metrics = Arc::<Metrics>::default();
        let (vision, text) = of_model(&recipe)?;
        let pack = packer(&recipe.pack, &vision, &text)?;
        let fetcher = Fetcher::new(&recipe.fetch, Arc::clone(&metrics))?;
        opening.fetches(&fetcher)?;
        let catalog = Catalog::open(&recipe, &fetcher, progress)?;
        fetcher.open_cache(catalog.fingerprint(), machine::cache_memory(&recipe.engine))?;
        let text_identity = text.identity()?;
        let identity = identity(&recipe, &catalog, &vision, &text_identity);
        let (batch_size, sources) = (recipe.pack.batch_size, catalog.sources(&recipe));
        let plan = Plan::new(&recipe.plan, batch_size, &sources, identity)?;
        let rgb = recipe.compat.rgb();
        let sizes = sizes(&recipe, &catalog, &vision, &text_identity);
        Ok(Self { recipe, metrics, plan, catalog, fetcher, vision, text, pack, rgb, sizes })
    }

    /// Opens the datasets alone.
    pub(crate) fn open_catalog(
        recipe: &Recipe,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Catalog> {
        let fetcher = Fetcher::new(&recipe.fetch, Arc::default())?;
        Catalog::open(recipe, &fetcher, progress)
    }

    /// Opens the rooms that need the model's files, and nothing else.
    pub(crate) fn try_model(recipe: &Recipe) -> Result<()> {
        let (vision, text) = of_model(recipe)?;
        packer(&recipe.pack, &vision, &text)?;
        text.built()
    }

    /// The sizes that are known of the samples of opened datasets; `None` without the model's files.
    pub(crate) fn known_sizes(recipe: &Recipe, catalog: &Catalog) -> Option<Sizes> {
        let (vision, text) = of_model(recipe).ok()?;
        Some(sizes(recipe, catalog, &vision, &text.identity().ok()?))
    }

    /// The sample to try for a position: its own, then one spare after the other. `met` are the bad
    /// ones so far.
    pub(super) fn candidate(
        &self,
        position: Position,
        attempt: u32,
        met: &[SampleError],
    ) -> Result<SampleId> {
        match attempt {
            0 => Ok(self.plan.sample_at(position)),
            1..=MOST_ATTEMPTS => Ok(self.plan.spare(position, attempt)),
            _ => Err(Error::Dataset(DatasetError {
                kind: DatasetErrorKind::BadSamples(
                    met.iter().map(|bad| bad.clone().into_bad(Outcome::Replaced)).collect(),
                ),
                line: None,
                reason: format!(
                    "a sample and {MOST_ATTEMPTS} spares for it are all bad, the last one so: {}",
                    met.last().map(ToString::to_string).unwrap_or_default()
                ),
                hint: Some("mend the data; engine.on-bad-sample = \"stop\" shows the first".into()),
                uri: self.source_of(position),
            })),
        }
    }

    /// What the sample that was found for a position is there for; and of the bad ones that were met
    /// on the way to it, those that count, and what becomes of them.
    pub(super) fn standing(
        &self,
        position: Position,
        mut measured: Measured,
        mut bad: Vec<SampleError>,
    ) -> (Measured, Vec<BadSample>) {
        let mut outcome = Outcome::Replaced;
        if self.plan.is_padding(position) {
            measured.standing = Standing::Padding;
            bad.clear();
        } else if let Some(own) = bad.first().filter(|_| self.plan.keeps_rows()) {
            (measured.id, measured.origin) = (own.id, own.origin.clone());
            measured.standing = Standing::Neutral;
            // Spares have places of their own, where they count.
            bad.truncate(1);
            outcome = Outcome::Neutralised;
        }
        (measured, bad.into_iter().map(|error| error.into_bad(outcome)).collect())
    }

    /// What a line means.
    pub(super) fn parse(&self, raw: &RawSample) -> Result<Sample, Flaw> {
        let meter = self.metrics.room(Room::Dataset);
        let _busy = meter.enter();
        let _span = self.metrics.trace.span("parse", || vec![("line", raw.origin.clone().into())]);
        meter.bytes.add(raw.bytes.len() as u64);
        contained(Room::Dataset, || {
            #[cfg(any(test, feature = "testing"))]
            crate::testing::panic_at(crate::testing::IN_PARSING, &raw.bytes);
            self.catalog.parse(raw)
        })
    }

    /// The source of the dataset that a position belongs to.
    fn source_of(&self, position: Position) -> String {
        let id = self.plan.sample_at(position);
        self.recipe.datasets[id.dataset as usize].dataset.shown()
    }

    /// Refuses an image file over the limit, before its bytes are read.
    pub(super) fn admissible(&self, extent: &Extent, size: u64) -> Result<()> {
        let limit = self.recipe.image.max_bytes;
        if size <= limit {
            return Ok(());
        }
        Err(Error::Fetch(Box::new(FetchError {
            kind: FetchErrorKind::TooLarge,
            range: extent.range.clone(),
            attempts: 1,
            status: None,
            reason: format!("an image of {}, and image.max-bytes is {}", Size(size), Size(limit)),
            hint: Some("raise image.max-bytes if it is really an image".into()),
            request_id: None,
            uri: extent.object.shown(),
        })))
    }

    /// Places everything in a batch.
    pub(super) fn layout(&self, samples: &[Measured]) -> Layout {
        self.pack.layout(samples)
    }

    /// Writes what no image of a sample fills: neutral images and the text tensors.
    pub(super) fn write_rest(
        &self,
        layout: &Layout,
        samples: &[Measured],
        learned: &[bool],
        rest: &mut [u8],
    ) {
        let meter = self.metrics.room(Room::Pack);
        let _busy = meter.enter();
        let _span = self.metrics.trace.span("write text", Vec::new);
        meter.bytes.add(rest.len() as u64);
        let start = layout.rest().start;
        for slot in &layout.neutral {
            let slot = &mut rest[slot.start - start..slot.end - start];
            self.vision.write_neutral(&self.vision.smallest(), slot);
        }
        self.pack.write_text(layout, samples, learned, rest);
    }

    /// Counts what a batch brings to a trainer.
    pub(crate) fn count(&self, batch: &Batch) {
        if batch.is_none() {
            return;
        }
        let metrics = &self.metrics;
        metrics.samples.add(batch.samples().len() as u64);
        metrics.images.add(batch.images());
        metrics.neutral_images.add(batch.neutral_images());
        metrics.tokens.add(batch.tokens());
        metrics.padding.add(batch.padding());
        metrics.batch_bytes.add(batch.lease().len() as u64);
        metrics.room.add(self.recipe.pack.max_tokens.map_or(0, u64::from));
    }

    /// Turns a flaw into a bad sample to go on from, or into the error that ends the run.
    pub(super) fn bad(&self, id: SampleId, flaw: Flaw, origin: &str) -> Result<SampleError> {
        let error = SampleError { id, flaw, origin: origin.to_owned() };
        match self.recipe.engine.on_bad_sample {
            OnBadSample::Replace => Ok(error),
            OnBadSample::Stop => Err(Error::Sample(Box::new(error))),
        }
    }
}

/// Opens the rooms that read the model's files; what is wrong in either is told at once.
fn of_model(recipe: &Recipe) -> Result<(Preprocessor, Encoder)> {
    let model = recipe.model.as_deref().map(Path::new);
    if let Some(folder) = model.filter(|folder| !folder.is_dir()) {
        return Err(Error::Recipe(vec![Problem {
            path: "model".into(),
            reason: format!("there is no such folder: {}", folder.display()),
            hint: Some("name the folder that the model's files were downloaded to".into()),
        }]));
    }
    let vision = Preprocessor::open(model, &recipe.vision, recipe.compat);
    let text = Encoder::open(model, &recipe.text, pack::room_for_a_sample(&recipe.pack));
    match (vision, text) {
        (Ok(vision), Ok(text)) => Ok((vision, text)),
        (Err(Error::Recipe(mut problems)), Err(Error::Recipe(more))) => {
            problems.extend(more);
            Err(Error::Recipe(problems))
        }
        (Err(error), _) | (_, Err(error)) => Err(error),
    }
}

fn packer(config: &recipe::Pack, vision: &Preprocessor, text: &Encoder) -> Result<Packer> {
    let row = PatchRow { dtype: vision.dtype(), columns: vision.columns() };
    let grid = vision.smallest().grid;
    let neutral = NeutralImage { text: text.lone_image(grid, vision.merge_size()), grid };
    Packer::open(config, row, text.pad_token(), neutral)
}

fn sizes(recipe: &Recipe, catalog: &Catalog, vision: &Preprocessor, text: &str) -> Sizes {
    let (image, vision) = (&recipe.image, vision.identity());
    let measure = format!("{}\n{image:?}\n{vision:?}\n{text}", recipe.compat.as_str());
    Sizes::new(catalog.measurable(recipe), &measure)
}

/// A missing, forbidden or oversized object is the sample's flaw, and so is a web server that only the
/// data name: nobody can mend it. All else is the operator's.
pub(super) fn flaw_of(error: Error, is_foreign: impl Fn(&str) -> bool) -> Result<Flaw> {
    let code = match &error {
        Error::Fetch(fetch) => match fetch.kind {
            FetchErrorKind::NotFound => "missing",
            FetchErrorKind::Forbidden => "forbidden",
            FetchErrorKind::TooLarge => "too-many-bytes",
            _ if is_foreign(&fetch.uri) => "unreachable",
            _ => return Err(error),
        },
        _ => return Err(error),
    };
    Ok(Flaw::new(Room::Fetch, code, error.to_string()))
}

/// Everything that decides what batches hold, by name. What only decides how fast they come is not
/// in it.
fn identity(recipe: &Recipe, catalog: &Catalog, vision: &Preprocessor, text: &str) -> Identity {
    let mut identity = Identity::default();
    catalog.identify(recipe, &mut identity);
    identity.add("compat", recipe.compat.as_str());
    identity.add("image", hash(&format!("{:?}", recipe.image)));
    identity.add("vision", hash(&vision.identity()));
    identity.add("text", hash(text));
    let recipe::Pack { layout, min_images_per_batch, pad_to_multiple, .. } = recipe.pack;
    let recipe::Pack { max_tokens, max_images, max_patches, .. } = recipe.pack;
    if let Some(max_tokens) = max_tokens {
        identity.add("pack.max-tokens", max_tokens);
        identity.add("pack.max-images", format!("{max_images:?}"));
        identity.add("pack.max-patches", format!("{max_patches:?}"));
    }
    identity.add("pack.pad-to-multiple", pad_to_multiple);
    identity.add("pack.layout", format!("{layout:?}"));
    identity.add("pack.min-images-per-batch", min_images_per_batch);
    identity.add("engine.on-bad-sample", format!("{:?}", recipe.engine.on_bad_sample));
    identity
}

/// A hash as the identity shows it.
pub(super) fn hash(text: &str) -> String {
    format!("{:016x}", xxhash_rust::xxh3::xxh3_64(text.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::FetchError;

    /// Who has to act: the data's author for what only data name, the operator for a store.
    #[test]
    fn a_host_that_only_the_data_name_is_a_flaw_and_a_store_that_fails_is_not() {
        let failed = |kind, uri: &str| {
            let (reason, uri) = ("can't connect".to_owned(), uri.to_owned());
            let (range, status, hint, request_id) = Default::default();
            let error =
                FetchError { kind, range, attempts: 8, status, reason, hint, request_id, uri };
            let error = Error::Fetch(Box::new(error));
            flaw_of(error, |uri| uri.contains("gone.example")).map(|flaw| flaw.code)
        };
        let gone = "https://gone.example/a.jpg";
        for kind in [FetchErrorKind::Transient, FetchErrorKind::Denied, FetchErrorKind::Changed] {
            assert_eq!(failed(kind, gone), Ok("unreachable"));
            assert!(matches!(failed(kind, "s3://bucket/a.jpg"), Err(Error::Fetch(_))));
        }
        assert_eq!(failed(FetchErrorKind::NotFound, gone), Ok("missing"));
        assert_eq!(flaw_of(Error::Stopped, |_| true), Err(Error::Stopped));
    }

    /// The paths of the problems of a recipe, and all of them in words.
    fn problems(recipe: &str) -> (Vec<String>, String) {
        let recipe = Recipe::from_toml(&format!("{recipe}\n[dataset]\nsource = '/x.jsonl'"));
        let error = Rooms::open(recipe.unwrap(), &mut |_, _| {}).unwrap_err();
        let words = error.to_string();
        let Error::Recipe(problems) = error else { panic!("{words}") };
        (problems.into_iter().map(|problem| problem.path).collect(), words)
    }

    #[test]
    fn a_missing_model_folder_is_one_problem() {
        let (paths, words) = problems("model = '/no/such/model'");
        assert_eq!(paths, ["model"]);
        assert!(words.contains("model: there is no such folder: /no/such/model; "), "{words}");
    }

    #[test]
    fn what_the_model_lacks_for_images_and_for_text_is_told_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let model = format!("model = '{}'", folder.path().display());
        let text = ["text.tokenizer", "text.chat-template"];
        assert_eq!(problems(&model).0, ["vision.family", text[0], text[1]]);
        let (paths, words) = problems(&format!("{model}\nvision.config = '/no/such.json'"));
        assert_eq!(paths, ["vision.config", text[0], text[1]]);
        assert!(words.contains("): /no/such.json; check the path"), "{words}");
        assert_eq!(problems(&format!("{model}\nvision.family = 'qwen3-vl'")).0, text);
    }
}
