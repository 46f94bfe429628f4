//! Disks without room, readers that go away, folders and texts that cannot be used: what is said, how the command
//! exits, and that nothing is lost.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// A run of a moment.
const TINY: &[&str] = &[
    "run.ranks=1",
    "model.num_layers=1",
    "model.hidden=16",
    "model.num_heads=2",
    "model.context=16",
    "data.tokenizer=bytes",
    "data.held_out=0.001",
    "train.global_batch=2",
    "train.steps=4",
];

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("pleach-endings-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }

    fn file(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, content).expect("a file");
        path
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).expect("a folder");
        let mut names: Vec<String> =
            entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// `pleach train` of a tiny run into `folder`, with more settings.
fn train(folder: &Path, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pleach"));
    command.args(["train", "--set"]).arg(format!("run.folder={}", folder.display()));
    command.args(TINY.iter().chain(more).flat_map(|setting| ["--set", setting]));
    command
}

fn output(command: &mut Command) -> (Option<i32>, String) {
    let Output { status, stderr, .. } = command.output().expect("the command starts");
    (status.code(), String::from_utf8(stderr).expect("text"))
}

/// A device on which every write finds the disk full.
fn full() -> fs::File {
    fs::OpenOptions::new().write(true).open("/dev/full").expect("the device")
}

/// `command` with a limit on the length of files, which stands for a disk without room; blocks have 512 or 1024 bytes.
fn limited(blocks: u32, command: &Command) -> Command {
    let script = format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$0\" \"$@\"");
    let mut limited = Command::new("sh");
    limited.args(["-c", &script]).arg(command.get_program()).args(command.get_args());
    limited
}

#[test]
fn a_disk_that_fills_up_ends_the_run_and_leaves_its_weights() {
    let folder = Folder::new("metrics");
    // Room for the weights, and not for the metrics of all steps.
    let (code, reported) = output(&mut limited(80, &train(&folder.0, &["train.steps=1000"])));
    assert_eq!(code, Some(1), "{reported}");
    let last = reported.lines().last().expect("a line").replace(&folder.0.display().to_string(), "FOLDER");
    // Moments do not fit either, so there is no checkpoint.
    let reasons = [
        "FOLDER/metrics.jsonl cannot be written: File too large (os error 27); `ulimit -f` shows the limit of this process; ",
        "the last checkpoint is missing: FOLDER/checkpoints/",
    ];
    assert!(last.starts_with(&reasons.concat()), "{last}");
    let step = last
        .split_once("; the run was stopped after step ")
        .and_then(|(_, rest)| rest.strip_suffix(" of 1000, and its weights are in FOLDER; there is no checkpoint"))
        .unwrap_or_else(|| panic!("{last}"));
    assert!((2..1000).contains(&step.parse::<u32>().expect("a step")), "{step}");
    let mut blame = Command::new(env!("CARGO_BIN_EXE_pleach"));
    let shown = String::from_utf8(blame.arg("blame").arg(&folder.0).output().expect("it starts").stdout).expect("text");
    let words = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains(" The run could not read or write a file. "), "{shown}");
    assert!(words.contains(&format!(" step after step {step} of 1000 ")), "{shown}");
    assert!(words.contains(&format!("from the start, and {step} steps are lost. ")), "{shown}");
    let mut generate = Command::new(env!("CARGO_BIN_EXE_pleach"));
    generate.args(["generate", "--prompt", "a", "--max-tokens", "1", "--from"]).arg(&folder.0);
    assert_eq!(output(&mut generate).0, Some(0), "the weights can be used");
}

/// A file system of its own, which another program fills while the run trains. It needs root.
#[needs::namespaces]
#[test]
fn a_full_disk_is_named_with_the_steps_that_are_lost() {
    let folder = Folder::new("full");
    let script = "mount -t tmpfs -o size=4m none \"$1\" || exit 77; cd \"$1\"; shift; \"$@\" --quiet --set run.folder=run \
                  --set run.save_every=0 --set run.notify='test $PLEACH_EVENT = started && head -c 9m /dev/zero > filler'; \
                  echo \"code $?\"; df -k . | tail -1; \"$1\" blame run; echo \"code $?\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, "sh"]).arg(&folder.0).args([env!("CARGO_BIN_EXE_pleach"), "train"]);
    command.args(TINY.iter().chain(&["train.steps=20000"]).flat_map(|setting| ["--set", setting]));
    let output = command.output().expect("unshare of util-linux");
    let [stdout, stderr] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).expect("text"));
    assert_eq!(output.status.code(), Some(0), "root may mount a file system: {stderr}");
    assert!(stdout.starts_with("code 1\n") && stdout.ends_with("\ncode 0\n"), "{stdout}{stderr}");
    let last = stderr.lines().rfind(|line| line.contains("the run was stopped")).expect("a line");
    assert!(last.starts_with("run/metrics.jsonl cannot be written: No space left on device (os error 28); "), "{last}");
    for part in [
        "; its disk or quota has no room for it (",
        "; the last checkpoint is missing: ",
        " of 20000, and its weights are in run; there is no checkpoint",
    ] {
        assert!(last.contains(part), "{part}: {last}");
    }
    let step = last.split_once(" after step ").and_then(|(_, rest)| rest.split_once(' ')).expect("a step").0;
    let words = stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("The run could not write a file, because a disk is full. "), "{stdout}");
    assert!(words.contains(&format!(" step after step {step} of 20000 ")), "{stdout}");
    assert!(words.contains(&format!("from the start, and {step} steps are lost. ")), "{stdout}");
}

