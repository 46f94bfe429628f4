//! A run as a release of the program has it on a machine with a driver and no compiler: `run.device = "cuda"`, the
//! driver opened by name through its C interface, and the kernels of the archive that `tools/release.sh` puts into the
//! program.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use config::{DeviceChoice, Overlap, Tied, ZeroStage};
use gpu::Capability;
use nvidia::Search;
use nvidia::nvrtc::Compiler;
use testkit::soft_gpus::cache_of_tests;
use train::{ArchivedKernels, GpuPlaces, RunDevice};

use crate::gpu_runs::rig::{Folder, On, graphs, layout, outcome};

/// The file that [`an_archive_is_compiled`] writes, in the process that compiles it.
const ARCHIVE: &str = "PLEACH_TEST_ARCHIVE";

/// Compiles in a process of its own: an opened compiler would be found by its name in this one.
#[test]
fn an_archive_is_compiled() {
    let Some(file) = std::env::var_os(ARCHIVE) else {
        println!("skipped: the other test of this file starts it");
        return;
    };
    let folder = std::env::var_os("PLEACH_CUDA").expect("a folder with NVRTC");
    let compiler = Compiler::open(&Search::only([PathBuf::from(folder)])).expect("NVRTC");
    let archive = ArchivedKernels::compile(&compiler, Some(&cache_of_tests()), &[Capability { major: 9, minor: 0 }])
        .expect("compiled");
    std::fs::write(file, archive.to_bytes().expect("bytes")).expect("written");
}

/// The archive, compiled once for all tests of this program.
pub fn archive() -> &'static [u8] {
    static MADE: OnceLock<&'static [u8]> = OnceLock::new();
    MADE.get_or_init(|| {
        let folder = Folder::new();
        let file = folder.0.join("archive");
        let mut child = Command::new(std::env::current_exe().expect("a program"));
        child.args(["--exact", "gpu_runs::released::an_archive_is_compiled"]).env(ARCHIVE, &file);
        let output = child.output().expect("a process");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        std::fs::read(file).expect("an archive").leak()
    })
}

#[test]
fn a_program_with_an_archive_and_a_driver_has_the_bits_of_the_cpu() {
    if std::env::var_os("PLEACH_CUDA").is_none() {
        println!("skipped: PLEACH_CUDA names no folder with NVRTC");
        return;
    }
    if Compiler::open(&Search::with([])).is_ok() {
        println!("skipped: the loader has a compiler, which a run uses in place of the archive");
        return;
    }
    let folder = Folder::new();
    // Cargo builds the shared library as a dependency of this test, next to the test's own program.
    let program = std::env::current_exe().expect("a program");
    let library = program.parent().expect("a folder").join("libsoftgpu_driver.so");
    std::fs::copy(library, folder.0.join("libcuda.so.1")).expect("a copy");
    let places = GpuPlaces { libraries: vec![folder.0.clone()], code: folder.0.join("code"), carried: archive() };
    let device = RunDevice::open(DeviceChoice::Cuda, None, graphs(), &places).expect("a driver and an archive");
    let RunDevice::Gpus(gpus) = device else { panic!("GPUs") };
    assert_eq!((gpus.kind(), gpus.facts().len()), (device::DeviceKind::CUDA, 1));
    for (tied, zero) in [(Tied::Yes, ZeroStage::One), (Tied::No, crate::gpu_runs::rig::ZERO_THREE)] {
        let layout = layout(tied, [2, 1, 2], zero, Overlap::On, 2);
        let on_cpus = outcome(&layout, &On::Cpus).expect("a run on CPUs");
        let on_gpus = outcome(&layout, &On::Gpus(gpus.clone())).expect("a run through the driver");
        assert!(on_gpus == on_cpus, "{tied:?}: losses, norms, gradients or weights differ");
    }
    assert!(!places.code.exists(), "nothing was compiled");
}
