//! The section `[run]`.

use super::reader::{Choices, Reader, name_of, short_count};
use super::writer::Writer;
use crate::data_spec::{
    AttentionChoice, CollectivesChoice, DeviceChoice, EngineChoice, GpuCollectives, GpuGraphs, OnLoss,
    ProductAlgorithms, ProductKernels, Recheck, RunSpec, TransportChoice,
};
use crate::problem::Problem;
use crate::sample_spec::SampleSpec;
use crate::secret::Secret;
use crate::trusted::Trusted;
use mesh::PlacementOrder;

const ENGINES: &Choices<EngineChoice> =
    &[("auto", EngineChoice::Auto), ("threads", EngineChoice::Threads), ("processes", EngineChoice::Processes)];
const DEVICES: &Choices<DeviceChoice> = &[("cpu", DeviceChoice::Cpu), ("cuda", DeviceChoice::Cuda)];
const TRANSPORTS: &Choices<TransportChoice> = &[
    ("auto", TransportChoice::Auto),
    ("shared-memory", TransportChoice::SharedMemory),
    ("tcp", TransportChoice::Tcp),
    ("mpi", TransportChoice::Mpi),
];
const COLLECTIVES: &Choices<CollectivesChoice> =
    &[("own", CollectivesChoice::Own), ("native", CollectivesChoice::Native)];
const GPU_COLLECTIVES: &Choices<GpuCollectives> =
    &[("auto", GpuCollectives::Auto), ("host", GpuCollectives::Host), ("nccl", GpuCollectives::Nccl)];
const GPU_GRAPHS: &Choices<GpuGraphs> = &[("auto", GpuGraphs::Auto), ("off", GpuGraphs::Off)];
const PRODUCT_ALGORITHMS: &Choices<ProductAlgorithms> =
    &[("first", ProductAlgorithms::First), ("timed", ProductAlgorithms::Timed), ("equal", ProductAlgorithms::Equal)];
const PRODUCT_KERNELS: &Choices<ProductKernels> =
    &[("auto", ProductKernels::Auto), ("estimated", ProductKernels::Estimated), ("timed", ProductKernels::Timed)];
const ATTENTION: &Choices<AttentionChoice> = &[("auto", AttentionChoice::Auto), ("off", AttentionChoice::Off)];
const PLACEMENTS: &Choices<PlacementOrder> = &[
    ("tp-pp-dp", PlacementOrder::TpPpDp),
    ("tp-dp-pp", PlacementOrder::TpDpPp),
    ("pp-tp-dp", PlacementOrder::PpTpDp),
    ("pp-dp-tp", PlacementOrder::PpDpTp),
    ("dp-tp-pp", PlacementOrder::DpTpPp),
    ("dp-pp-tp", PlacementOrder::DpPpTp),
    ("cp-tp-pp-dp", PlacementOrder::CpTpPpDp),
    ("tp-pp-cp-dp", PlacementOrder::TpPpCpDp),
    ("tp-pp-dp-cp", PlacementOrder::TpPpDpCp),
];

const RECHECKS: &Choices<Recheck> = &[("sample", Recheck::Sample), ("off", Recheck::Off), ("all", Recheck::All)];

const LOSSES: &Choices<OnLoss> = &[("stop", OnLoss::Stop), ("wait", OnLoss::Wait), ("replan", OnLoss::Replan)];

/// What a run of an earlier version does now that named GPUs in software as its device.
const SOFT_GPU_REMEDY: &str = "use \"cpu\", or try the code of GPUs without one: tools/soft-gpu.sh FOLDER builds NVIDIA's \
    libraries in software, and PLEACH_CUDA=FOLDER pleach train ... --set run.device=cuda opens them";

fn device(reader: &mut Reader) -> DeviceChoice {
    let is_soft_gpu = reader.text_beside("run.device") == Some("soft-gpu");
    let device = reader.choice("run.device", DEVICES, DeviceChoice::Cpu);
    if let (true, Some(problem)) = (is_soft_gpu, reader.problems.last_mut()) {
        problem.remedy = SOFT_GPU_REMEDY.into();
    }
    device
}

