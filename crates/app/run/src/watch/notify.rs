//! A command of the user that is called on events of a run.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use config::{Secret, Trusted, without_credentials};
use launcher::variable;
use sync::lock;

use crate::messages::stderr::tell;

/// Longest time that a call may take; it is ended then.
const DEADLINE: Duration = Duration::from_secs(60);
/// Longest time that the end of a run waits for calls that still run; they are ended then.
const PATIENCE: Duration = Duration::from_secs(5);
/// Calls that may run at the same time: a run may have an anomaly in each step.
const MOST_CALLS: usize = 8;
/// The text of the command is in the environment, which other users do not see as they see the words of a process.
const CALL: &str = "eval \"unset PLEACH_COMMAND; $PLEACH_COMMAND\"";
/// How often calls are looked at.
const GLANCE: Duration = Duration::from_millis(100);

/// An event of which the command hears.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The first step is about to begin.
    Started,
    /// A step is not as usual.
    Anomaly,
    /// A rank or a link is slower than its peers.
    Straggler,
    /// A checkpoint could not be written.
    NotSaved,
    /// All steps are done.
    Finished,
    /// A signal has ended the run, with a checkpoint.
    Stopped,
    /// The run has failed.
    Failed,
}

impl Event {
    /// The value of `PLEACH_EVENT`.
    pub fn name(self) -> &'static str {
        match self {
            Event::Started => "started",
            Event::Anomaly => "anomaly",
            Event::Straggler => "straggler",
            Event::NotSaved => "not-saved",
            Event::Finished => "finished",
            Event::Stopped => "stopped",
            Event::Failed => "failed",
        }
    }
}

/// The command of `run.notify`.
pub struct Notify {
    command: Trusted<Secret>,
    run: PathBuf,
    calls: Arc<Mutex<Calls>>,
    /// Ends the thread that looks after the calls; none before the first call.
    over: Mutex<Option<Sender<()>>>,
}

/// The calls of the command that have not ended.
#[derive(Default)]
struct Calls {
    running: Vec<Call>,
    /// Whether a failure was printed: others are likely to have the same cause.
    is_failure_told: bool,
}

struct Call {
    child: Child,
    event: Event,
    since: Instant,
}

impl Notify {
    /// `command` for the run in `run`.
    pub fn new(command: &Trusted<Secret>, run: &Path) -> Notify {
        Notify { command: command.clone(), run: run.into(), calls: Arc::default(), over: Mutex::default() }
    }

    /// Calls the command and does not wait for it. Its messages go to the standard error.
    pub fn event(&self, event: Event, step: u32, message: &str) {
        let mut calls = lock(&self.calls);
        if calls.running.len() >= MOST_CALLS {
            return calls.tell(event, &format!("was not called: {MOST_CALLS} calls have not ended"));
        }
        let mut command = Command::new("sh");
        command.args(["-c", CALL]).env(variable::COMMAND, self.command.reveal());
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.env(variable::EVENT, event.name()).env(variable::RUN, &self.run);
        command.env(variable::STEP, step.to_string()).env(variable::MESSAGE, without_credentials(message));
        // The secrets of the run are for its processes alone.
        command.env_remove(variable::TOKEN).env_remove(variable::SECRET);
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        match command.spawn() {
            Ok(child) => calls.running.push(Call { child, event, since: Instant::now() }),
            Err(error) => calls.tell(event, &format!("cannot be started: {error}")),
        }
        drop(calls);
        self.look_on();
    }

    /// Starts the thread that looks after calls, unless it runs.
    fn look_on(&self) {
        let mut over = lock(&self.over);
        if over.is_some() {
            return;
        }
        let (sender, ended) = channel();
        let calls = Arc::clone(&self.calls);
        let look = move || {
            while ended.recv_timeout(GLANCE) == Err(RecvTimeoutError::Timeout) {
                lock(&calls).look(DEADLINE);
            }
        };
        // Without the thread, calls are looked after at the end of the run.
        *over = sync::start("notify", look).ok().map(|_| sender);
    }
}

impl Calls {
    /// Takes note of calls that have ended, and ends those that are older than `deadline`, with their children.
    fn look(&mut self, deadline: Duration) {
        for mut call in std::mem::take(&mut self.running) {
            match call.child.try_wait() {
                Ok(None) if call.since.elapsed() < deadline => self.running.push(call),
                Ok(None) => {
                    let seconds = call.since.elapsed().as_secs();
                    call.end();
                    self.tell(call.event, &format!("did not end within {seconds} s, and was ended"));
                }
                Ok(Some(status)) if status.success() => {}
                Ok(Some(status)) => self.tell(call.event, &format!("failed with {status}")),
                Err(error) => self.tell(call.event, &format!("cannot be waited for: {error}")),
            }
        }
    }

