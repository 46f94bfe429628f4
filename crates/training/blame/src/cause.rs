//! Causes of failures, as a closed list that programs can match.

use serde::{Deserialize, Serialize};

/// Causes of a failure, as `pleach blame` distinguishes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CauseKind {
    /// A signal ended the process.
    Signal,
    /// The process ended with an exit code and said nothing.
    ExitCode,
    /// The processes of a host could not be started: ssh did not reach it, or it has no pleach.
    NotStarted,
    /// Another rank waited for it longer than `run.timeout_seconds`.
    Deadline,
    /// The process was silent for longer than `run.heartbeat_seconds`.
    Silent,
    /// The process ended without a word, and nobody saw its exit code.
    Vanished,
    /// The run had not ended within `run.grace_seconds` after a signal.
    Grace,
    /// A loss or a gradient was not finite.
    NonFinite,
    /// A loss or a gradient norm was far above those of the steps before, or the run diverged.
    Spike,
    /// Two computations of the same value differ, or state changed that nothing wrote.
    Corruption,
    /// A file could not be read or written.
    Io,
    /// A disk had no room for a file.
    DiskFull,
    /// Memory ran out.
    OutOfMemory,
    /// The program panicked.
    Panic,
    /// Ranks were about to do different things.
    Disagreement,
    /// A connection failed, or a frame was not that of its sender.
    Network,
    /// A GPU or its driver.
    Device,
    /// It stopped because another rank had failed: the cause of nothing.
    OtherRank,
    /// Anything else.
    Other,
}

/// A cause with its facts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cause {
    pub kind: CauseKind,
    /// The number of the signal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<u8>,
    /// One sentence or more, as the rank or the launcher reported it.
    pub text: String,
}

impl Cause {
    /// A cause without a number.
    pub fn new(kind: CauseKind, text: impl Into<String>) -> Cause {
        Cause { kind, signal: None, exit_code: None, text: text.into() }
    }
}

impl CauseKind {
    /// The kind of a cause that came as text alone, from another process or another thread, and the rank that was late
    /// where it names one. The phrases are those of this program's own messages.
    pub fn of_text(text: &str) -> (CauseKind, Option<usize>) {
        if let Some((_, rest)) = text.split_once(" ms for rank ").filter(|(before, _)| before.contains(" waited ")) {
            let digits = rest.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
            return (CauseKind::Deadline, digits.parse().ok());
        }
        let phrases = [
            (CauseKind::Silent, "it has been silent for "),
            (CauseKind::Vanished, "its connection was closed"),
            (CauseKind::Vanished, "closed the connection without a goodbye"),
            (CauseKind::Vanished, "has ended its part of the run"),
            (CauseKind::OtherRank, " stopped because "),
            (CauseKind::Network, " with a seal that is not that of its bytes"),
            (CauseKind::Network, "frames were lost, repeated or reordered"),
            (CauseKind::Network, "is not reachable any more"),
            (CauseKind::Network, "its connection failed"),
            (CauseKind::Network, "cannot be understood"),
            (CauseKind::Disagreement, "their programs differ"),
            (CauseKind::Panic, "panicked: "),
            // ENOSPC and EDQUOT of Linux, as messages of the system end.
            (CauseKind::DiskFull, "(os error 28)"),
            (CauseKind::DiskFull, "(os error 122)"),
        ];
        let found = phrases.into_iter().find(|(_, phrase)| text.contains(phrase));
        (found.map_or(CauseKind::Other, |(kind, _)| kind), None)
    }
}

/// The name of a signal, such as `SIGKILL`; empty for one without a common name.
pub(crate) fn signal_name(signal: i32) -> &'static str {
    match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        10 => "SIGUSR1",
        11 => "SIGSEGV",
        12 => "SIGUSR2",
        13 => "SIGPIPE",
        14 => "SIGALRM",
        15 => "SIGTERM",
        24 => "SIGXCPU",
        25 => "SIGXFSZ",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::CauseKind;

    #[test]
    fn texts_of_other_threads_and_processes_have_kinds() {
        let late = "rank 0 failed on its Transfer stream: rank 0 waited 1000 ms for rank 12 in all-reduce (x): rank 12 is slow";
        assert_eq!(CauseKind::of_text(late), (CauseKind::Deadline, Some(12)));
        let closed = "process 1 (rank 2) on host far closed the connection without a goodbye";
        assert_eq!(CauseKind::of_text(closed), (CauseKind::Vanished, None));
        for seal in [
            "frame 7 with a seal that is not that of its bytes: they",
            "frame 1 where frame 2 was due: frames were lost, repeated or reordered on",
        ] {
            let altered = format!("process 1 (rank 2) on host far sent {seal}");
            assert_eq!(CauseKind::of_text(&altered), (CauseKind::Network, None));
        }
        let full = "runs/a/metrics.jsonl cannot be written: No space left on device (os error 28)";
        assert_eq!(CauseKind::of_text(full), (CauseKind::DiskFull, None));
        assert_eq!(CauseKind::of_text("it waited for a miracle"), (CauseKind::Other, None));
    }
}