#[test]
fn weights_have_their_room_before_the_first_step() {
    let folder = Folder::new("room");
    for name in ["run.toml", "weights.safetensors", "metrics.jsonl"] {
        folder.file(name, b"of an earlier run");
    }
    let (code, reported) = output(&mut limited(8, &train(&folder.0, &[])));
    assert_eq!(code, Some(2), "{reported}");
    let (first, message) = reported.split_once('\n').expect("two lines");
    let kept = PathBuf::from(first.split_once(" is kept as ").expect("a name").1);
    assert_eq!(
        message.replace(&folder.0.display().to_string(), "FOLDER"),
        "FOLDER/weights.safetensors needs 32448 bytes, for which there is no room: File too large (os error 27); \
         nothing under that name was changed; use another folder: --set run.folder=...\n"
    );
    assert_eq!(folder.names(), ["checkpoints"]);
    for name in ["metrics.jsonl", "run.toml", "weights.safetensors"] {
        assert_eq!(fs::read(kept.join(name)).expect("a file"), b"of an earlier run");
    }
    fs::remove_dir_all(&kept).expect("removed");
}

#[test]
fn output_that_cannot_be_written_is_a_failure_and_a_closed_pipe_is_none() {
    let commands: [&[&str]; 5] = [
        &["check"],
        &["check", "--json", "--set", "train.steps=0"],
        &["explain"],
        &["completions", "bash"],
        &["doctor", "--json"],
    ];
    for arguments in commands {
        let command = || {
            let mut command = Command::new(env!("CARGO_BIN_EXE_pleach"));
            command.args(arguments).stderr(Stdio::piped());
            command
        };
        let (code, reported) = output(command().stdout(full()));
        assert_eq!(code, Some(1), "{arguments:?}");
        assert_eq!(reported, "the output cannot be written: No space left on device (os error 28)\n", "{arguments:?}");
        let mut child = command().stdout(Stdio::piped()).spawn().expect("the command starts");
        drop(child.stdout.take());
        let expected = if arguments.contains(&"train.steps=0") { 2 } else { 0 };
        assert_eq!(child.wait().expect("an end").code(), Some(expected), "{arguments:?}");
    }
}

#[test]
fn a_folder_that_cannot_be_written_is_reported_before_the_first_step() {
    let (code, reported) = output(&mut train(Path::new("/proc/self"), &[]));
    assert_eq!(code, Some(2), "{reported}");
    assert!(reported.starts_with("/proc/self/checkpoints cannot be written: "), "{reported}");
    assert!(reported.ends_with("; use another folder: --set run.folder=...\n"), "{reported}");
}

