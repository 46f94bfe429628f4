//! Processes that end together: signals go to all, and the failure of one ends the others.

use std::io::Write;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use blame::{CauseKind, ProcessEnd};
use rustix::process::{Pid, Signal, kill_process_group};
use sync::NoThread;

use crate::failure::Failure;
use crate::launch::guard::Guard;
use crate::launch::lines::{self, LastLines};
use crate::launch::signals::{Signalled, Urgency};

/// Longest time until the end of a process is noticed.
const GLANCE: Duration = Duration::from_millis(5);
/// Time from SIGTERM to SIGKILL for the other processes of a failed run. They hear of the failure themselves, too.
const PATIENCE: Duration = Duration::from_millis(1500);

/// Exit code of an agent whose processes all succeeded. Success alone may be that of a program that ran no agent.
pub const AGENT_DONE: u8 = 60;

/// One process that is to be supervised.
pub struct Member {
    /// Its name in messages: `process 3 (host b)`.
    pub name: String,
    /// Its number, where it is a process of the run.
    pub process: Option<usize>,
    /// The host of its processes.
    pub host: String,
    /// The start of each of its lines; without a label its output is that of this process.
    pub label: Option<String>,
    /// Keeps the last lines of its standard error, where it has no label.
    pub last_lines: Option<LastLines>,
    /// How it is started.
    pub command: Command,
    /// First line of its input, for an agent on another host, which takes orders by further lines and ends with its
    /// input.
    pub plan: Option<String>,
}

/// A request of the process that started this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// All processes receive this signal.
    Signal(i32),
    /// All processes end at once.
    End,
}

/// The end of all processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All succeeded.
    Done,
    /// A signal stopped the run, and all was written.
    Stopped {
        /// 128 and the number of the signal.
        code: u8,
        /// For the user.
        message: String,
    },
    /// A process failed.
    Failed {
        /// Its exit code; 128 and the number of the signal that ended it.
        code: u8,
        /// For the user.
        message: String,
    },
}

/// The end of all members, and of each.
#[derive(Debug)]
pub struct Supervised {
    pub outcome: Outcome,
    /// Of each, in the order in which they ended.
    pub ends: Vec<ProcessEnd>,
}

/// How one process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ProcessExit {
    /// By a signal that nobody handled: the likeliest cause of all others, so it is first.
    Killed(i32),
    /// As the agent of a host says of one of its processes.
    KilledThere(i32),
    /// A program that was to start an agent ended well, and no agent ran.
    NoAgent,
    /// The other host has no such command as this program.
    NoCommand,
    /// ssh did not reach the other host.
    NoConnection,
    Failed(u8),
    Stopped(u8),
    Done,
}

/// Exit code of a shell that has no such command.
const NO_COMMAND: u8 = 127;
/// Exit code of ssh whose connection failed.
const NO_CONNECTION: u8 = 255;

/// How ends were found that were found together.
#[derive(Clone, Copy, Debug)]
struct Found {
    /// Nobody had asked the processes to end.
    is_by_itself: bool,
    /// One was ended by a signal from elsewhere.
    is_cause: bool,
}

impl ProcessExit {
    fn of(status: ExitStatus, is_agent: bool) -> ProcessExit {
        match (status.code(), status.signal()) {
            (Some(0), _) if is_agent => ProcessExit::NoAgent,
            (Some(0), _) => ProcessExit::Done,
            (Some(code), _) if is_agent && code == i32::from(AGENT_DONE) => ProcessExit::Done,
            // Ctrl-C, SIGTERM and SIGUSR1 end a command with these codes once everything is written.
            (Some(code @ (130 | 143 | 138)), _) => ProcessExit::Stopped(code as u8),
            (Some(code), _) if is_agent && code == i32::from(NO_COMMAND) => ProcessExit::NoCommand,
            (Some(code), _) if is_agent && code == i32::from(NO_CONNECTION) => ProcessExit::NoConnection,
            (Some(code @ 129..), _) if is_agent => ProcessExit::KilledThere(code - 128),
            (Some(code), _) => ProcessExit::Failed(u8::try_from(code).unwrap_or(1)),
            (None, signal) => ProcessExit::Killed(signal.unwrap_or(0)),
        }
    }

