//! Looks for the tools of tests. An environment variable announces a tool; some are found without it.
//!
//! A tool that is installed later is found when its variable is set, as the reason of the ignored tests says. To look
//! for programs before each build would compile all tests again whenever any program is installed.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Programs that `tools/install-mpi.sh` installs, from the root of the repository.
const MPI: [&str; 4] = [
    "/usr/bin/mpiexec.mpich",
    "/usr/bin/mpiexec.openmpi",
    "target/mpi/mpich/bin/mpiexec",
    "target/mpi/intel/bin/mpiexec",
];
const VERSION: &str = "import sys; sys.exit(sys.version_info < (3, 11))";
const PACKAGES: &str = "import importlib.util as u, sys
sys.exit(not all(map(u.find_spec, ['numpy', 'pandas', 'tensorboard', 'pip', 'xxhash'])))";

fn main() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let python = |code| is_set("PLEACH_PYTHON") || succeeds("python3", &["-c", code]);
    let makes_namespaces = || succeeds("unshare", &["--net", "--mount", "--pid", "--fork", "true"]);
    for (name, is_here) in [
        ("has_cuda", is_set("PLEACH_CUDA")),
        ("has_cudnn", std::env::var_os("PLEACH_CUDA").is_some_and(|folder| has_cudnn(Path::new(&folder)))),
        ("has_no_gpu", has_no_gpu()),
        ("has_avx512", has_avx512()),
        ("has_avx512_bf16", has_avx512_bf16()),
        ("has_clang", is_set("PLEACH_CLANG") || has("clang++-19")),
        ("has_mpi", is_set("PLEACH_MPI") || MPI.iter().all(|file| repository.join(file).exists())),
        ("has_slurm", is_set("PLEACH_SLURM")),
        ("has_namespaces", is_set("PLEACH_NETWORK") || has("ip") && has("tc") && makes_namespaces()),
        ("has_root", printed("id", &["-u"]).as_deref() == Some("0")),
        ("has_tmux", is_set("PLEACH_TMUX") || has("tmux")),
        ("has_chromium", is_set("PLEACH_CHROMIUM") || has("chromium")),
        ("has_dejavu", printed("fc-match", &["-f", "%{family}", "sans-serif"]).as_deref() == Some("DejaVu Sans")),
        ("has_python", python(VERSION)),
        ("has_python_packages", python(VERSION) && python(PACKAGES)),
        ("has_moto", is_set("PLEACH_S3")),
        ("has_chats", is_set("PLEACH_CHATS")),
    ] {
        println!("cargo::rustc-check-cfg=cfg({name})");
        if is_here {
            println!("cargo::rustc-cfg={name}");
        }
    }
}

fn is_set(variable: &str) -> bool {
    println!("cargo::rerun-if-env-changed={variable}");
    std::env::var_os(variable).is_some()
}

/// The output of a program; `None` where it does not run or fails.
fn printed(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_string())
}

fn succeeds(program: &str, arguments: &[&str]) -> bool {
    printed(program, arguments).is_some()
}

/// Whether `program` is on the path, or where Debian has daemons.
fn has(program: &str) -> bool {
    let found = printed("sh", &["-c", &format!("PATH=$PATH:/usr/sbin:/sbin command -v {program}")]);
    if let Some(path) = &found {
        println!("cargo::rerun-if-changed={path}");
    }
    found.is_some()
}

/// Whether a folder, or the packages of a virtual environment in it, have the header of cuDNN.
fn has_cudnn(folder: &Path) -> bool {
    let versions = std::fs::read_dir(folder.join("lib")).into_iter().flatten().flatten();
    let packages = versions.map(|entry| entry.path().join("site-packages/nvidia/cudnn"));
    let places: Vec<PathBuf> =
        [folder.to_path_buf(), folder.join("nvidia/cudnn")].into_iter().chain(packages).collect();
    places.iter().any(|place| place.join("include/cudnn.h").exists())
}

/// Whether there is neither a driver of NVIDIA nor a library of CUDA that the loader finds.
fn has_no_gpu() -> bool {
    let known = printed("sh", &["-c", "PATH=$PATH:/usr/sbin:/sbin ldconfig -p"]).unwrap_or_default();
    let has_library = ["libcuda.so", "libnvrtc.so", "libcublasLt.so"].iter().any(|name| known.contains(name));
    !has_library && !Path::new("/proc/driver/nvidia/version").exists()
}

/// The set of `cpu::InstructionSet::Avx512`.
#[cfg(target_arch = "x86_64")]
fn has_avx512() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
}

#[cfg(not(target_arch = "x86_64"))]
fn has_avx512() -> bool {
    false
}

/// Whether the processor has `VDPBF16PS` in registers of 512 bits.
#[cfg(target_arch = "x86_64")]
fn has_avx512_bf16() -> bool {
    has_avx512() && is_x86_feature_detected!("avx512bf16")
}

#[cfg(not(target_arch = "x86_64"))]
fn has_avx512_bf16() -> bool {
    false
}
