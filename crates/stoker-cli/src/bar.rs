//! Progress on stderr; nothing where stderr is no terminal.

use indicatif::{ProgressBar, ProgressStyle};

/// Batches; without a number of them, a spinner.
pub(crate) fn of_batches(number: Option<u64>) -> ProgressBar {
    let template = match number {
        Some(_) => "{wide_bar} {pos}/{len} batches  {msg}",
        None => "{spinner} {pos} batches  {msg}",
    };
    bar(number, template)
}

/// Samples that are checked or measured.
pub(crate) fn of_samples(number: u64) -> ProgressBar {
    bar(Some(number), "{wide_bar} {pos}/{len} samples  {per_sec}  {msg}  {eta} left")
}

/// Bytes that an index is built from.
pub(crate) fn of_bytes() -> ProgressBar {
    bar(Some(0), "{wide_bar} {bytes}/{total_bytes} indexed  {bytes_per_sec}")
}

/// A way for the engine to tell how far it is.
pub(crate) fn follow(bar: &ProgressBar) -> impl FnMut(u64, u64) {
    |done, all| {
        bar.set_length(all);
        bar.set_position(done);
    }
}

fn bar(length: Option<u64>, template: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template).expect("the templates above are valid");
    let bar = length.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
    bar.with_style(style)
}
