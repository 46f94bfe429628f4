//! How much of a scored row its prediction has seen: which tables the constants in use were fitted to.

use std::collections::BTreeMap;
use std::fmt;

use cluster::{Cluster, Constant};

use plan::{Filter, FilterError, Row};

use super::operations::OPERATIONS;
use super::{CHECKS, Runs};

/// How a row is related to the rows that constants were fitted to; the nearest relation counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Basis {
    /// It is one of them.
    Fitted,
    /// Some of them are other rows of its table.
    SameTable,
    /// Some of them are runs or operations on its cluster, in another table.
    SameCluster,
    /// All of them are of other clusters with the same accelerator.
    OtherCluster,
    /// No constant was fitted.
    Unfitted,
}

impl Basis {
    /// All of them, the nearest first.
    pub const ALL: [Basis; 5] =
        [Basis::Fitted, Basis::SameTable, Basis::SameCluster, Basis::OtherCluster, Basis::Unfitted];

    /// Meaning of the mark.
    pub fn meaning(self) -> &'static str {
        match self {
            Basis::Fitted => "constants are fitted to this very row (in-sample)",
            Basis::SameTable => "constants are fitted to other rows of the table",
            Basis::SameCluster => "constants are fitted to another table of the same cluster",
            Basis::OtherCluster => "constants are fitted to a table of another cluster with that accelerator",
            Basis::Unfitted => "no constant is fitted",
        }
    }
}

impl fmt::Display for Basis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Basis::Fitted => "fitted",
            Basis::SameTable => "same table",
            Basis::SameCluster => "same cluster",
            Basis::OtherCluster => "other cluster",
            Basis::Unfitted => "unfitted",
        })
    }
}

/// Rows that a constant was fitted to.
#[derive(Clone, Debug)]
struct Source {
    table: String,
    /// Nothing where a profile says no more than the table.
    rows: Option<Filter>,
}

/// Where the fitted constants of a prediction are from.
#[derive(Clone, Debug)]
pub struct Provenance(BTreeMap<Constant, Source>);

impl Provenance {
    /// Of the constants of `cluster`, some of which a check fitted to `rows`.
    ///
    /// # Errors
    /// An invalid choice of rows.
    pub fn new(cluster: &Cluster, fit: Option<(&Runs, &[Constant])>) -> Result<Provenance, FilterError> {
        let of_profile = cluster.fitted.iter().flat_map(|(table, constants)| {
            constants.iter().map(|constant| (*constant, Source { table: table.clone(), rows: None }))
        });
        let mut sources: BTreeMap<Constant, Source> = of_profile.collect();
        if let Some((runs, constants)) = fit {
            let source = Source { table: runs.file.into(), rows: Some(runs.rows.parse()?) };
            sources.extend(constants.iter().map(|constant| (*constant, source.clone())));
        }
        Ok(Provenance(sources))
    }

    /// The mark of one row of `runs`.
    pub fn basis(&self, runs: &Runs, row: &Row) -> Basis {
        let of = |source: &Source| match &source.rows {
            Some(rows) if source.table == runs.file && !rows.takes(row) => Basis::SameTable,
            Some(_) | None if source.table == runs.file => Basis::Fitted,
            Some(_) | None if profile_of(&source.table) == Some(runs.profile) => Basis::SameCluster,
            Some(_) | None => Basis::OtherCluster,
        };
        self.0.values().map(of).min().unwrap_or(Basis::Unfitted)
    }

    /// The mark of all operations of `table`, measured on the cluster of `profile`.
    pub fn basis_of_operations(&self, table: &str, profile: &str) -> Basis {
        let of = |source: &Source| match source.table == table {
            true => Basis::Fitted,
            false if profile_of(&source.table) == Some(profile) => Basis::SameCluster,
            false => Basis::OtherCluster,
        };
        self.0.values().map(of).min().unwrap_or(Basis::Unfitted)
    }
}

/// The profile of the cluster that a table was measured on.
fn profile_of(table: &str) -> Option<&'static str> {
    let runs = CHECKS.iter().flat_map(|check| check.calibrated_on.iter().chain(check.scored_on));
    let runs = runs.map(|runs| (runs.file, runs.profile));
    let operations = OPERATIONS.iter().map(|operations| (operations.file, operations.profile));
    runs.chain(operations).find(|(file, _)| *file == table).map(|(_, profile)| profile)
}
