use device::{AdamWUpdate, Dtype, Op, Tensor};

use crate::operations::bench::{Bench, assert_same};
use crate::operations::case::{Case, Values};

pub fn weights(bench: &Bench) {
    let parts = [
        ([1, 1], 0, 0, 1),
        ([3, 7], 0, 0, 7),
        ([2, 9], 5, 3, 13),
        ([4, 130], 1 << 20, 1, 5000),
        ([2, 1100], 7, 2, 1103),
    ];
    for (index, ([rows, cols], first_row, first_col, global_cols)) in parts.into_iter().enumerate() {
        for dtype in [Dtype::F32, Dtype::Bf16, Dtype::F16] {
            let mut case = Case::new(index as u64);
            let out = case.place(rows, cols, index % 3, dtype);
            let (seed, parameter) = (0x1234_5678_9abc_def0 + index as u64, 0xfeed_0000_0000_0000 + index as u64);
            let std = [0.02, 1.0][index % 2];
            bench
                .compare(&case, &Op::InitializeNormal { out, seed, parameter, std, first_row, first_col, global_cols });
        }
    }
}

#[needs::cuda]
#[test]
fn initial_weights_have_the_bits_of_the_cpu() {
    assert_same(&["initialize"], weights);
}

/// Elements whose numbers need more than 32 bits.
pub fn huge_parameters(bench: &Bench) {
    let mut case = Case::new(0);
    let out = case.place(2, 50, 0, Dtype::F32);
    let (first_row, global_cols) = (1 << 30, 6_000_000_001);
    let op = Op::InitializeNormal { out, seed: 1, parameter: 2, std: 1.0, first_row, first_col: 17, global_cols };
    bench.compare(&case, &op);
}

#[needs::cuda]
#[test]
fn weights_of_huge_parameters_have_the_bits_of_the_cpu() {
    assert_same(&["initialize"], huge_parameters);
}

#[needs::cuda]
#[test]
fn parts_outside_of_a_parameter_are_refused() {
    let bench = Bench::of(&["initialize"]);
    let mut case = Case::new(0);
    let out = case.place(2, 50, 0, Dtype::F32);
    let refused =
        Op::InitializeNormal { out, seed: 1, parameter: 2, std: 1.0, first_row: 0, first_col: 1, global_cols: 50 };
    let expected = "initialize_normal: F32[2, 50] @0 from column 1 on is not part of rows of 50";
    assert_eq!(bench.failure(&case, &refused), expected);
}

const UPDATE: AdamWUpdate =
    AdamWUpdate { learning_rate: 1e-2, weight_decay: 0.1, beta1: 0.9, beta2: 0.95, epsilon: 1e-8, update: 3 };

pub fn updates(bench: &Bench) {
    for (index, len) in [0, 1, 255, 257, 1000].into_iter().enumerate() {
        for (values, copy) in [Values::Plain, Values::Wild]
            .into_iter()
            .flat_map(|values| [None, Some(Dtype::F32), Some(Dtype::Bf16), Some(Dtype::F16)].map(|copy| (values, copy)))
        {
            let mut case = Case::new(index as u64);
            let [param, grad, first_moment, second_moment] = [(); 4].map(|()| case.vector(len, values));
            let coefficient = case.vector(4, Values::Plain);
            let copy = copy.map(|dtype| case.place(1, len, 0, dtype));
            let update = AdamWUpdate { update: 1 + 100 * index as u32, ..UPDATE };
            bench.compare(&case, &Op::AdamW { param, copy, grad, first_moment, second_moment, coefficient, update });
            // One of the tensors begins where four elements take more than one access.
            let after_one = |tensor: Tensor| Tensor { rows: 1, cols: len - 1, row_stride: len - 1, ..tensor };
            for late in (0..5).filter(|_| len > 1 && values == Values::Plain) {
                let moved = |number: usize, tensor: Tensor| {
                    let offset = if number == late { tensor.dtype.size_bytes() } else { 0 };
                    after_one(Tensor { offset_bytes: tensor.offset_bytes + offset, ..tensor })
                };
                let [param, grad] = [moved(0, param), moved(1, grad)];
                let [first_moment, second_moment] = [moved(2, first_moment), moved(3, second_moment)];
                let copy = copy.map(|copy| moved(4, copy));
                let op = Op::AdamW { param, copy, grad, first_moment, second_moment, coefficient, update };
                bench.compare(&case, &op);
            }
        }
    }
}

#[needs::cuda]
#[test]
fn updates_of_weights_have_the_bits_of_the_cpu() {
    assert_same(&["adamw"], updates);
}

#[needs::cuda]
#[test]
fn updates_that_do_not_fit_are_refused() {
    let bench = Bench::of(&["adamw"]);
    let mut case = Case::new(0);
    let [param, short] = [4, 3].map(|len| case.vector(len, Values::Plain));
    let op = |grad, update| Op::AdamW {
        param,
        copy: None,
        grad,
        first_moment: param,
        second_moment: param,
        coefficient: param,
        update,
    };
    assert_eq!(bench.failure(&case, &op(short, UPDATE)), "adamw: F32[1, 3] @128 is not as long as F32[1, 4] @0");
    let zeroth = AdamWUpdate { update: 0, ..UPDATE };
    assert_eq!(bench.failure(&case, &op(param, zeroth)), "adamw: updates are counted from 1");
}
