//! Schedules as text: one line per pipeline rank, cells as the papers print them.

use std::fmt;
use std::str::FromStr;

use super::{Cell, CellKind, Schedule};

/// The reason that a text is not a schedule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleTextError {
    /// A word is not a cell.
    #[error(
        "line {line}: `{word}` is not a cell; cells are written as 2F0: stage 2, forward (or B, I, W), microbatch 0"
    )]
    Cell {
        /// Line, counted from 1.
        line: usize,
        /// The word.
        word: String,
    },
    /// A stage has cells on two ranks.
    #[error("line {line}: `{cell}` is of a stage that has cells on line {first} too; a stage lives on one rank")]
    TwoRanks {
        /// Line, counted from 1.
        line: usize,
        /// The cell.
        cell: Cell,
        /// The line of the stage's first cell.
        first: usize,
    },
    /// A stage number is left out.
    #[error("stage {stage} has no cells, but stage {largest} has; stages are numbered without gaps")]
    MissingStage {
        /// The stage without cells.
        stage: usize,
        /// The largest stage number.
        largest: usize,
    },
}

impl fmt::Display for CellKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CellKind::F => "F",
            CellKind::B => "B",
            CellKind::I => "I",
            CellKind::W => "W",
        })
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}{}", self.stage.0, self.kind, self.microbatch.0)
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for cells in &self.ranks {
            let words: Vec<String> = cells.iter().map(Cell::to_string).collect();
            writeln!(f, "{}", words.join(" "))?;
        }
        Ok(())
    }
}

/// The cell that a word names.
fn parse_cell(word: &str) -> Option<Cell> {
    let (at, letter) = word.char_indices().find(|(_, letter)| !letter.is_ascii_digit())?;
    let kind = match letter {
        'F' => CellKind::F,
        'B' => CellKind::B,
        'I' => CellKind::I,
        'W' => CellKind::W,
        _ => return None,
    };
    // `parse` alone would take a sign.
    let number = |text: &str| if text.starts_with('+') { None } else { text.parse::<u32>().ok() };
    Some(Cell::new(number(&word[..at])? as usize, kind, number(&word[at + 1..])? as usize))
}

impl FromStr for Schedule {
    type Err = ScheduleTextError;

    /// Reads one line per pipeline rank; a stage is placed on the rank in whose line its cells are.
    /// Empty lines and what follows `#` are left out.
    fn from_str(text: &str) -> Result<Schedule, ScheduleTextError> {
        let mut ranks: Vec<(usize, Vec<Cell>)> = vec![];
        for (line, content) in contents(text) {
            let cell = |word: &str| parse_cell(word).ok_or_else(|| ScheduleTextError::Cell { line, word: word.into() });
            ranks.push((line, content.split_whitespace().map(cell).collect::<Result<_, _>>()?));
        }
        let stage_map = stage_map(&ranks)?;
        Ok(Schedule { ranks: ranks.into_iter().map(|(_, cells)| cells).collect(), stage_map })
    }
}

/// Lines with cells, counted from 1, without comments.
fn contents(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or(""));
    (1..).zip(lines).filter(|(_, content)| !content.trim().is_empty())
}

/// The line of each rank, counted from 1.
pub(super) fn lines_with_cells(text: &str) -> Vec<usize> {
    contents(text).map(|(line, _)| line).collect()
}

fn stage_map(ranks: &[(usize, Vec<Cell>)]) -> Result<Vec<usize>, ScheduleTextError> {
    let mut found = std::collections::BTreeMap::new();
    for (rank, (line, cells)) in ranks.iter().enumerate() {
        for cell in cells {
            let first = *found.entry(cell.stage.0 as usize).or_insert(rank);
            if first != rank {
                return Err(ScheduleTextError::TwoRanks { line: *line, cell: *cell, first: ranks[first].0 });
            }
        }
    }
    let largest = found.keys().next_back().copied().unwrap_or(0);
    // A map of as many stages as its largest number says has no gap.
    match (0..found.len()).find(|stage| !found.contains_key(stage)) {
        Some(stage) => Err(ScheduleTextError::MissingStage { stage, largest }),
        None => Ok(found.into_values().collect()),
    }
}
