//! One attention with its operands in memory.

use cpu::attention::{
    Alibi, Attention, AttentionBuffers, AttentionShape, Backward, DropoutKey, Forward, attention_backward,
    attention_backward_blocks, attention_backward_pairs, attention_forward, attention_forward_blocks,
    attention_forward_pairs,
};
use cpu::gemm::{BlockRule, PackingBuffers};
use cpu::instruction_set::InstructionSet;
use cpu::lanes::Stored;
use cpu::meter::Meter;
use cpu::view::{MatMut, MatRef};
use device::{Bf16, Element, F16};

use crate::attention::reference::{Operands, Products};

/// Elements of a fused row in addition to queries, keys and values.
pub const GAP: usize = 3;

pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    pub fn values(&mut self, len: usize) -> Vec<f32> {
        (0..len).map(|_| ((self.next() as f64 / (1u64 << 30) as f64 - 1.0) * 1.5) as f32).collect()
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Visible {
    Causal,
    Documents,
    Prefix,
    SlidingWindow,
    SomeEmpty,
    Everything,
}

pub const ALL_VISIBLE: [Visible; 6] = [
    Visible::Causal,
    Visible::Documents,
    Visible::Prefix,
    Visible::SlidingWindow,
    Visible::SomeEmpty,
    Visible::Everything,
];

/// Each of these with each kind of intervals.
pub fn with_all_visible<T: Copy>(of: impl IntoIterator<Item = T>) -> impl Iterator<Item = (T, Visible)> {
    of.into_iter().flat_map(|item| ALL_VISIBLE.map(|visible| (item, visible)))
}

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
#[derive(Clone)]
pub struct Case {
    pub products: Products,
    pub shape: AttentionShape,
    pub visible: Vec<[i32; 2]>,
    pub alibi: Option<Alibi>,
    pub dropout: Option<DropoutKey>,
    /// Numbers of a narrow type where products are not chained.
    pub fused: Vec<f32>,
    pub dout: Vec<f32>,
}

/// Outputs of the kernels, gradients dense.
#[derive(PartialEq)]
pub struct Outputs {
    pub out: Vec<f32>,
    pub log_sum_exp: Vec<f32>,
    pub dq: Vec<f32>,
    pub dk: Vec<f32>,
    pub dv: Vec<f32>,
}

/// The two passes on numbers of one type in one order of products.
struct Passes<E> {
    forward: fn(&Attention<'_>, Forward<'_, E>, InstructionSet, &Meter),
    backward: fn(&Attention<'_>, Backward<'_, E>, InstructionSet, &Meter),
}

const CHAINED: Passes<f32> = Passes {
    forward: |attention, tensors, set, meter| {
        attention_forward(attention, tensors, &mut AttentionBuffers::new(), set, meter);
    },
    backward: |attention, tensors, set, meter| {
        attention_backward(attention, tensors, &mut AttentionBuffers::new(), set, meter);
    },
};

const PAIRS: Passes<Bf16> = Passes {
    forward: |attention, tensors, set, meter| {
        attention_forward_pairs(attention, tensors, &mut PackingBuffers::new(), set, meter);
    },
    backward: |attention, tensors, set, meter| {
        attention_backward_pairs(attention, tensors, &mut PackingBuffers::new(), set, meter);
    },
};

const BLOCKS16: Passes<Bf16> = Passes {
    forward: |attention, tensors, set, meter| {
        attention_forward_blocks(attention, tensors, BlockRule::BLOCKS16, &mut PackingBuffers::new(), set, meter);
    },
    backward: |attention, tensors, set, meter| {
        attention_backward_blocks(attention, tensors, BlockRule::BLOCKS16, &mut PackingBuffers::new(), set, meter);
    },
};

const BLOCKS8: Passes<F16> = Passes {
    forward: |attention, tensors, set, meter| {
        attention_forward_blocks(attention, tensors, BlockRule::BLOCKS8, &mut PackingBuffers::new(), set, meter);
    },
    backward: |attention, tensors, set, meter| {
        attention_backward_blocks(attention, tensors, BlockRule::BLOCKS8, &mut PackingBuffers::new(), set, meter);
    },
};

/// Of another type, rounded.
fn narrow<E: Element>(values: &[f32]) -> Vec<E> {
    values.iter().map(|value| E::narrow(*value)).collect()
}

/// In single precision.
fn widen<E: Element>(values: &[E]) -> Vec<f32> {
    values.iter().map(|value| value.widen()).collect()
}

impl Case {
    pub fn new(
        products: Products,
        (shape, visible): (AttentionShape, Visible),
        dropout: bool,
        random: &mut Random,
    ) -> Self {
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
            products,
            shape,
            visible: intervals(visible, &shape),
            alibi: None,
            dropout: dropout.then_some(key),
            fused: Vec::new(),
            dout: random.values(tokens * shape.heads * shape.head_dim),
        };
        case.fused = random.values(tokens * case.row());
        case.rounded()
    }

    /// The same with operands as they are stored.
    pub fn rounded(mut self) -> Self {
        match self.products {
            Products::Chained => {}
            Products::Pairs | Products::Blocks16 => {
                self.fused = widen(&narrow::<Bf16>(&self.fused));
                self.dout = widen(&narrow::<Bf16>(&self.dout));
            }
            Products::Blocks8OfFp16 => {
                self.fused = widen(&narrow::<F16>(&self.fused));
                self.dout = widen(&narrow::<F16>(&self.dout));
            }
        }
        self
    }

    /// The same, and the same with biases of scores, as if three heads of other ranks came before.
    pub fn with_and_without_biases(self) -> [Self; 2] {
        let alibi = Some(Alibi { first_head: 3, num_heads: 3 + self.shape.heads });
        [self.clone(), Self { alibi, ..self }]
    }

    pub fn tokens(&self) -> usize {
        self.shape.sequences * self.shape.sequence_length
    }

    pub fn widths(&self) -> (usize, usize) {
        (self.shape.heads * self.shape.head_dim, self.shape.kv_heads * self.shape.head_dim)
    }

    /// Elements of a fused row.
    pub fn row(&self) -> usize {
        let (q, kv) = self.widths();
        q + 2 * kv + GAP
    }

    pub fn attention(&self) -> Attention<'_> {
        let scale = 1.0 / (self.shape.head_dim as f32).sqrt();
        Attention {
            shape: self.shape,
            visible: &self.visible,
            first_key: None,
            scale,
            soft_cap: None,
            alibi: self.alibi,
            dropout: self.dropout,
        }
    }

    /// Queries, keys and values of fused rows.
    fn split<'a, E: Element>(&self, fused: &'a [E]) -> [MatRef<'a, E>; 3] {
        let (q, kv) = self.widths();
        let fused = MatRef::new(fused, self.tokens(), q + 2 * kv, self.row());
        [(0, q), (q, kv), (q + kv, kv)].map(|(col, cols)| fused.block(0, self.tokens(), col, cols))
    }

    pub fn operands(&self) -> Operands {
        let dense = |matrix: MatRef<'_>| {
            (0..matrix.rows()).flat_map(|row| matrix.row(row).iter().map(|value| f64::from(*value))).collect()
        };
        let [q, k, v] = self.split(&self.fused).map(dense);
        Operands { q, k, v, dout: self.dout.iter().map(|value| f64::from(*value)).collect() }
    }

    pub fn run(&self, instruction_set: InstructionSet) -> Outputs {
        match self.products {
            Products::Chained => self.run_as(&CHAINED, instruction_set),
            Products::Pairs => self.run_as(&PAIRS, instruction_set),
            Products::Blocks16 => self.run_as(&BLOCKS16, instruction_set),
            Products::Blocks8OfFp16 => self.run_as(&BLOCKS8, instruction_set),
        }
    }

    /// Both passes of the queries from `position` on of a case of one sequence, in calls of their own.
    pub fn run_later(&self, position: usize, instruction_set: InstructionSet) -> Outputs {
        match self.products {
            Products::Chained => self.run_later_as(position, &CHAINED, instruction_set),
            Products::Pairs => self.run_later_as(position, &PAIRS, instruction_set),
            Products::Blocks16 => self.run_later_as(position, &BLOCKS16, instruction_set),
            Products::Blocks8OfFp16 => self.run_later_as(position, &BLOCKS8, instruction_set),
        }
    }

    fn run_later_as<E: Stored>(&self, position: usize, passes: &Passes<E>, set: InstructionSet) -> Outputs {
        let (fused, queries, (q_cols, kv_cols)) = (narrow::<E>(&self.fused), self.tokens() - position, self.widths());
        let shape = AttentionShape { sequence_length: queries, ..self.shape };
        let dropout = self.dropout.map(|key| DropoutKey { first_token: key.first_token + position as u64, ..key });
        let attention = Attention { shape, visible: &self.visible[position..], dropout, ..self.attention() };
        let [q, k, v] = self.split(&fused);
        let q = q.block(position, queries, 0, q_cols);
        let (mut out, mut log_sum_exp) = (vec![E::narrow(0.0); queries * q_cols], vec![0.0; queries * shape.heads]);
        let (view, statistics) = (&mut out[..], MatMut::dense(&mut log_sum_exp, queries, shape.heads));
        let forward = Forward { q, k, v, out: MatMut::dense(view, queries, q_cols), log_sum_exp: statistics };
        (passes.forward)(&attention, forward, set, &Meter::new());

        let (keys, dout) = (self.tokens(), narrow::<E>(&self.dout[position * q_cols..]));
        let [mut dq, mut dk, mut dv] =
            [queries * q_cols, keys * kv_cols, keys * kv_cols].map(|len| vec![E::narrow(f32::NAN); len]);
        let mut key_sums = vec![f32::NAN; 2 * keys * shape.head_dim];
        let backward = Backward {
            q,
            k,
            v,
            out: MatRef::dense(&out, queries, q_cols),
            log_sum_exp: MatRef::dense(&log_sum_exp, queries, shape.heads),
            dout: MatRef::dense(&dout, queries, q_cols),
            dq: MatMut::dense(&mut dq, queries, q_cols),
            dk: MatMut::dense(&mut dk, keys, kv_cols),
            dv: MatMut::dense(&mut dv, keys, kv_cols),
            key_sums: MatMut::dense(&mut key_sums, 2 * keys, shape.head_dim),
        };
        (passes.backward)(&attention, backward, set, &Meter::new());
        let [out, dq, dk, dv] = [out, dq, dk, dv].map(|values| widen(&values));
        Outputs { out, log_sum_exp, dq, dk, dv }
    }

    fn run_as<E: Stored>(&self, passes: &Passes<E>, instruction_set: InstructionSet) -> Outputs {
        let meter = Meter::new();
        let (fused, dout) = (narrow::<E>(&self.fused), narrow::<E>(&self.dout));
        let attention = self.attention();
        let (q_cols, kv_cols) = self.widths();
        let tokens = self.tokens();
        let [q, k, v] = self.split(&fused);
        let mut out = vec![E::narrow(f32::NAN); tokens * q_cols];
        let mut log_sum_exp = vec![f32::NAN; tokens * self.shape.heads];
        let view = MatMut::dense(&mut out, tokens, q_cols);
        let statistics = MatMut::dense(&mut log_sum_exp, tokens, self.shape.heads);
        let forward = Forward { q, k, v, out: view, log_sum_exp: statistics };
        (passes.forward)(&attention, forward, instruction_set, &meter);
        let work = self.pairs() * (self.shape.heads * self.shape.head_dim) as u64;
        assert_eq!(meter.multiply_adds(), 2 * work);

        let mut gradients = vec![E::narrow(f32::NAN); tokens * self.row()];
        let fused = MatMut::new(&mut gradients, tokens, q_cols + 2 * kv_cols, self.row());
        let (dq, rest) = fused.split_at_col(q_cols);
        let (dk, dv) = rest.split_at_col(kv_cols);
        let out_view = MatRef::dense(&out, tokens, q_cols);
        let dout = MatRef::dense(&dout, tokens, q_cols);
        let mut key_sums = vec![f32::NAN; 2 * self.shape.sequence_length * self.shape.head_dim];
        let key_sums = MatMut::dense(&mut key_sums, 2 * self.shape.sequence_length, self.shape.head_dim);
        let statistics = MatRef::dense(&log_sum_exp, tokens, self.shape.heads);
        let backward = Backward { q, k, v, out: out_view, log_sum_exp: statistics, dout, dq, dk, dv, key_sums };
        (passes.backward)(&attention, backward, instruction_set, &meter);
        assert_eq!(meter.multiply_adds(), 7 * work);

        let (out, gradients) = (widen(&out), widen(&gradients));
        let part = |col: usize, cols: usize| -> Vec<f32> {
            gradients.chunks(self.row()).flat_map(|row| row[col..col + cols].to_vec()).collect()
        };
        assert!(part(q_cols + 2 * kv_cols, GAP).iter().all(|value| value.is_nan()), "gaps are not written");
        let (dq, dk, dv) = (part(0, q_cols), part(q_cols, kv_cols), part(q_cols + kv_cols, kv_cols));
        Outputs { out, log_sum_exp, dq, dk, dv }
    }

    pub fn pairs(&self) -> u64 {
        self.visible.iter().map(|[first, last]| (*last).max(*first) - first).map(|pairs| pairs as u64).sum()
    }

    /// The case of one of the sequences, or of a range of heads, as another rank or microbatch would see it.
    pub fn part(&self, sequence: Option<usize>, heads: std::ops::Range<usize>) -> Self {
        let (length, d) = (self.shape.sequence_length, self.shape.head_dim);
        let group = self.shape.heads / self.shape.kv_heads;
        let kv_heads = heads.start / group..heads.end / group;
        let tokens = sequence.map_or(0..self.tokens(), |sequence| sequence * length..(sequence + 1) * length);
        let mut part = Self {
            products: self.products,
            shape: AttentionShape {
                sequences: sequence.map_or(self.shape.sequences, |_| 1),
                heads: heads.len(),
                kv_heads: kv_heads.len(),
                ..self.shape
            },
            visible: self.visible[tokens.clone()].to_vec(),
            alibi: self.alibi.map(|alibi| Alibi { first_head: alibi.first_head + heads.start, ..alibi }),
            dropout: self.dropout,
            fused: Vec::new(),
            dout: Vec::new(),
        };
        if let Some(dropout) = &mut part.dropout {
            dropout.first_token += tokens.start as u64;
            dropout.first_channel += heads.start as u32;
        }
        let [q, k, v] = self.split(&self.fused);
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

pub fn shape(
    sequences: usize,
    sequence_length: usize,
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
) -> AttentionShape {
    AttentionShape { sequences, sequence_length, heads, kv_heads, head_dim }
}
