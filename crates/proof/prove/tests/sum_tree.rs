//! Gradients that are summed in runs of replicas: which layouts have the same bits, how far others are apart, and how
//! many bytes leave a host.

#![allow(clippy::unwrap_used, reason = "a test ends where something fails")]

use std::sync::{Arc, Mutex};

use comm::{Counting, Counts, HostMap, Transport};
use config::{
    Degrees, Gathering, GradientReduction, GradientSums, ModelSpec, Overlap, Parallelism, Reshard, TrainSpec, ZeroStage,
};
use mesh::Rank;
use prove::{Distance, EqualityClass, Outcome, Promise, Promised, is_noise, outcome_of, weights_hash};
use testkit::layout::{Layout, thread_engine};
use testkit::models::{Style, plain_layout, proof_model, proof_text, proof_training};
use train::{SetupError, ThreadEngine};

fn model() -> ModelSpec {
    ModelSpec { num_layers: 2, ..proof_model(Style::Gpt2, 4, true) }
}

fn layout(parallelism: Parallelism, sums: GradientSums) -> Layout {
    let train = TrainSpec { steps: 3, global_batch: 8, warmup_steps: 1, sums, ..proof_training() };
    Layout { model: model(), parallelism, train }
}

fn single(parallelism: Parallelism) -> Layout {
    layout(parallelism, GradientSums::Single)
}

fn tree(dp: usize, sum_tree: usize) -> Parallelism {
    Parallelism { sum_tree, ..plain_layout(dp, 1, 1, 1) }
}

fn outcome(layout: &Layout) -> Outcome {
    layout.outcome(&proof_text()).unwrap_or_else(|error| panic!("{:?}: {error}", layout.parallelism))
}

/// Weights and losses as one number.
fn hash(outcome: &Outcome) -> (u64, Vec<u64>) {
    (weights_hash(&model(), &outcome.weights), outcome.losses.iter().map(|loss| loss.to_bits()).collect())
}

fn three(reduce: GradientReduction) -> ZeroStage {
    ZeroStage::Three { reduce, gathering: Gathering { prefetch: 1, reshard: Reshard::AfterUse } }
}

/// Every form of data parallelism that adds four replicas two and two.
fn halves_of_four() -> Vec<Parallelism> {
    let of = |zero| Parallelism { zero, ..tree(4, 2) };
    vec![
        tree(4, 2),
        of(ZeroStage::One),
        of(ZeroStage::Two { reduce: GradientReduction::Step }),
        of(three(GradientReduction::Step)),
        // Groups of two are runs of two, whether the sum over groups is said to be in runs of groups or not.
        Parallelism { shard_group: Some(2), sum_tree: 1, ..of(ZeroStage::One) },
        Parallelism { shard_group: Some(2), sum_tree: 2, ..of(ZeroStage::One) },
        // Every replica is a group: runs of the sum over groups.
        Parallelism { shard_group: Some(1), ..of(ZeroStage::One) },
        Parallelism { overlap: Some(Overlap::On), ..of(ZeroStage::One) },
        Parallelism { degrees: Degrees { dp: 4, cp: 1, tp: 1, pp: 2 }, ..of(ZeroStage::One) },
    ]
}

#[test]
fn layouts_with_the_same_runs_have_the_same_bits() {
    let layouts: Vec<Layout> = halves_of_four().into_iter().map(single).collect();
    let expected = hash(&outcome(&layouts[0]));
    for layout in &layouts[1..] {
        let class = EqualityClass::of(&layouts[0].parallelism, &layout.parallelism);
        assert_eq!(class, EqualityClass::SameOrder, "{:?}", layout.parallelism);
        assert_eq!(hash(&outcome(layout)), expected, "{:?}", layout.parallelism);
    }
    let rank_order = hash(&outcome(&single(tree(4, 1))));
    assert_ne!(rank_order, expected, "the order of sums is seen");
    for all in [4, 8] {
        assert_eq!(hash(&outcome(&single(tree(4, all)))), rank_order, "one run of {all}");
    }
    assert_eq!(hash(&outcome(&single(tree(1, 2)))), hash(&outcome(&single(tree(1, 1)))), "one replica");
}

