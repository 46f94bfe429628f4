//! How many sequences each step takes, and which: the batch may grow in the beginning of a run.

use crate::names::names;
use crate::parallelism::Parallelism;

/// A batch that grows (`rampup_batch_size` of Megatron-LM).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchRamp {
    /// Sequences of the first step.
    pub start: usize,
    /// The sequences by which the batch grows at a time.
    pub increment: usize,
    /// After this many sequences the batch has its full size; it has grown at equal distances of sequences until then.
    pub sequences: u64,
    /// The part of the batch that grows.
    pub grows: BatchGrowth,
}

/// The part of a replica's share that grows with the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BatchGrowth {
    /// The number of microbatches; each has the full size.
    Microbatches,
    /// The size of microbatches; there are as many as in a full batch, so that a pipeline is as full.
    MicrobatchSize,
}

names! { BatchGrowth: "microbatches" = Microbatches, "microbatch_size" = MicrobatchSize }

/// How a replica computes its share of one batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Microbatches {
    /// How many there are.
    pub number: usize,
    /// Sequences of each.
    pub size: usize,
}

/// The sequences of one step, as a run consumes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepBatch {
    /// Sequences of all steps before.
    pub first_sequence: u64,
    /// Sequences of the step, over all ranks.
    pub sequences: usize,
}

/// Where a run that continues from a checkpoint is in its data: steps from there on take up what follows, also where
/// earlier steps had other batches. The default is the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchOrigin {
    /// Steps that are done.
    pub steps: u32,
    /// Sequences that they took.
    pub sequences: u64,
}

/// The batches of a run: functions of the step alone, never of ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchSizes {
    /// Sequences of a step, once the batch is as large as it gets.
    pub global_batch: usize,
    /// How it gets there.
    pub ramp: Option<BatchRamp>,
    /// Where they begin.
    pub origin: BatchOrigin,
}

impl BatchSizes {
    /// The sizes that the batch goes through, the smallest first. A ramp must lead to the full size.
    pub fn sizes(&self) -> Vec<usize> {
        let grown = |ramp: BatchRamp| (0..self.increments(ramp)).map(move |count| ramp.start + count * ramp.increment);
        self.ramp.into_iter().flat_map(grown).chain([self.global_batch]).collect()
    }

    /// The sequences of `step`, counted from 0. Steps before the origin are those of a run without one.
    pub fn at(&self, step: u32) -> StepBatch {
        let (mut first_sequence, mut steps_left) = match step.checked_sub(self.origin.steps) {
            Some(steps) => (self.origin.sequences, u64::from(steps)),
            None => (0, u64::from(step)),
        };
        if let Some(ramp) = self.ramp {
            let increments = self.increments(ramp) as u64;
            for count in 0..increments {
                let size = ramp.start as u64 + count * ramp.increment as u64;
                // Once this many are consumed, the batch grows again.
                let until =
                    (u128::from(ramp.sequences) * u128::from(count + 1)).div_ceil(u128::from(increments)) as u64;
                let steps = until.saturating_sub(first_sequence).div_ceil(size);
                if steps_left < steps {
                    return StepBatch { first_sequence: first_sequence + steps_left * size, sequences: size as usize };
                }
                first_sequence += steps * size;
                steps_left -= steps;
            }
        }
        let sequences = self.global_batch;
        StepBatch { first_sequence: first_sequence + steps_left * sequences as u64, sequences }
    }

    /// How a replica of `parallelism` computes its share of a batch of `sequences`, one of [`BatchSizes::sizes`];
    /// `None` where a full batch has no microbatch.
    pub fn microbatches(&self, sequences: usize, parallelism: &Parallelism) -> Option<Microbatches> {
        let share = sequences.checked_div(parallelism.degrees.dp)?;
        match self.ramp.map_or(BatchGrowth::Microbatches, |ramp| ramp.grows) {
            BatchGrowth::Microbatches => {
                let size = parallelism.microbatch_size;
                Some(Microbatches { number: share.checked_div(size)?, size })
            }
            BatchGrowth::MicrobatchSize => {
                let number = self.global_batch.checked_div(parallelism.degrees.dp * parallelism.microbatch_size)?;
                Some(Microbatches { number, size: share.checked_div(number)? })
            }
        }
    }

