//! Checkpoints and runs whose files are not as they were written.

use crate::hostile::case::{Case, Content, case, replaced};
use crate::hostile::fixtures::{Fixture, SMALL};
use crate::hostile::verdict::hold;

/// `inspect` of a checkpoint whose manifest was changed, and sealed again.
fn sealed(name: &str, from: &'static str, to: impl Into<String>) -> Case {
    let edit = replaced(from, to);
    manifest(name, move |bytes| seal(edit(bytes)))
}

fn manifest(name: &str, change: impl Fn(Vec<u8>) -> Vec<u8> + Send + Sync + 'static) -> Case {
    case(format!("manifest: {name}"), "inspect {}/it --verify")
        .with("it", Content::Changed(Fixture::Checkpoint, "manifest.json", Box::new(change)))
        .refused("manifest.json")
}

/// The manifest with the hash of its content: anybody can write one.
pub fn seal(bytes: Vec<u8>) -> Vec<u8> {
    const DIGITS: std::ops::Range<usize> = 9..25;
    let mut sealed = bytes;
    sealed[DIGITS].copy_from_slice(b"0000000000000000");
    let hash = checkpoint::Hash::of(&sealed).to_string();
    sealed[DIGITS].copy_from_slice(hash.as_bytes());
    sealed
}

#[test]
fn manifests_with_other_contents_are_refused() {
    hold(vec![
        case("checkpoint: sound", "inspect {}/it --verify").with("it", Content::Copy(Fixture::Checkpoint)).done(""),
        manifest("empty", |_| vec![]),
        manifest("half", |bytes| bytes[..bytes.len() / 2].to_vec()),
        manifest("twice", |bytes| bytes.repeat(2)),
        manifest("JSON without a seal", |_| b"{}".to_vec()),
        manifest("a flipped bit", |mut bytes| {
            bytes[100] ^= 1;
            bytes
        }),
        manifest("no JSON", |bytes| seal([&bytes[..26], b"[[[["].concat())),
        manifest("arrays in arrays", |bytes| {
            seal([bytes[..26].to_vec(), b"\"a\":".to_vec(), vec![b'['; 1_000_000]].concat())
        }),
        sealed("a later format", "\"format\":1", "\"format\":2"),
        sealed("a format of 2^32", "\"format\":1", "\"format\":4294967296"),
        sealed("a file above its folder", "\"name\":\"", "\"name\":\"../"),
        sealed("a file with an absolute name", "\"name\":\"", "\"name\":\"/etc/"),
        sealed("a file in a folder below", "\"name\":\"", "\"name\":\"a/"),
        sealed("a hidden file", "\"name\":\"", "\"name\":\"."),
        sealed("a name with a zero byte", "\"name\":\"", "\"name\":\"\\u0000"),
        sealed("a header of 2^63 bytes", "\"header_bytes\":", "\"header_bytes\":9223372036854775807,\"old\":"),
        sealed("a negative length", "\"bytes\":", "\"bytes\":-1,\"old\":"),
        sealed("whole numbers", "\"dtype\":\"F32\"", "\"dtype\":\"I32\""),
        sealed("a shape that overflows", "\"shape\":[16]", "\"shape\":[4294967296,4294967296,16]"),
        sealed("a shape of no element", "\"shape\":[16]", "\"shape\":[0]"),
        sealed("a piece past the end of its tensor", "\"start\":[0]", "\"start\":[1]"),
        sealed("a piece at 2^64 - 1", "\"start\":[0]", "\"start\":[18446744073709551615]"),
        sealed("a piece of another file", "\"file\":0", "\"file\":9"),
        sealed("a piece at another place", "\"offset\":", "\"offset\":1"),
        sealed("steps of 2^32", "\"steps\":2", "\"steps\":4294967296"),
        sealed("a scale of text", "\"loss_scale\":null", "\"loss_scale\":\"a\""),
    ]);
}

/// `inspect` of a checkpoint with another file of pieces.
fn pieces(name: &str, content: Content) -> Case {
    case(format!("pieces: {name}"), "inspect {}/it --verify")
        .with("it", Content::Copy(Fixture::Checkpoint))
        .with(&format!("it/{}", piece_file()), content)
}

fn piece_file() -> String {
    let entries = std::fs::read_dir(Fixture::Checkpoint.path()).expect("a folder");
    let names = entries.map(|entry| entry.expect("an entry").file_name().display().to_string());
    names.into_iter().find(|name| name.ends_with(".safetensors")).expect("a file of pieces")
}

#[test]
fn pieces_that_are_not_as_they_were_are_named() {
    let sound = std::fs::read(Fixture::Checkpoint.path().join(piece_file())).expect("pieces");
    let file = piece_file();
    let flipped = |at: usize| {
        let mut bytes = sound.clone();
        bytes[at] ^= 1;
        Content::Bytes(bytes)
    };
    hold(vec![
        pieces("gone", Content::Link("nowhere".into())).refused(&file),
        pieces("empty", Content::Bytes(vec![])).refused(&file),
        pieces("a byte less", Content::Bytes(sound[1..].to_vec())).refused(&file),
        pieces("a byte more", Content::Bytes([&sound[..], &[0]].concat())).refused(&file),
        pieces("a flipped bit of the header", flipped(20)).fails(&file),
        pieces("a flipped bit of the end", flipped(sound.len() - 1)).fails(&file),
        pieces("a pipe", Content::Pipe).refused(&file),
        pieces("a device", Content::Link("/dev/zero".into())).refused(&file),
        pieces("a folder", Content::Folder).refused(&file),
        pieces("through a link", Content::Link(Fixture::Checkpoint.path().join(&file).display().to_string())).done(""),
    ]);
}

