//! N18, N19 and N20: cross-entropy over a sharded vocabulary takes maximum and sum over all of it, once, and padding
//! rows have neither probability, nor gradient, nor decay.

use std::sync::Mutex;

use config::{ModelSpec, Sharding};
use device::{Communicator, Device, DeviceError, Op, Reduction, Stream, SumTree};
use program::PeerGroup;
use prove::{Outcome, Watch};
use testkit::intercepted::{Call, alter_ops, drop_calls, intercept_calls, intercept_ops};
use testkit::models::Style;
use testkit::text::ProofText;
use testkit::wrapped_engine::WrapRank;
use train::{RankEngine, Worker};

use crate::checklist::rig::*;

/// Looks at the rows of tables past the end of the vocabulary.
#[derive(Default)]
struct PaddingRows {
    seen: Mutex<(usize, usize)>,
}

impl Watch for PaddingRows {
    fn instruction(&self, worker: &Worker<'_>) -> Result<(), DeviceError> {
        if worker.position.at + 1 != worker.position.program.instrs.len() {
            return Ok(());
        }
        for state in worker.state.units.values() {
            let tables = state.layout.segments.iter().filter(|s| s.param.sharding == Sharding::VOCABULARY);
            for segment in tables {
                let first = worker.position.rank.model.part(&segment.param).start[0];
                let valid = segment.param.shape[0].saturating_sub(first).min(segment.rows);
                let padding = segment.offset + valid * segment.cols..segment.range().end;
                let mut values = vec![0.0f32; padding.len()];
                worker.ports.device.read(state.params.part(padding), bytemuck::cast_slice_mut(&mut values))?;
                let mut seen = self.seen.lock().expect("nobody panics with it");
                seen.0 += values.len();
                seen.1 += values.iter().filter(|value| **value != 0.0).count();
            }
        }
        Ok(())
    }
}

/// One rank's outcome and another layout's, with how many padding elements were seen and how many were not zero.
fn outcomes(tp: usize, vocabulary: usize, wrap: &WrapRank<'_>) -> (Outcome, Result<Outcome, String>, (usize, usize)) {
    let model = ModelSpec { vocabulary, ..small_model(Style::Llama, tp == 3) };
    let (text, train) = (ProofText { vocabulary, ..RAGGED }, training(3));
    let one = Case::new(&model, degrees((1, 1, 1)), &train).tokens(&text).outcome().expect("one rank");
    let padding = PaddingRows::default();
    let other = Case::new(&model, degrees((1, tp, 1)), &train).tokens(&text).wrapped(wrap).watched(&padding).outcome();
    (one, other, padding.seen.into_inner().expect("nobody panicked"))
}

fn check(tp: usize, vocabulary: usize, wrap: &WrapRank<'_>) -> Verdict {
    let (one, other, (padding, not_zero)) = outcomes(tp, vocabulary, wrap);
    let near = other.and_then(|other| within_bounds(&small_model(Style::Llama, false), &one, &other));
    let touched = (not_zero > 0).then(|| format!("{not_zero} of {padding} padding elements are not zero"));
    assert!(padding > 0, "a vocabulary of {vocabulary} on {tp} ranks has no padding");
    verdict(near.err().into_iter().chain(touched))
}

#[test]
fn a_sharded_vocabulary_is_one_vocabulary() {
    // 9 tokens on 4 ranks are 3 rows each: the last rank has padding only.
    for (tp, vocabulary) in [(2, 61), (3, 61), (4, 61), (4, 9)] {
        assert_holds(check(tp, vocabulary, &untouched));
    }
}

#[test]
fn a_maximum_or_a_sum_over_a_ranks_own_rows_is_found() {
    for dropped in [Reduction::Max, Reduction::Sum(SumTree::RANK_ORDER)] {
        let wrap = move |_, rank: RankEngine| {
            let is_of_rows = |call: &Call| matches!(call, Call::AllReduce(x, _) if x.rows == 1 || x.cols == 2);
            drop_calls(rank, PeerGroup::TENSOR, move |call| {
                is_of_rows(call) && matches!(call, Call::AllReduce(_, reduction) if *reduction == dropped)
            })
        };
        assert_found(check(2, 61, &wrap), "a loss is");
    }
}

/// Sums over whole rows of logits are summed over the ranks once more.
fn sum_gathered(device: &dyn Device, group: &dyn Communicator, stream: Stream, call: Call) -> Result<(), DeviceError> {
    group.call(stream, call)?;
    if let Call::AllReduce(x, Reduction::Sum(_)) = call
        && x.cols == 2
    {
        let mut sums = vec![0.0f32; x.len()];
        device.read(x, bytemuck::cast_slice_mut(&mut sums))?;
        sums.iter_mut().step_by(2).for_each(|sum| *sum *= group.size() as f32);
        device.write(x, bytemuck::cast_slice(&sums))?;
    }
    Ok(())
}

#[test]
fn gathered_logits_in_a_sharded_loss_are_found() {
    for tp in [2, 4] {
        let wrap = |_, rank: RankEngine| intercept_calls(rank, PeerGroup::TENSOR, sum_gathered);
        assert_found(check(tp, 61, &wrap), "a loss is");
        let (one, other, _) = outcomes(tp, 61, &wrap);
        let excess = other.expect("a run").losses[0] - one.losses[0];
        assert!((excess - (tp as f64).ln()).abs() < LOSS_BOUND, "log {tp} too much, not {excess}");
    }
}

#[test]
fn padding_that_takes_part_is_found() {
    let all_columns = |_, rank: RankEngine| {
        alter_ops(rank, |op| {
            if let Op::RowMax { logits, valid_columns, .. }
            | Op::SumExp { logits, valid_columns, .. }
            | Op::CrossEntropy { logits, valid_columns, .. } = op
            {
                *valid_columns = logits.cols;
            }
        })
    };
    assert_found(check(2, 61, &all_columns), "a loss is");
    assert_found(check(2, 61, &all_columns), "padding elements are not zero");
    let drawn_padding = |_, rank: RankEngine| {
        intercept_ops(rank, |device, stream, op| {
            if let Op::InitializeNormal { out, .. } = *op
                && out.rows == 30
            {
                let padding = device::Tensor { rows: 1, offset_bytes: out.bytes().end, ..out };
                device.submit(stream, op)?;
                return device.submit(stream, &Op::Fill { out: padding, value: 0.1 });
            }
            if let Op::Fill { out, value: 0.0 } = *op
                && (out.rows, out.cols) == (1, 48)
            {
                return Ok(());
            }
            device.submit(stream, op)
        })
    };
    assert_found(check(2, 61, &drawn_padding), "padding elements are not zero");
}
