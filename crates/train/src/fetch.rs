//! Fills a rank's tensors from a source or with what the seed gives. The counterpart of [`crate::deliver`].

use device::{DeviceError, Op, Stream, element};
use thiserror::Error;

use crate::pieces::{Copies, pieces};
use crate::rank::Rank;
use crate::source::{SourceError, TensorSource};
use crate::state::{Held, UnitState};

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

/// The weights: every element of every parameter buffer of the rank and of its master weights, zeros where it is padding.
///
/// # Errors
/// See [`FetchError`].
pub fn weights(rank: &Rank<'_>, source: &dyn TensorSource) -> Result<(), FetchError> {
    for (state, held) in weight_buffers(rank) {
        fill(rank, source, state, held)?;
    }
    Ok(())
}

/// The weights that the seed gives: functions of (seed, parameter, global element), never of ranks; zeros where it is padding.
///
/// # Errors
/// The device's.
pub fn drawn_weights(rank: &Rank<'_>) -> Result<(), DeviceError> {
    let (device, seed) = (&*rank.device, rank.setup.train.seed);
    for (state, held) in weight_buffers(rank) {
        device.submit(Stream::Compute, &Op::Fill { out: held.tensor, value: 0.0 })?;
        for piece in pieces(&state.layout, held.elements.clone(), rank.tensor, Copies::Every) {
            let (start, rows, cols) = piece.matrix();
            let out = held.part(piece.elements.clone()).reshaped(rows, cols);
            model::initialize(device, Stream::Compute, piece.param, start, out, seed)?;
        }
    }
    Ok(())
}

/// Everything that holds weights. What is narrow is rounded from the same values as master weights are filled with.
fn weight_buffers<'a>(rank: &'a Rank<'_>) -> impl Iterator<Item = (&'a UnitState, &'a Held)> {
    let states = rank.units.values().filter(|state| !state.layout.is_empty());
    states.flat_map(|state| std::iter::once(&state.params).chain(&state.masters).map(move |held| (state, held)))
}

fn fill(rank: &Rank<'_>, source: &dyn TensorSource, state: &UnitState, held: &Held) -> Result<(), FetchError> {
    rank.device.submit(Stream::Compute, &Op::Fill { out: held.tensor, value: 0.0 })?;
    let mut values = Vec::new();
    for start in held.elements.clone().step_by(CHUNK_LEN) {
        let chunk = start..held.elements.end.min(start + CHUNK_LEN);
        for piece in pieces(&state.layout, chunk, rank.tensor, Copies::Every) {
            values.resize(piece.elements.len(), 0.0f32);
            source.get(piece.param, &piece.region, &mut values)?;
            element::write(&*rank.device, held.part(piece.elements), &values)?;
        }
    }
    Ok(())
}