    /// Tells the first failure of the command.
    fn tell(&mut self, event: Event, what: &str) {
        if !std::mem::replace(&mut self.is_failure_told, true) {
            let event = event.name();
            tell(&format!(
                "run.notify {what}, at the event \"{event}\"; the run is unharmed, and later failures of it are not reported\n"
            ));
        }
    }
}

impl Call {
    /// Ends the command and all that it has started.
    fn end(&mut self) {
        if let Some(group) = i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw) {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Notify {
    fn drop(&mut self) {
        *lock(&self.over) = None;
        let until = Instant::now() + PATIENCE;
        let mut calls = lock(&self.calls);
        loop {
            calls.look(DEADLINE);
            if calls.running.is_empty() {
                return;
            }
            if Instant::now() >= until {
                return calls.look(Duration::ZERO);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let path = std::env::temp_dir().join(format!("pleach-notify-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&path).expect("a folder");
            Folder(path)
        }

        fn text(&self, name: &str) -> String {
            std::fs::read_to_string(self.0.join(name)).unwrap_or_default()
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn of_user(command: &str) -> Trusted<Secret> {
        Trusted::of_command_line(Secret::new(command.into()))
    }

    #[test]
    fn the_command_hears_event_run_step_and_message() {
        let folder = Folder::new("hears");
        let command = "echo \"$PLEACH_EVENT $PLEACH_STEP $PLEACH_MESSAGE\" >> \"$PLEACH_RUN/heard\"";
        let notify = Notify::new(&of_user(command), &folder.0);
        notify.event(Event::Anomaly, 7, "loss \"NaN\"; $(false)");
        // The end of a run waits for commands.
        drop(notify);
        assert_eq!(folder.text("heard"), "anomaly 7 loss \"NaN\"; $(false)\n");
    }

    #[test]
    fn the_words_of_its_process_do_not_have_the_command() {
        let folder = Folder::new("words");
        let command = "cat /proc/$$/cmdline > \"$PLEACH_RUN/words\"; env > \"$PLEACH_RUN/environment\" # secret";
        let notify = Notify::new(&of_user(command), &folder.0);
        notify.event(Event::Started, 0, "");
        drop(notify);
        let (words, environment) = (folder.text("words"), folder.text("environment"));
        assert!(words.starts_with("sh\0-c\0") && !words.contains("secret"), "{words}");
        assert!(environment.contains("PLEACH_EVENT=started") && !environment.contains("secret"), "{environment}");
    }

    /// Whether the process of this number is there and does something.
    fn runs(process: &str) -> bool {
        let status = std::fs::read_to_string(format!("/proc/{}/stat", process.trim())).unwrap_or_default();
        status.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with(['Z', 'X']))
    }

    #[test]
    fn a_command_that_hangs_is_ended_with_its_children() {
        let folder = Folder::new("hangs");
        let command =
            "sleep 1000 & echo $! > \"$PLEACH_RUN/child\"; mv \"$PLEACH_RUN/child\" \"$PLEACH_RUN/one\"; wait";
        let notify = Notify::new(&of_user(command), &folder.0);
        notify.event(Event::Started, 0, "");
        while folder.text("one").is_empty() {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(runs(&folder.text("one")), "it hangs");
        let mut calls = lock(&notify.calls);
        calls.look(DEADLINE);
        assert_eq!((calls.running.len(), calls.is_failure_told), (1, false));
        calls.look(Duration::ZERO);
        assert_eq!((calls.running.len(), calls.is_failure_told), (0, true));
        while runs(&folder.text("one")) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_failure_is_told_once_and_few_calls_run_at_the_same_time() {
        let folder = Folder::new("fails");
        let notify = Notify::new(&of_user("exec sleep 1000"), &folder.0);
        for step in 0..20 {
            notify.event(Event::Anomaly, step, "");
        }
        let mut calls = lock(&notify.calls);
        assert_eq!((calls.running.len(), calls.is_failure_told), (MOST_CALLS, true));
        calls.look(Duration::ZERO);
        assert!(calls.running.is_empty());
        drop(calls);
        let failing = Notify::new(&of_user("exit 3"), &folder.0);
        for step in 0..3 {
            failing.event(Event::Anomaly, step, "");
        }
        while !lock(&failing.calls).running.is_empty() {
            lock(&failing.calls).look(DEADLINE);
        }
        assert!(lock(&failing.calls).is_failure_told);
    }
}
