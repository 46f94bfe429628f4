//! Causal attention by the library.

use std::sync::Arc;

use cpu::math::{exp_f64, log_f64};
use gpu::{
    AttentionLibrary, AttentionPass, AttentionPlaces, CausalAttention, DevicePointer, DriverError, DriverErrorKind,
    MatrixElement, StreamHandle,
};
use softgpu::{HostWork, SoftGpu};

use crate::matrices::{Matrix, rounded, widened};

/// The call in messages.
const CALL: &str = "attend";

/// Heads are at most this wide, as those of NVIDIA's library.
const MAX_HEAD_DIM: u64 = 128;

/// Attention is computed on the host, so tests have short sequences.
const MAX_LENGTH: u64 = 1 << 12;

/// Attention for one GPU in software. A query adds its keys from the last one on and a key its queries from the last
/// one on, where pleach's kernels begin with the first one, so the bits are others.
#[derive(Debug)]
pub struct SoftAttention {
    gpu: Arc<SoftGpu>,
}

impl SoftAttention {
    /// The library of `gpu`.
    pub fn new(gpu: Arc<SoftGpu>) -> SoftAttention {
        SoftAttention { gpu }
    }
}

impl AttentionLibrary for SoftAttention {
    fn name(&self) -> String {
        "the soft GPU's attention".into()
    }

    /// A forward pass keeps the maxima there, a backward pass the gradients of all scores.
    fn workspace_bytes(&self, attention: &CausalAttention) -> Result<Option<usize>, DriverError> {
        let CausalAttention { pass, element, sequences, length, heads, head_dim, .. } = *attention;
        let is_narrow = element != MatrixElement::F32;
        if !is_narrow || head_dim > MAX_HEAD_DIM || !head_dim.is_multiple_of(8) || length > MAX_LENGTH {
            return Ok(None);
        }
        let rows = (sequences * heads * length) as usize;
        Ok(Some(match pass {
            AttentionPass::Forward => rows * MatrixElement::F32.bytes(),
            AttentionPass::Backward(_) => rows * length as usize * element.bytes(),
        }))
    }

    fn attend(
        &self,
        stream: StreamHandle,
        attention: &CausalAttention,
        scale: f32,
        places: &AttentionPlaces,
        workspace: DevicePointer,
    ) -> Result<(), DriverError> {
        let Some(workspace_bytes) = self.workspace_bytes(attention)? else {
            let text = format!("{attention:?} is not attention that the library has");
            return Err(DriverError { call: CALL, kind: DriverErrorKind::InvalidArgument, text });
        };
        let workspace = (workspace, workspace_bytes);
        let work = match attention.pass {
            AttentionPass::Forward => forward(*attention, scale, places, workspace),
            AttentionPass::Backward(strides) => backward(*attention, scale, places, strides, workspace),
        };
        self.gpu.submit_host_work(stream, work)
    }
}

/// Sizes of attention.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    sequences: usize,
    length: usize,
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    scale: f32,
    element: MatrixElement,
}

impl Sizes {
    fn of(attention: &CausalAttention, scale: f32) -> Sizes {
        let CausalAttention { sequences, length, heads, kv_heads, head_dim, element, .. } = *attention;
        let [sequences, length, heads, kv_heads, head_dim] =
            [sequences, length, heads, kv_heads, head_dim].map(|size| size as usize);
        Sizes { sequences, length, heads, kv_heads, head_dim, scale, element }
    }

    fn tokens(&self) -> usize {
        self.sequences * self.length
    }

    /// A tensor with `heads` heads of a width in each token.
    fn matrix(&self, place: DevicePointer, heads: usize, stride: u64) -> Matrix {
        let (rows, cols) = (self.tokens(), heads * self.head_dim);
        Matrix { place, element: self.element, rows, cols, stride: stride as usize }
    }

    fn log_sum_exp(&self, attention: &CausalAttention, place: DevicePointer) -> Matrix {
        let (rows, cols, stride) = (self.tokens(), self.heads, attention.strides.log_sum_exp as usize);
        Matrix { place, element: MatrixElement::F32, rows, cols, stride }
    }

    /// Queries, keys, values and outputs.
    fn inputs(&self, attention: &CausalAttention, places: &AttentionPlaces) -> [Matrix; 4] {
        let heads = [self.heads, self.kv_heads, self.kv_heads, self.heads];
        std::array::from_fn(|index| self.matrix(places.inputs[index], heads[index], attention.strides.inputs[index]))
    }

