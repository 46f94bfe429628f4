//! Initial values of a unit's flat buffer: functions of (seed, parameter, global element), never of ranks.

use device::{Device, DeviceError, Op, Stream, Tensor};
use spec::{Init, Segment, UnitLayout};

/// Which shard of every split parameter a rank holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorParallel {
    /// Ranks of the group.
    pub size: usize,
    /// This rank among them.
    pub position: usize,
}

/// Fills the flat buffer of `layout` with the initial values of tensor-parallel position `tp`, padding with zeros.
///
/// # Errors
/// The device's.
pub fn initialize(
    device: &dyn Device,
    stream: Stream,
    layout: &UnitLayout,
    flat: Tensor,
    seed: u64,
    tp: TensorParallel,
) -> Result<(), DeviceError> {
    for segment in &layout.segments {
        let tensor = flat.elements(segment.range()).reshaped(segment.rows, segment.cols);
        initialize_segment(device, stream, segment, tensor, seed, tp)?;
    }
    fill(device, stream, flat.elements(layout.len..flat.len()), 0.0)
}

fn initialize_segment(
    device: &dyn Device,
    stream: Stream,
    segment: &Segment,
    tensor: Tensor,
    seed: u64,
    tp: TensorParallel,
) -> Result<(), DeviceError> {
    let param = &segment.param;
    let (global_rows, global_cols) = param.matrix_shape();
    let (first_row, first_col) = param.local_start(tp.size, tp.position);
    // Rows behind the vocabulary are padding: they stay zero, for they receive neither probability nor gradient.
    let valid_rows = global_rows.saturating_sub(first_row).min(tensor.rows);
    let (valid, padding) = (tensor.rows_of(0..valid_rows), tensor.rows_of(valid_rows..tensor.rows));
    match param.init {
        Init::Normal { .. } if valid.is_empty() => {}
        Init::Normal { std } => {
            let parameter = param.id();
            let op = Op::InitializeNormal { out: valid, seed, parameter, std, first_row, first_col, global_cols };
            device.submit(stream, &op)?;
        }
        Init::Zeros => fill(device, stream, valid, 0.0)?,
        Init::Ones => fill(device, stream, valid, 1.0)?,
    }
    fill(device, stream, padding, 0.0)
}

fn fill(device: &dyn Device, stream: Stream, out: Tensor, value: f32) -> Result<(), DeviceError> {
    if out.is_empty() { Ok(()) } else { device.submit(stream, &Op::Fill { out, value }) }
}
