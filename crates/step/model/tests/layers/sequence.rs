//! The operations of a microbatch, in order, as text: every change of a layer shows here.

use std::collections::HashSet;

use config::{LayerRecompute, ModelSpec, SavedInputs};
use model::{DropoutSite, TensorParallel};

use crate::cases;
use crate::reference::{Exchange, ReferenceDevice};
use crate::rig::{Manner, Rank, Running};

fn operations(model: &ModelSpec, manner: Manner) -> String {
    let rank = Rank::new(model, TensorParallel { size: 1, position: 0 }, cases::SHAPE, manner);
    let device = ReferenceDevice::new(rank.arena_bytes);
    rank.initialize(&device);
    Running::scope(&rank, &device, &Exchange::new(1), |running| {
        running.microbatch(0);
        running.tracer.lines.borrow().join("\n") + "\n"
    })
}

fn assert_equal(actual: &str, expected: &str) {
    for (number, (actual, expected)) in actual.lines().zip(expected.lines()).enumerate() {
        assert_eq!(actual, expected, "operation {}", number + 1);
    }
    assert_eq!(actual.lines().count(), expected.lines().count(), "all operations:\n{actual}");
}

#[test]
fn gpt2_style_with_dropout() {
    let model = ModelSpec { num_layers: 1, dropout: 0.2, attention_dropout: 0.3, ..cases::gpt2() };
    assert_equal(&operations(&model, Manner::PLAIN), include_str!("sequence/gpt2.txt"));
}

/// Parallel blocks share a sum, whose biases are added one after the other.
#[test]
fn neox_style_without_dropout() {
    let model = ModelSpec { num_layers: 1, ..cases::neox() };
    assert_equal(&operations(&model, Manner::PLAIN), include_str!("sequence/neox.txt"));
}

#[test]
fn llama_style_with_recomputation() {
    let model = ModelSpec { num_layers: 1, ..cases::llama() };
    let manner = Manner::recomputing(LayerRecompute::Everything(SavedInputs::Whole));
    assert_equal(&operations(&model, manner), include_str!("sequence/llama.txt"));
}

#[test]
fn every_dropout_draws_a_mask_of_its_own() {
    let of_layer = |layer| {
        [
            DropoutSite::attention_probabilities(layer),
            DropoutSite::attention_output(layer),
            DropoutSite::feed_forward_output(layer),
        ]
    };
    let mut sites = vec![DropoutSite::EMBEDDING];
    sites.extend((0..1000).flat_map(of_layer));
    let distinct: HashSet<String> = sites.iter().map(|site| format!("{site:?}")).collect();
    assert_eq!(distinct.len(), sites.len());
}