    /// Numbers that are rounded to the elements' type.
    fn narrowed(&self, numbers: &[f32]) -> Vec<f32> {
        widened(self.element, &rounded(self.element, numbers))
    }

    /// Every sequence with every head: the row of its first token, the head, and its key head.
    fn pairs(self) -> impl Iterator<Item = (usize, usize, usize)> {
        let group = self.heads / self.kv_heads;
        (0..self.sequences)
            .flat_map(move |sequence| (0..self.heads).map(move |head| (sequence * self.length, head, head / group)))
    }
}

/// A tensor's numbers, `heads` heads in each row.
struct Rows {
    numbers: Vec<f32>,
    heads: usize,
    head_dim: usize,
}

impl Rows {
    fn of(matrix: &Matrix, bytes: &[u8], head_dim: usize) -> Rows {
        Rows { numbers: widened(matrix.element, bytes), heads: matrix.cols / head_dim, head_dim }
    }

    fn zeros(matrix: &Matrix, head_dim: usize) -> Rows {
        Rows { numbers: vec![0.0; matrix.rows * matrix.cols], heads: matrix.cols / head_dim, head_dim }
    }

    fn start(&self, row: usize, head: usize) -> usize {
        (row * self.heads + head) * self.head_dim
    }

    fn head(&self, row: usize, head: usize) -> &[f32] {
        let start = self.start(row, head);
        &self.numbers[start..start + self.head_dim]
    }

    /// Adds a multiple of a row of another tensor.
    fn add(&mut self, (row, head): (usize, usize), factor: f32, term: &[f32]) {
        let start = self.start(row, head);
        let sums = &mut self.numbers[start..start + self.head_dim];
        sums.iter_mut().zip(term).for_each(|(sum, term)| *sum += factor * term);
    }
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).rev().fold(0.0, |sum, (a, b)| sum + a * b)
}

fn exp(x: f32) -> f32 {
    exp_f64(x.into()) as f32
}

/// The bytes of each tensor, which has several ranges of memory.
fn by_tensor<const N: usize>(tensors: [&Matrix; N], read: &[Vec<u8>]) -> [Vec<u8>; N] {
    let mut rest = read;
    tensors.map(|tensor| {
        let (own, after) = rest.split_at(tensor.ranges().len());
        rest = after;
        own.concat()
    })
}

fn forward(
    attention: CausalAttention,
    scale: f32,
    places: &AttentionPlaces,
    workspace: (DevicePointer, usize),
) -> HostWork {
    let sizes = Sizes::of(&attention, scale);
    let [q, k, v, out] = sizes.inputs(&attention, places);
    let log_sum_exp = sizes.log_sum_exp(&attention, places.log_sum_exp);
    let reads = [q, k, v].iter().flat_map(Matrix::ranges).collect();
    let writes = [out, log_sum_exp].iter().flat_map(Matrix::ranges).chain([workspace]).collect();
    let compute = move |read: &[Vec<u8>]| {
        let [q_bytes, k_bytes, v_bytes] = by_tensor([&q, &k, &v], read);
        let rows = |matrix: &Matrix, bytes: &[u8]| Rows::of(matrix, bytes, sizes.head_dim);
        let (q, k, v) = (rows(&q, &q_bytes), rows(&k, &k_bytes), rows(&v, &v_bytes));
        let mut outputs = Rows::zeros(&out, sizes.head_dim);
        let mut logs = vec![0.0f32; sizes.tokens() * sizes.heads];
        let mut maxima = vec![];
        for (first, head, kv_head) in sizes.pairs() {
            for query in 0..sizes.length {
                let row = first + query;
                let score = |key| scale * dot(q.head(row, head), k.head(first + key, kv_head));
                let scores: Vec<f32> = (0..=query).map(score).collect();
                let max = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let shares: Vec<f32> = scores.iter().map(|score| exp(score - max)).collect();
                let sum = shares.iter().rev().fold(0.0, |sum: f32, share| sum + share);
                for (key, share) in sizes.narrowed(&shares).iter().enumerate().rev() {
                    outputs.add((row, head), *share, v.head(first + key, kv_head));
                }
                let start = outputs.start(row, head);
                outputs.numbers[start..start + sizes.head_dim].iter_mut().for_each(|number| *number /= sum);
                logs[row * sizes.heads + head] = max + log_f64(sum.into()) as f32;
                maxima.push(max);
            }
        }
        let mut written = out.cut(&rounded(sizes.element, &outputs.numbers));
        written.extend(log_sum_exp.cut(&rounded(MatrixElement::F32, &logs)));
        written.push(rounded(MatrixElement::F32, &maxima));
        written
    };
    HostWork { call: CALL, reads, writes, compute: Box::new(compute) }
}

