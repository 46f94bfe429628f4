//! Fills a rank's tensors from a source or with what the seed gives. The counterpart of [`crate::storage::deliver`] and
//! [`crate::storage::saving`].

use std::collections::BTreeMap;
use std::ops::Range;

use config::{ModelCoord, Unit};
use device::{Device, DeviceError, Op, Stream, Tensor};
use thiserror::Error;

use crate::setup::source::{SourceError, TensorSource};
use crate::storage::pieces::{Copies, pieces};
use crate::worker::unit_state::{Held, UnitState};

/// Elements that are read at once: sixteen MiB on the host, however large a unit is. Storage that is read in blocks of
/// one MiB reads few of them twice.
const CHUNK_LEN: usize = 4 << 20;

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

/// The weights: every element of every parameter buffer of the rank at `coord` and of its master weights, zeros where
/// it is padding.
///
/// # Errors
/// See [`FetchError`].
pub fn weights(
    device: &dyn Device,
    coord: ModelCoord,
    units: &BTreeMap<Unit, UnitState>,
    source: &dyn TensorSource,
) -> Result<(), FetchError> {
    for (state, held, _) in weight_buffers(units) {
        fill(device, coord, source, (state, held))?;
    }
    Ok(())
}

/// The weights that the seed gives: functions of (seed, parameter, global element), never of ranks; zeros where it is
/// padding.
///
/// # Errors
/// The device's.
pub fn drawn_weights(
    device: &dyn Device,
    coord: ModelCoord,
    units: &BTreeMap<Unit, UnitState>,
    seed: u64,
) -> Result<(), DeviceError> {
    for (state, held, staging) in weight_buffers(units) {
        let drawn = Held { tensor: staging.unwrap_or(held.tensor), ..held.clone() };
        device.submit(Stream::Compute, &Op::Fill { out: drawn.tensor, value: 0.0 })?;
        for piece in pieces(&state.layout, held.elements.clone(), coord, Copies::Every) {
            let (start, rows, cols) = piece.matrix();
            let out = drawn.part(piece.elements.clone()).reshaped(rows, cols);
            model::initialize(device, Stream::Compute, piece.param, start, out, seed)?;
        }
        // Kernels do not reach memory of the host.
        if let Some(from) = staging.filter(|from| !from.is_empty()) {
            device.submit(Stream::Compute, &Op::Copy { from, to: held.tensor })?;
        }
    }
    Ok(())
}

/// The moments of the optimizer that the rank keeps, zeros where it is padding; none where nothing is trained.
///
/// # Errors
/// See [`FetchError`].
pub fn moments(
    device: &dyn Device,
    coord: ModelCoord,
    units: &BTreeMap<Unit, UnitState>,
    [first, second]: [&dyn TensorSource; 2],
) -> Result<(), FetchError> {
    for state in units.values().filter(|state| !state.layout.is_empty()) {
        for (source, held) in [first, second].into_iter().zip(state.held_moments().into_iter().flatten()) {
            fill(device, coord, source, (state, &held))?;
        }
    }
    Ok(())
}

/// The averages of the weights, where the run keeps them.
///
/// # Errors
/// See [`FetchError`].
pub fn averages(
    device: &dyn Device,
    coord: ModelCoord,
    units: &BTreeMap<Unit, UnitState>,
    source: &dyn TensorSource,
) -> Result<(), FetchError> {
    for state in units.values().filter(|state| !state.layout.is_empty()) {
        if let Some(held) = &state.average {
            fill(device, coord, source, (state, held))?;
        }
    }
    Ok(())
}

/// All buffers of weights, with the place in the arena of those in memory of the host. Those in bf16 or fp16 are
/// rounded from the values that fill master weights.
fn weight_buffers(units: &BTreeMap<Unit, UnitState>) -> impl Iterator<Item = (&UnitState, &Held, Option<Tensor>)> {
    let states = units.values().filter(|state| !state.layout.is_empty());
    states.flat_map(|state| {
        let masters = state.masters.iter().map(move |held| (state, held, state.staging));
        std::iter::once((state, &state.params, None)).chain(masters)
    })
}

fn fill(
    device: &dyn Device,
    coord: ModelCoord,
    source: &dyn TensorSource,
    (state, held): (&UnitState, &Held),
) -> Result<(), FetchError> {
    let clear = |padding: Range<usize>| match padding.is_empty() {
        true => Ok(()),
        false => device.submit(Stream::Compute, &Op::Fill { out: held.part(padding), value: 0.0 }),
    };
    let mut values = Vec::new();
    let mut filled = held.elements.start;
    for piece in pieces(&state.layout, held.elements.clone(), coord, Copies::Every) {
        clear(filled..piece.elements.start)?;
        filled = piece.elements.end;
        let mut start = piece.elements.start;
        for slab in piece.region.slabs(CHUNK_LEN) {
            values.resize(slab.len(), 0.0f32);
            source.get(piece.param, &slab, &mut values)?;
            device::write_floats(device, held.part(start..start + slab.len()), &values)?;
            start += slab.len();
        }
    }
    clear(filled..held.elements.end)?;
    Ok(())
}
