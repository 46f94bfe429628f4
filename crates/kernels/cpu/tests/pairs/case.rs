//! One product in AMX order, or in terms, with its operands in memory.

use cpu::gemm::{
    Orientation, PackingBuffers, PairsOperand, PairsProduct, Product, TermsProduct, Write, gemm, gemm_pairs, gemm_terms,
};
use cpu::instruction_set::InstructionSet;
use cpu::lanes::Stored;
use cpu::meter::Meter;
use cpu::view::{MatMut, MatRef};
use device::{Bf16, Element};

/// Numbers from a linear congruential generator.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    pub fn below(&mut self, bound: usize) -> usize {
        self.next() as usize % bound
    }

    /// A number of bf16 with an exponent in a range.
    fn with_exponent(&mut self, exponents: std::ops::Range<u16>) -> Bf16 {
        let sign_and_fraction = self.next() as u16 & 0x807f;
        let exponent = exponents.start + self.below(usize::from(exponents.end - exponents.start)) as u16;
        Bf16(sign_and_fraction | exponent << 7)
    }
}

/// The values of operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Values {
    /// Numbers around 1.
    Usual,
    /// Numbers whose products are around the smallest normal one.
    TinyProducts,
    /// Numbers of which many are subnormal, times large ones.
    Subnormal,
    /// A few bits each around 2^-63: sums are often exactly 2^-126, or zero.
    Corner,
    /// All numbers but infinities and NaNs.
    Any,
    /// All bits.
    Special,
}

impl Values {
    pub const ALL: [Values; 6] =
        [Values::Usual, Values::TinyProducts, Values::Subnormal, Values::Corner, Values::Any, Values::Special];

    fn draw(self, random: &mut Random) -> Bf16 {
        match self {
            Values::Usual => random.with_exponent(119..129),
            Values::TinyProducts => random.with_exponent(60..68),
            Values::Subnormal => match random.below(3) {
                0 => random.with_exponent(0..1),
                1 => random.with_exponent(0..4),
                _ => random.with_exponent(120..140),
            },
            Values::Corner => {
                let number = random.with_exponent(51..65);
                Bf16(number.0 & 0xffe0)
            }
            Values::Any => random.with_exponent(0..255),
            // Half of the numbers are usual: otherwise every sum is a NaN.
            Values::Special => match random.below(400) {
                0 => Bf16(random.next() as u16),
                1 => Bf16(0x7f80 | random.next() as u16 & 0x8000),
                2..5 => Bf16(random.next() as u16 & 0x8000),
                _ => random.with_exponent(100..140),
            },
        }
    }
}

/// The type of operands: bf16, or single precision in terms.
pub trait Drawn: Element {
    /// A number near one of bf16.
    fn near(number: Bf16, random: &mut Random) -> Self;
}

impl Drawn for Bf16 {
    fn near(number: Bf16, _random: &mut Random) -> Self {
        number
    }
}

impl Drawn for f32 {
    /// With any bits below, or sixteen, eight or no bits.
    fn near(number: Bf16, random: &mut Random) -> Self {
        let below = [0xffff, 0xffff, 0xff00, 0][random.below(4)];
        f32::from_bits(u32::from(number.0) << 16 | random.next() as u32 & below)
    }
}

pub struct Case<T> {
    pub orientation: Orientation,
    pub m: usize,
    pub n: usize,
    pub k: usize,
    /// Elements between the rows of each matrix.
    pub gap: usize,
    pub a: Vec<T>,
    pub b: Vec<T>,
    /// Numbers of bf16, as are those of the bias: the same whatever the type of C.
    pub c: Vec<f32>,
    pub bias: Option<Vec<f32>>,
    pub write: Write,
}

impl<T: Drawn> Case<T> {
    pub fn new(
        orientation: Orientation,
        (m, n, k): (usize, usize, usize),
        gap: usize,
        values: Values,
        random: &mut Random,
    ) -> Self {
        let mut draw = |len: usize| -> Vec<T> {
            let number = |random: &mut Random| T::near(values.draw(random), random);
            (0..len).map(|_| number(random)).collect()
        };
        let (a, b) = match orientation {
            Orientation::Nt => (draw(m * (k + gap)), draw(n * (k + gap))),
            Orientation::Nn => (draw(m * (k + gap)), draw(k * (n + gap))),
            Orientation::Tn => (draw(k * (m + gap)), draw(k * (n + gap))),
        };
        let [c, bias] = [m * (n + gap), n].map(|len| draw(len).into_iter().map(|value| value.widen()).collect());
        let bias = (random.below(2) == 0).then_some(bias);
        let write = if random.below(2) == 0 { Write::Assign } else { Write::Accumulate };
        Case { orientation, m, n, k, gap, a, b, c, bias, write }
    }

