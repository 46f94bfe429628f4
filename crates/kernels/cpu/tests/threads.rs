//! One rank's operations on several threads: the same bits as on one, whatever the operation.

#![allow(clippy::unwrap_used, reason = "a test ends where something fails")]

use std::sync::Arc;

use config::{Activation, Norm, NormKind, Pairing, Products, RotaryScaling, SHARD_BLOCK};
use cpu::CpuDevice;
use cpu::instruction_set::InstructionSet;
use device::{
    AdamWUpdate, Alibi, Arena, AttentionGradients, AttentionOperands, AttentionShape, Bf16, Device, DeviceError,
    Direction, DropoutKey, Dtype, Element, F16, Frame, LogitGradient, NormBackward, Op, Orientation, Rounding,
    RowStatistics, SUM_WORDS, Stream, Tensor, Write, ZLoss,
};

const ARENA_BYTES: usize = 64 << 20;
/// Numbers that no count of threads divides.
const TOKENS: usize = 2 * LENGTH;
const LENGTH: usize = 101;
const WIDTH: usize = 208;
const HIDDEN: usize = 4 * WIDTH + 7;
const VOCABULARY: i32 = 173;
const DROPOUT: DropoutKey =
    DropoutKey { seed: 9, step: 3, site: 5, first_token: 77, first_channel: 8, probability: 0.3 };
const NORM: Norm = Norm { kind: NormKind::Layer, epsilon: 1e-5 };

/// Lays out operands of an arena and fills them; the same calls give the same.
struct Operands {
    device: CpuDevice,
    frame: Frame,
    stored: Dtype,
}

impl Operands {
    fn new(threads: usize, stored: Dtype) -> Operands {
        Operands::in_order(threads, stored, Products::Chained)
    }

    fn in_order(threads: usize, stored: Dtype, products: Products) -> Operands {
        let arena = Arc::new(Arena::new(ARENA_BYTES).unwrap());
        // Tools that look for data races see every access of portable kernels (`tools/check-threads.sh`).
        let device = match std::env::var_os("PLEACH_PORTABLE_KERNELS") {
            Some(_) => CpuDevice::with_instruction_set(arena, InstructionSet::Scalar),
            None => CpuDevice::new(arena),
        };
        let device = device.unwrap().with_products(products);
        let device = device.with_threads(threads, &[]).unwrap();
        Operands { device, frame: Frame::new(0, ARENA_BYTES), stored }
    }

    fn of_type(&self, rows: usize, cols: usize, dtype: Dtype) -> Tensor {
        let tensor = self.frame.tensor(rows, cols, dtype);
        let seed = tensor.offset_bytes as u32;
        let word = |i: usize| philox::philox4x32_10([i as u32, seed, 0, 0], [7, 11])[0];
        let values = (0..tensor.len()).map(|i| philox::half_open_f32(word(i)) * 2.0 - 1.0);
        let bytes: Vec<u8> = match dtype {
            Dtype::F32 => values.flat_map(f32::to_ne_bytes).collect(),
            Dtype::Bf16 => values.flat_map(|value| bytemuck::bytes_of(&Bf16::narrow(value)).to_vec()).collect(),
            Dtype::F16 => values.flat_map(|value| bytemuck::bytes_of(&F16::narrow(value)).to_vec()).collect(),
            Dtype::I32 | Dtype::I64 => vec![0; tensor.size_bytes()],
        };
        self.device.write(tensor, &bytes).unwrap();
        tensor
    }

    fn stored(&self, rows: usize, cols: usize) -> Tensor {
        self.of_type(rows, cols, self.stored)
    }

    fn single(&self, rows: usize, cols: usize) -> Tensor {
        self.of_type(rows, cols, Dtype::F32)
    }

    /// `value` of each index.
    fn ints(&self, rows: usize, cols: usize, value: impl Fn(i32) -> i32) -> Tensor {
        let tensor = self.frame.tensor(rows, cols, Dtype::I32);
        let values: Vec<i32> = (0..tensor.len() as i32).map(value).collect();
        self.device.write(tensor, bytemuck::cast_slice(&values)).unwrap();
        tensor
    }

    fn submit(&self, op: Op) {
        assert!(is_submitted_here(&op), "{op:?}");
        self.device.submit(Stream::Compute, &op).unwrap_or_else(|error| panic!("{op:?}: {error}"));
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.frame.used_bytes()];
        self.device.read(Tensor::new(0, 1, bytes.len() / 4, Dtype::F32), &mut bytes).unwrap();
        bytes
    }
}

