//! stub
use crate::sample::Dtype;

/// One tensor.
#[derive(Clone, Debug)]
pub struct Tensor {
    /// Name.
    pub name: &'static str,
    /// Element type.
    pub dtype: Dtype,
    /// Shape.
    pub shape: Vec<usize>,
    /// Offset in the arena.
    pub offset: usize,
}

impl Tensor {
    /// Its bytes.
    pub fn range(&self) -> std::ops::Range<usize> {
        self.offset..self.offset + self.shape.iter().product::<usize>() * self.dtype.size()
    }
}
