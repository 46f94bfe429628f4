//! Layouts whose ranks divide experts, drawn by a seed, each with a layout of one replica: with exact sums both have
//! the same bits.

use config::{Degrees, ExpertsSpec, GradientSums, ModelSpec, Parallelism, TrainSpec, ZeroStage};
use testkit::layout::Layout;
use testkit::models::plain_layout;

use crate::expert_pairs::{is_legal, model, of_layout, parallelism, training};
use crate::random_choices::RandomChoices;

/// Tells the choices of these layouts from those of other surveys.
const PURPOSE: u32 = 0x6570_7368;
/// Ranks of a layout at most.
const MOST_RANKS: usize = 32;

/// One replica, and many ranks that divide experts, with one model and training.
#[derive(Clone, Debug)]
pub struct SpreadLayout {
    /// One replica with microbatches of one sequence, which as many ranks share as in the other layout.
    pub one: Layout,
    /// The layout with `ep` above 1.
    pub many: Layout,
}

/// The layout of this number: the first that is drawn and that a run file may have.
pub fn draw(seed: u32, number: u32) -> SpreadLayout {
    let mut dice = RandomChoices::new(seed, number, PURPOSE);
    loop {
        let (model, train) = (in_whole_blocks(model(&mut dice)), exact(training(&mut dice)));
        let parallelism = spread(parallelism(&mut dice), &mut dice);
        let of = |parallelism| Layout { model: model.clone(), parallelism, train: train.clone() };
        let drawn = SpreadLayout { one: of(one_replica(&parallelism)), many: of(parallelism) };
        if [&drawn.one, &drawn.many].into_iter().all(|layout| is_legal(layout, MOST_RANKS)) {
            return drawn;
        }
    }
}

/// Matrices of experts of one block of the norm or three. Exact sums exclude adapters.
fn in_whole_blocks(model: ModelSpec) -> ModelSpec {
    let hidden = if model.hidden == 48 { 256 } else { 128 };
    ModelSpec { experts: model.experts.map(|experts| ExpertsSpec { hidden, ..experts }), lora: None, ..model }
}

fn exact(train: TrainSpec) -> TrainSpec {
    TrainSpec { steps: 3, global_batch: 16, sums: GradientSums::Exact, ..train }
}

/// `plain` with replicas that divide experts, and fewer ranks that share matrices, sequences and layers.
fn spread(plain: Parallelism, dice: &mut RandomChoices) -> Parallelism {
    let [ep, replicas] = [dice.one_of(&[2, 2, 4, 8]), dice.one_of(&[1, 1, 2])];
    let [cp, tp, pp] = [(); 3].map(|()| dice.one_of(&[1, 1, 2]));
    let groups = dice.one_of(&[None, Some(ep)]);
    Parallelism {
        degrees: Degrees { dp: ep * replicas, cp, tp, pp },
        ep,
        shard_group: groups.filter(|_| plain.zero != ZeroStage::Off),
        sum_tree: 1,
        ..plain
    }
}

fn one_replica(many: &Parallelism) -> Parallelism {
    let plain = plain_layout(1, 1, 1, 1);
    let Parallelism { degrees, context, sequence_parallel, .. } = many.clone();
    Parallelism { degrees: Degrees { dp: 1, pp: 1, ..degrees }, context, sequence_parallel, ..plain }
}

/// The values of factors that a layout has, by name.
pub fn factors(SpreadLayout { many, .. }: &SpreadLayout) -> Vec<String> {
    let Parallelism { degrees: Degrees { dp, .. }, ep, microbatch_size, .. } = many.parallelism;
    let named = [(dp > ep, "replicas of experts"), (microbatch_size > 1, "several rounds")];
    let acting = named.into_iter().filter(|(acts, _)| *acts).map(|(_, name)| name.to_string());
    of_layout(many).into_iter().chain([format!("ep {ep}")]).chain(acting).collect()
}
