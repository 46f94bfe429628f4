//! Rings, parts and reports of attempts: instructions and ends in, text out.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use blame::{
    Attempt, Attempts, Cause, CauseKind, Entry, LauncherPart, Moment, OwnFailure, Peers, ProcessEnd, ProcessPart,
    RING_ENTRIES, RankHistory, RankReport, Report, ReportedFailure, Ring, RingHeader,
};

struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("pleach-blame-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }

    fn attempt(&self) -> Attempt {
        Attempts::of_run(&self.0).begin(200, 4).expect("begun")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Rank N of process N; tensor-parallel pairs are group 0, the world is group 5.
fn header(rank: usize) -> RingHeader {
    let pair = if rank < 2 { vec![0, 1] } else { vec![2, 3] };
    let groups = BTreeMap::from([(0, pair), (5, vec![0, 1, 2, 3])]);
    RingHeader { rank, process: rank, host: format!("host{}", rank / 2), pid: 7, groups }
}

fn ring(attempt: &Attempt, rank: usize, last: &[(Peers, &str)]) -> Ring {
    let mut ring = attempt.ring(&header(rank)).expect("a ring");
    for (index, (peers, instruction)) in last.iter().enumerate() {
        ring.begin(41, *peers, instruction);
        if index + 1 < last.len() {
            ring.end();
        }
    }
    ring
}

fn part(process: usize, own: Option<OwnFailure>, heard: Option<ReportedFailure>) -> ProcessPart {
    let host = format!("host{}", process / 2);
    ProcessPart { process, host, pid: 7, ranks: vec![process], at_ns: u64::MAX - 9 + process as u64, own, heard }
}

fn end(process: usize, signal: Option<i32>, exit_code: Option<u8>, by_itself: bool) -> ProcessEnd {
    let (name, host) = (format!("process {process} (host host{})", process / 2), format!("host{}", process / 2));
    ProcessEnd { process: Some(process), name, host, signal, exit_code, cause: None, by_itself }
}

fn stopped_by(process: usize, by: usize) -> Option<OwnFailure> {
    let cause = Cause::new(CauseKind::OtherRank, format!("rank {process} stopped because rank {by} failed"));
    let instruction = "gradient norm".into();
    Some(OwnFailure { rank: Some(process), about: Some(by), step: 41, moment: Moment::InStep, instruction, cause })
}

fn heard(process: usize, kind: CauseKind) -> Option<ReportedFailure> {
    Some(ReportedFailure {
        process,
        host: format!("host{}", process / 2),
        rank: None,
        kind,
        text: "its connection was closed".into(),
    })
}

/// Four ranks: 0, 1 and 3 wait for 2.
fn four_rings(attempt: &Attempt) -> Vec<Ring> {
    vec![
        ring(attempt, 0, &[(Peers::Group(5), "gradient norm")]),
        ring(attempt, 1, &[(Peers::Rank(3), "receive gradient of layer 1, microbatch 0")]),
        ring(attempt, 2, &[(Peers::None, "load microbatch 1"), (Peers::Group(0), "forward layer 2, microbatch 1")]),
        ring(attempt, 3, &[(Peers::Group(0), "forward layer 3, microbatch 0")]),
    ]
}

#[test]
fn a_ring_keeps_the_last_instructions_of_a_rank_that_ended_in_one() {
    let folder = Folder::new();
    let path = folder.0.join("a.ring");
    let mut ring = Ring::create(&path, &header(1)).expect("a ring");
    for number in 1..=25u32 {
        let peers = if number % 2 == 0 { Peers::Group(0) } else { Peers::Rank(3) };
        ring.begin(number, peers, format_args!("forward layer {number}"));
        if number < 25 {
            ring.end();
        }
    }
    // The file is read while the rank lives, and after it.
    let [living, dead] = [false, true].map(|drops| {
        if drops {
            std::fs::copy(&path, folder.0.join("b.ring")).expect("copied");
        }
        RankHistory::read(&folder.0.join(if drops { "b.ring" } else { "a.ring" })).expect("a history")
    });
    drop(ring);
    assert_eq!(living, dead);
    assert_eq!(living.entries.len(), RING_ENTRIES);
    let shown: Vec<String> =
        living.entries.iter().map(|entry| format!("{} {}", entry.step, entry.instruction)).collect();
    assert_eq!((shown[0].as_str(), shown[19].as_str()), ("6 forward layer 6", "25 forward layer 25"));
    let peers: Vec<&[usize]> = living.entries[18..].iter().map(|entry| entry.peers.as_slice()).collect();
    assert_eq!(peers, [&[0][..], &[3]], "a rank is not a peer of itself");
    let running: Vec<bool> = living.entries.iter().map(Entry::is_running).collect();
    assert_eq!(running.iter().position(|running| *running), Some(19));
}

#[test]
fn an_entry_that_was_being_written_and_a_file_that_is_no_ring_are_not_believed() {
    let folder = Folder::new();
    let path = folder.0.join("a.ring");
    let mut ring = Ring::create(&path, &header(1)).expect("a ring");
    ring.begin(1, Peers::None, "x".repeat(500));
    ring.begin(2, Peers::None, "forward");
    drop(ring);
    let whole = std::fs::read(&path).expect("bytes");
    let mut torn = whole.clone();
    // The number of the second entry: 0 while the entry is written.
    torn[8192 + 192..8192 + 200].fill(0);
    std::fs::write(&path, &torn).expect("written");
    let entries = RankHistory::read(&path).expect("a history").entries;
    assert_eq!(entries.len(), 1);
    assert_eq!(entries[0].instruction, "x".repeat(152), "a long text is cut");
    for bytes in [&whole[..100], &[b'x'; 12_032], &[]] {
        std::fs::write(&path, bytes).expect("written");
        let refused = RankHistory::read(&path).expect_err("no ring").to_string();
        assert!(refused.ends_with("a.ring is not a ring"), "{refused}");
    }
}

#[test]
fn a_killed_rank_is_named_with_the_signal_and_its_own_last_instruction() {
    let folder = Folder::new();
    let attempt = folder.attempt();
    let _rings = four_rings(&attempt);
    for process in [0, 1, 3] {
        let seen = part(process, stopped_by(process, 2), heard(2, CauseKind::Vanished));
        attempt.add_process(&seen).expect("written");
    }
    // The launcher killed process 3 itself, which did not end in time.
    let ends = vec![end(2, Some(9), None, true), end(0, None, Some(1), false), end(3, Some(9), None, false)];
    let launcher = LauncherPart { host: "host0".into(), at_ns: u64::MAX, ends, ..LauncherPart::default() };
    attempt.add_launcher(&launcher).expect("written");
    let report = attempt.report(Some(38)).expect("a report");
    assert_eq!(
        report.line(),
        "rank 2 was killed by signal 9 (SIGKILL) in step 41 at \"forward layer 2, microbatch 1\""
    );
    let text = report.text("runs/a", report.newest_checkpoint);
    let expected = "
Rank 2 was killed by signal 9 (SIGKILL).

  host          host1, process 2 of 4
  step          41 of 200
  instruction   forward layer 2, microbatch 1
  with          rank 3
  noticed by    pleach launch on host0

Reported: it was killed by signal 9 (SIGKILL).
Nothing can refuse signal 9. Somebody sent it, or the system did: look for \"Out
of memory\" in the system's log of that host (dmesg), and for the job in the log
of the scheduler.

The newest checkpoint is that after step 38; 2 steps after it are lost, and are
done again. To resume:
  pleach train --resume runs/a
";
    assert!(text.contains(expected), "{text}");
    let words = |newest| report.text("runs/a", Some(newest)).split_whitespace().collect::<Vec<_>>().join(" ");
    let resumed = "The run was resumed since: its newest checkpoint is that after step";
    assert!(words(120).contains(&format!("{resumed} 120. To resume: pleach train --resume runs/a ")), "{}", words(120));
    assert!(words(200).contains(&format!("{resumed} 200, its last. The last")), "{}", words(200));
    assert!(
        text.contains("\n  2          step 41      forward layer 2, microbatch 1                 in it\n"),
        "{text}"
    );
    assert_eq!(report.history.iter().map(|rank| rank.rank).collect::<Vec<_>>(), [0, 1, 2, 3]);
    // The parts are gone, and the report is what was returned.
    let attempts = Attempts::of_run(&folder.0);
    assert!(attempts.open().expect("read").is_empty());
    assert_eq!(attempts.report(attempts.reported().expect("read")[0]).expect("read"), report);
}

#[test]
fn memory_that_ran_out_is_not_just_a_signal() {
    let folder = Folder::new();
    let attempt = folder.attempt();
    let _rings = four_rings(&attempt);
    let ends = vec![end(1, Some(9), None, true)];
    let launcher = LauncherPart { host: "a".into(), at_ns: 1, ends, oom_kills: 1, ..LauncherPart::default() };
    attempt.add_launcher(&launcher).expect("written");
    let line = attempt.judged(None).expect("a report").line();
    assert_eq!(line, "rank 1 ran out of memory in step 41 at \"receive gradient of layer 1, microbatch 0\"");
}

#[test]
fn a_deadline_is_blamed_on_the_rank_that_keeps_the_others_waiting() {
    let folder = Folder::new();
    let attempt = folder.attempt();
    let _rings = four_rings(&attempt);
    // Rank 0 waits for rank 1 first, which waits for rank 3, which computes.
    let cause = Cause::new(CauseKind::Deadline, "rank 0 waited 10000 ms for rank 1 in all-reduce");
    let (moment, instruction) = (Moment::InStep, "gradient norm".into());
    let own = OwnFailure { rank: Some(0), about: Some(1), step: 41, moment, instruction, cause };
    attempt.add_process(&part(0, Some(own), None)).expect("written");
    attempt.add_process(&part(3, stopped_by(3, 0), heard(0, CauseKind::Deadline))).expect("written");
    let report = attempt.judged(None).expect("a report");
    let expected = "rank 2 did not do its part in time in step 41 at \"forward layer 2, microbatch 1\"";
    assert_eq!((report.line().as_str(), report.noticed_by.as_str()), (expected, "rank 0"));
    let words = report.text("runs/a", None).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("rank 1 in all-reduce. Rank 1 was waiting itself; all waits lead to rank 2."), "{words}");
}

#[test]
fn what_others_heard_counts_where_a_process_left_nothing() {
    let folder = Folder::new();
    let attempt = folder.attempt();
    let _rings = four_rings(&attempt);
    for process in [0, 3] {
        let seen = part(process, stopped_by(process, 1), heard(1, CauseKind::Silent));
        attempt.add_process(&seen).expect("written");
    }
    let report = attempt.judged(Some(41)).expect("a report");
    let expected = "rank 1 gave no sign of life in step 41 at \"receive gradient of layer 1, microbatch 0\"";
    assert_eq!((report.line().as_str(), report.noticed_by.as_str()), (expected, "process 0"));
    assert!(
        report.text("runs/a", report.newest_checkpoint).contains("after step 41; no step is lost. To resume:\n"),
        "{}",
        report.text("runs/a", report.newest_checkpoint)
    );
}

#[test]
fn an_exit_code_counts_where_nothing_else_is_known() {
    let folder = Folder::new();
    let attempt = folder.attempt();
    let ends = vec![end(3, None, Some(7), true)];
    let launcher = LauncherPart { host: "a".into(), ends, message: "it failed".into(), ..LauncherPart::default() };
    attempt.add_launcher(&launcher).expect("written");
    let report = attempt.judged(None).expect("a report");
    assert_eq!(report.line(), "process 3 ended with exit code 7 and gave no reason before the first step");
    assert!(
        report.text("runs/a", report.newest_checkpoint).contains("There is no checkpoint, so the run begins again"),
        "{}",
        report.text("runs/a", report.newest_checkpoint)
    );
}

/// A run that ends because something cannot be written has done all of its last step.
#[test]
fn a_full_disk_is_reported_with_the_steps_that_are_lost() {
    let folder = Folder::new();
    let attempt = folder.attempt();
    let _ring = ring(&attempt, 0, &[(Peers::None, "begin to save")]);
    let cause = Cause::new(CauseKind::DiskFull, "the last checkpoint is missing: no room");
    let (moment, instruction) = (Moment::AfterStep, String::new());
    let own = OwnFailure { rank: None, about: None, step: 200, moment, instruction, cause };
    attempt.add_process(&part(0, Some(own), None)).expect("written");
    let report = attempt.judged(Some(180)).expect("a report");
    assert_eq!(report.line(), "the run could not write a file, because a disk is full after step 200");
    let words = |report: &Report| report.text("runs/a", None).split_whitespace().collect::<Vec<_>>().join(" ");
    let shown = words(&report);
    assert!(shown.contains(" step after step 200 of 200 "), "{shown}");
    assert!(shown.contains("Free space on that disk, "), "{shown}");
    assert!(shown.contains("is that after step 180; 20 steps after it are lost, and are done again."), "{shown}");
    let shown = words(&attempt.judged(None).expect("a report"));
    assert!(shown.contains("the run begins again from the start, and 200 steps are lost."), "{shown}");
    assert!(words(&Report { step: 1, ..report }).contains("no step is lost"), "a checkpoint in memory is newer");
}

#[test]
fn a_host_that_ssh_does_not_reach_is_named_with_the_remedy() {
    let folder = Folder::new();
    let attempt = folder.attempt();
    let ssh = ProcessEnd {
        process: None,
        name: "host far".into(),
        host: "far".into(),
        cause: Some(CauseKind::NotStarted),
        ..end(0, None, Some(255), true)
    };
    let message = "host far: the connection failed (exit code 255)".to_string();
    let launcher = LauncherPart { host: "near".into(), ends: vec![ssh], message, ..LauncherPart::default() };
    attempt.add_launcher(&launcher).expect("written");
    let report = attempt.judged(None).expect("a report");
    assert_eq!(report.line(), "host far did not start its processes before the first step");
    let words = report.text("runs/a", None).split_whitespace().collect::<Vec<_>>().join(" ");
    for part in
        [" host far step before the first ", "Reported: host far: the connection failed ", " BatchMode=yes HOST true`"]
    {
        assert!(words.contains(part), "{part}: {words}");
    }
}

#[test]
fn several_ranks_are_many() {
    let folder = Folder::new();
    let attempt = folder.attempt();
    let _rings: Vec<Ring> = (0..2)
        .map(|rank| {
            let mut ring = attempt.ring(&RingHeader { process: 0, ..header(rank) }).expect("a ring");
            ring.begin(41, Peers::None, "load microbatch 1");
            ring
        })
        .collect();
    let ends = vec![end(0, Some(11), None, true)];
    attempt.add_launcher(&LauncherPart { ends, ..LauncherPart::default() }).expect("written");
    let report = attempt.judged(None).expect("a report");
    let expected = "ranks 0 and 1 were killed by signal 11 (SIGSEGV) in step 41 at \"load microbatch 1\"";
    assert_eq!(report.line(), expected);
    let wrong = |kind| Report { cause: Cause::new(kind, ""), ..report.clone() }.line();
    assert!(wrong(CauseKind::Corruption).starts_with("ranks 0 and 1 have wrong bits in "));
    assert!(wrong(CauseKind::Deadline).starts_with("ranks 0 and 1 did not do their part in time in "));
}

#[test]
fn a_run_that_lost_its_power_has_the_instructions_of_all_ranks() {
    let folder = Folder::new();
    let attempt = folder.attempt();
    let _rings = four_rings(&attempt);
    let report = attempt.judged(None).expect("a report");
    assert_eq!(report.line(), "the run ended without giving a reason in step 41");
    let text = report.text("runs/a", report.newest_checkpoint);
    assert!(text.contains("  3          step 41      forward layer 3, microbatch 0                 in it\n"), "{text}");
}

#[test]
fn an_attempt_that_ends_well_leaves_nothing_and_old_reports_go() {
    let folder = Folder::new();
    let attempt = folder.attempt();
    let _rings = four_rings(&attempt);
    attempt.end_well().expect("removed");
    attempt.end_well().expect("nothing is left to remove");
    assert!(!folder.0.join("failures").exists());
    for _ in 0..102 {
        folder.attempt().report(None).expect("a report");
    }
    let reported = Attempts::of_run(&folder.0).reported().expect("read");
    assert_eq!((reported.len(), reported[0], reported[99]), (100, 3, 102), "numbers are not used again");
}

/// Every kind of cause in a run of many ranks with long names.
#[test]
fn a_report_is_80_columns_wide() {
    let kinds = [
        CauseKind::Signal,
        CauseKind::ExitCode,
        CauseKind::NotStarted,
        CauseKind::Deadline,
        CauseKind::Silent,
        CauseKind::Vanished,
        CauseKind::NonFinite,
        CauseKind::Spike,
        CauseKind::Corruption,
        CauseKind::Io,
        CauseKind::DiskFull,
        CauseKind::OutOfMemory,
        CauseKind::Panic,
        CauseKind::Disagreement,
        CauseKind::Network,
        CauseKind::Device,
        CauseKind::OtherRank,
        CauseKind::Other,
    ];
    let entry = |rank: usize| Entry {
        number: 1,
        step: 1_234_567,
        instruction: format!(
            "reduce gradients of layer {rank} made by embedding, microbatch {rank}, and a long name after it"
        ),
        peers: vec![],
        began_ns: 5_000_000_000,
        ended_ns: None,
    };
    let history =
        (0..1000).map(|rank| RankReport { rank, process: rank, host: "h".into(), instructions: vec![entry(rank)] });
    let history: Vec<RankReport> = history.collect();
    for kind in kinds {
        let cause =
            Cause { signal: Some(11), exit_code: Some(3), ..Cause::new(kind, "some cause of many words ".repeat(9)) };
        let report = Report {
            format: blame::FORMAT.into(),
            attempt: 1,
            started_ns: 1,
            failed_ns: 9_000_000_000,
            steps: 2_000_000,
            processes: 1000,
            cause,
            rank: Some(999),
            ranks: vec![999],
            process: Some(999),
            host: Some("a-host".into()),
            step: 1_234_567,
            moment: Moment::AfterStep,
            instruction: entry(999).instruction,
            peers: (0..64).collect(),
            noticed_by: "rank 3".into(),
            newest_checkpoint: None,
            history: history.clone(),
        };
        let text = report.text("runs/a", report.newest_checkpoint);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.contains("\n  and 976 more lines; `pleach blame --json` has all\n"), "{text}");
    }
}

#[test]
fn a_folder_without_attempts_has_none() {
    let attempts = Attempts::of_run(Path::new("/no/such/run"));
    assert!(attempts.open().expect("nothing").is_empty() && attempts.reported().expect("nothing").is_empty());
}
