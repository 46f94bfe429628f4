//! Recorded times in, lines out.

use mesh::AxisSizes;

use super::*;
use crate::worker::call_clock::CallTimes;

const MILLISECOND: u64 = 1_000_000;

/// The times of a rank in a step: of its own work, of the collectives of its tensor-parallel group, and of what stage 0
/// sends.
#[derive(Clone, Copy)]
struct Given {
    work: u64,
    call: u64,
    received: u64,
}

/// A watch over dp x tp x pp ranks whose second stage is predicted to compute three times as long as the first.
fn watch(dp: usize, tp: usize, pp: usize, turns: f64) -> StragglerWatch {
    let mesh = Mesh::new(AxisSizes::dp_tp_pp(dp, tp, pp)).expect("a mesh");
    StragglerWatch::of_groups(PeerGroups::new(mesh, []), vec![1.0, 3.0], turns)
}

/// Times with the noise of a machine, up to a fifth.
fn noisy(ns: u64, step: u32, rank: Rank) -> u64 {
    ns + ns * ((u64::from(step) * 7 + rank.0 as u64 * 3) % 11) / 50
}

/// The lines of `steps` steps of a second each, in which every rank has the times that `given` returns for it and its
/// stage.
fn lines(mut watch: StragglerWatch, steps: u32, given: impl Fn(Rank, usize) -> Given) -> Vec<String> {
    let mut found = vec![];
    for step in 1..=steps {
        for rank in watch.mesh.ranks() {
            let stage = watch.mesh.coord(rank).along(Axis::Pp);
            let Given { work, call, received } = given(rank, stage);
            let mut own_ns = [0; Work::ALL.len()];
            own_ns[Work::Forward as usize] = noisy(work, step, rank);
            own_ns[Work::Update as usize] = 5 * MILLISECOND;
            let tensor = watch.groups.index(PeerGroup::TENSOR).expect("a group");
            let calls = BTreeMap::from([(tensor, CallTimes { count: 4, first_ns: vec![noisy(call, step, rank); 2] })]);
            let received_ns = if stage == 0 { BTreeMap::new() } else { BTreeMap::from([(0, received)]) };
            watch.take(WorkTimes { rank, step, own_ns, calls, received_ns });
        }
        found.extend(watch.slow(step, 1.0).iter().map(|straggler| format!("step {step}: {straggler}")));
    }
    found
}

/// Healthy ranks: the second stage works three times as long.
fn healthy(_: Rank, stage: usize) -> Given {
    Given { work: if stage == 0 { 100 } else { 300 } * MILLISECOND, call: 10 * MILLISECOND, received: 20 * MILLISECOND }
}

fn slow_work(slow: usize, tenths: u64) -> impl Fn(Rank, usize) -> Given {
    move |rank, stage| {
        let given = healthy(rank, stage);
        Given { work: if rank.0 == slow { given.work * tenths / 10 } else { given.work }, ..given }
    }
}

#[test]
fn a_rank_that_works_longer_than_its_peers_is_named_within_20_steps_and_again_much_later() {
    assert_eq!(
        lines(watch(2, 2, 2, 1.0), 300, slow_work(5, 15)),
        [
            "step 14: rank 5 is slow: it works 0.491 s of a step, and its peers 0.335 s, most of it in forward passes; that \
             costs up to 0.156 s a step",
            "step 214: rank 5 is slow: it works 0.500 s of a step, and its peers 0.335 s, most of it in forward passes; that \
             costs up to 0.165 s a step",
        ]
    );
    assert_eq!(lines(watch(2, 1, 1, 1.0), 20, slow_work(0, 13)).len(), 1, "one peer is enough");
}

#[test]
fn stages_noise_and_small_differences_are_not_slow() {
    assert_eq!(lines(watch(2, 2, 2, 1.0), 1000, healthy), [""; 0]);
    assert_eq!(lines(watch(2, 2, 2, 1.0), 1000, slow_work(5, 11)), [""; 0]);
    assert_eq!(lines(watch(1, 1, 2, 1.0), 1000, healthy), [""; 0]);
}

