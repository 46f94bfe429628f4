//! The library.

use std::sync::Arc;

use cpu::gemm::BlockRule;
use gpu::{
    BiasForm, DevicePointer, DriverError, DriverErrorKind, Gpu as _, MatrixPlaces, MatrixProduct, ProductAlgorithm,
    ProductLibrary, ProductLimits, ResultForm, StreamHandle, SumForm,
};
use softgpu::{HostWork, SoftGpu};

use crate::matrices::{Matrix, rounded, widened};
use crate::sums::Factors;

/// The call in messages.
const CALL: &str = "multiply";

/// Sizes of matrices are below this.
const MOST: u64 = 1 << 20;

/// The fewest steps of a sum that is cut.
const FEWEST: u64 = 32;

/// Pieces of a sum by each algorithm.
const PIECES: [u32; 3] = [2, 1, 4];

/// Steps of which a piece has a multiple, but the last one.
const STEPS: usize = 16;

/// The first word of an algorithm, which is followed by the pieces of a sum.
const MARK: u64 = 1;

/// The library for one GPU in software.
#[derive(Debug)]
pub struct SoftProducts {
    gpu: Arc<SoftGpu>,
}

impl SoftProducts {
    /// The library of `gpu`.
    pub fn new(gpu: Arc<SoftGpu>) -> SoftProducts {
        SoftProducts { gpu }
    }

    fn rule(&self) -> BlockRule {
        if self.gpu.facts().capability.major >= 9 { BlockRule::BLOCKS16 } else { BlockRule::BLOCKS8 }
    }
}

impl ProductLibrary for SoftProducts {
    fn name(&self) -> String {
        "the soft GPU's products".into()
    }

    /// The algorithm that cuts in two comes first where it may.
    fn algorithms(&self, product: &MatrixProduct, limits: ProductLimits) -> Result<Vec<ProductAlgorithm>, DriverError> {
        if product.sizes.iter().any(|size| *size >= MOST) {
            return Ok(vec![]);
        }
        let [m, n, k] = product.sizes;
        let pieces = PIECES.map(|pieces| {
            let sums = if pieces > 1 { u64::from(pieces) * m * n } else { 0 };
            algorithm(pieces, size_of::<f32>() * sums as usize)
        });
        let may_cut = limits.sums == SumForm::Split && k >= FEWEST;
        let fits = |found: &ProductAlgorithm| {
            (found.splits == 1 || may_cut) && found.workspace_bytes <= limits.workspace_bytes
        };
        Ok(pieces.into_iter().filter(fits).take(limits.most).collect())
    }

    fn multiply(
        &self,
        stream: StreamHandle,
        product: &MatrixProduct,
        algorithm: &ProductAlgorithm,
        places: MatrixPlaces,
        workspace: DevicePointer,
    ) -> Result<(), DriverError> {
        let known = self
            .algorithms(product, ProductLimits { workspace_bytes: usize::MAX, sums: SumForm::Split, most: usize::MAX });
        if !known?.contains(algorithm) {
            let text = format!("{algorithm:?} is not an algorithm of {product:?}");
            return Err(DriverError { call: CALL, kind: DriverErrorKind::InvalidArgument, text });
        }
        let work = Work { product: *product, pieces: algorithm.splits as usize, rule: self.rule() };
        self.gpu.submit_host_work(stream, work.of(places, workspace))
    }
}

fn algorithm(splits: u32, workspace_bytes: usize) -> ProductAlgorithm {
    ProductAlgorithm { words: [MARK, splits.into(), 0, 0, 0, 0, 0, 0], workspace_bytes, splits }
}

/// A product by an algorithm.
#[derive(Clone, Copy, Debug)]
struct Work {
    product: MatrixProduct,
    /// Of each sum.
    pieces: usize,
    rule: BlockRule,
}

impl Work {
    fn of(self, places: MatrixPlaces, workspace: DevicePointer) -> HostWork {
        let MatrixProduct { factors, result, strides, write, bias, .. } = self.product;
        let [m, n, _] = self.sizes();
        let shapes = self.product.shapes().map(|sides| sides.map(|side| side as usize));
        let matrix = |index: usize, place, element| {
            let ([rows, cols], stride) = (shapes[index], strides[index] as usize);
            Matrix { place, element, rows, cols, stride }
        };
        let (a, b) = (matrix(0, places.a, factors), matrix(1, places.b, factors));
        let d = matrix(2, places.d, result);
        let bias = match bias {
            BiasForm::Absent => 0,
            BiasForm::Present => 1,
        };
        let bias = Matrix { place: places.bias, element: result, rows: bias, cols: n, stride: n };
        let kept = match write {
            ResultForm::Assigned => vec![],
            ResultForm::Accumulated => d.ranges(),
        };
        let counts = [a.ranges().len(), b.ranges().len(), kept.len()];
        let reads = [a.ranges(), b.ranges(), kept, bias.ranges()].concat();
        let mut writes = d.ranges();
        let cut = (self.pieces > 1 && m * n > 0).then_some((workspace, 4 * self.pieces * m * n));
        writes.extend(cut);
        let compute = move |read: &[Vec<u8>]| {
            let mut rest = read;
            let mut next = |count: usize| {
                let (ranges, after) = rest.split_at(count);
                rest = after;
                ranges.concat()
            };
            let [a, b, kept] = counts.map(&mut next);
            let pieces = self.sums(&a, &b);
            let result = self.finished(&pieces, &kept, &rest.concat());
            let mut written = d.cut(&result);
            if cut.is_some() {
                written.push(pieces.concat().into_iter().flat_map(f32::to_le_bytes).collect());
            }
            written
        };
        HostWork { call: CALL, reads, writes, compute: Box::new(compute) }
    }

    fn sizes(&self) -> [usize; 3] {
        self.product.sizes.map(|size| size as usize)
    }

    /// The sums of each piece.
    fn sums(&self, a: &[u8], b: &[u8]) -> Vec<Vec<f32>> {
        let (factors, sizes) = (Factors::of(&self.product, a, b), self.sizes());
        let k = sizes[2];
        let piece = if self.pieces > 1 { k.div_ceil(self.pieces).next_multiple_of(STEPS) } else { k };
        let of = |index: usize| factors.sums(sizes, k.min(index * piece)..k.min((index + 1) * piece), self.rule);
        (0..self.pieces).map(of).collect()
    }

    /// The bytes of the result: pieces are added in order, then the elements that were there, then the bias.
    fn finished(&self, pieces: &[Vec<f32>], kept: &[u8], bias: &[u8]) -> Vec<u8> {
        let [m, n, _] = self.sizes();
        let (kept, bias) = (widened(self.product.result, kept), widened(self.product.result, bias));
        let element = |place: usize| {
            let sum = pieces.iter().map(|piece| piece[place]).reduce(|sum, piece| sum + piece).unwrap_or(0.0);
            let sum = kept.get(place).map_or(sum, |kept| kept + sum);
            bias.get(place % n).map_or(sum, |bias| sum + bias)
        };
        rounded(self.product.result, &(0..m * n).map(element).collect::<Vec<f32>>())
    }
}
