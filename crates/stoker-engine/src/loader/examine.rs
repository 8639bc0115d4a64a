//! Looking at everything a run depends on, one thing after the other, so that one that fails does not
//! hide the next: the stores, the data, the model, some samples. A run asks for all of it at once and
//! ends with the first that fails.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::dataset::Dataset;
use crate::engine::reference::Reference;
use crate::engine::{Catalog, Peek, Rooms};
use crate::error::Result;
use crate::fetch::{Credentials, Door, Environment, Fetcher, Greeting, Pace};
use crate::metrics::Metrics;
use crate::recipe::Recipe;
use crate::sample::{Extent, ImageRef, Location, Position, RawSample, SampleId, Scheme};

/// Rows that are looked at for what they name, of all datasets together.
const ROWS: u64 = 64;

/// A recipe that is examined.
pub struct Examination {
    recipe: Recipe,
    environment: Environment,
    fetcher: Fetcher,
}

/// Its datasets, opened.
pub struct Data {
    catalog: Catalog,
}

impl Examination {
    /// Nothing is asked yet. `environment` says who we are.
    pub fn new(recipe: Recipe, environment: Environment) -> Result<Self> {
        let fetcher =
            Fetcher::with_environment(&recipe.fetch, Arc::default(), environment.clone())?;
        Ok(Self { recipe, environment, fetcher })
    }

    /// The stores that the recipe names, each once, as an object in it (which need not be there), or why
    /// an address is none.
    pub fn stores(&self) -> Vec<Result<Location, String>> {
        let datasets = self.recipe.datasets.iter().map(|component| &component.dataset);
        let addresses = datasets
            .flat_map(|dataset| dataset.source.first().into_iter().chain(&dataset.media_root));
        let mut met = BTreeSet::new();
        let mut stores = Vec::new();
        for address in addresses {
            match Location::parse(address) {
                Ok(Location { scheme: Scheme::File, .. }) => {}
                Ok(location) => {
                    if met.insert((location.scheme, location.authority.clone())) {
                        stores.push(Ok(location));
                    }
                }
                Err(flaw) => stores.push(Err(flaw.to_string())),
            }
        }
        stores
    }

    /// Where requests for a store go; nothing for local files.
    pub fn door(&self, store: &Location) -> Result<Option<Door>> {
        self.fetcher.door(store)
    }

    /// Whether it answers anybody at all, and what time it has.
    pub fn greeting(&self, store: &Location) -> Result<Greeting> {
        self.fetcher.greeting_blocking(store)
    }

    /// Who we are there; nothing where requests go unsigned.
    pub fn credentials(&self, store: &Location) -> Result<Option<Credentials>> {
        self.fetcher.credentials_blocking(store)
    }

    /// The region of a store by now: it may have named another than the one that was asked.
    pub fn region(&self, store: &Location) -> Option<String> {
        self.fetcher.door(store).ok()??.region
    }

    /// Opens the datasets, and builds the indexes that are missing if that is done in `patience`: else
    /// it ends with [`crate::error::Error::Stopped`].
    pub fn data(&self, patience: Duration, progress: &mut dyn FnMut(u64, u64)) -> Result<Data> {
        let ended = self.fetcher.clone();
        let end = self.fetcher.spawn(async move {
            tokio::time::sleep(patience).await;
            ended.close();
        });
        let catalog = Catalog::open(&self.recipe, &self.fetcher, progress);
        end.abort();
        Ok(Data { catalog: catalog? })
    }

    /// Opens what is made of the model's files, and tries it.
    pub fn model(&self) -> Result<()> {
        Rooms::try_model(&self.recipe)
    }

    /// What a run would read of some rows: their images where these are objects of their own, else the
    /// rows. What can't be found is left out.
    pub fn extents(&self, data: &Data) -> Result<Vec<Extent>> {
        let fetcher = self.anew(Arc::default())?;
        let mut extents = Vec::new();
        for id in data.some_rows() {
            let Ok(row) = data.catalog.locate(id) else { continue };
            let Ok(bytes) = fetcher.read_blocking(&row) else { continue };
            let raw = RawSample { id, bytes, origin: data.catalog.origin(id) };
            let images = data.catalog.parse(&raw).map_or(Vec::new(), |sample| sample.images);
            let stored: Vec<_> = images
                .into_iter()
                .filter_map(|image| match image {
                    ImageRef::Stored(extent) => Some(extent),
                    ImageRef::Inline(_) => None,
                })
                .collect();
            if stored.is_empty() { extents.push(row) } else { extents.extend(stored) }
        }
        extents.retain(|extent| extent.object.scheme != Scheme::File);
        Ok(extents)
    }

    /// How fast the stores give extents, so many at a time.
    pub fn pace(
        &self,
        extents: &[Extent],
        at_once: usize,
        patience: Duration,
        most: u64,
    ) -> Result<Pace> {
        // One that has seen nothing yet: what it counts is of this alone.
        let fetcher = self.anew(Arc::default())?;
        let pace = fetcher.pace_blocking(extents.to_vec(), at_once, patience, most);
        fetcher.close();
        pace
    }

    /// The samples at the first positions of the plan, as the model sees them; each by itself.
    pub fn samples(&self, count: u64) -> Result<Vec<Result<Peek>>> {
        let rooms = Arc::new(Rooms::open(self.recipe.clone(), &mut |_, _| {})?);
        let mut reference = Reference::new(Arc::clone(&rooms));
        let rows: u64 = rooms.catalog.datasets().iter().map(Dataset::rows).sum();
        let peeks = (0..count.min(rows)).map(|position| reference.peek(Position(position)));
        let peeks = peeks.collect();
        rooms.fetcher.close();
        Ok(peeks)
    }

    fn anew(&self, metrics: Arc<Metrics>) -> Result<Fetcher> {
        Fetcher::with_environment(&self.recipe.fetch, metrics, self.environment.clone())
    }
}

impl Drop for Examination {
    fn drop(&mut self) {
        self.fetcher.close();
    }
}

impl Data {
    /// Rows of all datasets together.
    pub fn rows(&self) -> u64 {
        self.catalog.datasets().iter().map(Dataset::rows).sum()
    }

    /// Shards of all datasets together.
    pub fn shards(&self) -> usize {
        self.catalog.datasets().iter().map(Dataset::shard_count).sum()
    }

    /// What the owner of the data should know and is no error.
    pub fn notes(&self) -> Vec<String> {
        self.catalog.datasets().iter().flat_map(Dataset::notes).collect()
    }

    /// Rows that lie far from each other.
    fn some_rows(&self) -> Vec<SampleId> {
        let datasets = self.catalog.datasets();
        let each = (ROWS / datasets.len().max(1) as u64).max(1);
        let of = |(number, rows): (usize, u64)| {
            let count = each.min(rows);
            (0..count).map(move |turn| SampleId {
                dataset: number as u32,
                row: (u128::from(turn) * u128::from(rows) / u128::from(count.max(1))) as u64,
            })
        };
        datasets.iter().map(Dataset::rows).enumerate().flat_map(of).collect()
    }
}
