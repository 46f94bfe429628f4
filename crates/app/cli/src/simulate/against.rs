//! A measured step compared with a predicted one, instruction by instruction: `pleach simulate --against`.

use std::collections::BTreeMap;
use std::path::Path;

use config::figures::seconds;
use files::InputKind;
use run::failure::Failure;
use serde::{Deserialize, Serialize};
use sim::Trace;

use crate::screen::aligned::aligned;

/// An instruction of one pipeline rank, predicted and measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Compared {
    /// The pipeline rank.
    pub pp: usize,
    /// As `pleach explain` writes it.
    pub instruction: String,
    pub predicted_s: f64,
    /// Measured: the mean of the ranks of that stage.
    pub measured_s: f64,
}

/// A whole step, predicted and measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// From the first instruction to the end of the last.
    pub predicted_s: f64,
    /// The same.
    pub measured_s: f64,
    /// Those that take time, in the order of the programs.
    pub instructions: Vec<Compared>,
}

/// Fields that are read of a trace in the format of Chrome's tracing.
#[derive(Deserialize)]
struct TraceFile {
    #[serde(rename = "traceEvents")]
    events: Vec<TraceEvent>,
}

#[derive(Deserialize)]
struct TraceEvent {
    ph: String,
    name: String,
    pid: usize,
    #[serde(default)]
    ts: f64,
    #[serde(default)]
    dur: f64,
    #[serde(default)]
    args: BTreeMap<String, serde_json::Value>,
}

/// Seconds of every instruction by pipeline rank, name, and how many of that name came before it; one for each rank of
/// the stage.
type Durations = BTreeMap<(usize, String, usize), Vec<f64>>;

/// By process, or rank, and name: instructions that came already.
type Counts = BTreeMap<(usize, String), usize>;

/// How many of its name came before, and one more from now on.
fn count(before: &mut Counts, of: usize, name: &str) -> usize {
    let seen = before.entry((of, name.to_string())).or_default();
    *seen += 1;
    *seen - 1
}

impl TraceFile {
    fn read(path: &Path) -> Result<TraceFile, Failure> {
        let refused = |reason: String| Failure::Input(format!("--against {}: {reason}", path.display()));
        let text = files::read_text(path, InputKind::Trace).map_err(|error| refused(error.to_string()))?;
        let rule = "is not a trace; `pleach train --trace FILE` writes one";
        serde_json::from_str(&text).map_err(|error| refused(format!("{rule} ({error})")))
    }

    /// The pipeline rank of each process: its name ends in it.
    fn stages(&self) -> BTreeMap<usize, usize> {
        let named = self.events.iter().filter(|event| event.ph == "M" && event.name == "process_name");
        let stage = |event: &TraceEvent| event.args.get("name")?.as_str()?.rsplit_once("pp ")?.1.parse().ok();
        named.filter_map(|event| Some((event.pid, stage(event)?))).collect()
    }

    fn timed(&self) -> impl Iterator<Item = &TraceEvent> {
        self.events.iter().filter(|event| event.ph == "X")
    }

    fn durations(&self) -> Durations {
        let stages = self.stages();
        let mut in_order: Vec<&TraceEvent> = self.timed().collect();
        in_order.sort_by(|one, other| one.ts.total_cmp(&other.ts));
        let (mut durations, mut before) = (Durations::new(), Counts::new());
        for event in in_order {
            if let Some(stage) = stages.get(&event.pid) {
                let nth = count(&mut before, event.pid, &event.name);
                durations.entry((*stage, event.name.clone(), nth)).or_default().push(event.dur * 1e-6);
            }
        }
        durations
    }

    fn step_s(&self) -> f64 {
        let from = self.timed().map(|event| event.ts).fold(f64::INFINITY, f64::min);
        let to = self.timed().map(|event| event.ts + event.dur).fold(0.0, f64::max);
        (to - from).max(0.0) * 1e-6
    }
}

impl Comparison {
    /// `predicted`, compared with the trace in a file.
    ///
    /// # Errors
    /// A file that is not a trace, or is one of another run.
    pub fn read(predicted: &Trace, path: &Path) -> Result<Comparison, Failure> {
        let file = TraceFile::read(path)?;
        let durations = file.durations();
        let (mut instructions, mut before) = (vec![], Counts::new());
        for (pp, rank) in predicted.ranks.iter().enumerate() {
            for timed in &rank.instrs {
                let instruction = timed.instr.to_string();
                let predicted_s = (timed.end_ns - timed.start_ns) as f64 * 1e-9;
                let nth = count(&mut before, pp, &instruction);
                let measured = durations.get(&(pp, instruction.clone(), nth));
                if timed.instr.pass().is_some() && measured.is_none() {
                    return Err(Failure::Input(format!(
                        "--against {}: has no `{instruction}` on pp {pp}, so it is of another run; trace this one with `pleach train --trace`",
                        path.display()
                    )));
                }
                let measured_s = measured.map_or(0.0, |all| all.iter().sum::<f64>() / all.len() as f64);
                if predicted_s > 0.0 || measured_s > 0.0 {
                    instructions.push(Compared { pp, instruction, predicted_s, measured_s });
                }
            }
        }
        Ok(Comparison { predicted_s: predicted.end_ns() as f64 * 1e-9, measured_s: file.step_s(), instructions })
    }

    /// As a table.
    pub fn text(&self) -> String {
        let told = |seconds_: f64| seconds((seconds_ * 1e9).round() as u64);
        let row = |name: String, predicted: f64, measured: f64| {
            let ratio = if measured > 0.0 { format!("{:.2}", predicted / measured) } else { "none".into() };
            vec![name, told(predicted), told(measured), ratio]
        };
        let header = ["instruction", "predicted", "measured", "predicted / measured"].map(str::to_string).to_vec();
        let mut rows = vec![header, row("the step".into(), self.predicted_s, self.measured_s)];
        rows.extend(
            self.instructions
                .iter()
                .map(|one| row(format!("pp {}: {}", one.pp, one.instruction), one.predicted_s, one.measured_s)),
        );
        aligned(&rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_of_one_name_are_told_apart() {
        let event = |pid: usize, ts: f64, dur: f64| serde_json::json!({"ph": "X", "name": "gather", "pid": pid, "ts": ts, "dur": dur});
        let process = |pid: usize| {
            let name = format!("rank {pid}: dp {pid}, tp 0, pp 0");
            serde_json::json!({"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}})
        };
        let events =
            [process(0), process(1), event(0, 9.0, 2e6), event(0, 1.0, 1e6), event(1, 1.0, 3e6), event(1, 9.0, 4e6)];
        let file: TraceFile = serde_json::from_value(serde_json::json!({"traceEvents": events})).expect("a trace");
        let durations: Vec<(usize, Vec<f64>)> =
            file.durations().into_iter().map(|((_, _, nth), seconds)| (nth, seconds)).collect();
        assert_eq!(durations, [(0, vec![1.0, 3.0]), (1, vec![2.0, 4.0])]);
    }
}
