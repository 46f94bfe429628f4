//! Runs that differ in one key: by how much it changed their time, and by how much it is predicted to.

use cluster::Software;
use config::SequenceParallel;
use plan::{MeasuredRun, PreparedRun, Row, Table};
use train::SetupError;

use super::{ALL, AccuracyError, Runs, runs};

/// The rows of Korthikanti et al., table 4, of which the first is the baseline of the others.
pub const LAYERS: Runs = runs!("korthikanti_table4.csv", ALL, "a100-80g-dgx", "megatron-2022");

/// Time of a layer in one row of [`LAYERS`], as a share of its time in the first.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerTime {
    /// The row.
    pub name: String,
    pub measured: f64,
    pub predicted: f64,
}

/// All rows after the first.
///
/// # Errors
/// See [`AccuracyError`].
pub fn layer_times() -> Result<Vec<LayerTime>, AccuracyError> {
    let cluster = LAYERS.cluster()?;
    let table = Table::read(LAYERS.file, LAYERS.text)?;
    let measured = table.rows.iter().map(|row| -> Result<f64, AccuracyError> {
        Ok(row.number("fwd_ms")?.unwrap_or(f64::NAN) + row.number("bwd_ms")?.unwrap_or(f64::NAN))
    });
    let measured: Vec<f64> = measured.collect::<Result<_, _>>()?;
    let predicted = LAYERS.prepared()?.into_iter().map(|run| Ok((run.run.name, run.step.layer_ns(&cluster)? as f64)));
    let predicted: Vec<(String, f64)> = predicted.collect::<Result<_, SetupError>>()?;
    let both = measured.iter().zip(&predicted).skip(1);
    let share = |(milliseconds, (name, ns)): (&f64, &(String, f64))| LayerTime {
        name: name.clone(),
        measured: milliseconds / measured[0],
        predicted: ns / predicted[0].1,
    };
    Ok(both.map(share).collect())
}

/// Pairs of runs with and without sequence parallelism.
pub const PAIRS: Runs = runs!("sequence_parallel_gains.csv", ALL, "a100-80g-dgx", "scaling-2023");

/// The share of the shorter step by which a pair's longer one takes more: without sequence parallelism in place of with
/// it.
#[derive(Clone, Debug, PartialEq)]
pub struct Gain {
    pub model: String,
    pub layout: String,
    pub tp: usize,
    pub measured: f64,
    pub predicted: f64,
}

/// All of [`PAIRS`].
///
/// # Errors
/// See [`AccuracyError`].
pub fn sequence_parallel_gains() -> Result<Vec<Gain>, AccuracyError> {
    let (cluster, software) =
        (PAIRS.cluster()?, Software::from_toml(Software::named(PAIRS.software).unwrap_or_default())?);
    let gain = |row: &Row| -> Result<Gain, AccuracyError> {
        let run = MeasuredRun::new(row)?;
        let step_s = |sequence_parallel| -> Result<f64, AccuracyError> {
            let mut run = run.clone();
            run.parallelism.sequence_parallel = sequence_parallel;
            Ok(PreparedRun::new(run, Some(&software))?.step_s(&cluster)?)
        };
        let percent = row.text("gain_percent").and_then(|text| text.parse().ok()).unwrap_or(f64::NAN);
        Ok(Gain {
            model: run.name.clone(),
            layout: run.layout(),
            tp: run.parallelism.degrees.tp,
            measured: percent / 100.0,
            predicted: step_s(SequenceParallel::Off)? / step_s(SequenceParallel::On)? - 1.0,
        })
    };
    PAIRS.rows()?.iter().map(gain).collect()
}
