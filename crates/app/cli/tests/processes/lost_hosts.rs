//! Hosts of a run over loopback that are lost with all their processes, and come back.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::harness::free_port;
use crate::harness::several::{Folder, on_threads, with_keys};
use crate::processes::network::namespaces::Network;

/// Sums and rates that depend neither on dp nor on the number of steps.
const RUN: &[&str] = &[
    "train.sums=exact",
    "train.schedule=constant",
    "train.warmup_steps=0",
    "run.save_every=20",
    "run.heartbeat_seconds=30",
];

/// Half of the processes each; two addresses of the loopback.
pub const HOSTS: [&str; 2] = ["127.0.0.2", "127.0.0.3"];
/// Longest wait for a state that must come.
pub const PATIENCE: Duration = Duration::from_secs(240);

/// A launch on two hosts whose `ssh` refuses hosts that are down.
pub struct Launch<'a> {
    pub folder: &'a Folder,
    child: Child,
}

impl Launch<'_> {
    /// On two addresses of the loopback.
    fn start<'a>(folder: &'a Folder, on_loss: &str) -> Launch<'a> {
        Launch::on(folder, &HOSTS.map(str::to_string), "exec sh -c \"$2\"", &[&format!("run.on_loss={on_loss}")])
    }

    /// On `hosts`, where `script` starts the command of its second argument on the host of its first.
    pub fn on<'a>(folder: &'a Folder, names: &[String], script: &str, keys: &[&str]) -> Launch<'a> {
        let hosts = folder.0.join("hosts");
        fs::write(&hosts, names.iter().map(|host| format!("{host} slots=2\n")).collect::<String>()).expect("a file");
        let ssh = folder.0.join("ssh");
        let script = format!("#!/bin/sh\n[ -e {}/down-$1 ] && exit 255\n{script}\n", folder.0.display());
        fs::write(&ssh, script).expect("a file");
        fs::set_permissions(&ssh, Permissions::from_mode(0o755)).expect("permissions");
        let own = folder.run("run");
        let words = with_keys(&["train", "--quiet"], &[RUN, keys, &["train.steps=1000000", &own]].concat());
        let mut command = Command::new(env!("CARGO_BIN_EXE_pleach"));
        command.args(["launch", "--restarts", "3", "--hosts"]).arg(&hosts).arg("--ssh").arg(&ssh).arg("--").args(words);
        let messages = File::create(folder.0.join("messages")).expect("a file");
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(messages).spawn().expect("pleach");
        Launch { folder, child }
    }

    pub fn messages(&self) -> String {
        fs::read_to_string(self.folder.0.join("messages")).unwrap_or_default()
    }

    #[track_caller]
    pub fn wait(&self, what: &str, found: impl Fn() -> bool) {
        let since = Instant::now();
        while !found() {
            assert!(since.elapsed() < PATIENCE, "{what} has not come\n{}", self.messages());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits for a checkpoint that was not there before.
    #[track_caller]
    fn wait_for_checkpoint(&self) {
        let newest = || {
            let name = |entry: fs::DirEntry| entry.file_name().to_str()?.strip_prefix("step-")?.parse::<u32>().ok();
            let entries = fs::read_dir(self.folder.0.join("run/checkpoints"));
            entries.map_or(None, |entries| entries.filter_map(|entry| name(entry.ok()?)).max())
        };
        let before = newest();
        self.wait("a checkpoint", || newest() > before);
    }

    /// Each time that the run was resumed: the dp before and after, where that has changed.
    pub fn resumptions(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.folder.0.join("run/resumes.jsonl")).unwrap_or_default();
        let of =
            |line: &str| serde_json::from_str::<Value>(line).map(|record| record["changed"]["parallelism.dp"].clone());
        text.lines().filter_map(|line| of(line).ok()).collect()
    }

    /// Lets `host` answer no more.
    pub fn take_down(&self, host: &str) {
        fs::write(self.folder.0.join(format!("down-{host}")), "").expect("a file");
    }

    /// Kills the agent of `host` and its processes, and lets it answer no more.
    pub fn lose(&self, host: &str) {
        self.take_down(host);
        let mut killed = 0;
        for agent in children(self.child.id()) {
            let of_host: Vec<u32> = children(agent).into_iter().filter(|process| is_on(*process, host)).collect();
            if !of_host.is_empty() {
                kill(agent);
                of_host.iter().for_each(|process| kill(*process));
                killed += of_host.len();
            }
        }
        assert_eq!(killed, 2, "both processes of {host} were alive");
    }

    pub fn bring_back(&self, host: &str) {
        fs::remove_file(self.folder.0.join(format!("down-{host}"))).expect("it was down");
    }

    /// Kills all processes of the run, whose agents live.
    pub fn kill_processes(&self) {
        let processes: Vec<u32> = children(self.child.id()).into_iter().flat_map(children).collect();
        let of_run: Vec<u32> = processes.into_iter().filter(|id| HOSTS.iter().any(|host| is_on(*id, host))).collect();
        assert_eq!(of_run.len(), 4, "all processes were alive");
        of_run.into_iter().for_each(kill);
    }

    /// Ends the run, and compares its steps and weights with those of an undisturbed run of as many steps.
    #[track_caller]
    pub fn ends_with_the_bits_of_an_undisturbed_run(mut self) {
        kill_process(pid(self.child.id()), Signal::TERM).expect("it lives");
        assert_eq!(self.child.wait().expect("an end").code(), Some(143), "{}", self.messages());
        // Only a run that does all of its steps measures the held-out loss.
        let losses = |run| -> Vec<String> {
            self.folder.losses(run).into_iter().filter(|line| !line.ends_with(" null")).collect()
        };
        let (disturbed, steps) = (losses("run"), losses("run").len());
        let steps = format!("train.steps={steps}");
        on_threads(&[RUN, &[&steps, &self.folder.run("undisturbed")]].concat());
        let differs =
            disturbed.iter().zip(&losses("undisturbed")).find(|(one, other)| one != other).map(|(one, _)| one.clone());
        assert_eq!((differs, disturbed.len()), (None, losses("undisturbed").len()));
        assert!(self.folder.weights("run") == self.folder.weights("undisturbed"), "weights");
    }
}