    /// Rows and columns of A and of B as they are in memory.
    pub fn shapes(&self) -> [(usize, usize); 2] {
        let (m, n, k) = (self.m, self.n, self.k);
        match self.orientation {
            Orientation::Nt => [(m, k), (n, k)],
            Orientation::Nn => [(m, k), (k, n)],
            Orientation::Tn => [(k, m), (k, n)],
        }
    }

    /// A and B.
    pub fn operands(&self) -> [MatRef<'_, T>; 2] {
        let [(a_rows, a_cols), (b_rows, b_cols)] = self.shapes();
        let a = MatRef::new(&self.a, a_rows, a_cols, a_cols + self.gap);
        [a, MatRef::new(&self.b, b_rows, b_cols, b_cols + self.gap)]
    }

    /// The whole buffer of C, of which `multiply` computes four blocks, cut somewhere: from A and B for its rows and
    /// columns, and with its bias.
    pub fn run_in_four(
        &self,
        random: &mut Random,
        mut multiply: impl FnMut([MatRef<'_, T>; 2], MatMut<'_>, Option<&[f32]>),
    ) -> Vec<f32> {
        let mut c = self.c.clone();
        let (row, column) = (1 + random.below(self.m - 1), 1 + random.below(self.n - 1));
        for (row, rows) in [(0, row), (row, self.m - row)] {
            for (column, columns) in [(0, column), (column, self.n - column)] {
                let mut view = MatMut::new(&mut c, self.m, self.n, self.n + self.gap);
                let bias = self.bias.as_ref().map(|bias| &bias[column..column + columns]);
                let operands = self.block((row, rows), (column, columns));
                multiply(operands, view.block(row, rows, column, columns), bias);
            }
        }
        c
    }

    /// A and B for these rows and columns of C, each as start and length.
    fn block(&self, (row, rows): (usize, usize), (column, columns): (usize, usize)) -> [MatRef<'_, T>; 2] {
        let [a, b] = self.operands();
        let a = match self.orientation {
            Orientation::Nt | Orientation::Nn => a.block(row, rows, 0, self.k),
            Orientation::Tn => a.block(0, self.k, row, rows),
        };
        let b = match self.orientation {
            Orientation::Nt => b.block(column, columns, 0, self.k),
            Orientation::Nn | Orientation::Tn => b.block(0, self.k, column, columns),
        };
        [a, b]
    }

    pub fn name(&self) -> String {
        let Case { orientation, m, n, k, gap, write, .. } = self;
        format!("{orientation:?} m {m} n {n} k {k} gap {gap} {write:?}")
    }
}

impl Case<f32> {
    /// The whole buffer of C after the chained product.
    pub fn run_chained(&self, set: InstructionSet, packing: &mut PackingBuffers) -> Vec<f32> {
        let mut c = self.c.clone();
        let [a, b] = self.operands().map(Into::into);
        let product = Product { orientation: self.orientation, a, b };
        let view = MatMut::new(&mut c, self.m, self.n, self.n + self.gap);
        gemm(product, view, self.write, self.bias.as_deref(), packing, set, &Meter::new());
        c
    }

    /// The whole buffer of C after the product in terms.
    pub fn run_in_terms(&self, set: InstructionSet, packing: &mut PackingBuffers) -> Vec<f32> {
        let (meter, mut c) = (Meter::new(), self.c.clone());
        let [a, b] = self.operands();
        let product = TermsProduct { orientation: self.orientation, a, b };
        let view = MatMut::new(&mut c, self.m, self.n, self.n + self.gap);
        gemm_terms(product, view, self.write, self.bias.as_deref(), packing, set, &meter);
        assert_eq!(meter.multiply_adds(), (self.m * self.n * self.k) as u64);
        c
    }
}

impl Case<Bf16> {
    /// The whole buffer of C of this type after the product, widened.
    pub fn run<E: Stored>(&self, set: InstructionSet, packing: &mut PackingBuffers) -> Vec<f32> {
        let meter = Meter::new();
        let narrow = |values: &[f32]| -> Vec<E> { values.iter().map(|value| E::narrow(*value)).collect() };
        let (mut c, bias) = (narrow(&self.c), self.bias.as_ref().map(|bias| narrow(bias)));
        let view = MatMut::new(&mut c, self.m, self.n, self.n + self.gap);
        let [a, b] = self.operands().map(PairsOperand::Bf16);
        gemm_pairs(
            PairsProduct { orientation: self.orientation, a, b },
            view,
            self.write,
            bias.as_deref(),
            packing,
            set,
            &meter,
        );
        assert_eq!(meter.multiply_adds(), (self.m * self.n * self.k) as u64);
        c.into_iter().map(|value| value.widen()).collect()
    }
}
