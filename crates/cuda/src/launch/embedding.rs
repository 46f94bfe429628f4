//! Embeddings.

use device::{DeviceError, Tensor, Write};

use super::{Launch, Site};

/// `embedding_lookup`
pub(super) fn lookup(
    _site: &Site,
    tokens: Tensor,
    _table: (Tensor, usize),
    _out: Tensor,
    _write: Write,
) -> Result<Vec<Launch>, DeviceError> {
    Err(super::not_here("embedding_lookup", &tokens))
}

/// `embedding_backward`
pub(super) fn backward(
    _site: &Site,
    tokens: Tensor,
    _dy: (Tensor, f32),
    _first_row: usize,
    _untrained: Option<usize>,
    _dtable: Tensor,
) -> Result<Vec<Launch>, DeviceError> {
    Err(super::not_here("embedding_backward", &tokens))
}
