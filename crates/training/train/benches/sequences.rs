//! Two ranks of one thread each that share a sequence, compared with one rank with two threads on the same cores:
//! `cargo bench -p train --bench sequences [-- TOKENS]`, without a number for 8,192 tokens.
//!
//! The Llama of 12 million parameters of `bench/compare` takes one sequence a step. One rank and every kind of context
//! parallelism take turns, a short run each; then operations are timed for the imbalance of ranks.

use imbalance::imbalance;
use mesh::Axis;
use testkit::layout::engine;
use timed::{FOLDER, Length, load, median, seconds_of_steps};
use train::Setup;

mod imbalance;
mod timed;

const LENGTH: Length = Length { warm_up: 1, timed: 3 };
const ROUNDS: usize = 3;
const TOKENS: usize = 8192;
/// Names with the keys of a run.
const KINDS: [(&str, &[&str]); 4] = [
    ("gather", &["parallelism.cp_kind=gather"]),
    ("heads", &["parallelism.cp_kind=heads"]),
    ("ring", &["parallelism.cp_kind=ring"]),
    ("ring with overlap", &["parallelism.cp_kind=ring", "parallelism.overlap=true"]),
];

fn setup(tokens: usize, changes: &[String]) -> Setup {
    let sizes = [format!("model.context={tokens}"), format!("train.sequence_length={tokens}")];
    load(&format!("{FOLDER}/llama_12m_65536.toml"), &[&sizes, changes].concat()).1
}

fn main() {
    let tokens = std::env::args().skip(1).find_map(|argument| argument.parse().ok()).unwrap_or(TOKENS);
    let one_rank = setup(tokens, &["parallelism.cp=1".into()]);
    let shared = KINDS.map(|(_, keys)| {
        let keys = keys.iter().map(|key| (*key).to_string()).chain(["parallelism.cp=2".into()]);
        setup(tokens, &keys.collect::<Vec<String>>())
    });
    let mut seconds = KINDS.map(|_| Vec::new());
    let mut ratios = KINDS.map(|_| Vec::new());
    for _ in 0..ROUNDS {
        let of_one = median(seconds_of_steps(&one_rank, &*engine(&one_rank, 2), LENGTH));
        for ((setup, seconds), ratios) in shared.iter().zip(&mut seconds).zip(&mut ratios) {
            let own = median(seconds_of_steps(setup, &*engine(setup, 1), LENGTH));
            seconds.push(own);
            ratios.push(of_one / own);
        }
    }
    for ((((name, _), setup), seconds), ratios) in KINDS.iter().zip(&shared).zip(seconds).zip(ratios) {
        let imbalance = 100.0 * (imbalance(setup, Axis::Cp, LENGTH) - 1.0);
        println!(
            "cp 2 by {name}, 1 x {tokens} tokens: {:.0} ms a step, {:.3} of one rank's speed (by round {ratios:.3?}), \
             imbalance of ranks {imbalance:.1} %",
            1e3 * median(seconds),
            median(ratios.clone())
        );
    }
}
