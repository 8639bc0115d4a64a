//! Where the rooms meet. [`mod@reference`] is the engine as a plain loop, the specification; `flow` is
//! the engine that keeps ahead of a trainer. Both call the same steps (`rooms`) and make the same
//! bytes.

mod batch;
mod block;
mod boundary;
mod budget;
mod catalog;
mod fill;
mod flow;
mod keeper;
mod length;
mod machine;
mod measure;
mod opening;
mod peek;
mod pool;
pub mod reference;
mod rooms;
mod sizes;
mod windows;
mod workers;

pub use batch::Batch;
pub use block::{Lease, Memory};
pub use flow::Finding;
pub use keeper::{Keeper, Mapping};
pub use opening::Opening;
pub use peek::Peek;
pub use rooms::Rooms;

pub(crate) use catalog::Catalog;
pub(crate) use flow::{Findings, Flow, Told};
pub(crate) use machine::{memory, workers};
pub(crate) use sizes::Sizes;
pub(crate) use windows::FIRST_WINDOW;
