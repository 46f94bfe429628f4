//! Schedules that were written down: read, and compared with the run before anything is compiled from them.

use std::collections::{BTreeMap, HashMap};

use super::{Cell, CellKind, CellTimes, Schedule, ScheduleTextError, Timeline};

/// The reason why a file is not a schedule of a run. Every message names line and cell.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GivenScheduleError {
    /// It cannot be read.
    #[error(transparent)]
    Text(#[from] ScheduleTextError),
    /// One line per rank is missing or too many.
    #[error("lines with cells: {lines}, parallelism.pp = {pp}; write one line per pipeline rank")]
    Lines {
        /// Lines with cells.
        lines: usize,
        /// Pipeline ranks.
        pp: usize,
    },
    /// A microbatch that a step does not have.
    #[error("line {line}: `{cell}` is of microbatch {}, a step has {num_microbatches}: 0 to {}", cell.microbatch.0, num_microbatches - 1)]
    Microbatch {
        /// Line, counted from 1.
        line: usize,
        /// The cell.
        cell: Cell,
        /// Microbatches of a step.
        num_microbatches: usize,
    },
    /// Work that is done twice.
    #[error("line {line}: `{cell}` does again what `{before}` has done; leave one of them out")]
    Twice {
        /// Line, counted from 1.
        line: usize,
        /// The later cell.
        cell: Cell,
        /// The earlier one.
        before: Cell,
    },
    /// Work that nobody does.
    #[error("line {line}: `{cell}` is missing; every stage runs F, and B or both I and W, of every microbatch")]
    Missing {
        /// Line, counted from 1.
        line: usize,
        /// The expected content.
        cell: Cell,
    },
    /// A cell that waits in a circle.
    #[error(
        "line {line}: `{cell}` never starts, for it waits for a cell that comes later on its line or never starts either; move it after that cell"
    )]
    Stuck {
        /// Line, counted from 1.
        line: usize,
        /// The first cell that cannot start.
        cell: Cell,
    },
    /// Two ranks disagree about the order of what one sends to the other.
    #[error(
        "line {line}: `{cell}` takes from line {from}, where `{sender}` comes first; a rank receives in the order in which the other sends"
    )]
    Channel {
        /// Line of the receiver, counted from 1.
        line: usize,
        /// The cell that receives.
        cell: Cell,
        /// Line of the sender.
        from: usize,
        /// The cell that the sender sends at this point.
        sender: Cell,
    },
}

/// Reads a schedule for `pp` ranks and `num_microbatches`.
pub(super) fn read(text: &str, pp: usize, num_microbatches: usize) -> Result<Schedule, GivenScheduleError> {
    let schedule: Schedule = text.parse()?;
    // The n-th line with cells, as a person counts lines.
    let lines = super::text::lines_with_cells(text);
    if schedule.ranks.len() != pp {
        return Err(GivenScheduleError::Lines { lines: schedule.ranks.len(), pp });
    }
    work(&schedule, &lines, num_microbatches)?;
    channels(&schedule, &lines)?;
    let timeline = Timeline::new(&schedule, CellTimes::EVEN);
    for (rank, cells) in schedule.ranks.iter().enumerate() {
        if let Some(&cell) = cells.get(timeline.ranks[rank].len()) {
            return Err(GivenScheduleError::Stuck { line: lines[rank], cell });
        }
    }
    Ok(schedule)
}

/// The parts of a cell's work; a full backward does both parts of it.
fn parts(kind: CellKind) -> &'static [CellKind] {
    match kind {
        CellKind::F => &[CellKind::F],
        CellKind::I => &[CellKind::I],
        CellKind::W => &[CellKind::W],
        CellKind::B => &[CellKind::I, CellKind::W],
    }
}

/// Every part of the work is there once.
fn work(schedule: &Schedule, lines: &[usize], num_microbatches: usize) -> Result<(), GivenScheduleError> {
    let mut done: HashMap<Cell, Cell> = HashMap::new();
    for (cells, &line) in schedule.ranks.iter().zip(lines) {
        for &cell in cells {
            if cell.microbatch.0 as usize >= num_microbatches {
                return Err(GivenScheduleError::Microbatch { line, cell, num_microbatches });
            }
            for &kind in parts(cell.kind) {
                if let Some(before) = done.insert(Cell { kind, ..cell }, cell) {
                    return Err(GivenScheduleError::Twice { line, cell, before });
                }
            }
        }
    }
    for (stage, &rank) in schedule.stage_map.iter().enumerate() {
        for microbatch in 0..num_microbatches {
            for kind in [CellKind::F, CellKind::I, CellKind::W] {
                let cell = Cell::new(stage, kind, microbatch);
                if !done.contains_key(&cell) {
                    return Err(GivenScheduleError::Missing { line: lines[rank], cell });
                }
            }
        }
    }
    Ok(())
}

/// Messages from one rank to another: forwards, and gradients.
type Channel = (usize, usize, CellKind);

/// Messages from one rank to another are received in the order in which they are sent.
fn channels(schedule: &Schedule, lines: &[usize]) -> Result<(), GivenScheduleError> {
    let mut sent: BTreeMap<Channel, Vec<Cell>> = BTreeMap::new();
    let mut received: BTreeMap<Channel, Vec<Cell>> = BTreeMap::new();
    let rank_of = |stage: Option<u32>| stage.and_then(|stage| schedule.stage_map.get(stage as usize)).copied();
    for (rank, cells) in schedule.ranks.iter().enumerate() {
        for &cell in cells {
            let (before, after) = (cell.stage.0.checked_sub(1), cell.stage.0.checked_add(1));
            let (kind, source, target) = match cell.kind {
                CellKind::F => (CellKind::F, before, after),
                CellKind::B | CellKind::I => (CellKind::I, after, before),
                CellKind::W => continue,
            };
            if let Some(to) = rank_of(target).filter(|to| *to != rank) {
                sent.entry((rank, to, kind)).or_default().push(cell);
            }
            if let Some(from) = rank_of(source).filter(|from| *from != rank) {
                received.entry((from, rank, kind)).or_default().push(cell);
            }
        }
    }
    for (channel @ (from, to, _), cells) in &received {
        let senders = sent.get(channel).map_or(&[][..], Vec::as_slice);
        let matches = |(cell, sender): &(&Cell, &Cell)| {
            cell.microbatch == sender.microbatch && cell.stage.0.abs_diff(sender.stage.0) == 1
        };
        if let Some((cell, sender)) = cells.iter().zip(senders).find(|pair| !matches(pair)) {
            let (line, from) = (lines[*to], lines[*from]);
            return Err(GivenScheduleError::Channel { line, cell: *cell, from, sender: *sender });
        }
    }
    Ok(())
}
