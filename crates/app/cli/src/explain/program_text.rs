//! A rank's program in words: folded to what a person reads, or every instruction with its effects.

use config::{Microbatch, Unit};
use mesh::Rank;
use program::{Instr, PassKind};
use train::Setup;

use crate::explain::mesh_text::stage_of;

/// Every instruction with a comment: with whom it communicates, what it reads, writes, frees.
pub fn every_instruction(setup: &Setup, rank: Rank) -> String {
    setup.program(stage_of(setup, rank)).to_string()
}

/// The program with neighbouring instructions of one kind in one line.
pub fn folded(setup: &Setup, rank: Rank) -> String {
    let program = setup.program(stage_of(setup, rank));
    let mut lines: Vec<Line> = vec![];
    for instr in &program.instrs {
        let step = Line::of(*instr, setup.parallelism.degrees.dp);
        match lines.last_mut() {
            Some(last) if last.includes(*instr) => {}
            Some(last) if last.verb == step.verb && last.microbatch == step.microbatch => last.units.extend(step.units),
            Some(_) | None => lines.push(step),
        }
    }
    let mut text = format!(
        "program of one step: {} instructions, the same on every rank of this stage; --step prints them one by one\n",
        program.instrs.len()
    );
    for line in &lines {
        text += &format!("  {line}\n");
    }
    text
}

/// Instructions of one kind on one microbatch.
struct Line {
    verb: &'static str,
    note: &'static str,
    units: Vec<Unit>,
    microbatch: Option<Microbatch>,
}

/// A backward pass of inputs and, directly after each, of weights.
const BACKWARD: &str = "backward";

impl Line {
    /// Whether the line stands for `instr` too: a backward pass of weights directly after that of the input.
    fn includes(&self, instr: Instr) -> bool {
        instr.pass().is_some_and(|pass| {
            pass.kind == PassKind::BackwardWeight
                && self.verb == BACKWARD
                && self.microbatch == Some(pass.microbatch)
                && self.units.last() == Some(&pass.unit)
        })
    }

    /// `instr` in words, in a run of `dp` replicas.
    fn of(instr: Instr, dp: usize) -> Line {
        let replicas = if dp == 1 { "the dp group is this rank alone" } else { "over the dp group" };
        let line = |verb, note, unit: Option<Unit>, microbatch| Line {
            verb,
            note,
            units: unit.into_iter().collect(),
            microbatch,
        };
        match instr {
            Instr::Load { microbatch } => line("load", "tokens of this replica's sequences", None, Some(microbatch)),
            Instr::Forward { unit, microbatch } => line("forward", "", Some(unit), Some(microbatch)),
            Instr::Recompute { unit, microbatch } => {
                line("recompute", "what the forward pass did not keep", Some(unit), Some(microbatch))
            }
            Instr::BackwardInput { unit, microbatch } => line(BACKWARD, "", Some(unit), Some(microbatch)),
            Instr::BackwardWeight { unit, microbatch } => {
                line("backward weights", "after its input's gradient", Some(unit), Some(microbatch))
            }
            Instr::SendAct { unit, microbatch } => {
                line("send output of", "to the next stage", Some(unit), Some(microbatch))
            }
            Instr::RecvAct { unit, microbatch } => {
                line("receive output of", "from the stage before", Some(unit), Some(microbatch))
            }
            Instr::SendGrad { unit, microbatch } => {
                line("send gradient of", "to the stage before", Some(unit), Some(microbatch))
            }
            Instr::RecvGrad { unit, microbatch } => {
                line("receive gradient of", "from the next stage", Some(unit), Some(microbatch))
            }
            Instr::GatherParams { unit } => line("gather parameters", "each dp rank gives its shard", Some(unit), None),
            Instr::FreeParams { unit } => line("free parameters", "", Some(unit), None),
            Instr::ReduceGrads { unit, .. } => line("reduce gradients", replicas, Some(unit), None),
            Instr::SumTied => line("sum tied table", "input and output use one matrix", None, None),
            Instr::GradNorm => line("gradient norm", "over all ranks, with the loss", None, None),
            Instr::OptimizerStep { unit } => line("optimizer step", "", Some(unit), None),
            Instr::FetchState { unit } => line("fetch state", "from memory of the host", Some(unit), None),
            Instr::OffloadState { unit } => line("offload state", "back to memory of the host", Some(unit), None),
            Instr::OffloadActs { unit, microbatch } => {
                line("offload activations", "to memory of the host", Some(unit), Some(microbatch))
            }
            Instr::FetchActs { unit, microbatch } => {
                line("fetch activations", "from memory of the host", Some(unit), Some(microbatch))
            }
            Instr::Save { unit } => line("save", "", Some(unit), None),
        }
    }
}

impl std::fmt::Display for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = names(&self.units);
        let microbatch = self.microbatch.map_or(String::new(), |microbatch| microbatch.to_string());
        let comment = if self.note.is_empty() { String::new() } else { format!("# {}", self.note) };
        let line = format!("{microbatch:<14}{:<20} {names:<34} {comment}", self.verb);
        f.write_str(line.trim_end())
    }
}

/// Layers that follow each other, up or down, as a range.
fn names(units: &[Unit]) -> String {
    let mut parts: Vec<String> = vec![];
    let mut run: Option<(u32, u32)> = None;
    let close = |run: Option<(u32, u32)>| {
        run.map(
            |(first, last)| if first == last { format!("layer {first}") } else { format!("layers {first} to {last}") },
        )
    };
    for unit in units {
        match (unit, run) {
            (Unit::Layer(number), Some((first, last))) if last.abs_diff(*number) == 1 => run = Some((first, *number)),
            (Unit::Layer(number), open) => {
                parts.extend(close(open));
                run = Some((*number, *number));
            }
            (Unit::Table | Unit::Embedding | Unit::Head | Unit::Adapters(_) | Unit::Experts(_), open) => {
                parts.extend(close(open));
                run = None;
                parts.push(unit.to_string());
            }
        }
    }
    parts.extend(close(run));
    parts.join(", ")
}
