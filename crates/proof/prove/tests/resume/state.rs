//! N32: the state that one layout saves arrives in another to the last bit, whatever the precision.

use checkpoint::{Manifest, PieceRecord, StatePart};
use config::{Format, Tied, Unit, ZeroStage};
use device::Dtype;
use mesh::{Axis, AxisSet};
use program::Value;
use testkit::intercepted::{alter_saved, drop_writes};
use testkit::layout::Layout;
use train::RankEngine;

use crate::checklist::findings::{assert_found, assert_holds};
use crate::resume::pairs::{Pair, THREE, pairs, zero};
use crate::resume::resumption::Resumption;
use crate::resume::rig::layout;

/// Steps before the resumption: both moments are of more than one gradient.
const CUT: u32 = 2;

/// The pairs of single precision, and the same bf16 run before and after.
fn all() -> Vec<Pair> {
    let bf16 = |parallelism| layout(Tied::Yes, Format::Bf16, parallelism);
    let narrow = Pair::of(bf16(zero(ZeroStage::One, 2, 2, 1)), bf16(zero(THREE, 2, 1, 2)));
    pairs().into_iter().chain([narrow]).collect()
}

#[test]
fn weights_and_moments_arrive_to_the_last_bit() {
    for pair in &all() {
        assert_holds(Resumption::new(pair, CUT).arrives());
    }
    // R15 for precisions. Weights that layers read are narrower in one of the two, so they are rounded again.
    let of = |format, zero_stage, dp, pp| layout(Tied::Yes, format, zero(zero_stage, dp, 1, pp));
    for (before, after) in [
        (of(Format::Fp32, ZeroStage::Off, 2, 1), of(Format::Bf16, ZeroStage::Off, 1, 2)),
        (of(Format::Bf16, ZeroStage::One, 2, 2), of(Format::Fp32, ZeroStage::Off, 2, 1)),
        (of(Format::Bf16, ZeroStage::Off, 1, 1), of(Format::Fp16, ZeroStage::One, 3, 1)),
    ] {
        let found = Resumption::new(&Pair::of(before, after), CUT).arrives().expect_err("rounded weights differ");
        let is_of_precision = |line: &str| line.starts_with("read.") || line.starts_with("counters");
        assert!(found.lines().all(is_of_precision), "{found}");
    }
}

/// The pieces of two tensors of one shape, exchanged: each is read under the name of the other. Hashes are those of the
/// bytes.
fn exchange(manifest: &mut Manifest, first: &str, second: &str) {
    let [a, b] = [first, second].map(|name| manifest.tensors[name].clone());
    assert!(a.shape == b.shape && a != b, "{first} and {second}");
    manifest.tensors.insert(first.into(), b);
    manifest.tensors.insert(second.into(), a);
}

/// Megatron-LM's finding 12: all names and shapes are there, so a strict load succeeds, with the layers of another
/// stage.
#[test]
fn layers_that_are_saved_under_another_index_are_found() {
    let next_layer = |manifest: &mut Manifest| {
        let tensors = manifest.tensors.clone();
        let layers = 6;
        for layer in 0..layers {
            let (from, to) = (format!("layers.{layer}."), format!("layers.{}.", (layer + 1) % layers));
            for (name, tensor) in tensors.iter().filter(|(name, _)| name.contains(&from)) {
                manifest.tensors.insert(name.replace(&from, &to), tensor.clone());
            }
        }
    };
    for pair in &all() {
        assert_found(Resumption::new(pair, CUT).with_fault(&next_layer).arrives(), "layers.5.ffn.up.weight");
    }
}

