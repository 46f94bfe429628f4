//! The kernels of an accelerator for the operations of a unit.

use cluster::{
    AttentionKernels, AttentionSums, FlashKernels, GradientAddition, HeadKernels, NewTensors, SingleProducts, Software,
    TILE_ROWS,
};
use device::{AttentionOperands, AttentionShape, Family, Op, Orientation, Tensor, Write};

/// One kernel, by what decides how long it takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kernel {
    /// Matrix products.
    Product(Product),
    /// Attention that stores no scores.
    Attention {
        /// Floating-point operations.
        flops: f64,
        /// Which pass.
        pass: AttentionPass,
        /// Keys of a sequence.
        tokens: usize,
        /// Tiles of queries, of all heads and sequences.
        tiles: usize,
        /// Heads of all sequences.
        heads: usize,
        /// The width of a head.
        head_dim: usize,
        /// The kernels of a trainer and the order of their sums; without one, the accelerator's own.
        kernels: Option<(FlashKernels, AttentionSums)>,
        /// Of queries, keys and values.
        format: ProductFormat,
    },
    /// Everything that moves data and computes little.
    Memory {
        /// Bytes read and written.
        bytes: f64,
    },
}

/// The data types that an accelerator multiplies: each format has a peak of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProductFormat {
    /// 16-bit operands.
    Half,
    /// Single-precision operands, each in full.
    Single,
    /// Single-precision operands that are rounded to TF32 where the accelerator does that.
    Tf32,
}

impl ProductFormat {
    /// Of operands of `width_bytes` a number, as `software` multiplies them; pleach rounds none to TF32.
    pub fn of(width_bytes: usize, software: Option<&Software>) -> ProductFormat {
        let single = software.map_or(SingleProducts::Full, |software| software.single_products);
        match (width_bytes, single) {
            (..=2, _) => ProductFormat::Half,
            (3.., SingleProducts::Full) => ProductFormat::Single,
            (3.., SingleProducts::Tf32) => ProductFormat::Tf32,
        }
    }
}

/// Passes of attention, which differ in their products.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttentionPass {
    /// Outputs from queries, keys and values.
    Forward,
    /// Gradients of all three.
    Backward,
}

/// `batch` products `out[m, n] = a b` with sums over `k`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Product {
    /// Equal products that run together.
    pub batch: usize,
    /// Rows of a result.
    pub m: usize,
    /// Columns of a result.
    pub n: usize,
    /// Length of a sum.
    pub k: usize,
    /// Bytes of an operand's number.
    pub width_bytes: usize,
    /// Data type of the product.
    pub format: ProductFormat,
    /// Bytes that each number of the result moves: written, and read before where it is added to.
    pub out_bytes: usize,
    /// The largest power of two, up to [`ROW_BYTES`], of which the rows of all three matrices are a multiple.
    pub row_multiple_bytes: usize,
}

impl Product {
    /// Products of operands of `width_bytes` a number, any of whose lengths may be that of a row, as `software`
    /// multiplies them.
    pub fn new(
        batch: usize,
        [m, n, k]: [usize; 3],
        [width_bytes, out_bytes]: [usize; 2],
        software: Option<&Software>,
    ) -> Product {
        let rows = [m, n, k].map(|length| row_multiple(length * width_bytes));
        let row_multiple_bytes = rows.into_iter().min().unwrap_or(ROW_BYTES);
        let format = ProductFormat::of(width_bytes, software);
        Product { batch, m, n, k, width_bytes, format, out_bytes, row_multiple_bytes }
    }

    /// Floating-point operations.
    pub fn flops(&self) -> f64 {
        2.0 * self.batch as f64 * self.m as f64 * self.n as f64 * self.k as f64
    }

    /// Bytes read and written, each once.
    pub fn moved_bytes(&self) -> f64 {
        let (m, n, k) = (self.m as f64, self.n as f64, self.k as f64);
        self.batch as f64 * ((m + n) * k * self.width_bytes as f64 + m * n * self.out_bytes as f64)
    }

    /// The products of groups of equally many rows, each with a matrix of its own.
    fn of_groups(
        groups: usize,
        orientation: Orientation,
        [a, b, out]: [Tensor; 3],
        write: Write,
        software: Option<&Software>,
    ) -> Product {
        let one = |tensor: Tensor| tensor.rows_of(0..tensor.rows.div_ceil(groups));
        Product { batch: groups, ..Product::of_op(orientation, [a, b, out].map(one), write, software) }
    }

