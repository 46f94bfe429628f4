//! The processes of a run on the hosts of a network.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use super::namespaces::Network;

/// No process of a test takes longer than this.
pub const LIMIT: Duration = Duration::from_secs(120);
/// Where process 0 listens.
pub const PORT: u16 = 29_400;
/// The token of all runs, in hexadecimal digits.
pub const TOKEN: &str = "5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a";
const GLANCE: Duration = Duration::from_millis(5);

/// A model whose step takes a moment on eight ranks, with dropout: dp x tp x pp.
const TINY: &[&str] = &[
    "model.num_layers=4",
    "model.hidden=32",
    "model.num_heads=2",
    "model.context=32",
    "model.dropout=0.1",
    "data.tokenizer=bytes",
    "data.held_out=0.001",
    "parallelism.dp=2",
    "parallelism.tp=2",
    "parallelism.pp=2",
    "parallelism.microbatch_size=1",
    "train.global_batch=8",
    "run.save_every=0",
];

/// A folder that ends with its test.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new(name: &str) -> Folder {
        // Tests that run at the same time may choose the same name.
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("pleach-network-{name}-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }

    pub fn key(&self, run: &str) -> String {
        format!("run.folder={}", self.path(run).display())
    }

    /// A file of a run, which may not be there yet.
    pub fn text(&self, run: &str, file: &str) -> String {
        fs::read_to_string(self.path(run).join(file)).unwrap_or_default()
    }

    pub fn weights(&self, run: &str) -> Vec<u8> {
        fs::read(self.path(run).join("weights.safetensors")).expect("weights")
    }

    /// The losses of all steps that were done, as they are written.
    pub fn losses(&self, run: &str) -> Vec<String> {
        let text = self.text(run, "metrics.jsonl");
        let loss = |line: &str| {
            let record: serde_json::Value = serde_json::from_str(line).expect("JSON");
            format!("{} {}", record["step"], record["loss"])
        };
        text.lines().map(loss).collect()
    }

    /// Trains in one process, whose ranks are threads.
    pub fn train_on_threads(&self, run: &str, keys: &[&str]) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pleach"));
        let output = command.args(arguments(&[keys, &[&self.key(run)]].concat())).output().expect("the command");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// The path of a file in the folder.
    pub fn path(&self, file: &str) -> PathBuf {
        self.0.join(file)
    }

    /// Both runs have the same losses and the same weights, bit for bit.
    pub fn assert_same(&self, run: &str, expected: &str) {
        assert!(!self.losses(run).is_empty(), "{run} has done no step");
        assert_eq!(self.losses(run), self.losses(expected), "losses of {run} and {expected}");
        assert!(self.weights(run) == self.weights(expected), "weights of {run} and {expected} differ");
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// `train` with the keys of [`TINY`], then `keys`.
pub fn arguments(keys: &[&str]) -> Vec<String> {
    std::iter::once("train".to_owned()).chain(options(keys)).collect()
}

/// The keys of [`TINY`], then `keys`, as options of a command.
pub fn options(keys: &[&str]) -> Vec<String> {
    TINY.iter().chain(keys).flat_map(|key| ["--set".to_owned(), (*key).to_owned()]).collect()
}

/// How processes are started.
pub struct Plan<'a> {
    /// Their hosts, each with this number of processes.
    pub network: &'a Network,
    pub processes_per_host: usize,
    /// Keys of the run.
    pub keys: Vec<&'a str>,
    /// Where a process looks for process 0, by its number.
    pub rendezvous: &'a dyn Fn(usize) -> SocketAddr,
}

impl Plan<'_> {
    fn processes(&self) -> usize {
        self.network.hosts() * self.processes_per_host
    }

    /// Starts all processes.
    pub fn start(&self) -> Cluster {
        self.start_of((0..self.processes()).collect())
    }

    /// Starts these processes.
    pub fn start_of(&self, numbers: Vec<usize>) -> Cluster {
        Cluster { processes: numbers.into_iter().map(|number| Process::start(number, self.command(number))).collect() }
    }

    /// The command of one process.
    pub fn command(&self, number: usize) -> Command {
        self.command_under(number, ":")
    }

    /// The same, after a command of the shell that changes the limits of the process.
    pub fn command_under(&self, number: usize, limits: &str) -> Command {
        let host = number / self.processes_per_host;
        let mut command = self.network.command(host, "sh");
        command.args(["-c", &format!("{limits} && exec \"$0\" \"$@\""), env!("CARGO_BIN_EXE_pleach")]);
        let hosts: Vec<String> =
            (0..self.network.hosts()).map(|host| format!("h{host}:{}", self.processes_per_host)).collect();
        command.args(arguments(&self.keys)).envs([
            ("PLEACH_PROCESS", number.to_string()),
            ("PLEACH_PROCESSES", self.processes().to_string()),
            ("PLEACH_HOST", format!("h{host}")),
            ("PLEACH_HOSTS", hosts.join(",")),
            ("PLEACH_RENDEZVOUS", (self.rendezvous)(number).to_string()),
            ("PLEACH_TOKEN", TOKEN.to_owned()),
        ]);
        command
    }
}

