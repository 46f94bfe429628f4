//! Changes of the result that a change of layout may cause.

use std::collections::BTreeSet;
use std::fmt;

use config::{
    AttentionChoice, BatchRamp, CollectivesChoice, Degrees, GradientReduction, GradientSums, Parallelism,
    ProductAlgorithms, Products, ScheduleSpec,
};
use program::{ContributionOrder, Schedule};
use train::EngineDescription;

/// The promise for two layouts of one run, strongest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EqualityClass {
    /// Every sum has the same terms in the same order: bit-identical losses, norms and weights.
    SameOrder,
    /// Sums over sequences are grouped differently, as in the next class, but they are exact in both runs, so that
    /// their order is of no matter: bit-identical as well.
    AnyOrder,
    /// Sums over sequences are grouped differently: data parallelism, the microbatch size, the sharding groups, the
    /// runs of replicas that are added first or the time of reduction differ, a schedule that was written down adds
    /// microbatches in another order, or one of the two rounds sequences' contributions to exact sums.
    OtherOrder,
    /// A library among processes adds single-precision values in an order of its own, over replicas and over
    /// tensor-parallel ranks, in one of the two or in both.
    LibraryOrder,
    /// Sums are split between ranks: over hidden dims where tensor parallelism differs, over tokens (in the gradients
    /// of norms, biases and positions) where sequence parallelism does, over tokens of a sequence (in all gradients,
    /// not in the forward pass) where context parallelism does. Or products are those of a library, whose order depends
    /// on the shape and the place of each, and the layouts differ in anything, or its algorithms are timed.
    OtherSums,
    /// The devices are of different kinds, whose kernels add in different orders: not the same bits, under any layout.
    /// No bound is derived.
    OtherDevice,
}

impl EqualityClass {
    /// The class of changing `a` into `b`, other things equal, where gradients are summed in single precision.
    pub fn of(a: &Parallelism, b: &Parallelism) -> EqualityClass {
        let shares_tokens = |layout: &Parallelism| layout.sequence_parallel.runs(layout.degrees.tp) > 1;
        let slices = |layout: &Parallelism| (layout.degrees.cp > 1).then(|| layout.slices());
        let [Degrees { dp, cp: _, tp, pp: _ }, of_b] = [a.degrees, b.degrees];
        // A change of pp changes no sum.
        if tp != of_b.tp || shares_tokens(a) != shares_tokens(b) || slices(a) != slices(b) {
            EqualityClass::OtherSums
        } else if dp != of_b.dp
            || a.ep != b.ep
            || a.microbatch_size != b.microbatch_size
            || gradient_order(a) != gradient_order(b)
            || !adds_alike(&a.schedule, &b.schedule)
        {
            EqualityClass::OtherOrder
        } else {
            EqualityClass::SameOrder
        }
    }

    /// The class of changing how the first batches grow, other things equal; `None` where steps then have other
    /// batches.
    pub fn of_ramps(a: Option<BatchRamp>, b: Option<BatchRamp>) -> Option<EqualityClass> {
        match (a, b) {
            _ if a == b => Some(EqualityClass::SameOrder),
            // The same batches in microbatches of other sizes.
            (Some(a), Some(b)) if a == (BatchRamp { grows: a.grows, ..b }) => Some(EqualityClass::OtherOrder),
            (Some(_) | None, _) => None,
        }
    }

    /// This class for two runs that sum gradients in these numbers.
    pub fn in_sums(self, sums: [GradientSums; 2]) -> EqualityClass {
        match (sums, self) {
            ([GradientSums::Exact, GradientSums::Exact], EqualityClass::OtherOrder) => EqualityClass::AnyOrder,
            ([GradientSums::Single, GradientSums::Single] | [GradientSums::Exact, GradientSums::Exact], class) => class,
            ([GradientSums::Single, GradientSums::Exact] | [GradientSums::Exact, GradientSums::Single], class) => {
                class.max(EqualityClass::OtherOrder)
            }
        }
    }

