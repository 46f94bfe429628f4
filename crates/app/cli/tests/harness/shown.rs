//! Commands with outputs, as pages show them in blocks of `console`.
//!
//! A line `…` in an output stands for any number of lines, and `…` at the end of a line for the rest of it.

/// The commands of a page, each with the output that is shown for it.
pub fn shown(text: &str) -> Vec<(String, Vec<String>)> {
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

/// Whether `shown` shows `output`.
pub fn shows(shown: &[String], output: &[&str]) -> bool {
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

#[test]
fn a_gap_matches_omitted_lines() {
    let shown = |lines: &[&str]| lines.iter().map(ToString::to_string).collect::<Vec<_>>();
    let output = ["a", "b 1", "c"];
    assert!(shows(&shown(&["a", "b 1", "c"]), &output));
    assert!(shows(&shown(&["…", "b …", "c"]), &output));
    assert!(shows(&shown(&["a", "…"]), &output));
    assert!(!shows(&shown(&["a", "b 1"]), &output));
    assert!(!shows(&shown(&["…", "b 2", "c"]), &output));
}
