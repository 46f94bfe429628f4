//! N1: where tensor-parallel ranks shard the tokens, the gradients of parameters that they hold whole and apply to
//! tokens of their own (norms, biases after sums, positions) are summed over them. And of N25: each token draws its own
//! mask, whichever rank holds it.

use config::{ModelSpec, Parallelism, SequenceParallel, Unit};
use device::Op;
use mesh::Axis;
use program::PeerGroup;
use testkit::intercepted::{Call, alter_ops, drop_calls};
use testkit::models::Style;
use testkit::replicas::Replicas;
use testkit::wrapped_engine::WrapRank;
use train::RankEngine;

use crate::checklist::rig::*;

/// Tokens of a microbatch of one sequence.
const TOKENS: u64 = 8;

fn model(style: Style) -> ModelSpec {
    ModelSpec { dropout: 0.5, attention_dropout: 0.5, ..small_model(style, style == Style::Gpt2) }
}

fn sequence_parallel(at: (usize, usize, usize)) -> Parallelism {
    Parallelism { sequence_parallel: SequenceParallel::On, ..degrees(at) }
}

/// Whether the layout learns what one rank learns, and whether its copies agree.
fn check(style: Style, at: (usize, usize, usize), wrap: &WrapRank<'_>) -> (Verdict, Verdict) {
    let (model, train) = (model(style), training(2));
    let one = Case::new(&model, degrees((1, 1, 1)), &train).outcome().expect("one rank");
    let replicas = Replicas::every(1);
    let other = Case::new(&model, sequence_parallel(at), &train).wrapped(wrap).watched(&replicas).outcome();
    (other.and_then(|other| within_bounds(&model, &one, &other)), replicas_agree(&replicas))
}

#[test]
fn tokens_can_be_shared_out() {
    for (style, at) in [(Style::Gpt2, (1, 2, 1)), (Style::Llama, (1, 4, 1)), (Style::Gpt2, (2, 2, 2))] {
        let (near, equal) = check(style, at, &untouched);
        assert_holds(near);
        assert_holds(equal);
    }
}

#[test]
fn gradients_of_a_part_of_the_tokens_are_found() {
    // The sums over tensor parallelism of vectors as long as the residual stream is wide, and of nothing else.
    let unsummed = |_, rank: RankEngine| {
        drop_calls(rank, PeerGroup::TENSOR, |call| matches!(call, Call::AllReduce(x, _) if (x.rows, x.cols) == (1, 48)))
    };
    let (near, equal) = check(Style::Llama, (1, 2, 1), &unsummed);
    assert_found(near, "norm.weight");
    assert_found(equal, "norm.weight differ");
    let (near, equal) = check(Style::Gpt2, (1, 2, 1), &unsummed);
    assert_found(near, "the gradient of");
    assert_found(equal, "attention.output.bias differ");
}

#[test]
fn masks_that_forget_which_tokens_a_rank_holds_are_found() {
    let from_the_first_token = |_, rank: RankEngine| {
        alter_ops(rank, |op| {
            if let Op::DropoutAdd { dropout: Some(key), .. } | Op::DropoutBackward { dropout: key, .. } = op {
                key.first_token -= key.first_token % TOKENS;
            }
        })
    };
    assert_found(check(Style::Gpt2, (1, 2, 1), &from_the_first_token).0, "the gradient of");
}

#[test]
fn tokens_that_stay_where_they_are_are_found() {
    let ungathered =
        |_, rank: RankEngine| drop_calls(rank, PeerGroup::TENSOR, |call| matches!(call, Call::AllGather(_)));
    assert_found(check(Style::Llama, (1, 2, 1), &ungathered).0, "a loss is");
}

/// Reduce-scatter and all-reduce add the same numbers in the same order, so sharding tokens changes no bit of a forward
/// pass, of gradients of activations or of a matrix's gradient. It changes only gradients that are now sums over ranks:
/// the class \"other sums\".
#[test]
fn only_gradients_that_are_summed_over_ranks_change() {
    for style in [Style::Gpt2, Style::Llama] {
        let (model, train, at) = (model(style), training(1), (1, 2, 1));
        let [whole, shared] = [degrees(at), sequence_parallel(at)]
            .map(|layout| Case::new(&model, layout, &train).outcome().expect("runs"));
        assert_eq!(whole.losses[0].to_bits(), shared.losses[0].to_bits(), "{style}: the first loss");
        let units = [Unit::Table, Unit::Head].into_iter().chain(Unit::computing(model.num_layers));
        let mut same = 0;
        for param in units.flat_map(|unit| config::params(&model, unit)) {
            let summed = |layout: Parallelism| config::gradient_axes(&param, &layout).contains(Axis::Tp);
            let is_summed_now = summed(sequence_parallel(at)) && !summed(degrees(at));
            let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
            let is_same = bits(&whole.gradients[&param.name]) == bits(&shared.gradients[&param.name]);
            assert!(is_same || is_summed_now, "{style}: the gradient of {}", param.name);
            same += usize::from(is_same);
        }
        assert!(same > 10, "{same}");
    }
}