/// Waits until the child handles the signal of Ctrl-C, which is when its work begins.
fn wait_until_it_listens(child: &Child) {
    let listens = || {
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).ok()?;
        let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"))?;
        let caught = u64::from_str_radix(mask.trim(), 16).ok()?;
        // SIGINT is signal 2, SIGTERM signal 15.
        Some(caught & (1 << 1) != 0 && caught & (1 << 14) != 0)
    };
    while listens() != Some(true) {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

/// Waits until the folder has the run file of a run with this line.
fn wait_until_it_runs(folder: &Folder, line: &str) {
    let runs = || fs::read_to_string(folder.0.join("run.toml")).is_ok_and(|file| file.contains(line));
    while !runs() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

fn signal(child: &Child, name: &str) {
    let status = Command::new("kill").args([name, &child.id().to_string()]).status().expect("kill");
    assert!(status.success());
}

#[test]
fn two_runs_do_not_share_a_folder() {
    let folder = Folder::new("two");
    let endless = ["train.steps=1000000"];
    let mut first = train(&folder.0, &endless).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    wait_until_it_runs(&folder, "steps = 1000000\n");
    let (code, reported) = output(&mut train(&folder.0, &[]));
    assert_eq!(code, Some(2), "{reported}");
    assert!(reported.contains("another run writes "), "{reported}");
    assert!(reported.contains(&format!("(process {} on host ", first.id())), "{reported}");
    // The first has no checkpoint yet; that is not why it cannot be resumed.
    let resume = ["train", "--resume", &folder.0.display().to_string()].map(str::to_string);
    let (code, reported) = output(Command::new(env!("CARGO_BIN_EXE_pleach")).args(&resume));
    assert_eq!(code, Some(2), "{reported}");
    assert!(reported.starts_with("another run writes ") && reported.lines().count() == 1, "{reported}");
    assert!(reported.contains(&format!("(process {} on host ", first.id())), "{reported}");
    assert!(reported.contains("; wait for its end, or end that process; copy the folder of the run, "), "{reported}");
    // A signal of a scheduler acts like Ctrl-C.
    signal(&first, "-TERM");
    assert_eq!(first.wait().expect("an end").code(), Some(143));
    assert!(folder.0.join("weights.safetensors").is_file());
    assert!(fs::read_to_string(folder.0.join("run.toml")).expect("a file").contains("steps = 1000000\n"));
    // The lock of a process that was killed does not count.
    for _ in 0..2 {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pleach"));
        let command = command.args(&resume).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().expect("it starts");
        let held = format!("process {} ", child.id());
        while !fs::read_to_string(folder.0.join("checkpoints/.lock")).is_ok_and(|text| text.starts_with(&held)) {
            assert!(child.try_wait().expect("a child").is_none(), "it was refused");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        signal(&child, "-KILL");
        child.wait().expect("an end");
    }
}

#[test]
fn a_killed_run_leaves_no_weights_of_an_earlier_one() {
    let folder = Folder::new("earlier");
    assert_eq!(output(&mut train(&folder.0, &[])).0, Some(0));
    assert!(folder.0.join("weights.safetensors").is_file());
    let endless = ["train.steps=1000000"];
    let mut run = train(&folder.0, &endless).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    wait_until_it_runs(&folder, "steps = 1000000\n");
    signal(&run, "-KILL");
    run.wait().expect("an end");
    assert!(!folder.0.join("weights.safetensors").is_file(), "the run file is that of the other run");
}

#[test]
fn interrupted_commands_exit_with_130() {
    let folder = Folder::new("interrupt");
    assert_eq!(output(&mut train(&folder.0, &[])).0, Some(0));
    // So much that it takes minutes.
    let text = folder.file("text.txt", "A line that is measured.\n".repeat(400_000).as_bytes()).display().to_string();
    let commands: [&[&str]; 2] =
        [&["generate", "--prompt", "a", "--max-tokens", "100000000"], &["eval", "--data", &text]];
    for arguments in commands {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pleach"));
        command.args(arguments).arg("--from").arg(&folder.0).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().expect("the command starts");
        wait_until_it_listens(&child);
        signal(&child, "-INT");
        assert_eq!(child.wait().expect("an end").code(), Some(130), "{arguments:?}");
    }
}

#[test]
fn text_that_cannot_be_used_is_reported_and_nothing_is_begun() {
    let folder = Folder::new("text");
    let text = folder.0.join("text");
    fs::create_dir_all(text.join("nothing")).expect("a folder");
    let files: [(&str, &[u8], &str); 6] = [
        ("empty.txt", b"", "holds no text; name a text file, or a folder with text files"),
        ("nothing", b"", "holds no text; name a text file, or a folder with text files"),
        ("latin.txt", b"caf\xe9 au lait, and more than one sequence of text\n", "is not UTF-8 at byte 3; convert it"),
        (
            "short.txt",
            b"hello\nyou\n",
            "has 10 tokens, but train.sequence_length = 16 needs 17; give more text or shorter",
        ),
        ("a.jsonl", b"{\"text\": \"x\"}\n{\"txt\": 1}\n", ":2 (byte 14) "),
        ("absent.txt", b"", "cannot be read: No such file or directory (os error 2)"),
    ];
    for (name, content, expected) in files {
        let path = text.join(name);
        if !["nothing", "absent.txt"].contains(&name) {
            fs::write(&path, content).expect("a file");
        }
        let run = folder.0.join("run");
        let mut command = train(&run, &["data.held_out=0"]);
        let (code, reported) = output(command.arg("--data").arg(&path));
        assert_eq!(code, Some(2), "{name}: {reported}");
        assert!(reported.contains(expected) && reported.lines().count() == 1, "{name}: {reported}");
        assert!(!run.exists(), "{name} began a run");
    }
}