    fn increments(&self, ramp: BatchRamp) -> usize {
        let growth = self.global_batch.saturating_sub(ramp.start);
        if ramp.start == 0 { 0 } else { growth.checked_div(ramp.increment).unwrap_or(0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(ramp: Option<BatchRamp>, steps: u32) -> Vec<(u64, usize)> {
        let batches = BatchSizes { global_batch: 16, ramp, origin: BatchOrigin::default() };
        (0..steps).map(|step| batches.at(step)).map(|batch| (batch.first_sequence, batch.sequences)).collect()
    }

    #[test]
    fn the_batch_grows_at_equal_distances_of_sequences() {
        // Three increments, one per 8 sequences: Megatron's `start + increment * floor(consumed / (sequences /
        // increments))`.
        let ramp = BatchRamp { start: 4, increment: 4, sequences: 24, grows: BatchGrowth::Microbatches };
        assert_eq!(sizes(Some(ramp), 6), [(0, 4), (4, 4), (8, 8), (16, 12), (28, 16), (44, 16)]);
        let origin = BatchOrigin::default();
        assert_eq!(BatchSizes { global_batch: 16, ramp: Some(ramp), origin }.sizes(), [4, 8, 12, 16]);
        assert_eq!(sizes(None, 3), [(0, 16), (16, 16), (32, 16)]);
    }

    #[test]
    fn a_step_that_passes_two_distances_grows_twice() {
        let ramp = BatchRamp { start: 4, increment: 4, sequences: 6, grows: BatchGrowth::Microbatches };
        assert_eq!(sizes(Some(ramp), 4), [(0, 4), (4, 12), (16, 16), (32, 16)]);
        let none = BatchRamp { sequences: 0, ..ramp };
        assert_eq!(sizes(Some(none), 2), [(0, 16), (16, 16)]);
    }

    #[test]
    fn sequences_follow_one_another() {
        for (start, increment, sequences) in [(1, 1, 100), (2, 7, 1000), (16, 3, 5), (5, 11, 1)] {
            let ramp = BatchRamp { start, increment, sequences, grows: BatchGrowth::Microbatches };
            let batches = BatchSizes { global_batch: 16, ramp: Some(ramp), origin: BatchOrigin::default() };
            let mut next = 0;
            for batch in (0..200).map(|step| batches.at(step)) {
                assert_eq!(batch.first_sequence, next);
                assert!(batches.sizes().contains(&batch.sequences), "{batch:?}");
                next += batch.sequences as u64;
            }
            // From its own position on, wherever that is, a run is the same.
            for steps in [0, 1, 7, 150] {
                let origin = BatchOrigin { steps, sequences: batches.at(steps).first_sequence };
                let resumed = BatchSizes { origin, ..batches };
                assert!((0..200).all(|step| resumed.at(step) == batches.at(step)), "from step {steps}");
            }
        }
    }

    #[test]
    fn another_batch_takes_up_what_follows() {
        let origin = BatchOrigin { steps: 3, sequences: 40 };
        let batches = BatchSizes { global_batch: 16, ramp: None, origin };
        assert_eq!(batches.at(3), StepBatch { first_sequence: 40, sequences: 16 });
        assert_eq!(batches.at(5), StepBatch { first_sequence: 72, sequences: 16 });
        assert_eq!(batches.at(0), StepBatch { first_sequence: 0, sequences: 16 });
        // A ramp follows sequences: at 40 of 48 it has grown three times of four.
        let ramp = BatchRamp { start: 4, increment: 3, sequences: 48, grows: BatchGrowth::Microbatches };
        assert_eq!(BatchSizes { ramp: Some(ramp), ..batches }.at(3), StepBatch { first_sequence: 40, sequences: 13 });
    }
}
