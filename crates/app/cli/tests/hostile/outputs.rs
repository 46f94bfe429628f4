//! Every output, with everything that its name can stand for. Only files are replaced, and never those that a command
//! reads.

use crate::hostile::case::{Case, Content, case};
use crate::hostile::fixtures::{Fixture, SMALL};
use crate::hostile::verdict::hold;

/// An option that names an output, as `{}/it`.
struct Place {
    name: &'static str,
    arguments: String,
    content: Kind,
    /// An input that the output could replace.
    input: Option<Fixture>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Goes to the standard output, into pipes and to devices as well.
    Text,
    /// Needs a regular file.
    Data,
    /// A folder.
    Folder,
}

fn place(name: &'static str, arguments: impl Into<String>, content: Kind, input: Option<Fixture>) -> Place {
    Place { name, arguments: arguments.into(), content, input }
}

fn places() -> Vec<Place> {
    let run = "{}/input";
    let table = Fixture::Table.name();
    vec![
        place(
            "forward --out",
            format!("forward --from {} --tokens {run} --out {{}}/it", Fixture::Run.name()),
            Kind::Data,
            Some(Fixture::Sequences),
        ),
        place(
            "plan --write",
            "plan --gpus 2 --cluster {}/input --write {}/it --set model.num_layers=2 --set train.global_batch=4 --fix schedule=1f1b",
            Kind::Text,
            Some(Fixture::Cluster),
        ),
        place(
            "simulate --svg",
            format!("simulate {SMALL} --cluster {run} --svg {{}}/it"),
            Kind::Text,
            Some(Fixture::Cluster),
        ),
        place(
            "simulate --trace",
            format!("simulate {SMALL} --cluster {run} --trace {{}}/it"),
            Kind::Text,
            Some(Fixture::Cluster),
        ),
        place(
            "validate --predictions",
            format!("validate {run} --cluster a100-80g-jean-zay --predictions {{}}/it"),
            Kind::Text,
            Some(Fixture::Table),
        ),
        place(
            "cluster fit --out",
            format!("cluster fit --table {table} --base {run} --constants network.efficiency --out {{}}/it"),
            Kind::Text,
            Some(Fixture::Cluster),
        ),
        place(
            "train --trace",
            format!("train --quiet {SMALL} --data {run} --set run.folder={{}}/run --trace {{}}/it"),
            Kind::Text,
            Some(Fixture::Text),
        ),
        place("import --out", format!("import {run} --out {{}}/it"), Kind::Folder, Some(Fixture::HuggingFace)),
        place("export --out", format!("export {run} --out {{}}/it"), Kind::Folder, Some(Fixture::Run)),
        place("run.folder", format!("train --quiet {SMALL} --set run.folder={{}}/it"), Kind::Folder, None),
    ]
}

fn of_place(place: &Place, what: &str) -> Case {
    let case = case(format!("{}: {what}", place.name), &place.arguments).writes("run");
    match place.input {
        Some(fixture) => case.with("input", Content::Copy(fixture)),
        None => case,
    }
}

/// The same with another name of the output.
fn named(place: &Place, what: &str, output: &str) -> Case {
    let mut case = of_place(place, what);
    case.arguments.iter_mut().for_each(|argument| *argument = argument.replace("{}/it", output));
    case
}

fn of_text(place: &Place) -> Vec<Case> {
    vec![
        of_place(place, "/dev/null").with("it", Content::Link("/dev/null".into())).done(""),
        of_place(place, "/dev/full").with("it", Content::Link("/dev/full".into())).fails("No space left"),
        named(place, "the standard output", "-").done(""),
        of_place(place, "a new file").writes("it").done(""),
        of_place(place, "a file that is there").with("it", "old").writes("it").done(""),
        of_place(place, "a file by a link")
            .with("it", Content::Link("target".into()))
            .with("target", "old")
            .writes("target")
            .done(""),
        of_place(place, "a file that a link promises")
            .with("it", Content::Link("target".into()))
            .writes("target")
            .done(""),
        of_place(place, "a folder").with("it", Content::Folder).refused("{}/it is a folder"),
    ]
}

fn of_data(place: &Place) -> Vec<Case> {
    vec![
        of_place(place, "/dev/null").with("it", Content::Link("/dev/null".into())).refused("{}/it is a device"),
        of_place(place, "a pipe").with("it", Content::Pipe).refused("{}/it is a pipe"),
        named(place, "the standard output", "-").refused("is the standard output"),
        of_place(place, "a new file").writes("it").done(""),
        of_place(place, "a file by a link")
            .with("it", Content::Link("target".into()))
            .with("target", "old")
            .writes("target")
            .done(""),
        of_place(place, "a folder").with("it", Content::Folder).refused("{}/it is a folder"),
    ]
}

