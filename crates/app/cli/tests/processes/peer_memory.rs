//! Checkpoints in the memory of hosts: two hosts over loopback, whose processes and memory are lost.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::several::{Folder, launched, with_keys};
use crate::harness::{free_port, pleach, stderr, stdout};
use crate::processes::lost_hosts::{HOSTS, Launch, PATIENCE};

/// No checkpoint goes to the disk before the end.
const IN_MEMORY: [&str; 3] = ["run.on_loss=wait", "run.save_every=0", "run.memory_every=5"];
/// The command of the second argument, here.
const HERE: &str = "exec sh -c \"$2\"";

fn start<'a>(folder: &'a Folder, keys: &[&str]) -> Launch<'a> {
    Launch::on(folder, &HOSTS.map(str::to_string), HERE, keys)
}

/// Steps of the newest checkpoint in a folder of the run.
fn newest_in(of: &Folder, folder: &str) -> Option<u32> {
    let steps = |entry: fs::DirEntry| entry.file_name().to_str()?.strip_prefix("step-")?.parse::<u32>().ok();
    let entries = fs::read_dir(of.0.join("run").join(folder));
    entries.map_or(None, |entries| entries.filter_map(|entry| steps(entry.ok()?)).max())
}

/// The folder of `host` in memory.
fn memory_of(folder: &Folder, host: &str) -> PathBuf {
    let run = folder.0.join("run").canonicalize().expect("a folder");
    let hash = xxhash_rust::xxh3::xxh3_64(run.as_os_str().as_encoded_bytes());
    PathBuf::from(format!("/dev/shm/pleach-{hash:016x}-{host}"))
}

impl Launch<'_> {
    fn newest_in(&self, folder: &str) -> Option<u32> {
        newest_in(self.folder, folder)
    }

    /// Waits for two more checkpoints in memory.
    #[track_caller]
    fn wait_for_memory(&self) {
        let before = self.newest_in("memory").unwrap_or(0);
        self.wait("a checkpoint in memory", || self.newest_in("memory").is_some_and(|steps| steps >= before + 10));
    }

    fn memory_of(&self, host: &str) -> PathBuf {
        memory_of(self.folder, host)
    }

    /// Kills all processes, does `damage` while no host answers, and lets all answer again.
    #[track_caller]
    fn killed_and_damaged(&self, damage: impl Fn()) {
        HOSTS.iter().for_each(|host| self.take_down(host));
        self.kill_processes();
        self.wait("a message", || self.messages().contains("waiting, as run.on_loss = \"wait\" says"));
        damage();
        HOSTS.iter().for_each(|host| self.bring_back(host));
    }

    /// Changes a byte of the data in each file in the memory of `host`.
    fn flip(&self, host: &str) {
        let versions = fs::read_dir(self.memory_of(host)).expect("a folder").flatten();
        for file in versions.flat_map(|version| fs::read_dir(version.path()).expect("a folder").flatten()) {
            let mut bytes = fs::read(file.path()).expect("a file");
            // The last one may have been cut off.
            let Some(last) = bytes.last_mut() else { continue };
            *last ^= 1;
            fs::write(file.path(), bytes).expect("a file");
        }
    }

    /// Bytes of the newest checkpoint in the memory of `host`.
    fn held_by(&self, host: &str) -> u64 {
        let steps = self.newest_in("memory").expect("a checkpoint");
        let files = fs::read_dir(self.memory_of(host).join(format!("step-{steps:08}"))).expect("a folder").flatten();
        files.map(|file| file.metadata().expect("a file").len()).sum()
    }

    /// Bytes of checkpoints in the memory of `host`, as planned.
    fn planned_for(&self, host: &str) -> u64 {
        let hosts = self.folder.path("hosts");
        let output = pleach(&with_keys(&["check", "--json", "--hosts", &hosts], &IN_MEMORY));
        let plan: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
        let of_host = plan["hosts"].as_array().expect("hosts").iter().find(|known| known["name"] == *host);
        of_host.expect("it is planned")["checkpoint_bytes"].as_u64().expect("bytes")
    }

    #[track_caller]
    fn resumes_from_memory(&self) {
        self.wait("a resumption", || self.messages().contains(" from the memory of the hosts\n"));
    }

    /// Ends the run, which has the bits of an undisturbed one and leaves nothing in memory.
    #[track_caller]
    fn ends_and_leaves_nothing(self) {
        let left: Vec<PathBuf> = HOSTS.iter().map(|host| self.memory_of(host)).collect();
        let manifests = self.folder.0.join("run/memory");
        self.ends_with_the_bits_of_an_undisturbed_run();
        assert!(!left.iter().chain([&manifests]).any(|path| path.exists()), "{left:?}");
    }
}

