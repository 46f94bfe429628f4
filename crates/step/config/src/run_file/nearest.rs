//! The known name that is nearest to a misspelled one.

use std::cmp::Reverse;

/// Edits between two names: insertions, deletions, substitutions and swaps of neighbours (optimal string alignment).
pub fn edit_distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().collect();
    let b: Vec<char> = b.chars().collect();
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for (i, row) in rows.iter_mut().enumerate() {
        row[0] = i;
    }
    rows[0] = (0..=b.len()).collect();
    for i in 1..=a.len() {
        for j in 1..=b.len() {
            let substituted = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = substituted.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = least;
        }
    }
    rows[a.len()][b.len()]
}

/// The nearest of `known`, of equally near ones that which begins alike, if it is near enough to be meant: `name`
/// abbreviates it or begins with it, or at most a third of the longer name is edited.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let name = name.to_lowercase().replace('-', "_");
    let length = name.chars().count();
    let candidates = known.into_iter().filter_map(|candidate| {
        let abbreviates = name.len() >= 3 && candidate.starts_with(&name);
        let extends = candidate.len() >= 3 && name.starts_with(candidate);
        let others = candidate.chars().count();
        let (longer, gap) = (length.max(others), length.abs_diff(others));
        // The distance is not less than the gap between the lengths; where that is too much, a long name is not
        // compared.
        let distance = if longer > 3 && 3 * gap > longer { gap } else { edit_distance(&name, candidate) };
        let is_slip = 3 * distance <= longer || longer <= 3 && distance <= 1;
        // Abbreviations come first, however short they are.
        let beginning = name.chars().zip(candidate.chars()).take_while(|(a, b)| a == b).count();
        (abbreviates || extends || is_slip).then_some((!abbreviates, distance, Reverse(beginning), candidate))
    });
    candidates.min().map(|(_, _, _, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_count_edits() {
        for (a, b, distance) in
            [("", "abc", 3), ("tp", "tp", 0), ("hidden", "hiden", 1), ("heads", "haeds", 1), ("ab", "xy", 2)]
        {
            assert_eq!(edit_distance(a, b), distance, "{a} {b}");
        }
    }

    #[test]
    fn the_nearest_name_is_found_and_strangers_are_not() {
        let known = ["hidden", "num_layers", "num_heads", "tp", "pp", "dp", "norm", "norm_epsilon"];
        for (name, expected) in [
            ("hiden", Some("hidden")),
            ("num-layer", Some("num_layers")),
            ("num_head", Some("num_heads")),
            ("tpp", Some("tp")),
            ("norm_eps", Some("norm_epsilon")),
            ("zebra", None),
        ] {
            assert_eq!(nearest(name, known), expected, "{name}");
        }
    }
}
