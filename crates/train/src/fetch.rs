//! Fills a rank's tensors from a source. The counterpart of [`crate::deliver`].

use device::{DeviceError, Op, Stream, Tensor};
use thiserror::Error;

use crate::pieces::{Copies, pieces};
use crate::rank::Rank;
use crate::source::{SourceError, TensorSource};
use crate::state::UnitState;

/// Elements that are read at once: four MiB on the host, however large a unit is.
const CHUNK_LEN: usize = 1 << 20;

/// Why a rank's tensors could not be filled.
#[derive(Debug, Error)]
pub enum FetchError {
    /// The source cannot give them.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// The weights: every element of every parameter buffer of the rank, zeros where it is padding.
///
/// # Errors
/// See [`FetchError`].
pub fn weights(rank: &Rank<'_>, source: &dyn TensorSource) -> Result<(), FetchError> {
    for state in rank.units.values().filter(|state| !state.layout.is_empty()) {
        fill(rank, source, state, state.params)?;
    }
    Ok(())
}

fn fill(rank: &Rank<'_>, source: &dyn TensorSource, state: &UnitState, flat: Tensor) -> Result<(), FetchError> {
    rank.device.submit(Stream::Compute, &Op::Fill { out: flat, value: 0.0 })?;
    let len = state.layout.len;
    let mut values = Vec::new();
    for start in (0..len).step_by(CHUNK_LEN) {
        let chunk = start..len.min(start + CHUNK_LEN);
        for piece in pieces(&state.layout, chunk, rank.tensor, Copies::Every) {
            values.resize(piece.elements.len(), 0.0f32);
            source.get(piece.param, &piece.region, &mut values)?;
            rank.device.write(flat.elements(piece.elements), bytemuck::cast_slice(&values))?;
        }
    }
    Ok(())
}
