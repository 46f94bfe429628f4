//! Sums of products over ranges of k.

use std::ops::Range;

use cpu::gemm::{
    BlockRule, BlocksProduct, Narrow, Operand, Orientation, PackingBuffers, Product, Write, gemm, gemm_blocks,
};
use cpu::instruction_set::InstructionSet;
use cpu::meter::Meter;
use cpu::view::{MatMut, MatRef};
use device::{Bf16, Element, F16};
use gpu::{FactorForm, MatrixElement, MatrixProduct};

use crate::matrices::words;

/// Both factors as they are multiplied, `[m,k]` and `[k,n]`: a piece of a sum over many steps is cut where the left one
/// is stored as its transpose, and the library's sums are whole.
pub(crate) enum Factors {
    F32([Vec<f32>; 2]),
    Bf16([Vec<Bf16>; 2]),
    F16([Vec<F16>; 2]),
}

impl Factors {
    /// From the bytes of a and b as they are stored, without gaps.
    pub fn of(product: &MatrixProduct, a: &[u8], b: &[u8]) -> Factors {
        let single = |bytes: &[u8]| -> Vec<f32> {
            bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
        };
        match product.factors {
            MatrixElement::F32 => Factors::F32(plain(product, [single(a), single(b)])),
            MatrixElement::Bf16 => Factors::Bf16(plain(product, [a, b].map(|bytes| words(bytes).map(Bf16).collect()))),
            MatrixElement::F16 => Factors::F16(plain(product, [a, b].map(|bytes| words(bytes).map(F16).collect()))),
        }
    }

    /// The sums over some steps of k: in chains for fp32, by `rule` for other types. Without steps they are zeros.
    pub fn sums(&self, [m, n, k]: [usize; 3], steps: Range<usize>, rule: BlockRule) -> Vec<f32> {
        let mut d = vec![0.0f32; m * n];
        if m * n * steps.len() > 0 {
            let sizes = [m, n, k];
            match self {
                Factors::F32([a, b]) => single(factors(a, b, sizes, steps), &mut d, [m, n]),
                Factors::Bf16([a, b]) => blocks(factors(a, b, sizes, steps), Narrow::Bf16, rule, &mut d, [m, n]),
                Factors::F16([a, b]) => blocks(factors(a, b, sizes, steps), Narrow::F16, rule, &mut d, [m, n]),
            }
        }
        d
    }
}

/// Both factors of some steps.
fn factors<'a, E>(a: &'a [E], b: &'a [E], [m, n, k]: [usize; 3], steps: Range<usize>) -> Product<'a>
where
    Operand<'a>: From<MatRef<'a, E>>,
    E: Element,
{
    let a = MatRef::new(&a[steps.start..], m, steps.len(), k);
    let b = MatRef::new(&b[steps.start * n..], steps.len(), n, n);
    Product { orientation: Orientation::Nn, a: a.into(), b: b.into() }
}

fn single(product: Product<'_>, d: &mut [f32], [m, n]: [usize; 2]) {
    let (mut packing, set, meter) = (PackingBuffers::new(), InstructionSet::detect(), Meter::new());
    gemm(product, MatMut::new(d, m, n, n), Write::Assign, None, &mut packing, set, &meter);
}

fn blocks(product: Product<'_>, narrow: Narrow, rule: BlockRule, d: &mut [f32], [m, n]: [usize; 2]) {
    let (mut packing, set, meter) = (PackingBuffers::new(), InstructionSet::detect(), Meter::new());
    let product = BlocksProduct { factors: product, narrow, rule };
    gemm_blocks(product, MatMut::new(d, m, n, n), Write::Assign, None, &mut packing, set, &meter);
}

fn plain<E: Copy>(product: &MatrixProduct, [a, b]: [Vec<E>; 2]) -> [Vec<E>; 2] {
    let [m, n, k] = product.sizes.map(|size| size as usize);
    let matrix = |all: Vec<E>, form, rows: usize, cols: usize| match form {
        FactorForm::Plain => all,
        FactorForm::Transposed => {
            let places = (0..rows).flat_map(|row| (0..cols).map(move |col| col * rows + row));
            places.map(|place| all[place]).collect()
        }
    };
    [matrix(a, product.a, m, k), matrix(b, product.b, k, n)]
}
