//! A command under the limits of its case. The kernel holds them: a command that takes more memory or more time of
//! cores than its case allows ends by a signal, which no verdict expects.

use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, kill_process_group, prlimit};

use crate::hostile::case::Case;

/// A command that waits for something that never comes has no time of cores to run out of: it is ended after this.
const HANG: Duration = Duration::from_secs(120);
/// The most that a command prints.
const MOST_BYTES: u64 = 4 << 20;

/// The end of a command.
pub struct Ended {
    pub status: ExitStatus,
    /// Both streams.
    pub said: String,
    /// The standard error.
    pub warned: String,
    pub wall: Duration,
    /// The most that was resident when it was looked at.
    pub peak_mib: u64,
}

impl Ended {
    /// The exit code, or the signal in words.
    pub fn code(&self) -> Result<i32, String> {
        self.status.code().ok_or_else(|| format!("signal {}", self.status.signal().unwrap_or_default()))
    }
}

/// Starts the command of `case` in `folder`.
pub fn start(case: &Case, folder: &Path) -> Child {
    let here = folder.display().to_string();
    let mut command = Command::new(env!("CARGO_BIN_EXE_pleach"));
    command.args(case.arguments.iter().map(|argument| argument.replace("{}", &here)));
    command.args(case.bytes.map(OsStr::from_bytes));
    command.current_dir(folder).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    if let Some(device) = case.device {
        command.stdout(fs::File::options().write(true).open(device).expect("a device"));
    }
    // Arenas of the allocator would be counted as memory that a thread has not touched.
    command.env("MALLOC_ARENA_MAX", "2");
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    for (name, value) in &case.variables {
        command.env(name, value.replace("{}", &here));
    }
    let child = command.spawn().expect("the command starts");
    let process = Pid::from_child(&child);
    let limit = |limit| Rlimit { current: Some(limit), maximum: Some(limit) };
    // One that has ended already has kept its limits.
    let _ = prlimit(Some(process), Resource::Data, limit(case.memory_mib << 20));
    let _ = prlimit(Some(process), Resource::Cpu, limit(case.seconds));
    child
}

/// Sends `signal` as soon as the process handles it; not at all if it has ended before.
pub fn send_when_handled(child: &Child, signal: Signal) {
    let handles = |signals: &str| {
        let mask = u64::from_str_radix(signals.trim(), 16).expect("a mask of signals");
        mask >> (signal.as_raw() - 1) & 1 == 1
    };
    while let Ok(status) = fs::read_to_string(format!("/proc/{}/status", child.id())) {
        if let Some(true) = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).map(handles) {
            let _ = kill_process(Pid::from_child(child), signal);
            return;
        }
        if status.contains("State:\tZ") {
            return;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// Waits for the end.
pub fn end(mut child: Child) -> Ended {
    let began = Instant::now();
    let process = Pid::from_child(&child);
    let streams: [Option<Box<dyn Read + Send>>; 2] =
        [child.stdout.take().map(|it| Box::new(it) as _), child.stderr.take().map(|it| Box::new(it) as _)];
    let readers = streams.map(|stream| {
        thread::spawn(move || {
            let mut bytes = vec![];
            // One that says more is ended by its closed pipe.
            let _ = stream.map(|stream| stream.take(MOST_BYTES).read_to_end(&mut bytes));
            String::from_utf8_lossy(&bytes).into_owned()
        })
    });
    let mut peak_mib = 0;
    let status = loop {
        if let Some(status) = child.try_wait().expect("a child") {
            break status;
        }
        peak_mib = peak_mib.max(resident_peak_mib(child.id()).unwrap_or_default());
        if began.elapsed() > HANG {
            let _ = kill_process_group(process, Signal::KILL);
        }
        thread::sleep(Duration::from_millis(3));
    };
    let wall = began.elapsed();
    let [printed, warned] = readers.map(|reader| reader.join().expect("read"));
    Ended { status, said: printed + &warned, warned, wall, peak_mib }
}

fn resident_peak_mib(process: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().ok()?;
    Some(kib >> 10)
}
