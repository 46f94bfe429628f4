//! Products in blocks by the fastest tiles, and by algorithms of a library with the same bits.

use crate::gpus::{Folder, compile_kernels, libraries_in_software, pleach_with_libraries};
use crate::harness::{stderr, stdout};

/// Two replicas of one layer: each product of more layers would be timed once more.
const SMALL: [&str; 7] = [
    "model.num_layers=1",
    "parallelism.pp=1",
    "model.hidden=32",
    "model.context=32",
    "train.precision=bf16",
    "train.products=blocks16",
    "train.steps=2",
];

/// Tiles change no bit, whichever are the fastest, so nothing is kept of them.
#[needs::cuda]
#[test]
fn timed_tiles_have_the_bits_of_estimated_ones() {
    let folder = Folder::new("tiles");
    let libraries = libraries_in_software(&folder);
    let set = SMALL.map(|setting| ["--set", setting]);
    let trained = |name: &str, kernels: &str| {
        let file = folder.run(name, &format!("device = \"cuda\"\nproduct_kernels = {kernels:?}\n"));
        let output = pleach_with_libraries(&libraries, &[&["train", &file], set.as_flattened()].concat());
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        (folder.weights(name), stdout(&output).matches("products by the fastest tiles of ").count())
    };
    let (weights, lines) = trained("estimated", "estimated");
    assert_eq!(lines, 0);
    let (timed, lines) = trained("timed", "timed");
    assert!(timed == weights && lines == 1, "{lines} lines");
    let file = folder.0.join("timed/run.toml").display().to_string();
    let of_each =
        "products in blocks by the fastest of pleach's kernels for each, timed by `train` where there are several\n";
    assert!(stdout(&pleach_with_libraries(&libraries, &["explain", &file])).contains(of_each));
}

/// GPUs without warpgroups compute products with the activations that follow in one kernel or in two.
#[needs::cuda]
#[test]
fn timed_kernels_by_warps_have_the_bits_of_estimated_ones() {
    let folder = Folder::new("warps");
    let libraries = folder.libraries("capability = 10.0\n");
    let set = SMALL.map(|setting| ["--set", setting]);
    let trained = |name: &str, kernels: &str| {
        let file = folder.run(name, &format!("device = \"cuda\"\nproduct_kernels = {kernels:?}\n"));
        let output = pleach_with_libraries(&libraries, &[&["train", &file], set.as_flattened()].concat());
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        (folder.weights(name), stdout(&output))
    };
    let ((estimated, _), (timed, said)) = (trained("estimated", "estimated"), trained("timed", "timed"));
    assert!(said.contains("products by the fastest tiles of ") && said.contains(" on soft GPU"), "{said}");
    assert!(timed == estimated, "one kernel has the bits of two");
}

/// Whole sums of the soft GPU's library have the bits of blocks, and those that are cut in two have not.
#[needs::cuda]
#[test]
fn equal_algorithms_leave_the_bits_of_blocks_and_are_kept() {
    compile_kernels();
    let folder = Folder::new("equal");
    let set = SMALL.map(|setting| ["--set", setting]);
    let trained = |name: &str, algorithms: &str| {
        let file = folder.run(name, &format!("device = \"cuda\"\nproduct_algorithms = {algorithms:?}\n"));
        let said = folder.prints(&[&["train", &file], set.as_flattened()].concat());
        (folder.weights(name), said)
    };
    let (blocks, _) = trained("blocks", "first");
    let (equal, said) = trained("equal", "equal");
    let compared = "products compared on soft GPU (sm_90a) (CUDA ";
    assert!(said.contains(compared) && said.contains("cuBLASLt 13.0.0 with the bits of blocks16) in "), "{said}");
    assert!(equal == blocks, "equal algorithms have the bits of blocks");
    let kept = std::fs::read_to_string(folder.0.join("equal/product_algorithms.json")).expect("a file");
    // The second word is the number of pieces, or all ones for pleach's kernels.
    assert!(kept.contains("\"0000000000000001\"") && !kept.contains("\"0000000000000002\""), "{kept}");
    let file = |name: &str| folder.0.join(name).join("run.toml").display().to_string();
    let compared = folder.prints(&["check", &file("blocks"), &file("equal")]);
    assert!(compared.contains(": other sums\n") && compared.contains("run.product_algorithms"), "{compared}");
    let explained = folder.prints(&["explain", &file("equal")]);
    assert!(explained.contains("of the library's algorithms with their bits, compared and timed by `train`\n"));
    let run = folder.0.join("equal").display().to_string();
    let said = folder.prints(&["train", "--resume", &run, "--set", "train.steps=4"]);
    assert!(said.contains("products by pleach's kernels and by the algorithms of product_algorithms.json"), "{said}");
}