/// Whether one of the functions below submits `op`. A new operation stops the compiler here: submit it below.
fn is_submitted_here(op: &Op) -> bool {
    match op {
        Op::MatMul { .. } | Op::ColumnSum { .. } | Op::MatMulActivation { .. } => true,
        Op::MatMulActivationBackward { .. } | Op::Activation { .. } | Op::ActivationBackward { .. } => true,
        Op::Norm { .. } | Op::NormBackwardInput { .. } | Op::NormBackwardWeight { .. } => true,
        Op::RotaryTable { .. } | Op::Rotary { .. } | Op::JoinAttention { .. } => true,
        Op::Attention { .. } | Op::AttentionBackward { .. } => true,
        Op::DropoutAdd { .. } | Op::DropoutBackward { .. } => true,
        Op::EmbeddingLookup { .. } | Op::EmbeddingBackward { .. } => true,
        Op::SoftCap { .. } | Op::SoftCapBackward { .. } => true,
        Op::RowMax { .. } | Op::SumExp { .. } | Op::CrossEntropy { .. } => true,
        Op::AddRounded { .. } | Op::RoundedToSingle { .. } | Op::SquaredSum { .. } | Op::AdamW { .. } => true,
        Op::Accumulate { .. } | Op::ScaledSum { .. } | Op::Fill { .. } | Op::Copy { .. } => true,
        Op::InitializeNormal { .. } => true,
        // They are not cut.
        Op::LossSum { .. } | Op::ClipCoefficient { .. } | Op::Balance(_) => false,
        // `crate::experts` cuts them.
        Op::Experts(_) => false,
    }
}

fn products(on: &Operands) {
    for (orientation, a, b) in [
        (Orientation::Nt, (TOKENS, WIDTH), (HIDDEN, WIDTH)),
        (Orientation::Nn, (TOKENS, HIDDEN), (HIDDEN, WIDTH)),
        (Orientation::Tn, (TOKENS, HIDDEN), (TOKENS, WIDTH)),
    ] {
        let (rows, cols) = match orientation {
            Orientation::Nt => (a.0, b.0),
            Orientation::Nn => (a.0, b.1),
            Orientation::Tn => (a.1, b.1),
        };
        let (a, b) = (on.stored(a.0, a.1), on.stored(b.0, b.1));
        let (out, bias) = (on.stored(rows, cols), Some(on.stored(1, cols)));
        on.submit(Op::MatMul { orientation, a, b, bias, out, write: Write::Accumulate });
    }
    let (x, out) = (on.stored(TOKENS, HIDDEN), on.single(1, HIDDEN));
    on.submit(Op::ColumnSum { x, out });
}

/// A product and an activation, fused and one after the other.
fn fused(on: &Operands) {
    for activation in [Activation::GeluTanh, Activation::SwiGlu] {
        let width = HIDDEN * activation.inputs_per_output();
        let (a, up, bias) = (on.stored(TOKENS, WIDTH), on.stored(width, WIDTH), Some(on.stored(1, width)));
        let forward = [(), ()].map(|()| [on.stored(TOKENS, width), on.stored(TOKENS, HIDDEN)]);
        let [[x, y], [out, again]] = forward;
        on.submit(Op::MatMulActivation { a, b: up, bias, activation, x, y });
        on.submit(Op::MatMul { orientation: Orientation::Nt, a, b: up, bias, out, write: Write::Assign });
        on.submit(Op::Activation { activation, x: out, y: again });
        let (b, gradient) = (on.stored(WIDTH, HIDDEN), on.stored(TOKENS, HIDDEN));
        let backward = [(), ()].map(|()| [on.stored(TOKENS, width), on.stored(TOKENS, HIDDEN)]);
        let [[dx, y], [dx_again, y_again]] = backward;
        on.submit(Op::MatMulActivationBackward { a, b, activation, dy: gradient, x, dx, y });
        let (orientation, out, write) = (Orientation::Nn, gradient, Write::Assign);
        on.submit(Op::MatMul { orientation, a, b, bias: None, out, write });
        on.submit(Op::ActivationBackward { activation, x, dy: gradient, dx: dx_again, y: y_again });
        let bytes = on.bytes();
        for [one, two] in [forward, backward].into_iter().flat_map(|[one, two]| [[one[0], two[0]], [one[1], two[1]]]) {
            assert!(bytes[one.bytes()] == bytes[two.bytes()], "{activation:?}: {one:?}");
        }
    }
}