    /// This class where real numbers of different ranks are added in these orders. That of a library is not known, so
    /// two runs that use it are not promised the same one.
    pub fn in_orders(self, orders: [RankOrder; 2]) -> EqualityClass {
        match orders {
            [RankOrder::OfRanks, RankOrder::OfRanks] => self,
            [RankOrder::OfLibrary, _] | [RankOrder::OfRanks, RankOrder::OfLibrary] => {
                self.max(EqualityClass::LibraryOrder)
            }
        }
    }

    /// This class for two runs that multiply by `products`, whose layouts and engines are these. A library chooses the
    /// order of a product by its shape and its place in memory, so it is not known but where both are the same.
    pub fn in_products(
        self,
        products: Products,
        layouts: [&Parallelism; 2],
        engines: [&EngineDescription; 2],
    ) -> EqualityClass {
        match products {
            Products::Chained | Products::Pairs | Products::Blocks16 | Products::Blocks8 => self,
            Products::Device => {
                let is_same = layouts[0] == layouts[1] && engines[0].device == engines[1].device;
                if self == EqualityClass::SameOrder && is_same { self } else { self.max(EqualityClass::OtherSums) }
            }
        }
    }

    /// This class for two runs whose algorithms of a library are chosen so. Which one is the fastest may differ from
    /// start to start; a resumed run takes those of its folder.
    pub fn in_algorithms(self, algorithms: [ProductAlgorithms; 2]) -> EqualityClass {
        match algorithms {
            [ProductAlgorithms::First, ProductAlgorithms::First] => self,
            // That algorithms are equal is known of random numbers only.
            [ProductAlgorithms::Timed | ProductAlgorithms::Equal, _]
            | [ProductAlgorithms::First, ProductAlgorithms::Timed | ProductAlgorithms::Equal] => {
                self.max(EqualityClass::OtherSums)
            }
        }
    }

    /// This class for two runs whose attention is computed by these. Only runs with products of the device choose.
    pub fn in_attention(self, [a, b]: [AttentionChoice; 2]) -> EqualityClass {
        if a == b { self } else { self.max(EqualityClass::OtherSums) }
    }

    /// This class for runs on these engines. Instruction sets and threads change no bit, nor do GPUs; other kinds of
    /// devices do.
    pub fn on_engines(self, [a, b]: [&EngineDescription; 2]) -> EqualityClass {
        if a.device.has_bits_of(b.device) { self } else { EqualityClass::OtherDevice }
    }

    /// The promise of this class.
    pub fn promises(self) -> Promised {
        match self {
            EqualityClass::SameOrder | EqualityClass::AnyOrder => Promised::Bits,
            EqualityClass::OtherOrder | EqualityClass::LibraryOrder | EqualityClass::OtherSums => Promised::Bounds,
            EqualityClass::OtherDevice => Promised::Nothing,
        }
    }
}

/// The order in which single-precision values of different ranks are added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RankOrder {
    /// The order of ranks, or of a tree of them that the run file gives.
    OfRanks,
    /// Whatever a library takes.
    OfLibrary,
}

impl RankOrder {
    /// The order of a run with these collectives. Exact sums are integers, and with them everything else stays in rank
    /// order.
    pub fn of(collectives: CollectivesChoice, sums: GradientSums) -> RankOrder {
        match (collectives, sums) {
            (CollectivesChoice::Own, _) | (CollectivesChoice::Native, GradientSums::Exact) => RankOrder::OfRanks,
            (CollectivesChoice::Native, GradientSums::Single) => RankOrder::OfLibrary,
        }
    }
}

/// How near two runs of a class are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promised {
    /// They have the same bits.
    Bits,
    /// Their distances have bounds.
    Bounds,
    /// Neither: their distances are reported.
    Nothing,
}

/// Whether two schedules add microbatches to gradients in the same order: all that are generated do, in ascending
/// order.
fn adds_alike(a: &ScheduleSpec, b: &ScheduleSpec) -> bool {
    a == b || [a, b].iter().all(|schedule| is_ascending(schedule))
}

