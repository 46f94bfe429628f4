//! One product in blocks with its operands in memory.

use cpu::gemm::{BlockRule, BlocksProduct, Narrow, Operand, Orientation, PackingBuffers, Product, Write, gemm_blocks};
use cpu::instruction_set::InstructionSet;
use cpu::lanes::Stored;
use cpu::meter::Meter;
use cpu::view::{MatMut, MatRef};
use device::{Dtype, Element};

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
}

/// The values of operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Values {
    /// Numbers around 1.
    Usual,
    /// Numbers from 2^-14 to 2^14: terms are cut off, and some disappear.
    Wide,
    /// All numbers but infinities and NaNs, every exponent alike.
    Any,
    /// Numbers below 2^-60, many of them subnormal.
    Small,
    /// Mostly zeros.
    Sparse,
    /// Usual ones, and now and then an infinity or a NaN.
    Special,
}

impl Values {
    pub const ALL: [Values; 6] =
        [Values::Usual, Values::Wide, Values::Any, Values::Small, Values::Sparse, Values::Special];

    /// A number of a narrow type.
    pub fn draw<E: Element>(self, random: &mut Random) -> E {
        let (least, most) = match E::DTYPE {
            Dtype::Bf16 => (-133, 127),
            Dtype::F16 => (-24, 15),
            Dtype::F32 | Dtype::I32 | Dtype::I64 => panic!("{:?} is not narrow", E::DTYPE),
        };
        let exponent = match self {
            Values::Usual => random.below(8) as i32 - 5,
            Values::Wide => random.below(29) as i32 - 14,
            Values::Any => least + random.below((most - least + 1) as usize) as i32,
            Values::Small => least + random.below(if least < -100 { 75 } else { 12 }) as i32,
            Values::Sparse if random.below(4) > 0 => return E::narrow([0.0, -0.0][random.below(2)]),
            Values::Sparse => random.below(60) as i32 - 45,
            Values::Special => match random.below(150) {
                0 => return E::narrow(f32::NAN),
                1 | 2 => return E::narrow([f32::INFINITY, f32::NEG_INFINITY][random.below(2)]),
                3..6 => return E::narrow(0.0),
                _ => random.below(12) as i32 - 6,
            },
        };
        let fraction = 1.0 + random.below(2048) as f64 / 2048.0;
        let sign = if random.below(2) == 0 { 1.0 } else { -1.0 };
        let number = E::narrow((sign * fraction * 2.0f64.powi(exponent)) as f32);
        // Rounding may have left the range.
        if number.widen().is_finite() { number } else { E::narrow(1.5) }
    }

    /// A number of single precision that a block is added to.
    pub fn sum(self, random: &mut Random) -> f32 {
        let exponent = match self {
            Values::Usual | Values::Special => random.below(12) as i32 - 8,
            Values::Wide => random.below(56) as i32 - 28,
            Values::Any => random.below(276) as i32 - 149,
            Values::Small => random.below(60) as i32 - 149,
            Values::Sparse if random.below(2) == 0 => return [0.0, -0.0][random.below(2)],
            Values::Sparse => random.below(60) as i32 - 60,
        };
        let fraction = 1.0 + random.below(1 << 24) as f64 / f64::from(1 << 24);
        let sign = if random.below(2) == 0 { 1.0 } else { -1.0 };
        (sign * fraction * 2.0f64.powi(exponent)) as f32
    }
}

pub struct Case<E> {
    pub orientation: Orientation,
    pub m: usize,
    pub n: usize,
    pub k: usize,
    /// Elements between the rows of each matrix.
    pub gap: usize,
    pub a: Vec<E>,
    pub b: Vec<E>,
    /// Numbers of the narrow type, as are those of the bias: the same whatever the type of C.
    pub c: Vec<f32>,
    pub bias: Option<Vec<f32>>,
    pub write: Write,
}

