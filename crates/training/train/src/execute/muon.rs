//! Muon's update of the matrices of a unit: momentum, orthogonalised by five steps of Newton and Schulz (Jordan et al.
//! 2024, in the form of PyTorch's `Muon`, in single precision).
//!
//! The whole matrix is needed. Momentum is sharded as AdamW's moments are; the updates before they are orthogonalised
//! are gathered over the sharding group and over tensor parallelism, and each rank orthogonalises the matrices of which
//! it updates a part. Ranks that have the same matrix compute the same bits.

use std::ops::Range;

use config::{Kept, Muon, Segment, Sharding, StateKind, UpdateRule};
use cpu::fixed_point;
use device::{Device, DeviceError, Dtype, Frame, Op, Orientation, SUM_WORDS, Stream, Tensor, Write};

use crate::worker::ports::RankPorts;
use crate::worker::rank_state::RankState;
use crate::worker::run_position::RunPosition;
use crate::worker::unit_state::{UnitState, common};

/// Coefficients of the polynomial `a X + b (X X') X + c (X X')^2 X`.
const POLYNOMIAL: [f32; 3] = [3.4445, -4.775, 2.0315];
/// Steps of the iteration.
const ITERATIONS: usize = 5;
/// Matrices of a smaller norm are not scaled up to 1.
const LEAST_NORM: f64 = 1e-7;

/// Updates the matrices of the unit of `state` that Muon updates, as far as this rank updates them.
///
/// # Errors
/// The device's and the groups'.
pub fn step(
    ports: &RankPorts<'_>,
    position: &RunPosition<'_>,
    rank: &RankState,
    state: &UnitState,
) -> Result<(), DeviceError> {
    let setup = position.setup;
    let matrices = setup.train.optimizer.muon_matrices(&state.layout);
    let (Some(gradient), Some([momentum, _]), false) = (position.gradient(state), &state.moments, matrices.is_empty())
    else {
        return Ok(());
    };
    let device = &*ports.device;
    let mut coefficient = [0f32; 1];
    device.read(rank.constants.coefficient.elements(0..1), bytemuck::cast_slice_mut(&mut coefficient))?;
    rank.scratch.scoped(|| {
        let updates = rank.scratch.floats(1, state.layout.padded_len());
        for (matrix, muon) in &matrices {
            let own = common(&matrix.range(), &state.updated);
            if !own.is_empty() {
                let tensors = [gradient.part(own.clone()), momentum.part(own.clone()), updates.elements(own)];
                add_momentum(device, *muon, coefficient[0], tensors)?;
            }
        }
        match setup.parallelism.zero.keeps(StateKind::Optimizer) {
            Kept::Whole => {}
            Kept::Shard => {
                let shards = ports.communicators.over(state.layout.axes().shards)?;
                shards.all_gather(Stream::Compute, updates)?;
            }
        }
        for (matrix, muon) in &matrices {
            let own = common(&matrix.range(), &state.updated);
            if own.is_empty() {
                continue;
            }
            let local = updates.elements(matrix.range()).reshaped(matrix.rows, matrix.cols);
            let whole = orthogonalise(ports, &rank.scratch, matrix, local)?;
            let factor = muon.scale.factor(whole);
            subtract(device, position, state, (matrix, factor), updates.elements(own.clone()), own)?;
        }
        Ok(())
    })
}

/// With the gradient g times `coefficient`: momentum m becomes `decay m + (1 - decay) g`, the update is
/// `(1 - decay) g + decay m` (Nesterov).
fn add_momentum(
    device: &dyn Device,
    muon: Muon,
    coefficient: f32,
    [gradient, momentum, update]: [Tensor; 3],
) -> Result<(), DeviceError> {
    let (decay, factor) = (muon.momentum, (1.0 - muon.momentum) * coefficient);
    let ops = [
        Op::ScaledSum { x: gradient, factor, into: momentum, keep: decay },
        Op::ScaledSum { x: gradient, factor, into: update, keep: 0.0 },
        Op::ScaledSum { x: momentum, factor: decay, into: update, keep: 1.0 },
    ];
    ops.iter().try_for_each(|op| device.submit(Stream::Compute, op))
}

/// `W = (1 - rate decay) W - rate factor update` for the elements `own` of the flat buffer.
fn subtract(
    device: &dyn Device,
    position: &RunPosition<'_>,
    state: &UnitState,
    (matrix, factor): (&Segment, f64),
    update: Tensor,
    own: Range<usize>,
) -> Result<(), DeviceError> {
    let train = &position.setup.train;
    let UpdateRule { learning_rate_scale, weight_decay, .. } = train.update_rule(&matrix.param);
    let rate = f64::from(learning_rate_scale) * f64::from(train.learning_rate_at(position.step));
    let weights = state.weights().part(own.clone());
    let (keep, factor) = ((1.0 - rate * f64::from(weight_decay)) as f32, (-rate * factor) as f32);
    device.submit(Stream::Compute, &Op::ScaledSum { x: update, factor, into: weights, keep })?;
    if state.masters.is_none() {
        return Ok(());
    }
    device.submit(Stream::Compute, &Op::Copy { from: weights, to: state.params.part(own) })
}

