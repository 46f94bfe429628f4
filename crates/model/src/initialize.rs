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
    };
    device.submit(stream, &op)
}
