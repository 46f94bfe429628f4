//! Measurements of one rank: operations on its own device and reductions with all others, which do the same at the same
//! time.

use std::time::Instant;

use config::{Activation, Norm, NormKind};
use device::{
    AttentionGradients, AttentionOperands, AttentionShape, DeviceError, Dtype, Frame, Op, Orientation, Reduction,
    Stream, SumTree, Tensor, Write,
};
use train::RankEngine;

/// Times of one operation, of which the median counts: some tenths of a second, longer than what others do on the
/// machine in between.
const RUNS: usize = 61;
/// Short operations of which one time is taken together.
const TOGETHER: usize = 256;
/// Rows and columns of products, and two depths whose difference shows what a tile costs besides.
pub(crate) const PRODUCT: (usize, usize, [usize; 2]) = (256, 1024, [64, 512]);
/// Columns of a product whose rows are whole vectors, but no cache lines.
pub(crate) const UNALIGNED_COLS: usize = 1028;
/// Rows and columns of activations.
const ACTIVATION: (usize, usize) = (256, 1024);
/// Attention of a small model.
const ATTENTION: AttentionShape =
    AttentionShape { sequences: 2, sequence_length: 128, heads: 4, kv_heads: 4, head_dim: 64 };
/// Floats that are reduced to see the bandwidth of a link.
pub(crate) const REDUCED: usize = 1 << 20;

/// Times of one rank in nanoseconds, and rates per nanosecond.
pub(crate) struct Times {
    /// Products of both depths.
    pub(crate) products: [f64; 2],
    /// The deeper one with [`UNALIGNED_COLS`].
    pub(crate) unaligned: f64,
    /// Floating-point operations of attention, forward and backward.
    pub(crate) attention_per_ns: [f64; 2],
    /// Bytes that a copy of activations reads and writes.
    pub(crate) copied_per_ns: f64,
    /// The same of norm, activation and residual stream together.
    pub(crate) elementwise_per_ns: f64,
    /// The shortest operation.
    pub(crate) launch: f64,
    /// A reduction of one number over all ranks.
    pub(crate) reduce_one: f64,
    /// Of [`REDUCED`] numbers.
    pub(crate) reduce_all: f64,
}

impl Times {
    pub(crate) fn of(engine: RankEngine, cores: Cores) -> Result<Times, DeviceError> {
        let bench = Bench { engine, cores, frame: Frame::new(0, usize::MAX) };
        let (rows, cols, [short, long]) = PRODUCT;
        let [copied_per_ns, elementwise_per_ns] = bench.elementwise()?;
        Ok(Times {
            products: [bench.product(rows, cols, short)?, bench.product(rows, cols, long)?],
            unaligned: bench.product(rows, UNALIGNED_COLS, long)?,
            attention_per_ns: bench.attention()?,
            copied_per_ns,
            elementwise_per_ns,
            launch: bench.launch()?,
            reduce_one: bench.all_reduce(1)?,
            reduce_all: bench.all_reduce(REDUCED)?,
        })
    }
}

/// The cores of the ranks that measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cores {
    /// Each rank has one.
    OwnOfEach,
    /// Ranks take turns on fewer.
    Shared,
}

struct Bench {
    engine: RankEngine,
    cores: Cores,
    frame: Frame,
}

impl Bench {
    /// Nanoseconds of `body` on one of the ranks, which all do it.
    fn nanoseconds(&self, body: impl Fn() -> Result<(), DeviceError>) -> Result<f64, DeviceError> {
        match self.cores {
            Cores::OwnOfEach => self.median(body),
            Cores::Shared => self.mean(body),
        }
    }

    /// The median of runs that all ranks begin together.
    fn median(&self, body: impl Fn() -> Result<(), DeviceError>) -> Result<f64, DeviceError> {
        let mut times = vec![];
        for _ in 0..RUNS {
            self.meet()?;
            let started = Instant::now();
            body()?;
            times.push(started.elapsed().as_nanos() as f64);
        }
        times.sort_by(f64::total_cmp);
        Ok(times[RUNS / 2])
    }

    /// The mean of runs one after the other, with the turns of other ranks in between: most runs have none, and some
    /// many.
    fn mean(&self, body: impl Fn() -> Result<(), DeviceError>) -> Result<f64, DeviceError> {
        self.meet()?;
        let started = Instant::now();
        (0..RUNS).try_for_each(|_| body())?;
        Ok(started.elapsed().as_nanos() as f64 / RUNS as f64)
    }

