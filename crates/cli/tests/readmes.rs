//! What the READMEs show is what the program prints, in every language, and what they link to is there.
//!
//! A line `…` in an output stands for any number of lines, and `…` at the end of a line for the rest of it.

use std::path::{Path, PathBuf};
use std::process::Command;

const READMES: [&str; 2] = ["README.md", "README.zh-CN.md"];

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn readme(name: &str) -> String {
    std::fs::read_to_string(repository().join(name)).expect("a README")
}

/// The commands of a README, each with the output that is shown for it.
fn shown(text: &str) -> Vec<(String, Vec<String>)> {
    let mut commands: Vec<(String, Vec<String>)> = vec![];
    let mut is_console = false;
    for line in text.lines() {
        match (line, line.strip_prefix("$ ")) {
            ("```console", _) => is_console = true,
            ("```", _) => is_console = false,
            (_, Some(command)) if is_console => commands.push((command.into(), vec![])),
            (line, _) => {
                if let (true, Some((_, output))) = (is_console, commands.last_mut()) {
                    output.push(line.into());
                }
            }
        }
    }
    commands
}

/// Seconds that the text outside of blocks names: `104.5` of `104.5 s` and `104.5 秒`.
fn seconds_in_prose(text: &str) -> Vec<String> {
    let outside = text.split("```").step_by(2).collect::<String>();
    let words: Vec<&str> = outside.split_whitespace().collect();
    let is_unit = |word: &str| word.starts_with('秒') || word.trim_end_matches(['.', ',', ';', ':', ')']) == "s";
    let pairs = words.windows(2).filter(|pair| pair[0].parse::<f64>().is_ok() && is_unit(pair[1]));
    pairs.map(|pair| pair[0].to_string()).collect()
}

/// Whether `output` is what `shown` shows of it.
fn shows(shown: &[String], output: &[&str]) -> bool {
    match shown {
        [] => output.is_empty(),
        [gap, rest @ ..] if gap == "…" => (0..=output.len()).any(|skipped| shows(rest, &output[skipped..])),
        [line, rest @ ..] => match (line.strip_suffix('…'), output) {
            (_, []) => false,
            (Some(beginning), [first, others @ ..]) => first.starts_with(beginning) && shows(rest, others),
            (None, [first, others @ ..]) => line == first && shows(rest, others),
        },
    }
}

/// What `pleach` prints for a command line, first the standard output.
fn printed(command: &str) -> String {
    let arguments = command.strip_prefix("pleach ").expect("a command of pleach").split_whitespace();
    let mut pleach = Command::new(env!("CARGO_BIN_EXE_pleach"));
    let output = pleach.args(arguments).current_dir(repository()).output().expect("the command starts");
    [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).expect("text")).concat()
}

#[test]
fn outputs_are_what_the_commands_print() {
    let mut held = 0;
    for (command, shown) in shown(&readme(READMES[0])) {
        // The others read or write a run, which takes longer than a test may, or tell what a machine has.
        if ["pleach check", "pleach simulate", "pleach plan", "pleach explain", "pleach prove", "pleach diff"]
            .iter()
            .any(|prefix| command.starts_with(prefix))
        {
            let printed = printed(&command);
            assert!(shows(&shown, &printed.lines().collect::<Vec<_>>()), "{command} prints\n{printed}");
            held += 1;
        }
    }
    assert!(held >= 8, "{held} outputs");
}

/// The text names only seconds that a command prints, so a measured time and its prediction are those of one output.
#[test]
fn seconds_in_the_text_are_printed_ones() {
    for name in READMES {
        let text = readme(name);
        let printed: String = shown(&text).into_iter().flat_map(|(_, output)| output).collect::<Vec<_>>().join("\n");
        let named = seconds_in_prose(&text);
        assert!(!named.is_empty(), "{name} names no seconds");
        for seconds in named {
            let is_printed = printed.contains(&format!(" {seconds} s"));
            assert!(is_printed, "{name} names {seconds} s, which none of the commands that it shows prints");
        }
    }
}

#[test]
fn a_published_run_is_compared_with_a_prediction_for_its_own_trainer() {
    for (command, shown) in shown(&readme(READMES[0])) {
        let compared = shown.iter().find(|line| line.starts_with("actual  "));
        if command.starts_with("pleach simulate preset:") {
            assert!(compared.is_some_and(|line| line.contains("; predicted ")), "{command} compares two trainers");
        }
    }
}

#[test]
fn seconds_are_found_in_the_text_and_not_in_blocks() {
    let text = "took 104.5 s (and\n12 steps), 7 seconds.\n```console\n$ a\nstep 3 s\n```\n用了 88.7 秒。";
    assert_eq!(seconds_in_prose(text), ["104.5", "88.7"]);
}

/// The losses of a run are not computed again here, but a run of other sizes has others.
#[test]
fn the_quick_start_is_the_one_that_is_shown() {
    let commands = shown(&readme(READMES[0]));
    let (_, lines) = commands.iter().find(|(command, _)| command == "pleach train").expect("the quick start");
    let described = printed("pleach check");
    let sizes: Vec<&String> = lines.iter().take_while(|line| *line != "…").collect();
    assert!(sizes.len() >= 4, "{lines:?}");
    for line in sizes {
        assert!(described.contains(line), "{line} is not in\n{described}");
    }
}

/// The anchor of a heading: its letters and digits in lower case, with hyphens for spaces.
fn slug(heading: &str) -> String {
    let words = heading.trim_start_matches('#').trim().to_lowercase();
    words
        .chars()
        .filter(|c| c.is_alphanumeric() || " -_".contains(*c))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

#[test]
fn every_language_shows_the_same() {
    let [first, second] = READMES.map(readme);
    assert_eq!(shown(&first), shown(&second));
    let links = |text: &str| -> Vec<String> {
        let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        targets.filter(|target| !target.starts_with("README")).map(str::to_string).collect()
    };
    assert_eq!(links(&first), links(&second));
    for link in links(&first) {
        let (path, anchor) = link.split_once('#').unwrap_or((&link, ""));
        let file = repository().join(path);
        assert!(file.exists(), "{link} is not there");
        if !anchor.is_empty() {
            let text = std::fs::read_to_string(&file).expect("a page");
            let has_anchor = text.lines().filter(|line| line.starts_with('#')).any(|line| slug(line) == anchor);
            assert!(has_anchor, "{path} has no heading of {link}");
        }
    }
}

#[test]
fn gaps_stand_for_what_is_left_out() {
    let shown = |lines: &[&str]| lines.iter().map(ToString::to_string).collect::<Vec<_>>();
    let output = ["a", "b 1", "c"];
    assert!(shows(&shown(&["a", "b 1", "c"]), &output));
    assert!(shows(&shown(&["…", "b …", "c"]), &output));
    assert!(shows(&shown(&["a", "…"]), &output));
    assert!(!shows(&shown(&["a", "b 1"]), &output));
    assert!(!shows(&shown(&["…", "b 2", "c"]), &output));
}
