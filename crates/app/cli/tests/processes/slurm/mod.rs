//! Slurm for real: its own controller, daemons and `srun`.

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

#[needs::slurm]
#[test]
fn runs_start_end_and_resume_under_slurm() {
    let folder = Folder::new("slurm");
    let cluster = Cluster::start(&folder.0.join("slurm"));
    on_threads(&[&folder.run("threads")]);
    on_threads(&[MANY, &folder.run("many-on-threads")]);
    tasks_have_the_bits_of_threads(&cluster, &folder);
    a_signal_to_the_step_saves_and_ends(&cluster, &folder);
    a_preempted_job_resumes(&cluster, &folder);
    a_warned_job_enters_the_queue_again(&cluster, &folder);
    an_array_resumes_where_jobs_are_not_requeued(&cluster, &folder);
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
    let log = folder.path("log");
    let job = submitted(cluster, folder, "preempted", &["--output", &log]);
    await_steps(folder, "preempted");
    let mut urgent = cluster.command("srun", &folder.0);
    succeeds(&urgent.args(["--partition=urgent", "--nodes=2", "--ntasks=16", "true"]).output().expect("srun"));
    await_end(cluster, &job);
    let log = fs::read_to_string(&log).expect("the log");
    assert_eq!(cluster.field(&job, "JobState"), "COMPLETED", "{log}");
    assert_eq!(cluster.field(&job, "Restarts"), "1", "{log}");
    assert!(log.contains("ended by SIGTERM after step ") && log.contains("resuming after step "), "{log}");
    assert_same(folder, "preempted", "many-on-threads");
}

/// The job of the example script with these options, which trains in the folder `name`.
fn submitted(cluster: &Cluster, folder: &Folder, name: &str, options: &[&str]) -> String {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../examples/slurm.sbatch");
    let keys = with_keys(&[], &[MANY]).into_iter().filter(|word| *word != "--set");
    // The last value of a key counts.
    let values: BTreeMap<&str, &str> = keys.filter_map(|key| key.split_once('=')).collect();
    fs::write(folder.path("run.toml"), values.into_iter().map(line).collect::<String>()).expect("written");
    let mut submit = cluster.command("sbatch", &folder.0);
    submit.args(EIGHT_TASKS).args(options).arg("--parsable").arg(example);
    let submitted = submit.args([folder.path("run.toml"), folder.path(name)]).output().expect("sbatch");
    succeeds(&submitted);
    stdout(&submitted).trim().to_string()
}

/// SIGUSR1 to the step, as Slurm sends it before the time limit (`--signal=USR1@300`): the job is requeued and resumes.
fn a_warned_job_enters_the_queue_again(cluster: &Cluster, folder: &Folder) {
    let log = folder.path("warned-log");
    let job = submitted(cluster, folder, "warned", &["--output", &log]);
    await_steps(folder, "warned");
    succeeds(&cluster.command("scancel", &folder.0).args(["--signal=USR1", &job]).output().expect("scancel"));
    await_end(cluster, &job);
    let log = fs::read_to_string(&log).expect("the log");
    assert_eq!(cluster.field(&job, "JobState"), "COMPLETED", "{log}");
    assert_eq!(cluster.field(&job, "Restarts"), "1", "{log}");
    assert!(log.contains("ended by SIGUSR1 after step ") && log.contains("resuming after step "), "{log}");
    assert_same(folder, "warned", "many-on-threads");
}

/// `--no-requeue --array=1-3%1`: the first job is warned, the second resumes to the end, and the third finds nothing to
/// do.
fn an_array_resumes_where_jobs_are_not_requeued(cluster: &Cluster, folder: &Folder) {
    let log = folder.path("array-%a-log");
    let job = submitted(cluster, folder, "array", &["--no-requeue", "--array=1-3%1", "--output", &log]);
    await_steps(folder, "array");
    let first = format!("{job}_1");
    // scancel of Slurm 22 signals a job of an array, and its exit code says then that the job has ended already.
    cluster.command("scancel", &folder.0).args(["--signal=USR1", &first]).output().expect("scancel");
    for number in 1..=3 {
        await_end(cluster, &format!("{job}_{number}"));
    }
    let log = |number| fs::read_to_string(folder.path(&format!("array-{number}-log"))).expect("the log");
    let states = [1, 2, 3].map(|number| cluster.field(&format!("{job}_{number}"), "JobState"));
    assert_eq!(states, ["FAILED", "COMPLETED", "COMPLETED"], "{}{}{}", log(1), log(2), log(3));
    assert_eq!(cluster.field(&first, "ExitCode"), "138:0");
    assert!(log(2).contains("resuming after step "), "{}", log(2));
    assert_same(folder, "array", "many-on-threads");
}

fn await_end(cluster: &Cluster, job: &str) {
    await_until(&format!("the end of job {job}"), || {
        ["COMPLETED", "FAILED", "CANCELLED", "TIMEOUT"].contains(&cluster.field(job, "JobState").as_str())
    });
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
