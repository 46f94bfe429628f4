//! The checks of `docs/accuracy.md`: which rows constants are fitted to, which rows are scored, and what came out.

mod basis;
pub mod differences;
mod operations;

use cluster::{Cluster, Constant, Software, named};
use plan::{Errors, Filter, MeasuredRun, Open, PreparedRun, Report, Row, Scored, Table, fit};

pub use basis::{Basis, Provenance};
pub use operations::{OPERATIONS, Operations};

/// A table of runs that is part of this repository.
#[derive(Clone, Copy, Debug)]
pub struct Runs {
    /// Its file in `crates/planning/plan/tables`.
    pub file: &'static str,
    pub(crate) text: &'static str,
    pub rows: &'static str,
    /// The profile of their cluster.
    pub profile: &'static str,
    /// Their trainer.
    pub software: &'static str,
}

/// All rows of a table.
pub(crate) const ALL: &str = "layers > 0";

macro_rules! runs {
    ($file:literal, $rows:expr, $profile:literal, $software:literal) => {
        $crate::accuracy::Runs {
            file: $file,
            text: include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../planning/plan/tables/", $file)),
            rows: $rows,
            profile: $profile,
            software: $software,
        }
    };
}
pub(crate) use runs;

/// A fit and what is scored with it.
#[derive(Clone, Copy, Debug)]
pub struct Check {
    pub name: &'static str,
    /// A remark, if there is one.
    pub about: Option<&'static str>,
    /// The runs that it is fitted to; none, where a check scores with the constants of another.
    pub calibrated_on: Option<Runs>,
    /// The fitted constants.
    pub constants: &'static [Constant],
    /// The scored rows.
    pub scored_on: &'static [Runs],
}

/// Constants of computing that the tables can tell apart.
const COMPUTE: [Constant; 3] = [Constant::MatrixEfficiency, Constant::TileRampColumns, Constant::MemoryEfficiency];

/// The checks of `docs/accuracy.md`, in its order.
pub const CHECKS: [Check; 5] = [
    Check {
        name: "vTrain single node",
        about: None,
        calibrated_on: Some(runs!("vtrain_single_node.csv", "every 10 from 0", "a100-vtrain", "deepspeed-2022")),
        constants: &[
            Constant::MatrixEfficiency,
            Constant::TileRampColumns,
            Constant::MemoryEfficiency,
            Constant::KernelGap,
            Constant::Issue,
            Constant::LinkStart,
        ],
        scored_on: &[runs!("vtrain_single_node.csv", "not every 10 from 0", "a100-vtrain", "deepspeed-2022")],
    },
    Check {
        name: "vTrain multi-node",
        about: None,
        calibrated_on: Some(runs!(
            "vtrain_multi_node.csv",
            "layers = 30 or layers = 40",
            "a100-vtrain",
            "deepspeed-2022"
        )),
        constants: &[
            Constant::NetworkEfficiency,
            Constant::NetworkStart,
            Constant::NetworkLatency,
            Constant::LinkEfficiency,
            Constant::LinkStart,
            Constant::MatrixEfficiency,
            Constant::MemoryEfficiency,
            Constant::TileRampColumns,
        ],
        scored_on: &[runs!("vtrain_multi_node.csv", "layers = 48 or layers = 96", "a100-vtrain", "deepspeed-2022")],
    },
    Check {
        name: "A100 clusters",
        about: None,
        calibrated_on: Some(TABLE_1),
        constants: &COMPUTE,
        scored_on: &[
            TABLE_1,
            TABLE_5,
            runs!("mtnlg.csv", ALL, "a100-80g-dgx", "deepspeed-bf16-2022"),
            runs!("bloom.csv", ALL, "a100-80g-jean-zay", "deepspeed-bf16-2022"),
            runs!("glm.csv", ALL, "a100-40g-dgx", "largescale-2022"),
            TABLE_2,
        ],
    },
    Check {
        name: "Jean Zay",
        about: Some(
            "The bandwidths of the links of BLOOM's cluster are fitted to layouts that were tried in fp16; the trials in \
             bf16 are those of another optimizer, days later.",
        ),
        calibrated_on: Some(runs!("bloom_trials_fp16.csv", "status = ok", "a100-80g-jean-zay", "deepspeed-2022")),
        constants: &[Constant::NetworkEfficiency, Constant::LinkEfficiency],
        scored_on: &[
            runs!("bloom_trials_bf16.csv", ALL, "a100-80g-jean-zay", "deepspeed-bf16-2022"),
            runs!("bloom_reshaping.csv", ALL, "a100-80g-jean-zay", "deepspeed-bf16-2022"),
        ],
    },
    NOT_TUNED_ON,
];

