//! Where the time of a step goes, as one rank sees it: the parts add up to the step.

use std::collections::HashSet;
use std::fmt;

use config::MemoryKind;
use device::Stream;
use program::{Durations, Family, Instr, PassKind, Queue, RankView, StepGraph, StepTimes, TransferDirection};

use crate::costs::StepCosts;

/// Losses of time beyond the floating-point operations of the model at the accelerator's peak.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Loss {
    /// Kernels that do not reach the peak: products of awkward shapes, memory-bound kernels, gaps.
    Kernels,
    /// Recomputing what was not kept.
    Recompute,
    /// Collectives of tensor parallelism within passes.
    Tensor,
    /// Reductions and gathers of data parallelism that computing waits for.
    Data,
    /// Computing that takes longer next to them.
    Contention,
    /// Sends between pipeline stages that computing waits for.
    Pipeline,
    /// Waiting for other stages: fill, drain and stages that are not alike.
    Waiting,
    /// Norm and update.
    Optimizer,
    /// Copies of activations from and to memory of the host that computing waits for.
    Copies,
}

impl Loss {
    /// All of them.
    pub const ALL: [Loss; 9] = [
        Loss::Kernels,
        Loss::Recompute,
        Loss::Tensor,
        Loss::Data,
        Loss::Contention,
        Loss::Pipeline,
        Loss::Waiting,
        Loss::Optimizer,
        Loss::Copies,
    ];
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Loss::Kernels => "kernels below the peak rate",
            Loss::Recompute => "recomputation",
            Loss::Tensor => "tensor-parallel collectives",
            Loss::Data => "data-parallel collectives that nothing hides",
            Loss::Contention => "compute slowed by concurrent collectives",
            Loss::Pipeline => "sends between stages",
            Loss::Waiting => "waiting for other stages",
            Loss::Optimizer => "norm and update",
            Loss::Copies => "copies of activations that nothing hides",
        })
    }
}

/// Nanoseconds of one rank's step by what they are spent on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// The model's floating-point operations at the peak.
    pub at_peak_ns: u64,
    losses: [u64; Loss::ALL.len()],
}

impl Spent {
    /// The time of the pipeline rank that computes longest.
    pub fn new(graph: &StepGraph, costs: &StepCosts, times: &StepTimes) -> Spent {
        let computed = |rank: usize| -> u64 {
            let instrs = &graph.programs()[rank].instrs;
            let passes = instrs.iter().filter_map(|instr| instr.pass());
            passes.map(|pass| costs.pass(pass.unit, pass.kind).whole_ns).sum()
        };
        let busiest = (0..graph.programs().len()).max_by_key(|rank| computed(*rank)).unwrap_or(0);
        let mut spent = Spent::default();
        let begin = times.begins.get(busiest).copied().unwrap_or(0);
        let mut now = begin;
        let program = &graph.programs()[busiest];
        let queues = costs.queues();
        // Reductions may be deferred, so time does not follow the order of the program everywhere.
        let mut placed: Vec<(&Instr, &(u64, u64))> = program.instrs.iter().zip(&times.ranks[busiest]).collect();
        placed.sort_by_key(|(_, (start, _))| *start);
        let copied: HashSet<u64> =
            placed.iter().filter(|(instr, _)| copies(**instr)).map(|(_, (_, end))| *end).collect();
        for (instr, (start, end)) in placed {
            let beside = match instr.stream() {
                Stream::Compute | Stream::Io | Stream::Shift => false,
                Stream::Reduce => queues.reduce == Queue::Own,
                Stream::Transfer => queues.transfer == Queue::Own && graph_sends(*instr),
                Stream::Fetch | Stream::Offload => queues.copies == Queue::Own,
            };
            let duration = costs.of(&program.view, *instr);
            if beside {
                // The norm waits for the slowest rank, wherever it is issued.
                if *instr == Instr::GradNorm {
                    let from = now.max(*start);
                    spent.add(Loss::Data, from - now);
                    spent.add(Loss::Waiting, (end - from).saturating_sub(duration));
                    spent.add(Loss::Optimizer, duration.min(end - from));
                    now = *end;
                }
                continue;
            }
            let loss = if copied.contains(start) { Loss::Copies } else { awaited(&program.view, *instr) };
            spent.add(loss, start.saturating_sub(now));
            spent.take(costs, *instr, end - start, duration);
            now = now.max(*end);
        }
        let last = program.instrs.iter().zip(&times.ranks[busiest]).max_by_key(|(_, (_, end))| *end);
        let loss = last.map_or(Loss::Data, |(instr, _)| awaited(&program.view, *instr));
        spent.add(loss, program_end(times, busiest).saturating_sub(now));
        spent.add(Loss::Waiting, (begin + times.period()).saturating_sub(now.max(program_end(times, busiest))));
        spent
    }

