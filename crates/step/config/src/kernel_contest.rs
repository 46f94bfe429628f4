//! The kernels and algorithms among which a run chooses for each of its products before the first step.

use crate::{DeviceChoice, ProductAlgorithms, ProductKernels, Products, RunConfig};

/// Tiles of pleach's kernels that are timed. All of them have the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimedTiles {
    /// Those that have run on a GPU.
    HaveRun,
    /// Also those that have run on GPUs in software only.
    All,
}

/// Algorithms of the GPU's library that are timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimedAlgorithms {
    /// All that are proposed, whatever their bits.
    Proposed,
    /// Those with the bits of products in blocks of 16, against pleach's kernels.
    Equal,
}

/// The candidates of a run. Without them, a product has the tile that is estimated to be the fastest, or the first
/// algorithm that is proposed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelContest {
    pub tiles: Option<TimedTiles>,
    pub algorithms: Option<TimedAlgorithms>,
}

/// The candidates that a run file asks for.
pub fn kernel_contest(config: &RunConfig) -> KernelContest {
    match config.run.device {
        DeviceChoice::Cpu => return KernelContest::default(),
        DeviceChoice::Cuda => {}
    }
    let tiles = match (config.run.product_kernels, config.train.precision.products()) {
        (ProductKernels::Auto, Products::Blocks16) => Some(TimedTiles::HaveRun),
        (ProductKernels::Timed, Products::Blocks16 | Products::Blocks8) => Some(TimedTiles::All),
        (ProductKernels::Auto | ProductKernels::Estimated | ProductKernels::Timed, _) => None,
    };
    let algorithms = match config.run.product_algorithms {
        ProductAlgorithms::First => None,
        ProductAlgorithms::Timed => Some(TimedAlgorithms::Proposed),
        ProductAlgorithms::Equal => Some(TimedAlgorithms::Equal),
    };
    KernelContest { tiles, algorithms }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_device_and_three_keys_decide_what_competes() {
        let of = |device: &str, keys: &[&str]| {
            let of_device = [format!("run.device={device}"), "train.precision=bf16".into()];
            let all: Vec<String> = of_device.into_iter().chain(keys.iter().map(|key| (*key).into())).collect();
            let KernelContest { tiles, algorithms } = kernel_contest(&RunConfig::load("", "", &all).expect("a run"));
            format!("{tiles:?} {algorithms:?}")
        };
        let blocks16 = "train.products=blocks16";
        assert_eq!(of("cuda", &[blocks16]), "Some(HaveRun) None");
        assert_eq!(of("cpu", &[blocks16]), "None None");
        assert_eq!(of("cuda", &["train.products=blocks8"]), "None None");
        assert_eq!(of("cuda", &["train.products=chained"]), "None None");
        let timed = "run.product_kernels=timed";
        assert_eq!(of("cuda", &[blocks16, timed]), "Some(All) None");
        assert_eq!(of("cuda", &["train.products=blocks8", timed]), "Some(All) None");
        assert_eq!(of("cuda", &[blocks16, "run.product_kernels=estimated"]), "None None");
        let equal = "run.product_algorithms=equal";
        assert_eq!(of("cuda", &[blocks16, equal]), "Some(HaveRun) Some(Equal)");
        let device = "train.products=device";
        assert_eq!(of("cuda", &[device, "run.product_algorithms=timed"]), "None Some(Proposed)");
        assert_eq!(of("cuda", &[device]), "None None");
    }
}
