//! The programs in `tools` that are written in Python: published files become safetensors, and a checkpoint is read by
//! its format alone.
//!
//! They need Python 3.11 with its standard library, and to find a flipped byte `xxhash`: in the interpreter that
//! `PLEACH_PYTHON` names, or in `python3`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use safetensors::{Dtype, SafeTensors};

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("pleach-tools-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

fn fixture(name: &str) -> String {
    repository().join("crates/app/cli/tests").join(name).display().to_string()
}

fn tool(name: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(std::env::var("PLEACH_PYTHON").unwrap_or("python3".into()));
    command.env("PYTHONDONTWRITEBYTECODE", "1").arg(repository().join("tools").join(name));
    command.args(arguments).output().expect("Python 3.11")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

/// Converts published files of a kind into the folder.
fn convert(kind: &str, files: &[String], more: &[&str], folder: &Path) {
    let out = folder.display().to_string();
    let arguments: Vec<&str> = [kind].into_iter().chain(files.iter().map(String::as_str)).collect();
    let output = tool("published_weights.py", &[arguments.as_slice(), more, &["--out", &out]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[needs::python]
#[test]
fn published_files_become_the_shards_that_pleach_reads() {
    let kinds: [(&str, &[&str], &[&str]); 2] = [
        ("glm", &["glm_0.pt", "glm_1.pt"], &["--heads", "4", "--context", "12"]),
        ("codegeex", &["codegeex.pt"], &["--heads", "4"]),
    ];
    for (kind, files, more) in kinds {
        let folder = Folder::new(kind);
        let files: Vec<String> = files.iter().map(|file| fixture(&format!("published_weights/{file}"))).collect();
        convert(kind, &files, more, &folder.0);
        let shards = (0..files.len()).map(|number| format!("model_part-{number}.safetensors"));
        for name in shards.chain(["config.json".to_string()]) {
            let made = fs::read(folder.0.join(&name)).expect("a file");
            let expected = fs::read(fixture(&format!("hugging_face/{kind}/{name}"))).expect("a fixture");
            assert!(text_or_bytes(&made) == text_or_bytes(&expected), "{kind}: {name} is another file");
        }
    }
}

/// Text without white space at its end, as a script may or may not end it; other bytes as they are.
fn text_or_bytes(bytes: &[u8]) -> &[u8] {
    if std::str::from_utf8(bytes).is_ok() { bytes.trim_ascii_end() } else { bytes }
}

/// Shape and elements by name.
type Tensors = BTreeMap<String, (Vec<usize>, Vec<f64>)>;

fn tensors(path: &Path) -> Tensors {
    let bytes = fs::read(path).expect("a file");
    let file = SafeTensors::deserialize(&bytes).expect("safetensors");
    let read = |(name, view): (String, safetensors::tensor::TensorView<'_>)| {
        let elements = if view.dtype() == Dtype::F16 {
            view.data().chunks(2).map(|bytes| half(u16::from_le_bytes([bytes[0], bytes[1]]))).collect()
        } else {
            assert_eq!(view.dtype(), Dtype::F32, "{name}");
            let single = |bytes: &[u8]| f64::from(f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]));
            view.data().chunks(4).map(single).collect()
        };
        (name, (view.shape().to_vec(), elements))
    };
    file.tensors().into_iter().map(read).collect()
}

/// A normal number of 16 bits, or zero.
fn half(bits: u16) -> f64 {
    let (exponent, mantissa) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023));
    if bits == 0 { 0.0 } else { (1.0 + mantissa / 1024.0) * f64::from(2.0_f32.powi(exponent - 15)) }
}

#[needs::python]
#[test]
fn shards_of_layers_and_views_are_joined_under_their_published_names() {
    let expected = fs::read_to_string(fixture("published_weights/expected.json")).expect("a fixture");
    let expected: BTreeMap<String, Vec<Tensors>> = serde_json::from_str(&expected).expect("JSON");
    let layers =
        [0, 2, 3, 4].map(|layer| [0, 1].map(|rank| format!("layer_{layer:02}-model_{rank:02}-model_states.pt")));
    let kinds = [("metaseq", vec!["metaseq_0.pt".into(), "metaseq_1.pt".into()]), ("neox", layers.concat())];
    for (kind, files) in kinds {
        let folder = Folder::new(kind);
        let files: Vec<String> = files.iter().map(|file| fixture(&format!("published_weights/{file}"))).collect();
        convert(kind, &files, &["--heads", "2"], &folder.0);
        for (rank, expected) in expected[kind].iter().enumerate() {
            assert_eq!(&tensors(&folder.0.join(format!("model_part-{rank}.safetensors"))), expected, "{kind} {rank}");
        }
        let config = fs::read_to_string(folder.0.join("config.json")).expect("a file");
        let config: BTreeMap<String, serde_json::Value> = serde_json::from_str(&config).expect("JSON");
        let sizes = ["num_hidden_layers", "hidden_size", "intermediate_size", "vocab_size", "max_position_embeddings"];
        let found = sizes.map(|size| config[size].as_u64().expect("a number"));
        assert_eq!(found, if kind == "neox" { [1, 4, 12, 10, 2048] } else { [2, 4, 16, 6, 8] }, "{kind}");
    }
}

#[needs::python]
#[test]
fn a_published_file_runs_no_code() {
    let folder = Folder::new("code");
    let mark = folder.0.join("mark");
    // The beginning of a file of `torch.save`, then `os.system("touch MARK")`, no storages.
    let mut pickles = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.\x80\x02}.".to_vec();
    let command = format!("(dS'weight'\ncos\nsystem\n(S'touch {}'\ntRs.", mark.display());
    pickles.extend(command.as_bytes());
    pickles.extend(b"\x80\x02].");
    let file = folder.0.join("model.pt");
    fs::write(&file, &pickles).expect("a file");
    let (file, out) = (file.display().to_string(), folder.0.join("out").display().to_string());
    let output = tool("published_weights.py", &["codegeex", &file, "--heads", "1", "--out", &out]);
    assert!(!mark.exists(), "the command ran");
    let said = text(&output.stderr);
    assert!(!output.status.success() && said.starts_with("the first shard must have a tensor whose name"), "{said}");
}

