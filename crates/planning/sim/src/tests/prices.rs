//! Prices of kernels and collectives, against numbers worked out by hand.
#![allow(clippy::unwrap_used, reason = "a test that fails is one that panics")]

use std::num::NonZeroUsize;

use cluster::{Attention, AttentionSums, Cluster, CollectiveLibrary, FlashKernels, MeasuredKernels, named};
use comm::GroupHosts;
use comm::Operation;
use comm::collectives::{CollectiveShape, traffic};
use device::SumTree;
use mesh::{Axis, AxisSet, AxisSizes, Mesh, PlacementOrder, Rank};
use sim::{AttentionPass, GroupShape, Kernel, Product, ProductFormat, collective_ns, kernel_ns};

/// Round numbers: 100 multiprocessors, 100 TFLOP/s, 1000 GB/s, 4 accelerators a node, links of 100 and 40 GB/s.
fn cluster() -> Cluster {
    let mut cluster = Cluster::from_toml(named("a100-80g-dgx").unwrap()).unwrap();
    cluster.accelerator.multiprocessors = 100;
    cluster.accelerator.half_tflops = 100.0;
    cluster.accelerator.memory_gb_per_s = 1000.0;
    cluster.compute.matrix_efficiency = 1.0;
    cluster.compute.memory_efficiency = 1.0;
    cluster.compute.tile_ramp_columns = 0.0;
    cluster.compute.unaligned_efficiency = 0.5;
    cluster.node.accelerators = 4;
    (cluster.node.link.gb_per_s, cluster.node.link.efficiency) = (100.0, 1.0);
    (cluster.node.link.start_us, cluster.node.link.latency_us) = (0.0, 1.0);
    (cluster.network.gb_per_s, cluster.network.efficiency) = (40.0, 1.0);
    (cluster.network.start_us, cluster.network.latency_us) = (0.0, 10.0);
    cluster
}

fn product(m: usize, n: usize, k: usize, row_multiple_bytes: usize) -> Kernel {
    let format = ProductFormat::Half;
    Kernel::Product(Product { batch: 1, m, n, k, width_bytes: 2, format, out_bytes: 2, row_multiple_bytes })
}

#[test]
fn whole_waves_run_at_the_peak_and_a_tile_more_costs_a_wave() {
    let cluster = cluster();
    // 10 x 10 tiles of 256 x 128 are one wave of 100 multiprocessors.
    let whole = kernel_ns(&cluster, &product(2560, 1280, 4096, 128));
    let flops = 2.0 * 2560.0 * 1280.0 * 4096.0;
    assert!((whole - flops / 1e5).abs() < 1e-6 * whole, "{whole}");
    let more = kernel_ns(&cluster, &product(2561, 1280, 4096, 128));
    assert!(more > 1.2 * whole, "{more} for one row more than {whole}");
}

#[test]
fn rows_that_are_no_cache_lines_cost_a_cliff_and_thin_products_wait_for_memory() {
    let cluster = cluster();
    let [lines, vectors, odd] = [128, 16, 2].map(|multiple| kernel_ns(&cluster, &product(2560, 1280, 4096, multiple)));
    assert!((vectors / lines - 2.0).abs() < 1e-9, "half the rate");
    assert!((odd / lines - 8.0).abs() < 1e-9, "number by number");
    // One row: 8192 x 8192 weights of 2 bytes at 1000 GB/s.
    let thin = kernel_ns(&cluster, &product(1, 8192, 8192, 128));
    assert!((thin - 2.0 * 8192.0 * 8192.0 / 1000.0).abs() < 0.01 * thin, "{thin}");
}

