use device::Op;

use crate::operations::bench::{Bench, assert_same};
use crate::operations::case::{Case, STORED, Values};

#[needs::cuda]
#[test]
fn sums_over_rows_have_the_bits_of_the_cpu() {
    assert_same(&["column_sum"], column_sums);
}

pub fn column_sums(bench: &Bench) {
    // Rows of the last four are whole vectors of 16 bytes, of all types or of single precision.
    let shapes = [
        [1, 1, 0],
        [31, 33, 1],
        [32, 32, 2],
        [33, 31, 3],
        [64, 100, 3],
        [1023, 5, 0],
        [4200, 3, 2],
        [1025, 64, 0],
        [33, 24, 8],
        [5, 104, 16],
        [2200, 100, 4],
    ];
    let typed = STORED.into_iter().flat_map(|stored| shapes.map(|shape| (stored, shape)));
    for (index, (stored, [rows, cols, gap])) in typed.enumerate() {
        for values in [Values::Plain, Values::Wild] {
            let mut case = Case::new(index as u64).storing(stored);
            let x = case.stored(rows, cols, gap, values);
            let out = case.vector(cols, values);
            bench.compare(&case, &Op::ColumnSum { x, out });
        }
    }
}