    fn is_killed_by_other_than(self, signal: Signal) -> bool {
        match self {
            ProcessExit::Killed(number) | ProcessExit::KilledThere(number) => number != signal.as_raw(),
            ProcessExit::NoAgent
            | ProcessExit::NoCommand
            | ProcessExit::NoConnection
            | ProcessExit::Failed(_)
            | ProcessExit::Stopped(_)
            | ProcessExit::Done => false,
        }
    }

    /// Whether this end, after or with that of another process, is the cause of it.
    fn is_cause_of(self, before: ProcessExit, found: Found) -> bool {
        match before {
            ProcessExit::Stopped(_) => self.is_failure() && found.is_by_itself,
            // The others fail because one refuses its input, or is killed, and may end before it.
            ProcessExit::Failed(code) if code != Failure::INPUT => {
                self == ProcessExit::Failed(Failure::INPUT)
                    || found.is_cause && matches!(self, ProcessExit::Killed(_) | ProcessExit::KilledThere(_))
            }
            ProcessExit::Failed(_)
            | ProcessExit::Killed(_)
            | ProcessExit::KilledThere(_)
            | ProcessExit::NoAgent
            | ProcessExit::NoCommand
            | ProcessExit::NoConnection
            | ProcessExit::Done => false,
        }
    }

    fn is_failure(self) -> bool {
        match self {
            ProcessExit::Killed(_)
            | ProcessExit::KilledThere(_)
            | ProcessExit::NoAgent
            | ProcessExit::NoCommand
            | ProcessExit::NoConnection
            | ProcessExit::Failed(_) => true,
            ProcessExit::Stopped(_) | ProcessExit::Done => false,
        }
    }
}

struct Running {
    name: String,
    process: Option<usize>,
    host: String,
    child: Child,
    input: Option<ChildStdin>,
    is_agent: bool,
    copies: Vec<JoinHandle<()>>,
    exit: Option<ProcessExit>,
}

/// Starts all members and waits for the end of all, which `guard` brings about where this process is killed. `orders`
/// is asked again and again.
///
/// # Errors
/// A program that cannot be started; those that were started before are ended.
pub fn supervise(
    members: Vec<Member>,
    guard: Option<&Guard>,
    mut orders: impl FnMut() -> Option<Order>,
) -> Result<Supervised, Failure> {
    let mut ends = vec![];
    let (mut all, mut pending) = start(members, guard, &mut orders)?;
    let mut first: Option<(String, ProcessExit)> = None;
    let mut ending: Option<Instant> = None;
    let mut is_killed = false;
    let mut signals = Signalled::default();
    loop {
        while let Some(order) = pending.take().or_else(&mut orders) {
            match order {
                Order::Signal(signal) => {
                    let urgency = signals.note(signal, Instant::now());
                    pass_on(signal, urgency, &mut all);
                    if urgency == Urgency::Now {
                        ending.get_or_insert_with(Instant::now);
                    }
                }
                Order::End => {
                    ending.get_or_insert_with(|| end(&mut all));
                }
            }
        }
        if let Some(signal) = signals.late_to_others(Instant::now()) {
            pass_on(signal, Urgency::AfterSaving, &mut all);
        }
        let is_by_itself = ending.is_none();
        let mut ended: Vec<(String, ProcessExit)> = vec![];
        let mut is_cause = false;
        for running in &mut all {
            if let Some((name, exit)) = running.look(guard) {
                // A process that is killed may end after those that have heard of it. Until the patience is over only
                // SIGTERM came from here.
                let is_killed_elsewhere = !is_killed && exit.is_killed_by_other_than(Signal::TERM);
                is_cause |= is_killed_elsewhere;
                ends.push(running.end(exit, is_by_itself || is_killed_elsewhere));
                ended.push((name, exit));
            }
        }
        ended.sort_by_key(|(_, exit)| *exit);
        for (name, exit) in ended {
            let is_failure = exit.is_failure();
            if is_failure && ending.is_none() {
                ending = Some(end(&mut all));
            }
            let is_first = match &first {
                None => exit != ProcessExit::Done,
                Some((_, before)) => exit.is_cause_of(*before, Found { is_by_itself, is_cause }),
            };
            if is_first {
                if let ProcessExit::Stopped(code) = exit {
                    signals.note_stopped(i32::from(code) - 128);
                }
                first = Some((name, exit));
            }
        }
        if all.iter().all(|running| running.exit.is_some()) {
            break;
        }
        if ending.is_some_and(|since| since.elapsed() > PATIENCE) && !is_killed {
            is_killed = true;
            all.iter_mut().for_each(Running::kill);
        }
        std::thread::sleep(GLANCE);
    }
    for running in &mut all {
        running.copies.drain(..).for_each(|copy| drop(copy.join()));
    }
    Ok(Supervised { outcome: outcome(first), ends })
}

