//! Products of groups against products of each group: the same bits, and nothing else is read or written.

use std::ops::Range;

use cpu::instruction_set::InstructionSet;
use device::{Dtype, ExpertOp, ExpertRows, Op, Orientation, Tensor, TokenRange, Write};

use super::machine::{Machine, Way};
use super::rows::{Routed, grouped};

const INPUTS: usize = 37;
const OUTPUTS: usize = 70;

/// Operands of a product of groups.
#[derive(Clone, Copy)]
struct Product {
    orientation: Orientation,
    a: Tensor,
    b: Tensor,
    out: Tensor,
    write: Write,
}

impl Product {
    /// Operands for `groups` matrices and `room` rows.
    fn new(on: &Machine, orientation: Orientation, groups: usize, room: usize, write: Write, out: Dtype) -> Product {
        let (a, b, to) = match orientation {
            Orientation::Nt => ((room, INPUTS), (groups * OUTPUTS, INPUTS), (room, OUTPUTS)),
            Orientation::Nn => ((room, OUTPUTS), (groups * OUTPUTS, INPUTS), (room, INPUTS)),
            Orientation::Tn => ((room, OUTPUTS), (room, INPUTS), (groups * OUTPUTS, INPUTS)),
        };
        let [a, b] = [a, b].map(|(rows, cols)| on.stored(rows, cols));
        Product { orientation, a, b, out: on.of_type(to.0, to.1, out), write }
    }

    /// Operands that have rows of experts.
    fn of_rows(&self) -> Vec<Tensor> {
        match self.orientation {
            Orientation::Nt | Orientation::Nn => vec![self.a],
            Orientation::Tn => vec![self.a, self.b],
        }
    }

    fn grouped(self, rows: ExpertRows, tokens: Option<TokenRange>) -> ExpertOp {
        let Product { orientation, a, b, out, write } = self;
        ExpertOp::MatMul { orientation, a, b, out, rows, tokens, write }
    }

    /// The product of one group.
    fn alone(self, group: usize, groups: usize, rows: Range<usize>) -> Op {
        let Product { orientation, a, b, out, write } = self;
        let own = |tensor: Tensor| tensor.rows_of(group * tensor.rows / groups..(group + 1) * tensor.rows / groups);
        let (b, out) = match orientation {
            Orientation::Nt | Orientation::Nn => (own(b), out.rows_of(rows.clone())),
            Orientation::Tn => (b.rows_of(rows.clone()), own(out)),
        };
        Op::MatMul { orientation, a: a.rows_of(rows), b, bias: None, out, write }
    }
}

/// Results of the groups' product, and of the groups one by one.
fn both(way: Way, routed: &Routed, make: impl Fn(&Machine, usize, usize) -> Product, tokens: Option<TokenRange>) {
    let (first, groups) = (routed.experts / 3, routed.experts - routed.experts / 3);
    let sorted = grouped(routed, first, groups, routed.choice.len() + 3);
    let room = sorted.slots.len();
    let takes_part = |slot: &i32| {
        let token = *slot as usize / routed.per_token;
        *slot >= 0 && tokens.is_none_or(|range| (range.start..range.end).contains(&token))
    };
    let results = [true, false].map(|together| {
        let on = Machine::new(if together { way } else { Way { threads: 1, ..way } });
        let choice = on.ints(routed.tokens, &routed.choice);
        let rows = on.rows(choice, routed, first, groups);
        let product = make(&on, groups, room);
        for tensor in product.of_rows() {
            // Rows that do not take part are poison.
            let mut values = on.read(tensor);
            for (row, _) in sorted.slots.iter().enumerate().filter(|(_, slot)| !takes_part(slot)) {
                values[row * tensor.cols..(row + 1) * tensor.cols].fill(f32::NAN);
            }
            on.write(tensor, &values);
        }
        let before = on.device.multiply_adds();
        if together {
            let op = Op::from(product.grouped(rows, tokens));
            on.submit(op);
            let counted = on.device.multiply_adds() - before;
            if tokens.is_none() {
                assert_eq!(counted, op.cost().multiply_adds, "the cost is what is counted where rows are as expected");
            }
        } else {
            for group in 0..groups {
                let all = sorted.offsets[group] as usize..sorted.offsets[group + 1] as usize;
                let of_tokens: Vec<usize> = all.clone().filter(|row| takes_part(&sorted.slots[*row])).collect();
                let start = of_tokens.first().copied().unwrap_or(all.start);
                on.submit(product.alone(group, groups, start..start + of_tokens.len()));
            }
        }
        (on.bytes(), on.read(product.out))
    });
    let [(together, out), (alone, _)] = results;
    assert!(together == alone, "{way:?}");
    if tokens.is_none() {
        assert!(out[..OUTPUTS.min(out.len())].iter().all(|value| value.is_finite()), "{way:?}: poison has spread");
    }
}