/// `local`, this rank's part of an update, becomes its part of the orthogonalised whole, whose shape is returned.
fn orthogonalise(
    ports: &RankPorts<'_>,
    scratch: &Frame,
    matrix: &Segment,
    local: Tensor,
) -> Result<[usize; 2], DeviceError> {
    let device = &*ports.device;
    let split = match matrix.param.sharding {
        Sharding::Split { dim, axes } => {
            Some((dim, ports.communicators.over(axes)?)).filter(|(_, group)| group.size() > 1)
        }
        Sharding::Replicated | Sharding::VocabularyRows { .. } => None,
    };
    let copy = |from: Tensor, to: Tensor| device.submit(Stream::Compute, &Op::Copy { from, to });
    scratch.scoped(|| {
        let part = |whole: Tensor, index: usize| match split {
            None => whole,
            Some((0, _)) => whole.rows_of(index * local.rows..(index + 1) * local.rows),
            Some(_) => whole.cols_of(index * local.cols..(index + 1) * local.cols),
        };
        let whole = match split {
            None => local,
            Some((dim, group)) => {
                let blocks = scratch.floats(group.size() * local.rows, local.cols);
                let block = |index: usize| blocks.rows_of(index * local.rows..(index + 1) * local.rows);
                copy(local, block(group.position()))?;
                group.all_gather(Stream::Compute, blocks)?;
                if dim == 0 {
                    blocks
                } else {
                    let whole = scratch.floats(local.rows, group.size() * local.cols);
                    (0..group.size()).try_for_each(|index| copy(block(index), part(whole, index)))?;
                    whole
                }
            }
        };
        let orthogonal = newton_schulz(device, scratch, whole)?;
        copy(part(orthogonal, split.map_or(0, |(_, group)| group.position())), local)?;
        Ok([whole.rows, whole.cols])
    })
}

/// The nearest orthogonal matrix, nearly: singular values end between 0.7 and 1.2. In scratch.
fn newton_schulz(device: &dyn Device, scratch: &Frame, matrix: Tensor) -> Result<Tensor, DeviceError> {
    let submit = |op: Op| device.submit(Stream::Compute, &op);
    let (rows, cols) = (matrix.rows, matrix.cols);
    let side = rows.min(cols);
    let norm = norm(device, scratch, matrix)?;
    let [mut x, mut next] = [(); 2].map(|()| scratch.floats(rows, cols));
    let [gram, square, mixed] = [(); 3].map(|()| scratch.floats(side, side));
    let product = |orientation, a, b, out, write| submit(Op::MatMul { orientation, a, b, bias: None, out, write });
    let [a, b, c] = POLYNOMIAL;
    submit(Op::ScaledSum { x: matrix, factor: (1.0 / norm.max(LEAST_NORM)) as f32, into: x, keep: 0.0 })?;
    for _ in 0..ITERATIONS {
        let orientation = if rows <= cols { Orientation::Nt } else { Orientation::Tn };
        product(orientation, x, x, gram, Write::Assign)?;
        product(Orientation::Nn, gram, gram, square, Write::Assign)?;
        submit(Op::ScaledSum { x: gram, factor: b, into: mixed, keep: 0.0 })?;
        submit(Op::ScaledSum { x: square, factor: c, into: mixed, keep: 1.0 })?;
        submit(Op::ScaledSum { x, factor: a, into: next, keep: 0.0 })?;
        let (left, right) = if rows <= cols { (mixed, x) } else { (x, mixed) };
        product(Orientation::Nn, left, right, next, Write::Accumulate)?;
        std::mem::swap(&mut x, &mut next);
    }
    Ok(x)
}

/// The Frobenius norm, from a sum of integers: the same bits on every rank that has the matrix.
fn norm(device: &dyn Device, scratch: &Frame, matrix: Tensor) -> Result<f64, DeviceError> {
    scratch.scoped(|| {
        let sums = scratch.tensor(1, SUM_WORDS, Dtype::I64);
        let mut words = [0i64; SUM_WORDS];
        device.write(sums, bytemuck::cast_slice(&words))?;
        let x = matrix.reshaped(1, matrix.len());
        device.submit(Stream::Compute, &Op::SquaredSum { x, first_element: 0, loss_scale: 1.0, sums })?;
        device.read(sums, bytemuck::cast_slice_mut(&mut words))?;
        Ok(fixed_point::to_f64(&words).sqrt())
    })
}
