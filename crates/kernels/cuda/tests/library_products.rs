//! Products of a device by a library, which is in software here: each against its exact value.

use std::sync::Arc;

use crate::numbers::{number, widened};
use config::Products;
use cuda::CudaDevice;
use device::{Bf16, Device, DeviceError, Dtype, Element as _, F16, Op, Orientation, Stream, Tensor, Write};
use gpu::{Driver, Gpu};
use soft_products::SoftProducts;
use softgpu::{Settings, SoftDriver};

const ARENA_BYTES: usize = 8 << 20;
/// Where operands begin: multiples of what tensors of a plan are, and one element later.
const OFFSETS: [usize; 2] = [0, 1];
/// Roundoff of single precision.
const SINGLE: f64 = 1.0 / 16_777_216.0;

/// A device without kernels: whatever the library does not have fails.
fn device() -> CudaDevice {
    let driver = SoftDriver::new(1, Settings::default());
    let gpu: Arc<dyn Gpu> = driver.open(0).expect("a GPU");
    let library = SoftProducts::new(driver.opened(0).expect("it is open"));
    let device = CudaDevice::open(gpu, &[], ARENA_BYTES).expect("a device");
    device.with_library(Box::new(library), Arc::default()).expect("a workspace")
}

fn rounded(dtype: Dtype, numbers: &[f32]) -> Vec<u8> {
    match dtype {
        Dtype::F32 => numbers.iter().flat_map(|number| number.to_le_bytes()).collect(),
        Dtype::Bf16 => numbers.iter().flat_map(|number| Bf16::narrow(*number).0.to_le_bytes()).collect(),
        Dtype::F16 => numbers.iter().flat_map(|number| F16::narrow(*number).0.to_le_bytes()).collect(),
        Dtype::I32 | Dtype::I64 => panic!("real numbers"),
    }
}

/// Roundoff of a stored result.
fn roundoff(dtype: Dtype) -> f64 {
    match dtype {
        Dtype::F32 => SINGLE,
        Dtype::Bf16 => 1.0 / 256.0,
        Dtype::F16 => 1.0 / 2048.0,
        Dtype::I32 | Dtype::I64 => panic!("real numbers"),
    }
}

/// One product.
#[derive(Clone, Copy, Debug)]
struct Case {
    orientation: Orientation,
    sizes: [usize; 3],
    types: [Dtype; 2],
    gaps: [usize; 3],
    has_bias: bool,
    write: Write,
    /// Elements after a multiple of 256 bytes.
    offset: usize,
}

/// A matrix in the arena, with the numbers of its elements and of its gaps.
struct Matrix {
    tensor: Tensor,
    numbers: Vec<f64>,
}

impl Matrix {
    fn at(&self, row: usize, col: usize) -> f64 {
        self.numbers[row * self.tensor.row_stride + col]
    }
}

/// Memory that is given away from its beginning on.
struct Arena<'a> {
    device: &'a CudaDevice,
    next: usize,
}

impl Arena<'_> {
    fn matrix(&mut self, seed: usize, [rows, cols]: [usize; 2], gap: usize, case: &Case, dtype: Dtype) -> Matrix {
        let row_stride = cols + gap;
        let offset_bytes = self.next + case.offset * dtype.size_bytes();
        let tensor = Tensor { row_stride, ..Tensor::new(offset_bytes, rows, cols, dtype) };
        let numbers: Vec<f32> = (0..rows * row_stride).map(|index| number(seed, index)).collect();
        let bytes = rounded(dtype, &numbers);
        self.device.write(Tensor::new(offset_bytes, 1, rows * row_stride, dtype), &bytes).expect("written");
        self.next = (offset_bytes + bytes.len()).next_multiple_of(256);
        Matrix { tensor, numbers: widened(dtype, &bytes) }
    }
}