const ORIENTATIONS: [Orientation; 3] = [Orientation::Nt, Orientation::Nn, Orientation::Tn];

#[test]
fn groups_have_the_bits_of_products_of_their_own_in_every_order() {
    for way in Way::all() {
        for routed in Routed::cases() {
            for orientation in ORIENTATIONS {
                for (write, out) in [(Write::Assign, way.stored), (Write::Accumulate, Dtype::F32)] {
                    let make = |on: &Machine, groups, room| Product::new(on, orientation, groups, room, write, out);
                    both(way, &routed, make, None);
                }
            }
        }
    }
}

#[test]
fn threads_and_instruction_sets_give_the_same_bits() {
    for set in InstructionSet::available() {
        for threads in 1..=4 {
            for way in Way::all() {
                let way = Way { set, threads, ..way };
                for routed in [Routed::drawn(101, 2, 8), Routed::all_to_last(83, 1, 8)] {
                    for orientation in ORIENTATIONS {
                        let make = |on: &Machine, groups, room| {
                            Product::new(on, orientation, groups, room, Write::Accumulate, Dtype::F32)
                        };
                        both(way, &routed, make, None);
                    }
                }
            }
        }
    }
}

#[test]
fn a_range_of_tokens_takes_part_alone() {
    for way in Way::all() {
        let routed = Routed::drawn(101, 2, 8);
        for (start, end) in [(0, 101), (0, 40), (40, 101), (33, 34), (50, 50), (7, 90)] {
            for orientation in ORIENTATIONS {
                for write in [Write::Assign, Write::Accumulate] {
                    let make =
                        |on: &Machine, groups, room| Product::new(on, orientation, groups, room, write, Dtype::F32);
                    both(way, &routed, make, Some(TokenRange { start, end }));
                }
            }
        }
    }
}

/// The gradient of an expert's weights without rows: zeros where it is assigned, what was there where it is added to.
#[test]
fn experts_without_rows_have_a_gradient_of_zero() {
    for way in Way::all() {
        for threads in [1, 3] {
            let (on, routed) = (Machine::new(Way { threads, ..way }), Routed::all_to_last(20, 1, 4));
            let choice = on.ints(routed.tokens, &routed.choice);
            let rows = on.rows(choice, &routed, 0, 4);
            let (a, b) = (on.stored(rows.slots.cols, OUTPUTS), on.stored(rows.slots.cols, INPUTS));
            let without = OUTPUTS * INPUTS * 3;
            for (write, expected) in [(Write::Assign, 0.0), (Write::Accumulate, 2.5)] {
                let out = on.poison(4 * OUTPUTS, INPUTS, Dtype::F32);
                if write == Write::Accumulate {
                    on.submit(Op::Fill { out, value: 2.5 });
                }
                on.submit(ExpertOp::MatMul { orientation: Orientation::Tn, a, b, out, rows, tokens: None, write });
                let values = on.read(out);
                assert!(values[..without].iter().all(|value| *value == expected), "{way:?}");
                assert!(values[without..].iter().all(|value| value.is_finite() && *value != expected), "{way:?}");
            }
        }
    }
}
