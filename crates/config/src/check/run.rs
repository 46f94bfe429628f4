//! Rules of `[run]` that are about the run alone.

use super::Rules;
use crate::data_spec::{EngineChoice, TransportChoice};
use crate::problem::Problem;
use crate::run_file::{RunConfig, transport_name};

/// A day is longer than any step; the bound keeps deadlines representable.
const LONGEST_SECONDS: f32 = 86_400.0;

/// More than any machine has cores.
const MAX_THREADS: usize = 1024;

pub(super) fn check(config: &RunConfig, rules: &mut Rules) {
    let run = &config.run;
    if run.folder.as_os_str().is_empty() {
        rules.report(Problem::of_value("run.folder", "\"\"", "names no folder", "use \"runs/latest\""));
    }
    let times = [
        ("run.timeout_seconds", run.timeout_seconds),
        ("run.grace_seconds", run.grace_seconds),
        ("run.heartbeat_seconds", run.heartbeat_seconds),
        ("run.rendezvous_seconds", run.rendezvous_seconds),
    ];
    for (key, seconds) in times {
        let holds = seconds > 0.0 && seconds <= LONGEST_SECONDS;
        rules.number(key, seconds, holds, "must be a time in seconds", "use more than 0 and at most 86400");
    }
    match (run.engine, run.transport) {
        (EngineChoice::Threads, TransportChoice::SharedMemory | TransportChoice::Tcp | TransportChoice::Mpi) => {
            let rule = "has no effect where run.engine = \"threads\"";
            let remedy = "write run.engine = \"processes\", or leave it out";
            let value = format!("{:?}", transport_name(run.transport));
            rules.report(Problem::of_value("run.transport", value, rule, remedy));
        }
        (EngineChoice::Threads, TransportChoice::Auto) | (EngineChoice::Auto | EngineChoice::Processes, _) => {}
    }
    rules.all_positive(&[("run.keep_newest", run.keep_newest)]);
    let threads = run.threads_per_rank;
    if rules.all_positive(&[("run.threads_per_rank", threads)]) && threads > MAX_THREADS {
        let remedy = format!("use at most {MAX_THREADS}");
        rules.report(Problem::of_value("run.threads_per_rank", threads, "is more than any machine has cores", remedy));
    }
}
