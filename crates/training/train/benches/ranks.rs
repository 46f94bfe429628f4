//! Ranks of one thread each compared with one rank of two threads on the same cores: `cargo bench -p train --bench
//! ranks [-- FILTER]`.
//!
//! Both sides take the 12M model of `bench/compare` by the same microbatches where the layout allows it, and take
//! turns, a short run each. Of a pipeline the bubble is divided out by its closed form, `(p - 1) / (m + p - 1)` of the
//! time of `m` microbatches on `p` stages, and the imbalance of its stages: what the busiest rank computes over what
//! ranks compute on average, in seconds inside of operations.

use imbalance::imbalance;
use mesh::Axis;
use testkit::layout::engine;
use timed::{FOLDER, Length, load, median, seconds_of_steps};
use train::Setup;

mod imbalance;
mod timed;

const LENGTH: Length = Length { warm_up: 1, timed: 3 };
const PAIRS: usize = 3;

/// A layout, and the microbatch of the rank that it is measured against.
struct Case {
    name: &'static str,
    layout: &'static [&'static str],
    one_rank: &'static [&'static str],
}

const CASES: [Case; 4] = [
    Case {
        name: "dp 2",
        layout: &["parallelism.dp=2", "parallelism.microbatch_size=4"],
        one_rank: &["parallelism.microbatch_size=8"],
    },
    Case {
        name: "tp 2",
        layout: &["parallelism.tp=2", "parallelism.microbatch_size=8"],
        one_rank: &["parallelism.microbatch_size=8"],
    },
    Case {
        name: "pp 2",
        layout: &["parallelism.pp=2", "parallelism.microbatch_size=1"],
        one_rank: &["parallelism.microbatch_size=1"],
    },
    Case {
        name: "dp 2 x tp 2 x pp 2",
        layout: &["parallelism.dp=2", "parallelism.tp=2", "parallelism.pp=2", "parallelism.microbatch_size=1"],
        one_rank: &["parallelism.microbatch_size=1"],
    },
];

fn setup(overrides: &[&str]) -> Setup {
    let overrides: Vec<String> = overrides.iter().map(|change| change.to_string()).collect();
    load(&format!("{FOLDER}/gpt_12m.toml"), &overrides).1
}

/// Medians of the seconds of a step of the layout and of one rank with two threads, in turns, and of the ratios of each
/// pair.
fn measure(layout: &Setup, one_rank: &Setup) -> [f64; 3] {
    let pairs: Vec<[f64; 2]> = (0..PAIRS)
        .map(|_| {
            let ranks = seconds_of_steps(layout, &*engine(layout, 1), LENGTH);
            let one = seconds_of_steps(one_rank, &*engine(one_rank, 2), LENGTH);
            [median(ranks), median(one)]
        })
        .collect();
    let of = |value: fn(&[f64; 2]) -> f64| median(pairs.iter().map(value).collect());
    [of(|[ranks, _]| *ranks), of(|[_, one]| *one), of(|[ranks, one]| one / ranks)]
}

fn main() {
    let filter = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    for Case { name, layout, one_rank } in CASES {
        if filter.as_ref().is_some_and(|filter| !name.contains(filter)) {
            continue;
        }
        let (layout, one_rank) = (setup(layout), setup(one_rank));
        let [seconds, of_one, ratio] = measure(&layout, &one_rank);
        println!("{name}: {:.0} ms a step, one rank {:.0} ms: {ratio:.3} of its tokens/s", 1e3 * seconds, 1e3 * of_one);
        let (stages, microbatches) = (layout.parallelism.degrees.pp, layout.num_microbatches());
        // Where ranks share cores, others compute while one waits.
        if stages > 1 && layout.parallelism.world_size() == stages {
            let work = microbatches as f64 / (microbatches + stages - 1) as f64;
            let imbalance = imbalance(&layout, Axis::Pp, LENGTH);
            println!(
                "  bubble {:.1} % of the time, imbalance of stages {imbalance:.3}: {:.3} without both",
                100.0 * (1.0 - work),
                ratio / work * imbalance
            );
        }
    }
}
