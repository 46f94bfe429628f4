//! Rules of `[run]` that are about the run alone.

use super::Rules;
use crate::data_spec::{
    AttentionChoice, CollectivesChoice, DeviceChoice, EngineChoice, GpuCollectives, GpuGraphs, ProductAlgorithms,
    ProductKernels, TransportChoice,
};
use crate::precision::Products;
use crate::problem::Problem;
use crate::run_file::{Item as _, RunConfig};
use crate::secret::has_credentials;

/// More than any machine has GPUs.
const MAX_GPUS: usize = 1024;

pub(super) fn check(config: &RunConfig, rules: &mut Rules) {
    let run = &config.run;
    if run.folder.as_os_str().is_empty() {
        rules.report(Problem::of_value("run.folder", "\"\"", "names no folder", "use \"runs/latest\""));
    }
    match (run.engine, run.transport) {
        (EngineChoice::Threads, TransportChoice::SharedMemory | TransportChoice::Tcp | TransportChoice::Mpi) => {
            let rule = "has no effect where run.engine = \"threads\"";
            let remedy = "write run.engine = \"processes\", or leave it out";
            rules.report(Problem::of_value("run.transport", run.transport.written(), rule, remedy));
        }
        (EngineChoice::Threads, TransportChoice::Auto) | (EngineChoice::Auto | EngineChoice::Processes, _) => {}
    }
    if run.memory_every > 0 && run.engine == EngineChoice::Threads {
        let rule = "needs another host; with run.engine = \"threads\" all ranks are in one process";
        let remedy = "write run.engine = \"processes\", or leave run.memory_every out";
        rules.report(Problem::of_value("run.memory_every", run.memory_every, rule, remedy));
    }
    watching(config, rules);
    store(config, rules);
    collectives(config, rules);
    check_gpus(config, rules);
    gpu_collectives(config, rules);
    gpu_graphs(config, rules);
    product_algorithms(config, rules);
    product_kernels(config, rules);
    attention_library(config, rules);
}

/// Rules of those who watch from outside.
fn watching(config: &RunConfig, rules: &mut Rules) {
    if let Some(address) = &config.run.metrics_address {
        let (host, port) = address.rsplit_once(':').unwrap_or(("127.0.0.1", address));
        if host.is_empty() || port.parse::<u16>().is_err() {
            let remedy = "use a port, such as \"9400\", or an address for other hosts, such as \"0.0.0.0:9400\"";
            let rule = "must be a port or HOST:PORT";
            rules.report(match address.contains('@') {
                true => Problem::of_key("run.metrics_address", format!("{rule}, without a user or a password"), remedy),
                false => Problem::of_value("run.metrics_address", format!("{address:?}"), rule, remedy),
            });
        }
    }
    if config.run.notify.as_ref().is_some_and(|command| command.reveal().trim().is_empty()) {
        let remedy = "write a command for a shell, or leave it out";
        rules.report(Problem::of_key("run.notify", "must be a command; got an empty text", remedy));
    }
}

/// The address of checkpoints in a store. An address with a secret is not repeated.
fn store(config: &RunConfig, rules: &mut Rules) {
    let Some(address) = &config.run.store else { return };
    let remedy = "use s3://bucket/prefix, and set AWS_ENDPOINT_URL for another server than that of AWS";
    if address.contains('@') || has_credentials(address) {
        let rule = "must not have a user or a password, which the run file would keep";
        let remedy = "use s3://bucket/prefix, and set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile";
        rules.report(Problem::of_key("run.store", rule, remedy));
        return;
    }
    let bucket = address.strip_prefix("s3://").and_then(|rest| rest.split('/').next()).unwrap_or_default();
    if matches!(bucket, "" | "." | "..") || address.contains(['?', '#', '*']) {
        let rule = "must be the address of a bucket and a prefix";
        rules.report(Problem::of_value("run.store", format!("{address:?}"), rule, remedy));
    }
}

/// Rules of GPUs: keys that ranks on other devices do not read.
fn check_gpus(config: &RunConfig, rules: &mut Rules) {
    let run = &config.run;
    match (run.device, run.gpus) {
        (DeviceChoice::Cpu, Some(_)) => {
            let rule = "has no effect where run.device = \"cpu\"";
            let remedy = "write run.device = \"cuda\", or leave it out";
            rules.report(Problem::of_key("run.gpus", rule, remedy));
        }
        (DeviceChoice::Cuda, Some(gpus)) => {
            if rules.all_positive(&[("run.gpus", gpus)]) && gpus > MAX_GPUS {
                let remedy = format!("use at most {MAX_GPUS}");
                rules.report(Problem::of_value("run.gpus", gpus, "exceeds the GPUs of any machine", remedy));
            }
        }
        (DeviceChoice::Cpu | DeviceChoice::Cuda, None) => {}
    }
    match run.device {
        DeviceChoice::Cpu => {}
        DeviceChoice::Cuda if run.threads_per_rank > 1 => {
            let rule = format!("has no effect where run.device = {}", run.device.written());
            let remedy = "write run.device = \"cpu\", or leave it out";
            rules.report(Problem::of_value("run.threads_per_rank", run.threads_per_rank, rule, remedy));
        }
        DeviceChoice::Cuda => {}
    }
}

