//! Names out of files of others, in results and messages, and the text that a model makes: none of their characters
//! steers the terminal of who reads them. The verdict of every case looks for such characters; these have them.

use std::process::Command;

use crate::hostile::case::{Case, Content, case, replaced};
use crate::hostile::checkpoints::seal;
use crate::hostile::fixtures::{Fixture, SMALL};
use crate::hostile::verdict::hold;

/// Escapes of JSON and of TOML for what makes a terminal red, twice.
const ESCAPED: &str = r"\u001b[31m\u009b31m";
/// The same as characters.
const STEERING: &str = "\x1b[31m\u{9b}31m";
/// The same in a message.
const WARNED: &str = r"\u001b[31m\u009b31m";

/// `inspect` of a checkpoint that anybody may have sealed.
fn checkpoint(name: &str, arguments: &str) -> Case {
    let edit = replaced("\"build\":\"", format!("\"build\":\"{ESCAPED}"));
    case(format!("steering: {name}"), arguments)
        .with("it", Content::Changed(Fixture::Checkpoint, "manifest.json", Box::new(move |bytes| seal(edit(bytes)))))
}

#[test]
fn names_in_results_do_not_steer_the_terminal() {
    let folder = format!("it{STEERING}");
    hold(vec![
        checkpoint("the build of a checkpoint", "inspect {}/it").done(&format!("written by pleach {ESCAPED}")),
        checkpoint("the build of a checkpoint with all tensors", "inspect {}/it --all").done(ESCAPED),
        case("steering: a folder of a checkpoint", &format!("inspect {{}}/{folder} --verify"))
            .with(&folder, Content::Copy(Fixture::Checkpoint))
            .done(&format!("it{ESCAPED} is sound")),
        case("steering: an accelerator", &format!("simulate {SMALL} --cluster {{}}/it.toml"))
            .with("it.toml", Content::Changed(Fixture::Cluster, "", replaced("A100-SXM4-80GB", ESCAPED)))
            .done(ESCAPED),
        case("steering: a row of a table", "validate {}/it.csv --cluster a100-80g-jean-zay")
            .with("it.csv", Content::Changed(Fixture::Table, "", replaced("bloom-176B", STEERING)))
            .done(ESCAPED),
    ]);
}

#[test]
fn names_in_messages_do_not_steer_the_terminal() {
    let folder = format!("it{STEERING}");
    hold(vec![
        case("steering: a folder that is imported", &format!("import {{}}/hub --out {{}}/{folder}"))
            .with("hub", Content::Copy(Fixture::HuggingFace))
            .writes(&folder)
            .done(&format!("it{WARNED}: run.toml")),
        case("steering: a folder that is not there", &format!("eval --from {{}}/{folder}")).refused(WARNED),
    ]);
}

/// A program that reads a text gets all of it; the sample at the end of a run is for people.
#[test]
fn texts_of_models_do_not_steer_the_terminal_of_people() {
    let run = Fixture::Run.name();
    let train = format!("train {SMALL} --set run.folder={{}}/run --data {{}}/t.txt");
    hold(vec![
        case("steering: a prompt, for a program", &format!("generate --from {run} --max-tokens 0 --prompt"))
            .and(STEERING)
            .done(&format!("{STEERING}\n")),
        // After two steps its tokens are any bytes.
        case("steering: the sample of a run", &train)
            .with("t.txt", format!("{STEERING}\n").repeat(500))
            .writes("run")
            .done("sample  generated from")
            .says(r"\u00"),
    ]);
}

/// A terminal receives numbers. Python makes one.
#[needs::python]
#[test]
fn texts_of_models_do_not_steer_a_terminal() {
    let python = std::env::var("PLEACH_PYTHON").unwrap_or("python3".into());
    let run = Fixture::Run.name();
    let spawn = "import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) >> 8)";
    let command = [env!("CARGO_BIN_EXE_pleach"), "generate", "--from", &run, "--max-tokens", "0", "--prompt", STEERING];
    let output = Command::new(&python).args(["-c", spawn]).args(command).output().expect("Python 3.11");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && text.trim_end() == ESCAPED, "{text:?}");
}
