//! Sound inputs of every kind, made once, of which cases change copies.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// A sound input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fixture {
    /// The folder of a run that has ended.
    Run,
    /// Its newest checkpoint.
    Checkpoint,
    /// The same as a folder of the Hugging Face library.
    HuggingFace,
    /// A token file.
    Tokens,
    /// A folder with a pair of Megatron-LM, `m.bin` and `m.idx`, and its `m.tokenizer.json`.
    Pair,
    /// A trained tokenizer.
    Tokenizer,
    /// A measured step of the run.
    Trace,
    /// A text.
    Text,
    /// Two sequences.
    Sequences,
    /// A profile of a cluster.
    Cluster,
    /// A profile of a trainer.
    Software,
    /// A table of measured runs.
    Table,
    /// A schedule of four microbatches on two ranks.
    Schedule,
}

/// The model and the layout of the run, as arguments.
pub const SMALL: &str = "--set model.num_layers=2 --set model.hidden=16 --set model.num_heads=2 --set model.context=16 \
                         --set data.tokenizer=bytes --set data.held_out=0.001 --set parallelism.dp=1 \
                         --set parallelism.tp=1 --set parallelism.pp=1 --set parallelism.microbatch_size=1 \
                         --set train.global_batch=2 --set train.steps=2 --set train.warmup_steps=1";

impl Fixture {
    /// Where it is.
    pub fn path(self) -> PathBuf {
        let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
        match self {
            Fixture::Run => made().join("run"),
            Fixture::Checkpoint => {
                let mut steps: Vec<PathBuf> = entries(&made().join("run/checkpoints"));
                steps.retain(|path| path.join("manifest.json").exists());
                steps.pop().expect("a checkpoint")
            }
            Fixture::HuggingFace => made().join("hf"),
            Fixture::Tokens => made().join("t.tokens"),
            Fixture::Pair => made().join("pair"),
            Fixture::Tokenizer => made().join("pair/m.tokenizer.json"),
            Fixture::Trace => made().join("trace.json"),
            Fixture::Text => made().join("text.txt"),
            Fixture::Sequences => made().join("sequences.json"),
            Fixture::Cluster => repository.join("crates/planning/cluster/profiles/a100-80g-dgx.toml"),
            Fixture::Software => repository.join("crates/planning/cluster/software/megatron-2021.toml"),
            Fixture::Table => repository.join("crates/planning/plan/tables/bloom.csv"),
            Fixture::Schedule => repository.join("examples/pp_schedule_file.txt"),
        }
    }

    /// The content of the file.
    pub fn read(self) -> Vec<u8> {
        fs::read(self.path()).expect("a file of the fixture")
    }

    /// Its path as text.
    pub fn name(self) -> String {
        self.path().display().to_string()
    }
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    paths
}

/// The folder of all that commands have made.
fn made() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = std::env::temp_dir().join(format!("pleach-hostile-fixtures-{}", std::process::id()));
        fs::create_dir_all(folder.join("pair")).expect("a folder");
        let lines: Vec<String> = (0..200).map(|line| format!("line {line} has some words of a text\n")).collect();
        fs::write(folder.join("text.txt"), lines.concat()).expect("a file");
        let sequences = r#"{"input_ids": [[1, 2, 3, 4], [5, 6, 7, 8]], "labels": [[2, 3, 4, -100], [6, 7, 8, -100]]}"#;
        fs::write(folder.join("sequences.json"), sequences).expect("a file");
        let commands = [
            &format!("train --quiet {SMALL} --set run.folder=run --trace trace.json"),
            "export run --out hf",
            "data tokenize text.txt --out t.tokens",
            "data tokenize text.txt --tokenizer bpe:300 --out pair/m.bin",
        ];
        for command in commands {
            let arguments = command.split_whitespace();
            let output = Command::new(env!("CARGO_BIN_EXE_pleach")).args(arguments).current_dir(&folder).output();
            let output = output.expect("the command starts");
            assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
        }
        folder
    })
}