fn backward(
    attention: CausalAttention,
    scale: f32,
    places: &AttentionPlaces,
    strides: [u64; 4],
    workspace: (DevicePointer, usize),
) -> HostWork {
    let sizes = Sizes::of(&attention, scale);
    let inputs = sizes.inputs(&attention, places);
    let log_sum_exp = sizes.log_sum_exp(&attention, places.log_sum_exp);
    let heads = [sizes.heads, sizes.heads, sizes.kv_heads, sizes.kv_heads];
    let [dout, dq, dk, dv] =
        std::array::from_fn(|index| sizes.matrix(places.gradients[index], heads[index], strides[index]));
    let [q, k, v, out] = inputs;
    let reads = [q, k, v, out, dout, log_sum_exp].iter().flat_map(Matrix::ranges).collect();
    let writes = [dq, dk, dv].iter().flat_map(Matrix::ranges).chain([workspace]).collect();
    let compute = move |read: &[Vec<u8>]| {
        let tensors = [&q, &k, &v, &out, &dout];
        let [q_bytes, k_bytes, v_bytes, out_bytes, dout_bytes, logs] =
            by_tensor([&q, &k, &v, &out, &dout, &log_sum_exp], read);
        let bytes = [q_bytes, k_bytes, v_bytes, out_bytes, dout_bytes];
        let saved = std::array::from_fn(|index| Rows::of(tensors[index], &bytes[index], sizes.head_dim));
        let logs = widened(MatrixElement::F32, &logs);
        let (gradients, of_scores) = Gradients::of(sizes, &saved, &logs, [dq, dk, dv]);
        let numbers = |matrix: &Matrix, rows: &Rows| matrix.cut(&rounded(sizes.element, &rows.numbers));
        let [of_q, of_k, of_v] = &gradients.0;
        let mut written = [numbers(&dq, of_q), numbers(&dk, of_k), numbers(&dv, of_v)].concat();
        written.push(rounded(sizes.element, &of_scores));
        written
    };
    HostWork { call: CALL, reads, writes, compute: Box::new(compute) }
}

/// The gradients of queries, keys and values.
struct Gradients([Rows; 3]);

impl Gradients {
    /// From queries, keys, values, outputs and the outputs' gradients; with those of all scores.
    fn of(sizes: Sizes, saved: &[Rows; 5], logs: &[f32], tensors: [Matrix; 3]) -> (Gradients, Vec<f32>) {
        let [q, k, v, out, dout] = saved;
        let [mut dq, mut dk, mut dv] = tensors.map(|tensor| Rows::zeros(&tensor, sizes.head_dim));
        let mut all = vec![];
        for (first, head, kv_head) in sizes.pairs() {
            for query in (0..sizes.length).rev() {
                let (row, own) = (first + query, (first + query, head));
                let delta = dot(dout.head(row, head), out.head(row, head));
                let score = |key| sizes.scale * dot(q.head(row, head), k.head(first + key, kv_head));
                let shares: Vec<f32> =
                    (0..=query).map(|key| exp(score(key) - logs[row * sizes.heads + head])).collect();
                let of_score = |(key, share): (usize, &f32)| {
                    share * (dot(dout.head(row, head), v.head(first + key, kv_head)) - delta) * sizes.scale
                };
                let of_scores: Vec<f32> = shares.iter().enumerate().map(of_score).collect();
                let (shares, of_scores) = (sizes.narrowed(&shares), sizes.narrowed(&of_scores));
                for key in (0..=query).rev() {
                    let place = (first + key, kv_head);
                    dv.add(place, shares[key], dout.head(row, head));
                    dk.add(place, of_scores[key], q.head(row, head));
                    dq.add(own, of_scores[key], k.head(first + key, kv_head));
                }
                all.extend(of_scores.iter().copied().chain(vec![0.0; sizes.length - 1 - query]));
            }
        }
        (Gradients([dq, dk, dv]), all)
    }
}
