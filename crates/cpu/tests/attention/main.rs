//! Attention against its definition in f64, against itself on other instruction sets and in other cuts.

mod reference;

use cpu::attention::{
    Attention, AttentionBuffers, AttentionShape, Backward, DropoutKey, Forward, attention_backward, attention_forward,
};
use cpu::instruction_set::InstructionSet;
use cpu::meter::Meter;
use cpu::view::{MatMut, MatRef};
use reference::{Operands, compute};

/// Elements of a fused row beside queries, keys and values.
const GAP: usize = 3;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    fn values(&mut self, len: usize) -> Vec<f32> {
        (0..len).map(|_| ((self.next() as f64 / (1u64 << 30) as f64 - 1.0) * 1.5) as f32).collect()
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Visible {
    Causal,
    Documents,
    Prefix,
    SlidingWindow,
    SomeEmpty,
    Everything,
}

const ALL_VISIBLE: [Visible; 6] = [
    Visible::Causal,
    Visible::Documents,
    Visible::Prefix,
    Visible::SlidingWindow,
    Visible::SomeEmpty,
    Visible::Everything,
];

fn intervals(visible: Visible, shape: &AttentionShape) -> Vec<[i32; 2]> {
    let length = shape.sequence_length as i32;
    let interval = |position: i32| match visible {
        Visible::Causal => [0, position + 1],
        Visible::Documents => [position / 23 * 23, position + 1],
        Visible::Prefix => [0, (position + 1).max(length / 3)],
        Visible::SlidingWindow => [(position - 9).max(0), position + 1],
        Visible::SomeEmpty if position % 3 == 0 || position > 40 => [position, position],
        Visible::SomeEmpty => [position / 2, position + 1],
        Visible::Everything => [0, length],
    };
    (0..shape.sequences).flat_map(|_| (0..length).map(interval)).collect()
}

/// One attention with fused queries, keys and values in memory.
struct Case {
    shape: AttentionShape,
    visible: Vec<[i32; 2]>,
    dropout: Option<DropoutKey>,
    fused: Vec<f32>,
    dout: Vec<f32>,
}

/// What the kernels write, gradients dense.
#[derive(PartialEq)]
struct Outputs {
    out: Vec<f32>,
    log_sum_exp: Vec<f32>,
    dq: Vec<f32>,
    dk: Vec<f32>,
    dv: Vec<f32>,
}

impl Case {
    fn new(shape: AttentionShape, visible: Visible, dropout: bool, random: &mut Random) -> Self {
        let tokens = shape.sequences * shape.sequence_length;
        let key = DropoutKey {
            seed: 0x1234_5678_9abc,
            step: 7,
            site: 3,
            first_token: 1000,
            first_channel: 5,
            probability: 0.2,
        };
        let mut case = Self {
            shape,
            visible: intervals(visible, &shape),
            dropout: dropout.then_some(key),
            fused: Vec::new(),
            dout: random.values(tokens * shape.heads * shape.head_dim),
        };
        case.fused = random.values(tokens * case.row());
        case
    }

    fn tokens(&self) -> usize {
        self.shape.sequences * self.shape.sequence_length
    }

    fn widths(&self) -> (usize, usize) {
        (self.shape.heads * self.shape.head_dim, self.shape.kv_heads * self.shape.head_dim)
    }

    /// Elements of a fused row.
    fn row(&self) -> usize {
        let (q, kv) = self.widths();
        q + 2 * kv + GAP
    }

    fn attention(&self) -> Attention<'_> {
        let scale = 1.0 / (self.shape.head_dim as f32).sqrt();
        Attention { shape: self.shape, visible: &self.visible, scale, dropout: self.dropout }
    }

    fn qkv(&self) -> [MatRef<'_>; 3] {
        let (q, kv) = self.widths();
        let fused = MatRef::new(&self.fused, self.tokens(), q + 2 * kv, self.row());
        [(0, q), (q, kv), (q + kv, kv)].map(|(col, cols)| fused.block(0, self.tokens(), col, cols))
    }

    fn operands(&self) -> Operands {
        let dense = |matrix: MatRef<'_>| {
            (0..matrix.rows()).flat_map(|row| matrix.row(row).iter().map(|value| f64::from(*value))).collect()
        };
        let [q, k, v] = self.qkv().map(dense);
        Operands { q, k, v, dout: self.dout.iter().map(|value| f64::from(*value)).collect() }
    }

    fn run(&self, instruction_set: InstructionSet) -> Outputs {
        let (buffers, meter) = (&mut AttentionBuffers::new(), Meter::new());
        let attention = self.attention();
        let (q_cols, kv_cols) = self.widths();
        let tokens = self.tokens();
        let [q, k, v] = self.qkv();
        let mut out = vec![f32::NAN; tokens * q_cols];
        let mut log_sum_exp = vec![f32::NAN; tokens * self.shape.heads];
        let view = MatMut::dense(&mut out, tokens, q_cols);
        let statistics = MatMut::dense(&mut log_sum_exp, tokens, self.shape.heads);
        let forward = Forward { q, k, v, out: view, log_sum_exp: statistics };
        attention_forward(&attention, forward, buffers, instruction_set, &meter);
        let work = self.pairs() * (self.shape.heads * self.shape.head_dim) as u64;
        assert_eq!(meter.multiply_adds(), 2 * work);

        let mut gradients = vec![f32::NAN; tokens * self.row()];
        let fused = MatMut::new(&mut gradients, tokens, q_cols + 2 * kv_cols, self.row());
        let (dq, rest) = fused.split_at_col(q_cols);
        let (dk, dv) = rest.split_at_col(kv_cols);
        let out_view = MatRef::dense(&out, tokens, q_cols);
        let dout = MatRef::dense(&self.dout, tokens, q_cols);
        let mut key_sums = vec![f32::NAN; 2 * self.shape.sequence_length * self.shape.head_dim];
        let key_sums = MatMut::dense(&mut key_sums, 2 * self.shape.sequence_length, self.shape.head_dim);
        let statistics = MatRef::dense(&log_sum_exp, tokens, self.shape.heads);
        let backward = Backward { q, k, v, out: out_view, log_sum_exp: statistics, dout, dq, dk, dv, key_sums };
        attention_backward(&attention, backward, buffers, instruction_set, &meter);
        assert_eq!(meter.multiply_adds(), 7 * work);

        let part = |col: usize, cols: usize| -> Vec<f32> {
            gradients.chunks(self.row()).flat_map(|row| row[col..col + cols].to_vec()).collect()
        };
        assert!(part(q_cols + 2 * kv_cols, GAP).iter().all(|value| value.is_nan()), "gaps are not written");
        let (dq, dk, dv) = (part(0, q_cols), part(q_cols, kv_cols), part(q_cols + kv_cols, kv_cols));
        Outputs { out, log_sum_exp, dq, dk, dv }
    }

    fn pairs(&self) -> u64 {
        self.visible.iter().map(|[first, last]| (*last).max(*first) - first).map(|pairs| pairs as u64).sum()
    }

    /// The case of one of the sequences, or of a range of heads, as another rank or microbatch would see it.
    fn part(&self, sequence: Option<usize>, heads: std::ops::Range<usize>) -> Self {
        let (length, d) = (self.shape.sequence_length, self.shape.head_dim);
        let group = self.shape.heads / self.shape.kv_heads;
        let kv_heads = heads.start / group..heads.end / group;
        let tokens = sequence.map_or(0..self.tokens(), |sequence| sequence * length..(sequence + 1) * length);
        let mut part = Self {
            shape: AttentionShape {
                sequences: sequence.map_or(self.shape.sequences, |_| 1),
                heads: heads.len(),
                kv_heads: kv_heads.len(),
                ..self.shape
            },
            visible: self.visible[tokens.clone()].to_vec(),
            dropout: self.dropout,
            fused: Vec::new(),
            dout: Vec::new(),
        };
        if let Some(dropout) = &mut part.dropout {
            dropout.first_token += tokens.start as u64;
            dropout.first_channel += heads.start as u32;
        }
        let [q, k, v] = self.qkv();
        for token in tokens {
            part.fused.extend(&q.row(token)[heads.start * d..heads.end * d]);
            part.fused.extend(&k.row(token)[kv_heads.start * d..kv_heads.end * d]);
            part.fused.extend(&v.row(token)[kv_heads.start * d..kv_heads.end * d]);
            part.fused.extend([0.0; GAP]);
            let row = token * self.shape.heads * d;
            part.dout.extend(&self.dout[row + heads.start * d..row + heads.end * d]);
        }
        part
    }
}

