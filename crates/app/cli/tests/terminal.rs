//! Screens of a terminal, as text: in tmux, at several widths, with colours and without, and where there is no
//! terminal.
//!
//! `PLEACH_TMUX` is the name of the program, otherwise `tmux`.

use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::harness::several::{Folder, TINY};
use crate::harness::{pleach, stdout};

/// A deadline that only a test that fails reaches.
const PATIENCE: Duration = Duration::from_secs(300);

/// A window of tmux with a shell command in it; its server ends with it.
struct Window {
    program: String,
    server: String,
}

impl Window {
    /// A window of `columns` columns.
    fn open(folder: &Folder, columns: usize, command: &str) -> Window {
        // A server that ends still has its socket.
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let program = std::env::var("PLEACH_TMUX").unwrap_or("tmux".into());
        let window = Window { program, server: folder.path(&format!("tmux-{number}")) };
        // A word follows the output of the command, and the window stays.
        let shell = format!("{command}; echo ended; sleep 3600");
        let size = columns.to_string();
        window.tmux(&["-f", "/dev/null", "new-session", "-d", "-x", &size, "-y", "50", &shell]);
        window
    }

    fn tmux(&self, arguments: &[&str]) -> String {
        let output = Command::new(&self.program).arg("-S").arg(&self.server).args(arguments).output();
        let output = output.expect("tmux starts");
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        stdout(&output)
    }

    /// The screen and what has scrolled away, with the codes of colours where `codes` has `-e`.
    fn text(&self, codes: &[&str]) -> String {
        self.tmux(&[&["capture-pane", "-p", "-J", "-S", "-1000"], codes].concat())
    }