/// A test that fails leaves no launcher, whose end is that of its processes.
impl Drop for Launch<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn pid(number: u32) -> Pid {
    Pid::from_raw(i32::try_from(number).expect("a process")).expect("a process")
}

fn kill(process: u32) {
    // A process of an agent that was killed may have ended by itself.
    let _ = kill_process(pid(process), Signal::KILL);
}

fn children(process: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let of_thread = |thread: fs::DirEntry| fs::read_to_string(thread.path().join("children")).unwrap_or_default();
    threads
        .flat_map(|thread| of_thread(thread).split_whitespace().filter_map(|id| id.parse().ok()).collect::<Vec<u32>>())
        .collect()
}

fn is_on(process: u32, host: &str) -> bool {
    let environment = fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
    let expected = format!("PLEACH_HOST={host}");
    environment.split(|byte| *byte == 0).any(|pair| pair == expected.as_bytes())
}

/// Half of the hosts are lost; the run continues without them, and with them again.
#[track_caller]
fn replanned_without(lost: &str) {
    let folder = Folder::new("replan");
    let launch = Launch::start(&folder, "replan");
    launch.wait_for_checkpoint();
    launch.lose(lost);
    launch.wait("a smaller layout", || launch.resumptions().iter().any(|dp| *dp == serde_json::json!([2, 1])));
    launch.wait_for_checkpoint();
    launch.bring_back(lost);
    launch.wait("the layout before", || launch.resumptions().last() == Some(&serde_json::json!([1, 2])));
    launch.wait_for_checkpoint();
    let messages = launch.messages();
    let cost =
        format!("host {lost} does not answer; replanned for 2 of 4 processes with parallelism.dp=1; a step has ");
    let line = messages.lines().find(|line| line.contains(&cost)).unwrap_or_else(|| panic!("{messages}"));
    assert!(
        line.contains(" times the work, and steps after step ") && line.contains(" are repeated; restarting: "),
        "{line}"
    );
    let back =
        format!("host {lost} answers again; the run resumes in all processes, with parallelism.dp=2; restarting: ");
    assert!(
        messages.contains(&back) && messages.contains("; 2 restarts left"),
        "a return costs no restart: {messages}"
    );
    launch.ends_with_the_bits_of_an_undisturbed_run();
}

#[test]
fn a_run_continues_without_half_of_its_hosts_and_with_them_again() {
    replanned_without(HOSTS[1]);
}

#[test]
fn a_run_continues_without_its_first_host_and_with_it_again() {
    replanned_without(HOSTS[0]);
}

#[test]
fn a_run_waits_for_a_host_that_is_lost() {
    let folder = Folder::new("wait");
    let launch = Launch::start(&folder, "wait");
    launch.wait_for_checkpoint();
    launch.lose(HOSTS[1]);
    let waiting = "host 127.0.0.3 does not answer; waiting, as run.on_loss = \"wait\" says\n";
    launch.wait("a message", || launch.messages().contains(waiting));
    assert!(launch.resumptions().is_empty(), "nothing runs without the host");
    launch.bring_back(HOSTS[1]);
    launch.wait_for_checkpoint();
    assert!(launch.resumptions().iter().all(Value::is_null), "the layout stays: {:?}", launch.resumptions());
    launch.ends_with_the_bits_of_an_undisturbed_run();
}

