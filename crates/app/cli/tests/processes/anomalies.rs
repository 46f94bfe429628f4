//! A run that returns to a checkpoint, in one process and in several.

use serde_json::Value;

use crate::harness::several::{Folder, in_processes, with_keys};
use crate::harness::{pleach, prints, stderr};

/// A learning rate that makes the loss leap within a few steps.
const WILD: &[&str] = &[
    "train.learning_rate=1.0",
    "train.clip_norm=0",
    "train.warmup_steps=25",
    "train.steps=60",
    "train.on_spike=rollback",
    "train.spike_score=3",
    "train.schedule=constant",
    "run.save_every=5",
    // The text for which these steps were chosen.
    "data.held_out=0.1",
];

fn lines(folder: &Folder, run: &str, file: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(folder.0.join(run).join(file)).expect("a file");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// However it ends, the run returns to a checkpoint and leaves out data; processes do the same as threads, to the bit.
#[test]
fn a_spike_returns_the_run_to_its_checkpoint_without_the_data_that_followed() {
    let folder = Folder::new("rollback");
    let [alone, several] = ["alone", "several"].map(|name| folder.run(name));
    let threads = pleach(&with_keys(&["train", "--quiet"], &[WILD, &[&alone]].concat()));
    let text = stderr(&threads);
    assert!(text.contains("; back to the checkpoint after step "), "{text}");
    let returns = lines(&folder, "alone", "resumes.jsonl");
    assert!(!returns.is_empty());
    for back in &returns {
        let [after, from, left_out] = ["after_step", "rolled_back_from_step", "left_out_sequences"]
            .map(|key| back[key].as_u64().expect("a number"));
        assert!(after < from && after.is_multiple_of(5), "{back}");
        // Four sequences a step: those of the steps after the checkpoint, up to the one with the spike.
        assert!(left_out >= 4 * (from - after), "{back}");
    }
    let processes = in_processes("4", &[WILD, &[&several]].concat());
    assert_eq!(processes.status.code(), threads.status.code(), "{}", stderr(&processes));
    assert_eq!(lines(&folder, "several", "resumes.jsonl"), returns);
    assert_eq!(folder.losses("several"), folder.losses("alone"));
}

/// A run whose first step is not finite has no checkpoint to return to: the report has the anomaly and its step.
#[test]
fn a_run_that_cannot_return_reports_the_anomaly() {
    let folder = Folder::new("no-return");
    let (run, heard) = (folder.run("run"), folder.path("heard"));
    let notify = format!("run.notify=echo \"$PLEACH_EVENT $PLEACH_STEP $PLEACH_MESSAGE\" >> {heard}");
    let keys = ["model.init_std=1e30", "train.on_nonfinite=rollback"];
    let ended = pleach(&with_keys(&["train", "--quiet"], &[&keys[..], &[run.as_str(), notify.as_str()]].concat()));
    let text = stderr(&ended);
    assert_eq!(ended.status.code(), Some(1), "{text}");
    assert!(text.contains("; there is no checkpoint to return to; use a smaller run.save_every\n"), "{text}");
    let report: Value = serde_json::from_str(&prints(&["blame", &folder.path("run"), "--json"])).expect("JSON");
    assert_eq!((&report["cause"]["kind"], &report["step"]), (&"non_finite".into(), &1.into()), "{report}");
    let said = report["cause"]["text"].as_str().expect("text");
    assert!(said.starts_with("step 1: loss ") && said.contains("; there is no checkpoint to return to"), "{said}");
    let heard = std::fs::read_to_string(&heard).expect("a file");
    let count = |event: &str| heard.lines().filter(|line| line.starts_with(event)).count();
    assert_eq!((count("anomaly 1 step 1: loss "), count("failed 1 step 1: loss ")), (1, 1), "{heard}");
    let log = std::fs::read_to_string(folder.0.join("run/train.log")).expect("a log");
    assert!(log.lines().last().is_some_and(|line| line.contains("there is no checkpoint to return to")), "{log}");
    let status = std::fs::read_to_string(folder.0.join("run/status.json")).expect("a file");
    assert!(status.contains("\"state\":\"failed\""), "{status}");
}