fn norms(on: &Operands) {
    let [x, y, dy, dx] = [(); 4].map(|()| on.stored(TOKENS, WIDTH));
    // Rows as they are, and rows of several heads.
    for heads in [1, 13] {
        let (weight, bias) = (on.stored(1, WIDTH / heads), Some(on.stored(1, WIDTH / heads)));
        let stats = on.single(TOKENS * heads, 2);
        on.submit(Op::Norm { norm: NORM, x, weight, bias, y, stats });
        let tensors = NormBackward { norm: NORM, x, weight, stats, dy, dx };
        on.submit(Op::NormBackwardInput { tensors, write: Write::Accumulate });
        let (dweight, dbias) = (on.single(1, WIDTH / heads), Some(on.single(1, WIDTH / heads)));
        on.submit(Op::NormBackwardWeight { norm: NORM, x, stats, dy, dweight, dbias });
    }
}

fn attention(on: &Operands) {
    let shape = AttentionShape { sequences: 2, sequence_length: LENGTH, heads: 6, kv_heads: 3, head_dim: 20 };
    let (query, key) = (shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim);
    let split = |x: Tensor| [x.cols_of(0..query), x.cols_of(query..query + key), x.cols_of(query + key..x.cols)];
    let (fused, gradients) = (on.stored(TOKENS, query + 2 * key), on.stored(TOKENS, query + 2 * key));
    let ([q, k, v], [dq, dk, dv]) = (split(fused), split(gradients));
    let positions = on.ints(1, TOKENS, |i| i % LENGTH as i32);
    let (cos, sin) = (on.single(LENGTH, 8), on.single(LENGTH, 8));
    on.submit(Op::RotaryTable { cos, sin, base: 1e4, scaling: RotaryScaling::Off });
    let (head_dim, pairing, direction) = (shape.head_dim, Pairing::Half, Direction::Forward);
    on.submit(Op::Rotary { x: fused.cols_of(0..query + key), head_dim, positions, cos, sin, pairing, direction });
    let visible = on.ints(TOKENS, 2, |i| if i % 2 == 0 { 0 } else { (i / 2) % LENGTH as i32 + 1 });
    let (out, dout) = (on.stored(TOKENS, query), on.stored(TOKENS, query));
    let log_sum_exp = on.single(TOKENS, shape.heads);
    // The sums are in no defined place: they are not compared.
    let key_sums = Tensor::new(ARENA_BYTES / 2, 2 * TOKENS * shape.kv_heads, shape.head_dim, Dtype::F32);
    for (dropout, alibi) in [(None, None), (Some(DROPOUT), Some(Alibi { first_head: 2, num_heads: 11 }))] {
        let scale = 0.2;
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
        on.submit(Op::Attention { operands });
        let gradients = AttentionGradients { dout, dq, dk, dv, key_sums };
        on.submit(Op::AttentionBackward { operands, gradients });
    }
    let (sums, of_sums) = (on.single(TOKENS, query), on.single(TOKENS, shape.heads));
    for write in [Write::Assign, Write::Accumulate] {
        let (part, part_log_sum_exp, out, log_sum_exp) = (out, log_sum_exp, sums, of_sums);
        on.submit(Op::JoinAttention { part, part_log_sum_exp, out, log_sum_exp, head_dim, write });
    }
}

