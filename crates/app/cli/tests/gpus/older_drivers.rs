//! Drivers before that of the newest CUDA, and compilers of their version.

use crate::gpus::{Folder, command_with_libraries, pleach_with_libraries};
use crate::harness::{caches, prints, stderr};

/// Driver 570 has CUDA 12.8, and driver 550 has 12.4: both load the code of an NVRTC of CUDA 12.
#[needs::cuda]
#[test]
fn a_run_with_a_driver_and_a_compiler_of_cuda_12_has_the_weights_of_the_cpu() {
    let folder = Folder::new("cuda-12");
    prints(&["train", &folder.run("cpu", ""), "--quiet"]);
    let file = folder.run("cuda", "device = \"cuda\"\n");
    for cuda in ["12.8", "12.4"] {
        let libraries = folder.libraries(&format!("cuda = {cuda}\nnvrtc_version = 12.8\n"));
        // Code of another compiler is kept apart from that of all other tests.
        let mut command = command_with_libraries(&libraries, &["train", &file, "--quiet", "--overwrite"]);
        command.env("XDG_CACHE_HOME", caches().join("cuda-12"));
        let output = command.output().expect("the command starts");
        assert_eq!(output.status.code(), Some(0), "{cuda}: {}", stderr(&output));
        assert!(folder.weights("cuda") == folder.weights("cpu"), "{cuda}");
    }
}

#[needs::cuda]
#[test]
fn a_driver_that_is_too_old_for_its_compiler_or_for_all_code_is_refused_with_the_remedy() {
    let folder = Folder::new("old-driver");
    let file = folder.run("cuda", "device = \"cuda\"\n");
    let refused = |settings: &str| {
        let output = pleach_with_libraries(&folder.libraries(settings), &["train", &file]);
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        stderr(&output)
    };
    let said = refused("cuda = 12.8\n");
    assert!(said.contains("the driver supports CUDA 12.8, and code of NVRTC 13."), "{said}");
    let remedy =
        " needs 13.0; install driver 580 or newer, or put an NVRTC of CUDA 12 (12.8 or later) first in PLEACH_CUDA";
    assert!(said.contains(remedy), "{said}");
    let said = refused("cuda = 12.2\nnvrtc_version = 12.8\n");
    assert!(
        said.contains("is NVIDIA's driver for CUDA 12.2; pleach needs 550 or later (CUDA 12.4): install"),
        "{said}"
    );
}