/// Multiplies, and compares every element with its exact value: sums of blocks of 8 steps, each of which may lose 11
/// roundings of all terms (docs/numerics.md), and one rounding of the result. Gaps keep their bytes.
fn compare(device: &CudaDevice, seed: usize, case: Case) {
    let Case { orientation, sizes: [m, n, k], types: [factors, result], gaps, has_bias, write, .. } = case;
    let (a_shape, b_shape) = match orientation {
        Orientation::Nt => ([m, k], [n, k]),
        Orientation::Nn => ([m, k], [k, n]),
        Orientation::Tn => ([k, m], [k, n]),
    };
    let mut arena = Arena { device, next: 0 };
    let a = arena.matrix(4 * seed, a_shape, gaps[0], &case, factors);
    let b = arena.matrix(4 * seed + 1, b_shape, gaps[1], &case, factors);
    let bias = arena.matrix(4 * seed + 2, [1, n], 0, &case, result);
    let out = arena.matrix(4 * seed + 3, [m, n], gaps[2], &case, result);
    let [a_tensor, b_tensor, out_tensor] = [&a, &b, &out].map(|matrix| matrix.tensor);
    let bias_tensor = has_bias.then_some(bias.tensor);
    let op = Op::MatMul { orientation, a: a_tensor, b: b_tensor, bias: bias_tensor, out: out_tensor, write };
    device.submit(Stream::Compute, &op).expect("submitted");
    let whole = Tensor::new(out_tensor.offset_bytes, 1, out.numbers.len(), result);
    let mut bytes = vec![0; whole.size_bytes()];
    device.read(whole, &mut bytes).expect("read");
    let got = Matrix { tensor: out_tensor, numbers: widened(result, &bytes) };
    for (row, col) in (0..m).flat_map(|row| (0..out_tensor.row_stride).map(move |col| (row, col))) {
        if col >= n {
            assert_eq!(got.at(row, col), out.at(row, col), "a gap of {case:?}");
            continue;
        }
        let factors = |step: usize| match orientation {
            Orientation::Nt => a.at(row, step) * b.at(col, step),
            Orientation::Nn => a.at(row, step) * b.at(step, col),
            Orientation::Tn => a.at(step, row) * b.at(step, col),
        };
        let added = if has_bias { bias.at(0, col) } else { 0.0 };
        let kept = match write {
            Write::Assign => 0.0,
            Write::Accumulate => out.at(row, col),
        };
        let exact = (0..k).map(factors).sum::<f64>() + added + kept;
        let size = (0..k).map(|step| factors(step).abs()).sum::<f64>() + added.abs() + kept.abs();
        let of_sums = 11.0 * SINGLE * size * (k.div_ceil(8) + 2) as f64;
        let bound = of_sums + roundoff(result) * (exact.abs() + of_sums);
        let error = (got.at(row, col) - exact).abs();
        assert!(error <= bound, "row {row}, column {col} of {case:?}: {error:.1e} is beyond {bound:.1e}");
    }
}

#[test]
fn every_product_is_as_exact_as_blocks_of_eight_steps() {
    let device = device();
    let types = [[Dtype::Bf16; 2], [Dtype::Bf16, Dtype::F32], [Dtype::F16; 2], [Dtype::F16, Dtype::F32]];
    let sizes = [[1, 1, 1], [5, 3, 16], [16, 24, 31], [33, 20, 32], [40, 17, 200], [12, 9, 1100]];
    let orientations = [Orientation::Nt, Orientation::Nn, Orientation::Tn];
    let cases = sizes.into_iter().flat_map(|sizes| types.map(|types| (sizes, types)));
    let cases = cases.flat_map(|(sizes, types)| orientations.map(|orientation| (sizes, types, orientation)));
    for (seed, (sizes, types, orientation)) in cases.enumerate() {
        for (round, write) in
            [Write::Assign, Write::Accumulate, Write::Assign, Write::Accumulate].into_iter().enumerate()
        {
            let has_bias = round >= 2;
            let gaps = [[0; 3], [1, 8, 0], [0, 0, 5]][(seed + round) % 3];
            let offset = OFFSETS[(seed + round) / 2 % 2];
            compare(&device, seed, Case { orientation, sizes, types, gaps, has_bias, write, offset });
        }
    }
}