/// Processes that run. Dropping it ends them.
pub struct Cluster {
    pub processes: Vec<Process>,
}

/// One process and its lines.
pub struct Process {
    pub number: usize,
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
    readers: Vec<JoinHandle<()>>,
}

/// The end of a process.
#[derive(Debug)]
pub struct Ended {
    pub number: usize,
    pub code: Option<i32>,
    /// Both outputs.
    pub text: String,
    pub at: Instant,
}

impl Cluster {
    /// The process of this number.
    pub fn process(&self, number: usize) -> &Process {
        self.processes.iter().find(|process| process.number == number).expect("a process")
    }

    /// Waits until process 0 has done `steps` steps.
    pub fn wait_for_step(&mut self, steps: u32) {
        let until = Instant::now() + LIMIT;
        let is_done = |line: &String| {
            let number = line.strip_prefix("step").and_then(|rest| rest.split('/').next());
            number.and_then(|number| number.trim().parse().ok()).is_some_and(|done: u32| done >= steps)
        };
        while !self.processes[0].lines().iter().any(is_done) {
            let has_ended = self.processes[0].child.try_wait().expect("a state").is_some();
            if has_ended || Instant::now() >= until {
                panic!("step {steps} was not done:\n{}", self.text());
            }
            sleep(GLANCE);
        }
    }

    /// Waits for the end of all processes, which comes within `limit`.
    pub fn end_within(mut self, limit: Duration) -> Vec<Ended> {
        let until = Instant::now() + limit;
        let mut ended = vec![];
        while !self.processes.is_empty() {
            for process in std::mem::take(&mut self.processes) {
                match process.try_end() {
                    Ok(end) => ended.push(end),
                    Err(running) => self.processes.push(running),
                }
            }
            if !self.processes.is_empty() && Instant::now() >= until {
                let numbers: Vec<usize> = self.processes.iter().map(|process| process.number).collect();
                panic!("processes {numbers:?} run on after {limit:?}:\n{}\n{ended:#?}", self.text());
            }
            sleep(GLANCE);
        }
        ended.sort_by_key(|ended| ended.number);
        ended
    }

    /// Waits for the end of all processes, which must succeed.
    pub fn succeed(self) {
        for ended in self.end_within(LIMIT) {
            assert_eq!(ended.code, Some(0), "process {}: {}", ended.number, ended.text);
        }
    }

    fn text(&self) -> String {
        let text = |process: &Process| format!("process {}:\n{}", process.number, process.lines().join("\n"));
        self.processes.iter().map(text).collect::<Vec<_>>().join("\n")
    }
}

impl Process {
    /// Starts a process and reads its lines.
    pub fn start(number: usize, mut command: Command) -> Process {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("a process");
        let lines = Arc::new(Mutex::new(vec![]));
        let outputs: [Box<dyn Read + Send>; 2] = [
            Box::new(child.stdout.take().expect("an output")),
            Box::new(child.stderr.take().expect("an error output")),
        ];
        let readers = outputs.map(|output| {
            let lines = Arc::clone(&lines);
            std::thread::spawn(move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    lines.lock().unwrap_or_else(PoisonError::into_inner).push(line);
                }
            })
        });
        Process { number, child, lines, readers: readers.into() }
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The lines so far.
    pub fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sends a signal by its name.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([&format!("-{name}"), &self.id().to_string()]).status();
        assert!(sent.expect("kill").success());
    }

    fn try_end(mut self) -> Result<Ended, Process> {
        let Some(status) = self.child.try_wait().expect("a state") else { return Err(self) };
        let at = Instant::now();
        for reader in self.readers.drain(..) {
            reader.join().expect("lines");
        }
        Ok(Ended { number: self.number, code: status.code(), text: self.lines().join("\n"), at })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // A process that has ended cannot be killed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