    fn of_op(orientation: Orientation, [a, b, out]: [Tensor; 3], write: Write, software: Option<&Software>) -> Product {
        let k = match orientation {
            Orientation::Nt | Orientation::Nn => a.cols,
            Orientation::Tn => a.rows,
        };
        let width_bytes = a.dtype.size_bytes().min(b.dtype.size_bytes());
        let passes = match write {
            Write::Assign => 1,
            Write::Accumulate => 2,
        };
        let rows = [a, b, out].map(|tensor| row_multiple(tensor.cols * width_bytes));
        Product {
            batch: 1,
            m: out.rows,
            n: out.cols,
            k,
            width_bytes,
            format: ProductFormat::of(width_bytes, software),
            out_bytes: passes * out.dtype.size_bytes(),
            row_multiple_bytes: rows.into_iter().min().unwrap_or(ROW_BYTES),
        }
    }
}

/// Rows of whole cache lines are read at full speed.
pub const ROW_BYTES: usize = 128;
/// Rows of whole vectors of 16 bytes can be read by vectors.
pub const VECTOR_BYTES: usize = 16;

/// The largest power of two, up to a cache line, of which `bytes` is a multiple.
fn row_multiple(bytes: usize) -> usize {
    if bytes == 0 { ROW_BYTES } else { (1 << bytes.trailing_zeros().min(7)) as usize }
}

/// The kernels of a pass of one of `tp` ranks, in order. Without `software` they are pleach's: one per operation.
pub(crate) fn kernels(ops: &[Op], tp: usize, software: Option<&Software>) -> Vec<Kernel> {
    match software {
        Some(software) if software.head == HeadKernels::Whole && has_logits(ops) => whole_head(ops, tp, software),
        Some(_) | None => ops.iter().flat_map(|op| with_fills(op, software)).collect(),
    }
}

/// The kernels of an operation, after those that fill its results where the trainer has these.
fn with_fills(op: &Op, software: Option<&Software>) -> Vec<Kernel> {
    let filled = software.filter(|software| software.new_tensors == NewTensors::Filled);
    let fill = filled.map(|software| new_bytes(op, software)).filter(|bytes| *bytes > 0);
    let fill = fill.map(|bytes| Kernel::Memory { bytes: bytes as f64 });
    fill.into_iter().chain(of_op(op, software)).collect()
}

/// Bytes of the results of products, norms and attention for which a trainer's kernels get new memory.
fn new_bytes(op: &Op, software: &Software) -> usize {
    match op.family() {
        Family::Product { out, write: Write::Assign, .. }
        | Family::GroupedProduct { out, write: Write::Assign, .. } => out.size_bytes(),
        Family::Product { a, b, out, write: Write::Accumulate, .. }
        | Family::GroupedProduct { a, b, out, write: Write::Accumulate, .. } => match software.gradient_sums {
            GradientAddition::InTheProduct => 0,
            GradientAddition::Separate | GradientAddition::Copied => {
                out.len() * a.dtype.size_bytes().min(b.dtype.size_bytes())
            }
        },
        Family::Norm { x } | Family::NormBackward { x } => x.size_bytes(),
        Family::Attention { operands } => operands.q.size_bytes(),
        Family::AttentionBackward { operands } => {
            operands.q.size_bytes() + operands.k.size_bytes() + operands.v.size_bytes()
        }
        Family::Fused(ops) => ops.iter().map(|op| new_bytes(op, software)).sum(),
        Family::Rotary { .. } | Family::Activation { .. } | Family::ActivationBackward { .. } => 0,
        Family::Lookup { .. } | Family::LookupBackward { .. } | Family::Memory => 0,
    }
}

/// The kernels of an operation as pleach executes it.
pub fn kernels_of(op: &Op) -> Vec<Kernel> {
    of_op(op, None)
}