fn outcome(first: Option<(String, ProcessExit)>) -> Outcome {
    match first {
        None | Some((_, ProcessExit::Done)) => Outcome::Done,
        Some((name, ProcessExit::Stopped(code))) => {
            Outcome::Stopped { code, message: format!("{name} was stopped by signal {}", code - 128) }
        }
        Some((name, ProcessExit::NoAgent)) => Outcome::Failed {
            code: Failure::INPUT,
            message: format!(
                "{name}: the program of --ssh ended with success and started nothing; it must run its arguments there"
            ),
        },
        Some((name, ProcessExit::NoCommand)) => Outcome::Failed {
            code: NO_COMMAND,
            message: format!(
                "{name}: the program of --ssh ended with exit code {NO_COMMAND}: that host has no such command as this pleach; \
                 install it there under the same path, or use --program PATH; all others were ended"
            ),
        },
        Some((name, ProcessExit::NoConnection)) => Outcome::Failed {
            code: NO_CONNECTION,
            message: format!(
                "{name}: the program of --ssh ended with exit code {NO_CONNECTION}: the connection failed; make `ssh -o \
                 BatchMode=yes HOST true` work with its name and without a password, or use --ssh COMMAND; all others were ended"
            ),
        },
        Some((name, ProcessExit::Failed(code))) => {
            Outcome::Failed { code, message: format!("{name} failed with exit code {code}, and all others were ended") }
        }
        Some((name, ProcessExit::Killed(signal))) => Outcome::Failed {
            code: u8::try_from(128 + signal).unwrap_or(1),
            message: format!("{name} was ended by signal {signal}, and all others were ended"),
        },
        Some((name, ProcessExit::KilledThere(signal))) => Outcome::Failed {
            code: u8::try_from(128 + signal).unwrap_or(1),
            message: format!("a process of {name} was ended by signal {signal}, and all others were ended"),
        },
    }
}

/// Starts the members one after the other. An order ends that, so that no process starts after a signal; the second
/// value is the order.
fn start(
    members: Vec<Member>,
    guard: Option<&Guard>,
    orders: &mut impl FnMut() -> Option<Order>,
) -> Result<(Vec<Running>, Option<Order>), Failure> {
    let mut all: Vec<Running> = vec![];
    for member in members {
        match spawn(member) {
            Ok(running) => {
                if let Some(guard) = guard {
                    guard.watch(running.child.id());
                }
                all.push(running);
            }
            Err(failure) => {
                all.iter_mut().for_each(Running::kill);
                return Err(failure);
            }
        }
        if let Some(order) = orders() {
            return Ok((all, Some(order)));
        }
    }
    Ok((all, None))
}

fn spawn(member: Member) -> Result<Running, Failure> {
    let Member { name, process, host, label, last_lines, mut command, plan } = member;
    let is_agent = plan.is_some();
    command.stdin(if is_agent { Stdio::piped() } else { Stdio::null() });
    if label.is_some() {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
    } else if last_lines.is_some() {
        command.stderr(Stdio::piped());
    }
    // Ctrl-C of a terminal reaches the launcher alone, which passes it on once.
    command.process_group(0);
    let mut child = command.spawn().map_err(|error| Failure::Work(format!("{name} cannot be started: {error}")))?;
    let copies = copies(&mut child, label, last_lines).inspect_err(|_| {
        // Without its lines nobody knows why it ends.
        let _ = child.kill();
        let _ = child.wait();
    })?;
    let mut input = child.stdin.take();
    if let (Some(input), Some(plan)) = (&mut input, plan) {
        // Where the program ended at once, its exit code says more than this.
        let _ = writeln!(input, "{plan}").and_then(|()| input.flush());
    }
    Ok(Running { name, process, host, child, input, is_agent, copies, exit: None })
}

