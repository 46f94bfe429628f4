//! A run as a release of the program has it on a machine with a driver and no compiler: `run.device = "cuda"`, the
//! driver opened by name through its C interface, and the kernels of the archive that `tools/release.sh` puts into the
//! program.

use std::path::Path;
use std::sync::OnceLock;

use config::{DeviceChoice, Overlap, Tied, ZeroStage};
use gpu::Capability;
use testkit::soft_gpus::{cache_of_tests, compiler};
use train::{ArchivedKernels, GpuPlaces, RunDevice};

use crate::gpu_runs::rig::{Folder, On, graphs, layout, outcome};

/// The archive, compiled once for all tests of this program.
pub fn archive() -> &'static [u8] {
    static MADE: OnceLock<&'static [u8]> = OnceLock::new();
    MADE.get_or_init(|| {
        let capability = Capability { major: 9, minor: 0 };
        let archive = ArchivedKernels::compile(&compiler(), Some(&cache_of_tests()), &[capability]).expect("compiled");
        archive.to_bytes().expect("bytes").leak()
    })
}

/// Puts the driver of GPUs in software into a folder, under the name of NVIDIA's, and under that of NVRTC, whose
/// functions it does not have: a run finds no compiler, also where the loader has one.
pub fn put_driver(folder: &Path) {
    // Cargo builds the shared library as a dependency of this test, next to the test's own program.
    let program = std::env::current_exe().expect("a program");
    let library = program.parent().expect("a folder").join("libsoftgpu_driver.so");
    let driver = folder.join("libcuda.so.1");
    std::fs::copy(library, &driver).expect("a copy");
    std::fs::hard_link(&driver, folder.join("libnvrtc.so.13")).expect("another name");
}

#[needs::cuda]
#[test]
fn a_program_with_an_archive_and_a_driver_has_the_bits_of_the_cpu() {
    let folder = Folder::new();
    put_driver(&folder.0);
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
