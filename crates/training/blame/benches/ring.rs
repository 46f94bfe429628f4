//! The price of an entry in a ring: `cargo bench -p blame`.

use std::collections::BTreeMap;
use std::time::Instant;

use blame::{Peers, Ring, RingHeader};

/// Entries of one measurement.
const ENTRIES: u32 = 1_000_000;

fn main() {
    let path = std::env::temp_dir().join(format!("pleach-bench-ring-{}", std::process::id()));
    let groups = BTreeMap::from([(0, (0..8).collect())]);
    let header = RingHeader { rank: 3, process: 3, host: "here".into(), pid: std::process::id(), groups };
    let mut ring = Ring::create(&path, &header).expect("a ring");
    for _ in 0..3 {
        let began = Instant::now();
        for entry in 0..ENTRIES {
            ring.begin(
                entry,
                Peers::Group(0),
                format_args!("backward weight layer {}, microbatch {}", entry % 96, entry % 8),
            );
            ring.end();
        }
        println!("{:.0} ns an entry, begin and end", began.elapsed().as_secs_f64() * 1e9 / f64::from(ENTRIES));
    }
    std::fs::remove_file(&path).expect("removed");
}
