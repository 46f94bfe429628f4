//! Plans are small and sound.

use std::time::Instant;

use program::plan_memory;
use spec::{Recompute, ScheduleKind};

use crate::setup::Setup;

#[test]
fn arenas_are_at_most_two_percent_above_what_is_alive() {
    let mut worst = (1.0, String::new());
    for kind in [ScheduleKind::GPipe, ScheduleKind::OneForwardOneBackward] {
        for recompute in [Recompute::None, Recompute::Full] {
            for (pp, num_layers, num_microbatches) in [
                (1, 1, 1),
                (1, 2, 3),
                (1, 16, 48),
                (2, 4, 4),
                (2, 16, 24),
                (3, 7, 5),
                (4, 16, 12),
                (4, 16, 48),
                (8, 16, 48),
                (16, 16, 48),
                (35, 105, 240),
            ] {
                let setup = Setup { kind, recompute, pp, num_layers, num_microbatches, ..Setup::default() };
                let start = Instant::now();
                let programs = setup.programs();
                let compiled = start.elapsed();
                let graph = program::link(programs).unwrap();
                let linked = start.elapsed();
                let plan = plan_memory(&graph, &setup.sizes());
                let planned = start.elapsed();
                for (rank, plan) in plan.ranks.iter().enumerate() {
                    let ratio = plan.arena_bytes() as f64 / plan.largest_live_bytes() as f64;
                    if ratio > worst.0 {
                        worst = (ratio, format!("{setup:?} rank {rank}"));
                    }
                    if ratio > 1.01 {
                        println!("{kind:?} {recompute:?} {pp} {num_layers} {num_microbatches} rank {rank}: {ratio}");
                    }
                }
                println!(
                    "{kind:?} {recompute:?} {pp} {num_layers} {num_microbatches}: {compiled:?} {linked:?} {planned:?} {}",
                    worst.0
                );
            }
        }
    }
    println!("worst {worst:?}");
}
