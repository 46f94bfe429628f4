//! Attention against its definition in f64, against itself on other instruction sets and in other cuts; with products
//! in AMX order, or in that of tensor cores, also against their definition, bit by bit.

mod blocks_oracle;
mod case;
mod pairs_oracle;
pub mod reference;

use case::{ALL_VISIBLE, Case, Outputs, Random, Visible, shape, with_all_visible};
use cpu::attention::Alibi;
use cpu::instruction_set::InstructionSet;
use reference::{Operands, Products, compute};

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

fn fields<'a>(a: &'a Outputs, b: &'a Outputs) -> [(&'static str, &'a [f32], &'a [f32]); 5] {
    [
        ("out", &a.out, &b.out),
        ("log_sum_exp", &a.log_sum_exp, &b.log_sum_exp),
        ("dq", &a.dq, &b.dq),
        ("dk", &a.dk, &b.dk),
        ("dv", &a.dv, &b.dv),
    ]
}

fn assert_same(a: &Outputs, b: &Outputs, name: &str) {
    for (field, a, b) in fields(a, b) {
        assert!(bits(a) == bits(b), "{field} differs: {name}");
    }
}

/// The same numbers, where zeros may have different signs.
fn assert_equal(a: &Outputs, b: &Outputs, name: &str) {
    for (field, a, b) in fields(a, b) {
        for (at, (a, b)) in a.iter().zip(b).enumerate() {
            assert!(a == b, "{field}[{at}] is {a:e}, not {b:e}: {name}");
        }
    }
}

/// The reference's gradients are those of its own outputs.
#[test]
fn reference_gradients_are_central_differences() {
    let random = &mut Random(1);
    let exact = Products::Chained;
    for (visible, dropout) in ALL_VISIBLE.into_iter().flat_map(|visible| [(visible, false), (visible, true)]) {
        for case in Case::new(exact, (shape(2, 13, 4, 2, 3), visible), dropout, random).with_and_without_biases() {
            let attention = case.attention();
            let operands = case.operands();
            let results = compute(&attention, &operands, exact);
            let loss = |operands: &Operands| -> f64 {
                let out = compute(&attention, operands, exact).out.values;
                out.iter().zip(&operands.dout).map(|(out, dout)| out * dout).sum()
            };
            type Field = fn(&mut Operands) -> &mut Vec<f64>;
            let fields: [(Field, &Vec<f64>); 3] = [
                (|operands| &mut operands.q, &results.dq.values),
                (|operands| &mut operands.k, &results.dk.values),
                (|operands| &mut operands.v, &results.dv.values),
            ];
            for (field, gradient) in fields {
                for _ in 0..6 {
                    let at = random.next() as usize % gradient.len();
                    let step = 1e-5;
                    let mut moved = operands.clone();
                    field(&mut moved)[at] += step;
                    let above = loss(&moved);
                    field(&mut moved)[at] -= 2.0 * step;
                    let difference = (above - loss(&moved)) / (2.0 * step);
                    // The third derivative times step^2 / 6, and f64 rounding over the step, are below 1e-8 here.
                    assert!((difference - gradient[at]).abs() < 1e-8, "{visible:?}: {difference} {}", gradient[at]);
                }
            }
        }
    }
}

#[test]
fn within_bounds_of_the_reference_and_equal_on_all_instruction_sets() {
    let random = &mut Random(2);
    let shapes = [
        shape(2, 1, 1, 1, 2),
        shape(2, 7, 2, 1, 4),
        shape(1, 33, 3, 3, 12),
        shape(2, 70, 4, 2, 12),
        shape(1, 97, 2, 2, 64),
        shape(1, 150, 2, 1, 96),
    ];
    let cases = with_all_visible(shapes);
    for ((shape, visible), products) in cases.flat_map(|case| Products::ALL.map(|products| (case, products))) {
        let dropout = shape.sequence_length % 2 == 1 || visible == Visible::Causal;
        for case in Case::new(products, (shape, visible), dropout, random).with_and_without_biases() {
            let name = format!("{products:?} {shape:?} {visible:?} dropout {dropout} {:?}", case.alibi);
            let outputs = case.run(InstructionSet::Scalar);
            let exact = compute(&case.attention(), &case.operands(), products);
            let shares = [
                exact.out.assert_holds(&outputs.out, &format!("out {name}")),
                exact.log_sum_exp.assert_holds(&outputs.log_sum_exp, &format!("log_sum_exp {name}")),
                exact.dq.assert_holds(&outputs.dq, &format!("dq {name}")),
                exact.dk.assert_holds(&outputs.dk, &format!("dk {name}")),
                exact.dv.assert_holds(&outputs.dv, &format!("dv {name}")),
            ];
            println!("{name}: shares of the bounds {shares:.3?}");
            for instruction_set in InstructionSet::available() {
                assert_same(&case.run(instruction_set), &outputs, &format!("{instruction_set:?} {name}"));
            }
        }
    }
}

