//! The communication of a step, in a line.

use config::Degrees;
use config::figures::seconds;
use sim::{RankTrace, Trace};

/// The rank of a trace whose communication is exposed longest; nothing where no rank has a replica or another stage to
/// communicate with.
pub fn communication(trace: &Trace, degrees: Degrees) -> String {
    if degrees.world_size() == degrees.tp {
        return String::new();
    }
    let ranks = trace.ranks.iter().map(RankTrace::communication);
    match ranks.filter(|own| own.all_ns > 0).max_by_key(|own| own.exposed_ns) {
        None => String::new(),
        Some(own) => format!(
            "comms   {} of gathers, reductions and sends on a rank, {} exposed: {:.1} %\n",
            seconds(own.all_ns),
            seconds(own.exposed_ns),
            100.0 * own.exposed_share()
        ),
    }
}