    /// The same as soon as it `has` something.
    fn text_with(&self, has: impl Fn(&str) -> bool) -> String {
        let began = Instant::now();
        loop {
            let text = self.text(&[]);
            if has(&text) {
                return text;
            }
            assert!(began.elapsed() < PATIENCE, "the screen is still\n{text}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn ended(&self) -> String {
        let text = self.text_with(|text| text.lines().any(|line| line == "ended"));
        text.lines().take_while(|line| *line != "ended").map(|line| format!("{}\n", line.trim_end())).collect()
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        let _ = Command::new(&self.program).arg("-S").arg(&self.server).arg("kill-server").output();
    }
}

/// `pleach train` of a moment, as a shell reads it.
fn training(folder: &Folder, name: &str, more: &[&str]) -> String {
    let run = folder.run(name);
    let keys = TINY.iter().chain(more).copied().chain([run.as_str()]);
    let keys: String = keys.map(|key| format!(" --set '{key}'")).collect();
    format!("{} train{keys}", env!("CARGO_BIN_EXE_pleach"))
}

/// Lines of steps without numbers that depend on the machine: speed, share of the peak and idle time.
fn steps(text: &str) -> Vec<String> {
    let lines = text.lines().filter(|line| line.starts_with("step ") && line.contains("  loss "));
    let is_of_machine = |field: &str| ["tokens/s", "GFLOP/s", "idle"].iter().any(|unit| field.contains(unit));
    let unit = |field: &str| match ["tokens/s", "GFLOP/s", "idle"].into_iter().find(|unit| field.contains(unit)) {
        Some(unit) => unit.to_string(),
        None => field.to_string(),
    };
    // The idle time has a space more where it is below 10 %.
    let fields = |line: &str| line.split("  ").filter(|field| !field.is_empty()).map(unit).collect::<Vec<_>>();
    let line = |line: &str| {
        let mut fields = fields(line);
        fields.retain(|field| !field.ends_with('%') || is_of_machine(field));
        fields.join("  ")
    };
    lines.map(line).collect()
}

const FEW: [&str; 2] = ["run.evaluate_every=3", "run.log_every=2"];

/// Every width has the lines that fit, each as it is without a terminal; no line is longer than its window, and no bar
/// is left.
#[needs::tmux]
#[test]
fn lines_of_a_run_fit_their_window() {
    let folder = Folder::new("terminal");
    let run = folder.run("piped");
    let keys = TINY.iter().chain(&FEW).copied().chain([run.as_str()]).flat_map(|key| ["--set", key]);
    let piped = stdout(&pleach(&["train"].into_iter().chain(keys).collect::<Vec<_>>()));
    let whole = steps(&piped);
    assert_eq!(whole.len(), 3, "steps 1, 2 and 4\n{piped}");
    assert!(!piped.contains('\u{1b}') && piped.contains(" left  "), "{piped}");
    for (columns, last) in [(60, "grad norm"), (80, "tokens/s"), (200, "GFLOP/s")] {
        let coloured = training(&folder, &format!("coloured-{columns}"), &FEW);
        let plain = format!("NO_COLOR=1 {}", training(&folder, &format!("plain-{columns}"), &FEW));
        let command = format!("{coloured}; echo the-second; {plain}");
        let window = Window::open(&folder, columns, &command);
        let text = window.ended();
        let (coloured, plain) = text.split_once("\nthe-second\n").expect("two runs");
        assert_eq!(steps(coloured), steps(plain), "colours change no letter\n{text}");
        for (line, whole) in steps(plain).iter().zip(&whole) {
            // Without a terminal there is the time that the run still takes.
            let parts: Vec<&str> = whole.split("  ").filter(|field| !field.ends_with(" left")).collect();
            assert!(parts.join("  ").starts_with(line.as_str()), "{columns}: {line}\n{whole}");
            assert!(line.split("  ").any(|field| field.starts_with(last)), "{columns}: {line}");
        }
        assert_eq!(steps(plain).len(), 3, "{text}");
        assert!(text.contains("held-out loss "), "{text}");
        for bar in ['█', '░'] {
            assert!(!text.contains(bar), "a bar is left\n{text}");
        }
        // The sample is the model's own text, and a path has no place to be broken.
        let own = plain.split("\nsample ").next().unwrap_or_default();
        let long = own.lines().filter(|line| line.chars().count() > columns && !line.contains(&folder.path("")));
        assert_eq!(long.collect::<Vec<_>>(), [""; 0], "{columns} columns");
        let codes = window.text(&["-e"]);
        let (coloured, plain) = codes.split_once("the-second\n").expect("two runs");
        let has_colours = |text: &str| text.lines().any(|line| line.contains("loss") && line.contains("\u{1b}["));
        assert!(has_colours(coloured) && !has_colours(plain), "{codes:?}");
    }
}

/// While a run continues, its bar is the last line, below lines that stay; after Ctrl-C it is gone.
#[needs::tmux]
#[test]
fn the_bar_is_one_line_and_ends_with_the_run() {
    let folder = Folder::new("terminal-bar");
    let long = ["train.steps=1000000", "run.log_every=2", "run.save_every=0"];
    let command = format!("{}; echo code $?", training(&folder, "run", &long));
    let window = Window::open(&folder, 70, &command);
    let is_running = |text: &str| {
        let lines: Vec<&str> = text.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
        lines.last().is_some_and(|line| line.contains("step") && line.contains("loss") && !line.starts_with("step"))
            && lines.iter().filter(|line| line.starts_with("step ")).count() >= 3
    };
    // Ctrl-C and its echo come while the bar is there, at any moment.
    let text = window.text_with(is_running);
    let bars = text.lines().filter(|line| line.contains(" loss ") && !line.starts_with("step "));
    assert_eq!(bars.count(), 1, "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 70 || line.contains(&folder.path(""))), "{text}");
    window.tmux(&["send-keys", "C-c"]);
    let text = window.ended();
    assert!(text.contains("stopping after this step") && text.contains("\ncode 130\n"), "{text}");
    let lines_of_steps = |line: &&str| line.contains(" loss ") && !line.starts_with("step ");
    assert_eq!(text.lines().filter(lines_of_steps).collect::<Vec<_>>(), [""; 0], "a bar is left\n{text}");
}

/// A terminal that cannot write over a line has lines only, and a window that is too narrow for a bar has none.
#[needs::tmux]
#[test]
fn dumb_terminals_and_tiny_windows_have_no_bar() {
    let folder = Folder::new("terminal-dumb");
    for (columns, name, term) in
        [(100, "dumb", "TERM=dumb"), (100, "unset", "env -u TERM"), (40, "narrow", ""), (12, "tiny", "")]
    {
        let command = format!("{term} {}", training(&folder, name, &FEW));
        let window = Window::open(&folder, columns, &command);
        let text = window.ended();
        assert_eq!(text.contains("  0:00 left"), columns == 100, "{name}: lines of steps\n{text}");
        assert_eq!(text.lines().filter(|line| line.starts_with("step 4/4")).count(), 1, "{name}\n{text}");
        // The sample is the model's own text.
        let own = text.split("\nsample ").next().unwrap_or_default();
        assert!(!own.contains(['\u{1b}', '█', '░', '[']), "{name}: a code or a bar is left\n{text}");
    }
}

/// Tables and sentences of other commands have the columns of their window; pictures of a pipeline are as wide as they
/// are.
#[needs::tmux]
#[test]
fn results_fit_their_window() {
    let folder = Folder::new("terminal-results");
    let program = env!("CARGO_BIN_EXE_pleach");
    for (columns, command) in [
        (60, "check"),
        (60, "simulate --cluster=a100-80g-dgx"),
        (80, "simulate preset:bloom-176b"),
        (80, "explain --set parallelism.pp=4"),
        (60, "plan --gpus=8 --cluster=a100-80g-dgx --top 2"),
    ] {
        let window = Window::open(&folder, columns, &format!("{program} {command}"));
        let text = window.ended();
        assert!(text.lines().count() > 8, "{command}\n{text}");
        let long = text.lines().filter(|line| line.chars().count() > columns && !line.contains('|'));
        assert_eq!(long.collect::<Vec<_>>(), [""; 0], "{command} at {columns} columns");
    }
}