/// Starts the threads that copy the outputs of `child`.
fn copies(
    child: &mut Child,
    label: Option<String>,
    last_lines: Option<LastLines>,
) -> Result<Vec<JoinHandle<()>>, NoThread> {
    let mut copies = vec![];
    if let Some(label) = label {
        if let Some(output) = child.stdout.take() {
            copies.push(lines::copy(output, label.clone())?);
        }
        if let Some(output) = child.stderr.take() {
            copies.push(lines::copy(output, label)?);
        }
    } else if let Some(last_lines) = last_lines
        && let Some(output) = child.stderr.take()
    {
        last_lines.copy(output)?;
    }
    Ok(copies)
}

/// All receive the signal, unless it is the same request as one before.
fn pass_on(signal: i32, urgency: Urgency, all: &mut [Running]) {
    match urgency {
        Urgency::Same => {}
        Urgency::AfterSaving | Urgency::Now => all.iter_mut().for_each(|running| running.signal(signal)),
    }
}

/// Asks all to end, and returns the time of it.
fn end(all: &mut [Running]) -> Instant {
    for running in all {
        match running.is_agent {
            // The end of its input is the end of an agent.
            true => drop(running.input.take()),
            false => running.signal(Signal::TERM.as_raw()),
        }
    }
    Instant::now()
}

impl Running {
    /// The end of the process, if it has ended since the last call.
    fn look(&mut self, guard: Option<&Guard>) -> Option<(String, ProcessExit)> {
        if self.exit.is_some() {
            return None;
        }
        let exit = match self.child.try_wait() {
            Ok(None) => return None,
            Ok(Some(status)) => ProcessExit::of(status, self.is_agent),
            Err(_) => ProcessExit::Failed(Failure::WORK),
        };
        self.exit = Some(exit);
        if let Some(guard) = guard {
            guard.forget(self.child.id());
        }
        Some((self.name.clone(), exit))
    }

    /// The end by `exit`, for the report of a failure.
    fn end(&self, exit: ProcessExit, by_itself: bool) -> ProcessEnd {
        let (process, host) = (self.process, self.host.clone());
        let (signal, exit_code) = match exit {
            ProcessExit::Killed(signal) => (Some(signal), None),
            ProcessExit::KilledThere(signal) => (None, u8::try_from(128 + signal).ok()),
            ProcessExit::Failed(code) | ProcessExit::Stopped(code) => (None, Some(code)),
            ProcessExit::NoAgent | ProcessExit::Done => (None, Some(0)),
            ProcessExit::NoCommand => (None, Some(NO_COMMAND)),
            ProcessExit::NoConnection => (None, Some(NO_CONNECTION)),
        };
        let cause = match exit {
            ProcessExit::NoAgent | ProcessExit::NoCommand | ProcessExit::NoConnection => Some(CauseKind::NotStarted),
            ProcessExit::Killed(_)
            | ProcessExit::KilledThere(_)
            | ProcessExit::Failed(_)
            | ProcessExit::Stopped(_)
            | ProcessExit::Done => None,
        };
        ProcessEnd { process, name: self.name.clone(), host, signal, exit_code, cause, by_itself }
    }

    fn signal(&mut self, signal: i32) {
        if self.exit.is_some() {
            return;
        }
        match (&mut self.input, self.is_agent) {
            (Some(input), _) => drop(writeln!(input, "signal {signal}").and_then(|()| input.flush())),
            (None, true) => {}
            (None, false) => self.signal_group(Signal::from_named_raw(signal)),
        }
    }

    fn kill(&mut self) {
        if self.exit.is_none() {
            self.signal_group(Some(Signal::KILL));
        }
    }

