//! Operations over shapes, strides, types and values that are drawn: all but products, attention and losses, which have
//! such tests next to their others.

use config::{Norm, NormKind, Pairing, RotaryScaling};
use device::{AdamWUpdate, Direction, DropoutKey, Dtype, NormBackward, Op, Rounding, SUM_WORDS, Tensor, Write};
use proptest::prelude::*;

use crate::operations::activation::ALL as ACTIVATIONS;
use crate::operations::bench::Bench;
use crate::operations::case::{Case, STORED, Values};

/// The choices that decide an operation, in addition to the words of its case.
#[derive(Clone, Copy, Debug)]
struct Drawn {
    rows: usize,
    cols: usize,
    gaps: [usize; 4],
    values: Values,
    /// Choices of kinds and of optional tensors.
    choice: usize,
}

impl Drawn {
    fn reals(self, case: &mut Case, number: usize) -> Tensor {
        case.reals(self.rows, self.cols, self.gaps[number], self.values)
    }

    fn stored(self, case: &mut Case, number: usize) -> Tensor {
        case.stored(self.rows, self.cols, self.gaps[number], self.values)
    }

    /// One of these, by a part of the choice that no other `step` reads.
    fn of<T: Copy>(self, step: u32, all: &[T]) -> T {
        all[self.choice / 7usize.pow(step) % all.len()]
    }

    fn has(self, step: u32) -> bool {
        self.of(step, &[false, true])
    }

    fn write(self) -> Write {
        self.of(0, &[Write::Assign, Write::Accumulate])
    }

    fn dropout(self, case: &mut Case) -> DropoutKey {
        DropoutKey {
            seed: case.words.next(),
            step: 7,
            site: 3,
            first_token: (1 << 32) - 2,
            first_channel: self.choice as u32 % 2000,
            probability: self.of(1, &[0.0, 0.1, 0.5, 0.9]),
        }
    }
}

/// An operation with its tensors placed.
type Make = fn(Drawn, &mut Case) -> Op;

fn column_sum(drawn: Drawn, case: &mut Case) -> Op {
    let x = drawn.stored(case, 0);
    Op::ColumnSum { x, out: case.vector(drawn.cols, drawn.values) }
}

/// A norm of `heads` vectors in each row.
fn normed(drawn: Drawn) -> (Norm, usize) {
    let kind = drawn.of(1, &[NormKind::Layer, NormKind::Rms, NormKind::RmsPlusOne]);
    (Norm { kind, epsilon: drawn.of(2, &[1e-5, 1e-3]) }, drawn.of(3, &[1, 2, 5]))
}

/// The same with rows of multiples of 64 elements in some cases, which are read once.
fn in_chunks(drawn: Drawn) -> Drawn {
    if drawn.of(5, &[true, true, false]) {
        return drawn;
    }
    let gaps = drawn.gaps.map(|gap| gap.next_multiple_of(8));
    Drawn { cols: 64 * (1 + drawn.choice % 40), gaps, ..drawn }
}

fn norm(drawn: Drawn, case: &mut Case) -> Op {
    let drawn = in_chunks(drawn);
    let (norm, heads) = normed(drawn);
    let wide = Drawn { cols: heads * drawn.cols, ..drawn };
    let x = wide.stored(case, 0);
    let weight = case.stored_vector(drawn.cols, drawn.values);
    let bias = drawn.has(4).then(|| case.stored_vector(drawn.cols, drawn.values));
    let y = wide.stored(case, 1);
    Op::Norm { norm, x, weight, bias, y, stats: case.reals(drawn.rows * heads, 2, 0, Values::Plain) }
}

fn norm_backward_input(drawn: Drawn, case: &mut Case) -> Op {
    let drawn = in_chunks(drawn);
    let (norm, heads) = normed(drawn);
    let wide = Drawn { cols: heads * drawn.cols, ..drawn };
    let tensors = NormBackward {
        norm,
        x: wide.stored(case, 0),
        weight: case.stored_vector(drawn.cols, drawn.values),
        stats: case.reals(drawn.rows * heads, 2, 0, drawn.values),
        dy: wide.stored(case, 1),
        dx: wide.stored(case, 2),
    };
    Op::NormBackwardInput { tensors, write: drawn.write() }
}

fn norm_backward_weight(drawn: Drawn, case: &mut Case) -> Op {
    let (norm, heads) = normed(drawn);
    let wide = Drawn { cols: heads * drawn.cols, ..drawn };
    let x = wide.stored(case, 0);
    let stats = case.reals(drawn.rows * heads, 2, 0, drawn.values);
    let dy = wide.stored(case, 1);
    let dweight = case.vector(drawn.cols, drawn.values);
    let dbias = drawn.has(4).then(|| case.vector(drawn.cols, drawn.values));
    Op::NormBackwardWeight { norm, x, stats, dy, dweight, dbias }
}

