//! Products of single precision in terms.

use cpu::gemm::{Orientation, PackingBuffers, TermsProduct, Write, gemm_terms};
use cpu::instruction_set::InstructionSet;
use cpu::meter::Meter;

use crate::pairs::case::{Case, Random, Values};
use crate::pairs::{ORIENTATIONS, around_the_edges, bits};

/// Holds one case to the definition on all instruction sets.
fn assert_defined(case: &Case<f32>, packing: &mut PackingBuffers) {
    let mut expected = case.c.clone();
    for row in 0..case.m {
        for column in 0..case.n {
            expected[row * (case.n + case.gap) + column] = case.expected_in_terms(row, column);
        }
    }
    for set in InstructionSet::available() {
        let (actual, expected) = (bits(&case.run_in_terms(set, packing)), bits(&expected));
        let different = actual.iter().zip(&expected).position(|(actual, expected)| actual != expected);
        if let Some(place) = different {
            let (row, column) = (place / (case.n + case.gap), place % (case.n + case.gap));
            let [actual, expected] = [&actual, &expected].map(|bits| f32::from_bits(bits[place]));
            panic!("{set:?}, {}: ({row}, {column}) is {actual:e}, not {expected:e}", case.name());
        }
    }
}

/// Around the edges of tiles, panels and blocks of steps, with every kind of numbers.
#[test]
fn every_set_gives_the_bits_of_the_definition() {
    let random = &mut Random(11);
    let packing = &mut PackingBuffers::new();
    around_the_edges(random, 3, |case| assert_defined(&case, packing));
}

/// More steps than a run has, and more rows and columns than packed blocks have.
#[test]
fn sums_over_several_runs_have_the_bits_of_the_definition() {
    let random = &mut Random(12);
    let packing = &mut PackingBuffers::new();
    for (index, sizes) in [(17, 20, 1600), (35, 9, 513), (2, 700, 600), (400, 2, 512)].into_iter().enumerate() {
        for orientation in ORIENTATIONS {
            assert_defined(&Case::new(orientation, sizes, 3, Values::ALL[index % 4], random), packing);
        }
    }
}

/// Root mean square errors over many elements, in terms and chained, of random operands.
fn root_mean_square_errors(k: usize, packing: &mut PackingBuffers) -> [f64; 2] {
    let case = Case::<f32>::new(Orientation::Nt, (64, 64, k), 0, Values::Usual, &mut Random(14));
    let case = Case { bias: None, write: Write::Assign, ..case };
    let set = InstructionSet::detect();
    [case.run_in_terms(set, packing), case.run_chained(set, packing)].map(|c| {
        let error = |place: usize| f64::from(c[place]) - case.exact(place / case.n, place % case.n).value;
        (c.iter().enumerate().map(|(place, _)| error(place).powi(2)).sum::<f64>() / c.len() as f64).sqrt()
    })
}

/// The root mean square errors of the table in docs/numerics.md.
#[test]
fn as_exact_as_chained_products() {
    let packing = &mut PackingBuffers::new();
    for k in [32, 384, 2048, 8192] {
        let [in_terms, chained] = root_mean_square_errors(k, packing);
        println!("K = {k}: {in_terms:.2e} in terms, {chained:.2e} chained: {:.2}", in_terms / chained);
        assert!(in_terms <= chained, "K = {k}: {in_terms:e} in terms, {chained:e} chained");
    }
}

/// Holds what a case computed to the bound that is written down.
fn assert_within_the_bound(case: &Case<f32>, c: &[f32]) {
    for row in 0..case.m {
        for column in 0..case.n {
            let exact = case.exact(row, column);
            let error = (f64::from(c[row * (case.n + case.gap) + column]) - exact.value).abs();
            let bound = case.bound_in_terms(&exact);
            assert!(error <= bound, "{}: ({row}, {column}) is off by {error:e}, bound {bound:e}", case.name());
        }
    }
}

/// Numbers around 1, and subnormal ones.
#[test]
fn close_to_the_exact_result() {
    let random = &mut Random(13);
    let packing = &mut PackingBuffers::new();
    for (sizes, values) in [((40, 50, 1300), Values::Usual), ((20, 20, 90), Values::Subnormal)] {
        for orientation in ORIENTATIONS {
            let case = Case::<f32>::new(orientation, sizes, 2, values, random);
            let c = case.run_in_terms(InstructionSet::detect(), packing);
            assert_within_the_bound(&case, &c);
        }
    }
}

/// Ties between numbers of bf16 just above powers of two, whose terms are the largest, of one sign or of both.
#[test]
fn numbers_with_the_largest_terms_stay_within_the_bound() {
    let random = &mut Random(16);
    let packing = &mut PackingBuffers::new();
    for (index, k) in [1, 2, 33, 512, 1025].into_iter().enumerate() {
        let mut case = Case::<f32>::new(Orientation::Nt, (12, 12, k), 0, Values::Usual, random);
        for number in case.a.iter_mut().chain(&mut case.b) {
            let below = [0x8000, 0x7f80, 0x8080, 0x7fff][random.below(4)];
            *number = f32::from_bits(number.to_bits() & 0xff80_0000 | below);
            if index % 2 == 0 {
                *number = number.abs();
            }
        }
        let c = case.run_in_terms(InstructionSet::detect(), packing);
        assert_within_the_bound(&case, &c);
    }
}

/// Rows, and columns, computed in separate calls have the same bits as in one call.
#[test]
fn any_cut_of_the_output_gives_the_same_bits() {
    let random = &mut Random(15);
    let packing = &mut PackingBuffers::new();
    for (orientation, sizes) in
        [(Orientation::Nt, (100, 90, 300)), (Orientation::Nn, (70, 300, 40)), (Orientation::Tn, (40, 70, 1300))]
    {
        let case = Case::<f32>::new(orientation, sizes, 5, Values::Usual, random);
        for set in InstructionSet::available() {
            let whole = case.run_in_terms(set, packing);
            let c = case.run_in_four(random, |[a, b], view, bias| {
                let product = TermsProduct { orientation, a, b };
                gemm_terms(product, view, case.write, bias, packing, set, &Meter::new());
            });
            assert!(bits(&c) == bits(&whole), "{set:?}: {}", case.name());
        }
    }
}