/// Runs to which nothing was fitted: their trainers are described by their sources, and their clusters by data sheets,
/// single operations and other runs.
pub const NOT_TUNED_ON: Check = Check {
    name: "Not tuned on",
    about: Some(
        "No constant is fitted to these rows; profiles are taken as they are. Changes were made with the errors of these \
         rows in sight: copies around gathers of tokens, and elementwise kernels that are not fused where the preset \
         does not compile (torchtitan), attention that adds in order and memory that is filled first (Megatron-LM's \
         own tests), contention, and the rate of products on H100s, which was that of the best shape and is that of \
         products in training steps. Their constants are those of single kernels and \
         of other programs. Open errors are named in [unexplained errors](#unexplained-errors).",
    ),
    calibrated_on: None,
    constants: &[],
    scored_on: &[
        runs!("megatron_2020_a100.csv", ALL, "a100-40g-dgx", "megatron-2020"),
        runs!("megatron_2020_v100.csv", ALL, "v100-32g-dgx1", "megatron-2020"),
        runs!("torchtitan_a100.csv", ALL, "a100-80g-dgx", "torchtitan-eager-2024"),
        runs!("torchtitan_h100.csv", "layers = 80", "h100-96g-500w", "torchtitan-2024"),
        runs!("torchtitan_h100.csv", "layers = 126", "h100-96g-500w", "torchtitan-eager-2024"),
        runs!("simumax_b200.csv", ALL, "b200-180g-dgx", "megatron-core-2024"),
        runs!("megatron_ci_memory.csv", "every 3 from 0", "a100-80g-dgx", "megatron-tests-2025"),
        runs!("megatron_ci_memory.csv", "every 3 from 2", "h100-80g-dgx", "megatron-tests-2025"),
        runs!("megatron_ci_memory.csv", "every 3 from 1", "gb200-nvl72", "megatron-tests-2025"),
    ],
};

const TABLE_1: Runs = runs!("sc21_table1.csv", ALL, "a100-80g-dgx", "megatron-2021");
const TABLE_2: Runs = runs!("sc21_table2.csv", ALL, "a100-80g-dgx", "megatron-2021");
const TABLE_5: Runs = runs!("korthikanti_table5.csv", ALL, "a100-80g-dgx", "megatron-2022");

/// The constants of the A100 fitted to each table of its runs, and scored on the two others: what describes an
/// accelerator does not depend on who used it.
pub const LEFT_OUT: [Check; 3] = [
    left_out("SC21, table 1", TABLE_1, &[TABLE_5, TABLE_2]),
    left_out("Korthikanti, table 5", TABLE_5, &[TABLE_1, TABLE_2]),
    left_out("SC21, table 2", TABLE_2, &[TABLE_1, TABLE_5]),
];

const fn left_out(name: &'static str, fitted_to: Runs, scored_on: &'static [Runs]) -> Check {
    Check { name, about: None, calibrated_on: Some(fitted_to), constants: &COMPUTE, scored_on }
}

/// Why a check cannot be made: a fault of the tables and profiles in this repository.
pub type AccuracyError = Box<dyn std::error::Error>;

/// The result of a check.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub check: Check,
    /// Constants after the fit.
    pub constants: Vec<(Constant, f64)>,
    /// Those that the rows do not determine.
    pub open: Vec<(Constant, Open)>,
    /// Rows that they were fitted to.
    pub calibrated_rows: usize,
    /// Per table.
    pub scored: Vec<ScoredTable>,
}

/// A table that was scored.
#[derive(Clone, Debug)]
pub struct ScoredTable {
    /// The table.
    pub runs: Runs,
    /// Its rows, each with its mark.
    pub rows: Vec<(Basis, Scored)>,
    /// Of all rows.
    pub report: Report,
}

impl ScoredTable {
    /// The marks of its rows, each once.
    pub fn marks(&self) -> Vec<Basis> {
        Basis::ALL.into_iter().filter(|basis| self.rows.iter().any(|(of, _)| of == basis)).collect()
    }
}

impl Runs {
    /// Other rows of the same table.
    pub fn with_rows(self, rows: &'static str) -> Runs {
        Runs { rows, ..self }
    }

    /// The number that the table's seconds are derived from, as a comment of the table names it; nothing where they
    /// were published.
    pub fn derived_from(&self) -> Option<&'static str> {
        let comments = self.text.lines().take_while(|line| line.starts_with('#'));
        let said = comments.filter_map(|line| line.split_once("econds are derived from ")).map(|(_, source)| source);
        said.map(|source| source.split([';', '.']).next().unwrap_or(source)).next()
    }

    pub(crate) fn rows(&self) -> Result<Vec<Row>, AccuracyError> {
        let filter: Filter = self.rows.parse()?;
        Ok(Table::read(self.file, self.text)?.rows.into_iter().filter(|row| filter.takes(row)).collect())
    }

    pub(crate) fn prepared(&self) -> Result<Vec<PreparedRun>, AccuracyError> {
        let software = Software::from_toml(Software::named(self.software).unwrap_or_default())?;
        let rows = self.rows()?;
        rows.iter().map(|row| Ok(PreparedRun::new(MeasuredRun::new(row)?, Some(&software))?)).collect()
    }

    pub(crate) fn cluster(&self) -> Result<Cluster, AccuracyError> {
        Ok(Cluster::from_toml(named(self.profile).unwrap_or_default())?)
    }
}