#[test]
fn moments_of_another_parameter_and_exchanged_moments_are_found() {
    let [query, key] = ["layers.2.attention.query.weight", "layers.2.attention.key.weight"];
    let of_another = |manifest: &mut Manifest| {
        exchange(manifest, &StatePart::SecondMoment.tensor(query), &StatePart::SecondMoment.tensor(key));
    };
    let exchanged = |manifest: &mut Manifest| {
        exchange(manifest, &StatePart::FirstMoment.tensor(query), &StatePart::SecondMoment.tensor(query));
    };
    for pair in &all() {
        let found = Resumption::new(pair, CUT).with_fault(&of_another).arrives();
        assert_found(found.clone(), &format!("{}: ", StatePart::SecondMoment.tensor(query)));
        assert!(found.unwrap_err().lines().count() == 2, "two tensors and no others");
        let found = Resumption::new(pair, CUT).with_fault(&exchanged).arrives();
        assert_found(found, &format!("{}: ", StatePart::FirstMoment.tensor(query)));
    }
}

/// Two shards of a tensor that were saved with each other's offsets.
#[test]
fn shards_with_each_others_offsets_are_found() {
    let weight = "layers.1.ffn.up.weight";
    let pair = Pair::new(zero(ZeroStage::Off, 1, 2, 1), zero(THREE, 2, 1, 2));
    let offsets = |manifest: &mut Manifest| {
        let pieces: &mut Vec<PieceRecord> = &mut manifest.tensors.get_mut(weight).expect("a tensor").pieces;
        let [first, second] = &mut pieces[..] else { panic!("{} pieces", pieces.len()) };
        assert_eq!(first.extent, second.extent);
        std::mem::swap(&mut first.start, &mut second.start);
    };
    assert_holds(Resumption::new(&pair, CUT).arrives());
    assert_found(Resumption::new(&pair, CUT).with_fault(&offsets).arrives(), &format!("{weight}: "));
}

/// The last replica saves each of its pieces from one element too far.
#[test]
fn a_rank_that_saves_from_one_element_too_far_is_found() {
    for pair in &all() {
        let last = pair.before.parallelism.degrees.dp - 1;
        let shifted = move |coord: mesh::Coord, rank: RankEngine| {
            if coord.position(AxisSet::DATA) != last {
                return rank;
            }
            alter_saved(rank, |tensor, bytes| bytes.rotate_left(tensor.dtype.size_bytes()))
        };
        let found = Resumption::new(pair, CUT).saving_on(&shifted).arrives();
        assert_found(found, "second_moment.layers.");
    }
}

/// Extent of `value` on stage `stage` of `layout`.
fn extent(layout: &Layout, stage: usize, value: Value) -> std::ops::Range<usize> {
    let extent = layout.setup().expect("a setup").plan(stage).extent_of_state(value).expect("state");
    extent.offset_bytes..extent.offset_bytes + extent.len_bytes
}

/// One rank does not load a tensor of one layer, whose place holds something else.
#[test]
fn state_that_a_rank_does_not_load_is_found() {
    for pair in &all() {
        let pp = pair.after.parallelism.degrees.pp;
        let unloaded = |value: Value, dtype: Dtype| {
            let extent = extent(&pair.after, pp - 1, value);
            let wrap = move |coord: mesh::Coord, rank: RankEngine| {
                let extent = extent.clone();
                match coord.along(Axis::Pp) + 1 == pp && coord.position(AxisSet::DATA) == 0 {
                    true => drop_writes(rank, move |to| to.dtype == dtype && extent.contains(&to.offset_bytes)),
                    false => rank,
                }
            };
            Resumption::new(pair, CUT).resumed_on(&wrap).arrives()
        };
        assert_found(unloaded(Value::FirstMoment(Unit::Layer(5)), Dtype::F32), "first_moment.layers.5");
        let (stored, words) = match pair.after.train.precision.stored() {
            Format::Fp32 => (Dtype::F32, "layers.5."),
            Format::Bf16 | Format::Fp16 => (Dtype::Bf16, "read.layers.5."),
        };
        assert_found(unloaded(Value::Params(Unit::Layer(5)), stored), words);
    }
}
