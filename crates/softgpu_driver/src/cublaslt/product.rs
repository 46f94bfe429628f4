//! One product.

use cpu::gemm::{
    BlockRule, BlocksProduct, Narrow, Orientation, PackingBuffers, Product as Factors, Write, gemm, gemm_blocks,
};
use cpu::instruction_set::InstructionSet;
use cpu::meter::Meter;
use cpu::view::{MatMut, MatRef};
use device::{Bf16, Element as _};

/// The type of elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    /// fp32.
    F32,
    Bf16,
}

impl Element {
    /// The type of a number of the header.
    pub fn of(number: u32) -> Option<Element> {
        match number {
            0 => Some(Element::F32),
            14 => Some(Element::Bf16),
            _ => None,
        }
    }

    /// Bytes of an element.
    pub fn bytes(self) -> usize {
        match self {
            Element::F32 => 4,
            Element::Bf16 => 2,
        }
    }
}

/// How a factor is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// As it is multiplied.
    Plain,
    Transposed,
}

/// `d[m,n] = a[m,k] b[k,n]`, all by rows and without gaps.
#[derive(Clone, Copy, Debug)]
pub struct Product {
    /// m, n and k.
    pub sizes: [usize; 3],
    /// The type of both factors.
    pub factors: Element,
    /// The type of the result.
    pub result: Element,
    /// How a and b are stored.
    pub stored: [Stored; 2],
    /// The order of products of bf16.
    pub rule: BlockRule,
}

impl Product {
    /// Bytes of a, b and d.
    pub fn bytes(&self) -> [usize; 3] {
        let [m, n, k] = self.sizes;
        [m * k * self.factors.bytes(), k * n * self.factors.bytes(), m * n * self.result.bytes()]
    }

    /// The bytes of d for those of a and b.
    pub fn multiply(&self, a: &[u8], b: &[u8]) -> Vec<u8> {
        let [m, n, k] = self.sizes;
        let mut d = vec![0.0f32; m * n];
        // Without steps the sums are zeros.
        if m * n * k > 0 {
            let meter = Meter::new();
            let mut packing = PackingBuffers::new();
            let set = InstructionSet::detect();
            match self.factors {
                Element::F32 => {
                    let [a, b] = self.plain(a, b, |bytes: [u8; 4]| f32::from_le_bytes(bytes));
                    let [a, b] = [MatRef::new(&a, m, k, k), MatRef::new(&b, k, n, n)];
                    let factors = Factors { orientation: Orientation::Nn, a: a.into(), b: b.into() };
                    gemm(factors, MatMut::new(&mut d, m, n, n), Write::Assign, None, &mut packing, set, &meter);
                }
                Element::Bf16 => {
                    let [a, b] = self.plain(a, b, |bytes: [u8; 2]| Bf16(u16::from_le_bytes(bytes)));
                    let [a, b] = [MatRef::new(&a, m, k, k), MatRef::new(&b, k, n, n)];
                    let factors = Factors { orientation: Orientation::Nn, a: a.into(), b: b.into() };
                    let product = BlocksProduct { factors, narrow: Narrow::Bf16, rule: self.rule };
                    let d = MatMut::new(&mut d, m, n, n);
                    gemm_blocks(product, d, Write::Assign, None, &mut packing, set, &meter);
                }
            }
        }
        match self.result {
            Element::F32 => d.iter().flat_map(|value| value.to_le_bytes()).collect(),
            Element::Bf16 => d.iter().flat_map(|value| Bf16::narrow(*value).0.to_le_bytes()).collect(),
        }
    }

    /// Both factors as they are multiplied: a piece of a sum over many steps is cut where the left one is stored as its
    /// transpose, and the library's sums are whole.
    fn plain<E: Copy, const N: usize>(&self, a: &[u8], b: &[u8], element: impl Fn([u8; N]) -> E) -> [Vec<E>; 2] {
        let [m, n, k] = self.sizes;
        let [of_a, of_b] = self.stored;
        let matrix = |bytes: &[u8], stored: Stored, rows: usize, cols: usize| {
            let all: Vec<E> = bytes.as_chunks::<N>().0.iter().map(|bytes| element(*bytes)).collect();
            match stored {
                Stored::Plain => all,
                Stored::Transposed => {
                    let places = (0..rows).flat_map(|row| (0..cols).map(move |col| col * rows + row));
                    places.map(|place| all[place]).collect()
                }
            }
        };
        [matrix(a, of_a, m, k), matrix(b, of_b, k, n)]
    }
}
