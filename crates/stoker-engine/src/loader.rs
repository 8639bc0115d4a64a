//! A stand-in for the front door, until the engine stands: batches of made-up numbers with the
//! right names, dtypes and shapes, leased and counted as real ones will be.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::error::{CursorError, Error, Result};
use crate::metrics::{Metrics, Report};
use crate::plan::Cursor;
use crate::recipe::{Pixels, Recipe};
use crate::sample::{BatchName, Dtype, Rank, SampleId};
use crate::vision::Finish;

use crate::pack::Tensor;

/// Memory of a batch.
pub struct Lease {
    memory: Vec<u64>,
    pool: Arc<Shared>,
}

struct Shared {
    metrics: Metrics,
    free: Mutex<Vec<Vec<u64>>>,
    closed: AtomicBool,
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.pool.metrics.leased_bytes.sub(self.memory.len() as u64 * 8);
        let memory = std::mem::take(&mut self.memory);
        self.pool.free.lock().unwrap_or_else(PoisonError::into_inner).push(memory);
    }
}

impl Lease {
    /// Start.
    pub fn as_ptr(&self) -> *mut u8 {
        self.memory.as_ptr().cast_mut().cast()
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lease({} words)", self.memory.len())
    }
}

/// A batch.
#[derive(Debug)]
pub struct Batch {
    tensors: Vec<Tensor>,
    lease: Arc<Lease>,
    cursor: Cursor,
    samples: Vec<SampleId>,
}

impl Batch {
    /// Tensors.
    pub fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }
    /// Their bytes.
    pub fn data(&self, tensor: &Tensor) -> &[u8] {
        &bytes_of(&self.lease.memory)[tensor.range()]
    }
    /// Keeps the memory.
    pub fn lease(&self) -> &Arc<Lease> {
        &self.lease
    }
    /// Its name.
    pub fn name(&self) -> BatchName {
        BatchName { lane: 0, number: self.cursor.step - 1 }
    }
    /// The cursor after it.
    pub fn cursor(&self) -> Option<&Cursor> {
        Some(&self.cursor)
    }
    /// Its samples.
    pub fn samples(&self) -> &[SampleId] {
        &self.samples
    }
}

#[expect(unsafe_code, reason = "stub")]
fn bytes_of(words: &[u64]) -> &[u8] {
    // SAFETY: any u64 is eight bytes.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), words.len() * 8) }
}

/// What came of waiting.
#[derive(Debug)]
pub enum Next {
    /// A batch.
    Batch(Box<Batch>),
    /// The end of the run.
    End,
    /// Nothing yet.
    Waiting,
}

/// The front door.
pub struct Loader {
    recipe: Recipe,
    shared: Arc<Shared>,
    step: Mutex<u64>,
}

impl fmt::Debug for Loader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Loader")
    }
}

const ROWS: u64 = 10;

impl Loader {
    /// Opens the data.
    pub fn open(recipe: Recipe, rank: Rank) -> Result<Self> {
        let _ = rank;
        let shared = Shared {
            metrics: Metrics::default(),
            free: Mutex::default(),
            closed: AtomicBool::new(false),
        };
        Ok(Self { recipe, shared: Arc::new(shared), step: Mutex::new(0) })
    }

    /// The next batch.
    pub fn next(&self, patience: Duration) -> Result<Next> {
        if self.recipe.dataset.source.contains("stall") {
            let until = Instant::now() + patience;
            while Instant::now() < until && !self.shared.closed.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(5));
            }
            if !self.shared.closed.load(Ordering::Relaxed) {
                return Ok(Next::Waiting);
            }
        }
        if self.shared.closed.load(Ordering::Relaxed) {
            return Err(Error::Stopped);
        }
        let mut step = self.step.lock().unwrap_or_else(PoisonError::into_inner);
        if self.len().is_some_and(|len| *step >= len) {
            return Ok(Next::End);
        }
        *step += 1;
        Ok(Next::Batch(Box::new(self.batch(*step))))
    }

    fn batch(&self, step: u64) -> Batch {
        let (pixels, columns) = match self.recipe.vision.pixels {
            Pixels::F32 => (Dtype::F32, 1536),
            Pixels::Bf16 => (Dtype::Bf16, 1536),
            Pixels::U8 => (Dtype::U8, 768),
        };
        let mut tensors = Vec::new();
        let mut offset = 0;
        for (name, dtype, shape) in [
            ("input_ids", Dtype::I64, vec![2, 7]),
            ("pixel_values", pixels, vec![16, columns]),
            ("image_grid_thw", Dtype::I64, vec![1, 3]),
        ] {
            let bytes = shape.iter().product::<usize>() * dtype.size();
            tensors.push(Tensor { name, dtype, shape, offset });
            offset += bytes.next_multiple_of(64);
        }
        let free = self.shared.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut memory = free.unwrap_or_else(|| vec![0; offset / 8]);
        memory.fill(step);
        self.shared.metrics.leased_bytes.add(memory.len() as u64 * 8);
        let lease = Arc::new(Lease { memory, pool: Arc::clone(&self.shared) });
        let samples = VecDeque::from([SampleId { dataset: 0, row: step }]).into();
        Batch { tensors, lease, cursor: Cursor { seed: self.recipe.plan.seed, step }, samples }
    }

    /// Where to go on.
    pub fn state(&self) -> Cursor {
        let step = *self.step.lock().unwrap_or_else(PoisonError::into_inner);
        Cursor { seed: self.recipe.plan.seed, step }
    }

    /// Goes on there.
    pub fn load_state(&self, cursor: &Cursor) -> Result<()> {
        if cursor.seed != self.recipe.plan.seed {
            return Err(Error::Cursor(CursorError {
                field: "plan.seed".into(),
                expected: self.recipe.plan.seed.to_string(),
                found: cursor.seed.to_string(),
                hint: "resume with the recipe that the cursor was made with".into(),
            }));
        }
        *self.step.lock().unwrap_or_else(PoisonError::into_inner) = cursor.step;
        Ok(())
    }

    /// Goes back to the beginning.
    pub fn rewind(&self) -> Result<()> {
        *self.step.lock().unwrap_or_else(PoisonError::into_inner) = 0;
        Ok(())
    }

    /// Batches of this rank.
    pub fn len(&self) -> Option<u64> {
        self.recipe.plan.epochs.map(|epochs| epochs * ROWS)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }

    /// A snapshot of the metrics.
    pub fn report(&self) -> Report {
        self.shared.metrics.report()
    }

    /// Ends everything.
    pub fn close(&self) {
        self.shared.closed.store(true, Ordering::Relaxed);
    }

    /// What finishes `u8` pixels on a device.
    pub fn finish(&self) -> Finish {
        Finish {
            pixels: self.recipe.vision.pixels,
            mean: [0.5 * 255.0; 3],
            std: [0.5 * 255.0; 3],
            patch_size: 16,
            temporal_patch_size: 2,
        }
    }
}