#[test]
fn sequences_and_heads_do_not_depend_on_what_else_is_in_the_call() {
    let random = &mut Random(3);
    let kinds = with_all_visible(Products::ALL);
    let mut cases = |(products, visible)| {
        let case = Case::new(products, (shape(3, 75, 4, 2, 12), visible), true, random);
        case.with_and_without_biases().map(|case| (visible, case))
    };
    for (visible, case) in kinds.flat_map(&mut cases) {
        let instruction_set = InstructionSet::detect();
        let whole = case.run(instruction_set);
        let (q_cols, kv_cols) = case.widths();
        for sequence in 0..3 {
            let part = case.part(Some(sequence), 0..4).run(instruction_set);
            let rows = |values: &[f32], cols: usize| values[sequence * 75 * cols..(sequence + 1) * 75 * cols].to_vec();
            let expected = Outputs {
                out: rows(&whole.out, q_cols),
                log_sum_exp: rows(&whole.log_sum_exp, 4),
                dq: rows(&whole.dq, q_cols),
                dk: rows(&whole.dk, kv_cols),
                dv: rows(&whole.dv, kv_cols),
            };
            assert_same(&part, &expected, &format!("sequence {sequence}, {visible:?}"));
        }
        for rank in 0..2 {
            let part = case.part(None, 2 * rank..2 * rank + 2).run(instruction_set);
            let columns = |values: &[f32]| -> Vec<f32> {
                let cols = values.len() / case.tokens();
                values.chunks(cols).flat_map(|row| row[rank * cols / 2..(rank + 1) * cols / 2].to_vec()).collect()
            };
            let expected = Outputs {
                out: columns(&whole.out),
                log_sum_exp: columns(&whole.log_sum_exp),
                dq: columns(&whole.dq),
                dk: columns(&whole.dk),
                dv: columns(&whole.dv),
            };
            assert_same(&part, &expected, &format!("rank {rank}, {visible:?}"));
        }
    }
}

/// A query's output is a function of its own interval.
#[test]
fn queries_do_not_depend_on_the_intervals_of_others() {
    let random = &mut Random(4);
    for products in Products::ALL {
        let mut case = Case::new(products, (shape(1, 140, 1, 1, 16), Visible::Documents), true, random);
        let set = InstructionSet::detect();
        let before = case.run(set);
        for token in (0..140).filter(|token| token % 5 != 0) {
            case.visible[token] = [token as i32 / 2, 140];
        }
        let after = case.run(set);
        for token in (0..140).step_by(5) {
            let row = token * 16..(token + 1) * 16;
            assert_eq!(bits(&before.out[row.clone()]), bits(&after.out[row.clone()]), "{products:?} {token}");
            assert_eq!(bits(&before.dq[row.clone()]), bits(&after.dq[row]), "{products:?} {token}");
            assert_eq!(before.log_sum_exp[token].to_bits(), after.log_sum_exp[token].to_bits());
        }
    }
}

/// More keys than queries: a call for the later ones gives them the bits that they have in a call for all.
#[test]
fn later_queries_have_the_same_bits_in_a_call_of_their_own() {
    let random = &mut Random(7);
    for (products, visible) in with_all_visible(Products::ALL) {
        let case = Case::new(products, (shape(1, 150, 2, 1, 20), visible), true, random);
        for set in InstructionSet::available() {
            let whole = case.run(set).out;
            for position in [1, 32, 75, 149] {
                let expected = &whole[position * case.widths().0..];
                assert!(
                    bits(&case.run_later(position, set).out) == bits(expected),
                    "{products:?} {visible:?} {position} {set:?}"
                );
            }
        }
    }
}

/// Gradients of queries in a call of their own on all keys are those of a call for all in which the queries before them
/// see nothing. The cut is between groups of blocks of queries: there sums over queries have the same terms in the same
/// order.
#[test]
fn gradients_of_later_queries_are_those_of_a_call_for_all() {
    let random = &mut Random(9);
    for (products, visible) in with_all_visible(Products::ALL) {
        let position = 128;
        let mut case = Case::new(products, (shape(1, 190, 4, 2, 20), visible), true, random);
        case.visible[..position].fill([0, 0]);
        for set in InstructionSet::available() {
            let (whole, later) = (case.run(set), case.run_later(position, set));
            let of_later = &whole.dq[position * case.widths().0..];
            for (name, own, expected) in
                [("dq", &later.dq[..], of_later), ("dk", &later.dk, &whole.dk), ("dv", &later.dv, &whole.dv)]
            {
                // A sum of nothing but zeros may have either sign.
                let same = own.iter().zip(expected).all(|(own, expected)| own == expected);
                assert!(same && own.len() == expected.len(), "{name} {products:?} {visible:?} {set:?}");
            }
        }
    }
}