/// The results in single precision.
#[derive(Clone, Copy, Debug)]
pub enum Single {
    Nothing,
    Left,
    Right,
}

impl<E: Stored> Case<E> {
    pub fn new(
        orientation: Orientation,
        (m, n, k): (usize, usize, usize),
        gap: usize,
        values: Values,
        random: &mut Random,
    ) -> Self {
        let mut draw = |len: usize| -> Vec<E> { (0..len).map(|_| values.draw(random)).collect() };
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

    pub fn name(&self) -> String {
        let Case { orientation, m, n, k, gap, write, .. } = self;
        format!("{:?} {orientation:?} {m} x {n} x {k}, gap {gap}, {write:?}", E::DTYPE)
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

    /// Factors of one step of an element.
    pub fn factors(&self, (row, column): (usize, usize), step: usize) -> (f32, f32) {
        let [(_, a_cols), (_, b_cols)] = self.shapes().map(|(rows, cols)| (rows, cols + self.gap));
        let (a, b) = match self.orientation {
            Orientation::Nt => (row * a_cols + step, column * b_cols + step),
            Orientation::Nn => (row * a_cols + step, step * b_cols + column),
            Orientation::Tn => (step * a_cols + row, step * b_cols + column),
        };
        (self.a[a].widen(), self.b[b].widen())
    }

    fn views<'a>(&self, a: &'a [E], b: &'a [E]) -> [MatRef<'a, E>; 2] {
        let [(a_rows, a_cols), (b_rows, b_cols)] = self.shapes();
        let a = MatRef::new(a, a_rows, a_cols, a_cols + self.gap);
        [a, MatRef::new(b, b_rows, b_cols, b_cols + self.gap)]
    }

    /// C after the product, of type `C`, widened.
    pub fn run<'a, C: Stored>(&'a self, rule: BlockRule, single: Single, set: InstructionSet) -> Vec<f32>
    where
        Operand<'a>: From<MatRef<'a, E>>,
    {
        let widened = |of: &[E]| of.iter().map(|value| value.widen()).collect::<Vec<f32>>();
        let [a, b] = self.views(&self.a, &self.b).map(Operand::from);
        let [wide_a, wide_b] = [&self.a, &self.b].map(|of| widened(of));
        let [a_shape, b_shape] = self.shapes();
        match single {
            Single::Nothing => self.multiply::<C>([a, b], rule, set),
            Single::Left => {
                let view = MatRef::new(&wide_a, a_shape.0, a_shape.1, a_shape.1 + self.gap);
                self.multiply::<C>([Operand::F32(view), b], rule, set)
            }
            Single::Right => {
                let view = MatRef::new(&wide_b, b_shape.0, b_shape.1, b_shape.1 + self.gap);
                self.multiply::<C>([a, Operand::F32(view)], rule, set)
            }
        }
    }

    /// C after the product of these operands, of type `C`, widened.
    pub fn multiply<C: Stored>(&self, [a, b]: [Operand<'_>; 2], rule: BlockRule, set: InstructionSet) -> Vec<f32> {
        let narrowed = |of: &[f32]| of.iter().map(|value| C::narrow(*value)).collect::<Vec<C>>();
        let (mut c, bias) = (narrowed(&self.c), self.bias.as_deref().map(narrowed));
        let view = MatMut::new(&mut c, self.m, self.n, self.n + self.gap);
        let factors = Product { orientation: self.orientation, a, b };
        let Some(narrow) = Narrow::of([E::DTYPE; 2]) else { panic!("{:?}", E::DTYPE) };
        let meter = Meter::new();
        let product = BlocksProduct { factors, narrow, rule };
        gemm_blocks(product, view, self.write, bias.as_deref(), &mut PackingBuffers::new(), set, &meter);
        assert_eq!(meter.multiply_adds(), (self.m * self.n * self.k) as u64);
        c.iter().map(|value| value.widen()).collect()
    }
}