/// Reads the section. `ranks` is 0 where the run does not name it; it is set once the degrees are known.
pub fn read(reader: &mut Reader) -> RunSpec {
    RunSpec {
        folder: reader.acting_text("run.folder").unwrap_or_else(|| Trusted::new("runs/latest".into())).map(Into::into),
        samples: samples(reader),
        ranks: reader.optional_count("run.ranks").unwrap_or(0),
        threads_per_rank: reader.count("run.threads_per_rank", 1),
        device: device(reader),
        gpus: reader.optional_count("run.gpus"),
        gpu_collectives: reader.choice("run.gpu_collectives", GPU_COLLECTIVES, GpuCollectives::Auto),
        gpu_graphs: reader.choice("run.gpu_graphs", GPU_GRAPHS, GpuGraphs::Auto),
        product_algorithms: reader.choice("run.product_algorithms", PRODUCT_ALGORITHMS, ProductAlgorithms::First),
        product_kernels: reader.choice("run.product_kernels", PRODUCT_KERNELS, ProductKernels::Auto),
        attention_library: reader.choice("run.attention_library", ATTENTION, AttentionChoice::Auto),
        evaluate_every: short_count(reader, "run.evaluate_every", 0),
        log_every: short_count(reader, "run.log_every", 0),
        save_every: short_count(reader, "run.save_every", 0),
        memory_every: short_count(reader, "run.memory_every", 0),
        keep_newest: reader.count("run.keep_newest", 2),
        keep_every: short_count(reader, "run.keep_every", 0),
        keep_best: reader.count("run.keep_best", 1),
        store: reader.acting_text("run.store"),
        store_seconds: store_seconds(reader),
        engine: reader.choice("run.engine", ENGINES, EngineChoice::Auto),
        transport: reader.choice("run.transport", TRANSPORTS, TransportChoice::Auto),
        collectives: reader.choice("run.collectives", COLLECTIVES, CollectivesChoice::Own),
        placement: reader.choice("run.placement", PLACEMENTS, PlacementOrder::default()),
        metrics_address: reader.acting_text("run.metrics_address"),
        notify: reader.acting_text("run.notify").map(|command| command.map(Secret::new)),
        recheck: reader.choice("run.recheck", RECHECKS, Recheck::Sample),
        on_loss: reader.choice("run.on_loss", LOSSES, OnLoss::Stop),
        heartbeat_seconds: reader.number("run.heartbeat_seconds", 5.0),
        rendezvous_seconds: reader.number("run.rendezvous_seconds", 10.0),
        grace_seconds: reader.number("run.grace_seconds", 30.0),
        timeout_seconds: reader.number("run.timeout_seconds", 60.0),
        rank_memory_bytes: reader.optional_long_count("run.rank_memory_bytes"),
    }
}

fn store_seconds(reader: &mut Reader) -> f32 {
    let key = "run.store_seconds";
    if reader.is_set(key) && !reader.is_set("run.store") {
        let remedy = "give its address, such as run.store = \"s3://bucket/runs/a\", or leave run.store_seconds out";
        reader.report(Problem::of_key(key, "has no effect without run.store", remedy));
    }
    reader.number(key, 600.0)
}

fn samples(reader: &mut Reader) -> SampleSpec {
    let prompts = reader
        .list_of("run.sample_prompts", "a list of texts such as [\"The\"]", |value| value.text().map(str::to_string));
    let samples = SampleSpec {
        every: short_count(reader, "run.sample_every", 0),
        prompts: prompts.unwrap_or_else(|| vec!["The".into()]),
        tokens: reader.count("run.sample_tokens", 64),
        temperature: reader.number("run.sample_temperature", 0.8),
    };
    for key in ["run.sample_prompts", "run.sample_tokens", "run.sample_temperature"] {
        if reader.is_set(key) && samples.every == 0 {
            reader.report(Problem::of_key(key, "has no effect without run.sample_every", "set it, such as to 100"));
        }
    }
    samples
}

/// The keys of samples, where a run has some.
fn write_samples(samples: &SampleSpec, writer: &mut Writer) {
    if samples.every == 0 {
        return;
    }
    writer.count("sample_every", samples.every);
    let prompts = samples.prompts.iter().map(|prompt| toml::Value::String(prompt.clone()));
    writer.bare("sample_prompts", &toml::Value::Array(prompts.collect()).to_string());
    writer.count("sample_tokens", samples.tokens);
    writer.number("sample_temperature", samples.temperature);
}

