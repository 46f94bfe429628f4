//! Products in AMX order and in terms: the bits of the definition on every instruction set, of AMX too where the
//! machine has it.

mod against_f64;
mod case;
pub mod definition;
mod oracle;
mod specials;
mod terms;

use case::{Case, Drawn, Random, Values};
use cpu::gemm::{Orientation, PackingBuffers, PairsOperand, PairsProduct, Write, gemm_pairs};
use cpu::instruction_set::InstructionSet;
use cpu::meter::Meter;
use cpu::view::{MatMut, MatRef};
use device::{Bf16, Element};

const ORIENTATIONS: [Orientation; 3] = [Orientation::Nt, Orientation::Nn, Orientation::Tn];

/// Holds one case to the definition on all instruction sets, with C in single precision and in bf16.
fn assert_defined(case: &Case<Bf16>, packing: &mut PackingBuffers) {
    let expected: Vec<Vec<f32>> =
        (0..case.m).map(|row| (0..case.n).map(|column| case.expected(row, column)).collect()).collect();
    for set in InstructionSet::available() {
        let (single, narrow) = (case.run::<f32>(set, packing), case.run::<Bf16>(set, packing));
        for (row, expected) in expected.iter().enumerate() {
            let start = row * (case.n + case.gap);
            for (column, expected) in expected.iter().enumerate() {
                let rounded = Bf16::narrow(*expected).widen();
                for (actual, expected) in [(single[start + column], *expected), (narrow[start + column], rounded)] {
                    assert!(
                        actual.to_bits() == expected.to_bits() || actual.is_nan() && expected.is_nan(),
                        "{set:?}, {}: ({row}, {column}) is {actual:e}, not {expected:e}",
                        case.name()
                    );
                }
            }
            let between = start + case.n..start + case.n + case.gap;
            for c in [&single, &narrow] {
                let [now, before] = [&c[between.clone()], &case.c[between.clone()]].map(bits);
                assert_eq!(now, before, "{set:?}, {}: after row {row}", case.name());
            }
        }
    }
}

fn bits(values: &[f32]) -> Vec<u32> {
    // A NaN that is copied as bf16 and back stays one, which is enough here.
    values.iter().map(|value| if value.is_nan() { f32::NAN.to_bits() } else { value.to_bits() }).collect()
}

/// Around the edges of tiles, panels and blocks of steps, with every kind of numbers.
#[test]
fn every_set_gives_the_bits_of_the_definition() {
    let random = &mut Random(1);
    let packing = &mut PackingBuffers::new();
    around_the_edges(random, 6, |case| assert_defined(&case, packing));
}

/// Cases with every kind of numbers in every orientation: at edges, and of this many sizes that are drawn.
fn around_the_edges<T: Drawn>(random: &mut Random, drawn: usize, mut check: impl FnMut(Case<T>)) {
    let edges = [(1, 1, 1), (1, 1, 0), (3, 5, 0), (16, 16, 32), (17, 33, 31), (12, 32, 64), (13, 31, 65)];
    let drawn: Vec<_> = (0..drawn).map(|_| (1 + random.below(70), 1 + random.below(80), random.below(140))).collect();
    for sizes in edges.into_iter().chain(drawn) {
        for orientation in ORIENTATIONS {
            for values in Values::ALL {
                let gap = random.below(3) * random.below(20);
                check(Case::new(orientation, sizes, gap, values, random));
            }
        }
    }
}

/// More steps than a panel has, so that sums wait in memory, and more rows and columns than packed blocks have.
#[test]
fn sums_that_wait_in_memory_have_the_same_bits() {
    let random = &mut Random(2);
    let packing = &mut PackingBuffers::new();
    for (index, sizes) in [(17, 35, 7000), (35, 9, 3073), (270, 70, 515), (5, 2100, 260)].into_iter().enumerate() {
        for orientation in ORIENTATIONS {
            let case = Case::new(orientation, sizes, 3, Values::ALL[index % 4], random);
            assert_defined(&case, packing);
        }
    }
}

/// 2^-126 plus or minus about 2^-150: what becomes zero depends on how the sum is rounded.
#[test]
fn sums_at_the_border_of_normal_numbers_are_those_of_the_definition() {
    let packing = &mut PackingBuffers::new();
    let power = |exponent: i32| Bf16::narrow(2.0f64.powi(exponent) as f32);
    let (zero, sign) = (Bf16(0), Bf16(0x8000).0);
    // The first pair's product is 2^-126, the second's between 2^-154 and 2^-146, of either sign.
    let second = |lane: usize| Bf16(power(-73 - (lane % 5) as i32).0 | if lane.is_multiple_of(2) { sign } else { 0 });
    let operand = |lane: usize| [power(-63), zero, second(lane), zero, power(-63), power(-63), zero, second(lane + 1)];
    let random = &mut Random(3);
    let case = Case::new(Orientation::Nt, (20, 35, 8), 0, Values::Usual, random);
    let [a, b] = [20, 35].map(|lanes| (0..lanes).flat_map(operand).collect());
    let case = Case { a, b, bias: None, write: Write::Assign, ..case };
    assert_defined(&case, packing);
    let short = |of: &[Bf16]| of.chunks(8).flat_map(|lane| lane[..4].to_vec()).collect();
    let case = Case { k: 4, a: short(&case.a), b: short(&case.b), ..case };
    assert_defined(&case, packing);
    let c = case.run::<f32>(InstructionSet::detect(), packing);
    assert!(c.contains(&0.0) && c.contains(&f32::MIN_POSITIVE), "both sides of the border");
}

