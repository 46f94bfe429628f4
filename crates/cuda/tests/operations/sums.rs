use device::Op;

use crate::bench::{Bench, assert_same};
use crate::case::{Case, STORED, Values};

#[test]
fn sums_over_rows_have_the_bits_of_the_cpu() {
    assert_same(&["column_sum"], column_sums);
}

pub fn column_sums(bench: &Bench) {
    let shapes = [[1, 1], [31, 33], [32, 32], [33, 31], [64, 100], [1023, 5], [1025, 64], [4200, 3]];
    let typed = STORED.into_iter().flat_map(|stored| shapes.map(|shape| (stored, shape)));
    for (index, (stored, [rows, cols])) in typed.enumerate() {
        for values in [Values::Plain, Values::Wild] {
            let mut case = Case::new(index as u64).storing(stored);
            let x = case.stored(rows, cols, index % 4, values);
            let out = case.vector(cols, values);
            bench.compare(&case, &Op::ColumnSum { x, out });
        }
    }
}