fn rotary_table(drawn: Drawn, case: &mut Case) -> Op {
    let (cos, sin) = (drawn.reals(case, 0), drawn.reals(case, 1));
    let llama = RotaryScaling::Llama3 { factor: 8.0, low_turns: 1.0, high_turns: 4.0, original_context: 64 };
    let yarn =
        RotaryScaling::Yarn { factor: 4.0, low_turns: 1.0, high_turns: 8.0, original_context: 64, magnitude: 1.25 };
    let scaling = drawn.of(0, &[RotaryScaling::Off, RotaryScaling::Linear { factor: 3.7 }, llama, yarn]);
    Op::RotaryTable { cos, sin, base: drawn.of(1, &[10_000.0, 500_000.0, 100.0]), scaling }
}

fn rotary(drawn: Drawn, case: &mut Case) -> Op {
    let (head_dim, heads) = (2 * drawn.cols, drawn.of(2, &[1, 2, 3]));
    // Threads have several pairs where those of a head, too, are whole eights.
    let some = 1 + drawn.choice % drawn.cols;
    let pairs = if drawn.cols.is_multiple_of(8) { some.next_multiple_of(8) } else { some };
    let x = case.stored(drawn.rows, heads * head_dim, drawn.gaps[0], drawn.values);
    let [cos, sin] = [1, 2].map(|gap| case.reals(20, pairs, drawn.gaps[gap], Values::Plain));
    let places: Vec<i32> = (0..drawn.rows).map(|_| case.words.below(20) as i32).collect();
    let positions = case.ints(&places);
    let pairing = drawn.of(0, &[Pairing::Half, Pairing::Interleaved]);
    let direction = drawn.of(1, &[Direction::Forward, Direction::Backward]);
    Op::Rotary { x, head_dim, positions, cos, sin, pairing, direction }
}

fn activation(drawn: Drawn, case: &mut Case) -> Op {
    let activation = drawn.of(0, &ACTIVATIONS);
    let inputs = activation.inputs_per_output() * drawn.cols;
    let x = case.stored(drawn.rows, inputs, drawn.gaps[0], drawn.values);
    Op::Activation { activation, x, y: drawn.stored(case, 1) }
}

fn activation_backward(drawn: Drawn, case: &mut Case) -> Op {
    let activation = drawn.of(0, &ACTIVATIONS);
    let inputs = activation.inputs_per_output() * drawn.cols;
    let [x, dx] = [0, 1].map(|gap| case.stored(drawn.rows, inputs, drawn.gaps[gap], drawn.values));
    let (dy, y) = (drawn.stored(case, 2), drawn.stored(case, 3));
    Op::ActivationBackward { activation, x, dy, dx, y }
}

fn dropout_add(drawn: Drawn, case: &mut Case) -> Op {
    let x = drawn.stored(case, 0);
    let bias = drawn.has(2).then(|| case.stored_vector(drawn.cols, drawn.values));
    let residual = drawn.has(3).then(|| drawn.stored(case, 1));
    let dropout = drawn.has(4).then(|| drawn.dropout(case));
    let out = drawn.of(5, &[Some(x), residual, None]).unwrap_or_else(|| drawn.stored(case, 2));
    Op::DropoutAdd { x, bias, residual, residual_scale: drawn.of(0, &[1.0, 0.3]), dropout, out }
}

fn dropout_backward(drawn: Drawn, case: &mut Case) -> Op {
    let dy = drawn.stored(case, 0);
    let dropout = drawn.dropout(case);
    Op::DropoutBackward { dy, dropout, dx: if drawn.has(5) { dy } else { drawn.stored(case, 1) } }
}

/// Tokens of this rank, of others, and ignored ones.
fn tokens(drawn: Drawn, case: &mut Case, count: usize, first_row: usize) -> Tensor {
    let mut token = || match case.words.below(4) {
        0 => case.words.below(2 * drawn.rows + first_row) as i32 - 1,
        _ => (first_row + case.words.below(drawn.rows)) as i32,
    };
    let list: Vec<i32> = (0..count).map(|_| token()).collect();
    case.ints(&list)
}

fn embedding_lookup(drawn: Drawn, case: &mut Case) -> Op {
    let (count, first_row) = (1 + drawn.choice % 300, drawn.of(1, &[0, 1, 17]));
    let tokens = tokens(drawn, case, count, first_row);
    let table = drawn.stored(case, 0);
    let out = case.stored(count, drawn.cols, drawn.gaps[1], drawn.values);
    Op::EmbeddingLookup { tokens, table, first_row, out, write: drawn.write() }
}

