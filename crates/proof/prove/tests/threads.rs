//! The number of threads of a rank is not part of the layout: losses, norms, gradients and weights are the same bits,
//! whatever their number.

use config::{Precision, Products, RunConfig};
use prove::outcome_of;
use testkit::layout::engine;
use testkit::text::{Labels, ProofText};
use train::Setup;

/// The quick start, whose operations are worth a hand-off, on `dp x tp x pp` ranks.
fn quick_start([dp, tp, pp]: [usize; 3], precision: Precision) -> Setup {
    let mut config = RunConfig::quick_start();
    (config.parallelism.degrees.dp, config.parallelism.degrees.tp, config.parallelism.degrees.pp) = (dp, tp, pp);
    (config.train.steps, config.train.global_batch) = (2, 4);
    (config.train.precision, config.model.dropout, config.model.attention_dropout) = (precision, 0.1, 0.1);
    Setup::new(config.model, config.parallelism, config.train).expect("a plan")
}

#[test]
fn results_do_not_depend_on_the_threads_of_a_rank() {
    for (degrees, precision) in [
        ([1, 1, 1], Precision::Fp32(Products::Chained)),
        ([1, 1, 1], Precision::Fp32(Products::Pairs)),
        ([1, 1, 1], Precision::Bf16(Products::Chained)),
        ([1, 1, 1], Precision::Bf16(Products::Pairs)),
        ([1, 1, 1], Precision::Bf16(Products::Blocks16)),
        ([2, 1, 2], Precision::Fp32(Products::Chained)),
    ] {
        let setup = quick_start(degrees, precision);
        let tokens = ProofText { vocabulary: setup.model.vocabulary, seed: 5, labels: Labels::Ragged };
        let outcome = |threads: usize| {
            let engine = engine(&setup, threads);
            outcome_of(&setup, &*engine, &tokens).expect("a run")
        };
        let alone = outcome(1);
        for threads in [2, 3] {
            assert!(outcome(threads) == alone, "{degrees:?} in {precision:?} on {threads} threads per rank");
        }
    }
}
