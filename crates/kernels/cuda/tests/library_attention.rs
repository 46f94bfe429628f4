//! Attention of a device by a library, which is in software here: each number against its exact value.

use std::sync::Arc;

use crate::numbers::{number, widened};
use config::Products;
use cuda::CudaDevice;
use device::{
    AttentionGradients, AttentionOperands, AttentionShape, Bf16, Device, Dtype, Element as _, F16, Op, Stream, Tensor,
};
use gpu::{Driver, Gpu};
use soft_products::{SoftAttention, SoftProducts};
use softgpu::{Settings, SoftDriver};

const ARENA_BYTES: usize = 8 << 20;
/// Roundoff of single precision.
const SINGLE: f64 = 1.0 / 16_777_216.0;

/// A device without kernels: whatever the libraries do not have fails.
fn device(workspace_bytes: usize) -> CudaDevice {
    let driver = SoftDriver::new(1, Settings::default());
    let gpu: Arc<dyn Gpu> = driver.open(0).expect("a GPU");
    let soft = || driver.opened(0).expect("it is open");
    let (products, attention) = (SoftProducts::new(soft()), SoftAttention::new(soft()));
    let device = CudaDevice::open(gpu, &[], ARENA_BYTES).expect("a device");
    let device = device.with_library(Box::new(products), Arc::default()).expect("a workspace");
    device.with_attention(Box::new(attention), workspace_bytes).expect("a workspace")
}

/// Numbers of a narrow type in the arena.
#[derive(Clone)]
struct Numbers {
    tensor: Tensor,
    values: Vec<f64>,
}

impl Numbers {
    fn at(&self, row: usize, col: usize) -> f64 {
        self.values[row * self.tensor.cols + col]
    }

    /// The channels of a head.
    fn head(&self, row: usize, head: usize, head_dim: usize) -> Vec<f64> {
        (0..head_dim).map(|channel| self.at(row, head * head_dim + channel)).collect()
    }
}

/// Roundoff of a stored result.
fn roundoff(dtype: Dtype) -> f64 {
    if dtype == Dtype::F16 { 1.0 / 2048.0 } else { 1.0 / 256.0 }
}

/// An attention with its tensors.
struct Case {
    dtype: Dtype,
    /// Queries, keys and values together, and their gradients.
    side_by_side: [Tensor; 2],
    operands: AttentionOperands,
    gradients: AttentionGradients,
}

impl Case {
    /// Queries, keys and values side by side, as a projection leaves them, and so are their gradients; `seed` draws
    /// them.
    fn of(device: &CudaDevice, dtype: Dtype, shape: AttentionShape, seed: usize) -> Case {
        let AttentionShape { sequences, sequence_length, heads, kv_heads, head_dim } = shape;
        let (tokens, width, all) = (sequences * sequence_length, heads * head_dim, (heads + 2 * kv_heads) * head_dim);
        let mut next = 0;
        let mut tensor = |rows: usize, cols: usize, dtype: Dtype| {
            let tensor = Tensor::new(next, rows, cols, dtype);
            next = (next + tensor.size_bytes()).next_multiple_of(256);
            tensor
        };
        let [qkv, dqkv] = [(); 2].map(|()| tensor(tokens, all, dtype));
        let [out, dout] = [(); 2].map(|()| tensor(tokens, width, dtype));
        let log_sum_exp = tensor(tokens, heads, Dtype::F32);
        let visible = tensor(tokens, 2, Dtype::I32);
        let key_sums = tensor(2 * tokens * kv_heads, head_dim, Dtype::F32);
        for (index, drawn) in [qkv, dout].into_iter().enumerate() {
            let numbers = (0..drawn.rows * drawn.cols).map(|place| number(2 * seed + index, place));
            let bytes: Vec<u8> = match dtype {
                Dtype::F16 => numbers.flat_map(|number| F16::narrow(number).0.to_le_bytes()).collect(),
                Dtype::Bf16 | Dtype::F32 | Dtype::I32 | Dtype::I64 => {
                    numbers.flat_map(|number| Bf16::narrow(number).0.to_le_bytes()).collect()
                }
            };
            device.write(drawn, &bytes).expect("written");
        }
        let of = |qkv: Tensor| {
            let kv = kv_heads * head_dim;
            [qkv.cols_of(0..width), qkv.cols_of(width..width + kv), qkv.cols_of(width + kv..all)]
        };
        let ([q, k, v], [dq, dk, dv]) = (of(qkv), of(dqkv));
        let operands = AttentionOperands {
            shape,
            places: None,
            q,
            k,
            v,
            visible,
            window: None,
            scale: 0.25 / (head_dim as f32).sqrt(),
            soft_cap: None,
            alibi: None,
            dropout: None,
            out,
            log_sum_exp,
        };
        let gradients = AttentionGradients { dout, dq, dk, dv, key_sums };
        Case { dtype, side_by_side: [qkv, dqkv], operands, gradients }
    }