fn elementwise(on: &Operands) {
    let [x, dy, y] = [(); 3].map(|()| on.stored(TOKENS, HIDDEN));
    let (gates, dgates) = (on.stored(TOKENS, 2 * HIDDEN), on.stored(TOKENS, 2 * HIDDEN));
    for (activation, x, dx) in [(Activation::GeluTanh, x, x), (Activation::SwiGlu, gates, dgates)] {
        on.submit(Op::Activation { activation, x, y });
        on.submit(Op::ActivationBackward { activation, x, dy, dx, y });
    }
    let (bias, residual) = (Some(on.stored(1, HIDDEN)), Some(x));
    for dropout in [None, Some(DROPOUT)] {
        on.submit(Op::DropoutAdd { x: dy, bias, residual, residual_scale: 2.5, dropout, out: dy });
    }
    on.submit(Op::DropoutBackward { dy, dropout: DROPOUT, dx: y });
    let dense = [on.single(TOKENS, WIDTH), on.single(TOKENS, WIDTH)];
    let strided = [on.single(TOKENS, HIDDEN), on.single(TOKENS, HIDDEN)].map(|x| x.cols_of(3..HIDDEN));
    for [x, into] in [dense, strided] {
        on.submit(Op::Accumulate { x, into });
        on.submit(Op::ScaledSum { x, factor: 0.3, into, keep: 0.9 });
        on.submit(Op::Copy { from: x, to: into });
        on.submit(Op::Fill { out: x, value: 0.7 });
        on.submit(Op::SoftCap { x: into, cap: 0.5 });
        on.submit(Op::SoftCapBackward { y: into, cap: 0.5, gradient: x });
    }
    let (out, narrow) = (on.stored(TOKENS, HIDDEN), on.single(TOKENS, HIDDEN));
    let (first_row, first_col, global_cols) = (3, 2, 2 * HIDDEN);
    on.submit(Op::InitializeNormal { out, seed: 4, parameter: 6, std: 0.5, first_row, first_col, global_cols });
    on.submit(Op::Copy { from: out, to: narrow });
}

fn ends(on: &Operands) {
    let tokens = on.ints(1, TOKENS, |i| (i * 31 + 7) % VOCABULARY);
    let (table, out) = (on.stored(VOCABULARY as usize, WIDTH), on.stored(TOKENS, WIDTH));
    for write in [Write::Assign, Write::Accumulate] {
        on.submit(Op::EmbeddingLookup { tokens, table, first_row: 5, out, write });
    }
    let dtable = on.single(VOCABULARY as usize, WIDTH);
    on.submit(Op::EmbeddingBackward { tokens, dy: out, scale: 0.3, first_row: 5, untrained: Some(9), dtable });
    let (logits, max, sums) = (on.single(TOKENS, HIDDEN), on.single(1, TOKENS), on.single(TOKENS, 2));
    let [loss, z_losses] = [(); 2].map(|()| on.single(1, TOKENS));
    let (valid_columns, first_row) = (HIDDEN - 3, 9);
    let labels = on.ints(1, TOKENS, |i| if i % 5 == 0 { config::IGNORED_LABEL } else { i * 3 });
    on.submit(Op::RowMax { logits, valid_columns, out: max });
    on.submit(Op::SumExp { logits, valid_columns, max, labels, first_row, sums });
    let z_loss = Some(ZLoss { coefficient: 0.01, losses: z_losses });
    let given = Some(RowStatistics { max, sums });
    for (into, statistics) in
        [(on.stored(TOKENS, HIDDEN), given), (on.stored(TOKENS, HIDDEN), None), (logits, given), (logits, None)]
    {
        let gradient = Some(LogitGradient { scale: 0.25, into });
        on.submit(Op::CrossEntropy { logits, valid_columns, statistics, labels, first_row, gradient, loss, z_loss });
    }
}

/// Maxima, sums, losses and gradients in one operation have the bits of those in three.
#[test]
fn losses_of_whole_rows_have_the_bits_of_three_steps() {
    for stored in [Dtype::F32, Dtype::Bf16, Dtype::F16] {
        let on = Operands::new(3, stored);
        let (logits, max, sums) = (on.single(TOKENS, 2500), on.single(1, TOKENS), on.single(TOKENS, 2));
        let (valid_columns, first_row) = (2497, 0);
        let labels = on.ints(1, TOKENS, |i| if i % 5 == 0 { config::IGNORED_LABEL } else { i * 31 % 2500 });
        on.submit(Op::RowMax { logits, valid_columns, out: max });
        on.submit(Op::SumExp { logits, valid_columns, max, labels, first_row, sums });
        let written = [Some(RowStatistics { max, sums }), None].map(|statistics| {
            let (loss, losses, into) = (on.single(1, TOKENS), on.single(1, TOKENS), on.stored(TOKENS, 2500));
            let z_loss = Some(ZLoss { coefficient: 0.01, losses });
            let gradient = Some(LogitGradient { scale: 0.25, into });
            on.submit(Op::CrossEntropy {
                logits,
                valid_columns,
                statistics,
                labels,
                first_row,
                gradient,
                loss,
                z_loss,
            });
            [loss, losses, into]
        });
        let bytes = on.bytes();
        for (three, one) in written[0].into_iter().zip(written[1]) {
            assert!(bytes[three.bytes()] == bytes[one.bytes()], "{three:?}");
        }
    }
}

