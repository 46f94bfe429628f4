//! Fitting a profile's constants to runs that were measured.

use std::fmt;

use cluster::{Cluster, Constant};
use train::SetupError;

use crate::validate::PreparedRun;

/// Most rounds of the fit.
const ROUNDS: usize = 25;
/// A round that improves the sum of squares by less than this share is the last.
const ENOUGH: f64 = 1e-4;
/// Step of a difference quotient, as a share of the constant.
const STEP: f64 = 0.02;
/// Errors beyond this share count no more than it, so that rows that no constant explains do not bend those that
/// explain the rest.
const CAP: f64 = 0.12;

/// Least share by which a constant's growth to its e-fold must change times for the rows to determine it.
const SEEN: f64 = 1e-3;
/// Least share of a constant's effect on times that changes of the others cannot reproduce: below it, only their joint
/// effect is known.
const APART: f64 = 0.02;

/// The result of a fit.
#[derive(Clone, Debug, PartialEq)]
pub struct Fitted {
    /// The profile with the constants.
    pub cluster: Cluster,
    /// Constants that the rows do not determine.
    pub open: Vec<(Constant, Open)>,
}

/// The reason why rows do not determine a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Open {
    /// No time depends on it: the fit keeps its value.
    Unseen,
    /// A change of other fitted constants has the same effect.
    Mixed,
}

impl fmt::Display for Open {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Open::Unseen => "no row depends on it",
            Open::Mixed => "these rows cannot tell it from the others",
        })
    }
}

/// The profile whose `constants` predict the runs best: least squares of `ln(predicted / measured)` by Levenberg's and
/// Marquardt's steps, each constant within its range. Runs without a time do not count.
///
/// # Errors
/// Degrees that make no mesh.
pub fn fit(base: &Cluster, constants: &[Constant], runs: &[PreparedRun]) -> Result<Fitted, SetupError> {
    let mut best = base.clone();
    let mut residuals = errors(&best, runs, capped)?;
    let mut damping = 1e-2;
    for _ in 0..ROUNDS {
        let columns = derivatives(&best, constants, runs, capped)?;
        let before = squares(&residuals);
        let improved = loop {
            let steps = possible_steps(&best, constants, &columns, |free| solve(free, &residuals, damping));
            let mut tried = best.clone();
            for (constant, step) in constants.iter().zip(&steps) {
                *constant.of(&mut tried) = stepped(*constant, &best, *step);
            }
            let next = errors(&tried, runs, capped)?;
            if squares(&next) < before {
                (best, residuals) = (tried, next);
                damping = (damping * 0.3).max(1e-6);
                break true;
            }
            damping *= 4.0;
            if damping > 1e4 {
                break false;
            }
        };
        if !improved || squares(&residuals) > before * (1.0 - ENOUGH) {
            break;
        }
    }
    // Of two kernels or links the slower one counts, so an effect may be gone where it was, or be new.
    let [before, after] = [base, &best].map(|cluster| derivatives(cluster, constants, runs, |error| error));
    let both = before?.into_iter().zip(after?).map(|(before, after)| [before, after].concat());
    let open = open(constants, &both.collect::<Vec<_>>());
    for (constant, _) in open.iter().filter(|(_, why)| *why == Open::Unseen) {
        *constant.of(&mut best) = *constant.of(&mut base.clone());
    }
    Ok(Fitted { cluster: best, open })
}

/// The value of a constant of `cluster` a step on, within its range.
fn stepped(constant: Constant, cluster: &Cluster, step: f64) -> f64 {
    let (low, high) = constant.range();
    (*constant.of(&mut cluster.clone()) * step.clamp(-0.5, 0.5).exp()).clamp(low, high)
}

/// The solution of `solve` for the columns of those constants that can take their steps. One at an end of its range
/// that would leave it stays, and the others are solved for without it: their steps would count on its.
fn possible_steps(
    cluster: &Cluster,
    constants: &[Constant],
    columns: &[Vec<f64>],
    solve: impl Fn(&[Vec<f64>]) -> Vec<f64>,
) -> Vec<f64> {
    let mut free: Vec<usize> = (0..constants.len()).collect();
    loop {
        let steps = solve(&free.iter().map(|index| columns[*index].clone()).collect::<Vec<_>>());
        let moves = |index: usize, step: f64| {
            stepped(constants[index], cluster, step) != *constants[index].of(&mut cluster.clone())
        };
        let moved: Vec<(usize, f64)> =
            free.iter().copied().zip(steps).filter(|(index, step)| moves(*index, *step)).collect();
        if moved.len() == free.len() {
            let mut all = vec![0.0; constants.len()];
            moved.into_iter().for_each(|(index, step)| all[index] = step);
            return all;
        }
        free = moved.into_iter().map(|(index, _)| index).collect();
    }
}

