//! Products in blocks: the words of single blocks, and the bits of the definition on every instruction set, for any
//! shape, stride and cut.

mod case;
pub mod definition;
mod errors;
mod words;

use case::{Case, Random, Single, Values};
use cpu::gemm::{BlockRule, Operand, Orientation, PIECE, Write};
use cpu::instruction_set::InstructionSet;
use cpu::lanes::Stored;
use cpu::view::MatRef;
use definition::Definition;
use device::{Bf16, Element, F16};

const ORIENTATIONS: [Orientation; 3] = [Orientation::Nt, Orientation::Nn, Orientation::Tn];
const ORDERS: [(BlockRule, Definition); 2] =
    [(BlockRule::BLOCKS16, Definition::BLOCKS16), (BlockRule::BLOCKS8, Definition::BLOCKS8)];

/// As bits; NaNs are one, for adding to one, or storing it in a narrow type, may make another.
fn bits(value: f32) -> u32 {
    if value.is_nan() { f32::NAN.to_bits() } else { value.to_bits() }
}

/// An element of C as it is defined, before it is rounded to the type of C.
fn expected<E: Stored>(case: &Case<E>, definition: Definition, (row, column): (usize, usize)) -> f32 {
    let piece = match case.orientation {
        Orientation::Tn => PIECE,
        Orientation::Nt | Orientation::Nn => case.k.max(1),
    };
    let old = case.c[row * (case.n + case.gap) + column];
    let mut c = match case.write {
        Write::Assign => None,
        Write::Accumulate => Some(old),
    };
    for first in (0..case.k.max(1)).step_by(piece) {
        let steps = piece.min(case.k - first);
        let sum = definition.continued(0.0, steps, |step| case.factors((row, column), first + step));
        c = Some(c.map_or(sum, |c| c + sum));
    }
    let c = c.unwrap_or(0.0);
    case.bias.as_ref().map_or(c, |bias| c + bias[column])
}

/// Holds one case to the definition on all instruction sets, with C in single precision and in the narrow type.
fn assert_defined<E: Stored>(case: &Case<E>, definition: impl Fn(Definition) -> Definition)
where
    for<'a> Operand<'a>: From<MatRef<'a, E>>,
{
    for (rule, of_rule) in ORDERS {
        let places = (0..case.m).flat_map(|row| (0..case.n).map(move |column| (row, column)));
        let expected: Vec<_> = places.map(|place| (place, expected(case, definition(of_rule), place))).collect();
        for (index, set) in InstructionSet::available().into_iter().enumerate() {
            let single = [Single::Nothing, Single::Left, Single::Right][index % 3];
            let results = [case.run::<f32>(rule, single, set), case.run::<E>(rule, Single::Nothing, set)];
            for ((row, column), expected) in &expected {
                let at = row * (case.n + case.gap) + column;
                for (result, expected) in results.iter().zip([*expected, E::narrow(*expected).widen()]) {
                    assert!(
                        bits(result[at]) == bits(expected),
                        "{set:?}, blocks of {}, {}: ({row}, {column}) is {:e}, not {expected:e}",
                        rule.steps,
                        case.name(),
                        result[at]
                    );
                }
            }
            for row in 0..case.m {
                let between = row * (case.n + case.gap) + case.n..(row + 1) * (case.n + case.gap);
                for result in &results {
                    let same = |at: usize| bits(result[at]) == bits(case.c[at]);
                    assert!(between.clone().all(same), "{set:?}, {}: after row {row}", case.name());
                }
            }
        }
    }
}

/// Around the edges of tiles, panels and blocks of steps, with every kind of numbers.
#[test]
fn every_set_gives_the_bits_of_the_definition() {
    let random = &mut Random(1);
    let edges = [(1, 1, 1), (1, 1, 0), (3, 5, 0), (16, 16, 16), (17, 33, 31), (12, 32, 64), (13, 31, 65), (2, 15, 8)];
    let drawn: Vec<_> = (0..6).map(|_| (1 + random.below(40), 1 + random.below(50), random.below(140))).collect();
    for sizes in edges.into_iter().chain(drawn) {
        for orientation in ORIENTATIONS {
            for values in Values::ALL {
                let gap = random.below(3) * random.below(20);
                assert_defined(&Case::<Bf16>::new(orientation, sizes, gap, values, random), |definition| definition);
                assert_defined(&Case::<F16>::new(orientation, sizes, gap, values, random), Definition::of_fp16);
            }
        }
    }
}

