//! The GPUs of a run on a cluster that is not there: whether they have its kernels, how many a host has, and the memory
//! that they need in addition to arenas.

use ::gpu::Capability;
use cluster::{Cluster, Constant};
use config::figures::bytes;
use config::{DeviceChoice, GpuCollectives, Problem, Products, RunConfig};
use run::failure::Failure;
use run::gpus::devices;
use train::{ATTENTION_RANK_BYTES, AttentionUse, NCCL_RANK_BYTES, check_products, own_process_margin_bytes};

/// Accelerators of named profiles that have no kernels, by the beginnings of their names, and why.
const WITHOUT_KERNELS: [(&str, &str); 3] = [
    ("core", "are cores of a CPU"),
    ("Ascend", "are not NVIDIA's"),
    ("V100", "have compute capability 7.0, and kernels need 8.0 or newer"),
];

const AMPERE: Capability = Capability { major: 8, minor: 0 };
const HOPPER: Capability = Capability { major: 9, minor: 0 };
const BLACKWELL: Capability = Capability { major: 10, minor: 0 };

/// The oldest architecture with the order of products of an accelerator, by the beginning of its name. An accelerator
/// that is not listed is not judged before it is there.
const ARCHITECTURES: [(&str, Capability); 16] = [
    ("A100", AMPERE),
    ("A800", AMPERE),
    ("A10", AMPERE),
    ("A30", AMPERE),
    ("A40", AMPERE),
    ("L4", AMPERE),
    ("RTX 30", AMPERE),
    ("RTX 40", AMPERE),
    ("H100", HOPPER),
    ("H20", HOPPER),
    ("H800", HOPPER),
    ("GH200", HOPPER),
    ("B200", BLACKWELL),
    ("B300", BLACKWELL),
    ("GB", BLACKWELL),
    ("RTX 50", BLACKWELL),
];

/// A line that says what `run.device` means for a prediction on `ranks` accelerators of `cluster`; nothing for CPUs,
/// whose choice is the default of runs that are predicted for any cluster.
///
/// # Errors
/// A device that the cluster does not have, or whose numerics are others.
pub fn predicted(config: &RunConfig, cluster: &Cluster, ranks: usize) -> Result<String, Failure> {
    match config.run.device {
        DeviceChoice::Cpu => return Ok(String::new()),
        DeviceChoice::Cuda => {}
    }
    if let Some(problem) = devices::problem(config).or_else(|| problem(config, cluster, ranks)) {
        return Err(Failure::Input(problem.to_string()));
    }
    Ok(format!(
        "device  cuda on {}: kernel rates are the profile's;\n        \
         docs/gpu.md has the rates of pleach's own kernels on one H200\n{}",
        cluster.accelerator.name,
        products_by_library(config, cluster)
    ))
}

/// How products of a library are priced, and what their rate was fitted to; nothing for other products.
fn products_by_library(config: &RunConfig, cluster: &Cluster) -> String {
    match config.train.precision.products() {
        Products::Chained | Products::Pairs | Products::Blocks16 | Products::Blocks8 => return String::new(),
        Products::Device => {}
    }
    let prices = |constants: &Vec<Constant>| constants.contains(&Constant::MatrixEfficiency);
    let tables: Vec<&str> =
        cluster.fitted.iter().filter(|(_, constants)| prices(constants)).map(|(table, _)| table.as_str()).collect();
    let rate = if tables.is_empty() { "the profile's".into() } else { format!("fitted to {}", tables.join(", ")) };
    format!(
        "        products by cuBLASLt: the same rate, {rate};\n        \
         measure theirs: pleach cluster measure --device cuda --products device\n"
    )
}

/// The first rule that GPUs of `cluster` break, as the device of `ranks` ranks; nothing for other devices.
pub fn problem(config: &RunConfig, cluster: &Cluster, ranks: usize) -> Option<Problem> {
    match config.run.device {
        DeviceChoice::Cpu => None,
        DeviceChoice::Cuda => without_kernels(cluster)
            .or_else(|| other_products(config, cluster))
            .or_else(|| other_number(config.run.gpus?, cluster, ranks)),
    }
}

fn without_kernels(cluster: &Cluster) -> Option<Problem> {
    let name = &cluster.accelerator.name;
    let (_, reason) = WITHOUT_KERNELS.iter().find(|(beginning, _)| name.starts_with(beginning))?;
    let rule = format!("needs NVIDIA's GPUs; accelerators of --cluster, {name}, {reason}");
    Some(Problem::of_value("run.device", "\"cuda\"", rule, "use another cluster, or run.device = \"cpu\""))
}

