//! Slurm for real: its own controller, daemons and `srun`. Machines without them skip and print the missing part, unless
//! `PLEACH_SLURM` is set.

mod cluster;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};

use crate::harness::several::{Folder, on_threads, succeeds, with_keys};
use crate::harness::{stderr, stdout};
use cluster::{Cluster, await_until};

const EIGHT_TASKS: [&str; 4] = ["--nodes=2", "--ntasks=8", "--time=60", "--export=ALL"];
/// Steps of a run that is interrupted, of a second or more.
const MANY: &str = "train.steps=400";
/// Steps after which it is.
const SOME: usize = 10;

#[test]
fn runs_start_end_and_resume_under_slurm() {
    let folder = Folder::new("slurm");
    let Some(cluster) = Cluster::start(&folder.0.join("slurm")) else { return };
    on_threads(&[&folder.run("threads")]);
    on_threads(&[MANY, &folder.run("many-on-threads")]);
    tasks_have_the_bits_of_threads(&cluster, &folder);
    a_signal_to_the_step_saves_and_ends(&cluster, &folder);
    a_preempted_job_resumes(&cluster, &folder);
}

fn tasks_have_the_bits_of_threads(cluster: &Cluster, folder: &Folder) {
    let run = folder.run("tasks");
    let train = with_keys(&["pleach", "train"], &[&run]);
    succeeds(&cluster.command("srun", &folder.0).args(EIGHT_TASKS).args(train).output().expect("srun"));
    assert_same(folder, "tasks", "threads");
}

fn a_signal_to_the_step_saves_and_ends(cluster: &Cluster, folder: &Folder) {
    let run = folder.run("signalled");
    let mut command = cluster.command("srun", &folder.0);
    command.args(EIGHT_TASKS).arg("--job-name=signalled").args(with_keys(&["pleach", "train"], &[MANY, &run]));
    let step: Child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("srun");
    await_steps(folder, "signalled");
    let mut cancel = cluster.command("scancel", &folder.0);
    succeeds(&cancel.args(["--signal=TERM", "--name=signalled"]).output().expect("scancel"));
    let ended = step.wait_with_output().expect("an end");
    assert_eq!(ended.status.code(), Some(143), "{}", stderr(&ended));
    assert!(stderr(&ended).contains("ended by SIGTERM after step "), "{}", stderr(&ended));
    let resume = ["pleach", "train", "--resume", &folder.path("signalled")];
    succeeds(&cluster.command("srun", &folder.0).args(EIGHT_TASKS).args(resume).output().expect("srun"));
    assert_same(folder, "signalled", "many-on-threads");
}

/// The example script: a job that makes room for an urgent one enters the queue again and resumes.
fn a_preempted_job_resumes(cluster: &Cluster, folder: &Folder) {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/slurm.sbatch");
    let keys = with_keys(&[], &[MANY]).into_iter().filter(|word| *word != "--set");
    // The last value of a key counts.
    let values: BTreeMap<&str, &str> = keys.filter_map(|key| key.split_once('=')).collect();
    fs::write(folder.path("run.toml"), values.into_iter().map(line).collect::<String>()).expect("written");

    let log = folder.path("log");
    let mut submit = cluster.command("sbatch", &folder.0);
    submit.args(EIGHT_TASKS).args(["--parsable", "--output", &log]).arg(example);
    let submitted = submit.args([folder.path("run.toml"), folder.path("preempted")]).output().expect("sbatch");
    succeeds(&submitted);
    let job = stdout(&submitted).trim().to_string();
    await_steps(folder, "preempted");
    let mut urgent = cluster.command("srun", &folder.0);
    succeeds(&urgent.args(["--partition=urgent", "--nodes=2", "--ntasks=16", "true"]).output().expect("srun"));
    await_until("the end of the job", || {
        ["COMPLETED", "FAILED", "CANCELLED", "TIMEOUT"].contains(&cluster.field(&job, "JobState").as_str())
    });
    let log = fs::read_to_string(&log).expect("the log");
    assert_eq!(cluster.field(&job, "JobState"), "COMPLETED", "{log}");
    assert_eq!(cluster.field(&job, "Restarts"), "1", "{log}");
    assert!(log.contains("ended by SIGTERM after step ") && log.contains("resuming after step "), "{log}");
    assert_same(folder, "preempted", "many-on-threads");
}

/// `section.key = value` as a line of a run file.
fn line((key, value): (&str, &str)) -> String {
    let is_text = value.starts_with(|first: char| first.is_ascii_alphabetic()) && !["true", "false"].contains(&value);
    if is_text { format!("{key} = \"{value}\"\n") } else { format!("{key} = {value}\n") }
}

/// Waits until a run has done some steps.
fn await_steps(folder: &Folder, name: &str) {
    let metrics = folder.path(&format!("{name}/metrics.jsonl"));
    let steps = || fs::read_to_string(&metrics).map_or(0, |text| text.lines().count());
    await_until(&format!("step {SOME} of {name}"), || steps() >= SOME);
}

fn assert_same(folder: &Folder, one: &str, other: &str) {
    assert_eq!(folder.losses(one), folder.losses(other), "losses of {one}");
    assert!(folder.weights(one) == folder.weights(other), "weights of {one}");
}