    /// Returns when all ranks are here.
    fn meet(&self) -> Result<(), DeviceError> {
        let together = self.frame.scoped(|| self.frame.floats(1, 1));
        self.engine.communicators.world().all_reduce(Stream::Compute, together, Reduction::Max)
    }

    fn submit(&self, op: &Op) -> Result<(), DeviceError> {
        self.engine.device.submit(Stream::Compute, op)
    }

    fn product(&self, rows: usize, cols: usize, depth: usize) -> Result<f64, DeviceError> {
        self.frame.scoped(|| {
            let (a, b) = (self.frame.floats(rows, depth), self.frame.floats(cols, depth));
            let (out, orientation) = (self.frame.floats(rows, cols), Orientation::Nt);
            let product = Op::MatMul { orientation, a, b, bias: None, out, write: Write::Assign };
            self.nanoseconds(|| self.submit(&product))
        })
    }

    /// Floating-point operations per nanosecond, forward and backward.
    fn attention(&self) -> Result<[f64; 2], DeviceError> {
        self.frame.scoped(|| {
            let AttentionShape { sequences, sequence_length, heads, head_dim, .. } = ATTENTION;
            let (shape, tokens) = (ATTENTION, sequences * sequence_length);
            let heads_of_tokens = || self.frame.floats(tokens, heads * head_dim);
            let [q, k, v, out, dout, dq, dk, dv] = std::array::from_fn(|_| heads_of_tokens());
            let visible = self.frame.tensor(tokens, 2, Dtype::I32);
            let intervals = (0..tokens).flat_map(|token| [0, (token % sequence_length) as i32 + 1]);
            let bytes: Vec<u8> = intervals.flat_map(i32::to_ne_bytes).collect();
            self.engine.device.write(visible, &bytes)?;
            let log_sum_exp = self.frame.floats(tokens, heads);
            let key_sums = self.frame.floats(2 * tokens * heads, head_dim);
            let (scale, alibi, dropout) = (0.125, None, None);
            let operands = AttentionOperands {
                shape,
                places: None,
                q,
                k,
                v,
                visible,
                window: None,
                scale,
                soft_cap: None,
                alibi,
                dropout,
                out,
                log_sum_exp,
            };
            let gradients = AttentionGradients { dout, dq, dk, dv, key_sums };
            let rate = |op: Op| -> Result<f64, DeviceError> {
                Ok(2.0 * op.cost().multiply_adds as f64 / self.nanoseconds(|| self.submit(&op))?)
            };
            Ok([rate(Op::Attention { operands })?, rate(Op::AttentionBackward { operands, gradients })?])
        })
    }

    /// Bytes per nanosecond of a copy, and of the operations between products.
    fn elementwise(&self) -> Result<[f64; 2], DeviceError> {
        self.frame.scoped(|| {
            let (rows, cols) = ACTIVATION;
            let [x, y, residual]: [Tensor; 3] = std::array::from_fn(|_| self.frame.floats(rows, cols));
            let (weight, bias, stats) =
                (self.frame.floats(1, cols), Some(self.frame.floats(1, cols)), self.frame.floats(rows, 2));
            let norm = Norm { kind: NormKind::Layer, epsilon: 1e-5 };
            let between = [
                Op::Norm { norm, x, weight, bias, y, stats },
                Op::Activation { activation: Activation::GeluTanh, x, y },
                Op::DropoutAdd { x, bias, residual: Some(residual), residual_scale: 1.0, dropout: None, out: y },
            ];
            let rate = |ops: &[Op]| -> Result<f64, DeviceError> {
                let bytes: u64 = ops.iter().map(|op| op.cost().moved_bytes).sum();
                Ok(bytes as f64 / self.nanoseconds(|| ops.iter().try_for_each(|op| self.submit(op)))?)
            };
            Ok([rate(&[Op::Copy { from: x, to: y }])?, rate(&between)?])
        })
    }

    fn launch(&self) -> Result<f64, DeviceError> {
        let shortest = self.frame.scoped(|| Op::Fill { out: self.frame.floats(1, 1), value: 0.0 });
        Ok(self.nanoseconds(|| (0..TOGETHER).try_for_each(|_| self.submit(&shortest)))? / TOGETHER as f64)
    }

    fn all_reduce(&self, elements: usize) -> Result<f64, DeviceError> {
        let x = self.frame.scoped(|| self.frame.floats(1, elements));
        self.nanoseconds(|| {
            self.engine.communicators.world().all_reduce(Stream::Compute, x, Reduction::Sum(SumTree::RANK_ORDER))
        })
    }
}