fn updates(on: &Operands) {
    let len = 9 * SHARD_BLOCK + 1234;
    let [param, grad, first_moment, second_moment] = [(); 4].map(|()| on.single(1, len));
    let (copy, coefficient) = (Some(on.of_type(1, len, Dtype::Bf16)), on.single(1, 4));
    let sums = on.of_type(1, SUM_WORDS, Dtype::I64);
    on.submit(Op::Accumulate { x: grad, into: second_moment });
    let (rounding, exact) = (Rounding { unit: 1.0 / 1024.0, limit: 0.9 }, on.of_type(1, len, Dtype::I64));
    for write in [Write::Assign, Write::Accumulate] {
        on.submit(Op::AddRounded { x: grad, rounding, into: exact, write, refusals: sums });
    }
    let double = on.of_type(1, len, Dtype::I64);
    on.submit(Op::Copy { from: exact, to: double });
    on.submit(Op::Accumulate { x: exact, into: double });
    on.submit(Op::Fill { out: exact, value: 3.0 });
    on.submit(Op::RoundedToSingle { sums: double, unit: rounding.unit });
    on.submit(Op::SquaredSum { x: grad, first_element: SHARD_BLOCK / 3, loss_scale: 4.0, sums });
    let update =
        AdamWUpdate { learning_rate: 1e-2, weight_decay: 0.1, beta1: 0.9, beta2: 0.95, epsilon: 1e-8, update: 3 };
    on.submit(Op::AdamW { param, copy, grad, first_moment, second_moment, coefficient, update });
}

#[test]
fn any_number_of_threads_gives_the_same_bits() {
    for stored in [Dtype::F32, Dtype::Bf16] {
        for (name, run) in [
            ("products", products as fn(&Operands)),
            ("fused", fused),
            ("norms", norms),
            ("attention", attention),
            ("elementwise", elementwise),
            ("ends", ends),
            ("updates", updates),
        ] {
            let bytes = |threads: usize| {
                let operands = Operands::new(threads, stored);
                let before = operands.device.multiply_adds();
                run(&operands);
                (operands.bytes(), operands.device.multiply_adds() - before)
            };
            let expected = bytes(1);
            for threads in [2, 3, 7] {
                assert!(bytes(threads) == expected, "{name} in {stored:?} on {threads} threads");
            }
        }
    }
}

/// The memory after `run`.
fn left_by(run: fn(&Operands), threads: usize, stored: Dtype, order: Products) -> Vec<u8> {
    let operands = Operands::in_order(threads, stored, order);
    run(&operands);
    operands.bytes()
}

#[test]
fn products_but_those_of_fp16_are_in_the_order_that_the_device_was_given() {
    for (name, run, stored) in [
        ("products", products as fn(&Operands), Dtype::F32),
        ("products", products, Dtype::Bf16),
        ("fused", fused, Dtype::Bf16),
        ("attention", attention, Dtype::Bf16),
    ] {
        let in_pairs = left_by(run, 1, stored, Products::Pairs);
        assert!(in_pairs != left_by(run, 1, stored, Products::Chained), "{name} of {stored:?}");
        for threads in [2, 3, 7] {
            assert!(
                left_by(run, threads, stored, Products::Pairs) == in_pairs,
                "{name}, {stored:?}, {threads} threads"
            );
        }
    }
    for (run, stored) in [
        (products as fn(&Operands), Dtype::F16),
        (attention, Dtype::F32),
        (attention, Dtype::F16),
        (elementwise, Dtype::Bf16),
    ] {
        let [pairs, chained] = [Products::Pairs, Products::Chained].map(|order| left_by(run, 2, stored, order));
        assert!(pairs == chained, "operands of {stored:?}");
    }
}

#[test]
fn products_in_blocks_have_the_same_bits_on_any_number_of_threads() {
    let runs = [("products", products as fn(&Operands)), ("attention", attention)];
    for ((name, run), stored) in runs.into_iter().flat_map(|run| [Dtype::Bf16, Dtype::F16].map(|stored| (run, stored)))
    {
        let [sixteen, eight, chained] =
            [Products::Blocks16, Products::Blocks8, Products::Chained].map(|order| left_by(run, 1, stored, order));
        assert!(sixteen != eight && eight != chained && chained != sixteen, "{name} of {stored:?}");
        for threads in [2, 3, 7] {
            let actual = left_by(run, threads, stored, Products::Blocks16);
            assert!(actual == sixteen, "{name}, {stored:?}, {threads} threads");
        }
    }
    let [blocks, chained] =
        [Products::Blocks16, Products::Chained].map(|order| left_by(elementwise, 2, Dtype::Bf16, order));
    assert!(blocks == chained, "elementwise operations do not multiply matrices");
}

