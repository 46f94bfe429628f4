//! Which checkpoints are kept.

use std::collections::BTreeSet;

/// How many checkpoints a run keeps; one that any of the three rules keeps is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// This many of the newest, at least one.
    pub newest: usize,
    /// The checkpoints of steps that are a multiple of this, for ever; 0 keeps none.
    pub every: u32,
    /// This many of those with the least held-out loss.
    pub best: usize,
}

/// The properties of a committed checkpoint that the rules use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Saved {
    /// Steps that were done.
    pub steps: u32,
    /// Held-out loss, if it was measured then.
    pub held_out_loss: Option<f64>,
}

impl Retention {
    /// The steps whose checkpoints are discarded. Of equal losses the earlier counts as better.
    pub fn given_up(&self, saved: &[Saved]) -> Vec<u32> {
        let mut newest: Vec<u32> = saved.iter().map(|saved| saved.steps).collect();
        newest.sort_unstable_by(|a, b| b.cmp(a));
        let measured = saved.iter().filter_map(|saved| Some((saved.held_out_loss?, saved.steps)));
        let mut best: Vec<(f64, u32)> = measured.filter(|(loss, _)| !loss.is_nan()).collect();
        best.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let best = best.into_iter().take(self.best).map(|(_, steps)| steps);
        let kept: BTreeSet<u32> = newest.iter().copied().take(self.newest.max(1)).chain(best).collect();
        let is_for_ever = |steps: &u32| self.every > 0 && steps.is_multiple_of(self.every);
        newest.into_iter().filter(|steps| !kept.contains(steps) && !is_for_ever(steps)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_rules_keep_what_any_of_them_keeps() {
        let losses = [(10, Some(3.0)), (20, Some(1.0)), (30, Some(2.0)), (40, None), (50, Some(1.0)), (60, None)];
        let saved = losses.map(|(steps, held_out_loss)| Saved { steps, held_out_loss });
        let given_up = |newest, every, best| Retention { newest, every, best }.given_up(&saved);
        assert_eq!(given_up(2, 0, 0), [40, 30, 20, 10]);
        assert_eq!(given_up(1, 30, 0), [50, 40, 20, 10]);
        assert_eq!(given_up(1, 0, 1), [50, 40, 30, 10], "of equal losses the earlier");
        assert_eq!(given_up(1, 40, 2), [30, 10]);
        assert_eq!(given_up(0, 0, 0), [50, 40, 30, 20, 10], "the newest always stays");
        assert_eq!(given_up(9, 0, 0), [0; 0]);
    }
}