/// More rows, columns and steps than are packed at once.
#[test]
fn sums_that_wait_in_memory_have_the_same_bits() {
    let random = &mut Random(2);
    for (index, sizes) in [(260, 3, 530), (3, 270, 300), (258, 257, 20)].into_iter().enumerate() {
        for orientation in ORIENTATIONS {
            let case = Case::<Bf16>::new(orientation, sizes, 3, Values::ALL[index % 2], random);
            assert_defined(&case, |definition| definition);
        }
    }
}

/// Sums over tokens are cut every 8,192 rows; others are not.
#[test]
fn sums_over_many_tokens_are_cut_into_pieces() {
    let random = &mut Random(3);
    for k in [PIECE - 1, PIECE, PIECE + 1, 2 * PIECE + 40] {
        for orientation in ORIENTATIONS {
            for write in [Write::Assign, Write::Accumulate] {
                let case = Case::<Bf16>::new(orientation, (3, 4, k), 0, Values::Usual, random);
                assert_defined(&Case { write, ..case }, |definition| definition);
            }
        }
    }
    let case = Case::<Bf16>::new(Orientation::Tn, (8, 8, 2 * PIECE), 0, Values::Usual, random);
    let case = Case { write: Write::Assign, bias: None, ..case };
    let whole = Definition::BLOCKS16.continued(0.0, case.k, |step| case.factors((0, 0), step));
    let cut = case.run::<f32>(BlockRule::BLOCKS16, Single::Nothing, InstructionSet::detect())[0];
    assert!(whole != cut, "pieces are added to each other in single precision");
}

/// Rows, and columns, computed in separate calls have the same bits as in one call.
#[test]
fn any_cut_of_the_output_gives_the_same_bits() {
    let random = &mut Random(5);
    for orientation in ORIENTATIONS {
        let case = Case::<Bf16>::new(orientation, (50, 70, 90), 5, Values::Wide, random);
        for set in InstructionSet::available() {
            let whole = case.run::<f32>(BlockRule::BLOCKS16, Single::Nothing, set);
            for _ in 0..4 {
                let (row, column) = (random.below(case.m), random.below(case.n));
                let part = one_element(&case, (row, column), set);
                let expected = whole[row * (case.n + case.gap) + column];
                assert!(bits(part) == bits(expected), "{set:?}: ({row}, {column}) of {}", case.name());
            }
        }
    }
}

/// An element in a call of its own.
fn one_element(case: &Case<Bf16>, (row, column): (usize, usize), set: InstructionSet) -> f32 {
    let (a, b): (Vec<Bf16>, Vec<Bf16>) = (0..case.k)
        .map(|step| case.factors((row, column), step))
        .map(|(a, b)| (Bf16::narrow(a), Bf16::narrow(b)))
        .unzip();
    let c = vec![case.c[row * (case.n + case.gap) + column]];
    let bias = case.bias.as_ref().map(|bias| vec![bias[column]]);
    let own = Case { orientation: Orientation::Nt, m: 1, n: 1, k: case.k, gap: 0, a, b, c, bias, write: case.write };
    own.run::<f32>(BlockRule::BLOCKS16, Single::Nothing, set)[0]
}

/// An operand in single precision enters as if it were stored in the type of the other one.
#[test]
fn operands_in_single_precision_enter_rounded() {
    let random = &mut Random(6);
    for orientation in ORIENTATIONS {
        let case = Case::<Bf16>::new(orientation, (9, 17, 33), 0, Values::Usual, random);
        // Up to half a last place above or below, and ties.
        let mut near = |number: &Bf16| {
            let word = number.widen().to_bits() + random.below(0x1_0001) as u32 - 0x8000;
            f32::from_bits(word)
        };
        let single: Vec<f32> = case.a.iter().map(&mut near).collect();
        let rounded: Vec<Bf16> = single.iter().map(|value| Bf16::narrow(*value)).collect();
        let [(a_rows, a_cols), (b_rows, b_cols)] = case.shapes();
        let b = Operand::Bf16(MatRef::dense(&case.b, b_rows, b_cols));
        for set in InstructionSet::available() {
            let [of_single, of_rounded] = [
                Operand::F32(MatRef::dense(&single, a_rows, a_cols)),
                Operand::Bf16(MatRef::dense(&rounded, a_rows, a_cols)),
            ]
            .map(|a| case.multiply::<f32>([a, b], BlockRule::BLOCKS16, set));
            assert!(of_single == of_rounded, "{set:?}: {}", case.name());
        }
    }
}
