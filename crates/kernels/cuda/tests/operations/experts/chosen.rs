//! Choices of tokens, and the rows of a rank's experts that follow.

use std::ops::Range;

use device::{Dtype, ExpertRows, Tensor};

use crate::operations::case::{Case, Words};

/// How tokens choose their experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    Even,
    /// More choose lower numbers.
    Uneven,
    /// All choose the experts from this one on.
    All(usize),
}

/// Chosen experts, and those of this rank.
#[derive(Clone, Debug)]
pub struct Chosen {
    pub tokens: usize,
    pub per_token: usize,
    pub own: Range<usize>,
    /// `[T,k]`, ascending for each token.
    pub choice: Vec<i32>,
}

impl Chosen {
    /// Each of `tokens` chooses `per_token` of `experts`.
    pub fn new(
        words: &mut Words,
        spread: Spread,
        [tokens, experts, per_token]: [usize; 3],
        own: Range<usize>,
    ) -> Chosen {
        let mut choice = vec![];
        for _ in 0..tokens {
            let mut of_token: Vec<usize> = vec![];
            while of_token.len() < per_token {
                let expert = match spread {
                    Spread::Even => words.below(experts),
                    Spread::Uneven => {
                        let end = 1 + words.below(experts);
                        words.below(end)
                    }
                    Spread::All(first) => first + of_token.len(),
                };
                if !of_token.contains(&expert) {
                    of_token.push(expert);
                }
            }
            of_token.sort_unstable();
            choice.extend(of_token.into_iter().map(|expert| expert as i32));
        }
        Chosen { tokens, per_token, own, choice }
    }

    /// The most rows that tokens can choose.
    pub fn room(&self) -> usize {
        self.tokens * self.per_token.min(self.own.len())
    }

    fn group(&self, expert: i32) -> Option<usize> {
        self.own.clone().position(|own| own as i32 == expert)
    }

    /// Slots, sorted by expert.
    fn slots(&self) -> Vec<usize> {
        let mut slots: Vec<usize> =
            (0..self.choice.len()).filter(|slot| self.group(self.choice[*slot]).is_some()).collect();
        slots.sort_by_key(|slot| self.choice[*slot]);
        slots
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.slots().len()
    }

    /// The tensors of rows without values.
    pub fn places(&self, case: &mut Case) -> ExpertRows {
        self.places_of_ranks(case, 1)
    }

    /// The same where as many ranks divide the experts.
    pub fn places_of_ranks(&self, case: &mut Case, ranks: usize) -> ExpertRows {
        ExpertRows {
            places: case.place(self.tokens, self.per_token, 0, Dtype::I32),
            slots: case.place(1, ranks * self.room(), 0, Dtype::I32),
            offsets: case.place(ranks, self.own.len() / ranks + 1, 0, Dtype::I32),
            expected: self.rows(),
        }
    }

    /// The tensors of rows with their values.
    pub fn placed(&self, case: &mut Case) -> ExpertRows {
        let rows = self.places(case);
        let slots = self.slots();
        for slot in 0..self.choice.len() {
            let row = slots.iter().position(|other| *other == slot).map_or(-1, |row| row as i32);
            case.put(rows.places, slot / self.per_token, slot % self.per_token, &row.to_le_bytes());
        }
        for row in 0..rows.slots.cols {
            let slot = slots.get(row).map_or(-1, |slot| *slot as i32);
            case.put(rows.slots, 0, row, &slot.to_le_bytes());
        }
        for group in 0..=self.own.len() {
            let before = slots.iter().filter(|slot| self.group(self.choice[**slot]) < Some(group)).count() as i32;
            case.put(rows.offsets, 0, group, &before.to_le_bytes());
        }
        rows
    }

    /// Fills the rows of `tensor` that no token has with NaN.
    pub fn poison(&self, case: &mut Case, tensor: Tensor) {
        let all_ones = u32::MAX.to_le_bytes();
        for row in self.rows()..tensor.rows {
            for col in 0..tensor.cols {
                case.put(tensor, row, col, &all_ones[..tensor.dtype.size_bytes()]);
            }
        }
    }
}
