//! Steps that follow each other without a barrier.

/// Times of the instructions of each rank.
type Placed = Vec<Vec<(u64, u64)>>;

/// Steps after which times are taken as they are. Most settle after two to four.
const MOST_STEPS: usize = 16;

/// A step whose ranks begin when they have ended one like it, with these moments. `run` times a step by them.
///
/// Begins are taken until every rank takes as long from the end of a step to the end of the next: a step takes that
/// long from then on. A rank that has not settled takes no less than that, so the slowest is an upper bound: ends of a
/// step are sums of durations after begins, and the latest of several such sums, so begins that are all `t` later make
/// all ends `t` later, and later begins make no end earlier.
pub(crate) fn settled(mut begins: Vec<u64>, run: impl Fn(&[u64]) -> Placed) -> (Vec<u64>, Placed) {
    let mut placed = run(&begins);
    for _ in 1..MOST_STEPS {
        let ends: Vec<u64> = placed.iter().map(|rank| last_end(rank)).collect();
        let took: Vec<u64> = ends.iter().zip(&begins).map(|(end, begin)| end - begin).collect();
        if took.iter().all(|ns| *ns == took[0]) {
            break;
        }
        let first = ends.iter().min().copied().unwrap_or(0);
        begins = ends.iter().map(|end| end - first).collect();
        placed = run(&begins);
    }
    (begins, placed)
}

/// When the last of these instructions ends.
pub(crate) fn last_end(placed: &[(u64, u64)]) -> u64 {
    placed.iter().map(|(_, end)| *end).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two ranks of which the second begins with what the first makes: without a barrier neither waits for the other,
    /// and a step takes as long as the slower one.
    #[test]
    fn a_step_takes_as_long_as_its_slowest_rank() {
        let run = |begins: &[u64]| {
            let first = (begins[0], begins[0] + 7);
            let second_start = begins[1].max(begins[0] + 3);
            vec![vec![first], vec![(begins[1], second_start), (second_start, second_start + 10)]]
        };
        let (begins, placed) = settled(vec![0, 0], run);
        let took: Vec<u64> = placed.iter().zip(&begins).map(|(rank, begin)| last_end(rank) - begin).collect();
        assert_eq!(took.iter().max(), Some(&10), "{placed:?}");
    }

    /// The first rank waits for what the second makes of it: neither has a slack.
    #[test]
    fn ranks_that_wait_for_each_other_settle() {
        let run = |begins: &[u64]| {
            let sent = begins[0] + 3;
            let returned = begins[1].max(sent) + 4;
            vec![vec![(begins[0], sent), (sent, returned + 2)], vec![(begins[1], returned), (returned, returned + 1)]]
        };
        let (begins, placed) = settled(vec![0, 0], run);
        let took: Vec<u64> = placed.iter().zip(&begins).map(|(rank, begin)| last_end(rank) - begin).collect();
        assert_eq!(took, [9, 9]);
    }
}
