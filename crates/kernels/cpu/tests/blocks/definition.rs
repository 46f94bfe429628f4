//! How tensor cores add a block of products, in `f64`: all terms, their multiples and their sums are exact in it,
//! also those of subnormal numbers and of products beyond the range of single precision.

/// One order of products in blocks, of factors of one format.
#[derive(Clone, Copy, Debug)]
pub struct Definition {
    /// Products in a block.
    pub steps: usize,
    fraction_bits: i32,
    least_exponent: i32,
    /// The exponent of the factors' smallest normal number.
    smallest_factor: i32,
}

/// The exponent of the smallest normal number of single precision.
const SMALLEST_SINGLE: i32 = -126;

impl Definition {
    /// 16 products of bf16.
    pub const BLOCKS16: Definition =
        Definition { steps: 16, fraction_bits: 25, least_exponent: -133, smallest_factor: -126 };
    /// 8 products of bf16.
    pub const BLOCKS8: Definition =
        Definition { steps: 8, fraction_bits: 24, least_exponent: -132, smallest_factor: -126 };

    /// The same of factors of fp16.
    pub const fn of_fp16(self) -> Definition {
        Definition { smallest_factor: -14, ..self }
    }

    /// A block, or the beginning of one, is added to `sum`.
    pub fn add(&self, sum: f32, factors: &[(f32, f32)]) -> f32 {
        let product = |(a, b): &(f32, f32)| f64::from(*a) * f64::from(*b);
        let any = factors.iter().map(product).fold(f64::from(sum), |sum, product| sum + product);
        if any.is_nan() {
            return f32::from_bits(0x7fff_ffff);
        }
        if any.is_infinite() {
            return any as f32;
        }
        let exponent_of = |(a, b): &(f32, f32)| exponent(*a, self.smallest_factor) + exponent(*b, self.smallest_factor);
        let of_products = factors.iter().filter(|factors| product(factors) != 0.0).map(exponent_of);
        let of_sum = (sum != 0.0).then(|| exponent(sum, SMALLEST_SINGLE));
        let largest = of_products.chain(of_sum).fold(self.least_exponent, i32::max);
        let unit = 2.0f64.powi(largest - self.fraction_bits);
        let cut = |term: f64| (term / unit).trunc();
        let units: f64 = factors.iter().map(product).chain([f64::from(sum)]).map(cut).sum();
        toward_zero(units * unit)
    }

    /// The sum that continues `sum` over `steps` products.
    pub fn continued(&self, sum: f32, steps: usize, factors: impl Fn(usize) -> (f32, f32)) -> f32 {
        (0..steps).step_by(self.steps).fold(sum, |sum, first| {
            let block: Vec<_> = (first..steps.min(first + self.steps)).map(&factors).collect();
            self.add(sum, &block)
        })
    }
}

/// Of a number that is not zero.
fn exponent(number: f32, smallest: i32) -> i32 {
    let field = (f64::from(number).to_bits() >> 52 & 0x7ff) as i32;
    (field - 1023).max(smallest)
}

/// In single precision; zeros are positive.
fn toward_zero(value: f64) -> f32 {
    let nearest = value as f32;
    let is_beyond = f64::from(nearest).abs() > value.abs() && value.abs() < 2.0f64.powi(128);
    let towards = if is_beyond { f32::from_bits(nearest.to_bits() - 1) } else { nearest };
    if towards == 0.0 { 0.0 } else { towards }
}
