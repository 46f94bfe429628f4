//! The algorithms of a library that were chosen for the products of a run.

use std::collections::HashMap;
use std::fmt;

use config::Products;
use device::{Op, Stream};
use gpu::{BiasForm, Capability, DevicePointer, FactorForm, MatrixElement, MatrixProduct, ResultForm};

use crate::launch::{Code, Site, library_product};
use crate::library_products::workspace_bytes;

/// An address with the alignment of every arena.
pub(crate) const ANY_ARENA: DevicePointer = DevicePointer(1 << 40);

/// A product with the memory that algorithms have on its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StreamProduct {
    pub product: MatrixProduct,
    /// 0 on streams without a workspace.
    pub workspace_bytes: usize,
}

impl StreamProduct {
    /// The product of an operation on a stream, whose tensors have their places in an arena; `None` for operations that
    /// libraries do not have.
    pub fn of(op: &Op, stream: Stream) -> Option<StreamProduct> {
        let site = Site {
            arena: ANY_ARENA,
            arena_bytes: usize::MAX,
            multiprocessors: 1,
            capability: Capability { major: 9, minor: 0 },
            products: Products::Device,
            code: Code::Common,
            tile: None,
        };
        let (product, _) = library_product(op, &site).ok().flatten()?;
        Some(StreamProduct { product, workspace_bytes: workspace_bytes(stream) })
    }
}

impl fmt::Display for StreamProduct {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MatrixProduct { sizes: [m, n, k], factors, result, a, b, write, bias, .. } = self.product;
        let letter = |form| match form {
            FactorForm::Plain => 'N',
            FactorForm::Transposed => 'T',
        };
        let write = match write {
            ResultForm::Assigned => "",
            ResultForm::Accumulated => ", accumulated",
        };
        let bias = match bias {
            BiasForm::Absent => "",
            BiasForm::Present => ", with bias",
        };
        let [factors, result] = [factors, result].map(name);
        write!(f, "{m} x {n} x {k} {}{} from {factors} to {result}{bias}{write}", letter(a), letter(b))
    }
}

fn name(element: MatrixElement) -> &'static str {
    match element {
        MatrixElement::F32 => "fp32",
        MatrixElement::Bf16 => "bf16",
        MatrixElement::F16 => "fp16",
    }
}

/// The words of an algorithm for each of some products, on one GPU model with one driver and one library. Other
/// products have the first algorithm that the library proposes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChosenAlgorithms(HashMap<StreamProduct, [u64; 8]>);

impl ChosenAlgorithms {
    /// In place of an algorithm: pleach's kernels. No library has these words.
    pub const KERNELS: [u64; 8] = [u64::MAX; 8];

    /// The words of the algorithm of a product that has one.
    pub fn of(&self, product: &StreamProduct) -> Option<[u64; 8]> {
        self.0.get(product).copied()
    }

    /// All of them, in no order.
    pub fn all(&self) -> impl Iterator<Item = (&StreamProduct, [u64; 8])> {
        self.0.iter().map(|(product, words)| (product, *words))
    }

    /// Number of products that have one.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether no product has one.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<(StreamProduct, [u64; 8])> for ChosenAlgorithms {
    fn from_iter<I: IntoIterator<Item = (StreamProduct, [u64; 8])>>(all: I) -> ChosenAlgorithms {
        ChosenAlgorithms(all.into_iter().collect())
    }
}
