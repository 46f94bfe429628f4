//! Faults in kernels are found: every mutant of every kernel gives a difference or a fault on the GPU in software, but for those that
//! change nothing, which are listed with the reason.

use cuda::code::{CompiledSource, OPTIONS};
use cuda::kernels::{SOURCES, Source};
use nvidia::nvrtc::{Source as CompilerSource, Target};
use softgpu::Settings;

use crate::bench::{Bench, Cases, TARGET, compiler};
use crate::mutants::mutants;
use crate::{activation, dropout, element_wise, embedding, mat_mul, norm, rotary, sums};

/// The end of a mutant's name, and why the mutant computes the same.
pub type Implied = (&'static str, &'static str);

/// Mutants of the kernels below that compute the same.
const IMPLIED: &[Implied] = &[
    ("return left < blockDim.y ? (u32)left : blockDim.y;: <= for < at column 11", BOTH_ARE_EQUAL),
    ("const u64 end = row + GROUP_ROWS < x.rows ? row + GROUP_ROWS : x.rows;: <= for < at column 32", BOTH_ARE_EQUAL),
    ("const u64 end = first + CHUNK < len ? first + CHUNK : len;: <= for < at column 29", BOTH_ARE_EQUAL),
    ("lanes = lanes_left < SIDE ? (u32)lanes_left : SIDE;: <= for < at column 18", BOTH_ARE_EQUAL),
    ("const u32 steps = steps_left < STEPS ? (u32)steps_left : STEPS;: <= for < at column 28", BOTH_ARE_EQUAL),
    ("const u64 end = block + K_BLOCK < steps ? block + K_BLOCK : steps;: <= for < at column 31", BOTH_ARE_EQUAL),
    ("share < 0.0 ? 0.0 : share > 1.0 ? 1.0 : share;: <= for < at column 22", BOTH_ARE_EQUAL),
    (
        "column_sum.cu: for (u64 first = 0; first < count; first += blockDim.y) {: <= for < at column 25",
        "a turn without groups adds nothing",
    ),
    (
        "norm.cu: for (u64 first = 0; first < count; first += blockDim.y) {: <= for < at column 25",
        "a turn without groups adds nothing",
    ),
    (
        "row_sum.cuh: for (u64 first = 0; first < len; first += CHUNK) {: <= for < at column 25",
        "a chunk without elements adds 0 to a sum that is never -0",
    ),
    (
        "norm.cu: for (u64 first = global_team() - team_of_warp; first < count; first += teams) {: <= for < at column 52",
        "the row behind the last is the last once more, and not stored",
    ),
    (
        "embedding.cu: for (u64 first = 0; first < count; first += WINDOW) {: <= for < at column 25",
        "a window without tokens finds none",
    ),
];

/// Of two values that are equal either may be taken.
const BOTH_ARE_EQUAL: &str = "both values are equal there";

/// A kernel that loops longer than this loops forever.
const MOST_INSTRUCTIONS: u64 = 200_000_000;

/// Panics with the mutants of a source that all cases miss, and with reasons for mutants that are found or not there.
pub fn assert_found(name: &str, cases: &[Cases], implied: &[Implied]) {
    let Some((compiler, _)) = compiler() else { return };
    let target: Target = TARGET.parse().expect("a target");
    let source = SOURCES.iter().find(|source| source.name == name).expect("a source");
    let (mut missed, mut used) = (vec![], vec![]);
    let all = mutants(&source.whole());
    assert!(!all.is_empty(), "{name} has no mutants");
    for mutant in &all {
        let text = CompilerSource::new(format!("{name}.cu"), mutant.text.as_str());
        // A text that does not compile is found, too.
        let Ok(compiled) = compiler.compile(&text, &target, OPTIONS) else { continue };
        let code = [CompiledSource { source: Source { ..*source }, code: compiled.code }];
        let is_found = cases.iter().any(|cases| {
            let bench =
                Bench::with_code(&code, Settings { max_warp_instructions: MOST_INSTRUCTIONS, ..Settings::default() });
            cases(&bench);
            bench.first_difference().is_some()
        });
        match implied.iter().find(|(end, _)| mutant.name.ends_with(end)) {
            Some(entry) if !is_found => used.push(entry),
            None if !is_found => missed.push(mutant.name.clone()),
            Some(_) | None => {}
        }
    }
    // A line may be in several places, of which some are found.
    let stale = implied.iter().filter(|entry| !used.contains(entry));
    missed.extend(stale.map(|(end, reason)| format!("{end} is listed ({reason}), but found or not there")));
    println!("{name}: {} mutants", all.len());
    assert!(missed.is_empty(), "{} of {} mutants of {name}:\n{}", missed.len(), all.len(), missed.join("\n"));
}

#[test]
fn faults_in_products_are_found() {
    assert_found("mat_mul", &[mat_mul::edges, mat_mul::minus_zero, mat_mul::ends], IMPLIED);
}

#[test]
fn faults_in_sums_over_rows_are_found() {
    assert_found("column_sum", &[sums::column_sums], IMPLIED);
}

#[test]
fn faults_in_norms_are_found() {
    assert_found("norm", &[norm::norms, norm::input_gradients, norm::weight_gradients], IMPLIED);
}

#[test]
fn faults_in_rotary_positions_are_found() {
    assert_found("rotary", &[rotary::tables, rotary::turns], IMPLIED);
}

#[test]
fn faults_in_activations_are_found() {
    assert_found("activation", &[activation::activations], IMPLIED);
}

#[test]
fn faults_in_dropout_are_found() {
    assert_found("dropout", &[dropout::additions, dropout::gradients], IMPLIED);
}

#[test]
fn faults_in_embeddings_are_found() {
    assert_found("embedding", &[embedding::embeddings], IMPLIED);
}

#[test]
fn faults_in_sums_fills_and_copies_are_found() {
    assert_found("element_wise", &[element_wise::sums_and_copies], IMPLIED);
}
