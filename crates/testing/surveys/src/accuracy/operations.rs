//! Measured single operations, compared with a profile's prediction: products of matrices, and all-reduces within a
//! node.

use cluster::{Cluster, named};
use comm::Operation;
use device::SumTree;
use plan::{Errors, Pair};
use sim::{GroupShape, Kernel, Product, collective_ns, kernel_ns};

use super::AccuracyError;
use super::basis::{Basis, Provenance};

/// A table of measured operations that is part of this repository.
#[derive(Clone, Copy, Debug)]
pub struct Operations {
    /// Its file in `crates/planning/plan/tables`.
    pub file: &'static str,
    text: &'static str,
    /// The profile of the accelerators.
    pub profile: &'static str,
    /// The kind of its rows.
    kind: Kind,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    /// Rows, columns, depth, bytes moved per number of the result, share of the peak.
    Products,
    /// Ranks, bytes, microseconds.
    AllReduces,
}

macro_rules! operations {
    ($file:literal, $profile:literal, $kind:expr) => {
        Operations {
            file: $file,
            text: include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../planning/plan/tables/", $file)),
            profile: $profile,
            kind: $kind,
        }
    };
}

/// All tables.
pub const OPERATIONS: [Operations; 4] = [
    operations!("products_a100_pcie.csv", "a100-80g-pcie", Kind::Products),
    operations!("products_h200.csv", "h200-141g-dgx", Kind::Products),
    operations!("products_b200.csv", "b200-180g-dgx", Kind::Products),
    operations!("all_reduce_a100.csv", "a100-80g-dgx", Kind::AllReduces),
];

impl Operations {
    /// Whether constants of the profile were fitted to these very operations.
    ///
    /// # Errors
    /// An invalid profile.
    pub fn basis(&self) -> Result<Basis, AccuracyError> {
        let cluster = Cluster::from_toml(named(self.profile).unwrap_or_default())?;
        Ok(Provenance::new(&cluster, None)?.basis_of_operations(self.file, self.profile))
    }

    /// How far the profile is from the rows.
    ///
    /// # Errors
    /// An invalid profile.
    pub fn errors(&self) -> Result<Errors, AccuracyError> {
        let cluster = Cluster::from_toml(named(self.profile).unwrap_or_default())?;
        let numbers = |line: &str| line.split(',').map(str::parse).collect::<Result<Vec<f64>, _>>().ok();
        let rows = self.text.lines().filter(|line| !line.starts_with('#')).skip(1).filter_map(numbers);
        let pairs = rows.filter_map(|row| match self.kind {
            Kind::Products => product(&cluster, &row),
            Kind::AllReduces => all_reduce(&cluster, &row),
        });
        Ok(Errors::of(pairs.filter_map(|pair| pair.error())))
    }
}

/// Nanoseconds.
fn product(cluster: &Cluster, row: &[f64]) -> Option<Pair<f64>> {
    let [rows, columns, depth, result_bytes, share] = *row else { return None };
    let product =
        Product::new(1, [rows, columns, depth].map(|length| length as usize), [2, result_bytes as usize], None);
    let at_peak_ns = product.flops() / (1000.0 * cluster.accelerator.half_tflops);
    let predicted = kernel_ns(cluster, &Kernel::Product(product));
    Some(Pair { measured: Some(at_peak_ns / share), predicted })
}

/// Nanoseconds.
fn all_reduce(cluster: &Cluster, row: &[f64]) -> Option<Pair<f64>> {
    let [ranks, bytes, microseconds] = *row else { return None };
    let size = ranks as usize;
    let group = GroupShape { size, per_node: size, nodes: 1, beside: size };
    let predicted = collective_ns(cluster, group, Operation::AllReduce, SumTree::RANK_ORDER, bytes);
    Some(Pair { measured: Some(1000.0 * microseconds), predicted })
}
