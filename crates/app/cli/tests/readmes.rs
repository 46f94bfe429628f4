//! The READMEs show outputs and numbers of the program, in every language, and their links lead somewhere.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::shown::{shown, shows};

const READMES: [&str; 2] = ["README.md", "README.zh-CN.md"];

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

fn readme(name: &str) -> String {
    std::fs::read_to_string(repository().join(name)).expect("a README")
}

/// Seconds that the text outside of blocks names: `104.5` of `104.5 s` and `104.5 秒`.
fn seconds_in_prose(text: &str) -> Vec<String> {
    let outside = text.split("```").step_by(2).collect::<String>();
    let words: Vec<&str> = outside.split_whitespace().collect();
    let is_unit = |word: &str| word.starts_with('秒') || word.trim_end_matches(['.', ',', ';', ':', ')']) == "s";
    let pairs = words.windows(2).filter(|pair| pair[0].parse::<f64>().is_ok() && is_unit(pair[1]));
    pairs.map(|pair| pair[0].to_string()).collect()
}

/// Output of a command line of `pleach`: standard output, then standard error.
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
        // The quick start takes longer than a test may; its sizes are compared below.
        if command != "pleach train" {
            let printed = printed(&command);
            assert!(shows(&shown, &printed.lines().collect::<Vec<_>>()), "{command} prints\n{printed}");
            held += 1;
        }
    }
    assert!(held >= 4, "{held} outputs");
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

/// The test compares sizes, not losses: a run of other sizes has other losses.
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

/// Numbers of a text without their commas: `6552` and `0.58` of `6,552 cells, 0.58 x`. Parts of words do not count:
/// `x86-64`.
fn numbers(text: &str) -> Vec<String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "._-,^".contains(c);
    let words = text.split(|c: char| !is_part(c)).map(|word| word.trim_matches(['.', ',', '-']));
    let is_number = |word: &&str| {
        word.starts_with(|c: char| c.is_ascii_digit()) && word.chars().all(|c| c.is_ascii_digit() || ".,".contains(c))
    };
    words.filter(is_number).map(|word| word.replace(',', "")).collect()
}

/// Numbers that a reader cannot count: those of three digits or more, and those with a fraction.
fn figures(text: &str) -> Vec<String> {
    numbers(text).into_iter().filter(|number| number.len() > 2 || number.contains('.')).collect()
}

/// The prose of a page without blocks and code, and its links: text and target.
fn prose_and_links(page: &str) -> (String, Vec<(String, String)>) {
    let outside = page.split("```").step_by(2).collect::<String>();
    let mut rest: &str = &outside.split('`').step_by(2).collect::<String>();
    let (mut prose, mut links) = (String::new(), vec![]);
    while let Some(end) = rest.find("](") {
        let begin = rest[..end].rfind('[').expect("the beginning of a link");
        let length = rest[end..].find(')').expect("the end of a link");
        prose += &rest[..begin];
        links.push((rest[begin + 1..end].to_string(), rest[end + 2..end + length].to_string()));
        rest = &rest[end + length + 1..];
    }
    (prose + rest, links)
}

/// The part of a page below the heading of `anchor`; without one, the page.
fn section<'a>(page: &'a str, anchor: &str) -> &'a str {
    let level = |line: &str| line.len() - line.trim_start_matches('#').len();
    let headings: Vec<(usize, &str)> = page
        .match_indices('\n')
        .map(|(at, _)| (at + 1, page[at + 1..].lines().next().unwrap_or_default()))
        .filter(|(_, line)| line.starts_with('#'))
        .collect();
    let Some(first) = headings.iter().position(|(_, line)| slug(line) == anchor) else { return page };
    let (begin, heading) = headings[first];
    let next = headings[first + 1..].iter().find(|(_, line)| level(line) <= level(heading));
    &page[begin..next.map_or(page.len(), |(at, _)| *at)]
}

/// A figure in the text of a link is one of the page that it leads to; any other is printed by a command that is shown.
#[test]
fn figures_are_those_of_the_pages_that_they_link_to() {
    for (name, folder) in [(READMES[0], ""), (READMES[1], ""), ("docs/features.md", "docs")] {
        let text = readme(name);
        let (prose, links) = prose_and_links(&text);
        let blocks = numbers(&text.split("```").skip(1).step_by(2).collect::<String>());
        for figure in figures(&prose) {
            assert!(blocks.contains(&figure), "{name}: {figure} must be in the text of a link to its page");
        }
        for (words, target) in links {
            let (path, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let file = repository().join(folder).join(path);
            assert!(file.exists(), "{name}: {target} does not exist");
            for figure in figures(&words) {
                let page = std::fs::read_to_string(&file).expect("a page");
                let is_there = numbers(section(&page, anchor)).contains(&figure);
                assert!(is_there, "{name}: {figure} is not in {target}");
            }
        }
    }
}

#[test]
fn figures_are_found_in_prose_and_in_links() {
    let page = "# A\n[1,136 cases](b.md#c), `12.5`, 96 A100, x86-64 and 6,552.\n```\n99.5\n```\n";
    let (prose, links) = prose_and_links(page);
    assert_eq!(figures(&prose), ["6552"]);
    assert_eq!(links, [("1,136 cases".to_string(), "b.md#c".to_string())]);
    assert_eq!(figures("0.58 至 0.79 倍，平均 17.8 %"), ["0.58", "0.79", "17.8"]);
    let page = "# A\n1.5\n## B c\n2.5\n### D\n3.5\n## E\n4.5\n";
    assert_eq!(section(page, "b-c"), "## B c\n2.5\n### D\n3.5\n");
}

/// The picture is the one that the program draws. `RENEW_LESSONS=1` renews it; look at it.
#[test]
fn the_picture_is_the_one_that_is_drawn() {
    let drawn = std::env::temp_dir().join(format!("pleach-step-{}.svg", std::process::id()));
    let command = "pleach simulate preset:gpt-neox-20b --software=deepspeed-2022 --set train.global_batch=384 --svg";
    printed(&format!("{command} {}", drawn.display()));
    let picture = std::fs::read_to_string(&drawn).expect("a picture");
    std::fs::remove_file(&drawn).expect("removed");
    if std::env::var_os("RENEW_LESSONS").is_some() {
        std::fs::write(repository().join("docs/pictures/step.svg"), &picture).expect("written");
    }
    assert!(picture.len() <= 200_000, "{} bytes", picture.len());
    assert!(picture == readme("docs/pictures/step.svg"), "docs/step.svg is not what `{command} FILE` draws");
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
        let of_pages = targets.filter(|target| !target.starts_with("README"));
        of_pages.map(|target| target.replace(".zh-CN.md", ".md")).collect()
    };
    // A page in both languages counts as one.
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