#[test]
fn close_to_the_exact_result() {
    let random = &mut Random(4);
    let packing = &mut PackingBuffers::new();
    for (sizes, values) in [((40, 50, 700), Values::Usual), ((20, 20, 90), Values::Subnormal)] {
        for orientation in ORIENTATIONS {
            let case = Case::<Bf16>::new(orientation, sizes, 2, values, random);
            let c = case.run::<f32>(InstructionSet::detect(), packing);
            for row in 0..case.m {
                for column in 0..case.n {
                    let exact = case.exact(row, column);
                    let bound = case.bound(&exact);
                    let error = (f64::from(c[row * (case.n + case.gap) + column]) - exact.value).abs();
                    assert!(error <= bound, "{}: ({row}, {column}) is off by {error:e}, bound {bound:e}", case.name());
                }
            }
        }
    }
}

/// Rows, and columns, computed in separate calls have the same bits as in one call.
#[test]
fn any_cut_of_the_output_gives_the_same_bits() {
    let random = &mut Random(5);
    let packing = &mut PackingBuffers::new();
    for (orientation, sizes) in
        [(Orientation::Nt, (100, 90, 300)), (Orientation::Nn, (70, 300, 40)), (Orientation::Tn, (40, 70, 3600))]
    {
        let case = Case::new(orientation, sizes, 5, Values::Usual, random);
        for set in InstructionSet::available() {
            let whole = case.run::<f32>(set, packing);
            let c = case.run_in_four(random, |operands, view, bias| {
                let [a, b] = operands.map(PairsOperand::Bf16);
                let product = PairsProduct { orientation, a, b };
                gemm_pairs(product, view, case.write, bias, packing, set, &Meter::new());
            });
            assert!(bits(&c) == bits(&whole), "{set:?}: {}", case.name());
        }
    }
}

/// An operand in single precision enters as if it were stored in bf16: either of the two, or both, of any size.
#[test]
fn operands_in_single_precision_enter_rounded() {
    let random = &mut Random(6);
    let packing = &mut PackingBuffers::new();
    let sizes = [(37, 70, 45), (300, 40, 700), (9, 420, 3300), (3, 2, 0), (17, 33, 65), (20, 40, 31)];
    let cases = ORIENTATIONS.into_iter().flat_map(|orientation| sizes.map(|sizes| (orientation, sizes)));
    for ((orientation, sizes), values) in cases.zip(Values::ALL.into_iter().cycle()) {
        let case = Case::new(orientation, sizes, 3, values, random);
        // Anything from half a unit below a number of bf16 to half a unit above; ties, and what becomes infinite, too.
        let mut singles = |of: &[Bf16]| -> Vec<f32> {
            let mut near = |bits: u32| {
                let magnitude = (bits & 0x7fff_ffff) + random.next() as u32 % 0x1_0001;
                f32::from_bits(bits & 0x8000_0000 | magnitude.saturating_sub(0x8000))
            };
            of.iter().map(|number| near(number.widen().to_bits())).collect()
        };
        let [a, b] = [singles(&case.a), singles(&case.b)];
        let rounded = |of: &[f32]| -> Vec<Bf16> { of.iter().map(|value| Bf16::narrow(*value)).collect() };
        let case = Case { a: rounded(&a), b: rounded(&b), ..case };
        for set in InstructionSet::available() {
            let expected = case.run::<f32>(set, packing);
            for sides in [[true, false], [false, true], [true, true]] {
                let stored = case.operands();
                let singles = [(&a, 0), (&b, 1)].map(|(values, side)| {
                    let (rows, cols) = case.shapes()[side];
                    MatRef::new(values, rows, cols, cols + case.gap)
                });
                let [a, b] = [0, 1].map(|side| {
                    if sides[side] { PairsOperand::Rounded(singles[side]) } else { PairsOperand::Bf16(stored[side]) }
                });
                let mut c = case.c.clone();
                let view = MatMut::new(&mut c, case.m, case.n, case.n + case.gap);
                let product = PairsProduct { orientation, a, b };
                gemm_pairs(product, view, case.write, case.bias.as_deref(), packing, set, &Meter::new());
                assert!(bits(&c) == bits(&expected), "{set:?}, single {sides:?}: {}", case.name());
            }
        }
    }
}