/// Writes the section; without `rank_memory_bytes` this machine's memory is meant, without `gpus` all of its GPUs,
/// without `gpu_collectives`, `gpu_graphs`, `product_algorithms`, `product_kernels` and `attention_library` the choice
/// is the run's, without `memory_every` there is no checkpoint in the memory of hosts, and without `store` none in an
/// object store.
pub fn write(run: &RunSpec, writer: &mut Writer) {
    writer.section("run");
    writer.text("folder", &run.folder.to_string_lossy());
    writer.count("ranks", run.ranks);
    writer.count("threads_per_rank", run.threads_per_rank);
    writer.text("device", name_of(DEVICES, run.device));
    if let Some(gpus) = run.gpus {
        writer.count("gpus", gpus);
    }
    if run.gpu_collectives != GpuCollectives::Auto {
        writer.text("gpu_collectives", gpu_collectives_name(run.gpu_collectives));
    }
    if run.gpu_graphs != GpuGraphs::Auto {
        writer.text("gpu_graphs", name_of(GPU_GRAPHS, run.gpu_graphs));
    }
    if run.product_algorithms != ProductAlgorithms::First {
        writer.text("product_algorithms", name_of(PRODUCT_ALGORITHMS, run.product_algorithms));
    }
    if run.product_kernels != ProductKernels::Auto {
        writer.text("product_kernels", product_kernels_name(run.product_kernels));
    }
    if run.attention_library != AttentionChoice::Auto {
        writer.text("attention_library", name_of(ATTENTION, run.attention_library));
    }
    writer.count("evaluate_every", run.evaluate_every);
    writer.count("log_every", run.log_every);
    writer.count("save_every", run.save_every);
    write_samples(&run.samples, writer);
    if run.memory_every > 0 {
        writer.count("memory_every", run.memory_every);
    }
    writer.count("keep_newest", run.keep_newest);
    writer.count("keep_every", run.keep_every);
    writer.count("keep_best", run.keep_best);
    if let Some(store) = &run.store {
        writer.text("store", store);
        writer.number("store_seconds", run.store_seconds);
    }
    writer.text("engine", name_of(ENGINES, run.engine));
    writer.text("transport", name_of(TRANSPORTS, run.transport));
    writer.text("collectives", name_of(COLLECTIVES, run.collectives));
    writer.text("placement", name_of(PLACEMENTS, run.placement));
    if let Some(address) = &run.metrics_address {
        writer.text("metrics_address", address);
    }
    if let Some(command) = &run.notify {
        writer.text("notify", command.reveal());
    }
    writer.text("recheck", name_of(RECHECKS, run.recheck));
    writer.text("on_loss", name_of(LOSSES, run.on_loss));
    writer.number("heartbeat_seconds", run.heartbeat_seconds);
    writer.number("rendezvous_seconds", run.rendezvous_seconds);
    writer.number("grace_seconds", run.grace_seconds);
    writer.number("timeout_seconds", run.timeout_seconds);
    if let Some(bytes) = run.rank_memory_bytes {
        writer.count("rank_memory_bytes", bytes);
    }
}

/// The name of a transport, for messages.
pub fn transport_name(transport: TransportChoice) -> &'static str {
    name_of(TRANSPORTS, transport)
}

/// The device of the run, for the messages of other keys: the default where none of the names is written.
pub fn device_beside(reader: &Reader) -> DeviceChoice {
    let written = reader.text_beside("run.device");
    DEVICES.iter().find(|(name, _)| Some(*name) == written).map_or(DeviceChoice::Cpu, |(_, device)| *device)
}

/// The name of a device, for messages.
pub fn device_name(device: DeviceChoice) -> &'static str {
    name_of(DEVICES, device)
}

/// The name of collectives of GPUs, for messages.
pub fn gpu_collectives_name(collectives: GpuCollectives) -> &'static str {
    name_of(GPU_COLLECTIVES, collectives)
}

/// The name of a choice among kernels, for messages.
pub fn product_kernels_name(kernels: ProductKernels) -> &'static str {
    name_of(PRODUCT_KERNELS, kernels)
}
