//! A step drawn in characters: a line per rank, a letter per slice of time.

use crate::time_axis::{Tick, ticks};
use crate::trace::{Block, BlockKind, RankTrace, Trace};

/// Moments of the time axis, about.
const TICKS: f64 = 6.0;

/// Lines of `columns` letters for slices of time, and below them a time axis. Each kind has as many letters as it takes
/// time: a slice gets that of the kind that is owed most among those it has. At most `rows` ranks are drawn, first and
/// last ones, and between them ones at equal distances.
pub fn lines(trace: &Trace, columns: usize, rows: usize) -> String {
    let shown = chosen(trace.ranks.len(), rows.max(2));
    let width = shown.iter().map(|rank| trace.ranks[*rank].name.len()).max().unwrap_or(0);
    let end_ns = trace.end_ns();
    let line = |rank: usize| {
        let RankTrace { name, .. } = &trace.ranks[rank];
        format!("{name:<width$} |{}|\n", letters(&slices(&trace.ranks[rank].blocks(), end_ns, columns)))
    };
    shown.into_iter().map(line).collect::<String>() + &axis(end_ns, columns, width)
}

const KINDS: usize = BlockKind::ALL.len();

/// A share of a slice that is not a rounding error.
const LEAST_SHARE: f64 = 1e-6;

/// Shares of every slice by kind.
fn slices(blocks: &[Block], end_ns: u64, columns: usize) -> Vec<[f64; KINDS]> {
    let mut slices = vec![[0.0; KINDS]; columns];
    let slices_per_ns = columns as f64 / end_ns.max(1) as f64;
    for block in blocks {
        let (start, stop) = (block.start_ns as f64 * slices_per_ns, block.end_ns as f64 * slices_per_ns);
        for (index, slice) in slices.iter_mut().enumerate().take(stop as usize + 1).skip(start as usize) {
            slice[block.kind as usize] += (stop.min((index + 1) as f64) - start.max(index as f64)).max(0.0);
        }
    }
    slices
}

fn letters(slices: &[[f64; KINDS]]) -> String {
    let mut owed = [0.0; KINDS];
    let mut owed_to_waiting = 0.0;
    let mut letters = String::new();
    for slice in slices {
        let mut spent = *slice;
        let communication = BlockKind::Communication as usize;
        let computing: f64 = spent.iter().sum::<f64>() - spent[communication];
        // Communication that overlaps with computation takes none of its time.
        spent[communication] = spent[communication].min((1.0 - computing).max(0.0));
        let waiting = (1.0 - computing - spent[communication]).max(0.0);
        owed_to_waiting += waiting;
        owed.iter_mut().zip(&spent).for_each(|(owed, spent)| *owed += spent);
        let most = BlockKind::ALL.into_iter().filter(|kind| spent[*kind as usize] > LEAST_SHARE);
        match most.max_by(|one, other| owed[*one as usize].total_cmp(&owed[*other as usize])) {
            Some(kind) if waiting < LEAST_SHARE || owed[kind as usize] >= owed_to_waiting => {
                owed[kind as usize] -= 1.0;
                letters.push(of(kind));
            }
            Some(_) | None => {
                owed_to_waiting -= 1.0;
                letters.push('·');
            }
        }
    }
    letters
}

/// Labels that begin below a mark at their moments; one that would be out to the right begins before it.
fn axis(end_ns: u64, columns: usize, width: usize) -> String {
    let (mut marks, mut labels) = (String::new(), String::new());
    for Tick { at_ns, label } in ticks(end_ns, TICKS) {
        let column = (at_ns / end_ns.max(1) as f64 * columns as f64) as usize;
        let (before, begin) = (labels.chars().count(), column.min((columns + 1).saturating_sub(label.chars().count())));
        if before < begin || labels.is_empty() {
            marks += &format!("{}'", " ".repeat(column - marks.len()));
            labels += &format!("{}{label}", " ".repeat(begin - before));
        }
    }
    let margin = " ".repeat(width + 2);
    format!("{margin}{marks}\n{margin}{labels}\n")
}

/// The meanings of the letters in a drawing.
pub fn legend(drawing: &str) -> String {
    let used = BlockKind::ALL.iter().filter(|kind| drawing.contains(of(**kind)));
    let words = used.map(|kind| format!("{} {}", of(*kind), kind.name()));
    words.chain(["· waiting".to_string()]).collect::<Vec<_>>().join(", ")
}

fn of(kind: BlockKind) -> char {
    match kind {
        BlockKind::Forward => 'F',
        BlockKind::Recompute => 'R',
        BlockKind::Backward => 'B',
        BlockKind::BackwardInput => 'I',
        BlockKind::BackwardWeight => 'W',
        BlockKind::Communication => 'c',
        BlockKind::Optimizer => 'U',
    }
}

fn chosen(ranks: usize, rows: usize) -> Vec<usize> {
    match ranks <= rows {
        true => (0..ranks).collect(),
        false => (0..rows).map(|row| row * (ranks - 1) / (rows - 1)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_label_stands_out() {
        let ended = |columns| axis(80_000_000_000, columns, 0).lines().last().map(str::to_string);
        let told = "  0 s            20 s           40 s           60 s         80 s";
        assert_eq!(ended(61).as_deref(), Some(told));
        assert!((1..200).all(|columns| ended(columns).is_some_and(|line| line.chars().count() <= columns.max(3) + 3)));
    }

    #[test]
    fn letters_are_as_many_as_their_share_of_the_time() {
        let pass = |start_ns: u64| {
            let block =
                |kind, from, to| Block { kind, microbatch: None, start_ns: start_ns + from, end_ns: start_ns + to };
            [block(BlockKind::Forward, 0, 1), block(BlockKind::Recompute, 1, 2), block(BlockKind::Backward, 2, 4)]
        };
        // Twenty passes in forty slices: none is wider than a slice; then nothing for ten.
        let blocks: Vec<Block> = (0..20).flat_map(|number| pass(4 * number)).collect();
        let drawn = letters(&slices(&blocks, 100, 50));
        let count = |letter: char| drawn.chars().filter(|drawn| *drawn == letter).count();
        assert_eq!((count('F'), count('R'), count('B'), count('·')), (10, 10, 20, 10), "{drawn}");
        assert!(drawn.ends_with(&"·".repeat(10)), "{drawn}");
        let beside = Block { kind: BlockKind::Communication, microbatch: None, start_ns: 70, end_ns: 90 };
        let drawn = letters(&slices(&[blocks, vec![beside]].concat(), 100, 50));
        assert_eq!(drawn.chars().filter(|drawn| *drawn == 'c').count(), 5, "only where nothing is computed: {drawn}");
    }
}
