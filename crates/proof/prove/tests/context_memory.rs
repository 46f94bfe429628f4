//! Memory of ranks that share sequences: of a layer's activations `1 / cp`, to the byte.

#![allow(clippy::unwrap_used, reason = "a test ends where something fails")]

use config::{Degrees, ModelSpec, Parallelism, Recompute, TrainSpec, Unit};
use program::Purpose;
use testkit::models::{Style, plain_layout, proof_model, proof_training};
use train::Setup;

/// Every tensor of a rank's tokens is a multiple of the alignment for each of these degrees.
const DEGREES: [usize; 4] = [1, 2, 4, 8];

fn setup(style: Style, cp: usize, recompute: Recompute) -> Setup {
    let model = ModelSpec { num_layers: 4, context: 1024, ..proof_model(style, 12, true) };
    let train = TrainSpec { global_batch: 2, sequence_length: 1024, ..proof_training() };
    let plain = plain_layout(1, 1, 1, 1);
    let parallelism = Parallelism { degrees: Degrees { cp, ..plain.degrees }, recompute, ..plain };
    Setup::new(model, parallelism, train).unwrap()
}

/// Bytes that a layer keeps of one microbatch between its passes.
fn kept(setup: &Setup) -> usize {
    let workload = setup.workload_of(setup.workload(Purpose::Train).unwrap());
    let case = workload.record_case(&setup.model, &setup.parallelism, &setup.train);
    let footprints = record::footprints(&case).unwrap();
    let layer = footprints.units.of(Unit::Layer(0));
    layer.output_bytes + layer.saved_until_input_bytes + layer.saved_until_weight_bytes + layer.pending_bytes
}

#[test]
fn activations_of_a_rank_are_those_of_its_tokens() {
    for style in [Style::Gpt2, Style::Llama] {
        for recompute in [Recompute::None, Recompute::FULL] {
            let [whole, others @ ..] = DEGREES.map(|cp| (cp, kept(&setup(style, cp, recompute))));
            for (cp, bytes) in others {
                assert_eq!(bytes * cp, whole.1, "{style:?} {recompute:?} cp {cp}");
            }
        }
    }
}

/// Keys and values of all tokens are whole in scratch, of one layer; with several layers the arena falls with the
/// degree.
#[test]
fn arenas_fall_with_the_degree() {
    let arenas = DEGREES.map(|cp| {
        let setup = setup(Style::Gpt2, cp, Recompute::None);
        setup.programs.arena_bytes(0)
    });
    assert!(arenas.windows(2).all(|pair| pair[1] < pair[0]), "{arenas:?}");
}
