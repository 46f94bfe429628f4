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
    assert_found("mat_mul", &[mat_mul::edges, mat_mul::minus_zero], &[]);
}

#[test]
fn faults_in_sums_over_rows_are_found() {
    assert_found("column_sum", &[sums::column_sums], &[]);
}

#[test]
fn faults_in_norms_are_found() {
    assert_found("norm", &[norm::norms, norm::input_gradients, norm::weight_gradients], &[]);
}

#[test]
fn faults_in_rotary_positions_are_found() {
    assert_found("rotary", &[rotary::tables, rotary::turns], &[]);
}

#[test]
fn faults_in_activations_are_found() {
    assert_found("activation", &[activation::activations], &[]);
}

#[test]
fn faults_in_dropout_are_found() {
    assert_found("dropout", &[dropout::additions, dropout::gradients], &[]);
}

#[test]
fn faults_in_embeddings_are_found() {
    assert_found("embedding", &[embedding::embeddings], &[]);
}

#[test]
fn faults_in_sums_fills_and_copies_are_found() {
    assert_found("element_wise", &[element_wise::sums_and_copies], &[]);
}