/// Half of the share at the ramp, half of it where as many tiles are computed as wait, and less with the kernels of the
/// generation before.
#[test]
fn short_sequences_few_heads_and_old_kernels_slow_attention() {
    let mut cluster = cluster();
    cluster.compute.attention_efficiency = 0.5;
    cluster.attention = Attention {
        kernels: FlashKernels::Third,
        ramp_tokens: 1000.0,
        tail_tiles: 2.0,
        backward_tail_tiles: 0.0,
        ..Attention::default()
    };
    let ns = |pass, tokens, tiles, kernels: Option<FlashKernels>| {
        let format = ProductFormat::Half;
        let (heads, head_dim) = (1, 128);
        let kernels = kernels.map(|kernels| (kernels, AttentionSums::AsDone));
        kernel_ns(&cluster, &Kernel::Attention { flops: 1e12, pass, tokens, tiles, heads, head_dim, kernels, format })
    };
    // 100 TFLOP/s, half of which attention reaches at most.
    let [at_most, many] = [1e12 / 1e5 / 0.5, 1e12];
    let is_near = |ns: f64, expected: f64| assert!((ns / expected - 1.0).abs() < 1e-6, "{ns} ns, not {expected}");
    is_near(ns(AttentionPass::Forward, many as usize, many as usize, None), at_most);
    is_near(ns(AttentionPass::Forward, 1000, many as usize, None), 2.0 * at_most);
    is_near(ns(AttentionPass::Forward, many as usize, 200, None), 2.0 * at_most);
    is_near(ns(AttentionPass::Forward, many as usize, many as usize, Some(FlashKernels::Second)), 1.6 * at_most);
    is_near(ns(AttentionPass::Forward, many as usize, many as usize, Some(FlashKernels::First)), 3.2 * at_most);
    let full = 1e5 * cluster.compute.attention_backward_efficiency;
    is_near(ns(AttentionPass::Backward, many as usize, 1, Some(FlashKernels::Third)), 1e12 / full);
}

/// FlashAttention-2 adds the gradient of queries in order with as few groups of keys as occupy every multiprocessor: 7
/// of each of 16 heads, which are 112 for 100 multiprocessors and take the time of 200.
#[test]
fn attention_that_adds_in_order_is_slower_backward() {
    let mut cluster = cluster();
    (cluster.compute.attention_efficiency, cluster.compute.attention_backward_efficiency) = (0.5, 0.4);
    cluster.attention = Attention { ordered_kernels: FlashKernels::Second, ..Attention::default() };
    let ns = |cluster: &Cluster, pass, kernels: FlashKernels, sums| {
        let (format, kernels) = (ProductFormat::Half, Some((kernels, sums)));
        let (tokens, tiles, heads, head_dim) = (8192, 1024, 16, 128);
        kernel_ns(cluster, &Kernel::Attention { flops: 1e12, pass, tokens, tiles, heads, head_dim, kernels, format })
    };
    let is_near = |ns: f64, expected: f64| assert!((ns / expected - 1.0).abs() < 1e-6, "{ns} ns, not {expected}");
    let (second, third) = (FlashKernels::Second, FlashKernels::Third);
    let [free, ordered] = [AttentionSums::AsDone, AttentionSums::InOrder];
    is_near(ns(&cluster, AttentionPass::Forward, second, free), 1e7 / 0.5);
    is_near(ns(&cluster, AttentionPass::Forward, second, ordered), 1e7 / 0.5);
    is_near(ns(&cluster, AttentionPass::Backward, second, free), 1e7 / 0.4);
    // A sum of single precision for each group is cleared and read, at 1000 GB/s.
    let sums_ns = 7.0 * 8.0 * 8192.0 * (16.0 * 128.0) / 1000.0;
    let expected = 1e7 / 0.4 / 0.56 + sums_ns;
    is_near(ns(&cluster, AttentionPass::Backward, second, ordered), expected);
    is_near(ns(&cluster, AttentionPass::Backward, third, ordered), expected);
    // Later kernels that add in order are not slower.
    cluster.attention.kernels = third;
    cluster.attention.ordered_kernels = third;
    is_near(ns(&cluster, AttentionPass::Backward, third, ordered), 1e7 / 0.4);
    is_near(ns(&cluster, AttentionPass::Backward, second, free), 1.6e7 / 0.4);
    // Measured shares take the place of the ratio of generations.
    let measured = MeasuredKernels { efficiency: 0.2, backward_efficiency: 0.1, ..MeasuredKernels::default() };
    cluster.attention.second = Some(measured);
    is_near(ns(&cluster, AttentionPass::Forward, second, free), 1e7 / 0.2);
    is_near(ns(&cluster, AttentionPass::Backward, second, free), 1e7 / 0.1);
}