fn of_op(op: &Op, software: Option<&Software>) -> Vec<Kernel> {
    let unfused = software.filter(|software| software.attention == AttentionKernels::Unfused);
    let separate = software.filter(|software| software.gradient_sums != GradientAddition::InTheProduct);
    match op.family() {
        Family::Product { orientation: Orientation::Tn, a, b, out, write: Write::Accumulate }
            if let Some(software) = separate =>
        {
            let product = Product::of_op(Orientation::Tn, [a, b, out], Write::Assign, Some(software));
            then_added(product, out, software)
        }
        Family::GroupedProduct { groups, orientation: Orientation::Tn, a, b, out, write: Write::Accumulate }
            if let Some(software) = separate =>
        {
            let product = Product::of_groups(groups, Orientation::Tn, [a, b, out], Write::Assign, Some(software));
            then_added(product, out, software)
        }
        Family::GroupedProduct { groups, orientation, a, b, out, write } => {
            vec![Kernel::Product(Product::of_groups(groups, orientation, [a, b, out], write, software))]
        }
        Family::Product { orientation, a, b, out, write } => {
            vec![Kernel::Product(Product::of_op(orientation, [a, b, out], write, software))]
        }
        Family::Attention { operands } if let Some(software) = unfused => unfused_forward(&scores(&operands, software)),
        Family::AttentionBackward { operands } if let Some(software) = unfused => {
            unfused_backward(&scores(&operands, software))
        }
        Family::Attention { operands } => vec![fused(op, &operands, AttentionPass::Forward, software)],
        Family::AttentionBackward { operands } => vec![fused(op, &operands, AttentionPass::Backward, software)],
        // A dense gradient of the table is cleared, written where tokens are, and added to the sum.
        Family::LookupBackward { dy, dtable } if let Some(software) = separate => {
            let width_bytes = dy.dtype.size_bytes();
            let made = Kernel::Memory { bytes: (dtable.len() * width_bytes + 3 * dy.size_bytes()) as f64 };
            std::iter::once(made).chain(added(dtable.len(), width_bytes, software)).collect()
        }
        // Only rows of tokens that occur are read and written.
        Family::LookupBackward { dy, dtable } => {
            let row_bytes = dtable.dtype.size_bytes() * dy.len();
            vec![Kernel::Memory { bytes: (dy.size_bytes() + 2 * row_bytes) as f64 }]
        }
        Family::Lookup { out } => vec![Kernel::Memory { bytes: 2.0 * out.size_bytes() as f64 }],
        Family::Norm { x } => vec![several(op, x, software.map(|software| software.norm_bytes_forward))],
        Family::NormBackward { x } => {
            vec![several(op, x, software.map(|software| software.norm_bytes_backward))]
        }
        Family::Rotary { x } => vec![several(op, x, software.map(|software| software.rotary_bytes))],
        Family::Activation { y } => vec![several(op, y, software.map(|software| software.activation_bytes_forward))],
        Family::ActivationBackward { dy } => {
            vec![several(op, dy, software.map(|software| software.activation_bytes_backward))]
        }
        Family::Fused(ops) => ops.iter().flat_map(|op| of_op(op, software)).collect(),
        Family::Memory => vec![Kernel::Memory { bytes: op.cost().moved_bytes as f64 }],
    }
}

/// A product that makes a new gradient, and the kernels that add it to the sum `out`.
fn then_added(product: Product, out: Tensor, software: &Software) -> Vec<Kernel> {
    let product = Product { out_bytes: product.width_bytes, ..product };
    let added = added(out.len(), product.width_bytes, software);
    std::iter::once(Kernel::Product(product)).chain(added).collect()
}

/// An operation in kernels that move `beyond_bytes` per element of `shape` beyond those of one kernel, where numbers
/// have 2 bytes. They are one here: the gaps between them are not counted.
fn several(op: &Op, shape: Tensor, beyond_bytes: Option<f64>) -> Kernel {
    let beyond = shape.size_bytes() as f64 / 2.0 * beyond_bytes.unwrap_or(0.0);
    Kernel::Memory { bytes: op.cost().moved_bytes as f64 + beyond }
}

/// Attention in one kernel.
fn fused(op: &Op, operands: &AttentionOperands, pass: AttentionPass, software: Option<&Software>) -> Kernel {
    let format = ProductFormat::of(operands.q.dtype.size_bytes(), software);
    let AttentionShape { sequences, sequence_length, heads, head_dim, .. } = operands.shape;
    Kernel::Attention {
        flops: 2.0 * op.cost().multiply_adds as f64,
        pass,
        tokens: operands.k.rows / sequences.max(1),
        tiles: sequences * heads * sequence_length.div_ceil(TILE_ROWS),
        heads: sequences * heads,
        head_dim,
        kernels: software.map(|software| (software.flash_kernels, software.attention_sums)),
        format,
    }
}

/// The kernels that add a new gradient of this many elements to the sum, where the product does not: they read both and
/// write one, a copy before.
fn added(elements: usize, width_bytes: usize, software: &Software) -> Vec<Kernel> {
    let memory = |bytes: f64| Kernel::Memory { bytes: elements as f64 * bytes };
    let (width, sum) = (width_bytes as f64, software.gradient_bytes);
    match software.gradient_sums {
        GradientAddition::InTheProduct => vec![],
        GradientAddition::Separate => vec![memory(width + 2.0 * sum)],
        GradientAddition::Copied => vec![memory(width + sum), memory(3.0 * sum)],
    }
}

/// Sizes of attention with stored scores.
struct Scores<'a> {
    software: &'a Software,
    batch: usize,
    tokens: usize,
    head_dim: usize,
    width_bytes: usize,
    kept: bool,
}