#[test]
fn other_runs_keep_the_promise_of_another_order() {
    for (dp, other) in [
        (4, tree(4, 2)),
        (4, Parallelism { zero: ZeroStage::One, ..tree(4, 2) }),
        (4, tree(1, 1)),
        // The last run is shorter.
        (8, tree(8, 3)),
    ] {
        let (rank_order, other) = (single(tree(dp, 1)), single(other));
        let class = EqualityClass::of(&rank_order.parallelism, &other.parallelism);
        assert_eq!((class, class.promises()), (EqualityClass::OtherOrder, Promised::Bounds));
        let promise = Promise::of(class, &other.model, &other.train, other.train.steps);
        let outcomes = [outcome(&rank_order), outcome(&other)];
        let distance = Distance::between(&outcomes[0], &outcomes[1], |name| is_noise(&other.model, name));
        assert_eq!(promise.faults([&outcomes[0], &outcomes[1]], &distance), [""; 0], "{:?}", other.parallelism);
        assert!(!distance.same_bits, "{:?}", other.parallelism);
    }
}

#[test]
fn exact_sums_have_the_same_bits_in_any_runs() {
    let exact = |parallelism| hash(&outcome(&layout(parallelism, GradientSums::Exact)));
    let expected = exact(tree(1, 1));
    let three = Parallelism { zero: three(GradientReduction::Microbatch), ..tree(4, 3) };
    for parallelism in halves_of_four().into_iter().chain([tree(4, 1), tree(4, 3), three]) {
        let class = EqualityClass::of(&tree(1, 1), &parallelism).in_sums([GradientSums::Exact; 2]);
        assert_eq!(class, EqualityClass::AnyOrder);
        assert_eq!(exact(parallelism.clone()), expected, "{parallelism:?}");
    }
}

#[test]
fn runs_that_cut_sharding_groups_are_refused() {
    let cut = |sum_tree| Parallelism { zero: ZeroStage::One, shard_group: Some(2), ..tree(8, sum_tree) };
    let refused = |sum_tree| {
        let setup = single(cut(sum_tree)).setup();
        matches!(setup, Err(SetupError::SumTree { sum_tree: found, shard_group: 2, ep: 1 }) if found == sum_tree)
    };
    assert!(refused(3) && refused(0));
    assert!(!refused(1) && !refused(2) && !refused(4) && !refused(6));
}

/// The weights of a run whose four ranks are on these hosts, and the bytes that cross between hosts.
fn on_hosts(parallelism: Parallelism, host_of: [usize; 4]) -> ((u64, Vec<u64>), u64) {
    let layout = single(parallelism);
    let setup = layout.setup().unwrap();
    let counters: Mutex<Vec<(usize, Arc<Counts>)>> = Mutex::default();
    let counting = |inner: Arc<dyn Transport>| -> Arc<dyn Transport> {
        let rank = inner.rank().0;
        let (counting, counts) = Counting::new(inner);
        counters.lock().unwrap().push((rank, counts));
        Arc::new(counting)
    };
    let engine: ThreadEngine = thread_engine(&setup).with_hosts(HostMap::by_name(&host_of)).wrapped(counting);
    let outcome = outcome_of(&setup, &engine, &proof_text()).unwrap();
    let others = |rank: usize| (0..4).filter(move |peer| host_of[*peer] != host_of[rank]);
    let between =
        |(rank, counts): &(usize, Arc<Counts>)| -> u64 { others(*rank).map(|peer| counts.to(Rank(peer)).bytes).sum() };
    (hash(&outcome), counters.lock().unwrap().iter().map(between).sum())
}

/// Two hosts of two replicas. Gathers cross once per host, not once per member; so do sums in runs of a host's members.
#[test]
fn hosts_change_bytes_and_no_bit() {
    for zero in [ZeroStage::Off, ZeroStage::One, three(GradientReduction::Step)] {
        let of = |sum_tree| Parallelism { zero, ..tree(4, sum_tree) };
        let [one_host, halves, strided, uneven] = [[0; 4], [0, 0, 1, 1], [0, 1, 0, 1], [0, 0, 0, 1]];
        let (plain, none) = on_hosts(of(1), one_host);
        let (plain_halves, plain_bytes) = on_hosts(of(1), halves);
        let (runs, _) = on_hosts(of(2), one_host);
        let (runs_halves, run_bytes) = on_hosts(of(2), halves);
        assert_eq!((plain_halves, runs_halves, none), (plain.clone(), runs.clone(), 0));
        for hosts in [strided, uneven] {
            assert_eq!(on_hosts(of(1), hosts).0, plain, "{zero:?} on {hosts:?}");
            assert_eq!(on_hosts(of(2), hosts).0, runs, "{zero:?} on {hosts:?}");
        }
        assert!(run_bytes < plain_bytes, "{zero:?}: {run_bytes} and {plain_bytes} bytes between hosts");
    }
}
