//! The remedy for each cause of a failure, for people who do not know pleach.

use crate::cause::{Cause, CauseKind};

/// The remedy for `cause`; some sentences.
pub fn advice(cause: &Cause) -> &'static str {
    match cause.kind {
        CauseKind::Signal => of_signal(cause.signal),
        CauseKind::ExitCode => "The lines that this process printed last say more.",
        CauseKind::NotStarted => {
            "Try it by hand: `ssh -o BatchMode=yes HOST true` must work with the name in the list of hosts and without a password. \
             pleach must be on that host under the same path, or where --program says. --ssh COMMAND uses another program than ssh."
        }
        CauseKind::Deadline => {
            "The other ranks waited for it until run.timeout_seconds. Its last instruction shows where it is stuck or slow: a busy \
             or broken host, or a run.timeout_seconds that is shorter than that instruction takes."
        }
        CauseKind::Silent => {
            "Try to reach that host. If it answers, look for the process: its state is T where somebody has stopped it."
        }
        CauseKind::Vanished => {
            "Look for the process in the logs of its host (dmesg) and of the scheduler: it was killed, the host lost power, or memory \
             ran out."
        }
        CauseKind::Grace => {
            "A run ends after the step, or the pass of a measurement, that the signal finds it in. Set run.grace_seconds to more than \
             that takes, and give it as much time in the scheduler; a smaller run.save_every loses less."
        }
        CauseKind::NonFinite => {
            "No weight was changed. A lower learning rate, a longer warm-up or clipping may help, and so may \
             train.on_nonfinite = \"skip\"."
        }
        CauseKind::Spike => {
            "No weight was changed. Look at the text of that step and of those before it. A lower learning rate, a smaller \
             train.clip_norm or a longer warm-up may help. train.on_spike = \"skip\" leaves out such steps; \"warn\" trains on them."
        }
        CauseKind::Corruption => {
            "Memory or a processor of that host gave a wrong result. Take the host out of the job and test it before it is used again."
        }
        CauseKind::Io => {
            "The reason above names the file. Check that its folder is there, that this user may use it (`ls -ld`), and that its disk \
             answers (`df -h`)."
        }
        CauseKind::DiskFull => {
            "Free space on that disk, or copy the folder of the run to a larger one, then resume. `df -h` shows the free space of each \
             disk. A smaller run.keep_newest keeps fewer checkpoints."
        }
        CauseKind::OutOfMemory => {
            "Use a smaller parallelism.microbatch_size, a larger parallelism.zero, parallelism.recompute = \"full\", or fewer processes \
             on each host. `pleach check RUN_FILE` prints the memory of each rank. Look for other programs on that host, too."
        }
        CauseKind::Panic => "Please report it, together with this text.",
        CauseKind::Disagreement => "Start all ranks with the same program, run file and options.",
        CauseKind::Network => {
            "Check the network between the hosts, and whether somebody changes what passes; each frame is sealed, so no wrong number was used."
        }
        CauseKind::Device => {
            "See the log of the driver on that host (`dmesg`, for NVIDIA lines with \"Xid\") and the state of its GPUs (`nvidia-smi`). A \
             GPU that fails again should leave the job."
        }
        CauseKind::OtherRank => {
            "The cause is in the output of the process of that rank. Runs that `pleach launch` starts have the causes of all processes \
             in one report."
        }
        CauseKind::Other => "Correct what the reason above names, and resume.",
    }
}

fn of_signal(signal: Option<i32>) -> &'static str {
    match signal {
        Some(9) => {
            "Nothing can refuse signal 9. Somebody sent it, or the system did: look for \"Out of memory\" in the system's log of \
             that host (dmesg), and for the job in the log of the scheduler."
        }
        Some(7) => {
            "Signal 7 comes from a file in memory for which there is no room, or from faulty memory. Look at the room of /dev/shm \
             and of the run folder on that host (`df -h`), and at its log (dmesg)."
        }
        Some(4 | 6 | 8 | 11) => {
            "Such a signal comes from a fault in the program, or in the memory or the processor of that host. If it happens on one host \
             only, test that host; if not, please report it, together with this text."
        }
        Some(_) | None => {
            "A person, a scheduler or a limit of the system sent it: look for the job in the log of the scheduler, and at the limits of \
             the process (`ulimit -a`)."
        }
    }
}
