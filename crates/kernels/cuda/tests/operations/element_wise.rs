use device::{Dtype, Op};

use crate::operations::bench::{Bench, assert_same};
use crate::operations::case::{Case, Values};

const SHAPES: [[usize; 2]; 5] = [[1, 1], [3, 70], [100, 3], [1, 5000], [17, 256]];
const REAL: [Dtype; 3] = [Dtype::F32, Dtype::Bf16, Dtype::F16];

#[needs::cuda]
#[test]
fn sums_and_copies_have_the_bits_of_the_cpu() {
    assert_same(&["element_wise"], sums_and_copies);
}

pub fn sums_and_copies(bench: &Bench) {
    for (index, [rows, cols]) in SHAPES.into_iter().enumerate() {
        // Rows are without gaps, not aligned, and aligned.
        for gap in [0, 3, 16] {
            let mut case = Case::new(index as u64);
            let (x, into) = (case.reals(rows, cols, gap, Values::Wild), case.reals(rows, cols, 2 * gap, Values::Wild));
            bench.compare(&case, &Op::Accumulate { x, into });
            for (factor, keep) in [(0.1, 0.9), (-3.5, 0.0), (1.0, -1.0)] {
                bench.compare(&case, &Op::ScaledSum { x, factor, into, keep });
            }
            for (from, to) in REAL.into_iter().flat_map(|from| REAL.map(|to| (from, to))) {
                // Random bytes are numbers of every kind.
                let from = case.place(rows, cols, gap, from);
                let to = case.place(rows, cols, gap / 2, to);
                bench.compare(&case, &Op::Copy { from, to });
            }
            for dtype in REAL {
                let out = case.place(rows, cols, gap, dtype);
                for value in [0.0, -1.0, 1.000_001, 70000.0, 1e-7, f32::INFINITY, f32::NAN] {
                    bench.compare(&case, &Op::Fill { out, value });
                }
            }
        }
        let mut case = Case::new(index as u64);
        let [from, to] = [(); 2].map(|()| case.place(rows, cols, 0, Dtype::I64));
        bench.compare(&case, &Op::Copy { from, to });
        bench.compare(&case, &Op::Accumulate { x: from, into: to });
        for value in [0.0, -3.7, 1e30] {
            bench.compare(&case, &Op::Fill { out: to, value });
        }
    }
}

#[needs::cuda]
#[test]
fn every_narrow_number_is_widened_and_numbers_around_it_are_rounded() {
    assert_same(&["element_wise"], bf16_and_fp16);
}

pub fn bf16_and_fp16(bench: &Bench) {
    for dtype in [Dtype::Bf16, Dtype::F16] {
        let mut case = Case::new(0);
        let narrow = case.place(256, 256, 0, dtype);
        for bits in 0..=u16::MAX {
            case.put(narrow, usize::from(bits) / 256, usize::from(bits) % 256, &bits.to_le_bytes());
        }
        let wide = case.place(256, 256, 0, Dtype::F32);
        bench.compare(&case, &Op::Copy { from: narrow, to: wide });
        for step in [-1i64, 0, 1, 0x0fff, 0x1000, 0x1001, 0x7fff, 0x8000, 0x8001] {
            for bits in 0..=u16::MAX {
                let word = (i64::from(bits) << 16).wrapping_add(step) as u32;
                case.put(wide, usize::from(bits) / 256, usize::from(bits) % 256, &word.to_le_bytes());
            }
            bench.compare(&case, &Op::Copy { from: wide, to: narrow });
        }
    }
}