fn group(axes: impl Into<AxisSet>) -> GroupShape {
    // 2 x 8 ranks on 4 nodes: tensor-parallel pairs side by side, replicas strided by 2.
    let mesh = Mesh::new(AxisSizes::dp_tp_pp(8, 2, 1)).unwrap();
    GroupShape::new(&mesh, axes.into(), PlacementOrder::default(), 4)
}

#[test]
fn the_order_of_placement_decides_which_groups_cross_nodes() {
    let mesh = Mesh::new(AxisSizes::dp_tp_pp(4, 2, 2)).unwrap();
    let nodes = |order: PlacementOrder| {
        let along = |axes: AxisSet| GroupShape::new(&mesh, axes, order, 4).nodes;
        let stages = GroupShape::pair(&mesh, Rank(0), Rank(mesh.ranks_per_stage()), order, 4).nodes;
        [along(Axis::Tp.into()), along(AxisSet::DATA), along(Axis::Pp.into()), stages]
    };
    assert_eq!(nodes(PlacementOrder::TpPpDp), [1, 4, 1, 1]);
    assert_eq!(nodes(PlacementOrder::TpDpPp), [1, 2, 2, 2]);
    assert_eq!(nodes(PlacementOrder::DpTpPp), [2, 1, 2, 2]);
}

#[test]
fn groups_know_their_nodes() {
    assert_eq!(group(Axis::Tp), GroupShape { size: 2, per_node: 2, nodes: 1, beside: 4 });
    assert_eq!(group(AxisSet::DATA), GroupShape { size: 8, per_node: 2, nodes: 4, beside: 4 });
}

/// 4 nodes of 2 members, of the 4 ranks of a node that send at the same time: slices of an eighth.
#[test]
fn own_collectives_send_what_the_formulas_of_traffic_say() {
    let cluster = Cluster { collectives: CollectiveLibrary::Pleach, ..cluster() };
    let bytes = 8e9;
    let (hosts, of_group) = (GroupHosts::filled(&[2, 2, 2, 2]), group(AxisSet::DATA));
    // A slice of 10^9 bytes takes 0.01 s to a neighbour, and 0.1 s between nodes, whose links four ranks share.
    let sent_ns = |operation, tree| {
        let sent = traffic(&CollectiveShape { operation, len: 8_000_000_000, width_bytes: 1, hosts: &hosts, tree }, 0);
        [sent.inside.bytes as f64 / 100.0, sent.between.bytes as f64 / 40.0 * 4.0]
    };
    let priced = |operation, tree| collective_ns(&cluster, of_group, operation, tree, bytes);
    let is_near = |a: f64, b: f64| (a - b).abs() < 1.0;
    let (plain, runs) = (SumTree::RANK_ORDER, SumTree::of_runs(NonZeroUsize::new(2).unwrap()));
    // Everybody sends a slice to everybody: 6 of 7 leave the node.
    assert_eq!(sent_ns(Operation::ReduceScatter, plain), [1e7, 6e8]);
    assert!(is_near(priced(Operation::ReduceScatter, plain), 6e8 + 1e4));
    // In runs of a node's members 4 slices go to the neighbour, then 3 partial sums to other nodes.
    assert_eq!(sent_ns(Operation::ReduceScatter, runs), [4e7, 3e8]);
    assert!(is_near(priced(Operation::ReduceScatter, runs), 4e7 + 3e8 + 2e4));
    // A gather sends its slice to 3 nodes, and on what 4 members sent it.
    assert_eq!(sent_ns(Operation::AllGather, plain), [4e7, 3e8]);
    for tree in [plain, runs] {
        assert!(is_near(priced(Operation::AllGather, tree), 4e7 + 3e8 + 2e4));
        let both = [Operation::ReduceScatter, Operation::AllGather].map(|half| priced(half, tree));
        assert!(is_near(priced(Operation::AllReduce, tree), both[0] + both[1]));
    }
    assert_eq!(collective_ns(&cluster, group(Axis::Pp), Operation::AllReduce, runs, bytes), 0.0, "alone");
}

