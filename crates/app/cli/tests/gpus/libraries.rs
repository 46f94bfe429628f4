//! Runs whose products and attention are computed by libraries.

use std::path::Path;
use std::process::Output;

use crate::gpus::{Folder, compile_kernels, libraries_in_software, pleach_with_libraries};
use crate::harness::{prints, stderr, stdout};

/// The library is looked for before a run starts. Its products have bits of their own, and have them again.
#[needs::cuda]
#[needs::no_gpu]
#[test]
fn products_of_the_device_need_its_library_and_repeat_their_bits() {
    let folder = Folder::new("products");
    let libraries = libraries_in_software(&folder);
    let run = |name: &str, device: &str, products: &str, more: &[&str]| {
        let file = folder.run(name, &format!("device = {device:?}\n"));
        let products = format!("train.products={products}");
        // Sums over elements and over tokens are long enough to be cut. Gradients are kept in fp32, where another order
        // shows in most elements; in bf16 it shows in few of ten thousand.
        let width = ["--set", "model.hidden=32", "--set", "model.context=32", "--set", "train.steps=2", "--quiet"];
        let set = ["--set", "train.precision=bf16", "--set", &products];
        pleach_with_libraries(&libraries, &[&["train", &file], &width[..], &set[..], more].concat())
    };
    let refused = |output: Output| {
        assert_eq!((output.status.code(), stdout(&output)), (Some(2), String::new()), "{}", stderr(&output));
        stderr(&output)
    };
    let said = refused(run("cpu", "cpu", "device", &[]));
    let rule = "train.products = \"device\" must be supported by the device; the CPU refuses it; use \"chained\", \"pairs\", \"blocks16\" \
                or \"blocks8\"";
    assert!(said.contains(rule), "{said}");
    let said = refused(run("missing", "cuda", "device", &[]));
    let library = "train.products = \"device\" needs cuBLASLt: cuBLASLt is missing: libcublasLt.so.13 is not in ";
    assert!(said.contains(library) && said.contains("`pip install nvidia-cublas`"), "{said}");
    std::fs::hard_link(libraries.join("libcuda.so.1"), libraries.join("libcublasLt.so.13")).expect("another name");
    let trained = |name: &str, products: &str, more: &[&str]| {
        let output = run(name, "cuda", products, more);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        folder.weights(name)
    };
    let explained = || {
        let file = folder.run("explained", "device = \"cuda\"\n");
        let set = ["--set", "train.precision=bf16", "--set", "train.products=device"];
        stdout(&pleach_with_libraries(&libraries, &[&["explain", &file], &set[..]].concat()))
    };
    let library = "products by cuBLASLt, the first algorithm that it proposes for each (cuBLASLt 13.0.0 here)\n";
    let without = explained();
    let missing = "attention by pleach's kernels (here: cuDNN is missing: libcudnn.so.9 is not in ";
    assert!(without.contains(library) && without.contains(missing), "{without}");
    std::fs::hard_link(libraries.join("libcuda.so.1"), libraries.join("libcudnn.so.9")).expect("another name");
    let by_library = "attention by cuDNN 9.28.1 here, where it has no windows, no ALiBi and no dropout\n";
    assert!(explained().contains(by_library), "{}", explained());
    let first = trained("first", "device", &[]);
    assert!(trained("again", "device", &[]) == first, "the same layout has the same bits");
    assert!(trained("blocks", "blocks16", &[]) != first, "the library adds in an order of its own");
    let file = |name: &str| folder.0.join(name).join("run.toml").display().to_string();
    let compared = prints(&["check", &file("first"), &file("again")]);
    assert!(compared.contains(": same order\n"), "{compared}");
    trained("flat", "device", &["--set", "parallelism.pp=1"]);
    let compared = prints(&["check", &file("first"), &file("flat")]);
    assert!(compared.contains(": other sums\n"), "{compared}");
}