/// Effect of a fifth less and a fifth more of one constant of the profiles on a check that is scored with them as they
/// are.
#[derive(Clone, Debug, PartialEq)]
pub struct Sensitivity {
    pub constant: Constant,
    /// Mean error with four fifths of it.
    pub less: f64,
    /// Mean error with six fifths, shares at most 1.
    pub more: f64,
}

impl Check {
    /// The mark of each row of `runs`, which it scores.
    ///
    /// # Errors
    /// See [`AccuracyError`].
    pub fn marks(&self, runs: &Runs) -> Result<Vec<Basis>, AccuracyError> {
        let fit = self.calibrated_on.as_ref().map(|calibrated_on| (calibrated_on, self.constants));
        let provenance = Provenance::new(&runs.cluster()?, fit)?;
        Ok(runs.rows()?.iter().map(|row| provenance.basis(runs, row)).collect())
    }

    /// The mean error of all scored rows with the profiles as they are, and how it depends on each constant.
    ///
    /// # Errors
    /// See [`AccuracyError`].
    pub fn sensitivity(&self) -> Result<(f64, Vec<Sensitivity>), AccuracyError> {
        let tables = self.scored_on.iter().map(|runs| Ok((runs.cluster()?, runs.prepared()?)));
        let tables: Vec<(Cluster, Vec<PreparedRun>)> = tables.collect::<Result<_, AccuracyError>>()?;
        let mean = |constant: Option<(Constant, f64)>| -> Result<f64, AccuracyError> {
            let mut errors = vec![];
            for (cluster, runs) in &tables {
                let mut cluster = cluster.clone();
                if let Some((constant, factor)) = constant {
                    let value = constant.of(&mut cluster);
                    *value = if constant.is_share() { (*value * factor).min(1.0) } else { *value * factor };
                }
                for run in runs {
                    if let Some(measured) = run.run.step_s {
                        errors.push(run.step_s(&cluster)? / measured - 1.0);
                    }
                }
            }
            Ok(Errors::of(errors).mean)
        };
        let each = Constant::ALL.into_iter().map(|constant| {
            Ok(Sensitivity { constant, less: mean(Some((constant, 0.8)))?, more: mean(Some((constant, 1.2)))? })
        });
        Ok((mean(None)?, each.collect::<Result<_, AccuracyError>>()?))
    }

    /// Fits and scores.
    ///
    /// # Errors
    /// See [`AccuracyError`].
    pub fn run(&self) -> Result<Outcome, AccuracyError> {
        let (mut constants, mut open, mut calibrated_rows) = (vec![], vec![], 0);
        if let Some(runs) = &self.calibrated_on {
            let prepared = runs.prepared()?;
            calibrated_rows = prepared.len();
            let mut fitted = fit(&runs.cluster()?, self.constants, &prepared)?;
            open = fitted.open;
            constants = self.constants.iter().map(|constant| (*constant, *constant.of(&mut fitted.cluster))).collect();
        }
        let scored = self.scored_on.iter().map(|runs| -> Result<_, AccuracyError> {
            let mut cluster = runs.cluster()?;
            for (constant, value) in &constants {
                *constant.of(&mut cluster) = *value;
            }
            let scored: Vec<Scored> = runs.prepared()?.iter().map(|run| run.on(&cluster)).collect::<Result<_, _>>()?;
            let report = Report::new(&scored);
            Ok(ScoredTable { runs: *runs, rows: self.marks(runs)?.into_iter().zip(scored).collect(), report })
        });
        let scored = scored.collect::<Result<_, _>>()?;
        Ok(Outcome { check: *self, constants, open, calibrated_rows, scored })
    }
}

/// Runs whose memory was measured: their trainer keeps what its description says, and nothing is fitted.
pub const MEMORY: [Runs; 2] = [
    runs!("simumax_b200.csv", ALL, "b200-180g-dgx", "megatron-core-2024"),
    runs!("megatron_ci_memory.csv", ALL, "h100-80g-dgx", "megatron-tests-2025"),
];

/// The runs of one of [`MEMORY`], predicted.
///
/// # Errors
/// See [`AccuracyError`].
pub fn memory_of(runs: &Runs) -> Result<Vec<Scored>, AccuracyError> {
    let cluster = runs.cluster()?;
    Ok(runs.prepared()?.iter().map(|run| run.on(&cluster)).collect::<Result<_, _>>()?)
}
