//! Collectives of a library, which adds in an order of its own: within the bounds of its class, the same bits with
//! exact sums, and a term that it loses is found.

#![allow(clippy::unwrap_used, reason = "a test ends where something fails")]

use std::sync::Arc;
use std::time::Duration;

use comm::{ChannelId, GroupCommunicator, HostMap, Library, LibrarySums, ThreadTransport, Timeouts, Transport};
use config::{
    CollectivesChoice, Degrees, Gathering, GradientReduction, GradientSums, ModelSpec, Overlap, Parallelism, Precision,
    Products, Reshard, SequenceParallel, TrainSpec, ZeroStage,
};
use device::SumTree;
use mesh::{Axis, AxisSet, AxisSizes, Mesh};
use prove::{Distance, EqualityClass, Outcome, Promise, RankOrder, is_noise, outcome_of};
use testkit::layout::{Layout, thread_engine};
use testkit::library::{Adding, LostTerm, ThreadLibrary};
use testkit::models::{Style, plain_layout, proof_model, proof_text, proof_training};

fn layout(parallelism: Parallelism, sums: GradientSums, precision: Precision) -> Layout {
    let model = ModelSpec { num_layers: 2, ..proof_model(Style::Gpt2, 4, true) };
    let train = TrainSpec { steps: 3, global_batch: 8, warmup_steps: 1, sums, precision, ..proof_training() };
    Layout { model, parallelism, train }
}

fn single(parallelism: Parallelism) -> Layout {
    layout(parallelism, GradientSums::Single, Precision::Fp32(Products::Chained))
}

fn own(layout: &Layout) -> Outcome {
    layout.outcome(&proof_text()).unwrap_or_else(|error| panic!("{:?}: {error}", layout.parallelism))
}

fn by_library(layout: &Layout, library: ThreadLibrary) -> Outcome {
    let setup = layout.setup().unwrap();
    let engine = thread_engine(&setup).with_library(Arc::new(library));
    outcome_of(&setup, &engine, &proof_text()).unwrap_or_else(|error| panic!("{:?}: {error}", layout.parallelism))
}

/// The faults of a run by a library compared with pleach's own, and whether both have the same bits.
fn judged(layout: &Layout, library: ThreadLibrary) -> (Vec<String>, bool) {
    let order = |collectives| RankOrder::of(collectives, layout.train.sums);
    let orders = [order(CollectivesChoice::Own), order(CollectivesChoice::Native)];
    let class = EqualityClass::of(&layout.parallelism, &layout.parallelism).in_orders(orders);
    let promise = Promise::of(class, &layout.model, &layout.train, layout.train.steps);
    let outcomes = [own(layout), by_library(layout, library)];
    let distance = Distance::between(&outcomes[0], &outcomes[1], |name| is_noise(&layout.model, name));
    (promise.faults([&outcomes[0], &outcomes[1]], &distance), distance.same_bits)
}

fn three() -> ZeroStage {
    ZeroStage::Three {
        reduce: GradientReduction::Step,
        gathering: Gathering { prefetch: 1, reshard: Reshard::AfterUse },
    }
}

/// Data, tensor and pipeline parallelism, with ZeRO, sharding groups, sequence parallelism and overlap.
fn layouts() -> Vec<Parallelism> {
    let of = |dp, tp, pp, zero| Parallelism { zero, ..plain_layout(dp, tp, pp, 1) };
    vec![
        of(8, 1, 1, ZeroStage::Off),
        of(4, 1, 2, ZeroStage::One),
        of(4, 2, 1, three()),
        Parallelism { overlap: Some(Overlap::On), ..of(4, 1, 1, ZeroStage::One) },
        Parallelism { shard_group: Some(2), ..of(4, 1, 1, ZeroStage::One) },
        of(2, 4, 1, ZeroStage::Off),
        Parallelism { sequence_parallel: SequenceParallel::On, ..of(1, 4, 2, ZeroStage::Off) },
    ]
}

/// Each rank in a process of its own, two neighbours in one, and two that are not neighbours.
fn process_maps(ranks: usize) -> [Vec<usize>; 3] {
    let strided = |rank: usize| rank % (ranks / 2);
    [(0..ranks).collect(), (0..ranks).map(|rank| rank / 2).collect(), (0..ranks).map(strided).collect()]
}

#[test]
fn sums_in_the_order_of_a_library_are_within_the_bounds() {
    let mut different = 0;
    for (number, parallelism) in layouts().into_iter().enumerate() {
        let Degrees { dp, cp: _, tp, pp } = parallelism.degrees;
        let layout = single(parallelism);
        // The maps take turns.
        let map = process_maps(dp * tp * pp)[number % 3].clone();
        for adding in [Adding::FromTheLast, Adding::InHalves] {
            let library = ThreadLibrary::new(map.clone(), adding, LibrarySums::All);
            let (faults, same_bits) = judged(&layout, library);
            assert_eq!(faults, [""; 0], "{:?} {map:?} {adding:?}", layout.parallelism);
            different += usize::from(!same_bits);
        }
    }
    assert!(different >= 5, "another order shows in most layouts; got {different} of 14");
}