#[test]
fn queries_that_see_nothing_give_zero() {
    let random = &mut Random(5);
    for products in Products::ALL {
        let mut case = Case::new(products, (shape(1, 50, 2, 1, 8), Visible::Causal), false, random);
        case.visible.fill([3, 3]);
        for set in InstructionSet::available() {
            let outputs = case.run(set);
            assert!(outputs.log_sum_exp.iter().all(|value| *value == f32::NEG_INFINITY));
            for values in [outputs.out, outputs.dq, outputs.dk, outputs.dv] {
                assert!(values.iter().all(|value| *value == 0.0));
            }
        }
    }
}

/// Scores far apart: powers that underflow, and a maximum that rises late.
#[test]
fn large_scores_stay_finite() {
    let random = &mut Random(6);
    for products in Products::ALL {
        let mut case = Case::new(products, (shape(1, 130, 1, 1, 8), Visible::Everything), false, random);
        let row = case.row();
        for (token, fused) in case.fused.chunks_mut(row).enumerate() {
            fused[..16].iter_mut().for_each(|value| *value *= 1.0 + token as f32 / 8.0);
        }
        let case = case.rounded();
        let exact = compute(&case.attention(), &case.operands(), products);
        let outputs = case.run(InstructionSet::detect());
        exact.out.assert_holds(&outputs.out, "out");
        exact.log_sum_exp.assert_holds(&outputs.log_sum_exp, "log_sum_exp");
        exact.dq.assert_holds(&outputs.dq, "dq");
        exact.dk.assert_holds(&outputs.dk, "dk");
        exact.dv.assert_holds(&outputs.dv, "dv");
    }
}

/// The slopes of BLOOM-176B, whose 112 heads are not a power of two: 64 of a series of 64, then 48 of one of 128; ranks
/// take theirs by global number.
#[test]
fn slopes_of_any_number_of_heads() {
    let slope = |first_head: usize, head: usize| Alibi { first_head, num_heads: 112 }.slope(head);
    for (head, expected) in [(0, 0.917_004), (63, 0.003_906_25), (64, 0.957_603), (65, 0.878_126), (111, 0.016_317)] {
        assert!((slope(0, head) - expected).abs() < 1e-6, "head {head}: {}", slope(0, head));
        assert_eq!(slope(head, 0), slope(0, head));
    }
    assert_eq!(Alibi { first_head: 0, num_heads: 8 }.slope(7), 2.0f32.powi(-8));
}

/// Products in AMX order: around the edges of blocks, tiles, groups and panels, on every instruction set.
#[test]
fn products_in_pairs_have_the_bits_of_their_definition() {
    let random = &mut Random(8);
    let shapes = [
        shape(2, 1, 1, 1, 1),
        shape(1, 31, 2, 1, 3),
        shape(1, 32, 1, 1, 16),
        shape(1, 33, 1, 1, 33),
        shape(2, 65, 4, 2, 5),
        shape(1, 64, 1, 1, 64),
        shape(1, 100, 1, 1, 128),
        shape(1, 129, 2, 1, 31),
        shape(1, 300, 1, 1, 2),
        // The widest heads, which need the most room.
        shape(1, 40, 1, 1, 512),
    ];
    for (index, (shape, visible)) in with_all_visible(shapes).enumerate() {
        let [plain, biased] =
            Case::new(Products::Pairs, (shape, visible), index % 3 == 1, random).with_and_without_biases();
        let case = if index % 2 == 0 { plain } else { biased };
        let expected = pairs_oracle::compute(&case);
        for set in InstructionSet::available() {
            let name = format!("{set:?} {shape:?} {visible:?} {:?} {:?}", case.alibi, case.dropout);
            assert_equal(&case.run(set), &expected, &name);
        }
    }
}

/// Products in the order of tensor cores: around the edges of blocks, tiles and groups, on every instruction set.
#[test]
fn products_in_blocks_have_the_bits_of_their_definition() {
    let random = &mut Random(9);
    let shapes = [
        shape(2, 1, 1, 1, 1),
        shape(1, 31, 2, 1, 3),
        shape(1, 33, 1, 1, 16),
        shape(2, 65, 4, 2, 5),
        shape(1, 127, 1, 1, 17),
        shape(1, 129, 2, 1, 31),
        shape(1, 270, 1, 1, 2),
        // The widest heads, which need the most room.
        shape(1, 30, 1, 1, 512),
    ];
    let kinds = [Products::Blocks16, Products::Blocks8OfFp16];
    for (index, (shape, visible)) in with_all_visible(shapes).enumerate() {
        let case = Case::new(kinds[index % 2], (shape, visible), index % 3 == 1, random);
        let [plain, biased] = case.with_and_without_biases();
        let case = if index % 4 < 2 { plain } else { biased };
        let expected = blocks_oracle::compute(&case);
        for set in InstructionSet::available() {
            let name = format!("{set:?} {:?} {shape:?} {visible:?} {:?} {:?}", case.products, case.alibi, case.dropout);
            assert_equal(&case.run(set), &expected, &name);
        }
    }
}
