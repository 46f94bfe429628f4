//! The files that a run could not write, as the reason for which it fails at its end.

use std::path::Path;

use config::figures::counted;
use train::Ending;

use crate::failure::Failure;
use crate::places::newest_checkpoint::newest_checkpoint;

/// Why files are missing or not whole at the end of a run; `None` for each that is whole.
#[derive(Debug, Default)]
pub struct Missing {
    pub weights: Option<String>,
    /// The checkpoint after the last step.
    pub checkpoint: Option<String>,
    /// Metrics, or the times of a step.
    pub records: Option<String>,
    pub log: Option<String>,
}

impl Missing {
    /// Refuses a run in `folder` of `steps` steps with this `ending`, unless all is whole.
    ///
    /// # Errors
    /// Every reason, the steps that are done, the newest checkpoint and the steps after it.
    pub fn check(self, ending: Ending, steps: u32, folder: &Path) -> Result<(), Failure> {
        self.refusal(ending, steps, folder, newest_checkpoint(folder))
            .map_or(Ok(()), |refusal| Err(Failure::Write(refusal)))
    }

    fn refusal(self, ending: Ending, steps: u32, folder: &Path, newest: Option<u32>) -> Option<String> {
        let Missing { weights, checkpoint, records, log } = self;
        let (done, end) = match ending {
            Ending::Stopped { steps: done } => (done, format!("the run was stopped after step {done} of {steps}")),
            Ending::Finished => (steps, format!("the run did all of its {steps} steps")),
        };
        let folder = folder.display();
        let has_weights = weights.is_none();
        let checkpoint = checkpoint.map(|reason| format!("the last checkpoint is missing: {reason}"));
        let reasons: Vec<String> = [records, checkpoint, weights, log].into_iter().flatten().collect();
        if reasons.is_empty() {
            return None;
        }
        let kept = if has_weights { format!(", and its weights are in {folder}") } else { String::new() };
        let saved = match newest.map(|newest| (newest, done.saturating_sub(newest))) {
            Some((_, 0)) => "its checkpoint is whole".to_string(),
            Some((newest, lost)) => {
                format!("the newest checkpoint is that after step {newest}, {} before", counted(lost.into(), "step"))
            }
            None => "there is no checkpoint".to_string(),
        };
        let next = match newest {
            Some(newest) if newest < steps => format!("; to continue, `pleach train --resume {folder}`"),
            Some(_) | None => String::new(),
        };
        Some(format!("{}; {end}{kept}; {saved}{next}", reasons.join("; ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(missing: Missing, done: u32, newest: Option<u32>) -> Option<String> {
        let ending = if done == 200 { Ending::Finished } else { Ending::Stopped { steps: done } };
        missing.refusal(ending, 200, Path::new("runs/a"), newest)
    }

    #[test]
    fn a_run_says_how_far_it_came_and_what_is_lost() {
        let full = || Some("no room".to_string());
        assert_eq!(refusal(Missing::default(), 200, Some(200)), None);
        let records = Missing { records: full(), ..Missing::default() };
        assert_eq!(
            refusal(records, 41, Some(41)).expect("a reason"),
            "no room; the run was stopped after step 41 of 200, and its weights are in runs/a; its checkpoint is whole; \
             to continue, `pleach train --resume runs/a`"
        );
        let both = Missing { records: full(), checkpoint: full(), ..Missing::default() };
        assert_eq!(
            refusal(both, 41, Some(30)).expect("a reason"),
            "no room; the last checkpoint is missing: no room; the run was stopped after step 41 of 200, and its weights \
             are in runs/a; the newest checkpoint is that after step 30, 11 steps before; to continue, `pleach train \
             --resume runs/a`"
        );
        let all = Missing { weights: full(), checkpoint: full(), ..Missing::default() };
        assert_eq!(
            refusal(all, 200, None).expect("a reason"),
            "the last checkpoint is missing: no room; no room; the run did all of its 200 steps; there is no checkpoint"
        );
        let log = Missing { log: full(), ..Missing::default() };
        let expected =
            "no room; the run did all of its 200 steps, and its weights are in runs/a; its checkpoint is whole";
        assert_eq!(refusal(log, 200, Some(200)).as_deref(), Some(expected));
    }
}