fn embedding_backward(drawn: Drawn, case: &mut Case) -> Op {
    let (count, first_row) = (1 + drawn.choice % 300, drawn.of(1, &[0, 1, 17]));
    let tokens = tokens(drawn, case, count, first_row);
    let dy = case.stored(count, drawn.cols, drawn.gaps[0], drawn.values);
    let untrained = drawn.has(2).then_some(first_row);
    let dtable = drawn.reals(case, 1);
    Op::EmbeddingBackward { tokens, dy, scale: drawn.of(3, &[1.0, 0.37]), first_row, untrained, dtable }
}

fn accumulate(drawn: Drawn, case: &mut Case) -> Op {
    if drawn.has(0) {
        let [x, into] = [(); 2].map(|()| case.place(1, drawn.rows * drawn.cols, 0, Dtype::I64));
        return Op::Accumulate { x, into };
    }
    let (x, into) = (drawn.reals(case, 0), drawn.reals(case, 1));
    if drawn.has(1) {
        return Op::ScaledSum { x, factor: drawn.of(2, &[1.0, 0.37]), into, keep: drawn.of(3, &[0.0, 0.99]) };
    }
    Op::Accumulate { x, into }
}

fn fill(drawn: Drawn, case: &mut Case) -> Op {
    let value = drawn.of(1, &[0.0, -0.0, 1.000_001, 70_000.0, -1e-7, f32::NEG_INFINITY, f32::NAN]);
    let dtype = drawn.of(0, &STORED);
    Op::Fill { out: case.place(drawn.rows, drawn.cols, drawn.gaps[0], dtype), value }
}

fn copy(drawn: Drawn, case: &mut Case) -> Op {
    let (from, to) = (drawn.of(0, &STORED), drawn.of(1, &STORED));
    // Random bytes are numbers of every kind.
    let from = case.place(drawn.rows, drawn.cols, drawn.gaps[0], from);
    Op::Copy { from, to: case.place(drawn.rows, drawn.cols, drawn.gaps[1], to) }
}

fn initialize_normal(drawn: Drawn, case: &mut Case) -> Op {
    let out = case.place(drawn.rows, drawn.cols, drawn.gaps[0], drawn.of(0, &STORED));
    let [seed, parameter] = [(); 2].map(|()| case.words.next());
    let (first_row, first_col) = (case.words.below(1 << 20), case.words.below(100));
    let global_cols = first_col + drawn.cols + case.words.below(50);
    Op::InitializeNormal { out, seed, parameter, std: drawn.of(1, &[0.02, 1.0]), first_row, first_col, global_cols }
}

fn sum(case: &mut Case) -> Tensor {
    let sum = case.place(1, SUM_WORDS, 0, Dtype::I64);
    for word in 0..SUM_WORDS {
        let value = case.words.next() as i64 >> (20 + case.words.below(40));
        case.put(sum, 0, word, &value.to_le_bytes());
    }
    sum
}

fn squared_sum(drawn: Drawn, case: &mut Case) -> Op {
    let x = case.vector(drawn.rows * drawn.cols, drawn.values);
    let first_element = case.words.below(20_000);
    Op::SquaredSum { x, first_element, loss_scale: drawn.of(0, &[1.0, 1024.0, 0.125]), sums: sum(case) }
}

fn loss_sum(drawn: Drawn, case: &mut Case) -> Op {
    let tokens = drawn.rows * drawn.cols;
    let loss = case.vector(tokens, drawn.values);
    let list: Vec<i32> = (0..tokens).map(|_| [-100, 0, 5][case.words.below(3)]).collect();
    let labels = case.ints(&list);
    Op::LossSum { loss, labels, sequences: drawn.rows, sums: sum(case) }
}

fn clip_coefficient(drawn: Drawn, case: &mut Case) -> Op {
    let [norm_sums, loss_sums] = [(); 2].map(|()| sum(case));
    let out = case.vector(4, Values::Plain);
    let (nominal_tokens, loss_scale) = (1.0 + drawn.choice as f64, drawn.of(0, &[1.0, 65_536.0]));
    let clip_norm = drawn.of(1, &[None, Some(1.0), Some(1e-3), Some(1e30)]);
    Op::ClipCoefficient { norm_sums, loss_sums, nominal_tokens, loss_scale, clip_norm, out }
}