#[test]
fn narrow_sums_are_widened_and_rounded_once() {
    let layout = layout(plain_layout(1, 2, 1, 1), GradientSums::Single, Precision::Bf16(Products::Chained));
    // Two terms commute, so one rounding at the end gives the bits of pleach's own sums.
    for sums in [LibrarySums::All, LibrarySums::Integers] {
        let (faults, same_bits) = judged(&layout, ThreadLibrary::new(vec![0, 1], Adding::FromTheLast, sums));
        assert!(faults.is_empty() && same_bits, "{faults:?}");
    }
}

#[test]
fn exact_sums_keep_their_bits() {
    for parallelism in [
        Parallelism { zero: three(), ..plain_layout(4, 2, 1, 1) },
        Parallelism { zero: ZeroStage::One, ..plain_layout(2, 4, 1, 1) },
    ] {
        let layout = layout(parallelism, GradientSums::Exact, Precision::Fp32(Products::Chained));
        for map in process_maps(8) {
            let library = ThreadLibrary::new(map.clone(), Adding::FromTheLast, LibrarySums::Integers);
            assert_eq!(judged(&layout, library), (vec![], true), "{:?} {map:?}", layout.parallelism);
        }
    }
}

/// The call that loses a term is one of the gradient's, or one of an activation's: not the first, which adds rows of
/// the embedding, of which the last rank has none.
#[test]
fn a_term_that_a_library_loses_is_found() {
    let library = || ThreadLibrary::new((0..4).collect(), Adding::FromTheLast, LibrarySums::All);
    for (parallelism, call) in [(plain_layout(4, 1, 1, 1), 0), (plain_layout(1, 4, 1, 1), 1)] {
        let layout = single(parallelism);
        let (clean, _) = judged(&layout, library());
        assert_eq!(clean, [""; 0]);
        let (faults, _) = judged(&layout, library().losing(LostTerm { processes: 4, call }));
        assert!(faults.iter().any(|fault| fault.contains("is the bound")), "{:?}: {faults:?}", layout.parallelism);
    }
}

fn communicators(process_of: Vec<usize>, wait: Duration) -> Vec<GroupCommunicator> {
    let ranks = process_of.len();
    of_library(ranks, wait, &ThreadLibrary::new(process_of, Adding::InHalves, LibrarySums::All).with_wait(wait))
}

fn of_library(ranks: usize, wait: Duration, library: &ThreadLibrary) -> Vec<GroupCommunicator> {
    let mesh = Mesh::new(AxisSizes { tp: ranks, ..AxisSizes::ONE }).unwrap();
    let ends = ThreadTransport::world(ranks, Timeouts::new(wait));
    let of = |end: ThreadTransport| {
        let group = mesh.group(end.rank(), Axis::Tp);
        let channel = ChannelId::new(AxisSet::of(Axis::Tp), 0);
        let library = library.group(0, &group).unwrap();
        GroupCommunicator::new(Arc::new(end), group, &HostMap::one_host(), channel).with_library(library)
    };
    ends.into_iter().map(of).collect()
}

