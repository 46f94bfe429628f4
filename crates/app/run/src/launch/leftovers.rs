//! Processes that outlive the program which started them, such as those of an `mpiexec` that was killed.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, wait};

/// Time from SIGTERM to SIGKILL. Ranks hear of the end of others themselves.
const PATIENCE: Duration = Duration::from_secs(3);
const GLANCE: Duration = Duration::from_millis(20);

/// From now on processes whose parent ends become children of this one.
#[cfg(target_os = "linux")]
pub fn adopt() {
    use rustix::process::set_child_subreaper;
    // A system that refuses leaves the other ways: ranks notice that others are gone.
    let _ = set_child_subreaper(Some(getpid()));
}

/// Other systems have no such request.
#[cfg(not(target_os = "linux"))]
pub fn adopt() {}

/// Ends the children that this process has adopted and everything below them; returns how many there were. No other
/// child of this process may be running.
pub fn end() -> usize {
    let (mut seen, started) = (vec![], Instant::now());
    loop {
        let all = below(getpid());
        for pid in &all {
            if !seen.contains(pid) {
                seen.push(*pid);
                let _ = kill_process(*pid, Signal::TERM);
            }
            if started.elapsed() > PATIENCE {
                let _ = kill_process(*pid, Signal::KILL);
            }
        }
        while matches!(wait(WaitOptions::NOHANG), Ok(Some(_))) {}
        if all.is_empty() {
            return seen.len();
        }
        std::thread::sleep(GLANCE);
    }
}

/// The processes below `pid` that have not ended.
fn below(pid: Pid) -> Vec<Pid> {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero())).into_iter().flatten().flatten();
    let children = tasks.flat_map(|task| {
        let text = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
        let pids = text.split_whitespace().filter_map(|child| child.parse().ok().and_then(Pid::from_raw));
        pids.collect::<Vec<_>>()
    });
    children.flat_map(|child| [vec![child], below(child)].concat()).collect()
}
