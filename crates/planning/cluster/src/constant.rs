//! The constants of a profile that are fitted to measured runs, by name.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Cluster;

/// An end of the range of a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeEnd {
    /// The least value.
    Lower,
    /// The largest value.
    Upper,
}

impl fmt::Display for RangeEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RangeEnd::Lower => "lower end",
            RangeEnd::Upper => "upper end",
        })
    }
}

/// A fit stops so near to an end of a range, as a share of it, that the end stops it.
const NEAR: f64 = 1e-3;

/// A constant that no data sheet prints. Each has a meaning and a range outside of which it would have none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Constant {
    /// `compute.matrix_efficiency`
    #[serde(rename = "compute.matrix_efficiency")]
    MatrixEfficiency,
    /// `compute.tile_ramp_columns`
    #[serde(rename = "compute.tile_ramp_columns")]
    TileRampColumns,
    /// `compute.memory_efficiency`
    #[serde(rename = "compute.memory_efficiency")]
    MemoryEfficiency,
    /// `compute.kernel_gap_us`
    #[serde(rename = "compute.kernel_gap_us")]
    KernelGap,
    /// `compute.issue_us`
    #[serde(rename = "compute.issue_us")]
    Issue,
    /// `compute.contention`
    #[serde(rename = "compute.contention")]
    Contention,
    /// `node.link.efficiency`
    #[serde(rename = "node.link.efficiency")]
    LinkEfficiency,
    /// `node.link.start_us`
    #[serde(rename = "node.link.start_us")]
    LinkStart,
    /// `node.link.latency_us`
    #[serde(rename = "node.link.latency_us")]
    LinkLatency,
    /// `network.efficiency`
    #[serde(rename = "network.efficiency")]
    NetworkEfficiency,
    /// `network.start_us`
    #[serde(rename = "network.start_us")]
    NetworkStart,
    /// `network.latency_us`
    #[serde(rename = "network.latency_us")]
    NetworkLatency,
}

impl Constant {
    /// All of them.
    pub const ALL: [Constant; 12] = [
        Constant::MatrixEfficiency,
        Constant::TileRampColumns,
        Constant::MemoryEfficiency,
        Constant::KernelGap,
        Constant::Issue,
        Constant::Contention,
        Constant::LinkEfficiency,
        Constant::LinkStart,
        Constant::LinkLatency,
        Constant::NetworkEfficiency,
        Constant::NetworkStart,
        Constant::NetworkLatency,
    ];

    /// The key in a profile.
    pub fn key(self) -> &'static str {
        match self {
            Constant::MatrixEfficiency => "compute.matrix_efficiency",
            Constant::TileRampColumns => "compute.tile_ramp_columns",
            Constant::MemoryEfficiency => "compute.memory_efficiency",
            Constant::KernelGap => "compute.kernel_gap_us",
            Constant::Issue => "compute.issue_us",
            Constant::Contention => "compute.contention",
            Constant::LinkEfficiency => "node.link.efficiency",
            Constant::LinkStart => "node.link.start_us",
            Constant::LinkLatency => "node.link.latency_us",
            Constant::NetworkEfficiency => "network.efficiency",
            Constant::NetworkStart => "network.start_us",
            Constant::NetworkLatency => "network.latency_us",
        }
    }

    /// The values that it can have.
    pub fn range(self) -> (f64, f64) {
        match self {
            Constant::MatrixEfficiency | Constant::MemoryEfficiency => (0.4, 0.9),
            Constant::NetworkEfficiency => (0.2, 1.0),
            Constant::LinkEfficiency => (0.2, 0.9),
            Constant::TileRampColumns => (0.0, 512.0),
            Constant::KernelGap => (0.0, 5.0),
            Constant::Issue => (1.0, 20.0),
            Constant::Contention => (0.0, 1.0),
            Constant::LinkStart | Constant::NetworkStart => (5.0, 100.0),
            Constant::LinkLatency => (1.0, 20.0),
            Constant::NetworkLatency => (2.0, 50.0),
        }
    }

    /// The end of its range at which a fitted `value` is.
    pub fn end(self, value: f64) -> Option<RangeEnd> {
        let (low, high) = self.range();
        let near = NEAR * (high - low);
        match value {
            _ if value <= low + near => Some(RangeEnd::Lower),
            _ if value >= high - near => Some(RangeEnd::Upper),
            _ => None,
        }
    }

    /// Whether it is a share of a rate that a data sheet prints, so that more than 1 means nothing.
    pub fn is_share(self) -> bool {
        match self {
            Constant::MatrixEfficiency
            | Constant::MemoryEfficiency
            | Constant::LinkEfficiency
            | Constant::NetworkEfficiency => true,
            Constant::Contention
            | Constant::TileRampColumns
            | Constant::KernelGap
            | Constant::Issue
            | Constant::LinkStart
            | Constant::LinkLatency
            | Constant::NetworkStart
            | Constant::NetworkLatency => false,
        }
    }

    /// Its place in a profile.
    pub fn of(self, cluster: &mut Cluster) -> &mut f64 {
        match self {
            Constant::MatrixEfficiency => &mut cluster.compute.matrix_efficiency,
            Constant::TileRampColumns => &mut cluster.compute.tile_ramp_columns,
            Constant::MemoryEfficiency => &mut cluster.compute.memory_efficiency,
            Constant::KernelGap => &mut cluster.compute.kernel_gap_us,
            Constant::Issue => &mut cluster.compute.issue_us,
            Constant::Contention => &mut cluster.compute.contention,
            Constant::LinkEfficiency => &mut cluster.node.link.efficiency,
            Constant::LinkStart => &mut cluster.node.link.start_us,
            Constant::LinkLatency => &mut cluster.node.link.latency_us,
            Constant::NetworkEfficiency => &mut cluster.network.efficiency,
            Constant::NetworkStart => &mut cluster.network.start_us,
            Constant::NetworkLatency => &mut cluster.network.latency_us,
        }
    }
}

impl fmt::Display for Constant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.key())
    }
}
