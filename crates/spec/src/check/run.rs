//! Rules of `[run]` that are about the run alone.

use super::Rules;
use crate::problem::Problem;
use crate::run_file::RunConfig;

/// A day is longer than any step; the bound keeps deadlines representable.
const LONGEST_SECONDS: f32 = 86_400.0;

pub(super) fn check(config: &RunConfig, rules: &mut Rules) {
    let run = &config.run;
    if run.folder.as_os_str().is_empty() {
        rules.report(Problem::of_value("run.folder", "\"\"", "names no folder", "\"runs/latest\" would do"));
    }
    for (key, seconds) in [("run.timeout_seconds", run.timeout_seconds), ("run.grace_seconds", run.grace_seconds)] {
        let holds = seconds > 0.0 && seconds <= LONGEST_SECONDS;
        rules.number(key, seconds, holds, "is no time to wait", "more than 0 and at most 86400 would do");
    }
    rules.all_positive(&[("run.keep_newest", run.keep_newest)]);
}
