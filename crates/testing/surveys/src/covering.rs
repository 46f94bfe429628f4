//! Few rows of a table in which every three values meet that meet in any of its rows.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// Indices of rows, in the order in which they were chosen: each covers most triples of values of three columns that no
/// row before it covers; of several such rows it is the first.
pub fn three_wise<V: Ord, const N: usize>(rows: &[[V; N]]) -> Vec<usize> {
    let triples = numbered(rows);
    let count = triples.iter().flatten().max().map_or(0, |last| last + 1);
    let mut covered = vec![false; count];
    // A row's gain never grows, so a row whose last known gain still holds is the best.
    let mut open: BinaryHeap<_> =
        triples.iter().enumerate().map(|(row, triples)| (triples.len(), Reverse(row))).collect();
    let mut chosen = Vec::new();
    while let Some((known, Reverse(row))) = open.pop() {
        let gain = triples[row].iter().filter(|triple| !covered[**triple]).count();
        if gain == known && gain > 0 {
            chosen.push(row);
            triples[row].iter().for_each(|triple| covered[*triple] = true);
        } else if gain > 0 {
            open.push((gain, Reverse(row)));
        }
    }
    chosen
}

/// The triples of each row as numbers, the same for the same values of the same columns.
fn numbered<V: Ord, const N: usize>(rows: &[[V; N]]) -> Vec<Vec<usize>> {
    let mut numbers = BTreeMap::new();
    let mut of_row = |row| {
        let number = |triple| {
            let next = numbers.len();
            *numbers.entry(triple).or_insert(next)
        };
        triples(row).map(number).collect()
    };
    rows.iter().map(&mut of_row).collect()
}

/// Three values with their columns.
type Triple<'a, V> = [(usize, &'a V); 3];

/// Every three values of a row.
fn triples<V, const N: usize>(row: &[V; N]) -> impl Iterator<Item = Triple<'_, V>> {
    let value = move |column| (column, &row[column]);
    let behind = |a| (a + 1..N).flat_map(move |b| (b + 1..N).map(move |c| [a, b, c]));
    (0..N).flat_map(behind).map(move |columns| columns.map(value))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use philox::philox4x32_10;

    use super::*;
    use crate::drawers::matrix;
    use crate::space::Point;

    /// By plain definition: the set of triples of all rows is that of the chosen.
    fn assert_covers<V: Ord, const N: usize>(rows: &[[V; N]], chosen: &[usize]) {
        let all: BTreeSet<_> = rows.iter().flat_map(triples).collect();
        let met: BTreeSet<_> = chosen.iter().flat_map(|row| triples(&rows[*row])).collect();
        assert!(all == met, "{} of {} triples are met", met.len(), all.len());
    }

    #[test]
    fn rows_of_five_have_ten_triples() {
        assert_eq!(triples(&[0; 5]).count(), 10);
        assert_eq!(triples(&[7, 8, 9]).collect::<Vec<_>>(), [[(0, &7), (1, &8), (2, &9)]]);
        assert_eq!(triples(&[7, 8]).count(), 0);
    }

    /// Tables with holes: every row is there or not, at random.
    #[test]
    fn every_triple_of_any_table_is_covered() {
        for seed in 0..50 {
            let [width, density, ..] = philox4x32_10([seed, 1, 0, 0], [0, 0]);
            let (width, density) = (2 + width % 3, 1 + density % 8);
            let rows: Vec<[u32; 5]> = (0..width.pow(5))
                .filter(|row| philox4x32_10([seed, 2, *row, 0], [0, 0])[0] % 8 < density)
                .map(|row| std::array::from_fn(|column| row / width.pow(column as u32) % width))
                .collect();
            let chosen = three_wise(&rows);
            assert_covers(&rows, &chosen);
            assert_eq!(chosen, three_wise(&rows), "drawn twice");
            assert_eq!(chosen.iter().collect::<BTreeSet<_>>().len(), chosen.len(), "rows chosen twice");
        }
    }

    #[test]
    fn three_binary_columns_need_all_rows_and_four_need_eight() {
        fn binary<const N: usize>(row: u32) -> [u32; N] {
            std::array::from_fn(|column| row >> column & 1)
        }
        assert_eq!(three_wise(&(0..8).map(binary::<3>).collect::<Vec<_>>()).len(), 8);
        assert_eq!(three_wise(&(0..16).map(binary::<4>).collect::<Vec<_>>()).len(), 8);
    }

    /// No fewer rows than the three widest columns have triples, and not half as many again.
    #[test]
    fn the_matrix_is_covered_by_few_cells() {
        let rows: Vec<[String; 7]> = matrix().iter().map(Point::values).collect();
        let chosen = three_wise(&rows);
        assert_covers(&rows, &chosen);
        let (forms, orders, recomputes) = (8, 9, 7);
        assert!((forms * orders * 5..forms * orders * recomputes * 3 / 2).contains(&chosen.len()), "{}", chosen.len());
    }
}
