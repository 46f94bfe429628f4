//! Every place that takes the name of a file, with everything that a name can stand for: devices, folders, links,
//! pipes.

use crate::hostile::case::{Case, Content, case};
use crate::hostile::fixtures::{Fixture, SMALL};
use crate::hostile::verdict::{hold, hold_at_once};

/// A place that takes the name of a file: `{}/it` in the arguments.
struct Place {
    name: &'static str,
    arguments: String,
    /// The folder of a fixture, and the name in it that is replaced by `it`.
    around: Option<(Fixture, &'static str)>,
    /// Whether a pipe is read, too.
    pipe: Pipe,
    huge: Huge,
}

/// The fate of a huge file of zeros.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Huge {
    /// A size above the limit.
    TooLarge(u64),
    /// Any size is read in parts, and zeros are not of the format.
    Malformed,
    /// Any size is read in parts, and zeros are text.
    Read,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Pipe {
    Read,
    Refused,
}

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

fn place(name: &'static str, arguments: impl Into<String>, pipe: Pipe, huge: Huge) -> Place {
    Place { name, arguments: arguments.into(), around: None, pipe, huge }
}

/// A file `inside` a copy of a fixture, which the command is given as `{}/around`.
fn inside(
    name: &'static str,
    arguments: impl Into<String>,
    around: Fixture,
    inside: &'static str,
    huge: Huge,
) -> Place {
    Place { name, arguments: arguments.into(), around: Some((around, inside)), pipe: Pipe::Refused, huge }
}

fn places() -> Vec<Place> {
    let (run, table) = (Fixture::Run.name(), Fixture::Table.name());
    let small_pipeline =
        SMALL.replace("parallelism.pp=1", "parallelism.pp=2").replace("global_batch=2", "global_batch=4");
    let run_file = Huge::TooLarge(5 * MIB);
    let text = Huge::TooLarge(17 * GIB);
    let places = vec![
        place("run file of check", "check {}/it", Pipe::Read, run_file),
        place("second run file of check", "check preset:glm-130b-tiny {}/it", Pipe::Read, run_file),
        place("run file of train", "train {}/it", Pipe::Read, run_file),
        place("run file of explain", "explain {}/it", Pipe::Read, run_file),
        place("run file of simulate", "simulate {}/it --cluster=a100-80g-dgx", Pipe::Read, run_file),
        place("run file of plan", "plan {}/it --gpus 8 --cluster=a100-80g-dgx", Pipe::Read, run_file),
        place("run file of prove", "prove {}/it {}/it", Pipe::Read, run_file),
        place("run file of diff", "diff {}/it {}/it", Pipe::Read, run_file),
        place(
            "schedule file",
            format!("check {small_pipeline} --set parallelism.schedule_file={{}}/it"),
            Pipe::Read,
            Huge::TooLarge(65 * MIB),
        ),
        place("text of train", format!("train {SMALL} --data {{}}/it"), Pipe::Read, text),
        place("text of eval", format!("eval --from {run} --data {{}}/it"), Pipe::Read, text),
        place("text of tokenize", "data tokenize {}/it --out {}/o.tokens", Pipe::Read, Huge::Read),
        place(
            "tokenizer of tokenize",
            format!("data tokenize {} --tokenizer {{}}/it.json --out {{}}/o.tokens", Fixture::Text.name()),
            Pipe::Refused,
            Huge::TooLarge(257 * MIB),
        ),
        place(
            "tokenizer of check",
            format!("check {SMALL} --set data.tokenizer={{}}/it.json").replace("--set data.tokenizer=bytes ", ""),
            Pipe::Refused,
            Huge::TooLarge(257 * MIB),
        ),
        place(
            "sequences",
            format!("forward --from {run} --tokens {{}}/it --out {{}}/o.safetensors"),
            Pipe::Read,
            Huge::TooLarge(65 * MIB),
        ),
        place("cluster of simulate", "simulate --cluster {}/it", Pipe::Read, run_file),
        place("cluster of check", "check --cluster {}/it", Pipe::Read, run_file),
        place("software of simulate", "simulate --cluster=a100-80g-dgx --software={}/it", Pipe::Read, run_file),
        place(
            "base of fit",
            format!("cluster fit --table {table} --base {{}}/it --out {{}}/o.toml"),
            Pipe::Read,
            run_file,
        ),
        place(
            "table of fit",
            "cluster fit --table {}/it --base a100-80g-dgx --out {}/o.toml",
            Pipe::Read,
            Huge::TooLarge(65 * MIB),
        ),
        place("table of validate", "validate {}/it --cluster a100-80g-dgx", Pipe::Read, Huge::TooLarge(65 * MIB)),
        place(
            "trace",
            format!("simulate {SMALL} --cluster=a100-80g-dgx --against {{}}/it"),
            Pipe::Read,
            Huge::TooLarge(257 * MIB),
        ),
        place("hosts of check", "check --hosts {}/it", Pipe::Read, run_file),
        place("hosts of launch", "launch --hosts {}/it -- train", Pipe::Read, run_file),
    ];
    places.into_iter().chain(places_in_folders()).collect()
}

fn places_in_folders() -> [Place; 4] {
    [
        inside("run file of a run", "eval --from {}/around", Fixture::Run, "run.toml", Huge::TooLarge(5 * MIB)),
        inside("weights of a run", "eval --from {}/around", Fixture::Run, "weights.safetensors", Huge::Malformed),
        inside(
            "weights of export",
            "export {}/around --out {}/o",
            Fixture::Run,
            "weights.safetensors",
            Huge::Malformed,
        ),
        inside(
            "tensors of a folder",
            "import {}/around --out {}/o",
            Fixture::HuggingFace,
            "model.safetensors",
            Huge::Malformed,
        ),
    ]
}

fn of_place(place: &Place, kind: &str, content: Content) -> Case {
    let case = case(format!("{}: {kind}", place.name), &place.arguments);
    match place.around {
        None => {
            // A tokenizer is known by its ending.
            let name = if place.arguments.contains("{}/it.json") { "it.json" } else { "it" };
            case.with(name, content).refused(&format!("{{}}/{name}"))
        }
        Some((fixture, name)) => {
            let case = case.with("around", Content::Copy(fixture));
            case.with(&format!("around/{name}"), content).refused(name)
        }
    }
}

#[test]
fn devices_folders_links_and_huge_files_are_refused() {
    let mut cases = vec![];
    for place in places() {
        for device in ["/dev/zero", "/dev/urandom"] {
            cases.push(of_place(&place, device, Content::Link(device.into())));
        }
        cases.push(of_place(&place, "a folder", Content::Folder));
        cases.push(of_place(&place, "a link to itself", Content::Link("it".into())));
        cases.push(of_place(&place, "nothing", Content::Link("nowhere".into())));
        match place.huge {
            Huge::TooLarge(bytes) => {
                cases.push(of_place(&place, "a huge file", Content::Sparse(bytes)).says("must have at most"));
            }
            Huge::Malformed => cases.push(of_place(&place, "a huge file", Content::Sparse(1 << 40))),
            Huge::Read => {}
        }
        if place.pipe == Pipe::Refused {
            cases.push(of_place(&place, "a pipe", Content::Pipe).says("is a pipe"));
        }
    }
    hold(cases);
}

/// The files that identify a folder. Where one is not a file, the folder is not of that kind.
#[test]
fn files_that_name_a_folder_are_files() {
    let mut cases = vec![];
    for (arguments, fixture, name, says) in [
        ("inspect {}/around", Fixture::Checkpoint, "manifest.json", "there is no checkpoint in {}/around"),
        ("import {}/around --out {}/o", Fixture::HuggingFace, "config.json", "{}/around has no config.json"),
    ] {
        for (kind, content) in [
            ("/dev/zero", Content::Link("/dev/zero".into())),
            ("a folder", Content::Folder),
            ("a link to itself", Content::Link(name.into())),
            ("nothing", Content::Link("nowhere".into())),
            ("a pipe", Content::Pipe),
        ] {
            let case = case(format!("{name}: {kind}"), arguments).with("around", Content::Copy(fixture));
            cases.push(case.with(&format!("around/{name}"), content).refused(says));
        }
        let case = case(format!("{name}: a huge file"), arguments).with("around", Content::Copy(fixture));
        cases.push(
            case.with(&format!("around/{name}"), Content::Sparse(GIB + 1)).refused(name).says("must have at most"),
        );
    }
    let note = |kind: &str, content: Content| {
        let generate = case(format!("tokenizer.txt: {kind}"), "generate --from {}/around --prompt a");
        generate.with("around", Content::Copy(Fixture::Run)).with("around/tokenizer.txt", content)
    };
    cases.push(note("a pipe", Content::Pipe).refused("tokenizer.txt"));
    cases.push(note("/dev/zero", Content::Link("/dev/zero".into())).refused("tokenizer.txt"));
    cases.push(note("a huge file", Content::Sparse(257 * MIB)).refused("must have at most"));
    hold(cases);
}

#[test]
fn a_pipe_into_which_nobody_writes_is_left_in_time() {
    let silent = places().into_iter().filter(|place| place.pipe == Pipe::Read);
    let said = "is a pipe into which nothing was written for 10 s";
    hold_at_once(silent.map(|place| of_place(&place, "a silent pipe", Content::Pipe).says(said)).collect());
}