#[test]
fn a_run_whose_processes_are_all_killed_resumes_from_memory() {
    let folder = Folder::new("memory-kill");
    let launch = start(&folder, &IN_MEMORY);
    launch.wait_for_memory();
    launch.kill_processes();
    launch.resumes_from_memory();
    launch.wait_for_memory();
    assert_eq!(launch.newest_in("checkpoints"), None, "nothing is on the disk");
    let newest = launch.newest_in("memory");
    launch.kill_processes();
    launch.wait("another one", || launch.newest_in("memory") > newest.map(|steps| steps + 5));
    assert_eq!(launch.resumptions(), [Value::Null, Value::Null]);
    launch.ends_and_leaves_nothing();
}

#[test]
fn the_state_of_a_lost_host_comes_from_the_next_one() {
    for lost in HOSTS {
        let folder = Folder::new("memory-lost");
        let launch = start(&folder, &IN_MEMORY);
        launch.wait_for_memory();
        launch.lose(lost);
        launch.wait("a message", || launch.messages().contains("waiting, as run.on_loss = \"wait\" says"));
        fs::remove_dir_all(launch.memory_of(lost)).expect("its memory");
        launch.bring_back(lost);
        launch.resumes_from_memory();
        launch.wait_for_memory();
        launch.ends_and_leaves_nothing();
    }
}

#[test]
fn one_host_that_is_left_has_the_state_of_both() {
    let folder = Folder::new("memory-replan");
    let launch = start(&folder, &["run.on_loss=replan", "run.save_every=0", "run.memory_every=5"]);
    launch.wait_for_memory();
    launch.lose(HOSTS[0]);
    launch.wait("a smaller layout", || launch.resumptions().contains(&json!([2, 1])));
    let expected = "run.memory_every = 5 needs another host; all ranks are on host 127.0.0.3: until others are back, \
                checkpoints go to the disk only\n";
    launch.wait("a message", || launch.messages().contains(expected));
    launch.resumes_from_memory();
    fs::remove_dir_all(launch.memory_of(HOSTS[0])).expect("its memory");
    launch.bring_back(HOSTS[0]);
    launch.wait("the layout before", || launch.resumptions().last() == Some(&json!([1, 2])));
    launch.wait_for_memory();
    launch.ends_and_leaves_nothing();
}

#[test]
fn memory_that_is_lost_on_both_hosts_leaves_the_disk() {
    let folder = Folder::new("memory-both");
    let launch = start(&folder, &["run.on_loss=wait", "run.save_every=97", "run.memory_every=5"]);
    launch.wait("a checkpoint on the disk", || launch.newest_in("checkpoints").is_some());
    launch.wait_for_memory();
    launch.killed_and_damaged(|| {
        HOSTS.iter().for_each(|host| fs::remove_dir_all(launch.memory_of(host)).expect("its memory"));
    });
    // Where the disk has the newest one, which is rare, memory is not missed.
    let is_missed = launch.newest_in("memory") > launch.newest_in("checkpoints");
    launch.wait("a resumption", || launch.messages().contains("run/checkpoints/step-"));
    assert_eq!(
        launch.messages().contains(" must be on one of the hosts 127.0.0.2, 127.0.0.3; an earlier one is used\n"),
        is_missed
    );
    launch.wait_for_memory();
    launch.ends_and_leaves_nothing();
}