fn of_folders(place: &Place) -> Vec<Case> {
    vec![
        of_place(place, "a file").with("it", "old").refused("{}/it"),
        of_place(place, "a device").with("it", Content::Link("/dev/null".into())).refused("{}/it"),
        of_place(place, "a pipe").with("it", Content::Pipe).refused("{}/it"),
        named(place, "a folder in a file", "{}/file/it").with("file", "old").refused("file"),
        of_place(place, "a folder of weights that is a folder")
            .with("it", Content::Folder)
            .with("it/weights.safetensors", Content::Folder)
            .with("it/model.safetensors", Content::Folder)
            .refused("safetensors")
            .writes("it/checkpoints"),
        of_place(place, "a folder of pipes")
            .with("it", Content::Folder)
            .with("it/weights.safetensors", Content::Pipe)
            .with("it/model.safetensors", Content::Pipe)
            .refused("safetensors")
            .writes("it/checkpoints"),
    ]
}

#[test]
fn outputs_replace_nothing_but_files() {
    let mut cases = vec![];
    for place in places() {
        cases.extend(match place.content {
            Kind::Text => of_text(&place),
            Kind::Data => of_data(&place),
            Kind::Folder => of_folders(&place),
        });
        cases.push(of_place(&place, "a link to itself").with("it", Content::Link("it".into())).refused("{}/it"));
        if place.content != Kind::Folder {
            let long = format!("{{}}/{}", "n".repeat(250));
            cases.push(named(&place, "a name without room for that of a draft", &long).refused("File name too long"));
            cases.push(named(&place, "a folder that is missing", "{}/no/such").refused("{}/no"));
        }
        if place.input.is_some() {
            let refused = "which this command reads";
            cases.push(named(&place, "its input", "{}/input").refused(refused));
            cases.push(
                of_place(&place, "its input by a link").with("it", Content::Link("input".into())).refused(refused),
            );
        }
    }
    hold(cases);
}

/// Every option that names an output, as `Command::outputs` has them, with `@` for the output. The rule of places is
/// the first that a command checks, so that no input is there.
const OUTPUTS: [&str; 15] = [
    "train --data x --set run.folder={}/other --trace @",
    "simulate --cluster x --svg @",
    "simulate --cluster x --trace @",
    "plan --gpus 2 --cluster x --write @",
    "validate x --cluster x --predictions @",
    "cluster fit --table x --base x --out @",
    "cluster measure --out @",
    "report x --out @",
    "report x --csv @",
    "report x --tensorboard @",
    "forward --from x --tokens x --out @",
    "import x --out @",
    "export x --out @",
    "data tokenize x --out @",
    "fetch s3://b/a --out @",
];

/// Names of places of the run in `{}/run`, and of a checkpoint elsewhere.
const PLACES: [&str; 14] = [
    "run/metrics.jsonl",
    "run/train.log",
    "run/run.toml",
    "run/RUN.toml",
    "run/.weights.safetensors.partial-1",
    "run/checkpoints",
    "run/checkpoints/new.json",
    "run/checkpoints/step-00000002/manifest.json",
    "run/Checkpoints/step-00000002/rank-00000.safetensors",
    "run/checkpoints/../status.json",
    "run/failures/0001.json",
    "link",
    "linked/step-00000002/manifest.json",
    "copied/manifest.json",
];

#[test]
fn no_output_goes_to_a_place_of_a_run() {
    let mut cases = vec![];
    for (number, command) in OUTPUTS.iter().enumerate() {
        // Each command has some of the names, and each name several commands.
        for name in
            PLACES.iter().enumerate().filter(|(at, _)| at % 5 == number % 5 || number == 10).map(|(_, name)| name)
        {
            let arguments = command.replace('@', &format!("{{}}/{name}"));
            let case = case(format!("{command}: {name}"), &arguments)
                .with("run", Content::Copy(Fixture::Run))
                .with("link", Content::Link("run/weights.safetensors".into()))
                .with("linked", Content::Link("run/checkpoints".into()))
                .with("copied", Content::Copy(Fixture::Checkpoint));
            cases.push(case.refused(&format!("{{}}/{name} is a place of the run's own files in {{}}/")));
        }
    }
    let forward = format!("forward --from {{}}/run --tokens {} --out {{}}/", Fixture::Sequences.name());
    let of_run = |name: &str, to: &'static str| {
        case(format!("forward --out: a hard link to {to}"), &format!("{forward}{name}"))
            .with("run", Content::Copy(Fixture::Run))
            .with(name, Content::HardLink(to))
            .refused("which this command reads")
    };
    cases.push(of_run("run/it", "metrics.jsonl"));
    cases.push(of_run("run/that", "weights.safetensors"));
    let train = format!("train --quiet {SMALL} --set ");
    cases.push(
        case("run.folder in checkpoints", &format!("{train}run.folder={{}}/run/checkpoints/new"))
            .with("run", Content::Copy(Fixture::Run))
            .refused("run.folder {}/run/checkpoints/new is a place of the run's own files in {}/run"),
    );
    cases.push(
        case("data.cache in checkpoints", &format!("{train}run.folder={{}}/o --set data.cache={{}}/run/checkpoints/c"))
            .with("run", Content::Copy(Fixture::Run))
            .refused("data.cache {}/run/checkpoints/c is a place of the run's own files in {}/run"),
    );
    cases.push(
        case("import: a folder with records", "import {}/hf --out {}/o")
            .with("hf", Content::Copy(Fixture::HuggingFace))
            .with("o", Content::Folder)
            .with("o/metrics.jsonl", "{}\n")
            .writes("o/checkpoints")
            .refused("holds a run with metrics.jsonl"),
    );
    cases.push(
        case("export: a run without a run file", &format!("export {} --out {{}}/run --overwrite", Fixture::Run.name()))
            .with("run", Content::Folder)
            .with("run/checkpoints", Content::Folder)
            .with("run/checkpoints/step-00000002", Content::Copy(Fixture::Checkpoint))
            .refused("is the folder of a run"),
    );
    hold(cases);
}