#[test]
fn times_that_vary_more_than_ranks_differ_name_nobody() {
    // Every third step of a rank is undisturbed; the others take up to three times as long.
    let disturbed = |times: u64| {
        let mut watch = watch(2, 1, 1, 1.0);
        let mut found = vec![];
        for step in 1..=200 {
            for rank in [Rank(0), Rank(1)] {
                let longer = (u64::from(step) + rank.0 as u64) % 3;
                let work = 100 * MILLISECOND * (1 + longer) * if rank.0 == 1 { times } else { 10 } / 10;
                let own_ns = [0, work, 0, 0];
                let (calls, received_ns) = (BTreeMap::new(), BTreeMap::new());
                watch.take(WorkTimes { rank, step, own_ns, calls, received_ns });
            }
            found.extend(watch.slow(step, 1.0));
        }
        found.len()
    };
    assert_eq!((disturbed(10), disturbed(15)), (0, 0));
    assert_eq!(disturbed(25), 1, "a rank that is slower than that is named, again after 200 steps");
}

#[test]
fn a_rank_whose_peers_are_late_is_compared_later() {
    let mut watch = watch(2, 1, 2, 1.0);
    for step in 1..=14 {
        for rank in watch.mesh.ranks() {
            let Given { work, .. } = slow_work(3, 20)(rank, rank.0 / 2);
            // The peer of rank 3 has not sent its last steps.
            if rank.0 != 2 || step < 12 {
                let (calls, received_ns) = (BTreeMap::new(), BTreeMap::new());
                watch.take(WorkTimes { rank, step, own_ns: [0, work, 0, 0], calls, received_ns });
            }
        }
        assert_eq!(watch.slow(step, 1.0), []);
    }
}

#[test]
fn a_rank_without_peers_is_compared_with_its_prediction() {
    assert_eq!(
        lines(watch(1, 1, 2, 1.0), 20, slow_work(1, 40)),
        [
            "step 14: rank 1 is slow: it computes 1.320 s of a step, and other stages would compute its part in 0.330 s; that \
             costs up to 0.990 s a step"
        ]
    );
}

#[test]
fn ranks_that_take_turns_may_differ_by_their_turns() {
    assert_eq!(lines(watch(2, 2, 2, 4.0), 100, slow_work(5, 40)), [""; 0]);
    assert_eq!(lines(watch(2, 2, 2, 4.0), 20, slow_work(5, 70)).len(), 1);
}

#[test]
fn slow_links_are_named_where_no_rank_is_slow() {
    let slow_group = |rank: Rank, stage: usize| {
        let given = healthy(rank, stage);
        Given { call: if rank.0 >= 6 { 30 * MILLISECOND } else { given.call }, ..given }
    };
    let named = lines(watch(2, 2, 2, 1.0), 20, slow_group);
    assert_eq!(named.len(), 1, "{named:?}");
    assert!(
        named[0]
            .starts_with("step 14: the links between ranks 6, 7 are slow: their tensor-parallel group exchanges for "),
        "{named:?}"
    );
    let slow_link = |rank: Rank, stage: usize| {
        let given = healthy(rank, stage);
        Given { received: if rank.0 == 7 { 90 * MILLISECOND } else { given.received }, ..given }
    };
    assert_eq!(
        lines(watch(2, 2, 2, 1.0), 20, slow_link),
        [
            "step 14: the link from rank 3 to rank 7 is slow: rank 7 waits for it 0.090 s of a step, and its peers 0.020 s for \
             theirs; that costs up to 0.070 s a step"
        ]
    );
    // A rank that is slow lets others wait.
    let both = |rank: Rank, stage: usize| Given { work: slow_work(5, 20)(rank, stage).work, ..slow_link(rank, stage) };
    let named = lines(watch(2, 2, 2, 1.0), 20, both);
    assert_eq!(named.len(), 1, "{named:?}");
    assert!(named[0].contains("rank 5 is slow: it works"), "{named:?}");
}

#[test]
fn a_member_that_comes_last_tells_the_time_of_the_links() {
    // One member of each group waits for the other; both groups exchange equally fast.
    let waiting = |rank: Rank, stage: usize| {
        let given = healthy(rank, stage);
        Given { call: if rank.0 == 6 { 500 * MILLISECOND } else { given.call }, ..given }
    };
    assert_eq!(lines(watch(2, 2, 2, 1.0), 100, waiting), [""; 0]);
}
