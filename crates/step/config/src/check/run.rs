//! Rules of `[run]` that are about the run alone.

use super::Rules;
use crate::data_spec::{
    AttentionChoice, CollectivesChoice, DeviceChoice, EngineChoice, GpuCollectives, GpuGraphs, ProductAlgorithms,
    ProductKernels, TransportChoice,
};
use crate::precision::Products;
use crate::run_file::{Item as _, RunConfig};
use crate::secret::has_credentials;

/// More than any machine has GPUs.
const MAX_GPUS: usize = 1024;

const ON_CPUS: &str = "has no effect where run.device = \"cpu\"";
const WRITE_CUDA: &str = "write run.device = \"cuda\", or leave it out";

pub(super) fn check(config: &RunConfig, rules: &mut Rules) {
    let run = &config.run;
    let is_threads = run.engine == EngineChoice::Threads;
    refuse! { rules;
        run.folder.as_os_str().is_empty() => "run.folder" = "\"\"", "names no folder", "use \"runs/latest\"";
        is_threads && run.transport != TransportChoice::Auto => "run.transport" = run.transport.written(),
            "has no effect where run.engine = \"threads\"", "write run.engine = \"processes\", or leave it out";
        is_threads && run.memory_every > 0 => "run.memory_every" = run.memory_every,
            "needs another host; with run.engine = \"threads\" all ranks are in one process",
            "write run.engine = \"processes\", or leave run.memory_every out";
    }
    watching(config, rules);
    store(config, rules);
    collectives(config, rules);
    check_gpus(config, rules);
    gpu_collectives(config, rules);
    product_algorithms(config, rules);
    product_kernels(config, rules);
    let is_device = config.train.precision.products() == Products::Device;
    refuse! { rules;
        run.gpu_graphs == GpuGraphs::Off && run.device == DeviceChoice::Cpu
            => "run.gpu_graphs" = "\"off\"", ON_CPUS, WRITE_CUDA;
        run.attention_library == AttentionChoice::Off && !is_device => "run.attention_library" = "\"off\"",
            "has no effect where train.products is not \"device\"", "leave it out";
    }
}

/// Rules of those who watch from outside.
fn watching(config: &RunConfig, rules: &mut Rules) {
    if let Some(address) = &config.run.metrics_address {
        let (host, port) = address.rsplit_once(':').unwrap_or(("127.0.0.1", address));
        let (is_wrong, has_user) = (host.is_empty() || port.parse::<u16>().is_err(), address.contains('@'));
        let remedy = "use a port, such as \"9400\", or an address for other hosts, such as \"0.0.0.0:9400\"";
        refuse! { rules;
            is_wrong && has_user => "run.metrics_address",
                "must be a port or HOST:PORT, without a user or a password", remedy;
            is_wrong && !has_user => "run.metrics_address" = format!("{address:?}"), "must be a port or HOST:PORT", remedy;
        }
    }
    refuse! { rules;
        config.run.notify.as_ref().is_some_and(|command| command.reveal().trim().is_empty()) => "run.notify",
            "must be a command; got an empty text", "write a command for a shell, or leave it out";
    }
}

/// The address of checkpoints in a store. An address with a secret is not repeated.
fn store(config: &RunConfig, rules: &mut Rules) {
    let Some(address) = &config.run.store else { return };
    let has_secret = address.contains('@') || has_credentials(address);
    let bucket = address.strip_prefix("s3://").and_then(|rest| rest.split('/').next()).unwrap_or_default();
    let is_bucket = !matches!(bucket, "" | "." | "..") && !address.contains(['?', '#', '*']);
    refuse! { rules;
        has_secret => "run.store", "must not have a user or a password, which the run file would keep",
            "use s3://bucket/prefix, and set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile";
        !has_secret && !is_bucket => "run.store" = format!("{address:?}"),
            "must be the address of a bucket and a prefix",
            "use s3://bucket/prefix, and set AWS_ENDPOINT_URL for another server than that of AWS";
    }
}

