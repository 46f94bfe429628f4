//! The operations of a step by kind and shape, with predicted and measured times.

use std::fmt;
use std::time::Duration;

use cluster::Accelerator;
use config::Format;
use device::{Cost, Numerics, Op, Orientation, Tensor};

use crate::kernel_times::timed_device::{Steps, TimedOp};

/// Equal operations of a step.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// The kind with its shape.
    pub name: String,
    /// Operations.
    pub calls: usize,
    /// Cost of all of them.
    pub cost: Cost,
    /// Of all of them; `None` where one has no time.
    pub measured: Option<Duration>,
}

/// The step of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct StepTable {
    /// Those that take longest first, by prediction on the last accelerator.
    pub lines: Vec<Line>,
    accelerators: Vec<Accelerator>,
    numerics: Numerics,
}

impl StepTable {
    /// The last whole steps of `steps`. The time of an operation is the median over these steps.
    ///
    /// # Errors
    /// Fewer than three steps, or steps of unequal lengths.
    pub fn new(steps: &Steps, accelerators: Vec<Accelerator>, numerics: Numerics) -> Result<StepTable, String> {
        // The first step includes initialisation, and the last one may not have ended.
        let [_, whole @ .., _] = steps.as_slice() else {
            return Err(format!("a table needs 3 steps or more; got {}", steps.len()));
        };
        let Some(newest) = whole.last() else {
            return Err(format!("a table needs 3 steps or more; got {}", steps.len()));
        };
        if whole.iter().any(|step| step.len() != newest.len()) {
            return Err("steps must submit equally many operations".into());
        }
        let mut table = StepTable { lines: vec![], accelerators, numerics };
        for (index, timed) in newest.iter().enumerate() {
            let times = whole.iter().filter_map(|step| step[index].time).collect();
            table.add(&TimedOp { op: timed.op, time: median(times) });
        }
        let predicted = |line: &Line| table.accelerators.last().map_or(0.0, |last| seconds(line, last, numerics));
        let mut order: Vec<(f64, Line)> = table.lines.iter().map(|line| (predicted(line), line.clone())).collect();
        order.sort_by(|(a, _), (b, _)| b.total_cmp(a));
        table.lines = order.into_iter().map(|(_, line)| line).collect();
        Ok(table)
    }

    fn add(&mut self, timed: &TimedOp) {
        let (name, cost) = (name(&timed.op), timed.op.cost());
        match self.lines.iter_mut().find(|line| line.name == name) {
            None => self.lines.push(Line { name, calls: 1, cost, measured: timed.time }),
            Some(line) => {
                line.calls += 1;
                line.cost.multiply_adds += cost.multiply_adds;
                line.cost.moved_bytes += cost.moved_bytes;
                line.measured = line.measured.zip(timed.time).map(|(sum, time)| sum + time);
            }
        }
    }
}

/// The value in the middle.
fn median(mut times: Vec<Duration>) -> Option<Duration> {
    times.sort();
    times.get(times.len() / 2).copied()
}

/// Operations of one name have one shape. A fused one has the names of those that it stands for.
fn name(op: &Op) -> String {
    op.unfused().map(|op| name_of_one(&op)).collect::<Vec<_>>().join(" + ")
}

fn name_of_one(op: &Op) -> String {
    let shape = |tensor: Tensor| format!("{:?}[{}, {}]", tensor.dtype, tensor.rows, tensor.cols);
    if let Op::MatMul { orientation, a, b, out, .. } = op {
        let depth = match orientation {
            Orientation::Nt | Orientation::Nn => a.cols,
            Orientation::Tn => a.rows,
        };
        let types = [a.dtype, b.dtype, out.dtype].map(|dtype| format!("{dtype:?}").to_lowercase()).join(" ");
        return format!("mat_mul {orientation:?} {} x {} x {depth}, {types}", out.rows, out.cols);
    }
    let operands = op.operands();
    let largest = operands.reads().chain(operands.writes()).max_by_key(|tensor| tensor.len());
    format!("{} {}", op.name(), largest.map(shape).unwrap_or_default())
}

/// The longer of the times of arithmetic and of memory, at the rates of the data sheet.
fn seconds(line: &Line, accelerator: &Accelerator, numerics: Numerics) -> f64 {
    let tflops = match numerics.stored {
        Format::Fp32 => accelerator.single_tflops,
        Format::Bf16 | Format::Fp16 => accelerator.half_tflops,
    };
    let arithmetic = 2.0 * line.cost.multiply_adds as f64 / (tflops * 1e12);
    let memory = line.cost.moved_bytes as f64 / (accelerator.memory_gb_per_s * 1e9);
    arithmetic.max(memory)
}

impl fmt::Display for StepTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self.accelerators.iter().map(|one| format!("{}, us", one.name)).collect();
        writeln!(f, "| operation | calls | GFLOP | MB | {} | measured, us | share |", names.join(" | "))?;
        writeln!(f, "|---|---|---|---|{}---|---|", "---|".repeat(names.len()))?;
        let mut sums = vec![0.0; names.len()];
        let mut measured = Some(Duration::ZERO);
        for line in &self.lines {
            let predicted = self.accelerators.iter().map(|one| seconds(line, one, self.numerics));
            let predicted: Vec<f64> = predicted.collect();
            sums.iter_mut().zip(&predicted).for_each(|(sum, seconds)| *sum += seconds);
            measured = measured.zip(line.measured).map(|(sum, time)| sum + time);
            write!(
                f,
                "| {} | {} | {:.2} | {:.1} |",
                line.name,
                line.calls,
                2.0 * line.cost.multiply_adds as f64 / 1e9,
                line.cost.moved_bytes as f64 / 1e6
            )?;
            write_times(f, &predicted, line.measured)?;
        }
        write!(f, "| all | {} | | |", self.lines.iter().map(|line| line.calls).sum::<usize>())?;
        write_times(f, &sums, measured)
    }
}

/// Predicted times, the measured one, and the share of the measured time that the last prediction has.
fn write_times(f: &mut fmt::Formatter<'_>, predicted: &[f64], measured: Option<Duration>) -> fmt::Result {
    for seconds in predicted {
        write!(f, " {:.1} |", seconds * 1e6)?;
    }
    match measured.map(|time| time.as_secs_f64()) {
        Some(seconds) => {
            let share = predicted.last().map_or(0.0, |predicted| predicted / seconds);
            writeln!(f, " {:.1} | {:.0} % |", seconds * 1e6, 100.0 * share)
        }
        None => writeln!(f, " not measured | |"),
    }
}
