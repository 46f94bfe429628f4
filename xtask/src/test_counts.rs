//! The tests of all programs of `cargo test` in one sum: every test that did not run has a reason, and only tools that
//! may be missing are reasons.

use std::collections::BTreeMap;

/// The sums of all programs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Programs that reported.
    programs: usize,
    passed: usize,
    failed: usize,
    ignored: usize,
    /// Ignored tests by reason, which is empty where a test has no reason.
    reasons: BTreeMap<String, usize>,
}

impl Counts {
    /// Adds up the lines of `log`, the standard output of `cargo test`.
    pub fn of(log: &str) -> Counts {
        let mut counts = Counts::default();
        for line in log.lines() {
            if let Some(result) = line.strip_prefix("test result: ") {
                counts.programs += 1;
                counts.passed += number_before(result, " passed;");
                counts.failed += number_before(result, " failed;");
                counts.ignored += number_before(result, " ignored;");
            } else if let Some((_, reason)) = line.split_once(" ... ignored").filter(|_| line.starts_with("test ")) {
                *counts.reasons.entry(reason.trim_start_matches(", ").to_string()).or_default() += 1;
            }
        }
        counts
    }

    /// The sums and each reason with its count; at last a line of the three sums. `missing` names tools that may be
    /// missing.
    ///
    /// # Errors
    /// No test has run, one has failed, or one is ignored whose tool may not be missing: the same, with the faults.
    pub fn report(&self, missing: &[&str]) -> Result<String, String> {
        let Counts { programs, passed, failed, ignored, reasons } = self;
        let mut lines = vec![
            format!("ran      {} tests in {programs} programs", passed + failed),
            format!("failed   {failed}"),
            format!("ignored  {ignored}"),
        ];
        lines.extend(reasons.iter().map(|(reason, count)| format!("{count:7}  {}", or_none(reason))));
        let faults = self.faults(missing);
        lines.extend(faults.iter().cloned());
        lines.push(format!("{passed} passed, {failed} failed, {ignored} skipped"));
        if faults.is_empty() { Ok(lines.join("\n")) } else { Err(lines.join("\n")) }
    }

    fn faults(&self, missing: &[&str]) -> Vec<String> {
        let mut faults = vec![];
        if self.passed + self.failed == 0 {
            faults.push("no test has run".to_string());
        }
        if self.failed > 0 {
            faults.push(format!("{} tests failed", self.failed));
        }
        let listed: usize = self.reasons.values().sum();
        if listed != self.ignored {
            faults.push(format!("{} tests are ignored, and {listed} are listed", self.ignored));
        }
        for (reason, count) in &self.reasons {
            match tool(reason) {
                Some(tool) if missing.contains(&tool) => {}
                Some(tool) => faults.push(format!(
                    "{count} tests may not be ignored: install {tool}, or list it in ALLOW_MISSING, as in \
                     ALLOW_MISSING={tool:?}"
                )),
                None => faults.push(format!("{count} tests may not be ignored: {}", or_none(reason))),
            }
        }
        faults
    }
}

fn number_before(result: &str, word: &str) -> usize {
    let before = result.split(word).next().unwrap_or_default();
    before.rsplit(' ').next().and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

/// The tool that a reason of crate `needs` names.
fn tool(reason: &str) -> Option<&str> {
    reason.strip_prefix("needs ")?.split_once(": ").map(|(tool, _)| tool)
}

fn or_none(reason: &str) -> &str {
    if reason.is_empty() { "without a reason" } else { reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "
running 4 tests
test a ... ok
test b::c ... ignored, needs tmux: apt-get install tmux
test d ... ignored, needs clang 19: apt-get install clang-19
test e ... ok

test result: ok. 2 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.10s

running 1 test
test f ... ignored, needs tmux: apt-get install tmux

test result: ok. 0 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s
";

    #[test]
    fn programs_are_added_up_with_their_reasons() {
        let expected = "ran      2 tests in 2 programs\n\
                        failed   0\n\
                        ignored  3\n      \
                        1  needs clang 19: apt-get install clang-19\n      \
                        2  needs tmux: apt-get install tmux\n\
                        2 passed, 0 failed, 3 skipped";
        assert_eq!(Counts::of(LOG).report(&["tmux", "clang 19"]), Ok(expected.into()));
    }

    #[test]
    fn what_is_not_allowed_to_be_missing_is_a_fault() {
        let faults = |log: &str, missing: &[&str]| Counts::of(log).faults(missing).join("; ");
        let tmux =
            "2 tests may not be ignored: install tmux, or list it in ALLOW_MISSING, as in ALLOW_MISSING=\"tmux\"";
        assert_eq!(faults(LOG, &["clang 19"]), tmux);
        assert_eq!(
            faults(&LOG.replace("2 passed; 0 failed", "1 passed; 1 failed"), &["tmux", "clang 19"]),
            "1 tests failed"
        );
        let bare = LOG.replace(", needs tmux: apt-get install tmux", "");
        assert_eq!(faults(&bare, &["clang 19"]), "2 tests may not be ignored: without a reason");
        let slow = LOG.replace("needs tmux: apt-get install tmux", "it is slow");
        assert_eq!(faults(&slow, &["clang 19"]), "2 tests may not be ignored: it is slow");
        let unlisted = LOG.replace("test f ... ignored, needs tmux: apt-get install tmux", "");
        assert_eq!(faults(&unlisted, &["tmux", "clang 19"]), "3 tests are ignored, and 2 are listed");
        assert_eq!(faults("", &[]), "no test has run");
        let failed = Counts::of("").report(&[]).expect_err("a fault");
        assert!(failed.ends_with("no test has run\n0 passed, 0 failed, 0 skipped"), "{failed}");
    }
}
