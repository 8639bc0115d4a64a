//! What exists: the datasets of a recipe, opened.
//!
//! Opening one costs a request to its store, and a pass over it where it was never indexed, so
//! several are opened at a time. A dataset is known by its number in the recipe, which is part of a
//! sample's address; in errors and in the plan's identity it is known by its name.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use xxhash_rust::xxh3::xxh3_64;

use crate::dataset::Dataset;
use crate::error::{Error, Flaw, Result};
use crate::fetch::Fetcher;
use crate::metrics::Room;
use crate::plan::{Identity, Source};
use crate::recipe::{self, Component, Recipe};
use crate::sample::{Extent, Location, RawSample, Sample, SampleId};

use super::boundary::contained;
use super::rooms::hash;
use super::sizes::Measurable;

/// Datasets that are opened at a time: at 30 ms a request, 500 in a second.
const AT_A_TIME: usize = 16;

/// Most datasets that stand in the identity one by one, so that a cursor stays below 4 KB.
const NAMED: usize = 24;

/// The opened datasets, in the order of the recipe.
#[derive(Debug)]
pub(crate) struct Catalog {
    datasets: Vec<Dataset>,
    /// Those that the recipe names, for any of its datasets.
    web_servers: HashSet<String>,
}

/// What a thread that opens has to tell.
enum Opening {
    Progress { number: usize, done: u64, all: u64 },
    Opened { number: usize, dataset: Result<Box<Dataset>> },
}

impl Catalog {
    /// Opens all datasets; `progress` is told bytes read and bytes in all while indexes are built.
    pub(crate) fn open(
        recipe: &Recipe,
        fetcher: &Fetcher,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Self> {
        let components = &recipe.datasets;
        if let [only] = components.as_slice() {
            let dataset = open_one(only, fetcher, progress)?;
            return Ok(Self::of(vec![dataset]));
        }
        let (next, (sender, told)) = (AtomicUsize::new(0), sync_channel(AT_A_TIME));
        thread::scope(|scope| {
            for number in 0..AT_A_TIME.min(components.len()) {
                let (next, sender) = (&next, sender.clone());
                let name = format!("stoker-open-{number}");
                let thread = thread::Builder::new().name(name.clone());
                let started = thread.spawn_scoped(scope, move || {
                    open_some(components, fetcher, next, &sender);
                });
                started.map_err(|error| {
                    next.store(components.len(), Ordering::Relaxed);
                    Error::no_thread(&name, &error)
                })?;
            }
            drop(sender);
            gather(components.len(), &told, progress).map(Self::of)
        })
    }

    fn of(datasets: Vec<Dataset>) -> Self {
        let web_servers = datasets.iter().flat_map(Dataset::web_servers).map(str::to_owned);
        Self { web_servers: web_servers.collect(), datasets }
    }

    /// The datasets, in the order of the recipe.
    pub(crate) fn datasets(&self) -> &[Dataset] {
        &self.datasets
    }

    /// Identity of all rows of all datasets.
    pub(crate) fn fingerprint(&self) -> u64 {
        let each = self.datasets.iter().map(|dataset| dataset.fingerprint().to_le_bytes());
        xxh3_64(each.collect::<Vec<_>>().as_flattened())
    }

    /// Where a sample lies; a flaw for one that is known to be unusable.
    pub(crate) fn locate(&self, id: SampleId) -> Result<Extent, Flaw> {
        contained(Room::Dataset, || self.dataset(id).locate(id.row))
    }

    /// `file:line` of a sample, for people.
    pub(crate) fn origin(&self, id: SampleId) -> String {
        self.dataset(id).origin(id.row)
    }

    /// Whether an address is one of a web server that only the data name.
    pub(crate) fn is_foreign(&self, uri: &str) -> bool {
        let there = Location::parse(uri).ok();
        let server = there.as_ref().and_then(Location::web_server);
        server.is_some_and(|server| !self.web_servers.contains(server))
    }

    /// What a line means.
    pub(crate) fn parse(&self, raw: &RawSample) -> Result<Sample, Flaw> {
        self.dataset(raw.id).parse(raw)
    }

    fn dataset(&self, id: SampleId) -> &Dataset {
        &self.datasets[id.dataset as usize]
    }

    /// What the plan has to know.
    pub(crate) fn sources(&self, recipe: &Recipe) -> Vec<Source> {
        let both = self.datasets.iter().zip(&recipe.datasets);
        both.map(|(dataset, component)| Source {
            rows: dataset.rows(),
            shards: dataset.shards(),
            share: component.share,
        })
        .collect()
    }

    /// What the sizes of samples are kept by.
    pub(super) fn measurable(&self, recipe: &Recipe) -> impl Iterator<Item = Measurable<'_>> {
        let both = self.datasets.iter().zip(&recipe.datasets);
        both.map(|(dataset, component)| Measurable {
            index: dataset.index_path(),
            rows: dataset.rows(),
            identity: format!("{:016x} {:?}", dataset.fingerprint(), meaning(&component.dataset)),
        })
    }

