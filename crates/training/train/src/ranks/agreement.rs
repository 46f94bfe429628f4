//! Before the first step all ranks compare what they are about to run, so that a difference is a message and never a
//! hang.

use std::fmt::Write;

use config::Fnv1a;
use device::{DeviceError, Reduction, SUM_WORDS, Stream, SumTree, Tensor};
use model::Constants;

use crate::setup::Setup;
use crate::worker::ports::RankPorts;

/// Why ranks do not begin.
#[derive(Debug, thiserror::Error)]
pub enum AgreementError {
    /// Some ranks are set up for another run.
    #[error(
        "{} set up for another run than rank 0: model, layout, training or version differ; start all ranks with the same run file, options and program",
        differing(.0)
    )]
    Differ(Vec<usize>),
    /// The comparison itself failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

fn differing(ranks: &[usize]) -> String {
    let numbers: Vec<String> = ranks.iter().map(usize::to_string).collect();
    match ranks {
        [one] => format!("rank {one} is"),
        _ => format!("ranks {} are", numbers.join(", ")),
    }
}

/// Compares `fingerprint` over all ranks; the same answer on every rank.
///
/// Two small sums where all agree: rank 0's fingerprint, then how many differ from it. Only then does each rank learn
/// all.
///
/// # Errors
/// See [`AgreementError`].
pub fn agree(ports: &RankPorts<'_>, constants: &Constants, fingerprint: u64) -> Result<(), AgreementError> {
    let (world, sums) = (ports.communicators.world(), constants.norm_sums);
    let (own, size) = (world.position(), world.size());
    let first = sum_over_ranks(ports, sums, one_word(0, if own == 0 { fingerprint } else { 0 }))?[0];
    let differs = u64::from(first != fingerprint);
    if sum_over_ranks(ports, sums, one_word(0, differs))?[0] == 0 {
        return Ok(());
    }
    let mut ranks = vec![];
    for start in (0..size).step_by(SUM_WORDS) {
        let is_asked = (start..start + SUM_WORDS).contains(&own);
        let words = if is_asked { one_word(own - start, differs) } else { [0; SUM_WORDS] };
        let answers = sum_over_ranks(ports, sums, words)?;
        ranks.extend((start..size).zip(answers).filter(|(_, differs)| *differs != 0).map(|(number, _)| number));
    }
    Err(AgreementError::Differ(ranks))
}

fn one_word(index: usize, value: u64) -> [u64; SUM_WORDS] {
    let mut words = [0; SUM_WORDS];
    words[index] = value;
    words
}

/// The sum of every rank's `words`, modulo 2^64, in the buffers of sums that each step resets.
fn sum_over_ranks(
    ports: &RankPorts<'_>,
    sums: Tensor,
    mut words: [u64; SUM_WORDS],
) -> Result<[u64; SUM_WORDS], DeviceError> {
    ports.device.write(sums, bytemuck::cast_slice(&words))?;
    ports.communicators.world().all_reduce(Stream::Reduce, sums, Reduction::Sum(SumTree::RANK_ORDER))?;
    ports.device.read(sums, bytemuck::cast_slice_mut(&mut words))?;
    Ok(words)
}

impl Setup {
    /// A number of everything that ranks must have in common: model, layout, training, programs, version of this
    /// software.
    pub fn fingerprint(&self) -> u64 {
        let mut hash = Fnv1a::default();
        let build = env!("CARGO_PKG_VERSION");
        let written =
            write!(hash, "{build} {:?} {:?} {:?} {:?}", self.model, self.parallelism, self.train, self.workloads);
        let programs = self.programs.programs().iter().flat_map(|workload| workload.programs());
        let written = programs.fold(written, |written, program| written.and_then(|()| write!(hash, " {program:?}")));
        assert!(written.is_ok(), "hashing does not fail");
        hash.hash()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::{Parallelism, RunConfig, ScheduleKind, TrainSpec};

    #[test]
    fn whatever_ranks_must_share_is_in_the_fingerprint() {
        let RunConfig { model, parallelism, train, .. } = RunConfig::quick_start();
        let fingerprint = |model: &config::ModelSpec, parallelism: &Parallelism, train: &TrainSpec| {
            Setup::new(model.clone(), parallelism.clone(), train.clone()).expect("legal").fingerprint()
        };
        let gpipe = Parallelism { schedule: ScheduleKind::GPipe.into(), ..parallelism.clone() };
        let in_runs = Parallelism { sum_tree: 2, ..parallelism.clone() };
        let hotter = TrainSpec { learning_rate: train.learning_rate.next_up(), ..train.clone() };
        let seeded = TrainSpec { seed: train.seed + 1, ..train.clone() };
        let untied = config::ModelSpec { tied_embeddings: false, ..model.clone() };
        let all = [
            fingerprint(&model, &parallelism, &train),
            fingerprint(&model, &gpipe, &train),
            fingerprint(&model, &in_runs, &train),
            fingerprint(&model, &parallelism, &hotter),
            fingerprint(&model, &parallelism, &seeded),
            fingerprint(&untied, &parallelism, &train),
        ];
        assert_eq!(all[0], fingerprint(&model, &parallelism, &train), "the same run");
        for (index, one) in all.iter().enumerate() {
            assert!(!all[..index].contains(one), "{all:x?}");
        }
    }
}