    fn signal_group(&self, signal: Option<Signal>) {
        let group = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let (Some(group), Some(signal)) = (group, signal) {
            // A process that has just ended needs no signal.
            let _ = kill_process_group(group, signal);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(number: usize, script: &str) -> Member {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Member {
            name: format!("process {number}"),
            process: Some(number),
            host: "here".into(),
            label: Some(format!("[{number}] ")),
            last_lines: None,
            command,
            plan: None,
        }
    }

    fn of(scripts: &[&str], orders: &[Order]) -> Outcome {
        let members = scripts.iter().enumerate().map(|(number, script)| shell(number, script)).collect();
        let mut orders = orders.iter().copied();
        supervise(members, None, || orders.next()).expect("all start").outcome
    }

    fn failed(code: u8, message: &str) -> Outcome {
        Outcome::Failed { code, message: message.into() }
    }

    #[test]
    fn success_needs_all_of_them() {
        assert_eq!(of(&["exit 0", "exit 0"], &[]), Outcome::Done);
        let expected = failed(3, "process 1 failed with exit code 3, and all others were ended");
        assert_eq!(of(&["exit 0", "exit 3"], &[]), expected);
    }

    #[test]
    fn a_failure_ends_the_others() {
        let began = Instant::now();
        let expected = failed(3, "process 1 failed with exit code 3, and all others were ended");
        assert_eq!(of(&["sleep 600", "exit 3", "sleep 600"], &[]), expected);
        assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    }

    #[test]
    fn a_process_that_ignores_sigterm_is_killed_with_its_children() {
        let began = Instant::now();
        let expected = failed(137, "process 1 was ended by signal 9, and all others were ended");
        let trapped = std::env::temp_dir().join(format!("pleach-supervisor-{}", std::process::id()));
        let file = trapped.display();
        let ignoring = format!("trap '' TERM; touch {file}; sleep 600 & wait; sleep 600");
        let killed = format!("until [ -e {file} ]; do sleep 0.01; done; kill -9 $$");
        assert_eq!(of(&[&ignoring, &killed], &[]), expected);
        std::fs::remove_file(&trapped).expect("removed");
        assert!(began.elapsed() >= PATIENCE && began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    }

    #[test]
    fn signals_reach_all_and_are_not_failures() {
        let stopped = "trap 'exit 143' TERM; echo ready; while :; do sleep 0.05; done";
        // The signal comes once all have set their traps: the order is given again until they end.
        let mut asked = 0;
        let members = (0..3).map(|number| shell(number, stopped)).collect();
        let outcome = supervise(members, None, || {
            asked += 1;
            (asked % 200 == 0).then_some(Order::Signal(Signal::TERM.as_raw()))
        });
        match outcome.expect("all start").outcome {
            Outcome::Stopped { code: 143, message } => {
                assert!(message.ends_with("was stopped by signal 15"), "{message}")
            }
            other @ (Outcome::Done | Outcome::Stopped { .. } | Outcome::Failed { .. }) => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_process_that_dies_of_a_signal_late_is_still_the_cause() {
        let trapped = std::env::temp_dir().join(format!("pleach-supervisor-late-{}", std::process::id()));
        let file = trapped.display();
        let first = format!("until [ -e {file} ]; do sleep 0.01; done; exit 1");
        let late = format!("trap '' TERM; touch {file}; sleep 0.3; kill -9 $$");
        let expected = failed(137, "process 1 was ended by signal 9, and all others were ended");
        assert_eq!(of(&[&first, &late], &[]), expected);
        std::fs::remove_file(&trapped).expect("removed");
        // SIGTERM itself comes from the launcher.
        let expected = failed(1, "process 0 failed with exit code 1, and all others were ended");
        assert_eq!(of(&["exit 1", "sleep 600"], &[]), expected);
    }

    #[test]
    fn a_process_of_another_host_that_dies_of_a_signal_is_the_cause_too() {
        let trapped = std::env::temp_dir().join(format!("pleach-supervisor-there-{}", std::process::id()));
        let file = trapped.display();
        let first = shell(0, &format!("until [ -e {file} ]; do sleep 0.01; done; exit 1"));
        // An agent ends with the code of its first failure, after it has ended its other processes.
        let script = format!("trap '' TERM; touch {file}; sleep 0.3; exit 137");
        let agent = Member { name: "host b".into(), process: None, plan: Some("{}".into()), ..shell(1, &script) };
        let expected = failed(137, "a process of host b was ended by signal 9, and all others were ended");
        assert_eq!(supervise(vec![first, agent], None, || None).expect("all start").outcome, expected);
        std::fs::remove_file(&trapped).expect("removed");
    }

    #[test]
    fn an_order_to_end_ends_all() {
        let outcome = of(&["sleep 600", "sleep 600"], &[Order::End]);
        let expected = failed(143, "process 0 was ended by signal 15, and all others were ended");
        assert_eq!(outcome, expected);
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let mut missing = shell(1, "");
        missing.command = Command::new("/no/such/program");
        let failure = supervise(vec![shell(0, "sleep 600"), missing], None, || None).expect_err("refused").to_string();
        assert!(failure.starts_with("process 1 cannot be started: "), "{failure}");
    }
}