    /// Adds the identity of all data: what is in it, and what is made of it.
    pub(crate) fn identify(&self, recipe: &Recipe, identity: &mut Identity) {
        let fingerprint = |dataset: &Dataset| format!("{:016x}", dataset.fingerprint());
        if let ([only], [component]) = (self.datasets.as_slice(), recipe.datasets.as_slice()) {
            identity.add("dataset", fingerprint(only));
            identity.add("dataset.rows", only.rows());
            for (key, value) in meaning(&component.dataset) {
                identity.add(&format!("dataset.{key}"), value);
            }
            return;
        }
        let both = self.datasets.iter().zip(&recipe.datasets);
        let value = |(number, (dataset, component)): (usize, (&Dataset, &Component))| {
            let keys = hash(&format!("{:?}", meaning(&component.dataset)));
            let (data, rows) = (fingerprint(dataset), dataset.rows());
            // The number is part of a sample's address.
            format!("number {number}, {data} of {rows} rows, keys {keys}")
        };
        let values = both.enumerate().map(value);
        if self.datasets.len() <= NAMED {
            for (component, value) in recipe.datasets.iter().zip(values) {
                identity.add(&format!("datasets.{}", component.name), value);
            }
        } else {
            let all = values.collect::<Vec<_>>().join("\n");
            identity.add("datasets", format!("{}, together {}", self.datasets.len(), hash(&all)));
        }
    }
}

/// The keys of a dataset that decide what its samples mean.
fn meaning(config: &recipe::Dataset) -> [(&'static str, String); 4] {
    [
        ("media-root", config.media_root.clone().unwrap_or_default()),
        ("allow-http", config.allow_http.to_string()),
        ("max-line", config.max_line.to_string()),
        ("fields", hash(&format!("{:?}", config.fields))),
    ]
}

/// Opens one dataset after the other, as long as there are any.
fn open_some(
    components: &[Component],
    fetcher: &Fetcher,
    next: &AtomicUsize,
    sender: &SyncSender<Opening>,
) {
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        let Some(component) = components.get(number) else { return };
        let mut progress = |done, all| {
            sender.send(Opening::Progress { number, done, all }).unwrap_or_default();
        };
        let dataset = open_one(component, fetcher, &mut progress).map(Box::new);
        let failed = dataset.as_ref().is_err_and(|error| !matches!(error, Error::Recipe(_)));
        if failed {
            // What the recipe got wrong is told at once; all else ends with the first.
            next.store(components.len(), Ordering::Relaxed);
        }
        sender.send(Opening::Opened { number, dataset }).unwrap_or_default();
    }
}

/// Takes in what the threads tell until all have ended.
fn gather(
    count: usize,
    told: &Receiver<Opening>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Vec<Dataset>> {
    let mut sizes = vec![(0, 0); count];
    let mut opened: Vec<Option<Result<Box<Dataset>>>> = (0..count).map(|_| None).collect();
    for news in told {
        match news {
            Opening::Progress { number, done, all } => {
                sizes[number] = (done, all);
                let sum = |(a, b): (u64, u64), (c, d): &(u64, u64)| (a + c, b + d);
                let (done, all) = sizes.iter().fold((0, 0), sum);
                progress(done, all);
            }
            Opening::Opened { number, dataset } => opened[number] = Some(dataset),
        }
    }
    let (mut datasets, mut problems) = (Vec::new(), Vec::new());
    for dataset in opened.into_iter().flatten() {
        match dataset {
            Ok(dataset) => datasets.push(*dataset),
            Err(Error::Recipe(more)) => problems.extend(more),
            Err(error) => return Err(error),
        }
    }
    if problems.is_empty() { Ok(datasets) } else { Err(Error::Recipe(problems)) }
}

fn open_one(
    component: &Component,
    fetcher: &Fetcher,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Dataset> {
    let opened = Dataset::open(&component.dataset, fetcher, progress);
    opened.map_err(|error| {
        let Error::Recipe(mut problems) = error else { return error };
        for problem in &mut problems {
            if let Some(key) = problem.path.strip_prefix("dataset.") {
                problem.path = format!("{}.{key}", component.path());
            }
        }
        Error::Recipe(problems)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A store that fails ends a run. A web server that only a line names is no store of the run, and
    /// one that the recipe names is, whichever dataset it is named for.
    #[test]
    fn web_servers_that_no_dataset_of_the_recipe_names_are_foreign() {
        let folder = tempfile::tempdir().unwrap();
        let source = |name: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, "{}\n").unwrap();
            format!("name = '{}'\nsource = '{}'", &name[..1], path.display())
        };
        let (a, b) = (source("a.jsonl"), source("b.jsonl"));
        let recipe = format!(
            "model = '/no/such/model'\n[[datasets]]\n{a}\nallow-http = true\n[[datasets]]\n{b}\n\
             media-root = 'https://host.example/images/'"
        );
        let recipe = Recipe::from_toml(&recipe).unwrap();
        let fetcher = Fetcher::new(&recipe.fetch, std::sync::Arc::default()).unwrap();
        let catalog = Catalog::open(&recipe, &fetcher, &mut |_, _| {}).unwrap();
        assert!(!catalog.is_foreign("https://host.example/a.jpg"));
        assert!(!catalog.is_foreign("http://host.example/elsewhere/a.jpg?x=1"));
        assert!(catalog.is_foreign("https://other.example/images/a.jpg"));
        assert!(catalog.is_foreign("https://host.example:444/images/a.jpg"));
        // With the credentials of the run, and at its endpoint.
        assert!(!catalog.is_foreign("s3://other/a.jpg"));
        assert!(!catalog.is_foreign("/data/a.jpg"));
    }
}