/// Trains for two steps on two ranks; the run's folder and its newest checkpoint.
fn trained(folder: &Folder) -> (PathBuf, PathBuf) {
    let run = folder.0.join("run");
    let settings = [
        "model.num_layers=1",
        "model.hidden=16",
        "model.num_heads=2",
        "model.context=16",
        "data.tokenizer=bytes",
        "data.held_out=0.001",
        "parallelism.dp=1",
        "parallelism.tp=2",
        "parallelism.pp=1",
        "parallelism.microbatch_size=1",
        "train.global_batch=2",
        "train.steps=2",
        &format!("run.folder={}", run.display()),
    ];
    let mut command = Command::new(env!("CARGO_BIN_EXE_pleach"));
    command.args(["train", "--quiet"]).args(settings.iter().flat_map(|setting| ["--set", setting]));
    let output = command.output().expect("pleach");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let checkpoint = run.join("checkpoints/step-00000002");
    assert!(checkpoint.is_dir(), "the last step is saved");
    (run, checkpoint)
}

#[needs::python]
#[test]
fn a_checkpoint_is_read_by_its_format_alone() {
    let folder = Folder::new("checkpoint");
    let (run, checkpoint) = trained(&folder);
    let path = checkpoint.display().to_string();
    let output = tool("read_checkpoint.py", &[&path]);
    let said = text(&output.stdout);
    assert!(output.status.success() && said.starts_with("after step 2\n"), "{said}{}", text(&output.stderr));
    let weights = tensors(&run.join("weights.safetensors"));
    for (name, (shape, elements)) in &weights {
        let mean = elements.iter().sum::<f64>() / elements.len() as f64;
        let line = said.lines().find_map(|line| line.strip_prefix(&format!("{name} {shape:?} mean ")));
        let found: f64 =
            line.unwrap_or_else(|| panic!("{name} {shape:?} is not in\n{said}")).parse().expect("a number");
        // Six digits are printed.
        assert!((found - mean).abs() <= 1e-5 * mean.abs(), "{name}: mean {found}, in weights.safetensors {mean}");
        // Means do not tell where elements are.
        let output = tool("read_checkpoint.py", &[&path, name]);
        let values: Vec<f64> =
            text(&output.stdout).split_whitespace().map(|value| value.parse().expect("a number")).collect();
        assert_eq!(&values, elements, "{name}");
    }
    assert_eq!(said.lines().count(), 1 + 3 * weights.len(), "weights and two moments of each");
}

#[needs::python_packages]
#[test]
fn flipped_bytes_of_a_checkpoint_are_found() {
    let folder = Folder::new("flipped");
    let (_, checkpoint) = trained(&folder);
    let path = checkpoint.display().to_string();
    for (name, expected) in [("rank-00000.safetensors", "a block of "), ("manifest.json", "the manifest ")] {
        let file = checkpoint.join(name);
        let whole = fs::read(&file).expect("a file");
        let mut damaged = whole.clone();
        let last = damaged.len() - 3;
        damaged[last] ^= 1;
        fs::write(&file, &damaged).expect("written");
        let output = tool("read_checkpoint.py", &[&path]);
        let said = text(&output.stderr);
        assert!(!output.status.success() && said.starts_with(expected), "{name}: {said}");
        fs::write(&file, &whole).expect("written");
    }
    assert!(tool("read_checkpoint.py", &[&path]).status.success(), "whole again");
}

#[test]
fn the_script_of_gpus_names_its_arguments() {
    let script = repository().join("tools/gpu-conformance.sh");
    for (arguments, told) in [
        (&[][..], "needs a command: pack or check"),
        (&["build"], "has no command build"),
        (&["check", "a.tar.gz"], "check needs an archive"),
        (&["check", "/nowhere.tar.gz", "results.json"], "/nowhere.tar.gz is not there"),
    ] {
        let output = Command::new("sh").arg(&script).args(arguments).output().expect("sh");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(told) && said.contains("check ARCHIVE.tar.gz RESULTS.json"), "{arguments:?}: {said}");
    }
}
