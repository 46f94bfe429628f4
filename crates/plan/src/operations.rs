//! Single operations that were measured, beside what a profile says of them: products of matrices, and all-reduces within a node.

use cluster::{Cluster, named};
use comm::Operation;
use sim::{GroupShape, Kernel, Product, collective_ns, kernel_ns};

use crate::accuracy::AccuracyError;
use crate::validate::Errors;

/// A table of measured operations that is part of this repository.
#[derive(Clone, Copy, Debug)]
pub struct Operations {
    /// Its file in `crates/plan/tables`.
    pub file: &'static str,
    text: &'static str,
    /// The profile of the accelerators.
    pub profile: &'static str,
    /// The nanoseconds of a row, measured and predicted.
    of_row: fn(&Cluster, &[f64]) -> Option<(f64, f64)>,
}

/// All tables.
pub const OPERATIONS: [Operations; 3] = [
    Operations {
        file: "products_a100_pcie.csv",
        text: include_str!("../tables/products_a100_pcie.csv"),
        profile: "a100-80g-pcie",
        of_row: product,
    },
    Operations {
        file: "products_b200.csv",
        text: include_str!("../tables/products_b200.csv"),
        profile: "b200-180g-dgx",
        of_row: product,
    },
    Operations {
        file: "all_reduce_a100.csv",
        text: include_str!("../tables/all_reduce_a100.csv"),
        profile: "a100-80g-dgx",
        of_row: all_reduce,
    },
];

impl Operations {
    /// How far the profile is from the rows.
    ///
    /// # Errors
    /// A profile that is none.
    pub fn errors(&self) -> Result<Errors, AccuracyError> {
        let cluster = Cluster::from_toml(named(self.profile).unwrap_or_default())?;
        let numbers = |line: &str| line.split(',').map(str::parse).collect::<Result<Vec<f64>, _>>().ok();
        let rows = self.text.lines().filter(|line| !line.starts_with('#')).skip(1).filter_map(numbers);
        let pairs = rows.filter_map(|row| (self.of_row)(&cluster, &row));
        Ok(Errors::of(pairs.map(|(measured, predicted)| predicted / measured - 1.0)))
    }
}

/// Rows, columns, depth, bytes moved per number of the result, share of the peak.
fn product(cluster: &Cluster, row: &[f64]) -> Option<(f64, f64)> {
    let [rows, columns, depth, result_bytes, share] = *row else { return None };
    let product = Product::new(1, [rows, columns, depth].map(|length| length as usize), 2, result_bytes as usize);
    let at_peak_ns = product.flops() / (1000.0 * cluster.accelerator.half_tflops);
    Some((at_peak_ns / share, kernel_ns(cluster, &Kernel::Product(product))))
}

/// Ranks, bytes, microseconds.
fn all_reduce(cluster: &Cluster, row: &[f64]) -> Option<(f64, f64)> {
    let [ranks, bytes, microseconds] = *row else { return None };
    let size = ranks as usize;
    let group = GroupShape { size, per_node: size, nodes: 1, beside: size };
    Some((1000.0 * microseconds, collective_ns(cluster, group, Operation::AllReduce, bytes)))
}