fn adamw(drawn: Drawn, case: &mut Case) -> Op {
    let len = drawn.rows * drawn.cols;
    let [param, grad, first_moment, second_moment] = [(); 4].map(|()| case.vector(len, drawn.values));
    let coefficient = case.vector(4, Values::Plain);
    let copy = drawn.has(0).then(|| case.place(1, len, 0, drawn.of(1, &STORED)));
    let update = AdamWUpdate {
        learning_rate: drawn.of(2, &[1e-2, 3e-4]),
        weight_decay: drawn.of(3, &[0.0, 0.1]),
        beta1: 0.9,
        beta2: 0.95,
        epsilon: 1e-8,
        update: 1 + drawn.choice as u32 % 1000,
    };
    Op::AdamW { param, copy, grad, first_moment, second_moment, coefficient, update }
}

fn add_rounded(drawn: Drawn, case: &mut Case) -> Op {
    let len = drawn.rows * drawn.cols;
    let x = case.vector(len, drawn.values);
    let into = case.place(1, len, 0, Dtype::I64);
    let refusals = case.place(1, SUM_WORDS, 0, Dtype::I64);
    let unit = 2f32.powi(-(drawn.choice as i32 % 40));
    let rounding = Rounding { unit, limit: drawn.of(1, &[8.0, 1e6]) };
    Op::AddRounded { x, rounding, into, write: drawn.write(), refusals }
}

fn rounded_to_single(drawn: Drawn, case: &mut Case) -> Op {
    let sums = case.place(1, drawn.rows * drawn.cols, 0, Dtype::I64);
    for col in 0..sums.cols {
        let value = case.words.next() as i64 >> case.words.below(64);
        case.put(sums, 0, col, &value.to_le_bytes());
    }
    Op::RoundedToSingle { sums, unit: drawn.of(0, &[1.0, 2f32.powi(-30)]) }
}

/// Every operation of this file, with the source of its kernels.
const ALL: [(&str, Make); 22] = [
    ("column_sum", column_sum),
    ("norm", norm),
    ("norm", norm_backward_input),
    ("norm", norm_backward_weight),
    ("rotary", rotary_table),
    ("rotary", rotary),
    ("activation", activation),
    ("activation", activation_backward),
    ("dropout", dropout_add),
    ("dropout", dropout_backward),
    ("embedding", embedding_lookup),
    ("embedding", embedding_backward),
    ("element_wise", accumulate),
    ("element_wise", fill),
    ("element_wise", copy),
    ("initialize", initialize_normal),
    ("fixed_point", squared_sum),
    ("fixed_point", loss_sum),
    ("fixed_point", clip_coefficient),
    ("adamw", adamw),
    ("rounded_sum", add_rounded),
    ("rounded_sum", rounded_to_single),
];

/// A type in which a run may store its tensors.
pub fn any_stored() -> impl Strategy<Value = Dtype> {
    proptest::sample::select(STORED.to_vec())
}

/// Where rows begin: threads take several neighbours at once where they can.
#[derive(Clone, Copy, Debug)]
enum Rows {
    Anyhow,
    /// Rows begin at multiples of eight elements.
    BeginInEights,
    /// They end there, too.
    EndInEights,
}

fn drawn() -> impl Strategy<Value = Drawn> {
    let sizes = (prop_oneof![1usize..5, 1usize..70], prop_oneof![1usize..5, 1usize..140]);
    let values = prop_oneof![Just(Values::Plain), Just(Values::Wild)];
    let rows = proptest::sample::select(vec![Rows::Anyhow, Rows::BeginInEights, Rows::EndInEights]);
    let all = (sizes, rows, [0usize..5, 0..5, 0..5, 0..5], values, any::<u32>());
    all.prop_map(|((rows, cols), kind, gaps, values, choice)| {
        let eights = cols.next_multiple_of(8);
        let (cols, gaps) = match kind {
            Rows::Anyhow => (cols, gaps),
            Rows::BeginInEights => (cols, [eights - cols; 4]),
            Rows::EndInEights => (eights, [0; 4]),
        };
        Drawn { rows, cols, gaps, values, choice: choice as usize }
    })
}

#[needs::cuda]
#[test]
fn operations_of_any_shape_stride_and_type_have_the_bits_of_the_cpu() {
    for (source, make) in ALL {
        let bench = Bench::of(&[source]);
        let config = ProptestConfig { max_shrink_iters: 60, ..ProptestConfig::with_cases(36) };
        proptest!(config, |(drawn in drawn(), stored in any_stored(), seed in any::<u64>())| {
            let mut case = Case::new(seed).storing(stored);
            let op = make(drawn, &mut case);
            prop_assert_eq!(bench.difference(&case, &[op]), None, "{:?}", op);
        });
    }
}