/// Runs `work` on every rank and returns what each of them got.
fn on_all<T: Send>(communicators: Vec<GroupCommunicator>, work: impl Fn(GroupCommunicator) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let work = &work;
        let threads = communicators.into_iter().map(|communicator| scope.spawn(move || work(communicator)));
        threads.collect::<Vec<_>>().into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Whole numbers, whose sums are exact: lengths below a piece of the library's memory, above it, and none.
#[test]
fn every_collective_gives_what_pleachs_own_gives() {
    for process_of in [vec![0, 1, 2, 3, 4, 5], vec![0, 0, 1, 1, 2, 2], vec![0, 1, 0, 1, 0, 1], vec![0, 0, 0, 0, 1, 2]] {
        for slice in [0, 1, 7, 1000, 100_003] {
            let ranks = process_of.len();
            let results = on_all(communicators(process_of.clone(), Duration::from_secs(60)), |communicator| {
                let position = communicator.position();
                let value = |member: usize, at: usize| ((member + 1) * (at % 97 + 1)) as f32;
                let len = slice * ranks;
                let own: Vec<f32> = (0..len).map(|at| value(position, at)).collect();
                let sum = |at: usize| (0..ranks).map(|member| value(member, at)).sum::<f32>();
                let mut all = own.clone();
                communicator.all_reduce_sum(&mut all).unwrap();
                let is_reduced = all.iter().enumerate().all(|(at, got)| *got == sum(at));
                let mut scattered = own.clone();
                communicator.reduce_scatter(&mut scattered).unwrap();
                let mine = position * slice..(position + 1) * slice;
                let is_scattered = mine.clone().all(|at| scattered[at] == sum(at));
                let mut gathered = own.clone();
                communicator.all_gather(&mut gathered).unwrap();
                let is_gathered = (0..len).all(|at| gathered[at] == value(at / slice.max(1), at));
                let mut received = vec![0.0; len];
                communicator.all_to_all(&own, &mut received).unwrap();
                let from = |at: usize| value(at / slice.max(1), position * slice + at % slice.max(1));
                let is_exchanged = (0..len).all(|at| received[at] == from(at));
                let mut integers: Vec<i64> = (0..len).map(|at| i64::MAX - (at * position) as i64).collect();
                communicator.all_reduce_integers_in_runs(&mut integers, SumTree::RANK_ORDER).unwrap();
                let wrapped =
                    |at: usize| (0..ranks).fold(0i64, |sum, member| sum.wrapping_add(i64::MAX - (at * member) as i64));
                let is_wrapped = (0..len).all(|at| integers[at] == wrapped(at));
                communicator.barrier().unwrap();
                [is_reduced, is_scattered, is_gathered, is_exchanged, is_wrapped]
            });
            assert!(results.iter().all(|result| *result == [true; 5]), "{process_of:?} {slice}: {results:?}");
        }
    }
}

/// The error of each rank that has one.
fn said(
    process_of: Vec<usize>,
    work: impl Fn(&GroupCommunicator) -> Result<(), comm::CommError> + Sync,
) -> Vec<String> {
    errors_of(communicators(process_of, Duration::from_millis(300)), work)
}

fn errors_of(
    communicators: Vec<GroupCommunicator>,
    work: impl Fn(&GroupCommunicator) -> Result<(), comm::CommError> + Sync,
) -> Vec<String> {
    let results = on_all(communicators, |communicator| {
        // Ends stay open until all have ended, so that nobody is said to have left.
        let result = work(&communicator).map_err(|error| error.to_string());
        std::thread::sleep(Duration::from_secs(2));
        result
    });
    results.into_iter().filter_map(Result::err).collect()
}

#[test]
fn a_member_that_is_late_is_named_by_the_next_leader() {
    let late = |communicator: &GroupCommunicator| match communicator.position() {
        2 => Ok(()),
        _ => communicator.all_reduce_sum(&mut [1.0f32; 8]),
    };
    let texts = said(vec![0, 1, 2, 3], late);
    assert!(texts.iter().any(|text| text.contains("rank 3 waited") && text.contains("for rank 2 in all-reduce")));
    // No engine ends the others at the first report here, so they may miss the rank that has reported; nobody who waits
    // is blamed.
    let is_blamed = |rank: usize| texts.iter().any(|text| text.contains(&format!("for rank {rank} in")));
    assert!(!is_blamed(0) && !is_blamed(1), "{texts:?}");
    let texts = said(vec![0, 0, 1, 1], |communicator| match communicator.position() {
        1 => Ok(()),
        _ => communicator.reduce_scatter(&mut [1.0f32; 8]),
    });
    assert!(texts.iter().any(|text| text.contains("rank 0 waited") && text.contains("for rank 1 in reduce-scatter")));
}

#[test]
fn members_that_do_different_things_are_named() {
    let texts = said(vec![0, 1], |communicator| match communicator.position() {
        0 => communicator.all_reduce_sum(&mut [1.0f32; 8]),
        _ => communicator.all_reduce_sum(&mut [1.0f32; 9]),
    });
    assert_eq!(texts.len(), 2, "{texts:?}");
    assert!(texts[0].contains("rank 0 is in all-reduce of 32 bytes"), "{texts:?}");
    assert!(texts[0].contains("rank 1 is in all-reduce of 36 bytes"), "{texts:?}");
    let texts = said(vec![0, 1], |communicator| match communicator.position() {
        0 => communicator.all_gather(&mut [1.0f32; 8]),
        _ => communicator.reduce_scatter(&mut [1.0f32; 8]),
    });
    assert!(texts.iter().all(|text| text.contains("their programs differ")), "{texts:?}");
}

/// All members have said that they begin; the one that does not answer at the deadline is named.
#[test]
fn a_member_that_stops_after_it_has_begun_is_named() {
    let wait = Duration::from_millis(600);
    let library = ThreadLibrary::new((0..4).collect(), Adding::InHalves, LibrarySums::All);
    let library = library.with_wait(wait).stopping(1);
    let texts = errors_of(of_library(4, wait, &library), |communicator| communicator.all_reduce_sum(&mut [1.0f32; 8]));
    let named = texts.iter().filter(|text| text.contains("rank 2 waited") && text.contains("for rank 1 in all-reduce"));
    assert_eq!(named.count(), 1, "{texts:?}");
}