/// NCCL joins GPUs of NVIDIA, one to a process. MPI is given memory of the host alone.
fn gpu_collectives(config: &RunConfig, rules: &mut Rules) {
    let (run, key) = (&config.run, "run.gpu_collectives");
    let value = run.gpu_collectives.written();
    match (run.gpu_collectives, run.device) {
        (GpuCollectives::Auto, _) | (GpuCollectives::Host, DeviceChoice::Cuda) => {}
        (GpuCollectives::Host | GpuCollectives::Nccl, DeviceChoice::Cpu) => {
            let remedy = "write run.device = \"cuda\", or leave it out";
            rules.report(Problem::of_value(key, value, "has no effect where run.device = \"cpu\"", remedy));
        }
        (GpuCollectives::Nccl, DeviceChoice::Cuda) => {
            if run.engine == EngineChoice::Threads && run.ranks > 1 {
                let rule = "needs a process for each rank; with run.engine = \"threads\" all ranks are in one process";
                let remedy = "write run.engine = \"processes\", or run.gpu_collectives = \"host\"";
                rules.report(Problem::of_value(key, value, rule, remedy));
            } else if run.collectives == CollectivesChoice::Native {
                let rule = "has no effect where run.collectives = \"native\": MPI is given memory of the host, and GPU-aware \
                            MPI is not supported";
                let remedy = "write run.collectives = \"own\", or run.gpu_collectives = \"host\"";
                rules.report(Problem::of_value(key, value, rule, remedy));
            }
        }
    }
}

fn gpu_graphs(config: &RunConfig, rules: &mut Rules) {
    match (config.run.gpu_graphs, config.run.device) {
        (GpuGraphs::Auto, _) | (GpuGraphs::Off, DeviceChoice::Cuda) => {}
        (GpuGraphs::Off, DeviceChoice::Cpu) => {
            let remedy = "write run.device = \"cuda\", or leave it out";
            let rule = "has no effect where run.device = \"cpu\"";
            rules.report(Problem::of_value("run.gpu_graphs", "\"off\"", rule, remedy));
        }
    }
}

/// Only a library has algorithms to choose from.
fn product_algorithms(config: &RunConfig, rules: &mut Rules) {
    let (key, products) = ("run.product_algorithms", config.train.precision.products());
    let other = |needed: &str| {
        let rule = format!("has no effect where train.products = \"{}\"", products.name());
        (rule, format!("write train.products = \"{needed}\", or leave it out"))
    };
    match (config.run.product_algorithms, products) {
        (ProductAlgorithms::First, _) | (ProductAlgorithms::Timed, Products::Device) => {}
        (ProductAlgorithms::Timed, Products::Chained | Products::Pairs | Products::Blocks16 | Products::Blocks8) => {
            let (rule, remedy) = other("device");
            rules.report(Problem::of_value(key, "\"timed\"", rule, remedy));
        }
        (ProductAlgorithms::Equal, Products::Blocks16) => match config.run.device {
            DeviceChoice::Cuda => {}
            DeviceChoice::Cpu => {
                let remedy = "write run.device = \"cuda\", or leave it out";
                let rule = "has no effect where run.device = \"cpu\"";
                rules.report(Problem::of_value(key, "\"equal\"", rule, remedy));
            }
        },
        (ProductAlgorithms::Equal, Products::Chained | Products::Pairs | Products::Device | Products::Blocks8) => {
            let (rule, remedy) = other("blocks16");
            rules.report(Problem::of_value(key, "\"equal\"", rule, remedy));
        }
    }
}

/// Only products in blocks on GPUs have several kernels.
fn product_kernels(config: &RunConfig, rules: &mut Rules) {
    let value = match config.run.product_kernels {
        ProductKernels::Auto => return,
        chosen @ (ProductKernels::Estimated | ProductKernels::Timed) => chosen.written(),
    };
    let key = "run.product_kernels";
    match (config.run.device, config.train.precision.products()) {
        (DeviceChoice::Cpu, _) => {
            let remedy = "write run.device = \"cuda\", or leave it out";
            rules.report(Problem::of_value(key, value, "has no effect where run.device = \"cpu\"", remedy));
        }
        (DeviceChoice::Cuda, Products::Blocks16 | Products::Blocks8) => {}
        (DeviceChoice::Cuda, products) => {
            let rule = format!("has no effect where train.products = \"{}\"", products.name());
            let remedy = "write train.products = \"blocks16\" or \"blocks8\", or leave it out";
            rules.report(Problem::of_value(key, value, rule, remedy));
        }
    }
}

fn attention_library(config: &RunConfig, rules: &mut Rules) {
    match (config.run.attention_library, config.train.precision.products()) {
        (AttentionChoice::Auto, _) | (AttentionChoice::Off, Products::Device) => {}
        (AttentionChoice::Off, Products::Chained | Products::Pairs | Products::Blocks16 | Products::Blocks8) => {
            let rule = "has no effect where train.products is not \"device\"";
            rules.report(Problem::of_value("run.attention_library", "\"off\"", rule, "leave it out"));
        }
    }
}

/// Only MPI has collectives of its own, and they have an order of their own.
fn collectives(config: &RunConfig, rules: &mut Rules) {
    let key = "run.collectives";
    match (config.run.collectives, config.run.transport) {
        (CollectivesChoice::Own, _) | (CollectivesChoice::Native, TransportChoice::Mpi) => {}
        (CollectivesChoice::Native, transport) => {
            let rule = format!("needs a library with collectives; run.transport = {} has none", transport.written());
            let remedy = "write run.transport = \"mpi\", or leave run.collectives out";
            rules.report(Problem::of_value(key, "\"native\"", rule, remedy));
        }
    }
    let tree = config.parallelism.sum_tree;
    if config.run.collectives == CollectivesChoice::Native && tree > 1 {
        let rule = "has no effect where run.collectives = \"native\": the library of MPI has an order of its own";
        let remedy = "leave it out, or write run.collectives = \"own\"";
        rules.report(Problem::of_value("parallelism.sum_tree", tree, rule, remedy));
    }
}