/// Which algorithm is the fastest differs from start to start, so the file in the folder of the run decides.
#[needs::cuda]
#[test]
fn a_resumed_run_takes_the_algorithms_that_were_timed_before() {
    compile_kernels();
    let folder = Folder::new("algorithms");
    let set = ["model.hidden=32", "model.context=32", "train.precision=bf16", "train.products=device", "train.steps=2"];
    let small = ["model.num_layers=1", "parallelism.pp=1"];
    let set: Vec<[&str; 2]> = set.into_iter().chain(small).map(|setting| ["--set", setting]).collect();
    let file = folder.run("timed", "device = \"cuda\"\nproduct_algorithms = \"timed\"\n");
    let explained = folder.prints(&[&["explain", &file], set.as_flattened()].concat());
    let of_each = "the fastest of the algorithms that it proposes for each, timed by `train` (cuBLASLt 13.0.0 here)\n";
    assert!(explained.contains(of_each), "{explained}");
    let said = folder.prints(&[&["train", &file], set.as_flattened()].concat());
    assert!(said.contains("products by the fastest algorithms of "), "{said}");
    let kept = std::fs::read_to_string(folder.0.join("timed/product_algorithms.json")).expect("a file");
    assert!(kept.contains("\"gpu\": \"soft GPU (sm_90a)\"") && kept.contains("\"workspace_bytes\""), "{kept}");
    // Two more steps of a copy whose file has this text.
    let resumed = |name: &str, text: &str, launch: &[&str]| {
        let copy = folder.0.join(name);
        copy_folder(&folder.0.join("timed"), &copy);
        std::fs::write(copy.join("product_algorithms.json"), text).expect("written");
        let copy = copy.display().to_string();
        let said = folder.prints(&[launch, &["train", "--resume", &copy, "--set", "train.steps=4"]].concat());
        (folder.weights(name), said, std::fs::read_to_string(Path::new(&copy).join("product_algorithms.json")))
    };
    // The second word of the soft GPU's algorithms is the number of pieces of a sum. Of products without a workspace
    // and of short sums it proposes unbroken sums alone.
    let with_pieces = |pieces: u64| {
        let mut all: serde_json::Value = serde_json::from_str(&kept).expect("JSON");
        for product in all["platforms"][0]["products"].as_array_mut().expect("products") {
            if product["sizes"][2].as_u64() >= Some(32) && product["workspace_bytes"].as_u64() > Some(0) {
                product["algorithm"][1] = format!("{pieces:016x}").into();
            }
        }
        serde_json::to_string_pretty(&all).expect("JSON") + "\n"
    };
    let (unbroken, cut) = (with_pieces(1), with_pieces(2));
    let (weights, said, after) = resumed("unbroken", &unbroken, &[]);
    assert!(said.contains("products by the algorithms of product_algorithms.json for soft GPU"), "{said}");
    let json = |text: &str| serde_json::from_str::<serde_json::Value>(text).expect("JSON");
    assert_eq!(json(&after.expect("a file")), json(&unbroken));
    let two = ["launch", "--nproc", "2", "--"];
    assert!(resumed("shared", &unbroken, &two).0 == weights, "two processes take the same ones");
    assert!(resumed("cut", &cut, &[]).0 != weights, "the file decides");
    for (name, text, warning) in [
        ("foreign", unbroken.replace("\"0000000000000001\",", "\"00000000000000ff\","), "does not propose "),
        ("other", kept.replace("\"CUDA ", "\"CUDA 9"), "has algorithms of soft GPU (sm_90a) (CUDA 9"),
        ("damaged", kept.replace("sizes", "shapes"), "cannot be used: unknown field `shapes`"),
    ] {
        let (_, said, after) = resumed(name, &text, &[]);
        assert!(said.contains(warning) && said.contains("chosen again, with other bits"), "{name}: {said}");
        assert!(after.expect("a file") != text, "{name}");
    }
}

/// Other versions of libraries have other bits, which the folder of the run tells.
#[needs::cuda]
#[test]
fn a_resumed_run_names_libraries_that_have_changed() {
    compile_kernels();
    let folder = Folder::new("versions");
    let set = ["train.precision=bf16", "train.products=device", "train.steps=2"].map(|setting| ["--set", setting]);
    let file = folder.run("whole", "device = \"cuda\"\n");
    let said = folder.prints(&[&["train", &file], set.as_flattened()].concat());
    assert!(!said.contains("this run was computed by"), "{said}");
    let kept = std::fs::read_to_string(folder.0.join("whole/gpu_libraries.json")).expect("a file");
    let resumed = |name: &str, text: Option<&str>, launch: &[&str]| {
        let copy = folder.0.join(name);
        copy_folder(&folder.0.join("whole"), &copy);
        let libraries = copy.join("gpu_libraries.json");
        match text {
            Some(text) => std::fs::write(&libraries, text).expect("written"),
            None => std::fs::remove_file(&libraries).expect("removed"),
        }
        let copy = copy.display().to_string();
        let said = folder.prints(&[launch, &["train", "--resume", &copy, "--set", "train.steps=4"]].concat());
        assert_eq!(std::fs::read_to_string(&libraries).expect("a file"), kept, "{name}");
        said.matches("warning: this run was computed by soft GPU (sm_90a) (CUDA 9").count()
    };
    let other = kept.replace("\"CUDA ", "\"CUDA 9");
    assert_eq!(resumed("same", Some(&kept), &[]), 0);
    assert_eq!(resumed("other", Some(&other), &[]), 1);
    assert_eq!(resumed("shared", Some(&other), &["launch", "--nproc", "2", "--"]), 1);
    assert_eq!(resumed("unknown", None, &[]), 0);
}

fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder");
    for entry in std::fs::read_dir(from).expect("a folder") {
        let entry = entry.expect("an entry");
        let to = to.join(entry.file_name());
        if entry.file_type().expect("a type").is_dir() {
            copy_folder(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), to).expect("copied");
        }
    }
}

/// Attention by the library has bits of its own, which the key leaves to the kernels.
#[needs::cuda]
#[test]
fn attention_of_the_device_repeats_its_bits_and_can_be_left_to_the_kernels() {
    compile_kernels();
    let folder = Folder::new("attention");
    let set = ["train.precision=bf16", "train.products=device", "model.hidden=32", "model.context=32", "train.steps=2"];
    let set = set.map(|setting| ["--set", setting]);
    let trained = |name: &str, more: &[&str]| {
        let file = folder.run(name, "device = \"cuda\"\n");
        let output = folder.pleach(&[&["train", &file, "--quiet"], set.as_flattened(), more].concat());
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        folder.weights(name)
    };
    let (off, past) = (["--set", "run.attention_library=off"], ["--set", "data.visible=document"]);
    let first = trained("first", &[]);
    assert!(trained("again", &[]) == first, "the same layout has the same bits");
    assert!(trained("kernels", &off) != first, "the library adds in an order of its own");
    let documents = [trained("documents", &past), trained("documents-off", &[&past[..], &off].concat())];
    assert!(documents[0] == documents[1], "the library knows no documents");
    let file = |name: &str| folder.0.join(name).join("run.toml").display().to_string();
    let compared = folder.prints(&["check", &file("first"), &file("kernels")]);
    assert!(compared.contains(": other sums\n") && compared.contains("run.attention_library"), "{compared}");
    let explained = folder.prints(&[&["explain", &file("first")], &off[..]].concat());
    assert!(explained.contains("attention by pleach's kernels\n"), "{explained}");
}
