//! File descriptors of the processes of a run, compared with the limit before anything is started.

use config::figures::counted;

use crate::failure::Failure;

/// Descriptors of a process without others: its streams, files, listeners and queues of events, with room for those
/// that are open for a moment.
const OWN: usize = 20;
/// The descriptors of a launcher.
const LAUNCHER: usize = 12;
/// Pipes of a process for its launcher: its output and its messages, or for an agent its input.
const PIPES: usize = 2;

/// Checks that process `process` of `processes` may open its connections and a file for each of its `ranks`.
///
/// # Errors
/// A limit that is too low, with the number that is needed.
pub fn check_process(process: usize, processes: usize, ranks: usize) -> Result<(), Failure> {
    check(process_need(process, processes, ranks), || {
        format!("process {process} of {processes} with {}", counted(ranks as u64, "rank"))
    })
}

/// Checks that a launcher may supervise `members` processes.
///
/// # Errors
/// The errors of [`check_process`].
pub fn check_launcher(members: usize) -> Result<(), Failure> {
    check(LAUNCHER + PIPES * members, || format!("a launcher of {members} processes"))
}

/// Ranks have a connection to each other process; the control channel has one between process 0 and each other process.
/// Each rank writes a file of a checkpoint.
fn process_need(process: usize, processes: usize, ranks: usize) -> usize {
    let peers = processes.saturating_sub(1);
    let control = if process == 0 { peers } else { 1 };
    OWN + peers + control + ranks
}

fn check(need: usize, holder: impl FnOnce() -> String) -> Result<(), Failure> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    refusal(limit.current, limit.maximum, need, holder).map_or(Ok(()), |text| Err(Failure::Input(text)))
}

/// The message where the `current` limit is below `need`; `most` is the value up to which a process may raise it.
fn refusal(current: Option<u64>, most: Option<u64>, need: usize, holder: impl FnOnce() -> String) -> Option<String> {
    let need = need as u64;
    let current = current.filter(|current| *current < need)?;
    let by_whom = match most.filter(|most| *most < need) {
        Some(most) => {
            format!(" (the hard limit is {most}: raise it as root, in limits.conf or as LimitNOFILE of the service)")
        }
        None => String::new(),
    };
    Some(format!(
        "open files: ulimit -n = {current} must be at least {need} for {}; use `ulimit -n {need}` before the start on each host{by_whom}",
        holder()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_low_limit_is_named_with_the_number_that_is_needed() {
        assert_eq!((process_need(0, 2, 4), process_need(1, 2, 4)), (26, 26));
        assert_eq!((process_need(0, 64, 1), process_need(5, 64, 1)), (147, 85));
        let text = |current, most| refusal(Some(current), most, 26, || "process 0 of 2 with 4 ranks".into());
        assert_eq!((text(26, Some(26)), refusal(None, None, 26, String::new)), (None, None));
        let expected = "open files: ulimit -n = 20 must be at least 26 for process 0 of 2 with 4 ranks; use `ulimit -n 26` before \
                        the start on each host";
        assert_eq!(text(20, Some(4096)).as_deref(), Some(expected));
        let hard = format!(
            "{expected} (the hard limit is 25: raise it as root, in limits.conf or as LimitNOFILE of the service)"
        );
        assert_eq!(text(20, Some(25)), Some(hard));
    }
}