/// An order of products that tensor cores of the cluster do not have.
fn other_products(config: &RunConfig, cluster: &Cluster) -> Option<Problem> {
    let name = cluster.accelerator.name.trim_start_matches("NVIDIA ").trim_start_matches("GeForce ");
    let (_, capability) = ARCHITECTURES.iter().find(|(beginning, _)| name.starts_with(beginning))?;
    check_products(config.train.precision.products(), *capability).err().map(devices::refusal)
}

/// A number of GPUs that a host of the cluster does not have, or with which several ranks would share one.
fn other_number(gpus: usize, cluster: &Cluster, ranks: usize) -> Option<Problem> {
    let there = cluster.node.accelerators.max(1);
    let used = there.min(ranks);
    let rule = match gpus {
        gpus if gpus > there => format!("must be at most the {there} accelerators of a node of --cluster"),
        gpus if gpus < used => format!("leaves fewer GPUs than the {used} ranks of a node of --cluster, one for each"),
        _ => return None,
    };
    Some(Problem::of_value("run.gpus", gpus, rule, format!("use {used}, or leave it out")))
}

/// Memory of an accelerator that a run with GPUs takes in addition to the arena of its one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Margin {
    /// Nothing for other devices.
    pub bytes: u64,
    /// The part for cuDNN, which is counted where accelerators may have it.
    attention_bytes: u64,
}

impl Margin {
    /// The margin of a rank of `config`, which has a process of its own.
    pub fn of(config: &RunConfig) -> Margin {
        let own = own_process_margin_bytes(config.train.precision.products(), devices::blocks_by(config));
        match config.run.device {
            DeviceChoice::Cpu => return Margin { bytes: 0, attention_bytes: 0 },
            DeviceChoice::Cuda => {}
        }
        let collectives = match config.run.gpu_collectives {
            GpuCollectives::Auto | GpuCollectives::Nccl if config.run.ranks > 1 => NCCL_RANK_BYTES,
            GpuCollectives::Auto | GpuCollectives::Nccl | GpuCollectives::Host => 0,
        };
        let attention_bytes = match (config.train.precision.products(), devices::attention(config)) {
            (Products::Device, AttentionUse::LibraryIfFound) => ATTENTION_RANK_BYTES,
            (Products::Device, AttentionUse::Kernels)
            | (Products::Chained | Products::Pairs | Products::Blocks16 | Products::Blocks8, _) => 0,
        };
        Margin { bytes: own + collectives + attention_bytes, attention_bytes }
    }

    /// The purpose.
    fn purpose(self) -> String {
        match self.attention_bytes {
            0 => "the driver's context, kernels and NCCL".into(),
            cudnn => {
                format!(
                    "the driver's context, kernels, NCCL, and {} for cuDNN, counted as if it is there",
                    bytes(cudnn)
                )
            }
        }
    }

    /// A line below that of the arenas; nothing without a margin.
    pub fn line(self) -> String {
        match self.bytes {
            0 => String::new(),
            margin => format!("        {} more of each accelerator for {}\n", bytes(margin), self.purpose()),
        }
    }

    /// A refusal for memory, with the part that the margin has in it.
    #[must_use]
    pub fn named_in(self, failure: Failure) -> Failure {
        let Failure::Run(problems) = failure else { return failure };
        let named = |problem: Problem| match (problem.key.as_str(), self.bytes) {
            ("memory", 1..) => {
                let rule = format!("{}, next to {} for {}", problem.rule, bytes(self.bytes), self.purpose());
                Problem { rule, ..problem }
            }
            _ => problem,
        };
        Failure::Run(problems.into_iter().map(named).collect())
    }
}

#[cfg(test)]
mod tests {
    use cluster::named;

    use super::*;

    /// The problem of a run on `ranks` accelerators of a built-in cluster.
    fn said(cluster: &str, ranks: usize, more: &[&str]) -> String {
        let cluster = Cluster::from_toml(named(cluster).expect("a profile")).expect("a cluster");
        let device = ["run.device=cuda".to_string(), "train.precision=bf16".into()];
        let overrides: Vec<String> = device.into_iter().chain(more.iter().map(ToString::to_string)).collect();
        let config = RunConfig::load("", "", &overrides).expect("legal");
        problem(&config, &cluster, ranks).map_or("none".into(), |problem| problem.to_string())
    }

