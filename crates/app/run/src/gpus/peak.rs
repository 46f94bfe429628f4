//! The rate at which GPUs could compute the products of a run, by their data sheets.

use cluster::{Accelerator, Cluster, named, names};
use config::{Precision, Products};
use gpu::DeviceFacts;

/// FLOP/s of one of the `gpus`, which are alike, in the products of `precision`: those of single precision where
/// products are chained, those of tensor cores for all that are summed by them. `None` where no built-in profile has
/// the data sheet of such a GPU.
pub fn peak_flops(gpus: &[DeviceFacts], precision: Precision) -> Option<f64> {
    let sheet = |gpu| profile_of(gpu).map(|cluster| cluster.accelerator);
    let sheets: Vec<Accelerator> = gpus.iter().map(sheet).collect::<Option<_>>()?;
    let tflops = |sheet: &Accelerator| match precision.products() {
        Products::Chained => Some(sheet.single_tflops),
        Products::Blocks16 | Products::Blocks8 | Products::Device => Some(sheet.half_tflops),
        Products::Pairs => None,
    };
    let least = sheets.iter().map(tflops).collect::<Option<Vec<f64>>>()?.into_iter().reduce(f64::min)?;
    Some(least * 1e12)
}

/// The first built-in profile with the data sheet of a GPU: of the same model, as `H200`, and with as many
/// multiprocessors, which tell the forms of a model apart.
pub fn profile_of(gpu: &DeviceFacts) -> Option<Cluster> {
    let name = gpu.name.strip_prefix("NVIDIA ").unwrap_or(&gpu.name);
    let model = |name: &str| name.split([' ', '-']).next().map(str::to_owned);
    let mut clusters = names().filter_map(named).filter_map(|text| Cluster::from_toml(text).ok());
    clusters.find(|Cluster { accelerator: sheet, .. }| {
        sheet.multiprocessors == gpu.multiprocessors && model(&sheet.name) == model(name)
    })
}

#[cfg(test)]
mod tests {
    use config::RunConfig;
    use gpu::Capability;

    use super::*;

    fn peak(name: &str, multiprocessors: u32, keys: &[&str]) -> Option<f64> {
        let gpu = DeviceFacts {
            ordinal: 0,
            name: name.into(),
            capability: Capability { major: 9, minor: 0 },
            memory_bytes: 1 << 30,
            multiprocessors,
            max_shared_bytes: 1 << 16,
            uuid: [0; 16],
            bus_id: String::new(),
        };
        let keys: Vec<String> = keys.iter().map(|key| key.to_string()).collect();
        let config = RunConfig::load("run.toml", "", &keys).expect("a run");
        peak_flops(&[gpu], config.train.precision)
    }

    #[test]
    fn the_peak_is_that_of_the_products() {
        assert_eq!(peak("NVIDIA H200", 132, &[]), Some(67e12));
        assert_eq!(peak("NVIDIA H100 80GB HBM3", 132, &["train.precision=bf16"]), Some(67e12));
        let blocks = ["train.precision=bf16", "train.products=blocks16"];
        assert_eq!(peak("NVIDIA H100 80GB HBM3", 132, &blocks), Some(989e12));
        assert_eq!(peak("NVIDIA A100-SXM4-80GB", 108, &[]), Some(19.5e12));
    }

    /// The PCIe form of an H100 has fewer multiprocessors than the profiles have.
    #[test]
    fn a_gpu_without_a_data_sheet_has_no_peak() {
        assert_eq!(peak("NVIDIA H100 PCIe", 114, &[]), None);
        assert_eq!(peak("NVIDIA GeForce RTX 4090", 128, &[]), None);
        assert_eq!(peak("NVIDIA H200", 132, &["train.products=pairs"]), None);
    }
}