fn shape(sequences: usize, sequence_length: usize, heads: usize, kv_heads: usize, head_dim: usize) -> AttentionShape {
    AttentionShape { sequences, sequence_length, heads, kv_heads, head_dim }
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

fn assert_same(a: &Outputs, b: &Outputs, name: &str) {
    for (field, a, b) in [
        ("out", &a.out, &b.out),
        ("log_sum_exp", &a.log_sum_exp, &b.log_sum_exp),
        ("dq", &a.dq, &b.dq),
        ("dk", &a.dk, &b.dk),
        ("dv", &a.dv, &b.dv),
    ] {
        assert!(bits(a) == bits(b), "{field} differs: {name}");
    }
}

/// The reference's gradients are those of its own outputs.
#[test]
fn reference_gradients_are_central_differences() {
    let random = &mut Random(1);
    for visible in ALL_VISIBLE {
        for dropout in [false, true] {
            let case = Case::new(shape(2, 13, 4, 2, 3), visible, dropout, random);
            let attention = case.attention();
            let operands = case.operands();
            let results = compute(&attention, &operands);
            let loss = |operands: &Operands| -> f64 {
                let out = compute(&attention, operands).out.values;
                out.iter().zip(&operands.dout).map(|(out, dout)| out * dout).sum()
            };
            type Field = fn(&mut Operands) -> &mut Vec<f64>;
            let fields: [(Field, &Vec<f64>); 3] = [
                (|operands| &mut operands.q, &results.dq.values),
                (|operands| &mut operands.k, &results.dk.values),
                (|operands| &mut operands.v, &results.dv.values),
            ];
            for (field, gradient) in fields {
                for _ in 0..6 {
                    let at = random.next() as usize % gradient.len();
                    let step = 1e-5;
                    let mut moved = operands.clone();
                    field(&mut moved)[at] += step;
                    let above = loss(&moved);
                    field(&mut moved)[at] -= 2.0 * step;
                    let difference = (above - loss(&moved)) / (2.0 * step);
                    // The third derivative times step^2 / 6, and f64 rounding over the step, are below 1e-8 here.
                    assert!((difference - gradient[at]).abs() < 1e-8, "{visible:?}: {difference} {}", gradient[at]);
                }
            }
        }
    }
}

#[test]
fn within_bounds_of_the_reference_and_equal_on_all_instruction_sets() {
    let random = &mut Random(2);
    let shapes = [
        shape(2, 1, 1, 1, 2),
        shape(2, 7, 2, 1, 4),
        shape(1, 33, 3, 3, 12),
        shape(2, 70, 4, 2, 12),
        shape(1, 97, 2, 2, 64),
        shape(1, 150, 2, 1, 96),
    ];
    for shape in shapes {
        for visible in ALL_VISIBLE {
            let dropout = shape.sequence_length % 2 == 1 || visible == Visible::Causal;
            let case = Case::new(shape, visible, dropout, random);
            let name = format!("{shape:?} {visible:?} dropout {dropout}");
            let outputs = case.run(InstructionSet::Scalar);
            let exact = compute(&case.attention(), &case.operands());
            let shares = [
                exact.out.assert_holds(&outputs.out, &format!("out {name}")),
                exact.log_sum_exp.assert_holds(&outputs.log_sum_exp, &format!("log_sum_exp {name}")),
                exact.dq.assert_holds(&outputs.dq, &format!("dq {name}")),
                exact.dk.assert_holds(&outputs.dk, &format!("dk {name}")),
                exact.dv.assert_holds(&outputs.dv, &format!("dv {name}")),
            ];
            println!("{name}: shares of the bounds {shares:.3?}");
            for instruction_set in InstructionSet::available() {
                assert_same(&case.run(instruction_set), &outputs, &format!("{instruction_set:?} {name}"));
            }
        }
    }
}

#[test]
fn sequences_and_heads_do_not_depend_on_what_else_is_in_the_call() {
    let random = &mut Random(3);
    for visible in ALL_VISIBLE {
        let case = Case::new(shape(3, 75, 4, 2, 12), visible, true, random);
        let instruction_set = InstructionSet::detect();
        let whole = case.run(instruction_set);
        let (q_cols, kv_cols) = case.widths();
        for sequence in 0..3 {
            let part = case.part(Some(sequence), 0..4).run(instruction_set);
            let rows = |values: &[f32], cols: usize| values[sequence * 75 * cols..(sequence + 1) * 75 * cols].to_vec();
            let expected = Outputs {
                out: rows(&whole.out, q_cols),
                log_sum_exp: rows(&whole.log_sum_exp, 4),
                dq: rows(&whole.dq, q_cols),
                dk: rows(&whole.dk, kv_cols),
                dv: rows(&whole.dv, kv_cols),
            };
            assert_same(&part, &expected, &format!("sequence {sequence}, {visible:?}"));
        }
        for rank in 0..2 {
            let part = case.part(None, 2 * rank..2 * rank + 2).run(instruction_set);
            let columns = |values: &[f32]| -> Vec<f32> {
                let cols = values.len() / case.tokens();
                values.chunks(cols).flat_map(|row| row[rank * cols / 2..(rank + 1) * cols / 2].to_vec()).collect()
            };
            let expected = Outputs {
                out: columns(&whole.out),
                log_sum_exp: columns(&whole.log_sum_exp),
                dq: columns(&whole.dq),
                dk: columns(&whole.dk),
                dv: columns(&whole.dv),
            };
            assert_same(&part, &expected, &format!("rank {rank}, {visible:?}"));
        }
    }
}

/// A query's output is a function of its own interval.
#[test]
fn queries_do_not_depend_on_the_intervals_of_others() {
    let random = &mut Random(4);
    let mut case = Case::new(shape(1, 140, 1, 1, 16), Visible::Causal, true, random);
    let set = InstructionSet::detect();
    let before = case.run(set);
    for token in (0..140).filter(|token| token % 5 != 0) {
        case.visible[token] = [token as i32 / 2, 140];
    }
    let after = case.run(set);
    for token in (0..140).step_by(5) {
        let row = token * 16..(token + 1) * 16;
        assert_eq!(bits(&before.out[row.clone()]), bits(&after.out[row.clone()]));
        assert_eq!(bits(&before.dq[row.clone()]), bits(&after.dq[row]));
        assert_eq!(before.log_sum_exp[token].to_bits(), after.log_sum_exp[token].to_bits());
    }
}

#[test]
fn queries_that_see_nothing_give_zero() {
    let random = &mut Random(5);
    let mut case = Case::new(shape(1, 50, 2, 1, 8), Visible::Causal, false, random);
    case.visible.fill([3, 3]);
    for set in InstructionSet::available() {
        let outputs = case.run(set);
        assert!(outputs.log_sum_exp.iter().all(|value| *value == f32::NEG_INFINITY));
        for values in [outputs.out, outputs.dq, outputs.dk, outputs.dv] {
            assert!(values.iter().all(|value| *value == 0.0));
        }
    }
}

/// Scores far apart: powers that underflow, and a maximum that rises late.
#[test]
fn large_scores_stay_finite() {
    let random = &mut Random(6);
    let mut case = Case::new(shape(1, 130, 1, 1, 8), Visible::Everything, false, random);
    let row = case.row();
    for (token, fused) in case.fused.chunks_mut(row).enumerate() {
        fused[..16].iter_mut().for_each(|value| *value *= 1.0 + token as f32 / 8.0);
    }
    let exact = compute(&case.attention(), &case.operands());
    let outputs = case.run(InstructionSet::detect());
    exact.out.assert_holds(&outputs.out, "out");
    exact.log_sum_exp.assert_holds(&outputs.log_sum_exp, "log_sum_exp");
    exact.dq.assert_holds(&outputs.dq, "dq");
    exact.dk.assert_holds(&outputs.dk, "dk");
    exact.dv.assert_holds(&outputs.dv, "dv");
}