fn is_ascending(schedule: &ScheduleSpec) -> bool {
    match schedule {
        ScheduleSpec::Generated(_) => true,
        ScheduleSpec::Given(given) => given
            .text
            .parse::<Schedule>()
            .is_ok_and(|schedule| schedule.contribution_order() == ContributionOrder::Ascending),
    }
}

/// The order of a gradient's terms, apart from dp and the microbatch size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GradientOrder {
    /// How many replicas are summed before their sums are, ascending where runs are parts of runs. Groups of one are
    /// summed as all are, in rank order, and so is one group of all.
    runs: BTreeSet<usize>,
    /// When.
    reduction: GradientReduction,
}

/// The order in which a layout adds gradients over replicas. Sharding groups and `sum_tree` are two ways to the same
/// runs.
pub fn gradient_order(parallelism: &Parallelism) -> GradientOrder {
    let Degrees { dp, cp, .. } = parallelism.degrees;
    // The ranks that share a replica's sequences are neighbours in a sharding group, also in one of one replica.
    let of_groups = parallelism.shard_group();
    let groups = (of_groups < dp && of_groups * cp > 1).then_some(of_groups);
    let trees = Some(parallelism.sum_tree).filter(|run| (2..dp).contains(run));
    let runs = [groups, trees].into_iter().flatten().map(|replicas| replicas * cp).collect();
    GradientOrder { runs, reduction: parallelism.zero.reduction() }
}

impl fmt::Display for EqualityClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            EqualityClass::SameOrder => "same order",
            EqualityClass::AnyOrder => "any order",
            EqualityClass::OtherOrder => "other order",
            EqualityClass::LibraryOrder => "library order",
            EqualityClass::OtherSums => "other sums",
            EqualityClass::OtherDevice => "other device",
        })
    }
}

#[cfg(test)]
mod tests {
    use config::{BatchGrowth, DeviceChoice, Recompute, SequenceParallel, ZeroStage};
    use device::DeviceKind;
    use train::describe_engine;

    use super::*;
    use testkit::models::plain_layout;

    #[test]
    fn larger_microbatches_group_sums_differently_and_other_batches_promise_nothing() {
        let ramp = BatchRamp { start: 4, increment: 4, sequences: 9, grows: BatchGrowth::Microbatches };
        let larger = BatchRamp { grows: BatchGrowth::MicrobatchSize, ..ramp };
        let later = BatchRamp { sequences: 10, ..ramp };
        assert_eq!(EqualityClass::of_ramps(Some(ramp), Some(ramp)), Some(EqualityClass::SameOrder));
        assert_eq!(EqualityClass::of_ramps(Some(ramp), Some(larger)), Some(EqualityClass::OtherOrder));
        assert_eq!(EqualityClass::of_ramps(Some(ramp), Some(later)), None);
        assert_eq!(EqualityClass::of_ramps(None, Some(ramp)), None);
    }

    #[test]
    fn groups_of_one_replica_whose_sequences_are_shared_add_in_groups() {
        let shared = |dp, shard_group| {
            let plain = plain_layout(dp, 1, 1, 1);
            let degrees = Degrees { cp: 2, ..plain.degrees };
            Parallelism { degrees, zero: ZeroStage::One, shard_group: Some(shard_group), ..plain }
        };
        let order = |layout: &Parallelism| gradient_order(layout).runs.into_iter().collect::<Vec<usize>>();
        assert_eq!(order(&shared(2, 1)), [2]);
        assert_eq!(order(&shared(4, 2)), [4]);
        assert_eq!(order(&shared(2, 2)), [0; 0]);
        assert_eq!(EqualityClass::of(&shared(2, 1), &shared(2, 2)), EqualityClass::OtherOrder);
        let alone = Parallelism { degrees: Degrees { cp: 1, ..shared(2, 1).degrees }, ..shared(2, 1) };
        assert_eq!(order(&alone), [0; 0]);
    }