/// A run whose run file was changed.
fn run_file(name: &str, arguments: &str, from: &'static str, to: impl Into<String>) -> Case {
    case(format!("run: {name}"), arguments)
        .with("run", Content::Changed(Fixture::Run, "run.toml", replaced(from, to)))
        .refused("run.toml")
}

#[test]
fn runs_whose_files_do_not_fit_each_other_are_refused() {
    let eval = "eval --from {}/run";
    let resume = "train --resume {}/run --set train.steps=4";
    hold(vec![
        run_file("another width", eval, "hidden = 16", "hidden = 32"),
        run_file("a billion layers", eval, "num_layers = 2", "num_layers = 1000000000"),
        run_file("a million layers", eval, "num_layers = 2", "num_layers = 1000000"),
        run_file("2^31 - 1 tokens", eval, "vocabulary = 256", "vocabulary = 2147483647"),
        run_file("a context of 2^31 - 1", eval, "context = 16", "context = 2147483647"),
        run_file("2^31 - 1 channels", eval, "hidden = 16", "hidden = 2147483646"),
        run_file("arrays in arrays", eval, "hidden = 16", format!("hidden = {}", "[".repeat(100_000))),
        run_file("a tokenizer that is a device", eval, "tokenizer = \"bytes\"", "tokenizer = \"/dev/zero\"")
            .says("/dev/zero"),
        case("run: a text that is a device", eval)
            .with("run", Content::Changed(Fixture::Run, "run.toml", replaced("[data]", "[data]\npath = \"/dev/zero\"")))
            .refused("/dev/zero"),
        case("resume: no folder", "train --resume {}/nothing").refused("nothing"),
        case("resume: an empty folder", "train --resume {}/run").with("run", Content::Folder).refused("run"),
        case("resume: no checkpoints", resume)
            .with("run", Content::Copy(Fixture::Run))
            .with("run/none", Content::Folder)
            .writes("run")
            .done(""),
        case("from: a file", "eval --from {}/it").with("it", "text").refused("it"),
        case("from: a folder above", "eval --from ..").refused("run.toml"),
        case("from: nothing", "eval --from").and("").refused(""),
        case("inspect: a run without checkpoints", "inspect {}/run").with("run", Content::Folder).refused("run"),
        case("inspect --diff: another kind", "inspect {}/it --diff {}/other")
            .with("it", Content::Copy(Fixture::Checkpoint))
            .with("other", Content::Folder)
            .refused("other"),
        case("train into itself", &format!("train {SMALL} --from {{}}/run --set run.folder={{}}/run"))
            .with("run", Content::Copy(Fixture::Run))
            .refused("--from"),
    ]);
}

/// Names in the folder of a run that lead elsewhere: the run replaces the links, or keeps them with the weights of an
/// earlier run, and leaves alone where they lead.
#[test]
fn nothing_is_written_through_links() {
    let train = format!("train --quiet {SMALL} --set run.folder={{}}/run");
    let replacing = format!("{train} --overwrite");
    let leading_in = |name: &str, how: &str, command: &str| {
        case(format!("a run {how} a link {name}"), command)
            .with("victim", Content::Old("kept"))
            .with("run", Content::Folder)
            .with("run/checkpoints", Content::Folder)
            .with(&format!("run/{name}"), Content::Link("../victim".into()))
    };
    let leading = |name: &str| leading_in(name, "next to", &train).writes("run");
    let below = |name: &str| {
        case(format!("a run next to a link checkpoints/{name}"), &train)
            .with("victim", "kept")
            .with("run", Content::Folder)
            .with("run/checkpoints", Content::Folder)
            .with(&format!("run/checkpoints/{name}"), Content::Link("../../victim".into()))
            .writes("run")
    };
    let mut cases = vec![];
    for name in ["metrics.jsonl", "run.toml", "tokenizer.txt", "tokenizer.json", "resumes.jsonl", "train.log"] {
        cases.push(leading(name).done(""));
    }
    // Weights are of an earlier run, wherever they are; its folder is named after the time of their last change.
    let kept = "run-19700101-000000";
    cases.push(
        leading_in("weights.safetensors", "next to", &train)
            .renames("run", kept)
            .writes(&format!("{kept}/checkpoints/.lock"))
            .done(&format!("{{}}/run is kept as {{}}/{kept}\n")),
    );
    cases.push(leading_in("weights.safetensors", "in the place of", &replacing).writes("run").done(""));
    cases.push(leading(".weights.safetensors.partial").refused("it is not a regular file"));
    cases.push(below(".lock").refused("it is not a regular file"));
    let export = case("export in place of links", "export {}/from --out {}/hf --overwrite")
        .with("from", Content::Copy(Fixture::Run))
        .with("victim", "kept")
        .with("hf", Content::Folder)
        .with("hf/config.json", Content::Link("../victim".into()))
        .with("hf/model.safetensors", Content::Link("../victim".into()))
        .with("hf/tokenizer.json", Content::Link("../victim".into()))
        .writes("hf")
        .done("written");
    let import = case("import next to links", "import {}/from --out {}/run")
        .with("from", Content::Copy(Fixture::HuggingFace))
        .with("from/tokenizer.json", Fixture::Tokenizer.read())
        .with("victim", "kept")
        .with("run", Content::Folder)
        .with("run/run.toml", Content::Link("../victim".into()))
        .with("run/weights.safetensors", Content::Link("../victim".into()))
        .with("run/tokenizer.json", Content::Link("../victim".into()))
        .writes("run")
        .done("written");
    cases.extend([export, import]);
    hold(cases);
}