/// 4 nodes of 2 members, four ranks of a node sending at the same time, as above.
#[test]
fn collectives_of_mpi_take_the_better_of_two_algorithms() {
    let cluster = Cluster { collectives: CollectiveLibrary::Mpi, ..cluster() };
    let priced = |axes, operation, bytes| {
        collective_ns(&cluster, group(axes), operation, SumTree::of_runs(NonZeroUsize::new(2).unwrap()), bytes)
    };
    let is_near = |a: f64, b: f64| (a - b).abs() < 1.0;
    // Halving: half of the bytes to the neighbour at 100 GB/s, then 3/4 of the other half at a share of 10 GB/s, in 1 +
    // 2 steps.
    let half = 0.5 * 8e9 / 100.0 + 0.75 * 4e9 / 10.0 + 1e3 + 2.0 * 1e4;
    assert!(is_near(priced(AxisSet::DATA, Operation::ReduceScatter, 8e9), half));
    assert!(is_near(priced(AxisSet::DATA, Operation::AllGather, 8e9), half));
    assert!(is_near(priced(AxisSet::DATA, Operation::AllReduce, 8e9), 2.0 * half));
    // Short buffers: everything in each of 1 + 2 steps, which is fewer of them.
    let short = 8.0 / 100.0 + 2.0 * 8.0 / 10.0 + 1e3 + 2.0 * 1e4;
    assert!(is_near(priced(AxisSet::DATA, Operation::AllReduce, 8.0), short));
    assert_eq!(priced(Axis::Pp.into(), Operation::AllReduce, 8e9), 0.0, "alone");
}

#[test]
fn strided_groups_share_the_network_cards_of_a_node() {
    let cluster = cluster();
    let bytes = 1e9;
    // Within a node: 2 x (1/2 of the bytes at 100 GB/s + 1 step of 1 us).
    let within = collective_ns(&cluster, group(Axis::Tp), Operation::AllReduce, SumTree::RANK_ORDER, bytes);
    assert!((within - 2.0 * (0.5 * bytes / 100.0 + 1000.0)).abs() < 1.0, "{within}");
    // Between four nodes: each member takes its half; four accelerators share 40 GB/s. A ring of 8 has 4
    // steps within nodes and 3 between them; a tree would have 1 and 2 log2(4).
    let between = collective_ns(&cluster, group(AxisSet::DATA), Operation::AllReduce, SumTree::RANK_ORDER, bytes);
    let expected = 2.0 * (0.75 * 0.5 * bytes / 10.0 + 1000.0 * f64::min(3.0 * 10.0 + 4.0, 4.0 * 10.0 + 1.0));
    assert!((between - expected).abs() < 1.0, "{between}, {expected}");
    // A gather has one round, and no tree.
    let gather = collective_ns(&cluster, group(AxisSet::DATA), Operation::AllGather, SumTree::RANK_ORDER, bytes);
    assert!((gather - (0.75 * 0.5 * bytes / 10.0 + 1000.0 * 34.0)).abs() < 1.0, "{gather}");
    assert_eq!(
        collective_ns(&cluster, group(Axis::Pp), Operation::AllReduce, SumTree::RANK_ORDER, bytes),
        0.0,
        "alone"
    );
}