#[test]
fn a_damaged_copy_is_replaced_by_that_of_another_host() {
    let folder = Folder::new("memory-flip");
    let launch = start(&folder, &IN_MEMORY);
    launch.wait_for_memory();
    launch.killed_and_damaged(|| {
        assert_eq!(launch.planned_for(HOSTS[0]), 2 * launch.held_by(HOSTS[0]));
        launch.flip(HOSTS[0]);
    });
    launch.resumes_from_memory();
    let expected = " in the memory of host 127.0.0.2 is not used, but that of another host: ";
    launch.wait("a message", || launch.messages().contains(expected));
    launch.wait_for_memory();
    launch.ends_and_leaves_nothing();
}

#[test]
fn a_checkpoint_whose_copies_are_all_damaged_is_set_aside() {
    let folder = Folder::new("memory-flips");
    let launch = start(&folder, &["run.on_loss=wait", "run.save_every=20", "run.memory_every=3"]);
    launch.wait("a checkpoint on the disk", || launch.newest_in("checkpoints").is_some());
    launch.wait_for_memory();
    launch.killed_and_damaged(|| HOSTS.iter().for_each(|host| launch.flip(host)));
    launch.wait("a resumption", || launch.messages().contains("run/checkpoints/step-"));
    launch.wait_for_memory();
    launch.ends_and_leaves_nothing();
}

/// Process `process` of `processes`, each on the host of its number.
fn by_hand(folder: &Folder, (process, processes): (usize, usize), address: &str, words: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pleach"));
    command.args(words).env("JOB_COMPLETION_INDEX", process.to_string());
    command.env("PLEACH_PROCESSES", processes.to_string()).env("PLEACH_HOST", format!("node{process}"));
    command.env("PLEACH_RENDEZVOUS", address).env("PLEACH_TOKEN", "5a".repeat(32));
    let messages = File::create(folder.0.join(format!("messages{process}"))).expect("a file");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(messages).spawn().expect("a process")
}

/// Without another process there is no meeting, and the memory of the host is found by its name all the same.
#[test]
fn one_process_that_is_left_resumes_from_its_memory() {
    let folder = Folder::new("memory-alone");
    let (address, run) = (format!("localhost:{}", free_port()), folder.run("run"));
    let keys = [
        "run.on_loss=replan",
        "run.memory_every=5",
        "train.steps=100000",
        "train.warmup_steps=0",
        "run.save_every=0",
        &run,
    ];
    let words = with_keys(&["train", "--quiet"], &keys);
    let mut children = [0, 1].map(|process| by_hand(&folder, (process, 2), &address, &words));
    let since = Instant::now();
    while newest_in(&folder, "memory").is_none_or(|steps| steps < 10) {
        assert!(since.elapsed() < PATIENCE, "no checkpoint in memory has come");
        std::thread::sleep(Duration::from_millis(5));
    }
    children.iter_mut().for_each(|child| child.kill().expect("it lives"));
    children.iter_mut().for_each(|child| _ = child.wait().expect("an end"));
    fs::remove_dir_all(memory_of(&folder, "node1")).expect("its memory");
    let steps = newest_in(&folder, "memory").expect("a checkpoint") + 2;
    let last = format!("train.steps={steps}");
    let words = ["train", "--quiet", "--resume", &folder.path("run"), "--set", &last];
    let ended = by_hand(&folder, (0, 1), &address, &words).wait().expect("an end");
    let messages = fs::read_to_string(folder.0.join("messages0")).expect("messages");
    assert!(ended.success() && messages.contains(" from the memory of the hosts\n"), "{messages}");
    assert!(!memory_of(&folder, "node0").exists() && !folder.0.join("run/memory").exists());
}

#[test]
fn a_run_on_one_host_is_refused_by_name() {
    let folder = Folder::new("memory-one");
    let run = folder.run("run");
    let output = launched("2", &with_keys(&["train"], &["run.memory_every=10", &run]));
    let refused = "run.memory_every = 10 needs another host; all ranks are on host localhost; start processes on more \
                   hosts, or use run.memory_every = 0";
    assert!(stderr(&output).contains(refused), "{}", stderr(&output));
    assert_eq!(output.status.code(), Some(2));
    assert!(!folder.0.join("run").exists(), "a refused run leaves no folder, and moves no earlier one");
}
