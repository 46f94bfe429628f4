use device::{Dtype, Op, Write};

use crate::operations::bench::{Bench, assert_same};
use crate::operations::case::{Case, STORED, Values};

/// Log-sum-exps of both sets: near each other, far apart, and of sets of which a query sees nothing.
const LOG_SUM_EXPS: [[f32; 2]; 8] = [
    [0.5, 0.25],
    [-3.0, 7.5],
    [40.0, -40.0],
    [f32::NEG_INFINITY, 1.0],
    [2.0, f32::NEG_INFINITY],
    [f32::NEG_INFINITY, f32::NEG_INFINITY],
    [88.0, 88.0],
    [-0.0, 0.0],
];

pub fn joins(bench: &Bench) {
    let shapes = [(1, 1, 1), (3, 2, 63), (5, 3, 64), (2, 4, 65), (9, 1, 130), (0, 2, 4)];
    let typed = STORED.into_iter().flat_map(|stored| shapes.map(|shape| (stored, shape)));
    for (index, (stored, (rows, heads, head_dim))) in typed.enumerate() {
        for write in [Write::Assign, Write::Accumulate] {
            let mut case = Case::new(index as u64).storing(stored);
            let part = case.stored(rows, heads * head_dim, index % 3, Values::Plain);
            let out = case.reals(rows, heads * head_dim, 1, Values::Plain);
            let [part_log_sum_exp, log_sum_exp] = [1, index % 2].map(|gap| case.reals(rows, heads, gap, Values::Plain));
            for row in 0..rows {
                for head in 0..heads {
                    let [own, other] = LOG_SUM_EXPS[(row * heads + head + index) % LOG_SUM_EXPS.len()];
                    case.put(log_sum_exp, row, head, &own.to_le_bytes());
                    case.put(part_log_sum_exp, row, head, &other.to_le_bytes());
                }
            }
            bench.compare(&case, &Op::JoinAttention { part, part_log_sum_exp, out, log_sum_exp, head_dim, write });
        }
    }
}

#[needs::cuda]
#[test]
fn joined_attention_has_the_bits_of_the_cpu() {
    assert_same(&["join_attention"], joins);
}

#[needs::cuda]
#[test]
fn sets_of_other_sizes_are_refused() {
    let bench = Bench::of(&["join_attention"]);
    let mut case = Case::new(0);
    let [part, out] = [(); 2].map(|()| case.reals(3, 8, 0, Values::Plain));
    let [part_log_sum_exp, log_sum_exp] = [2, 3].map(|rows| case.reals(rows, 2, 0, Values::Plain));
    let (head_dim, write) = (4, Write::Accumulate);
    let join = |part, part_log_sum_exp| Op::JoinAttention { part, part_log_sum_exp, out, log_sum_exp, head_dim, write };
    let error = bench.failure(&case, &join(part, part_log_sum_exp));
    assert!(error.contains("join_attention: F32[2, 2]") && error.contains("is not [3, 2]"), "{error}");
    let error = bench.failure(&case, &join(part.cols_of(0..7), log_sum_exp));
    assert!(error.contains("is not [3, 8]"), "{error}");
    let narrow = device::Tensor { dtype: Dtype::Bf16, ..log_sum_exp };
    let error = bench.failure(&case, &join(part, narrow));
    assert!(error.contains("is not F32"), "{error}");
}