#[test]
fn two_factors_of_single_precision_are_refused_in_blocks() {
    let on = Operands::in_order(2, Dtype::Bf16, Products::Blocks16);
    let [a, b, out] = [on.single(40, 30), on.single(50, 30), on.single(40, 50)];
    let product = Op::MatMul { orientation: Orientation::Nt, a, b, bias: None, out, write: Write::Assign };
    let error = on.device.submit(Stream::Compute, &product).unwrap_err();
    assert!(error.to_string().contains("must have one narrow type to be multiplied in blocks"), "{error}");
}

/// Products that need more than one round each: of more lanes than the room for a common operand has, of more sums than
/// are kept between runs of steps, and with columns and rows left over, in every orientation.
fn long_products(on: &Operands) {
    let (m, n, k) = match on.stored {
        Dtype::F32 => (1801, 1753, 600),
        Dtype::Bf16 | Dtype::F16 | Dtype::I32 | Dtype::I64 => (571, 903, 6_500),
    };
    let bias = Some(on.single(1, n));
    for (orientation, a, b) in
        [(Orientation::Nt, (m, k), (n, k)), (Orientation::Nn, (m, k), (k, n)), (Orientation::Tn, (k, m), (k, n))]
    {
        let [a, b] = [a, b].map(|(rows, cols)| on.stored(rows, cols));
        let out = on.single(m, n);
        on.submit(Op::MatMul { orientation, a, b, bias, out, write: Write::Accumulate });
    }
}

#[test]
fn products_of_many_rounds_have_the_same_bits() {
    for stored in [Dtype::F32, Dtype::Bf16] {
        let expected = left_by(long_products, 1, stored, Products::Pairs);
        for threads in [2, 5] {
            let actual = left_by(long_products, threads, stored, Products::Pairs);
            assert!(actual == expected, "{stored:?}, {threads} threads");
        }
    }
}

#[test]
fn a_part_that_fails_fails_the_operation_and_nothing_else() {
    let on = Operands::new(3, Dtype::F32);
    let (inside, outside) = (on.single(400, 500), Tensor::new(ARENA_BYTES - 400_000, 400, 500, Dtype::F32));
    let told = on.device.submit(Stream::Compute, &Op::Copy { from: inside, to: outside });
    assert!(matches!(told, Err(DeviceError::OutsideArena { .. })), "{told:?}");
    on.submit(Op::Fill { out: inside, value: 2.0 });
    let mut values = vec![0.0f32; inside.len()];
    on.device.read(inside, bytemuck::cast_slice_mut(&mut values)).unwrap();
    assert!(values.iter().all(|value| *value == 2.0));
}

#[test]
fn operands_that_do_not_fit_panic_on_the_rank_s_thread() {
    for (threads, order) in [(1, Products::Pairs), (2, Products::Pairs), (2, Products::Chained)] {
        let on = Operands::in_order(threads, Dtype::F32, order);
        let panic_of = |[m, n]: [usize; 2], columns_of_b: usize, out: [usize; 2], bias: usize| {
            let (a, b) = (on.single(m, 200), on.single(n, columns_of_b));
            let (out, bias) = (on.single(out[0], out[1]), Some(on.single(1, bias)));
            let product = Op::MatMul { orientation: Orientation::Nt, a, b, bias, out, write: Write::Assign };
            let run = || on.device.submit(Stream::Compute, &product);
            let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).unwrap_err();
            panic.downcast_ref::<String>().unwrap().clone()
        };
        // Threads divide the rows of the first, and the columns of the second.
        for sizes @ [m, n] in [[300, 200], [200, 300]] {
            let message = panic_of(sizes, 201, sizes, n);
            assert!(message.contains("K is 200 in a and 201 in b"), "{message}");
            for out in [[m + 1, n], [m, n + 1], [m - 1, n]] {
                let message = panic_of(sizes, 200, out, out[1]);
                assert!(message.contains("c is") && message.contains("the product is"), "{message}");
            }
            let message = panic_of(sizes, 200, sizes, n + 1);
            assert!(message.contains("the bias is not of length"), "{message}");
        }
    }
}
