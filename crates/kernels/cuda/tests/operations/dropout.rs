use device::{DropoutKey, Dtype, Op, Tensor};

use crate::operations::bench::{Bench, assert_same};
use crate::operations::case::{Case, STORED, Values};

fn key(first_channel: u32, probability: f32) -> DropoutKey {
    DropoutKey { seed: 0x0123_4567_89ab_cdef, step: 7, site: 3, first_token: (1 << 32) - 2, first_channel, probability }
}

fn shapes() -> impl Iterator<Item = (Dtype, [usize; 2])> {
    let shapes = [[1, 1], [5, 3], [6, 70], [9, 131], [3, 128]];
    STORED.into_iter().flat_map(move |stored| shapes.map(|shape| (stored, shape)))
}

/// Where `x` and the residual are.
#[derive(Clone, Copy, Debug)]
enum Places {
    Apart,
    InputInOutput,
    ResidualInOutput,
    NoResidual,
}

#[needs::cuda]
#[test]
fn dropout_with_bias_and_residual_has_the_bits_of_the_cpu() {
    assert_same(&["dropout"], additions);
}

pub fn additions(bench: &Bench) {
    let mut index = 0;
    for (stored, [rows, cols]) in shapes() {
        for places in [Places::Apart, Places::InputInOutput, Places::ResidualInOutput, Places::NoResidual] {
            for dropout in [None, Some(key(0, 0.1)), Some(key(3, 0.5)), Some(key(129, 0.0))] {
                let values = [Values::Plain, Values::Wild][index % 2];
                // Rows of half of the cases begin at multiples of eight elements.
                let gaps = if index % 8 < 4 { [index % 3, index % 4] } else { [cols.next_multiple_of(8) - cols; 2] };
                let mut case = Case::new(index as u64).storing(stored);
                let out = case.stored(rows, cols, gaps[0], values);
                let apart = |case: &mut Case| case.stored(rows, cols, gaps[1], values);
                let (x, residual): (Tensor, Option<Tensor>) = match places {
                    Places::Apart => (apart(&mut case), Some(apart(&mut case))),
                    Places::InputInOutput => (out, Some(apart(&mut case))),
                    Places::ResidualInOutput => (apart(&mut case), Some(out)),
                    Places::NoResidual => (apart(&mut case), None),
                };
                let bias = (index % 3 == 0).then(|| case.stored_vector(cols, values));
                let residual_scale = [1.0, 0.3][index / 2 % 2];
                bench.compare(&case, &Op::DropoutAdd { x, bias, residual, residual_scale, dropout, out });
                index += 1;
            }
        }
    }
}

#[needs::cuda]
#[test]
fn gradients_of_dropout_have_the_bits_of_the_cpu() {
    assert_same(&["dropout"], gradients);
}

pub fn gradients(bench: &Bench) {
    for (index, (stored, [rows, cols])) in shapes().enumerate() {
        let in_fours = cols.next_multiple_of(4) - cols;
        for (dropout, gaps) in [
            (key(0, 0.1), [in_fours; 2]),
            (key(0, 0.1), [index % 3, index % 2]),
            (key(2, 0.5), [in_fours; 2]),
            (key(1021, 0.9), [index % 3, index % 2]),
        ] {
            let mut case = Case::new(index as u64).storing(stored);
            let dx = case.stored(rows, cols, gaps[0], Values::Wild);
            let dy = case.stored(rows, cols, gaps[1], Values::Wild);
            bench.compare(&case, &Op::DropoutBackward { dy, dropout, dx });
            bench.compare(&case, &Op::DropoutBackward { dy: dx, dropout, dx });
        }
    }
}
