//! Speed of attention on one thread as GFLOP/s and as a share of the machine's peak, counting two per multiply-add on
//! visible pairs only: `cargo bench -p cpu --bench attention [-- FILTER..]`, where a line is measured that has all
//! filters in it.

use std::time::Instant;

use cpu::attention::{
    Attention, AttentionBuffers, AttentionShape, Backward, DropoutKey, Forward, attention_backward,
    attention_backward_pairs, attention_forward, attention_forward_pairs,
};
use cpu::gemm::PackingBuffers;
use cpu::instruction_set::InstructionSet;
use cpu::lanes::Stored;
use cpu::meter::Meter;
use cpu::view::{MatMut, MatRef};
use device::Bf16;

mod peak;

/// Sequences, tokens per sequence, heads, key and value heads, channels per head.
const SHAPES: [[usize; 5]; 9] = [
    [8, 256, 6, 6, 64],
    [4, 256, 4, 4, 64],
    [1, 1024, 12, 12, 64],
    [1, 1024, 16, 4, 64],
    [1, 1024, 16, 16, 64],
    [1, 2048, 4, 4, 128],
    [4, 64, 12, 12, 64],
    [2, 32, 12, 4, 12],
    [2, 16, 12, 12, 4],
];

/// Memory of the passes in any order of products.
struct Buffers {
    attention: AttentionBuffers,
    packing: PackingBuffers,
}

/// The two passes on numbers of one type in one order of products.
struct Passes<E> {
    forward: fn(&Attention<'_>, Forward<'_, E>, &mut Buffers, InstructionSet, &Meter),
    backward: fn(&Attention<'_>, Backward<'_, E>, &mut Buffers, InstructionSet, &Meter),
}

/// With chained products.
fn chained<E: cpu::attention::Operand>() -> Passes<E> {
    Passes {
        forward: |attention, tensors, buffers, set, meter| {
            attention_forward(attention, tensors, &mut buffers.attention, set, meter);
        },
        backward: |attention, tensors, buffers, set, meter| {
            attention_backward(attention, tensors, &mut buffers.attention, set, meter);
        },
    }
}

/// With products in AMX order.
const PAIRS: Passes<Bf16> = Passes {
    forward: |attention, tensors, buffers, set, meter| {
        attention_forward_pairs(attention, tensors, &mut buffers.packing, set, meter);
    },
    backward: |attention, tensors, buffers, set, meter| {
        attention_backward_pairs(attention, tensors, &mut buffers.packing, set, meter);
    },
};

/// Seconds of a forward and of a backward pass and the multiply-adds of each, the best of several runs.
fn measure<E: Stored>(
    attention: &Attention<'_>,
    instruction_set: InstructionSet,
    passes: &Passes<E>,
) -> [(f64, u64); 2] {
    let shape = attention.shape;
    let tokens = shape.sequences * shape.sequence_length;
    let (q_cols, kv_cols) = (shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim);
    let cols = q_cols + 2 * kv_cols;
    let values = |len: usize| -> Vec<E> { (0..len).map(|i| E::narrow((i * 37 % 101) as f32 / 50.0 - 1.0)).collect() };
    let (fused, dout) = (values(tokens * cols), values(tokens * q_cols));
    let (mut out, mut gradients) = (values(tokens * q_cols), values(tokens * cols));
    let mut log_sum_exp = vec![0.0; tokens * shape.heads];
    let mut key_sums = vec![0.0; 2 * shape.sequence_length * shape.head_dim];
    let buffers = &mut Buffers { attention: AttentionBuffers::new(), packing: PackingBuffers::new() };
    let whole = MatRef::dense(&fused, tokens, cols);
    let [q, k, v] = [(0, q_cols), (q_cols, kv_cols), (q_cols + kv_cols, kv_cols)]
        .map(|(col, cols)| whole.block(0, tokens, col, cols));
    let mut best = [(f64::INFINITY, 0); 2];
    // Small shapes take microseconds: more runs find their best.
    for _ in 0..(200_000 / (tokens * q_cols)).max(8) * 4 {
        let meter = Meter::new();
        let start = Instant::now();
        let view = MatMut::dense(&mut out, tokens, q_cols);
        let statistics = MatMut::dense(&mut log_sum_exp, tokens, shape.heads);
        let forward = Forward { q, k, v, out: view, log_sum_exp: statistics };
        (passes.forward)(attention, forward, buffers, instruction_set, &meter);
        best[0] = (best[0].0.min(start.elapsed().as_secs_f64()), meter.multiply_adds());

        let meter = Meter::new();
        let start = Instant::now();
        let (dq, rest) = MatMut::dense(&mut gradients, tokens, cols).split_at_col(q_cols);
        let (dk, dv) = rest.split_at_col(kv_cols);
        let out = MatRef::dense(&out, tokens, q_cols);
        let dout = MatRef::dense(&dout, tokens, q_cols);
        let key_sums = MatMut::dense(&mut key_sums, 2 * shape.sequence_length, shape.head_dim);
        let log_sum_exp = MatRef::dense(&log_sum_exp, tokens, shape.heads);
        let backward = Backward { q, k, v, out, log_sum_exp, dout, dq, dk, dv, key_sums };
        (passes.backward)(attention, backward, buffers, instruction_set, &meter);
        best[1] = (best[1].0.min(start.elapsed().as_secs_f64()), meter.multiply_adds());
    }
    best
}

fn main() {
    let filters: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let key = DropoutKey { seed: 1, step: 2, site: 3, first_token: 0, first_channel: 0, probability: 0.1 };
    for instruction_set in InstructionSet::available() {
        if instruction_set == InstructionSet::Scalar {
            continue;
        }
        let peak = peak::gflops(instruction_set);
        println!("{instruction_set:?}: peak {peak:.1} GFLOP/s");
        for [sequences, sequence_length, heads, kv_heads, head_dim] in SHAPES {
            let shape = AttentionShape { sequences, sequence_length, heads, kv_heads, head_dim };
            let causal: Vec<_> = (0..sequences).flat_map(|_| (0..sequence_length as i32).map(|i| [0, i + 1])).collect();
            for dropout in [None, Some(key)] {
                let with = if dropout.is_some() { "dropout" } else { "" };
                let attention = Attention {
                    shape,
                    visible: &causal,
                    first_key: None,
                    scale: 1.0 / (head_dim as f32).sqrt(),
                    soft_cap: None,
                    alibi: None,
                    dropout,
                };
                let shape = format!("{sequences} x {sequence_length}, {heads}/{kv_heads} heads of {head_dim} {with}");
                type Measured<'a> = &'a dyn Fn() -> [(f64, u64); 2];
                let kinds: [(&str, Measured<'_>); 3] = [
                    ("f32", &|| measure(&attention, instruction_set, &chained::<f32>())),
                    ("bf16 chained", &|| measure(&attention, instruction_set, &chained::<Bf16>())),
                    ("bf16 pairs", &|| measure(&attention, instruction_set, &PAIRS)),
                ];
                for (products, measured) in kinds {
                    let name = format!("{instruction_set:?} {shape:40} {products:12}");
                    if !filters.iter().all(|filter| name.contains(filter.as_str())) {
                        continue;
                    }
                    let speeds = measured().map(|(seconds, multiply_adds)| {
                        let gflops = 2.0 * multiply_adds as f64 / seconds / 1e9;
                        format!("{gflops:6.1} ({:2.0} %)", 100.0 * gflops / peak)
                    });
                    println!("{name} forward {} backward {}", speeds[0], speeds[1]);
                }
            }
        }
    }
}
