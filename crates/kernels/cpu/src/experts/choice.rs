//! The best of several numbers, in an order that is total: ties go to the lower number.

/// Whether a score is better than one that came before it. NaN is below all others.
#[inline(always)]
fn beats(score: f32, other: f32) -> bool {
    score > other || other.is_nan() && !score.is_nan()
}

/// The best of what was offered since the last clearing.
pub(super) struct Best {
    /// Best first, of equal ones the one that was offered first.
    best: Vec<(f32, usize)>,
    most: usize,
}

impl Best {
    /// Room for the best `most`.
    pub(super) fn new(most: usize) -> Best {
        Best { best: Vec::with_capacity(most + 1), most }
    }

    /// Forgets what was offered.
    pub(super) fn clear(&mut self) {
        self.best.clear();
    }

    /// Offers `number`, which is above all that were offered before.
    #[inline(always)]
    pub(super) fn offer(&mut self, number: usize, score: f32) {
        if self.best.len() == self.most && self.best.last().is_none_or(|last| !beats(score, last.0)) {
            return;
        }
        let place = self.best.partition_point(|other| !beats(score, other.0));
        self.best.insert(place, (score, number));
        self.best.truncate(self.most);
    }

    /// The sum of the scores.
    pub(super) fn sum(&self) -> f32 {
        self.best.iter().map(|(score, _)| score).sum()
    }

    /// The numbers in ascending order. Panics where fewer than the room were offered.
    pub(super) fn in_ascending_order(&mut self) -> impl Iterator<Item = usize> + '_ {
        assert_eq!(self.best.len(), self.most, "fewer to choose from than are chosen");
        self.best.sort_unstable_by_key(|(_, number)| *number);
        self.best.iter().map(|(_, number)| *number)
    }
}