/// Rules of GPUs: keys that ranks on other devices do not read.
fn check_gpus(config: &RunConfig, rules: &mut Rules) {
    let (run, is_cpu) = (&config.run, config.run.device == DeviceChoice::Cpu);
    refuse! { rules;
        is_cpu && run.gpus.is_some() => "run.gpus", ON_CPUS,
            WRITE_CUDA;
        !is_cpu && run.gpus == Some(0) => "run.gpus" = 0, "must be positive", "use at least 1";
        !is_cpu && run.gpus > Some(MAX_GPUS) => "run.gpus" = run.gpus.unwrap_or(0),
            "exceeds the GPUs of any machine", format!("use at most {MAX_GPUS}");
        !is_cpu && run.threads_per_rank > 1 => "run.threads_per_rank" = run.threads_per_rank,
            format!("has no effect where run.device = {}", run.device.written()),
            "write run.device = \"cpu\", or leave it out";
    }
}

/// NCCL joins GPUs of NVIDIA, one to a process. MPI is given memory of the host alone.
fn gpu_collectives(config: &RunConfig, rules: &mut Rules) {
    let (run, device, value) = (&config.run, config.run.device, config.run.gpu_collectives.written());
    let is_nccl = run.gpu_collectives == GpuCollectives::Nccl;
    let on_gpus = is_nccl && device == DeviceChoice::Cuda;
    let in_threads = on_gpus && run.engine == EngineChoice::Threads && run.ranks > 1;
    refuse! { rules;
        run.gpu_collectives != GpuCollectives::Auto && device == DeviceChoice::Cpu
            => "run.gpu_collectives" = &value, ON_CPUS, WRITE_CUDA;
        in_threads => "run.gpu_collectives" = &value,
            "needs a process for each rank; with run.engine = \"threads\" all ranks are in one process",
            "write run.engine = \"processes\", or run.gpu_collectives = \"host\"";
        on_gpus && !in_threads && run.collectives == CollectivesChoice::Native => "run.gpu_collectives" = &value,
            "has no effect where run.collectives = \"native\": MPI is given memory of the host, and GPU-aware MPI is \
             not supported",
            "write run.collectives = \"own\", or run.gpu_collectives = \"host\"";
    }
}

/// Only a library has algorithms to choose from, and products in blocks of 16 have those with the same bits.
fn product_algorithms(config: &RunConfig, rules: &mut Rules) {
    let (chosen, products) = (config.run.product_algorithms, config.train.precision.products());
    let needed = match chosen {
        ProductAlgorithms::First => return,
        ProductAlgorithms::Timed => Products::Device,
        ProductAlgorithms::Equal => Products::Blocks16,
    };
    let is_equal_on_cpu = chosen == ProductAlgorithms::Equal && config.run.device == DeviceChoice::Cpu;
    refuse! { rules;
        products != needed => "run.product_algorithms" = chosen.written(),
            format!("has no effect where train.products = {}", products.written()),
            format!("write train.products = {}, or leave it out", needed.written());
        products == needed && is_equal_on_cpu => "run.product_algorithms" = chosen.written(), ON_CPUS, WRITE_CUDA;
    }
}

/// Only products in blocks on GPUs have several kernels.
fn product_kernels(config: &RunConfig, rules: &mut Rules) {
    let (chosen, products) = (config.run.product_kernels, config.train.precision.products());
    let (is_chosen, is_cpu) = (chosen != ProductKernels::Auto, config.run.device == DeviceChoice::Cpu);
    let in_blocks = [Products::Blocks16, Products::Blocks8].contains(&products);
    refuse! { rules;
        is_chosen && is_cpu => "run.product_kernels" = chosen.written(), ON_CPUS, WRITE_CUDA;
        is_chosen && !is_cpu && !in_blocks => "run.product_kernels" = chosen.written(),
            format!("has no effect where train.products = {}", products.written()),
            "write train.products = \"blocks16\" or \"blocks8\", or leave it out";
    }
}

/// Only MPI has collectives of its own, and they have an order of their own.
fn collectives(config: &RunConfig, rules: &mut Rules) {
    let (run, tree) = (&config.run, config.parallelism.sum_tree);
    let is_native = run.collectives == CollectivesChoice::Native;
    refuse! { rules;
        is_native && run.transport != TransportChoice::Mpi => "run.collectives" = "\"native\"",
            format!("needs a library with collectives; run.transport = {} has none", run.transport.written()),
            "write run.transport = \"mpi\", or leave run.collectives out";
        is_native && tree > 1 => "parallelism.sum_tree" = tree,
            "has no effect where run.collectives = \"native\": the library of MPI has an order of its own",
            "leave it out, or write run.collectives = \"own\"";
    }
}