impl Scores<'_> {
    fn product(&self, m: usize, n: usize, k: usize) -> Kernel {
        Kernel::Product(Product::new(self.batch, [m, n, k], [self.width_bytes; 2], Some(self.software)))
    }

    /// Kernels that move this many bytes per score.
    fn pass(&self, bytes: f64) -> Kernel {
        Kernel::Memory { bytes: (self.batch * self.tokens * self.tokens) as f64 * bytes }
    }

    /// Dropout reads and writes scores, and writes or reads its mask.
    fn dropout(&self) -> Option<Kernel> {
        self.kept.then(|| self.pass((2 * self.width_bytes + 1) as f64))
    }

    /// A kernel that brings heads and tokens into another order.
    fn reorder(&self, tensors: usize) -> Kernel {
        Kernel::Memory { bytes: (2 * tensors * self.batch * self.tokens * self.head_dim * self.width_bytes) as f64 }
    }
}

fn scores<'a>(operands: &AttentionOperands, software: &'a Software) -> Scores<'a> {
    let AttentionShape { sequences, sequence_length, heads, head_dim, .. } = operands.shape;
    let (width_bytes, kept) = (operands.q.dtype.size_bytes(), operands.dropout.is_some());
    Scores { software, batch: sequences * heads, tokens: sequence_length, head_dim, width_bytes, kept }
}

/// Scores, their softmax, dropout, the weighted sum of values, all full and not causal, and heads back to columns.
fn unfused_forward(all: &Scores<'_>) -> Vec<Kernel> {
    let (s, d) = (all.tokens, all.head_dim);
    let mut kernels = vec![all.product(s, s, d), all.pass(all.software.score_bytes_forward)];
    kernels.extend(all.dropout());
    kernels.extend([all.product(s, d, s), all.reorder(1)]);
    kernels
}

/// The same backwards: two products of each forward one, gradient of dropout and softmax, and four tensors between
/// heads and columns.
fn unfused_backward(all: &Scores<'_>) -> Vec<Kernel> {
    let (s, d) = (all.tokens, all.head_dim);
    let mut kernels = vec![all.product(s, s, d), all.product(s, d, s)];
    kernels.extend(all.dropout());
    let softmax = all.pass(all.software.score_bytes_backward);
    kernels.extend([softmax, all.product(s, d, s), all.product(s, d, s), all.reorder(4)]);
    kernels
}

fn has_logits(ops: &[Op]) -> bool {
    ops.iter().any(|op| matches!(op, Op::CrossEntropy { .. }))
}

/// The head with all logits at once: products of chunks become one over all tokens in the width of activations, and the
/// kernels of the loss what the trainer's move. The head's other operations stay as they are.
fn whole_head(ops: &[Op], tp: usize, software: &Software) -> Vec<Kernel> {
    let mut kernels: Vec<Kernel> = vec![];
    let mut products: Vec<(Orientation, Product)> = vec![];
    let losses = ops.iter().filter_map(|op| {
        let Op::CrossEntropy { logits, gradient, .. } = op else { return None };
        Some((*logits, gradient.map(|gradient| gradient.into)))
    });
    let (chunks, gradients): (Vec<Tensor>, Vec<Option<Tensor>>) = losses.unzip();
    let logits: usize = chunks.iter().map(Tensor::len).sum();
    // Gradients have the place of the logits, or one of their own.
    let is_of_head = |tensor: Tensor| chunks.contains(&tensor) || gradients.contains(&Some(tensor));
    for op in ops {
        if let Op::MatMul { orientation, a, b, out, write, .. } = *op
            && (is_of_head(a) || is_of_head(out))
        {
            let product = Product::of_op(orientation, [a, b, out], write, Some(software));
            match products.iter_mut().find(|(other, _)| *other == orientation) {
                None => products.push((orientation, product)),
                Some((Orientation::Nt | Orientation::Nn, sum)) => sum.m += product.m,
                Some((Orientation::Tn, sum)) => sum.k += product.k,
            }
        } else if !matches!(op, Op::RowMax { .. } | Op::SumExp { .. } | Op::CrossEntropy { .. }) {
            kernels.extend(with_fills(op, Some(software)));
        }
    }
    for (orientation, product) in products {
        let product = Product { out_bytes: product.width_bytes, ..product };
        kernels.push(Kernel::Product(product));
        if orientation == Orientation::Tn {
            kernels.extend(added(product.m * product.n, product.width_bytes, software));
        }
    }
    let moved = logits as f64 * software.logits_per_own(tp) * software.logit_bytes_moved;
    kernels.push(Kernel::Memory { bytes: moved });
    kernels
}
