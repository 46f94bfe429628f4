//! Variables of launchers that contradict themselves, and unusable secrets.

use crate::hostile::case::{Case, Content, case};
use crate::hostile::fixtures::SMALL;
use crate::hostile::verdict::hold;

fn variables(variables: &str) -> Case {
    case(format!("variables: {variables}"), &format!("train {SMALL} --set run.folder={{}}/run")).variables(variables)
}

#[test]
fn variables_that_name_no_process_are_refused() {
    let large = "99999999999999999999";
    let mut cases = vec![
        variables("WORLD_SIZE=2").refused("RANK"),
        variables("RANK=0 WORLD_SIZE=x").refused("WORLD_SIZE"),
        variables("RANK=2 WORLD_SIZE=2").refused("RANK"),
        variables("RANK=-1 WORLD_SIZE=2").refused("RANK"),
        variables("PLEACH_PROCESS=0").refused("PLEACH_PROCESSES"),
        variables("PLEACH_PROCESS=2 PLEACH_PROCESSES=2").refused("PLEACH_PROCESS"),
        variables("PLEACH_PROCESS=x PLEACH_PROCESSES=2").refused("PLEACH_PROCESS"),
        variables("OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=2").refused("OMPI_COMM_WORLD_RANK"),
        variables("PMI_RANK=3 PMI_SIZE=2").refused("PMI_RANK"),
    ];
    for name in ["PLEACH_PROCESSES", "WORLD_SIZE"] {
        let other = if name == "WORLD_SIZE" { "RANK=0" } else { "PLEACH_PROCESS=0" };
        cases.push(variables(&format!("{other} {name}={large}")).refused(name));
        cases.push(variables(&format!("{other} {name}=0")).refused(name));
    }
    hold(cases);
}

#[test]
fn unusable_secrets_are_refused() {
    let process = "PLEACH_PROCESS=0 PLEACH_PROCESSES=2 PLEACH_RENDEZVOUS=127.0.0.1:1";
    let token = |name: &str, content: Content| {
        case(format!("token: {name}"), &format!("train {SMALL} --set parallelism.dp=2 --set run.folder={{}}/run"))
            .variables(&format!("{process} PLEACH_TOKEN_FILE={{}}/it"))
            .with("it", content)
            .refused("{}/it")
    };
    hold(vec![
        token("nothing", Content::Link("nowhere".into())),
        token("a link to itself", Content::Link("it".into())),
        token("a folder", Content::Folder),
        token("/dev/zero", Content::Link("/dev/zero".into())),
        token("a pipe", Content::Pipe),
        token("empty, and for all to read", Content::Bytes(vec![])),
        token("a huge file", Content::Sparse(1 << 40)),
        case("token: not digits", &format!("train {SMALL} --set parallelism.dp=2 --set run.folder={{}}/run"))
            .variables(&format!("{process} PLEACH_TOKEN=xyz"))
            .refused("PLEACH_TOKEN"),
    ]);
}

#[test]
fn arguments_that_are_not_utf8_are_refused() {
    let bytes = b"\xff\xfe";
    hold(vec![
        case("arguments: a command of other bytes", "").and_bytes(bytes).refused("unrecognized subcommand"),
        case("arguments: a file of other bytes", "check").and_bytes(bytes).refused("cannot be read"),
        case("arguments: a key of other bytes", "check --set").and_bytes(bytes).refused("invalid UTF-8"),
        case("arguments: an option of other bytes", "train").and_bytes(b"--\xff").refused("unexpected argument"),
    ]);
}

#[test]
fn a_standard_output_without_room_is_a_failure() {
    let full = |arguments: &str| {
        case(format!("the standard output is full: {arguments}"), arguments)
            .into_device("/dev/full")
            .fails("the output cannot be written: No space left")
    };
    let commands = ["--help", "--version", "help train", "train --help", "check", "presets", "completions bash"];
    hold(commands.map(full).into());
}
