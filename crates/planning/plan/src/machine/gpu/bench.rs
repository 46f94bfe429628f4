//! Times of operations on one GPU, in bf16, while every other GPU of the machine does the same.

use std::cell::Cell;
use std::time::{Duration, Instant};

use config::{Activation, Norm, NormKind};
use device::{
    AttentionGradients, AttentionOperands, AttentionShape, DeviceError, Dtype, Frame, Op, Orientation, Reduction,
    Stream, SumTree, Tensor, Write,
};
use sim::{Kernel, Product, kernels_of};
use train::RankEngine;

/// Sides of square products: the first that takes [`LONG`] is measured, or the last.
const SIDES: [usize; 6] = [256, 512, 1024, 2048, 4096, 8192];
/// The shorter of the two depths of a product is this part of the other.
const SHORT_PART: usize = 8;
/// Numbers by which rows of the unaligned product are longer: rows are whole vectors of 16 bytes, but no cache lines.
const UNALIGNED: usize = 8;
/// Rows of activations.
const ROWS: [usize; 5] = [64, 256, 1024, 4096, 16384];
/// Columns of activations, as wide as the models that fill a GPU.
const COLS: usize = 4096;
/// Tokens of a sequence and sequences of attention, as many heads of [`HEAD_DIM`].
const SEQUENCES: [(usize, usize); 5] = [(128, 1), (512, 1), (2048, 1), (4096, 1), (4096, 4)];
const HEADS: usize = 16;
const HEAD_DIM: usize = 128;
/// An operation that takes as long hides that the host submits it.
const LONG: Duration = Duration::from_millis(1);
/// One time is taken of as many repetitions as fill this.
const ROUND: Duration = Duration::from_millis(20);
/// Rounds of a measurement, of which the median counts: several where they are short.
const ROUNDS: usize = 7;
/// Rounds end here.
const LONGEST: Duration = Duration::from_secs(1);
/// Short operations that follow a long one.
const TOGETHER: usize = 64;
/// Numbers that are reduced to see the bandwidth of links.
const REDUCED: [usize; 3] = [1 << 16, 1 << 20, 1 << 25];

/// A product and its time.
#[derive(Clone, Copy, Debug)]
pub(super) struct TimedProduct {
    pub(super) product: Product,
    pub(super) ns: f64,
}

/// An operation and its time.
#[derive(Clone, Debug)]
pub(super) struct TimedOp {
    pub(super) kernels: Vec<Kernel>,
    pub(super) ns: f64,
}

/// Times in nanoseconds of one of several GPUs, and rates per nanosecond.
#[derive(Clone, Debug)]
pub(super) struct GpuTimes {
    /// Products of two depths, the shorter first.
    pub(super) products: [TimedProduct; 2],
    /// The deeper one, whose rows end within a cache line.
    pub(super) unaligned: TimedProduct,
    /// Causal attention, forward and backward.
    pub(super) attention: [TimedOp; 2],
    /// Bytes that norm, activation and residual stream move together.
    pub(super) moved_per_ns: f64,
    /// From the start of a shortest operation to that of the next.
    pub(super) gap: f64,
    /// Of the host, to submit an operation.
    pub(super) issue: f64,
    /// All-reduces over all GPUs.
    pub(super) reduced: Option<TimedReductions>,
}

/// All-reduces over more than one GPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct TimedReductions {
    /// Of one number.
    pub(super) one: f64,
    /// Of as many bytes as the time is long for.
    pub(super) many: f64,
    pub(super) bytes: usize,
}

/// Room for the largest operands.
pub(super) fn arena_bytes(memory_bytes: u64) -> usize {
    const LARGEST: u64 = 2 << 30;
    LARGEST.min(memory_bytes / 4) as usize / device::ALIGN_BYTES * device::ALIGN_BYTES
}

impl GpuTimes {
    /// Measures for some seconds. All `ranks` do it at the same time, each on a GPU of its own.
    pub(super) fn of(engine: RankEngine, arena_bytes: usize, ranks: usize) -> Result<GpuTimes, DeviceError> {
        let bench = Bench { engine, arena_bytes, frame: Frame::new(0, arena_bytes), parameter: Cell::new(0) };
        let side = bench.long_enough(&SIDES, |side| bench.product([side; 3]))?;
        let rows = bench.long_enough(&ROWS, |rows| Ok(bench.activations(rows)?[0]))?;
        let sequences = bench.long_enough(&SEQUENCES, |sequences| Ok(bench.attention(sequences)?[0]))?;
        Ok(GpuTimes {
            products: [bench.timed_product([side, side, side / SHORT_PART])?, bench.timed_product([side, side, side])?],
            unaligned: bench.timed_product([side, side + UNALIGNED, side])?,
            attention: bench.timed_attention(sequences)?,
            moved_per_ns: bench.moved_per_ns(rows)?,
            gap: bench.gap(side)?,
            issue: bench.issue()?,
            reduced: if ranks > 1 { Some(bench.reductions()?) } else { None },
        })
    }
}