    fn add(&mut self, loss: Loss, ns: u64) {
        self.losses[loss as usize] += ns;
    }

    fn take(&mut self, costs: &StepCosts, instr: Instr, took_ns: u64, duration: u64) {
        match instr.family() {
            Family::Pass(pass) => {
                let cost = costs.pass(pass.unit, pass.kind);
                self.add(Loss::Contention, took_ns - duration.min(took_ns));
                self.add(Loss::Tensor, cost.collectives_ns);
                let kernels = cost.whole_ns - cost.collectives_ns;
                if pass.kind == PassKind::Recompute {
                    self.add(Loss::Recompute, kernels);
                } else {
                    let at_peak = cost.at_peak_ns.min(kernels);
                    self.at_peak_ns += at_peak;
                    self.add(Loss::Kernels, kernels - at_peak);
                }
            }
            Family::Transfer { direction: TransferDirection::Receive, .. } => self.add(Loss::Waiting, took_ns),
            Family::Transfer { direction: TransferDirection::Send, .. } => self.add(Loss::Pipeline, took_ns),
            Family::Gather { .. } | Family::Reduce { .. } => self.add(Loss::Data, took_ns),
            Family::SumTied | Family::GradNorm => {
                self.add(Loss::Waiting, took_ns.saturating_sub(duration));
                self.add(Loss::Optimizer, duration.min(took_ns));
            }
            Family::Update { .. } | Family::CopyState { .. } => self.add(Loss::Optimizer, took_ns),
            Family::CopyActs { .. } => self.add(Loss::Copies, took_ns),
            Family::Load { .. } | Family::Bookkeeping { .. } => {}
        }
    }

    /// Nanoseconds of one loss.
    pub fn on(&self, loss: Loss) -> u64 {
        self.losses[loss as usize]
    }

    /// The whole step.
    pub fn step_ns(&self) -> u64 {
        self.at_peak_ns + self.losses.iter().sum::<u64>()
    }

    /// Losses with their nanoseconds, the largest first.
    pub fn largest(&self) -> Vec<(Loss, u64)> {
        let mut all: Vec<(Loss, u64)> = Loss::ALL.iter().map(|loss| (*loss, self.on(*loss))).collect();
        all.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
        all
    }
}

/// Whether an instruction copies activations from or to memory of the host.
fn copies(instr: Instr) -> bool {
    matches!(instr.family(), Family::CopyActs { .. })
}

fn graph_sends(instr: Instr) -> bool {
    matches!(instr.transfer(), Some((_, TransferDirection::Send)))
}

/// The loss of a wait of a rank that has computed all before `instr`: for copies of optimizer state, or for data
/// parallelism.
fn awaited(view: &RankView, instr: Instr) -> Loss {
    match (instr, view.offload.optimizer_state()) {
        (Instr::OptimizerStep { .. }, MemoryKind::Host) | (Instr::OffloadState { .. }, _) => Loss::Optimizer,
        (_, MemoryKind::Arena | MemoryKind::Host) => Loss::Data,
    }
}

fn program_end(times: &StepTimes, rank: usize) -> u64 {
    times.ranks[rank].iter().map(|(_, end)| *end).max().unwrap_or(0)
}