    fn ops(&self) -> [Op; 2] {
        let Case { operands, gradients, .. } = self;
        [Op::Attention { operands: *operands }, Op::AttentionBackward { operands: *operands, gradients: *gradients }]
    }

    /// Computes both passes, and returns all tensors.
    fn compute(&self, device: &CudaDevice) -> Tensors {
        for op in self.ops() {
            device.submit(Stream::Compute, &op).expect("submitted");
        }
        let read = |tensor: Tensor| {
            // A part of wider rows is read with them.
            let parts = self
                .side_by_side
                .iter()
                .find(|all| (all.offset_bytes..all.offset_bytes + all.size_bytes()).contains(&tensor.offset_bytes));
            let whole = parts.copied().unwrap_or(tensor);
            let first = (tensor.offset_bytes - whole.offset_bytes) / tensor.dtype.size_bytes();
            let mut bytes = vec![0; whole.size_bytes()];
            device.read(whole, &mut bytes).expect("read");
            let all = widened(tensor.dtype, &bytes);
            let rows = all.chunks_exact(whole.cols).flat_map(|row| row[first..first + tensor.cols].to_vec());
            Numbers { tensor, values: rows.collect() }
        };
        let AttentionOperands { q, k, v, out, log_sum_exp, .. } = self.operands;
        let AttentionGradients { dout, dq, dk, dv, .. } = self.gradients;
        Tensors {
            inputs: [q, k, v, out, dout].map(read),
            log_sum_exp: read(log_sum_exp),
            gradients: [dq, dk, dv].map(read),
        }
    }
}

#[derive(Clone)]
struct Tensors {
    /// Queries, keys, values, outputs and the outputs' gradients.
    inputs: [Numbers; 5],
    log_sum_exp: Numbers,
    gradients: [Numbers; 3],
}

/// A sum with what is known of its error.
#[derive(Clone, Copy, Default)]
struct Sum {
    exact: f64,
    error: f64,
}

impl Sum {
    /// Adds a product of a factor that is wrong by `error`.
    fn add(&mut self, factor: f64, error: f64, number: f64) {
        self.exact += factor * number;
        self.error += error * number.abs();
    }
}

fn dot(a: &[f64], b: &[f64]) -> (f64, f64) {
    let products = || a.iter().zip(b).map(|(a, b)| a * b);
    (products().sum(), products().map(f64::abs).sum())
}