    #[test]
    fn exact_sums_in_any_order_have_the_same_bits_but_not_those_of_single_ones() {
        let (single, exact) = (GradientSums::Single, GradientSums::Exact);
        let of =
            |class: EqualityClass| [[single, single], [exact, exact], [single, exact]].map(|sums| class.in_sums(sums));
        let [same, any, order, sums] =
            [EqualityClass::SameOrder, EqualityClass::AnyOrder, EqualityClass::OtherOrder, EqualityClass::OtherSums];
        assert_eq!(of(same), [same, same, order]);
        assert_eq!(of(order), [order, any, order]);
        assert_eq!(of(sums), [sums, sums, sums]);
        assert_eq!([same, any].map(EqualityClass::promises), [Promised::Bits; 2]);
        assert_eq!([order, sums].map(EqualityClass::promises), [Promised::Bounds; 2]);
    }

    #[test]
    fn a_library_adds_in_an_order_of_its_own_unless_sums_are_exact() {
        let [single, exact] = [GradientSums::Single, GradientSums::Exact];
        let order = |sums| RankOrder::of(CollectivesChoice::Native, sums);
        assert_eq!([order(single), order(exact)], [RankOrder::OfLibrary, RankOrder::OfRanks]);
        assert_eq!(RankOrder::of(CollectivesChoice::Own, single), RankOrder::OfRanks);
        let (own, library) = (RankOrder::OfRanks, RankOrder::OfLibrary);
        for (class, with_library) in [
            (EqualityClass::SameOrder, EqualityClass::LibraryOrder),
            (EqualityClass::AnyOrder, EqualityClass::LibraryOrder),
            (EqualityClass::OtherOrder, EqualityClass::LibraryOrder),
            (EqualityClass::OtherSums, EqualityClass::OtherSums),
            (EqualityClass::OtherDevice, EqualityClass::OtherDevice),
        ] {
            assert_eq!(class.in_orders([own, own]), class);
            for orders in [[own, library], [library, own], [library, library]] {
                assert_eq!(class.in_orders(orders), with_library);
            }
        }
        assert_eq!(EqualityClass::LibraryOrder.promises(), Promised::Bounds);
        assert_eq!(EqualityClass::LibraryOrder.to_string(), "library order");
    }

    #[test]
    fn another_kind_of_device_ends_every_promise_and_other_threads_none() {
        let one = describe_engine(DeviceChoice::Cpu, 1);
        let threads = EngineDescription { instruction_sets: vec![], ..describe_engine(DeviceChoice::Cpu, 4) };
        let other = EngineDescription { device: DeviceKind("the toy device"), ..describe_engine(DeviceChoice::Cpu, 1) };
        let classes =
            [EqualityClass::SameOrder, EqualityClass::AnyOrder, EqualityClass::OtherOrder, EqualityClass::OtherSums];
        for class in classes {
            assert_eq!(class.on_engines([&one, &threads]), class);
            let apart = class.on_engines([&one, &other]);
            assert_eq!((apart.to_string().as_str(), apart.promises()), ("other device", Promised::Nothing));
            assert!(apart > class, "it is the weakest class");
        }
    }

    #[test]
    fn attention_by_others_has_other_sums() {
        let (auto, off) = (AttentionChoice::Auto, AttentionChoice::Off);
        for class in [EqualityClass::SameOrder, EqualityClass::OtherDevice] {
            assert_eq!(class.in_attention([auto, auto]), class);
            assert_eq!(class.in_attention([auto, off]), class.max(EqualityClass::OtherSums));
        }
    }

