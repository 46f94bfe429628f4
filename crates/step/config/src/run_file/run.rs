//! The section `[run]`.

use std::path::PathBuf;

use super::keys::{AsText, Key, Keys, keys};
use super::value::Slot;
use crate::data_spec::{
    AttentionChoice, CollectivesChoice, DeviceChoice, EngineChoice, GpuCollectives, GpuGraphs, OnLoss,
    ProductAlgorithms, ProductKernels, Recheck, RunSpec, TransportChoice,
};
use crate::sample_spec::SampleSpec;
use crate::secret::Secret;
use crate::trusted::{Consequence, Trusted};
use mesh::PlacementOrder;

/// A day is longer than any step; the bound keeps deadlines representable.
const LONGEST_SECONDS: f32 = 86_400.0;

/// More than any machine has cores.
const MAX_THREADS: usize = 1024;

/// Most prompts of a run, and most tokens of each: what each costs is a pass over the model.
pub const MOST_SAMPLED: usize = 10_000;

// Without `rank_memory_bytes` this machine's memory is meant, and without `gpus` all of its GPUs. `ranks` is 0 where
// the run does not name it; it is set once the degrees are known.
keys! { keys, run: RunSpec;
    folder = Trusted::new("runs/latest".into()) => {
        let mut folder = Some(run.folder.clone());
        keys.acting(Consequence::Writes, "folder", &mut folder, PATH);
        keys.megatron("folder", "save");
        if let Some(folder) = folder {
            run.folder = folder;
        }
    };
    ranks = 0, .megatron("world_size");
    threads_per_rank = 1, .positive().at_most(MAX_THREADS, "exceeds the cores of any machine");
    device = DeviceChoice::Cpu;
    gpus = None;
    [quiet] gpu_collectives = GpuCollectives::Auto;
    [quiet] gpu_graphs = GpuGraphs::Auto;
    [quiet] product_algorithms = ProductAlgorithms::First;
    [quiet] product_kernels = ProductKernels::Auto;
    [quiet] attention_library = AttentionChoice::Auto;
    evaluate_every = 0, .megatron("eval_interval");
    evaluate_tokens = None, .megatron("eval_iters: in tokens");
    log_every = 0, .megatron("log_interval");
    save_every = 0, .megatron("save_interval");
    samples = SampleSpec { every: 0, prompts: vec!["The".into()], tokens: 64, temperature: 0.8 }
        => { samples(keys, &mut run.samples) };
    [quiet] memory_every = 0;
    keep_newest = 2, .positive();
    keep_every = 0, .megatron("save_retain_interval");
    keep_best = 1;
    store = None => { keys.acting(Consequence::Sends, "store", &mut run.store, (String::clone, String::from)) };
    store_seconds = 600.0 => {
        let is_idle = run.store.is_none();
        let remedy = "give its address, such as run.store = \"s3://bucket/runs/a\", or leave run.store_seconds out";
        let is_idle_key = !keys.is_set("store");
        keys.idle(is_idle_key, &["store_seconds"], "has no effect without run.store", remedy);
        if !(keys.writes() && is_idle) {
            keys.key("store_seconds", &mut run.store_seconds).seconds();
        }
    };
    engine = EngineChoice::Auto;
    transport = TransportChoice::Auto, .megatron("distributed_backend");
    collectives = CollectivesChoice::Own;
    placement = PlacementOrder::TpPpDp, .megatron("use_tp_pp_dp_mapping: its default is that mapping");
    metrics_address = None => {
        keys.acting(Consequence::Listens, "metrics_address", &mut run.metrics_address, (String::clone, String::from));
    };
    notify = None => {
        keys.acting(Consequence::Runs, "notify", &mut run.notify, (|command| command.reveal().into(), Secret::new));
    };
    recheck = Recheck::Sample;
    on_loss = OnLoss::Stop;
    heartbeat_seconds = 5.0, .seconds();
    rendezvous_seconds = 10.0, .seconds();
    grace_seconds = 30.0, .seconds();
    timeout_seconds = 60.0, .seconds().megatron("distributed_timeout_minutes: in seconds");
    rank_memory_bytes = None;
}

impl<T: Slot<Item = f32>> Key<'_, '_, T> {
    /// A deadline.
    fn seconds(self) -> Self {
        let holds = |seconds: &f32| *seconds > 0.0 && *seconds <= LONGEST_SECONDS;
        self.must(holds, "must be a time in seconds", "use more than 0 and at most 86400")
    }
}

fn samples(keys: &mut Keys<'_>, samples: &mut SampleSpec) {
    keys.key_unless(0, "sample_every", &mut samples.every);
    if samples.every == 0 && keys.reader().is_none() {
        return;
    }
    let is_number = |number: &usize| (1..=MOST_SAMPLED).contains(number);
    keys.judged(Consequence::Within, "sample_prompts", &mut samples.prompts);
    keys.key("sample_tokens", &mut samples.tokens).must(is_number, "must be 1 to 10,000", "use 64");
    let is_sane = |temperature: &f32| (0.0..=100.0).contains(temperature);
    keys.key("sample_temperature", &mut samples.temperature).must(is_sane, "must be a temperature", "use 0 to 100");
    let own = ["sample_prompts", "sample_tokens", "sample_temperature"];
    keys.idle(samples.every == 0, &own, "has no effect without run.sample_every", "set it, such as to 100");
}

/// A path as a text that acts.
pub const PATH: AsText<PathBuf> = (|path| path.to_string_lossy().into_owned(), PathBuf::from);