fn tensor(place: usize, dtype: Dtype) -> Tensor {
    Tensor::new(place << 16, 64, 64, dtype)
}

fn product(a: Tensor, b: Tensor, out: Tensor) -> Op {
    Op::MatMul { orientation: Orientation::Nn, a, b, bias: None, out, write: Write::Assign }
}

/// The text of a failure.
fn failure(result: Result<(), DeviceError>) -> String {
    result.expect_err("a failure").to_string()
}

/// Streams other than that of computation have no workspace: two products at the same time do not race.
#[test]
fn products_of_two_streams_share_no_workspace() {
    let device = device();
    for (index, stream) in [Stream::Compute, Stream::Shift, Stream::Compute].into_iter().enumerate() {
        let [a, b, out] = [0, 1, 2].map(|place| tensor(3 * index + place, Dtype::Bf16));
        device.submit(stream, &product(a, b, out)).expect("submitted");
    }
    device.synchronize().expect("no race");
}

/// Of factors in two types, or in single precision, a library has no product: pleach's own kernels have them, which
/// this device does not.
#[test]
fn products_that_libraries_do_not_have_are_those_of_kernels() {
    let device = device();
    let [bf16, f16, single, out] = [Dtype::Bf16, Dtype::F16, Dtype::F32, Dtype::F32].map(|dtype| {
        let place = [Dtype::Bf16, Dtype::F16, Dtype::F32].iter().position(|other| *other == dtype);
        tensor(place.expect("a type"), dtype)
    });
    let out = Tensor { offset_bytes: 5 << 16, ..out };
    let of_kernel = failure(device.submit(Stream::Compute, &product(bf16, single, out)));
    assert!(of_kernel.contains("the kernel mat_mul_blocks_nn_bf16_64 is in no source that was loaded"), "{of_kernel}");
    let none = failure(device.submit(Stream::Compute, &product(bf16, f16, out)));
    assert!(none.contains("must have one narrow type to be multiplied in blocks"), "{none}");
    let shapes = failure(device.submit(Stream::Compute, &product(bf16, Tensor { rows: 63, ..bf16 }, out)));
    assert!(shapes.contains("K is 64 in a and 63 in b"), "{shapes}");
    let outside = Tensor { offset_bytes: ARENA_BYTES - 4, ..out };
    let outside = failure(device.submit(Stream::Compute, &product(bf16, bf16, outside)));
    assert!(outside.contains("needs bytes up to"), "{outside}");
}

#[test]
fn products_of_the_device_need_a_library_and_memory_for_it() {
    let gpu = SoftDriver::new(1, Settings::default()).open(0).expect("a GPU");
    let device = CudaDevice::open(gpu, &[], ARENA_BYTES).expect("a device").with_products(Products::Device);
    let bf16 = tensor(0, Dtype::Bf16);
    let error = failure(device.submit(Stream::Compute, &product(bf16, bf16, tensor(1, Dtype::F32))));
    assert_eq!(error, "mat_mul: products = \"device\" needs a library of products, and this device has none");
    let driver = SoftDriver::new(1, Settings { memory_bytes: 16 << 20, ..Settings::default() });
    let device = CudaDevice::open(driver.open(0).expect("a GPU"), &[], ARENA_BYTES).expect("a device");
    let library = SoftProducts::new(driver.opened(0).expect("it is open"));
    let error =
        device.with_library(Box::new(library), Arc::default()).err().map(|error| error.to_string()).expect("no memory");
    assert!(error.starts_with("allocate the workspace of the soft GPU's products: "), "{error}");
}