    #[test]
    fn every_built_in_profile_is_known_with_or_without_kernels() {
        for name in cluster::names() {
            let cluster = Cluster::from_toml(named(name).expect("a profile")).expect("a cluster");
            let model = &cluster.accelerator.name;
            let begins = |beginning: &&str| model.starts_with(*beginning);
            let without = WITHOUT_KERNELS.iter().map(|(beginning, _)| *beginning).any(|beginning| begins(&beginning));
            let with = ARCHITECTURES.iter().map(|(beginning, _)| *beginning).any(|beginning| begins(&beginning));
            assert!(without != with, "{name}: {model}");
        }
    }

    #[test]
    fn orders_of_products_are_those_of_the_accelerators() {
        let refused = |order: &str, device: &str, other: &str| {
            format!(
                "train.products = \"{order}\" must be supported by the device; {device} refuses it; use \"{other}\""
            )
        };
        let [ampere, later] = ["a GPU before compute capability 9.0", "a GPU of compute capability 9.0 or later"];
        let (blocks8, blocks16) = (&["train.products=blocks8"][..], &["train.products=blocks16"][..]);
        for cluster in ["h100-80g-dgx", "h200-141g-dgx", "b200-180g-dgx", "gb200-nvl72"] {
            assert_eq!(said(cluster, 8, blocks8), refused("blocks8", later, "blocks16"), "{cluster}");
            assert_eq!(said(cluster, 8, blocks16), "none", "{cluster}");
        }
        assert_eq!(said("a100-80g-dgx", 8, blocks16), refused("blocks16", ampere, "blocks8"));
        assert_eq!([said("a100-80g-dgx", 8, blocks8), said("a100-80g-pcie", 8, &[])], ["none", "none"]);
    }

    #[test]
    fn the_number_of_gpus_is_that_of_a_node() {
        let of = |gpus: &str, ranks| said("h100-80g-dgx", ranks, &[&format!("run.gpus={gpus}")]);
        assert_eq!(
            of("99", 16),
            "run.gpus = 99 must be at most the 8 accelerators of a node of --cluster; use 8, or leave it out"
        );
        assert_eq!(
            of("4", 16),
            "run.gpus = 4 leaves fewer GPUs than the 8 ranks of a node of --cluster, one for each; use 8, or leave it out"
        );
        assert_eq!([of("4", 4), of("8", 4), of("8", 64)], ["none", "none", "none"]);
    }

    #[test]
    fn a_refusal_for_memory_names_the_margin() {
        let margin = |keys: &[&str]| {
            let overrides: Vec<String> = keys.iter().map(ToString::to_string).collect();
            Margin::of(&RunConfig::load("", "", &overrides).expect("legal"))
        };
        let (mib, cuda) = (1u64 << 20, "run.device=cuda");
        assert_eq!((margin(&[]).bytes, margin(&[]).line()), (0, String::new()));
        assert_eq!(margin(&[cuda]).bytes, (600 + 64 + 496) * mib);
        assert_eq!(margin(&[cuda, "run.gpu_collectives=host"]).bytes, (600 + 64) * mib);
        let alone = ["parallelism.dp=1", "parallelism.tp=1", "parallelism.pp=1"];
        assert_eq!(margin(&[&[cuda][..], &alone].concat()).bytes, (600 + 64) * mib);
        let library = ["train.precision=bf16", "train.products=device"];
        let with_library = margin(&[&[cuda][..], &library].concat());
        assert_eq!(with_library.bytes, (600 + 64 + 128 + 496 + 672) * mib);
        assert_eq!(
            with_library.line(),
            "        2.06 GB more of each accelerator for the driver's context, kernels, NCCL, and 705 MB for cuDNN, counted as if \
             it is there\n"
        );
        for own in ["run.attention_library=off", "data.visible=document"] {
            assert_eq!(margin(&[&[cuda, own][..], &library].concat()).bytes, (600 + 64 + 128 + 496) * mib, "{own}");
        }
        let problem = Problem::of_key("memory", "does not fit: an accelerator of the cluster has 84.0 GB", "use less");
        let other = Problem::of_key("run.ranks", "must be 8", "");
        assert_eq!(
            margin(&[cuda]).named_in(Failure::Run(vec![problem, other])).to_string(),
            "memory does not fit: an accelerator of the cluster has 84.0 GB, next to 1.22 GB for the driver's context, \
             kernels and NCCL; use less\nrun.ranks must be 8"
        );
    }
}