struct Bench {
    engine: RankEngine,
    arena_bytes: usize,
    frame: Frame,
    /// The next parameter of random numbers.
    parameter: Cell<u64>,
}

impl Bench {
    fn submit(&self, ops: &[Op]) -> Result<(), DeviceError> {
        ops.iter().try_for_each(|op| self.engine.device.submit(Stream::Compute, op))
    }

    /// The time until the GPU has done `ops`, which it begins at once.
    fn once(&self, ops: &[Op], repetitions: usize) -> Result<Duration, DeviceError> {
        self.engine.device.synchronize()?;
        let started = Instant::now();
        (0..repetitions).try_for_each(|_| self.submit(ops))?;
        self.engine.device.synchronize()?;
        Ok(started.elapsed())
    }

    /// Nanoseconds of `ops`, the median of some rounds that all GPUs begin together.
    fn nanoseconds(&self, ops: &[Op]) -> Result<f64, DeviceError> {
        // Kernels are loaded at their first use.
        self.once(ops, 1)?;
        let alone = self.once(ops, 1)?.max(Duration::from_nanos(1));
        let repetitions = (ROUND.as_nanos() / alone.as_nanos()).clamp(1, 1000) as usize;
        self.meet()?;
        let begun = Instant::now();
        let mut times = vec![];
        while times.len() < ROUNDS && (times.is_empty() || begun.elapsed() < LONGEST) {
            times.push(self.once(ops, repetitions)?.as_nanos() as f64 / repetitions as f64);
        }
        times.sort_by(f64::total_cmp);
        Ok(times[times.len() / 2])
    }

    /// Returns when all GPUs are here.
    fn meet(&self) -> Result<(), DeviceError> {
        let together = self.frame.scoped(|| self.numbers(1, 1, Dtype::F32))?;
        self.engine.communicators.world().all_reduce(Stream::Compute, together, Reduction::Max)?;
        self.engine.device.synchronize()
    }

    /// The first of `sizes` whose operation takes [`LONG`], or the last whose operands have room.
    fn long_enough<S: Copy>(&self, sizes: &[S], op: impl Fn(S) -> Result<Op, DeviceError>) -> Result<S, DeviceError> {
        for size in &sizes[..sizes.len() - 1] {
            let op = op(*size)?;
            self.once(&[op], 1)?;
            if self.once(&[op], 1)? >= LONG {
                return Ok(*size);
            }
        }
        Ok(sizes[sizes.len() - 1])
    }

    /// Random numbers, which a GPU multiplies more slowly than zeros. The operands of an operation stay until those of
    /// another are made.
    fn numbers(&self, rows: usize, cols: usize, dtype: Dtype) -> Result<Tensor, DeviceError> {
        let out = self.frame.tensor(rows, cols, dtype);
        let parameter = self.parameter.replace(self.parameter.get() + 1);
        let (seed, first_row, first_col, global_cols) = (1, 0, 0, cols);
        self.submit(&[Op::InitializeNormal { out, seed, parameter, std: 1.0, first_row, first_col, global_cols }])?;
        Ok(out)
    }

    /// `out[m, n] = a[m, k] b[n, k]`.
    fn product(&self, [m, n, k]: [usize; 3]) -> Result<Op, DeviceError> {
        self.frame.scoped(|| {
            let (a, b) = (self.numbers(m, k, Dtype::Bf16)?, self.numbers(n, k, Dtype::Bf16)?);
            let (out, orientation) = (self.numbers(m, n, Dtype::Bf16)?, Orientation::Nt);
            Ok(Op::MatMul { orientation, a, b, bias: None, out, write: Write::Assign })
        })
    }

    fn timed_product(&self, [m, n, k]: [usize; 3]) -> Result<TimedProduct, DeviceError> {
        let ns = self.nanoseconds(&[self.product([m, n, k])?])?;
        Ok(TimedProduct { product: Product::new(1, [m, n, k], [2, 2], None), ns })
    }

    /// The operations between products.
    fn activations(&self, rows: usize) -> Result<[Op; 3], DeviceError> {
        self.frame.scoped(|| {
            let wide = || self.numbers(rows, COLS, Dtype::Bf16);
            let (x, y, residual) = (wide()?, wide()?, wide()?);
            let (weight, bias) = (self.numbers(1, COLS, Dtype::Bf16)?, Some(self.numbers(1, COLS, Dtype::Bf16)?));
            let stats = self.numbers(rows, 2, Dtype::F32)?;
            let norm = Norm { kind: NormKind::Layer, epsilon: 1e-5 };
            Ok([
                Op::Norm { norm, x, weight, bias, y, stats },
                Op::Activation { activation: Activation::GeluTanh, x, y },
                Op::DropoutAdd { x, bias, residual: Some(residual), residual_scale: 1.0, dropout: None, out: y },
            ])
        })
    }

