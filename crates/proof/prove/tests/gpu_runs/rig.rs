//! Small models on 2 x 2 x 2 ranks, on CPUs and on GPUs in software.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use checkpoint::{Committer, Disk, Retention, Store, committed};
use config::{
    Activation, Blocks, Format, Gathering, GradientReduction, GradientSums, LocalAttention, ModelSpec, Norm, NormKind,
    Overlap, Parallelism, Products, Reach, Reshard, Tied, TrainSpec, ZeroStage,
};
use prove::{First, NoWatch, Outcome, ProofError, RunPart, outcome_of, outcome_of_run};
use testkit::layout::{Layout, engine};
use testkit::models::{plain_layout, proof_text};
use testkit::numbers::{GLOBAL_BATCH, Numbers, model, training};
use testkit::resumed::{newest, resumed_spec};
use testkit::soft_gpus::{gpu_engine, soft_gpus};
use train::{Engine, Gpus, GraphNotice, GraphUse, Saving, Setup, Start};

/// Devices of ranks.
#[derive(Clone)]
pub enum On {
    Cpus,
    Gpus(Arc<Gpus>),
}

impl On {
    pub fn engine(&self, setup: &Setup) -> Box<dyn Engine> {
        match self {
            On::Cpus => engine(setup, 1),
            On::Gpus(gpus) => Box::new(gpu_engine(setup, gpus)),
        }
    }
}

pub const ZERO_THREE: ZeroStage = ZeroStage::Three {
    reduce: GradientReduction::Microbatch,
    gathering: Gathering { prefetch: 1, reshard: Reshard::AfterUse },
};

/// Sequences of a step: two microbatches of two for each of two replicas.
const SEQUENCES: usize = 8;

/// GPT-2 where the table is tied and Llama where not, for `steps` steps, on `dp x tp x pp` ranks.
pub fn layout(tied: Tied, degrees: [usize; 3], zero: ZeroStage, overlap: Overlap, steps: u32) -> Layout {
    stored_layout(Format::Fp32, tied, degrees, zero, overlap, steps)
}

/// Returns the same as [`layout`], with parameters and activations stored in `format`.
pub fn stored_layout(
    format: Format,
    tied: Tied,
    [dp, tp, pp]: [usize; 3],
    zero: ZeroStage,
    overlap: Overlap,
    steps: u32,
) -> Layout {
    let numbers = Numbers::new(format, GradientSums::Single, Products::Chained);
    Layout {
        model: model(tied),
        parallelism: Parallelism { zero, overlap: Some(overlap), ..plain_layout(dp, tp, pp, 2) },
        train: TrainSpec { steps, global_batch: SEQUENCES, ..training(numbers) },
    }
}

/// With more sequences in a step: losses fall in every step, and a step has more calls.
pub fn with_more_sequences(layout: Layout) -> Layout {
    Layout { train: TrainSpec { global_batch: GLOBAL_BATCH, ..layout.train }, ..layout }
}

/// A model as Gemma 2: soft caps of scores and logits, windows in every second layer, and norms around blocks.
pub fn gemma(model: ModelSpec) -> ModelSpec {
    ModelSpec {
        norm: Norm { kind: NormKind::RmsPlusOne, ..model.norm },
        activation: Activation::GeGluTanh,
        blocks: Blocks::Sandwich,
        embedding_scale: Some((model.hidden as f32).sqrt()),
        query_scalar: Some(12.0),
        local_attention: Some(LocalAttention {
            window: 3,
            pattern: vec![Reach::Local, Reach::Global],
            rotary_base: None,
        }),
        attention_soft_cap: Some(2.0),
        logit_soft_cap: Some(3.0),
        ..model
    }
}

/// All of a run.
pub fn outcome(layout: &Layout, on: &On) -> Result<Outcome, ProofError> {
    let setup = layout.setup()?;
    outcome_of(&setup, &*on.engine(&setup), &proof_text())
}

/// The steps from the newest checkpoint in `folder`, if there is one, until `until` are done; ends with a checkpoint.
pub fn part_of_run(layout: &Layout, on: &On, until: u32, folder: &Path) -> Outcome {
    part_that_saves_every(0, layout, on, until, folder)
}

/// Runs as [`part_of_run`] does, with a checkpoint after `every` steps each.
pub fn part_that_saves_every(every: u32, layout: &Layout, on: &On, until: u32, folder: &Path) -> Outcome {
    let store = Store::open(folder, Arc::new(Disk), Retention { newest: usize::MAX, every: 0, best: 0 });
    let store = store.expect("a store");
    let is_new = committed(folder).expect("a folder").is_empty();
    let before = (!is_new).then(|| newest(folder).expect("a checkpoint"));
    let train = before.as_ref().map_or(layout.train.clone(), |before| resumed_spec(&layout.train, before));
    let setup = Layout { train, ..layout.clone() }.setup().expect("a plan");
    let start = before.as_ref().map_or(Start::Seed, Start::Checkpoint);
    let committer = Committer::new(&store, 1);
    let saving = Some(Saving::with(&committer).every(every));
    let first = First { steps: until - start.steps(), watch: &NoWatch };
    let part_of_run = RunPart { start, saving, first };
    outcome_of_run(&setup, &*on.engine(&setup), &proof_text(), part_of_run).expect("a leg")
}

/// Runs `layout` on CPUs and on `num_gpus` GPUs: both have the same bits, and learn.
pub fn compare(layout: &Layout, num_gpus: usize) {
    let gpus = soft_gpus(num_gpus);
    let on_cpus = outcome(layout, &On::Cpus).expect("a run on CPUs");
    let on_gpus = outcome(layout, &On::Gpus(gpus)).expect("a run on GPUs");
    assert_eq!(on_gpus.losses, on_cpus.losses);
    assert_eq!(on_gpus.norms, on_cpus.norms);
    assert!(on_cpus.losses.first() > on_cpus.losses.last() && on_cpus.losses.len() == layout.train.steps as usize);
    assert!(on_gpus == on_cpus, "gradients or weights differ");
}

/// Graphs through the driver's C interface; a driver that has none ends the test.
pub fn graphs() -> GraphUse {
    GraphUse::Auto(Arc::new(GraphNotice::new(|line| panic!("{line}"))))
}

/// A folder of a test, removed with it.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new() -> Folder {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("pleach-gpu-runs-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