/// Compares every number. A sum of n terms in single precision loses at most n + 2 roundings of all its terms. A score
/// that is wrong by s makes its probability, relative to itself, wrong by 2 s and less, and so does the log-sum-exp.
/// Probabilities and the gradients of scores are rounded to the stored type once, as results are.
fn compare(case: &Case, tensors: &Tensors) {
    let AttentionShape { sequences, sequence_length: length, heads, kv_heads, head_dim } = case.operands.shape;
    let [q, k, v, out, dout] = &tensors.inputs;
    let (scale, narrow) = (f64::from(case.operands.scale), roundoff(case.dtype));
    let (of_channels, of_keys) = ((head_dim + 2) as f64 * SINGLE, (length * heads / kv_heads + 2) as f64 * SINGLE);
    let mut sums = [q, k, v].map(|tensor| vec![Sum::default(); tensor.values.len()]);
    for (sequence, head) in (0..sequences).flat_map(|sequence| (0..heads).map(move |head| (sequence, head))) {
        let kv_head = head * kv_heads / heads;
        for query in 0..length {
            let row = sequence * length + query;
            let keys = || (0..=query).map(|key| sequence * length + key);
            let own = q.head(row, head, head_dim);
            let scores: Vec<(f64, f64)> = keys().map(|key| dot(&own, &k.head(key, kv_head, head_dim))).collect();
            let wrong = scores.iter().map(|(_, size)| (of_channels + SINGLE) * scale * size).fold(0.0, f64::max);
            let exponentials: Vec<f64> = scores.iter().map(|(score, _)| (scale * score).exp()).collect();
            let sum: f64 = exponentials.iter().sum();
            let log = tensors.log_sum_exp.at(row, head);
            let of_log = 2.0 * wrong + of_keys + 4.0 * SINGLE * (1.0 + sum.ln().abs());
            assert!((log - sum.ln()).abs() <= of_log, "{log} for {}, row {row}, head {head}", sum.ln());
            let relative = 2.0 * (wrong + of_log) + of_keys + 4.0 * SINGLE;
            let shares: Vec<f64> = exponentials.iter().map(|share| share / sum).collect();
            let of_out = dout.head(row, head, head_dim);
            let (delta, of_delta) = dot(&of_out, &out.head(row, head, head_dim));
            let mut outputs = vec![Sum::default(); head_dim];
            for (key, share) in keys().zip(&shares) {
                let values = v.head(key, kv_head, head_dim);
                let (of_share, size) = dot(&of_out, &values);
                let of_score = share * (of_share - delta) * scale;
                let wrong = share * scale * of_channels * (size + of_delta) + (narrow + relative) * of_score.abs();
                for channel in 0..head_dim {
                    let place = |head: usize| head * head_dim + channel;
                    outputs[channel].add(*share, (narrow + relative) * share, values[channel]);
                    let of_key = key * kv_heads * head_dim + place(kv_head);
                    sums[0][row * heads * head_dim + place(head)].add(of_score, wrong, k.at(key, place(kv_head)));
                    sums[1][of_key].add(of_score, wrong, q.at(row, place(head)));
                    sums[2][of_key].add(*share, (narrow + relative) * share, of_out[channel]);
                }
            }
            for (channel, sum) in outputs.iter().enumerate() {
                assert_near(*sum, out.at(row, head * head_dim + channel), [of_keys, narrow], "out");
            }
        }
    }
    for (name, (sums, got)) in ["dq", "dk", "dv"].iter().zip(sums.iter().zip(&tensors.gradients)) {
        for (sum, got) in sums.iter().zip(&got.values) {
            assert_near(*sum, *got, [of_keys, narrow], name);
        }
    }
}

/// Terms have at least the size of their errors over a rounding of the stored type, so that of a sum is below that.
fn assert_near(sum: Sum, got: f64, [of_sum, narrow]: [f64; 2], name: &str) {
    let bound = sum.error * (1.0 + of_sum / narrow) + narrow * (sum.exact.abs() + sum.error);
    let error = (got - sum.exact).abs();
    assert!(error <= bound, "{name}: {got} for {}, {error:.1e} is beyond {bound:.1e}", sum.exact);
}

/// Sequences, tokens of each, heads, key heads, and channels.
const SHAPES: [[usize; 5]; 4] = [[2, 5, 2, 2, 8], [1, 33, 4, 2, 16], [3, 16, 6, 2, 64], [2, 40, 3, 1, 128]];

fn shape([sequences, sequence_length, heads, kv_heads, head_dim]: [usize; 5]) -> AttentionShape {
    AttentionShape { sequences, sequence_length, heads, kv_heads, head_dim }
}

