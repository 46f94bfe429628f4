//! The page of pairs: how many keep their promise, by class and by factor.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::expert_pairs::compare::Compared;

/// Pairs that have something in common.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Count {
    /// All.
    pub pairs: usize,
    /// Those that promise the same bits.
    pub promise_bits: usize,
    /// Those that have the same bits.
    pub same_bits: usize,
    /// Those that promise bounds and are within them.
    pub within: usize,
    /// Those in which rounding changed a choice of experts, so that a distance is beyond a bound.
    pub chosen_otherwise: usize,
    /// The largest share of a bound that a distance is, of pairs within theirs.
    pub nearest: f64,
    /// Those that break their promise.
    pub broken: usize,
}

impl Count {
    /// The pairs of `compared` that `is_counted` names.
    pub fn of<'a>(compared: impl Iterator<Item = &'a Compared>) -> Count {
        let mut count = Count::default();
        for pair in compared {
            let is_kept = pair.fault.is_empty();
            let is_within = is_kept && !pair.promises_bits && pair.differing == 0;
            count.pairs += 1;
            count.promise_bits += usize::from(pair.promises_bits);
            count.same_bits += usize::from(pair.same_bits);
            count.within += usize::from(is_within);
            count.chosen_otherwise += usize::from(is_kept && pair.differing > 0);
            count.broken += usize::from(!is_kept);
            if is_within {
                count.nearest = count.nearest.max(pair.nearest);
            }
        }
        count
    }

    fn cells(&self) -> String {
        let Count { pairs, promise_bits, same_bits, within, chosen_otherwise, nearest, broken } = self;
        let nearest = if *within > 0 { format!("{:.0} %", 100.0 * nearest) } else { String::new() };
        format!("{pairs} | {promise_bits} | {same_bits} | {within} | {nearest} | {chosen_otherwise} | {broken} |\n")
    }
}

const COLUMNS: &str = "pairs | bits promised | same bits | within bounds | nearest | chosen otherwise | broken |\n\
     |---|---|---|---|---|---|---|---|\n";

/// The page of `pairs` of `seed` by number, and every broken promise.
pub fn page(pairs: &BTreeMap<u32, Compared>, seed: u32) -> (String, Vec<String>) {
    let all = || pairs.values();
    let broken = pairs.iter().filter(|(_, pair)| !pair.fault.is_empty());
    let faults: Vec<String> = broken.map(|(number, pair)| format!("pair {number}: {}", pair.fault)).collect();
    let named = |name: fn(&Compared) -> Vec<String>| {
        let mut names: Vec<String> = all().flat_map(name).collect();
        names.sort_unstable();
        names.dedup();
        names
    };
    let rows = |name: fn(&Compared) -> Vec<String>| {
        named(name).into_iter().fold(String::new(), |mut rows, value| {
            let of_value = Count::of(all().filter(|pair| name(pair).contains(&value)));
            let _ = write!(rows, "| {value} | {}", of_value.cells());
            rows
        })
    };
    let text = format!(
        "{}\n## By class\n\n| class | {COLUMNS}{}| all | {}\n## By factor\n\n\
         A pair counts where one of its layouts has the factor and it acts: ZeRO with several replicas, a\n\
         schedule with several stages.\n\n| factor | {COLUMNS}{}",
        introduction(&Count::of(all()), seed),
        rows(|pair| vec![pair.class.clone()]),
        Count::of(all()).cells(),
        rows(|pair| pair.factors.clone())
    );
    (text, faults)
}

fn introduction(all: &Count, seed: u32) -> String {
    let verdict = match all.broken {
        0 => "Every one keeps its promise.".to_string(),
        broken => format!("Broken promises: {broken}."),
    };
    let others = match all.chosen_otherwise {
        0 => "No pair was beyond a bound.".to_string(),
        pairs => format!("{pairs} pairs were beyond a bound, and each has such a choice."),
    };
    format!(
        "# Experts, measured\n\n\
         {} random pairs of layouts of models with experts. Each pair has a model of 2 to 4 layers with 4 to 16\n\
         experts and a training of 1 to 3 steps, drawn by seed {seed}, and two layouts of at most 8 ranks that run\n\
         files may have. Where every sum has the same order, or sums are exact, losses, norms, first gradients and\n\
         last weights must have the same bits; elsewhere their distances must be within the bounds of\n\
         [numerics.md](numerics.md). {verdict} This page is written by\n\n\
         ```text\ncargo run --release -p surveys -- expert-pairs --write docs/experts.md\n```\n\n\
         *Nearest* is the largest share of its bound that a distance has. *Chosen otherwise* counts pairs beyond a\n\
         bound in which tokens chose other experts: both runs count their choices, and no more differ than have\n\
         logits that [nearly tie](numerics.md#choices). {others} Where sums are split, models are in single\n\
         precision, and where bounds are promised, norms are before blocks alone. Models with adapters have no losses or\n\
         updates of routers, which adapters exclude. Everything else is drawn freely.\n",
        all.pairs
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(class: &str, promises_bits: bool, differing: u64, fault: &str) -> Compared {
        Compared {
            class: class.into(),
            promises_bits,
            same_bits: promises_bits && fault.is_empty(),
            nearest: 0.25,
            differing,
            fault: fault.into(),
            factors: vec!["dp".into()],
        }
    }

    #[test]
    fn pairs_are_counted_by_class_and_factor() {
        let pairs = [
            pair("same order", true, 0, ""),
            pair("other sums", false, 0, ""),
            pair("other sums", false, 2, ""),
            pair("other sums", false, 9, "too far"),
        ];
        let (text, faults) = page(&(0..).zip(pairs).collect(), 1);
        assert!(text.contains("| other sums | 3 | 0 | 0 | 1 | 25 % | 1 | 1 |\n"), "{text}");
        assert!(text.contains("| same order | 1 | 1 | 1 | 0 |  | 0 | 0 |\n| all | 4 | 1 | 1 | 1 | 25 % | 1 | 1 |\n"));
        assert!(text.contains("| dp | 4 |") && text.contains("Broken promises: 1."));
        assert_eq!(faults, ["pair 3: too far"]);
    }
}
