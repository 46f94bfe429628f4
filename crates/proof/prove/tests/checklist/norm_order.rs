//! N14: the global norm does not depend on the order or the grouping of its sum: the same gradients have the same norm,
//! however they are spread over stages and shards and whoever comes first.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use comm::faults::{Fault, Faulty};
use config::{ModelSpec, Parallelism, TrainSpec, ZeroStage};
use device::{COUNT_WORD, Op, SUM_WORDS};
use program::PeerGroup;
use prove::{Outcome, outcome_of};
use testkit::intercepted::{Call, intercept_calls, intercept_ops};
use testkit::layout::thread_engine;
use testkit::models::Style;
use testkit::wrapped_engine::WrapRank;
use train::RankEngine;

use crate::checklist::rig::*;

fn case<'a>(pp: usize, zero: ZeroStage) -> Case<'a> {
    let model = ModelSpec { num_layers: 4, ..small_model(Style::Gpt2, false) };
    // Clipped, so that the norm's last bit moves the weights.
    let train = TrainSpec { clip_norm: Some(0.1), ..training(4) };
    Case::new(&model, Parallelism { zero, ..degrees((2, 1, pp)) }, &train)
}

/// Whether all spreads of the same sums have the same bits.
fn check(wrap: &WrapRank<'_>) -> Verdict {
    let spreads = [(1, ZeroStage::Off), (1, ZeroStage::One), (2, ZeroStage::Off), (4, ZeroStage::One)];
    let outcomes: Vec<Outcome> =
        spreads.iter().map(|(pp, zero)| case(*pp, *zero).wrapped(wrap).outcome().expect("a run")).collect();
    verdict(outcomes[1..].iter().filter_map(|other| same_bits(&outcomes[0], other).err()))
}

#[test]
fn the_norm_has_the_same_bits_however_gradients_are_spread() {
    assert_holds(check(&untouched));
}

#[test]
fn the_norm_has_the_same_bits_whoever_comes_first() {
    let setup = case(2, ZeroStage::One).setup();
    let calm = case(2, ZeroStage::One).outcome().expect("a run");
    let jitter = Fault::Jitter { seed: 3, below: Duration::from_micros(200) };
    let engine = thread_engine(&setup).wrapped(|transport| Arc::new(Faulty::new(transport, jitter)));
    assert_holds(same_bits(&calm, &outcome_of(&setup, &engine, &TEXT).expect("a run")));
}

/// Each rank adds its squares in single precision, segment after segment.
fn add_in_single_precision(_: mesh::Coord, rank: RankEngine) -> RankEngine {
    let sum = Rc::new(Cell::new(0.0f32));
    let own = Rc::clone(&sum);
    let rank = intercept_calls(rank, PeerGroup::WORLD, move |device, group, stream, call| {
        let own = own.take();
        if let (Call::AllReduce(x, _), true) = (call, own > 0.0) {
            let mut words = [0i64; SUM_WORDS];
            device.read(x, bytemuck::cast_slice_mut(&mut words))?;
            // The last word is the ranks' votes.
            words[..COUNT_WORD].copy_from_slice(&fixed_point(own)[..COUNT_WORD]);
            device.write(x, bytemuck::cast_slice(&words))?;
        }
        group.call(stream, call)
    });
    intercept_ops(rank, move |device, stream, op| {
        let Op::SquaredSum { x, .. } = *op else { return device.submit(stream, op) };
        let mut values = vec![0.0f32; x.len()];
        device.read(x, bytemuck::cast_slice_mut(&mut values))?;
        sum.set(values.iter().fold(sum.get(), |sum, value| sum + value * value));
        Ok(())
    })
}

/// A positive number in units of 2^-80, in limbs of 32 bits.
fn fixed_point(value: f32) -> [i64; SUM_WORDS] {
    let units = (f64::from(value) * 2f64.powi(80)) as u128;
    let limb = |index: usize| (units.checked_shr(32 * index as u32).unwrap_or(0) & 0xffff_ffff) as i64;
    std::array::from_fn(|index| if index < COUNT_WORD { limb(index) } else { 0 })
}

#[test]
fn a_norm_that_depends_on_its_order_is_found() {
    assert_found(check(&add_in_single_precision), "bits differ");
}