#[test]
fn attention_is_as_exact_as_sums_in_single_precision_of_stored_factors() {
    let device = device(1 << 20);
    for (seed, sizes) in SHAPES.into_iter().enumerate() {
        for dtype in [Dtype::Bf16, Dtype::F16] {
            let case = Case::of(&device, dtype, shape(sizes), seed);
            compare(&case, &case.compute(&device));
        }
    }
}

/// A workspace for one sequence, or for one key head of it, cuts attention into parts, which compute the same.
#[test]
fn parts_have_the_bits_of_the_whole() {
    let of = |workspace_bytes: usize, sizes| {
        let device = device(workspace_bytes);
        let case = Case::of(&device, Dtype::Bf16, shape(sizes), 1);
        let Tensors { inputs, log_sum_exp, gradients } = case.compute(&device);
        let tensors = inputs.into_iter().chain([log_sum_exp]).chain(gradients);
        tensors.map(|tensor| tensor.values).collect::<Vec<_>>()
    };
    let sizes = [4, 16, 6, 2, 8];
    // Gradients of scores of a sequence and of a key head of it.
    let (of_sequence, of_head) = (2 * 6 * 16 * 16, 2 * 3 * 16 * 16);
    let whole = of(1 << 20, sizes);
    for workspace_bytes in [2 * of_sequence, of_sequence, of_head] {
        assert!(of(workspace_bytes, sizes) == whole, "a workspace of {workspace_bytes} bytes");
    }
}

/// Attention that libraries do not have is that of pleach's kernels, which this device does not have.
#[test]
fn other_attention_is_that_of_kernels() {
    type Change = fn(&mut AttentionOperands);
    let changes: [(&str, Change); 5] = [
        ("a window", |o| o.window = Some(3)),
        ("places", |o| o.places = Some(device::Places { first_query: 0, first_key: 0 })),
        ("biases", |o| o.alibi = Some(device::Alibi { first_head: 0, num_heads: 2 })),
        ("more keys than queries", |o| o.k = Tensor { rows: o.k.rows + 2, ..o.k }),
        ("rows at odd places", |o| o.q = Tensor { offset_bytes: o.q.offset_bytes + 2, ..o.q }),
    ];
    let device = device(1 << 20);
    for (name, change) in changes {
        let mut case = Case::of(&device, Dtype::Bf16, shape([2, 8, 2, 2, 8]), 1);
        change(&mut case.operands);
        case.operands.v = Tensor { rows: case.operands.k.rows, ..case.operands.v };
        let error = device.submit(Stream::Compute, &case.ops()[0]).expect_err(name).to_string();
        assert!(error.contains("is in no source that was loaded"), "{name}: {error}");
    }
    let wide = Case::of(&device, Dtype::Bf16, shape([1, 8, 1, 1, 136]), 1);
    for op in wide.ops() {
        let error = device.submit(Stream::Compute, &op).expect_err("136 channels").to_string();
        assert!(error.contains("is in no source that was loaded"), "{error}");
    }
    let small = self::device(64);
    let case = Case::of(&small, Dtype::Bf16, shape([1, 8, 1, 1, 8]), 1);
    let error = small.submit(Stream::Compute, &case.ops()[1]).expect_err("no room").to_string();
    assert!(error.contains("is in no source that was loaded"), "{error}");
}

#[test]
fn attention_of_wrong_sizes_is_refused_and_other_products_have_kernels() {
    let device = device(1 << 20);
    let case = Case::of(&device, Dtype::Bf16, shape([2, 8, 2, 2, 8]), 1);
    let gradients = AttentionGradients { dq: case.operands.k.cols_of(0..8), ..case.gradients };
    let op = Op::AttentionBackward { operands: case.operands, gradients };
    let error = device.submit(Stream::Compute, &op).expect_err("a narrow gradient").to_string();
    assert!(error.contains("dq") && error.contains("is not [16, 16]"), "{error}");
    // A run in blocks does not ask for the library.
    let device = device.with_products(Products::Blocks16);
    let error = device.submit(Stream::Compute, &case.ops()[0]).expect_err("no kernels").to_string();
    assert!(error.contains("is in no source that was loaded"), "{error}");
}