#[test]
fn a_run_stops_with_the_command_that_resumes_it_without_a_lost_host() {
    let folder = Folder::new("stop");
    let mut launch = Launch::start(&folder, "stop");
    launch.wait_for_checkpoint();
    launch.lose(HOSTS[1]);
    let code = launch.child.wait().expect("an end").code();
    let messages = launch.messages();
    assert!(code.is_some_and(|code| code != 0), "{messages}");
    let (hosts, run) = (folder.path("hosts"), folder.path("run"));
    let remedy = format!(
        "host 127.0.0.3 does not answer; to resume on the others, remove it from {hosts} and use `pleach launch --hosts {hosts} -- \
         train --resume {run} --set parallelism.dp=1`, or run.on_loss = \"replan\"\n"
    );
    assert!(messages.ends_with(&remedy), "{messages}");
}

/// Two of four hosts are cut off: their processes live, and nobody reaches them.
#[needs::namespaces]
#[test]
fn a_run_continues_without_half_of_a_network_and_with_it_again() {
    let network = Network::of(4);
    let folder = Folder::new("network");
    let names: Vec<String> = (0..4).map(|host| network.address(host).to_string()).collect();
    let keys = ["run.on_loss=replan", "run.heartbeat_seconds=4"];
    let launch = Launch::on(&folder, &names, &network.shell(), &keys);
    launch.wait_for_checkpoint();
    for lost in [0, 2] {
        network.cut(lost);
        launch.take_down(&names[lost]);
    }
    launch.wait("a smaller layout", || launch.resumptions().iter().any(|dp| *dp == serde_json::json!([2, 1])));
    launch.wait_for_checkpoint();
    let cost = format!(
        "each of hosts {}, {} does not answer; replanned for 4 of 8 processes with parallelism.dp=1; a step has ",
        names[0], names[2]
    );
    assert!(launch.messages().contains(&cost), "{}", launch.messages());
    for lost in [0, 2] {
        network.join(lost);
        launch.bring_back(&names[lost]);
    }
    launch.wait("the layout before", || launch.resumptions().last() == Some(&serde_json::json!([1, 2])));
    launch.wait_for_checkpoint();
    launch.ends_with_the_bits_of_an_undisturbed_run();
}

/// Four processes that another launcher has started, two on each host.
fn by_hand(folder: &Folder, keys: &[&str]) -> Vec<Child> {
    let address = format!("localhost:{}", free_port());
    let start = |process: usize| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pleach"));
        command.args(with_keys(&["train", "--quiet"], keys));
        command.env("JOB_COMPLETION_INDEX", process.to_string()).env("PLEACH_PROCESSES", "4");
        command.env("PLEACH_RENDEZVOUS", &address).env("PLEACH_HOST", format!("node{}", process / 2));
        command.env("PLEACH_TOKEN", "5a".repeat(32)).stdin(Stdio::null()).stdout(Stdio::null());
        let messages = File::create(folder.0.join(format!("messages{process}"))).expect("a file");
        command.stderr(messages).spawn().expect("a process")
    };
    (0..4).map(start).collect()
}

#[test]
fn the_command_for_another_launcher_is_printed_that_resumes_the_run_without_a_lost_host() {
    for (lost, speaks) in [(1, 0), (0, 2)] {
        let folder = Folder::new("fixed");
        let own = folder.run("run");
        let keys = ["train.steps=1000000", "run.on_loss=replan", &own];
        let mut children = by_hand(&folder, &[RUN, &keys].concat());
        let since = Instant::now();
        while !folder.0.join("run/checkpoints/latest").exists() {
            assert!(since.elapsed() < PATIENCE, "no checkpoint has come");
            std::thread::sleep(Duration::from_millis(5));
        }
        children[2 * lost..2 * lost + 2].iter().for_each(|child| kill(child.id()));
        let codes: Vec<Option<i32>> = children.iter_mut().map(|child| child.wait().expect("an end").code()).collect();
        let messages =
            |process: usize| fs::read_to_string(folder.0.join(format!("messages{process}"))).expect("messages");
        assert_eq!(codes[speaks], Some(1), "{}", messages(speaks));
        let start = format!("if host node{lost} does not come back: `spec.completions: 2, pleach train --resume ");
        let line = messages(speaks).lines().find(|line| line.starts_with(&start)).map(str::to_string);
        let line = line.unwrap_or_else(|| panic!("{}", messages(speaks)));
        let end = format!("{} --set parallelism.dp=1` resumes after step ", folder.path("run"));
        assert!(line.contains(&end) && line.ends_with(" without it"), "{line}");
        let warning =
            "warning: run.on_loss = \"replan\" has no effect here, because no `pleach launch` started this process; ";
        assert!(messages(0).starts_with(warning), "{}", messages(0));
        assert!(!messages(1).contains("warning: "), "process 0 warns for all: {}", messages(1));
    }
}
