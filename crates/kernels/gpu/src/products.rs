//! Products of matrices by a library for one GPU, as a trait.

use crate::{DevicePointer, DriverError, StreamHandle};

/// The type of a matrix's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MatrixElement {
    /// fp32.
    F32,
    Bf16,
    /// fp16.
    F16,
}

impl MatrixElement {
    /// Bytes of an element.
    pub fn bytes(self) -> usize {
        match self {
            MatrixElement::F32 => 4,
            MatrixElement::Bf16 | MatrixElement::F16 => 2,
        }
    }
}

/// How a factor is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FactorForm {
    /// As it is multiplied.
    Plain,
    Transposed,
}

/// Whether the elements that the result had are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ResultForm {
    /// They are replaced.
    Assigned,
    /// The product is added to them.
    Accumulated,
}

/// Whether a row is added to every row of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BiasForm {
    Absent,
    /// `bias[n]`, of the result's type.
    Present,
}

/// `d[m,n] = a[m,k] b[k,n]`, plus the bias, plus `d` where it is accumulated; by rows. Factors are multiplied exactly,
/// sums are of single precision, and the result is rounded once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MatrixProduct {
    /// m, n and k.
    pub sizes: [u64; 3],
    /// The type of both factors.
    pub factors: MatrixElement,
    /// The type of the result.
    pub result: MatrixElement,
    /// How a is stored: `[m,k]`, or `[k,m]`.
    pub a: FactorForm,
    /// How b is stored: `[k,n]`, or `[n,k]`.
    pub b: FactorForm,
    /// Elements from one row to the next of a, b and d, as they are stored.
    pub strides: [u64; 3],
    /// A power of two that the addresses of a, b, d and the bias are multiples of.
    pub alignments: [u32; 4],
    pub write: ResultForm,
    pub bias: BiasForm,
}

impl MatrixProduct {
    /// The largest alignment that changes anything.
    pub const MAX_ALIGNMENT: u32 = 256;

    /// An assigned product without bias of matrices that have no gaps and begin at multiples of
    /// [`MatrixProduct::MAX_ALIGNMENT`].
    pub fn dense(sizes: [u64; 3], [factors, result]: [MatrixElement; 2], [a, b]: [FactorForm; 2]) -> MatrixProduct {
        let [m, n, k] = sizes;
        let across = |form, plain, transposed| match form {
            FactorForm::Plain => plain,
            FactorForm::Transposed => transposed,
        };
        MatrixProduct {
            sizes,
            factors,
            result,
            a,
            b,
            strides: [across(a, k, m), across(b, n, k), n],
            alignments: [MatrixProduct::MAX_ALIGNMENT; 4],
            write: ResultForm::Assigned,
            bias: BiasForm::Absent,
        }
    }

    /// Rows and columns of a, b and d, as they are stored.
    pub fn shapes(&self) -> [[u64; 2]; 3] {
        let [m, n, k] = self.sizes;
        let of = |form, [rows, cols]: [u64; 2]| match form {
            FactorForm::Plain => [rows, cols],
            FactorForm::Transposed => [cols, rows],
        };
        [of(self.a, [m, k]), of(self.b, [k, n]), [m, n]]
    }
}

/// The largest alignment of an address that a product knows.
pub fn alignment(address: DevicePointer) -> u32 {
    1 << address.0.trailing_zeros().min(MatrixProduct::MAX_ALIGNMENT.trailing_zeros())
}

/// Addresses of a product's matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatrixPlaces {
    pub a: DevicePointer,
    pub b: DevicePointer,
    pub d: DevicePointer,
    /// Not used by a product without bias.
    pub bias: DevicePointer,
}

/// How an algorithm may sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SumForm {
    /// Each sum is one chain over k.
    Unbroken,
    /// Or pieces of k that are kept in single precision and added in a step of their own, in an order that belongs to
    /// the algorithm. Nothing is added by atomic operations.
    Split,
}

/// Limits of a search for algorithms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProductLimits {
    /// The most memory besides the matrices.
    pub workspace_bytes: usize,
    pub sums: SumForm,
    /// The most algorithms.
    pub most: usize,
}

/// An algorithm for one product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProductAlgorithm {
    /// The library's own description.
    pub words: [u64; 8],
    /// Bytes of memory that it needs besides the matrices.
    pub workspace_bytes: usize,
    /// The number of pieces of each sum (split-K); 1 is an unbroken sum.
    pub splits: u32,
}

/// A library that multiplies matrices on one GPU. Any thread may call it.
pub trait ProductLibrary: Send + Sync {
    /// Its name and version: `cuBLASLt 13.1.0`.
    fn name(&self) -> String;

    /// Algorithms for a product, the fastest by the library's estimate first: the same ones at every call. None where
    /// the library does not have the product.
    ///
    /// # Errors
    /// A library that fails.
    fn algorithms(&self, product: &MatrixProduct, limits: ProductLimits) -> Result<Vec<ProductAlgorithm>, DriverError>;

    /// Multiplies as work of `stream`. No other stream uses the workspace at the same time. The same algorithm has the
    /// same bits at every call.
    ///
    /// # Errors
    /// An algorithm of another product; a stream or memory that does not exist.
    fn multiply(
        &self,
        stream: StreamHandle,
        product: &MatrixProduct,
        algorithm: &ProductAlgorithm,
        places: MatrixPlaces,
        workspace: DevicePointer,
    ) -> Result<(), DriverError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_the_largest_power_of_two_that_divides_it() {
        let of = |address| alignment(DevicePointer(address));
        assert_eq!([of(0x7001), of(0x7002), of(0x7010), of(0x7100), of(0x7000), of(0)], [1, 2, 16, 256, 256, 256]);
    }

    #[test]
    fn transposed_factors_are_stored_with_their_sides_exchanged() {
        use FactorForm::{Plain, Transposed};
        let product = |forms| MatrixProduct::dense([2, 3, 4], [MatrixElement::Bf16; 2], forms);
        let of = |forms| (product(forms).shapes(), product(forms).strides);
        assert_eq!(of([Plain, Plain]), ([[2, 4], [4, 3], [2, 3]], [4, 3, 3]));
        assert_eq!(of([Transposed, Transposed]), ([[4, 2], [3, 4], [2, 3]], [2, 4, 3]));
    }
}
