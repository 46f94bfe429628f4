//! Initial values of parameters: functions of (seed, parameter, global element), never of ranks.

use config::{Init, ParamSpec};
use device::{Device, DeviceError, Op, Stream, Tensor};

/// Which shard of every split parameter a rank holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorParallel {
    /// Ranks of the group.
    pub size: usize,
    /// This rank among them.
    pub position: usize,
}

/// Fills `out[rows, cols]` with the initial values of `param` from its global element `(first_row, first_col)` on;
/// vectors are one row.
///
/// # Errors
/// The device's.
pub fn initialize(
    device: &dyn Device,
    stream: Stream,
    param: &ParamSpec,
    (first_row, first_col): (usize, usize),
    out: Tensor,
    seed: u64,
) -> Result<(), DeviceError> {
    let op = match param.init {
        Init::Normal { std } => {
            let (parameter, (_, global_cols)) = (param.id(), param.matrix_shape());
            Op::InitializeNormal { out, seed, parameter, std, first_row, first_col, global_cols }
        }
        Init::Zeros => Op::Fill { out, value: 0.0 },
        Init::Ones => Op::Fill { out, value: 1.0 },
        Init::Uniform { bound } => {
            let values = uniform_values(param, bound, seed, ((first_row, first_col), out.rows, out.cols));
            return device::write_floats(device, out, &values);
        }
    };
    device.submit(stream, &op)
}

/// A part of a matrix: its first row and column, its rows and columns.
pub type MatrixPart = ((usize, usize), usize, usize);

/// The initial values of a part of `param`, row-major, where the host can draw them; `None` for normal numbers, which
/// devices draw.
pub fn drawn_values(param: &ParamSpec, seed: u64, part: MatrixPart) -> Option<Vec<f32>> {
    let len = part.1 * part.2;
    match param.init {
        Init::Normal { .. } => None,
        Init::Zeros => Some(vec![0.0; len]),
        Init::Ones => Some(vec![1.0; len]),
        Init::Uniform { bound } => Some(uniform_values(param, bound, seed, part)),
    }
}

/// Element `e` of a matrix, row-major, is word `e % 4` of the block of Philox that makes normal number `e` elsewhere.
fn uniform_values(
    param: &ParamSpec,
    bound: f32,
    seed: u64,
    ((first_row, first_col), rows, cols): MatrixPart,
) -> Vec<f32> {
    let (parameter, (_, global_cols)) = (param.id(), param.matrix_shape());
    let key = philox::key_of_initial_weights(seed);
    let value = |element: u64| {
        let block = element / 4;
        let counter = [block as u32, (block >> 32) as u32, parameter as u32, (parameter >> 32) as u32];
        let word = philox::philox4x32_10(counter, key)[(element % 4) as usize];
        bound * (2.0 * philox::half_open_f32(word) - 1.0)
    };
    let row = |row: usize| {
        let first = ((first_row + row) * global_cols + first_col) as u64;
        (first..first + cols as u64).map(value)
    };
    (0..rows).flat_map(row).collect()
}