/// Which of `constants` the rows do not determine, whose effects are `columns`.
fn open(constants: &[Constant], columns: &[Vec<f64>]) -> Vec<(Constant, Open)> {
    let of = |index: usize| {
        let column = &columns[index];
        let effect = squares(column);
        if effect <= SEEN * SEEN * column.len() as f64 {
            return Some(Open::Unseen);
        }
        let others: Vec<Vec<f64>> =
            (0..columns.len()).filter(|other| *other != index).map(|other| columns[other].clone()).collect();
        let shares = solve(&others, column, 0.0);
        let taken = |row: usize| others.iter().zip(&shares).map(|(other, share)| other[row] * share).sum::<f64>();
        let left: Vec<f64> = column.iter().enumerate().map(|(row, value)| value + taken(row)).collect();
        (squares(&left) <= APART * APART * effect).then_some(Open::Mixed)
    };
    constants.iter().enumerate().filter_map(|(index, constant)| Some((*constant, of(index)?))).collect()
}

/// `counted` of the logarithm of every predicted time over the measured one.
fn errors(cluster: &Cluster, runs: &[PreparedRun], counted: fn(f64) -> f64) -> Result<Vec<f64>, SetupError> {
    let scored = PreparedRun::times_on(runs, cluster)?;
    let of =
        |(run, predicted): (&PreparedRun, f64)| run.run.step_s.map(|measured| counted((predicted / measured).ln()));
    Ok(runs.iter().zip(scored).filter_map(of).collect())
}

fn capped(error: f64) -> f64 {
    CAP * (error / CAP).tanh()
}

fn squares(residuals: &[f64]) -> f64 {
    residuals.iter().map(|residual| residual * residual).sum()
}

/// One column per constant: what the errors change by for a change of its logarithm.
fn derivatives(
    cluster: &Cluster,
    constants: &[Constant],
    runs: &[PreparedRun],
    counted: fn(f64) -> f64,
) -> Result<Vec<Vec<f64>>, SetupError> {
    let residuals = errors(cluster, runs, counted)?;
    let column = |constant: &Constant| -> Result<Vec<f64>, SetupError> {
        let mut moved = cluster.clone();
        let (low, high) = constant.range();
        let value = constant.of(&mut moved);
        // A share of 1 can only become smaller; a constant of 0 has no logarithm.
        *value = value.max(low + 1e-3 * (high - low));
        let step = if *value * (1.0 + STEP) > high { -STEP } else { STEP };
        *value *= 1.0 + step;
        let after = errors(&moved, runs, counted)?;
        Ok(after.iter().zip(&residuals).map(|(after, before)| (after - before) / step).collect())
    };
    constants.iter().map(column).collect()
}

/// The steps `x` of least `|columns x + residuals|^2 + damping |diagonal x|^2`.
fn solve(columns: &[Vec<f64>], residuals: &[f64], damping: f64) -> Vec<f64> {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let n = columns.len();
    let mut rows: Vec<Vec<f64>> = (0..n)
        .map(|row| {
            let mut cells: Vec<f64> = columns.iter().map(|column| dot(&columns[row], column)).collect();
            cells[row] += damping * cells[row] + 1e-9;
            cells.push(-dot(&columns[row], residuals));
            cells
        })
        .collect();
    for pivot in 0..n {
        let best = (pivot..n).max_by(|a, b| rows[*a][pivot].abs().total_cmp(&rows[*b][pivot].abs())).unwrap_or(pivot);
        rows.swap(pivot, best);
        let (above, below) = rows.split_at_mut(pivot + 1);
        let leading = &above[pivot];
        for row in below {
            let factor = row[pivot] / leading[pivot];
            row.iter_mut().zip(leading).for_each(|(cell, lead)| *cell -= factor * lead);
        }
    }
    let mut x = vec![0.0; n];
    for row in (0..n).rev() {
        let known: f64 = (row + 1..n).map(|column| rows[row][column] * x[column]).sum();
        x[row] = (rows[row][n] - known) / rows[row][row];
    }
    x
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that fails is one that panics")]

    use super::*;

    #[test]
    fn a_straight_line_is_solved_exactly() {
        // residuals + columns x = 0 for x = (2, -1).
        let columns = [vec![1.0, 0.0, 1.0], vec![0.0, 1.0, 1.0]];
        let x = solve(&columns, &[-2.0, 1.0, -1.0], 0.0);
        assert!((x[0] - 2.0).abs() < 1e-6 && (x[1] + 1.0).abs() < 1e-6, "{x:?}");
    }

    /// residuals + columns x = 0 for x = (1, 1); without the first constant, the second takes all of the second row.
    #[test]
    fn a_constant_at_the_end_of_its_range_leaves_its_step_to_the_others() {
        let constants = [Constant::MatrixEfficiency, Constant::MemoryEfficiency];
        let columns = [vec![1.0, 1.0], vec![0.0, 1.0]];
        let mut cluster = Cluster::from_toml(cluster::named("a100-80g-dgx").unwrap()).unwrap();
        *Constant::MemoryEfficiency.of(&mut cluster) = 0.5;
        for (efficiency, expected) in [(0.8, [1.0, 1.0]), (Constant::MatrixEfficiency.range().1, [0.0, 2.0])] {
            *Constant::MatrixEfficiency.of(&mut cluster) = efficiency;
            let steps = possible_steps(&cluster, &constants, &columns, |free| solve(free, &[-1.0, -2.0], 0.0));
            assert!(steps.iter().zip(expected).all(|(step, x)| (step - x).abs() < 1e-6), "{efficiency}: {steps:?}");
        }
    }
}
