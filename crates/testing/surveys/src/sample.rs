//! Seeded samples of the cases of a page: the same seed draws the same cases.

use std::fmt;

use clap::builder::RangedU64ValueParser;
use philox::philox4x32_10;

use crate::results::Row;

/// The sizes that a command accepts for a sample: at least one case.
pub fn size() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..)
}

/// `count` of `things` without repetition; all of them where there are fewer. Another `seed` or `purpose` draws others.
pub fn draw<T>(mut things: Vec<T>, count: usize, seed: u32, purpose: u32) -> Vec<T> {
    let mut drawn = Vec::new();
    while drawn.len() < count && !things.is_empty() {
        let [random, ..] = philox4x32_10([drawn.len() as u32, purpose, 0, 0], [seed, 0]);
        drawn.push(things.swap_remove(random as usize % things.len()));
    }
    drawn
}

/// The verdicts of a sample.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    cases: usize,
    broken: Vec<String>,
    gradient: f64,
    loss: f64,
    weight: f64,
}

impl Tally {
    /// Counts the case `name`: what was measured, or why it did not run.
    pub fn add(&mut self, name: &str, row: Result<&Row, &str>) {
        self.cases += 1;
        match row {
            Ok(row) => {
                self.gradient = self.gradient.max(row.gradient);
                self.loss = self.loss.max(row.loss);
                self.weight = self.weight.max(row.weight);
                if !row.faults.is_empty() {
                    self.broken.push(format!("{name}: {}", row.faults));
                }
            }
            Err(error) => self.broken.push(format!("{name}: {error}")),
        }
    }

    /// The result of a sample of `expected` cases.
    ///
    /// # Errors
    /// Cases that break the promise or did not run, and a sample of another size.
    pub fn result(self, expected: usize) -> Result<Tally, String> {
        if self.cases != expected {
            return Err(format!("the sample must have {expected} cases; {} ran", self.cases));
        }
        if self.broken.is_empty() { Ok(self) } else { Err(self.broken.join("\n")) }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tally { cases, broken, gradient, loss, weight } = self;
        let kept = cases - broken.len();
        write!(
            f,
            "{kept} of {cases} cases keep the promise; largest distances: gradient {gradient:.1e}, loss {loss:.1e}, weight {weight:.1e}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(gradient: f64, faults: &str) -> Row {
        Row {
            same_bits: true,
            oracle_bits: false,
            loss: 1e-8,
            gradient,
            gradient_of: "a".into(),
            weight: 2e-7,
            weight_of: "b".into(),
            fall: 0.5,
            nearest: 0.5,
            faults: faults.into(),
        }
    }

    #[test]
    fn a_seed_draws_the_same_cases_without_repetition() {
        let drawn = draw((0..100).collect(), 10, 7, 0);
        assert_eq!(drawn, draw((0..100).collect(), 10, 7, 0));
        assert_ne!(drawn, draw((0..100).collect(), 10, 8, 0));
        let mut distinct = drawn.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), 10);
        assert_eq!(draw(vec![1, 2], 10, 7, 0).len(), 2);
    }

    #[test]
    fn a_sample_of_no_case_is_refused() {
        let command = || clap::Command::new("x").arg(clap::Arg::new("sample").long("sample").value_parser(size()));
        let error = command().try_get_matches_from(["x", "--sample", "0"]).expect_err("refused").to_string();
        assert!(error.contains("0 is not in 1.."), "{error}");
        assert!(command().try_get_matches_from(["x", "--sample", "1"]).is_ok());
    }

    #[test]
    fn a_broken_or_missing_case_fails_the_sample() {
        let mut tally = Tally::default();
        tally.add("x", Ok(&row(1e-7, "")));
        tally.add("y", Ok(&row(3e-7, "")));
        let said = "2 of 2 cases keep the promise; largest distances: gradient 3.0e-7, loss 1.0e-8, weight 2.0e-7";
        assert_eq!(tally.clone().result(2).expect("kept").to_string(), said);
        assert!(tally.clone().result(3).is_err());
        tally.add("z", Ok(&row(1.0, "gradient 1")));
        tally.add("w", Err("no memory"));
        assert_eq!(tally.result(4).expect_err("broken"), "z: gradient 1\nw: no memory");
    }
}
