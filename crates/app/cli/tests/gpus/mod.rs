//! Runs on GPUs, as a user meets them, and messages where there is no driver, no GPU or no compiler. NVIDIA's libraries
//! are in software and have their names; the one with the name of NVRTC calls NVRTC itself.

use crate::harness;
mod experts;
mod libraries;
mod older_drivers;
mod tuned_products;
mod unknown_gpus;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{LazyLock, OnceLock};

use crate::harness::{pleach, prints, stderr, stdout};
use crate::hostile::checkpoints::seal;
use gpu::Capability;
use testkit::soft_gpus::{cache_of_tests, compiler};
use train::ArchivedKernels;

/// A small run of four ranks.
const RUN: &str = "[model]\nnum_layers = 2\nhidden = 16\nnum_heads = 2\ncontext = 8\n\
                   [parallelism]\ndp = 2\ntp = 1\npp = 2\nzero = 1\nmicrobatch_size = 1\n\
                   [train]\nsteps = 4\nwarmup_steps = 1\nglobal_batch = 4\n\
                   [data]\ntokenizer = \"bytes\"\n";

/// Paragraphs of the text: as many as an evaluation on a GPU in software measures in seconds.
const PARAGRAPHS: usize = 60;

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("pleach-gpus-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }

    /// A run file with more keys of `[run]`.
    fn run(&self, name: &str, keys: &str) -> String {
        let [path, text, folder] =
            [format!("{name}.toml"), "text.txt".into(), name.into()].map(|name| self.0.join(name));
        let paragraph = |number: usize| format!("Paragraph {number} has the number {} twice.\n\n", number * number);
        std::fs::write(&text, (0..PARAGRAPHS).map(paragraph).collect::<String>()).expect("a text");
        let run = format!("{RUN}path = {text:?}\n[run]\nfolder = {folder:?}\n{keys}");
        std::fs::write(&path, run).expect("a file");
        path.display().to_string()
    }

    /// A folder with libraries in software under NVIDIA's names, which compile with NVRTC; `settings` are theirs.
    fn libraries(&self, settings: &str) -> PathBuf {
        let folder = self.0.join("nvidia");
        if !folder.exists() {
            put_libraries(&folder, &["libcublasLt.so.13", "libcudnn.so.9", "libnvrtc.so.13"]);
        }
        // Tests of all crates share what NVRTC compiles: from nothing, it takes as long as many of them together.
        let (nvrtc, kernels) = (compiler().path().to_path_buf(), cache_of_tests());
        let settings = format!("nvrtc = {}\nkernels = {}\n{settings}", nvrtc.display(), kernels.folder().display());
        std::fs::write(folder.join("softgpu.settings"), settings).expect("written");
        folder
    }

    /// Runs `pleach` to its end, on a host with one GPU in software.
    fn pleach(&self, arguments: &[&str]) -> Output {
        pleach_with_libraries(&self.libraries(""), arguments)
    }

    /// The output of a command that succeeds there.
    fn prints(&self, arguments: &[&str]) -> String {
        let output = self.pleach(arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", stderr(&output));
        stdout(&output)
    }

    fn weights(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.0.join(name).join("weights.safetensors")).expect("weights")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Compiles the kernels, once for all tests.
fn compile_kernels() {
    static COMPILED: OnceLock<()> = OnceLock::new();
    COMPILED.get_or_init(|| {
        let folder = Folder::new("compiled");
        let few = ["train.steps=1", "train.warmup_steps=0"].map(|setting| ["--set", setting]);
        let file = folder.run("cuda", "device = \"cuda\"\n");
        folder.prints(&[&["train", &file, "--quiet"], few.as_flattened()].concat());
    });
}

/// Copies the compiled kernels of all tests for GPUs in software of capability 9.0 to a folder of caches; returns the
/// copies, the smallest first.
fn copied_kernels(caches: &Path) -> Vec<PathBuf> {
    let to = caches.join("pleach/kernels");
    std::fs::create_dir_all(&to).expect("a folder");
    let mut copied = vec![];
    for entry in std::fs::read_dir(harness::caches().join("pleach/kernels")).expect("kept code") {
        let entry = entry.expect("a file");
        let bytes = std::fs::read(entry.path()).expect("kept code");
        let text = String::from_utf8_lossy(&bytes);
        if text.contains("softgpu") && text.contains(".target sm_90a") {
            let path = to.join(entry.file_name());
            std::fs::write(&path, &bytes).expect("written");
            copied.push((bytes.len(), path));
        }
    }
    copied.sort();
    copied.into_iter().map(|(_, path)| path).collect()
}

fn command_with_libraries(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pleach"));
    command.args(arguments).env("PLEACH_CUDA", folder).env("XDG_CACHE_HOME", harness::caches());
    command
}

fn pleach_with_libraries(folder: &Path, arguments: &[&str]) -> Output {
    command_with_libraries(folder, arguments).output().expect("the command starts")
}

/// Puts the libraries in software into a new folder, as NVIDIA's driver and under `more` names.
fn put_libraries(folder: &Path, more: &[&str]) {
    std::fs::create_dir_all(folder).expect("a folder");
    // Cargo builds the shared library as a dependency of this test, next to the test's own program.
    let program = std::env::current_exe().expect("a program");
    let library = program.parent().expect("a folder").join("libsoftgpu_driver.so");
    std::fs::copy(library, folder.join("libcuda.so.1")).expect("a copy");
    for name in more {
        std::fs::hard_link(folder.join("libcuda.so.1"), folder.join(name)).expect("another name");
    }
}

#[needs::cuda]
#[test]
fn a_run_moves_between_devices_and_processes_with_the_same_weights() {
    compile_kernels();
    let folder = Folder::new("moves");
    prints(&["train", &folder.run("cpu", ""), "--quiet"]);
    let cuda = "device = \"cuda\"\n";
    let libraries = folder.libraries("gpus = 2\n");
    let output = pleach_with_libraries(&libraries, &["train", &folder.run("cuda", cuda)]);
    let said = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{said}{}", stderr(&output));
    assert!(folder.weights("cuda") == folder.weights("cpu"), "one process");
    let line = "device  GPU 0 (soft GPU (sm_90a)): 2 ranks with ";
    assert!(said.contains(line) && said.contains("device  GPU 1"), "{said}");
    // Two processes, each with two GPUs in software of its own for two ranks.
    let two = ["launch", "--nproc", "2", "--", "train", &folder.run("shared", cuda), "--quiet"];
    let output = pleach_with_libraries(&libraries, &two);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(folder.weights("shared") == folder.weights("cpu"), "two processes");
    // Half of the steps on CPUs, and the others on GPUs.
    prints(&["train", &folder.run("half", ""), "--set", "train.steps=2", "--set", "train.warmup_steps=1", "--quiet"]);
    let half = folder.0.join("half").display().to_string();
    let resumed = ["--set", "train.steps=4", "--set", "run.device=cuda", "--quiet"];
    let output = folder.pleach(&[&["train", "--resume", &half], &resumed[..]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    // The learning rate depends on the number of steps, so the oracle does the same on CPUs.
    prints(&["train", &folder.run("oracle", ""), "--set", "train.steps=2", "--set", "train.warmup_steps=1", "--quiet"]);
    let oracle = folder.0.join("oracle").display().to_string();
    prints(&["train", "--resume", &oracle, "--set", "train.steps=4", "--quiet"]);
    assert!(folder.weights("half") == folder.weights("oracle"), "resumed");
    let evaluated = |name: &str| folder.prints(&["eval", "--from", &folder.0.join(name).display().to_string()]);
    let losses = ["cpu", "cuda"].map(|name| {
        let said = evaluated(name);
        said.split_whitespace().filter(|word| word.parse::<f64>().is_ok()).map(String::from).collect::<Vec<_>>()
    });
    assert!(!losses[0].is_empty() && losses[0] == losses[1], "{losses:?}");
}

#[needs::cuda]
#[test]
fn the_cpu_and_a_gpu_promise_the_same_bits_and_keep_it() {
    let folder = Folder::new("promise");
    let files = [folder.run("cpu", ""), folder.run("cuda", "device = \"cuda\"\n")];
    let promised = folder.prints(&["check", &files[0], &files[1]]);
    assert!(promised.contains(": same order\n") && promised.contains("have the same bits"), "{promised}");
    compile_kernels();
    let proved = folder.prints(&["prove", &files[0], &files[1]]);
    assert!(proved.contains("3 steps: same bits, weights xxh3"), "{proved}");
    let compared = folder.prints(&["diff", &files[0], &files[1], "--steps", "1"]);
    assert!(compared.contains("no difference"), "{compared}");
}

#[test]
fn ranks_are_assigned_to_gpus_round_by_round() {
    let folder = Folder::new("explain");
    let file = folder.run("cuda", "device = \"cuda\"\ngpus = 3\n");
    let explained = prints(&["explain", &file]);
    let expected = "GPUs    3 of each host; rank n of a host has GPU n modulo 3\n  \
                    this host  GPU 0: ranks 0, 3\n  this host  GPU 1: rank 1\n  this host  GPU 2: rank 2\n";
    assert!(explained.contains(expected), "{explained}");
    let graphs = "graphs  of the kernels that a rank launches again and again, where the driver has graphs\n";
    assert!(explained.contains(graphs), "{explained}");
    let off = prints(&["explain", &file, "--set", "run.gpu_graphs=off"]);
    assert!(off.contains("graphs  off: kernels are launched one by one\n"), "{off}");
    assert!(prints(&["explain", &file, "--rank", "3"]).contains("  has GPU 0 of its host\n"));
}

#[needs::cuda]
#[test]
fn an_order_that_gpus_do_not_have_is_refused_before_work_starts() {
    let folder = Folder::new("order");
    let file = folder.run("cuda", "device = \"cuda\"\n");
    let refused = |more: &[&str]| {
        let output = folder.pleach(&[&["train", &file], more].concat());
        assert_eq!((output.status.code(), stdout(&output)), (Some(2), String::new()), "{}", stderr(&output));
        stderr(&output)
    };
    let said = refused(&["--set", "train.products=pairs"]);
    let rule = "train.products = \"pairs\" must be supported by the device; the GPU refuses it; use \"chained\"";
    assert!(said.contains(rule), "{said}");
    let said = refused(&["--set", "train.precision=bf16", "--set", "train.products=blocks8"]);
    let rule = "train.products = \"blocks8\" must be supported by the device; a GPU of compute capability 9.0 or later \
                refuses it; use ";
    assert!(said.contains(rule) && !folder.0.join("cuda").exists(), "{said}");
}

/// Runs of earlier versions named GPUs in software as a device.
#[test]
fn a_run_on_the_soft_gpu_of_earlier_versions_is_told_what_to_do() {
    let folder = Folder::new("earlier");
    let refused = |arguments: &[&str]| {
        let output = pleach(arguments);
        assert_eq!((output.status.code(), stdout(&output)), (Some(2), String::new()), "{}", stderr(&output));
        let said = stderr(&output);
        for part in [
            "\"soft-gpu\" is not \"cpu\" or \"cuda\"; use \"cpu\"",
            "tools/soft-gpu.sh FOLDER",
            "--set run.device=cuda",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
    };
    refused(&["train", &folder.run("soft", "device = \"soft-gpu\"\n")]);
    prints(&["train", &folder.run("half", ""), "--set", "train.steps=2", "--set", "train.warmup_steps=1", "--quiet"]);
    let half = folder.0.join("half");
    // As such a version wrote its checkpoints.
    let manifest = half.join("checkpoints/step-00000002/manifest.json");
    let kept = std::fs::read_to_string(&manifest).expect("a manifest");
    let soft = kept.replace(r#"device = \"cpu\""#, r#"device = \"soft-gpu\""#);
    assert_ne!(kept, soft);
    std::fs::write(manifest, seal(soft.into_bytes())).expect("written");
    let half = half.display().to_string();
    refused(&["train", "--resume", &half, "--set", "train.steps=4"]);
    prints(&["train", "--resume", &half, "--set", "train.steps=4", "--set", "run.device=cpu", "--quiet"]);
}

#[needs::no_gpu]
#[test]
fn a_missing_driver_and_a_missing_compiler_are_named_with_their_remedies() {
    let folder = Folder::new("no-driver");
    let refused = |arguments: &[&str]| {
        let output = pleach_with_libraries(&folder.0, arguments);
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        stderr(&output)
    };
    let said = refused(&["train", &folder.run("cuda", "device = \"cuda\"\n")]);
    assert!(said.contains("run.device = \"cuda\" has no driver: "), "{said}");
    assert!(said.contains("install or update the driver of the GPU; in a container, pass the GPU"), "{said}");
    assert!(said.contains(", or write run.device = \"cpu\""), "{said}");
    let profile = folder.0.join("here.toml").display().to_string();
    let said = refused(&["cluster", "measure", "--device", "cuda", "--out", &profile]);
    assert!(said.starts_with("--device cuda has no driver: "), "{said}");
    assert!(said.ends_with("in a container, pass the GPU through to it, or use --device cpu\n"), "{said}");
    put_libraries(&folder.0, &[]);
    let said = refused(&["train", &folder.run("cuda", "device = \"cuda\"\n")]);
    let (start, end) = ("kernels must be compiled for the GPU; NVRTC is missing", "give its folder in PLEACH_CUDA");
    assert!(said.contains(start) && said.contains(end), "{said}");
    // `check` refuses it in both forms.
    let check = ["check", &folder.run("cuda", "device = \"cuda\"\n"), "--json"];
    let [text, json] = [&check[..2], &check].map(|arguments| pleach_with_libraries(&folder.0, arguments));
    assert_eq!((text.status.code(), stderr(&text)), (json.status.code(), stderr(&json)));
    assert_eq!(stdout(&text).is_empty(), stdout(&json).is_empty());
}

#[needs::cuda]
#[test]
fn a_gpu_that_is_too_small_is_named_with_the_ranks_that_share_it() {
    compile_kernels();
    let folder = Folder::new("small");
    let file = folder.run("cuda", "device = \"cuda\"\n");
    let large = ["model.hidden=4096", "model.num_heads=32", "model.ffn_hidden=16384"].map(|setting| ["--set", setting]);
    let refused = |arguments: &[&str]| {
        let output = folder.pleach(&[arguments, large.as_flattened()].concat());
        assert_eq!((output.status.code(), stdout(&output)), (Some(2), String::new()), "{}", stderr(&output));
        stderr(&output)
    };
    let said = refused(&["train", &file]);
    assert!(said.contains("GPU 0 (soft GPU (sm_90a)): 4 ranks with "), "{said}");
    assert!(said.contains("does not fit; use more GPUs, or a layout whose ranks need less"), "{said}");
    let said = refused(&["check", &file]);
    let remedy = ") does not fit; use more GPUs; with these, use parallelism.dp = 1 with run.ranks = 2 (needs ";
    assert!(said.contains(remedy) && !said.contains("pleach check"), "{said}");
    assert_eq!(refused(&["check", &file, "--json"]), said);
    let checked: serde_json::Value = serde_json::from_str(&folder.prints(&["check", &file, "--json"])).expect("JSON");
    let gpu = &checked["gpus"][0];
    assert_eq!((&gpu["name"], &gpu["ranks"]), (&"GPU 0 (soft GPU (sm_90a))".into(), &4.into()), "{checked}");
    let bytes = |key: &str| gpu[key].as_u64().expect("bytes");
    assert_eq!(Some(bytes("arena_bytes")), checked["memory"]["together_bytes"].as_u64());
    assert!(bytes("arena_bytes") + bytes("margin_bytes") <= bytes("free_bytes"), "{checked}");
}

/// The file of compiled code again, with other code: as crate `nvidia` keeps it.
fn with_other_code(file: &[u8], change: impl FnOnce(String) -> String) -> Vec<u8> {
    let (head, rest) = file.split_at(16);
    let log_bytes = u64::from_le_bytes(rest[..8].try_into().expect("8 bytes")) as usize;
    let (before, code) = rest.split_at(8 + log_bytes);
    let code = change(String::from_utf8(code.to_vec()).expect("PTX"));
    let rest = [before, code.as_bytes()].concat();
    [&head[..8], &xxhash_rust::xxh3::xxh3_64(&rest).to_le_bytes(), &rest].concat()
}

/// A kernel that stops stands for a GPU that fails: the code that is kept is changed.
#[needs::cuda]
#[test]
fn a_kernel_that_fails_ends_the_run_with_code_1_and_names_what_failed() {
    compile_kernels();
    let folder = Folder::new("fails");
    let file = folder.run("cuda", "device = \"cuda\"\n");
    let train = || {
        let mut command = command_with_libraries(&folder.libraries(""), &["train", &file, "--quiet"]);
        command.env("XDG_CACHE_HOME", &folder.0).output().expect("the command starts")
    };
    let kernels = copied_kernels(&folder.0);
    assert_eq!(train().status.code(), Some(0));
    let mut changed = 0;
    for path in kernels {
        let kept = std::fs::read(&path).expect("kept code");
        let other = with_other_code(&kept, |ptx| {
            if !ptx.contains(".entry adamw(") {
                return ptx;
            }
            changed += 1;
            ptx.replace("\tret;", "\ttrap;")
        });
        std::fs::write(&path, other).expect("written");
    }
    assert_eq!(changed, 1);
    let output = train();
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    for part in
        ["rank ", " failed in step 1 at ", "GPU 0 (soft GPU (sm_90a))", "a fault in a kernel", "trap", "report it"]
    {
        assert!(said.contains(part), "{part}: {said}");
    }
}

/// Files that were cut off count as none, two processes may fill the folder at once, and a place that takes no file
/// only costs the time of compiling.
#[needs::cuda]
#[test]
fn kept_code_that_is_damaged_shared_or_impossible_stops_no_run() {
    compile_kernels();
    let folder = Folder::new("kept");
    let files = ["one", "two"].map(|name| folder.run(name, "device = \"cuda\"\n"));
    let libraries = folder.libraries("");
    let train = |file: &str, more: &[&str]| {
        let arguments = ["train", file, "--set", "train.steps=1", "--set", "train.warmup_steps=0"];
        let mut command = command_with_libraries(&libraries, &[&arguments, more].concat());
        command.env("XDG_CACHE_HOME", &folder.0);
        command
    };
    let start = |file: &str| train(file, &["--quiet"]).spawn().expect("the command starts");
    let kernels = copied_kernels(&folder.0);
    let whole: Vec<Vec<u8>> = kernels.iter().map(|path| std::fs::read(path).expect("kept code")).collect();
    kernels[..3].iter().for_each(|path| std::fs::remove_file(path).expect("removed"));
    for mut running in files.each_ref().map(|file| start(file)) {
        assert_eq!(running.wait().expect("ended").code(), Some(0));
    }
    assert!(folder.weights("one") == folder.weights("two"));
    let kept: BTreeSet<PathBuf> = std::fs::read_dir(folder.0.join("pleach/kernels"))
        .expect("kept code")
        .map(|entry| entry.expect("a file").path())
        .collect();
    assert!(kept == kernels.iter().cloned().collect(), "{kept:?}");
    for (index, (path, bytes)) in kernels.iter().zip(&whole).take(5).enumerate() {
        let cut = [0, 7, 24, bytes.len() / 2, bytes.len() - 1][index];
        std::fs::write(path, &bytes[..cut]).expect("written");
    }
    let expected = folder.weights("one");
    assert_eq!(start(&files[0]).wait().expect("ended").code(), Some(0));
    assert!(folder.weights("one") == expected);
    let is_whole = |(path, bytes): (&PathBuf, &Vec<u8>)| std::fs::read(path).expect("kept code") == *bytes;
    assert!(kernels.iter().zip(&whole).all(is_whole), "what was cut off is compiled again");
    // A folder in the place of a file, and another in the place of the one that is tried.
    std::fs::remove_file(&kernels[0]).expect("removed");
    let cache = folder.0.join("pleach/kernels");
    for taken in [&kernels[0], &cache.join("probe")] {
        std::fs::create_dir_all(taken.join("taken")).expect("a folder");
    }
    let output = train(&files[1], &[]).output().expect("the command starts");
    let (printed, warned) = (stdout(&output), stderr(&output));
    assert_eq!(output.status.code(), Some(0), "{warned}");
    assert!(folder.weights("two") == expected && kernels[0].join("taken").is_dir());
    let line = "kernels 1 file to compile before the GPU computes; this may take minutes\n";
    assert!(printed.matches(line).count() == 1 && printed.contains("\nsample  generated from "), "{printed}");
    let warning = format!("warning: compiled kernels cannot be kept in {}: ", cache.display());
    assert!(warned.matches(&warning).count() == 1, "{warned}");
}

/// A folder with the driver and NCCL of GPUs in software under NVIDIA's names, an archive of kernels for them, and no
/// compiler: their NVRTC has no settings.
fn libraries_in_software(folder: &Folder) -> PathBuf {
    let libraries = folder.0.join("libraries");
    put_libraries(&libraries, &["libnccl.so.2", "libnvrtc.so.13"]);
    static ARCHIVE: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let capability = Capability { major: 9, minor: 0 };
        let archive = ArchivedKernels::compile(&compiler(), Some(&cache_of_tests()), &[capability]).expect("compiled");
        archive.to_bytes().expect("bytes")
    });
    std::fs::write(libraries.join("pleach-kernels"), &*ARCHIVE).expect("written");
    libraries
}

/// The rates are those of a GPU in software; that they are of each constant's own operation shows on a GPU.
#[needs::cuda]
#[test]
fn gpus_are_measured_and_their_profile_prices_a_step() {
    let folder = Folder::new("measured");
    let libraries = libraries_in_software(&folder);
    let profile = folder.0.join("here.toml").display().to_string();
    let measure =
        |more: &[&str]| pleach_with_libraries(&libraries, &[&["cluster", "measure", "--out", &profile], more].concat());
    let refused = |more: &[&str]| {
        let output = measure(more);
        assert_eq!(output.status.code(), Some(2), "{more:?}");
        assert!(!std::path::Path::new(&profile).exists(), "{more:?}");
        stderr(&output)
    };
    let said = refused(&["--device", "cuda"]);
    assert!(said.contains("no built-in profile has the data sheet of ") && said.contains("--base NAME"), "{said}");
    let said = refused(&["--base", "h200-141g-dgx"]);
    assert!(said.contains("--base h200-141g-dgx has no effect on cores"), "{said}");
    let said = refused(&["--products", "device"]);
    assert!(said.contains("--products device has no effect on cores; leave it out, or add --device cuda"), "{said}");
    let output = measure(&["--device", "cuda", "--base", "h200-141g-dgx"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let said = stdout(&output);
    assert!(said.contains("peak        989000.0 GFLOP/s each, of which products reach "), "{said}");
    let text = std::fs::read_to_string(&profile).expect("a profile");
    assert!(text.contains("one GPU has no links to measure: those of the base; base: "), "{text}");
    assert!(text.contains("the generation of kernels: those of the base; base: "), "{text}");
    assert!(text.contains("compute = \"measured on this GPU, by pleach's kernels in bf16"), "{text}");
    let priced = pleach_with_libraries(&libraries, &["simulate", "--cluster", &profile, "--json"]);
    assert_eq!(priced.status.code(), Some(0), "{}", stderr(&priced));
    let json: serde_json::Value = serde_json::from_str(&stdout(&priced)).expect("JSON");
    assert!(json["step_s"].as_f64().is_some_and(|seconds| seconds > 0.0));
}

#[needs::cuda]
#[needs::no_gpu]
#[test]
fn products_of_a_library_are_measured_and_a_missing_library_is_named() {
    let folder = Folder::new("measured-library");
    let libraries = libraries_in_software(&folder);
    let profile = folder.0.join("here.toml").display().to_string();
    let device = ["--device", "cuda", "--base", "h200-141g-dgx", "--products", "device"];
    let measure =
        || pleach_with_libraries(&libraries, &[&["cluster", "measure", "--out", &profile], &device[..]].concat());
    let output = measure();
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.starts_with("--products device needs cuBLASLt: cuBLASLt is missing: "), "{said}");
    assert!(said.ends_with(" in PLEACH_CUDA; or use --products blocks\n"), "{said}");
    std::fs::hard_link(libraries.join("libcuda.so.1"), libraries.join("libcublasLt.so.13")).expect("another name");
    let output = measure();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = std::fs::read_to_string(&profile).expect("a profile");
    let source = "by pleach's kernels in bf16, products by the first algorithm of the GPU's library";
    assert!(text.contains(source), "{text}");
}

/// Each process sees an instance of its own, all on one place of PCI.
#[needs::cuda]
#[test]
fn instances_of_one_gpu_are_joined_by_way_of_the_host() {
    let folder = Folder::new("instances");
    let libraries = libraries_in_software(&folder);
    std::fs::write(libraries.join("softgpu.settings"), "bus = 0000:1b:00.0\n").expect("written");
    prints(&["train", &folder.run("cpu", ""), "--quiet"]);
    let cuda = folder.run("cuda", "device = \"cuda\"\n");
    let launch = |more: &[&str]| {
        let arguments = ["launch", "--nproc", "4", "--", "train", &cuda];
        pleach_with_libraries(&libraries, &[&arguments, more].concat())
    };
    let output = launch(&[]);
    let said = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{said}{}", stderr(&output));
    let joined = "joined  by way of the host: processes 0 and 1 have instances (MIG) of GPU 0000:1b:00.0, which NCCL does \
                  not join, of ";
    assert!(said.contains(joined), "{said}");
    assert!(folder.weights("cuda") == folder.weights("cpu"));
    let output = launch(&["--overwrite", "--set", "run.gpu_collectives=nccl"]);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("got: processes 0 and 1 have instances (MIG) of GPU 0000:1b:00.0"), "{said}");
}

/// Four processes with a GPU in software each, which they open by the names of NVIDIA's driver and of NCCL: the program
/// has no compiler, and the kernels are an archive in the folder of the libraries.
#[needs::cuda]
#[test]
fn processes_with_a_gpu_each_are_joined_by_nccl_and_have_the_weights_of_the_cpu() {
    let folder = Folder::new("nccl");
    let libraries = libraries_in_software(&folder);
    prints(&["train", &folder.run("cpu", ""), "--quiet"]);
    let cuda = folder.run("cuda", "device = \"cuda\"\ngpu_collectives = \"nccl\"\n");
    let output = pleach_with_libraries(&libraries, &["launch", "--nproc", "4", "--", "train", &cuda]);
    let said = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{said}{}", stderr(&output));
    let joined = format!("at {}", libraries.join("libnccl.so.2").display());
    assert!(said.contains("joined  by NCCL ") && said.contains(&joined), "{said}");
    assert!(folder.weights("cuda") == folder.weights("cpu"), "four processes over NCCL");
    // One process has all ranks, which NCCL does not join.
    let output = pleach_with_libraries(&libraries, &["train", &cuda, "--overwrite"]);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("needs a process and a GPU for each rank, and NCCL on every host"), "{said}");
    assert!(folder.weights("cuda") == folder.weights("cpu"), "a refused run replaces nothing");
}