    #[test]
    fn products_of_a_library_have_the_same_bits_in_the_same_layout_alone() {
        let (one, split) = (plain_layout(1, 1, 1, 1), plain_layout(1, 1, 2, 1));
        let [cuda, cpu] = [DeviceChoice::Cuda, DeviceChoice::Cpu].map(|device| describe_engine(device, 1));
        let [same, any, order, sums, device] = [
            EqualityClass::SameOrder,
            EqualityClass::AnyOrder,
            EqualityClass::OtherOrder,
            EqualityClass::OtherSums,
            EqualityClass::OtherDevice,
        ];
        let of = |products, layouts, engines| {
            [same, any, order, sums, device].map(|class| class.in_products(products, layouts, engines))
        };
        assert_eq!(of(Products::Blocks16, [&one, &split], [&cuda, &cpu]), [same, any, order, sums, device]);
        assert_eq!(of(Products::Device, [&one, &one], [&cuda, &cuda]), [same, sums, sums, sums, device]);
        assert_eq!(of(Products::Device, [&one, &split], [&cuda, &cuda]), [sums, sums, sums, sums, device]);
        assert_eq!(of(Products::Device, [&one, &one], [&cuda, &cpu]), [sums, sums, sums, sums, device]);
        let (first, timed) = (ProductAlgorithms::First, ProductAlgorithms::Timed);
        let of = |algorithms| [same, sums, device].map(|class| class.in_algorithms(algorithms));
        assert_eq!(of([first, first]), [same, sums, device]);
        assert_eq!([of([first, timed]), of([timed, timed])], [[sums, sums, device]; 2]);
        assert_eq!(of([first, ProductAlgorithms::Equal]), [sums, sums, device]);
    }

    #[test]
    fn runs_of_replicas_are_another_order_unless_the_sum_is_in_rank_order_anyway() {
        let tree = |dp, sum_tree| Parallelism { sum_tree, ..plain_layout(dp, 1, 1, 1) };
        let grouped =
            |dp, group, sum_tree| Parallelism { zero: ZeroStage::One, shard_group: Some(group), ..tree(dp, sum_tree) };
        let class = |a: &Parallelism, b: &Parallelism| EqualityClass::of(a, b);
        assert_eq!(class(&tree(4, 1), &tree(4, 2)), EqualityClass::OtherOrder);
        assert_eq!(class(&tree(4, 2), &tree(4, 3)), EqualityClass::OtherOrder);
        assert_eq!(class(&tree(4, 2), &tree(4, 2)), EqualityClass::SameOrder);
        for all in [4, 8] {
            assert_eq!(class(&tree(4, 1), &tree(4, all)), EqualityClass::SameOrder, "one run of {all}");
        }
        assert_eq!(class(&tree(1, 1), &tree(1, 2)), EqualityClass::SameOrder, "one replica");
        // The same runs as groups of two replicas, and as runs of two in groups of four.
        assert_eq!(class(&tree(8, 2), &grouped(8, 2, 1)), EqualityClass::SameOrder);
        assert_eq!(class(&tree(8, 2), &grouped(8, 2, 2)), EqualityClass::SameOrder);
        assert_eq!(class(&grouped(8, 4, 2), &grouped(8, 2, 4)), EqualityClass::SameOrder);
        assert_eq!(class(&tree(8, 2), &grouped(8, 4, 2)), EqualityClass::OtherOrder);
        let exact = [GradientSums::Exact; 2];
        assert_eq!(class(&tree(4, 1), &tree(4, 2)).in_sums(exact), EqualityClass::AnyOrder);
    }

    #[test]
    fn sharing_out_tokens_is_another_sum_and_computing_again_is_none() {
        let shared = |tp| Parallelism { sequence_parallel: SequenceParallel::On, ..plain_layout(1, tp, 1, 1) };
        let recomputing = Parallelism { recompute: Recompute::Selective, ..plain_layout(1, 2, 1, 1) };
        assert_eq!(EqualityClass::of(&plain_layout(1, 2, 1, 1), &shared(2)), EqualityClass::OtherSums);
        assert_eq!(EqualityClass::of(&plain_layout(1, 1, 1, 1), &shared(1)), EqualityClass::SameOrder);
        assert_eq!(EqualityClass::of(&plain_layout(1, 2, 1, 1), &recomputing), EqualityClass::SameOrder);
    }
}
