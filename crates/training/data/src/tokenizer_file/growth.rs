//! How much text may grow by steps that change it one after the other.

use std::collections::BTreeMap;

use super::steps::Step;

/// Bytes that one character becomes at most, from some step on to the last: of characters that steps name, and of all
/// others for each of their bytes.
struct Bound {
    named: BTreeMap<char, f64>,
    others: f64,
}

impl Bound {
    fn of(&self, character: char) -> f64 {
        self.named.get(&character).copied().unwrap_or(self.others * character.len_utf8() as f64)
    }

    fn of_text(&self, text: &str) -> f64 {
        text.chars().map(|character| self.of(character)).sum()
    }

    /// The largest for a byte of any character.
    fn largest(&self) -> f64 {
        self.named.iter().map(|(character, bytes)| bytes / character.len_utf8() as f64).fold(self.others, f64::max)
    }

    /// The same with `step` before all that it is a bound for.
    fn after(mut self, step: &Step) -> Bound {
        match step {
            Step::Any(times) => Bound { others: times * self.largest(), named: BTreeMap::new() },
            Step::Prefix(text) => {
                // As if each character had it in front: a text may be cut into parts before.
                let prefix = self.of_text(text);
                Bound { others: self.largest() + prefix, named: BTreeMap::new() }
            }
            Step::Replace { of: Some(of), by } => {
                let whole = self.of_text(by);
                let length = of.chars().count() as f64;
                for character in of.chars() {
                    // All characters of a text become the other together.
                    let bytes = self.of(character).max(whole / length);
                    self.named.insert(character, bytes);
                }
                self
            }
            Step::Replace { of: None, by } => {
                // A pattern may match one byte, or nothing next to each.
                let whole = self.of_text(by);
                Bound { others: self.largest() + whole, named: BTreeMap::new() }
            }
        }
    }
}

/// Bytes that a byte of text becomes at most by `steps`.
pub(super) fn growth(steps: &[Step]) -> f64 {
    let last = Bound { named: BTreeMap::new(), others: 1.0 };
    steps.iter().rev().fold(last, Bound::after).largest()
}
