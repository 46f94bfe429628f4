//! GPUs that are newer than the compiler.

use gpu::Capability;
use testkit::soft_gpus::{cache_of_tests, compiler};
use train::ArchivedKernels;

use crate::gpus::{Folder, pleach_with_libraries};
use crate::harness::{prints, stderr, stdout};

/// NVRTC 12.8 does not know 10.3 and 12.1. Here the GPU is of 8.7, the compiler stops at 8.6, and kernels of 8.0 are
/// carried.
#[needs::cuda]
#[test]
fn a_gpu_that_the_compiler_does_not_know_runs_the_carried_kernels_of_an_older_one() {
    let folder = Folder::new("unknown");
    prints(&["train", &folder.run("cpu", ""), "--quiet"]);
    let file = folder.run("cuda", "device = \"cuda\"\n");
    let libraries = folder.libraries("capability = 8.7\nnvrtc_newest = 8.6\n");
    let train = || pleach_with_libraries(&libraries, &["train", &file]);
    let refused = train();
    assert_eq!((refused.status.code(), stdout(&refused)), (Some(2), String::new()));
    let said = stderr(&refused);
    let reason = "GPU 0 (soft GPU (sm_87)) has compute capability sm_87, which NVRTC 13.1000 does not know, and the \
                  program carries no kernels for it; put a newer NVRTC first in PLEACH_CUDA";
    assert!(said.contains(reason), "{said}");
    let capability = Capability { major: 8, minor: 0 };
    let archive = ArchivedKernels::compile(&compiler(), Some(&cache_of_tests()), &[capability]).expect("compiled");
    std::fs::write(libraries.join("pleach-kernels"), archive.to_bytes().expect("bytes")).expect("written");
    let output = train();
    let said = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{said}{}", stderr(&output));
    let line = "kernels PTX of NVRTC 13.0 for compute_80, as NVRTC 13.1000 does not know sm_87\n";
    assert_eq!(said.matches(line).count(), 1, "{said}");
    assert!(!said.contains("to compile before the GPU computes"), "{said}");
    assert!(folder.weights("cuda") == folder.weights("cpu"));
    // The same archive leaves a GPU that the compiler knows to the compiler.
    let known = folder.libraries("capability = 8.0\nnvrtc_newest = 8.6\n");
    let checked = pleach_with_libraries(&known, &["train", &file, "--overwrite", "--set", "train.steps=1"]);
    assert_eq!(checked.status.code(), Some(0), "{}", stderr(&checked));
    assert!(!stdout(&checked).contains("does not know"), "{}", stdout(&checked));
}