/// Names of a run's files are free where there is no run, and other names are free in its folder.
#[test]
fn other_places_are_free() {
    let simulate = format!("simulate {SMALL} --cluster=a100-80g-dgx --trace {{}}/");
    hold(vec![
        case("a run file alone is nobody's", &format!("{simulate}run.toml"))
            .with("run.toml", "old")
            .writes("run.toml")
            .done(""),
        case("checkpoints of another program", &format!("{simulate}checkpoints/train.log"))
            .with("checkpoints", Content::Folder)
            .with("checkpoints/latest", "epoch-3")
            .with("checkpoints/epoch-3", Content::Folder)
            .writes("checkpoints/train.log")
            .done(""),
        case("another name in the folder of a run", &format!("{simulate}run/trace.json"))
            .with("run", Content::Copy(Fixture::Run))
            .writes("run/trace.json")
            .done(""),
    ]);
}

#[test]
fn outputs_of_a_command_need_places_of_their_own() {
    let simulate = format!("simulate {SMALL} --cluster=a100-80g-dgx");
    let both = |name: &str, svg: &str, trace: &str| {
        let arguments = format!("{simulate} --svg {svg} --trace {trace}");
        case(format!("two outputs: {name}"), &arguments).refused("another output; name another file")
    };
    hold(vec![
        both("one name", "{}/it", "{}/it"),
        both("two names of one file", "{}/it", "{}/./it"),
        both("a link to the other", "{}/it", "{}/link").with("link", Content::Link("it".into())),
        both("the standard output", "-", "-"),
        case("two outputs: a device", &format!("{simulate} --svg /dev/null --trace /dev/null")).done(""),
        case("tokens without an end", "generate --max-tokens 18446744073709551615 --prompt a --from")
            .and(Fixture::Run.name())
            .into_device("/dev/full")
            .fails("No space left"),
    ]);
}

#[test]
fn outputs_of_tokens_need_files() {
    let tokenize = |name: &str, out: &str| {
        case(format!("tokenize --out: {name}"), &format!("data tokenize {{}}/text.txt --out {{}}/{out}"))
            .with("text.txt", Fixture::Text.read())
    };
    hold(vec![
        tokenize("a device", "it.tokens")
            .with("it.tokens", Content::Link("/dev/null".into()))
            .refused("it.tokens is a device"),
        tokenize("a pipe", "it.tokens").with("it.tokens", Content::Pipe).refused("it.tokens is a pipe"),
        tokenize("a folder", "it.tokens").with("it.tokens", Content::Folder).refused("it.tokens is a folder"),
        tokenize("a file by a link", "it.tokens")
            .with("it.tokens", Content::Link("other.tokens".into()))
            .with("other.tokens", "old")
            .writes("other.tokens")
            .done("tokens"),
        tokenize("another ending", "text.txt").refused("should end with"),
        case("tokenize --out: its input", "data tokenize {}/t.tokens --out {}/t.tokens")
            .with("t.tokens", Content::Copy(Fixture::Tokens))
            .refused("which this command reads"),
        case("tokenize --out: its input as a pair", "data tokenize {}/pair/m.idx --out {}/pair/m.bin")
            .with("pair", Content::Copy(Fixture::Pair))
            .and("--tokenizer")
            .and("bytes")
            .refused("which this command reads"),
        tokenize("a pair over a device", "it.bin")
            .with("it.bin", Content::Link("/dev/null".into()))
            .refused("it.bin is a device"),
        tokenize("a pair whose index is a pipe", "it.bin").with("it.idx", Content::Pipe).refused("it.idx"),
        tokenize("a pair whose index is a folder", "it.bin").with("it.idx", Content::Folder).refused("it.idx"),
        tokenize("a pair whose index is an input", "it.bin")
            .with("it.idx", Content::Link("text.txt".into()))
            .refused("which this command reads"),
        tokenize("a pair whose tokenizer is a folder", "it.bin")
            .with("it.tokenizer.json", Content::Folder)
            .refused("it.tokenizer.json"),
    ]);
}
