//! Small runs, clean or faulty, and the verdicts that tests share.

use config::{Gathering, GradientReduction, ModelSpec, Overlap, Parallelism, Reshard, TrainSpec, ZeroStage};
use program::{ContributionOrder, Demands, Program, Sizes, State, link, verify};
use prove::{Distance, NoWatch, Outcome, Watch, outcome_watched};
use testkit::layout::Layout;
use testkit::models::{Style, plain_layout, proof_model, proof_training};
use testkit::replicas::Replicas;
use testkit::text::{Labels, ProofText};
use testkit::wrapped_engine::{WrapRank, WrappedEngine};
use train::{RankEngine, Setup, TensorSource, TokenSource, WorkloadIndex};

pub use crate::checklist::findings::*;

/// Largest relative Frobenius distance of a step-1 gradient between layouts that sum in other orders.
pub const GRADIENT_BOUND: f64 = 1e-6;
/// Largest relative distance of a loss.
pub const LOSS_BOUND: f64 = 1e-5;
/// Largest relative Frobenius distance of a weight after a few steps. The first updates are learning rate times sign: a
/// bias is nothing but those, and an element whose gradient is a thousandth of its neighbours' knows it to a
/// thousandth. Faults move weights by the learning rate, a fiftieth of a matrix.
pub const WEIGHT_BOUND: f64 = 1e-3;

/// A text over 61 tokens in which every label counts.
pub const TEXT: ProofText = ProofText { vocabulary: 61, seed: 7, labels: Labels::Every };
/// The same text; sequences have between none and all of their labels.
pub const RAGGED: ProofText = ProofText { labels: Labels::Ragged, ..TEXT };

/// Two layers of 12 heads, 48 wide, vocabulary 257.
pub fn small_model(style: Style, tied_embeddings: bool) -> ModelSpec {
    ModelSpec { num_layers: 2, ..proof_model(style, 12, tied_embeddings) }
}

/// The same without dropout.
pub fn still_model(style: Style, tied_embeddings: bool) -> ModelSpec {
    ModelSpec { dropout: 0.0, attention_dropout: 0.0, ..small_model(style, tied_embeddings) }
}

/// `steps` steps of 8 sequences.
pub fn training(steps: u32) -> TrainSpec {
    TrainSpec { steps, global_batch: 8, warmup_steps: 1, ..proof_training() }
}

/// `dp x tp x pp`, microbatches of one sequence, ZeRO-1 where there is something to shard.
pub fn degrees((dp, tp, pp): (usize, usize, usize)) -> Parallelism {
    let zero = if dp > 1 { ZeroStage::One } else { ZeroStage::Off };
    Parallelism { zero, ..plain_layout(dp, tp, pp, 1) }
}

/// ZeRO-2 with one reduction per step.
pub const TWO: ZeroStage = ZeroStage::Two { reduce: GradientReduction::Step };
/// ZeRO-3 with one reduction per step, parameters gathered one use ahead.
pub const THREE: ZeroStage = three(GradientReduction::Step, 1, Reshard::AfterUse);

/// ZeRO-3 of some kind.
pub const fn three(reduce: GradientReduction, prefetch: usize, reshard: Reshard) -> ZeroStage {
    ZeroStage::Three { reduce, gathering: Gathering { prefetch, reshard } }
}

/// One run: a layout, its tokens, and what is wrong with it.
#[derive(Clone)]
pub struct Case<'a> {
    pub layout: Layout,
    pub tokens: &'a dyn TokenSource,
    pub initial: Option<&'a dyn TensorSource>,
    pub spoil: &'a (dyn Fn(&mut Setup) + Sync),
    pub wrap: &'a WrapRank<'a>,
    pub watch: &'a dyn Watch,
}

/// A rank as it is.
pub fn untouched(_: mesh::Coord, rank: RankEngine) -> RankEngine {
    rank
}

