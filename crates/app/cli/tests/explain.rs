//! `pleach explain` of a run with experts: who holds which, in words and drawn.

use std::path::{Path, PathBuf};

use crate::harness::several::Folder;
use crate::harness::{pleach, stderr, stdout};

/// A file of the repository.
fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..").join(path)
}

/// The arguments of `explain` for the example with experts.
fn arguments<'a>(example: &'a str, sets: &[&'a str], more: &[&'a str]) -> Vec<&'a str> {
    let sets = sets.iter().flat_map(|set| ["--set", set]);
    ["explain", example].into_iter().chain(sets).chain(more.iter().copied()).collect()
}

fn explained(sets: &[&str], more: &[&str]) -> String {
    let example = repository("examples/experts.toml").display().to_string();
    let output = pleach(&arguments(&example, sets, more));
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    stdout(&output)
}

/// The lines from the first that begins with `start` to the next that is empty.
fn section(text: &str, start: &str) -> String {
    let lines = text.lines().skip_while(|line| !line.starts_with(start)).take_while(|line| !line.is_empty());
    lines.map(|line| format!("{line}\n")).collect()
}

#[test]
fn explain_shows_who_holds_which_experts() {
    let expected = "\
experts: 8 a layer, 2 for each token, and one with a gate that all tokens go through, a part of it on each tensor-parallel rank
  expert  layer 1 (pp 0)  layers 2 to 3 (pp 1)
  0 to 3  {0 2}           {4 6}
  4 to 7  {1 3}           {5 7}
  gradients of an expert are summed over {0 2} {1 3} {4 6} {5 7}
";
    assert_eq!(section(&explained(&[], &[]), "experts: "), expected);
    let alone =
        ["parallelism.dp=1", "parallelism.tp=8", "parallelism.pp=1", "model.num_heads=8", "model.num_kv_heads=8"];
    let plain = ["model.shared_expert_gate=false", "model.expert_layer_interval=2", "run.ranks=8"];
    let expected = "\
experts: 8 a layer, 2 for each token, and one that all tokens go through, a part of it on each tensor-parallel rank
  expert  layers 1, 3
  0       {0}
  1       {1}
  2       {2}
  3       {3}
  4       {4}
  5       {5}
  6       {6}
  7       {7}
";
    assert_eq!(section(&explained(&[&alone[..], &plain].concat(), &[]), "experts: "), expected);
    let of_rank = explained(&[], &["--rank", "5"]);
    assert!(of_rank.contains("\n  holds experts 4 to 7 of 8 in layers 2 to 3\n"), "{of_rank}");
    // A stage without layers of experts, and a model without experts.
    let late = explained(&["model.first_expert_layer=3"], &["--rank", "1"]);
    assert!(!late.contains("holds experts"), "{late}");
    assert!(!stdout(&pleach(&["explain"])).contains("\nexperts: "));
}

/// `cargo test` shows that the picture of the documentation is the program's.
#[test]
fn explain_draws_who_holds_which_experts() {
    let folder = Folder::new("experts-drawn");
    let file = folder.path("experts.svg");
    explained(&[], &["--svg", &file]);
    let drawn = std::fs::read_to_string(&file).expect("a picture");
    let of_docs = repository("docs/pictures/experts.svg");
    if std::env::var_os("RENEW_LESSONS").is_some() {
        std::fs::write(&of_docs, &drawn).expect("written");
    }
    assert_eq!(drawn, std::fs::read_to_string(of_docs).expect("a picture"), "RENEW_LESSONS=1 draws it again");
    // Three layers are on two stages of four ranks, each of which holds four experts.
    let held: Vec<&str> = drawn.matches("<title>rank ").collect();
    assert_eq!(held.len(), 8 * 4);
    assert!(drawn.contains(">rank 5 (tp 1)</text>") && drawn.contains("<title>rank 5 holds experts 4 to 7</title>"));
    let refused = pleach(&["explain", "--svg", &file]);
    let said = "--svg draws the ranks of experts, which this model does not have; leave it out\n";
    assert_eq!((refused.status.code(), stderr(&refused).as_str()), (Some(2), said));
}