    /// Bytes that they move per nanosecond.
    fn moved_per_ns(&self, rows: usize) -> Result<f64, DeviceError> {
        let between = self.activations(rows)?;
        let moved: u64 = between.iter().map(|op| op.cost().moved_bytes).sum();
        Ok(moved as f64 / self.nanoseconds(&between)?)
    }

    fn timed_attention(&self, sequences: (usize, usize)) -> Result<[TimedOp; 2], DeviceError> {
        let [forward, backward] = self.attention(sequences)?;
        let timed = |op: Op| Ok(TimedOp { kernels: kernels_of(&op), ns: self.nanoseconds(&[op])? });
        Ok([timed(forward)?, timed(backward)?])
    }

    /// Causal attention, forward and backward.
    fn attention(&self, (sequence_length, sequences): (usize, usize)) -> Result<[Op; 2], DeviceError> {
        self.frame.scoped(|| {
            let shape =
                AttentionShape { sequences, sequence_length, heads: HEADS, kv_heads: HEADS, head_dim: HEAD_DIM };
            let tokens = sequences * sequence_length;
            let heads = || self.numbers(tokens, HEADS * HEAD_DIM, Dtype::Bf16);
            let (q, k, v, out) = (heads()?, heads()?, heads()?, heads()?);
            let (dout, dq, dk, dv) = (heads()?, heads()?, heads()?, heads()?);
            let visible = self.frame.tensor(tokens, 2, Dtype::I32);
            let intervals = (0..tokens).flat_map(|token| [0, (token % sequence_length) as i32 + 1]);
            let bytes: Vec<u8> = intervals.flat_map(i32::to_ne_bytes).collect();
            self.engine.device.upload(Stream::Compute, visible, &bytes)?;
            let log_sum_exp = self.numbers(tokens, HEADS, Dtype::F32)?;
            let key_sums = self.frame.floats(2 * tokens * HEADS, HEAD_DIM);
            let operands = AttentionOperands {
                shape,
                places: None,
                q,
                k,
                v,
                visible,
                window: None,
                scale: 0.088,
                soft_cap: None,
                alibi: None,
                dropout: None,
                out,
                log_sum_exp,
            };
            let gradients = AttentionGradients { dout, dq, dk, dv, key_sums };
            Ok([Op::Attention { operands }, Op::AttentionBackward { operands, gradients }])
        })
    }

    /// Nanoseconds from one of the shortest operations to the next, which the host submits while the GPU still computes
    /// a product of this side.
    fn gap(&self, side: usize) -> Result<f64, DeviceError> {
        let mut queued = vec![self.product([side; 3])?];
        let alone = self.nanoseconds(&queued)?;
        queued.extend([self.shortest(); TOGETHER]);
        let followed = self.nanoseconds(&queued)?;
        Ok((followed - alone).max(0.0) / TOGETHER as f64)
    }

    /// Nanoseconds in which the host submits an operation.
    fn issue(&self) -> Result<f64, DeviceError> {
        let ops = [self.shortest(); TOGETHER];
        self.once(&ops, 1)?;
        let mut times = vec![];
        for _ in 0..ROUNDS {
            let started = Instant::now();
            self.submit(&ops)?;
            times.push(started.elapsed().as_nanos() as f64 / TOGETHER as f64);
            self.engine.device.synchronize()?;
        }
        times.sort_by(f64::total_cmp);
        Ok(times[ROUNDS / 2])
    }

    fn shortest(&self) -> Op {
        self.frame.scoped(|| Op::Fill { out: self.frame.floats(1, 1), value: 0.0 })
    }

    fn reductions(&self) -> Result<TimedReductions, DeviceError> {
        let elements = REDUCED.into_iter().rev().find(|elements| 8 * elements < self.arena_bytes).unwrap_or(1);
        Ok(TimedReductions { one: self.all_reduce(1)?, many: self.all_reduce(elements)?, bytes: 4 * elements })
    }

    fn all_reduce(&self, elements: usize) -> Result<f64, DeviceError> {
        let x = self.frame.scoped(|| self.numbers(1, elements, Dtype::F32))?;
        let reduction = Reduction::Sum(SumTree::RANK_ORDER);
        let mut times = vec![];
        for _ in 0..ROUNDS {
            self.meet()?;
            let started = Instant::now();
            self.engine.communicators.world().all_reduce(Stream::Compute, x, reduction)?;
            self.engine.device.synchronize()?;
            times.push(started.elapsed().as_nanos() as f64);
        }
        times.sort_by(f64::total_cmp);
        Ok(times[ROUNDS / 2])
    }
}
