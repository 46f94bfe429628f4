//! A step drawn in characters: a line per rank, a letter per slice of time.

use crate::time_axis::{Tick, ticks};
use crate::trace::{BlockKind, Trace};

/// Moments of the time axis, about.
const TICKS: f64 = 6.0;

/// Lines of `columns` letters: what a rank spends most of the slice with; below them a time axis. At most `rows` ranks are drawn, first and last
/// ones, and between them ones at equal distances.
pub fn lines(trace: &Trace, columns: usize, rows: usize) -> String {
    let end = trace.end_ns().max(1) as f64;
    let shown = chosen(trace.ranks.len(), rows.max(2));
    let width = shown.iter().map(|rank| trace.ranks[*rank].name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for rank in shown {
        let mut slices = vec![[0.0; BlockKind::ALL.len()]; columns];
        for block in trace.ranks[rank].blocks() {
            let kind = BlockKind::ALL.iter().position(|kind| *kind == block.kind).unwrap_or(0);
            let (start, stop) = (block.start_ns as f64 / end, block.end_ns as f64 / end);
            let (first, last) = ((start * columns as f64) as usize, (stop * columns as f64) as usize);
            for (slice, spent) in slices.iter_mut().enumerate().take(last + 1).skip(first) {
                let low = start.max(slice as f64 / columns as f64);
                let high = stop.min((slice + 1) as f64 / columns as f64);
                spent[kind] += (high - low).max(0.0);
            }
        }
        let letters: String = slices.iter().map(|spent| letter(spent, 1.0 / columns as f64)).collect();
        text += &format!("{:<width$} |{letters}|\n", trace.ranks[rank].name);
    }
    text + &axis(trace.end_ns(), columns, width)
}

/// Labels that begin below a mark at their moments.
fn axis(end_ns: u64, columns: usize, width: usize) -> String {
    let (mut marks, mut labels) = (String::new(), String::new());
    for Tick { at_ns, label } in ticks(end_ns, TICKS) {
        let column = (at_ns / end_ns.max(1) as f64 * columns as f64) as usize;
        if labels.chars().count() < column || column == 0 {
            marks += &format!("{}'", " ".repeat(column - marks.len()));
            labels += &format!("{}{label}", " ".repeat(column - labels.chars().count()));
        }
    }
    let margin = " ".repeat(width + 2);
    format!("{margin}{marks}\n{margin}{labels}\n")
}

/// What the letters mean, as far as a drawing has them.
pub fn legend(drawing: &str) -> String {
    let used = BlockKind::ALL.iter().filter(|kind| drawing.contains(of(**kind)));
    let words = used.map(|kind| format!("{} {}", of(*kind), kind.name()));
    words.chain(["· waiting".to_string()]).collect::<Vec<_>>().join(", ")
}

fn of(kind: BlockKind) -> char {
    match kind {
        BlockKind::Forward => 'F',
        BlockKind::Backward => 'B',
        BlockKind::BackwardInput => 'I',
        BlockKind::BackwardWeight => 'W',
        BlockKind::Communication => 'c',
        BlockKind::Optimizer => 'U',
    }
}

fn letter(spent: &[f64; BlockKind::ALL.len()], slice: f64) -> char {
    let busy: f64 = spent.iter().sum();
    if busy < slice / 2.0 {
        return '·';
    }
    let most = BlockKind::ALL.iter().zip(spent).max_by(|one, other| one.1.total_cmp(other.1));
    most.map_or('·', |(kind, _)| of(*kind))
}

fn chosen(ranks: usize, rows: usize) -> Vec<usize> {
    match ranks <= rows {
        true => (0..ranks).collect(),
        false => (0..rows).map(|row| row * (ranks - 1) / (rows - 1)).collect(),
    }
}