impl<'a> Case<'a> {
    /// A clean run.
    pub fn new(model: &ModelSpec, parallelism: Parallelism, train: &TrainSpec) -> Case<'a> {
        let layout = Layout { model: model.clone(), parallelism, train: train.clone() };
        Case { layout, tokens: &TEXT, initial: None, spoil: &|_| (), wrap: &untouched, watch: &NoWatch }
    }

    pub fn tokens(self, tokens: &'a dyn TokenSource) -> Case<'a> {
        Case { tokens, ..self }
    }

    pub fn initial(self, initial: &'a dyn TensorSource) -> Case<'a> {
        Case { initial: Some(initial), ..self }
    }

    /// With the fault that this function injects into the prepared run.
    pub fn spoilt(self, spoil: &'a (dyn Fn(&mut Setup) + Sync)) -> Case<'a> {
        Case { spoil, ..self }
    }

    /// With every rank wrapped by `wrap`.
    pub fn wrapped(self, wrap: &'a WrapRank<'a>) -> Case<'a> {
        Case { wrap, ..self }
    }

    pub fn watched(self, watch: &'a dyn Watch) -> Case<'a> {
        Case { watch, ..self }
    }

    pub fn setup(&self) -> Setup {
        let mut setup = self.layout.setup().unwrap_or_else(|error| panic!("{:?}: {error}", self.layout.parallelism));
        (self.spoil)(&mut setup);
        setup
    }

    /// The verifier's verdict on the run's programs, edited.
    pub fn verdict_on(&self, edit: impl Fn(&mut Vec<Program>)) -> Verdict {
        let setup = self.setup();
        let mut programs = setup.verified().programs().to_vec();
        edit(&mut programs);
        let case = setup.workload_of(WorkloadIndex::MAIN).record_case(&setup.model, &setup.parallelism, &setup.train);
        let footprints = record::footprints(&case).expect("recorded");
        let sizes = Sizes::new(
            &setup.model,
            &setup.parallelism,
            footprints,
            setup.train.precision.stored(),
            setup.train.sums,
            State::Training,
        );
        let demands = Demands { capacity_bytes: None, order: ContributionOrder::Ascending, overlap: Overlap::Off };
        let violations = link(programs).and_then(|graph| verify(graph, &sizes, demands)).err().unwrap_or_default();
        verdict(violations.iter().map(ToString::to_string))
    }

    /// Runs.
    pub fn outcome(&self) -> Result<Outcome, String> {
        let setup = self.setup();
        let engine = WrappedEngine::new(&setup, self.wrap);
        outcome_watched(&setup, &engine, self.tokens, self.initial, self.watch).map_err(|error| error.to_string())
    }
}

/// Whether a tensor's exact gradient is zero: a key bias shifts all scores of a query alike, unless keys are rotated.
pub fn has_no_gradient(model: &ModelSpec, name: &str) -> bool {
    model.has_idle_key_biases() && name.ends_with("key.bias")
}

/// Whether two runs are as near as layouts with other orders of sums must be.
pub fn within_bounds(model: &ModelSpec, oracle: &Outcome, other: &Outcome) -> Verdict {
    within(GRADIENT_BOUND, model, oracle, other)
}

/// Compares as [`within_bounds`] does, with another bound for gradients.
pub fn within(gradient_bound: f64, model: &ModelSpec, oracle: &Outcome, other: &Outcome) -> Verdict {
    let distance = Distance::between(oracle, other, |name| has_no_gradient(model, name));
    let (gradient, weight) = (&distance.gradient, &distance.weight);
    let compared = [
        ("a loss".to_string(), distance.loss, LOSS_BOUND),
        ("a norm".to_string(), distance.norm, LOSS_BOUND),
        (format!("the gradient of {}", gradient.1), gradient.0, gradient_bound),
        (format!("weight {}", weight.1), weight.0, WEIGHT_BOUND),
    ];
    let far = compared.into_iter().filter(|(_, distance, bound)| distance > bound);
    verdict(far.map(|(what, distance, bound)| format!("{what} is {distance:.1e} away, at most {bound:.0e}")))
}

/// Whether two runs are the same bits.
pub fn same_bits(oracle: &Outcome, other: &Outcome) -> Verdict {
    let distance = Distance::between(oracle, other, |_| false);
    if distance.same_bits { Ok(()) } else { Err(format!("bits differ: {distance:?}")) }
}

/// Whether all copies of every tensor agree, and there were copies at all.
pub fn replicas_agree(replicas: &Replicas) -> Verdict {
    match replicas.compare() {
        Ok(0) => Err("no rank holds what another holds".into()),
        Ok(_) => Ok(()),
        Err(disagreements) => verdict(disagreements.iter().map(ToString::to_string)),
    }
}

/// The data-parallel position of a place in the mesh.
pub fn replica(coord: mesh::Coord) -> usize {
    coord.position(mesh::AxisSet::DATA)
}
