//! Initial weights: a function of the seed, the parameter and the element's global place, never of the shard.
//!
//! Element `e` (row-major in the global matrix) is normal number `e % 4` of Philox block `e / 4`: counter `[e/4 low,
//! e/4 high, parameter low, parameter high]`, key the seed (with a constant that separates this use from others). Words
//! 0 and 1 make numbers 0 and 1, words 2 and 3 make numbers 2 and 3 (Box and Muller 1958): `sqrt(-2 log u) (cos, sin)(2
//! pi v)` with `u` in `(0, 1]` of the first word and `v` in `[0, 1)` of the second.

use crate::lanes::{Kernel, LANES, Lanes, Stored};
use crate::math::{log, sin_cos_of_turn};
use crate::view::MatMut;

/// Elements of one call of the wide generator.
const WINDOW: usize = 4 * LANES;

/// `out = Normal(0, std)`, assigned: the part of a parameter that starts at global `(first_row, first_col)`.
pub struct InitializeNormal<'a, E = f32> {
    /// The local part `[rows, cols]`.
    pub out: MatMut<'a, E>,
    /// Seed of the run.
    pub seed: u64,
    pub parameter: u64,
    /// Standard deviation.
    pub std: f32,
    /// Global row of `out`'s row 0.
    pub first_row: usize,
    /// Global column of `out`'s column 0.
    pub first_col: usize,
    /// Columns of the whole parameter.
    pub global_cols: usize,
}

impl<E: Stored> Kernel for InitializeNormal<'_, E> {
    type Output = ();
    #[inline(always)]
    fn run<L: Lanes>(mut self) {
        let cols = self.out.cols();
        assert!(self.first_col + cols <= self.global_cols, "part of a row of {}", self.global_cols);
        let key = philox::key_of_initial_weights(self.seed);
        for row in 0..self.out.rows() {
            let first = ((self.first_row + row) * self.global_cols + self.first_col) as u64;
            let out = self.out.row_mut(row);
            let mut col = 0;
            while col < cols {
                let element = first + col as u64;
                let skipped = (element % 4) as usize;
                let count = (WINDOW - skipped).min(cols - col);
                let window = normal_window::<L>(element / 4, self.parameter, key, self.std);
                for (out, &value) in out[col..col + count].iter_mut().zip(&window[skipped..]) {
                    *out = E::narrow(value);
                }
                col += count;
            }
        }
    }
}

/// The 64 elements from `4 * first_block` on.
#[inline(always)]
fn normal_window<L: Lanes>(first_block: u64, parameter: u64, key: [u32; 2], std: f32) -> [f32; WINDOW] {
    let counters = [
        std::array::from_fn(|lane| (first_block + lane as u64) as u32),
        std::array::from_fn(|lane| ((first_block + lane as u64) >> 32) as u32),
        [parameter as u32; LANES],
        [(parameter >> 32) as u32; LANES],
    ];
    let words = philox::philox4x32_10_x16(counters, key);
    let mut window = [0.0; WINDOW];
    for half in 0..2 {
        let uniform = words[2 * half].map(philox::open_closed_f32);
        let radius = (L::splat(-2.0) * log(L::load(&uniform))).sqrt() * L::splat(std);
        let (sin, cos) = sin_cos_of_turn::<L>(&words[2 * half + 1]);
        let mut numbers = [[0.0; LANES]; 2];
        (radius * cos).store(&mut numbers[0]);
        (radius * sin).store(&mut numbers[1]);
        for lane in 0..LANES {
            window[4 * lane + 2 * half] = numbers[0][lane];
            window[4 * lane + 2 * half + 1] = numbers[1][lane];
        }
    }
    window
}
