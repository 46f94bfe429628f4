use std::path::{Path, PathBuf};

use train::processor::InstructionSet;

use super::accelerators::{Gpus, Libraries};
use super::cores::Cores;
use super::launcher::Started;
use super::machine::{Machine, Measured, Memory};
use super::mpi_library::{Answers, MpiLibrary};
use super::nvidia_libraries::{CarriedKernels, ListedGpu, NvidiaLibraries, Opened};
use super::report;

/// System folders of a machine that is not this one.
struct Root(PathBuf);

impl Root {
    fn with(name: &str, files: &[(&str, &str)]) -> Root {
        let root = Root(std::env::temp_dir().join(format!("pleach-doctor-{name}-{}", std::process::id())));
        std::fs::create_dir_all(&root.0).expect("a folder");
        for (path, text) in files {
            let path = root.0.join(path);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            std::fs::write(path, text).expect("a file");
        }
        root
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn environment<'a>(variables: &'a [(&'a str, &'a str)]) -> impl Fn(&str) -> Option<String> + 'a {
    |name| variables.iter().find(|(own, _)| *own == name).map(|(_, value)| value.to_string())
}

fn no_mpi() -> MpiLibrary {
    MpiLibrary::Missing { problem: "no library".into() }
}

fn no_nvidia() -> NvidiaLibraries {
    NvidiaLibraries::of(&nvidia::Search::only([]))
}

#[test]
fn a_library_of_mpi_is_described() {
    let found = |answers| MpiLibrary::Found {
        path: "/usr/lib/libmpi.so.40".into(),
        reason: "on the loader's path".into(),
        version: "Open MPI v4.1.4".into(),
        abi: "the ABI of Open MPI",
        answers,
    };
    let answers = Answers { thread_level: "multiple".into(), processes: 1 };
    let text = report::text(&laptop(), &MEASURED, &found(Ok(answers.clone())), &no_nvidia());
    let expected = "  MPI        no mpirun; Open MPI v4.1.4 at /usr/lib/libmpi.so.40 (on the loader's path), the ABI of Open MPI, \
                    thread level multiple, a world of 1 process\n";
    assert!(text.contains(expected), "{text}");
    assert_eq!(text.matches("  MPI  ").count(), 1, "nothing is missing: {text}");
    let text = report::text(
        &laptop(),
        &MEASURED,
        &found(Err("MPI_Init_thread has not returned within 10 s".into())),
        &no_nvidia(),
    );
    assert!(text.contains(", the ABI of Open MPI, MPI_Init_thread has not returned within 10 s\n"), "{text}");
    assert!(text.contains("  MPI        a library that initialises\n"), "{text}");
    let json: serde_json::Value =
        serde_json::from_str(&report::json(&laptop(), &MEASURED, &found(Ok(answers)), &no_nvidia()).expect("JSON"))
            .expect("an object");
    assert_eq!(json["mpi"]["answers"]["Ok"]["thread_level"], "multiple");
}

const MEASURED: Measured = Measured { peak_flops: 2.08e11, copy_bytes_per_second: 1.82e10 };

/// A laptop with nothing but cores.
fn laptop() -> Machine {
    Machine {
        system: "linux",
        architecture: "x86_64",
        cores: Cores { usable: 8, allowed: Some(8), built_in: Some(8), processor: Some("Laptop CPU".into()) },
        instruction_sets: vec![InstructionSet::Avx2, InstructionSet::Scalar],
        memory: Memory { machine_bytes: Some(16_000_000_000), control_group_bytes: None },
        gpus: Gpus::default(),
        libraries: Libraries::default(),
        launcher: Started::Alone,
    }
}

/// Variables of a step of Slurm.
const STEP: [(&str, &str); 5] = [
    ("SLURM_JOB_ID", "12"),
    ("SLURM_STEP_ID", "0"),
    ("SLURM_PROCID", "3"),
    ("SLURM_STEP_NUM_TASKS", "8"),
    ("SLURM_STEP_NODELIST", "n[1-2]"),
];

/// A machine of a cluster, within a job.
fn node() -> Machine {
    let path = |path: &str| Some(PathBuf::from(path));
    Machine {
        cores: Cores { usable: 2, allowed: Some(4), built_in: Some(64), processor: None },
        instruction_sets: vec![InstructionSet::Avx512, InstructionSet::Avx2, InstructionSet::Scalar],
        memory: Memory { machine_bytes: Some(512_000_000_000), control_group_bytes: Some(8_000_000_000) },
        gpus: Gpus {
            devices: vec!["/dev/nvidia0".into(), "/dev/nvidia1".into()],
            models: vec!["NVIDIA H200".into(), "NVIDIA H200".into()],
            driver: Some("550.54.15".into()),
            libcuda: path("/usr/lib64/libcuda.so"),
        },
        libraries: Libraries { nccl: path("/opt/nccl/libnccl.so.2"), libmpi: None, mpirun: path("/usr/bin/mpirun") },
        launcher: Started::of(&environment(&STEP)),
        ..laptop()
    }
}

#[test]
fn a_laptop_has_a_short_report() {
    assert_eq!(
        report::text(&laptop(), &MEASURED, &no_mpi(), &no_nvidia()),
        format!("pleach {} on linux x86_64\n\n", env!("CARGO_PKG_VERSION"))
            + "found\n  \
               cores      8 (Laptop CPU)\n  \
               speed      208 GFLOP/s in fused multiply-adds, 18.2 GB/s read and written in copies; on 8 cores at once\n  \
               vectors    AVX2\n  \
               memory     16.0 GB\n  \
               GPUs       none: no /dev/nvidia*; no libcuda on the loader's path\n  \
               NVRTC      no libnvrtc.so.13 on the loader's path\n  \
               cuBLASLt   no libcublasLt.so.13 on the loader's path\n  \
               cuDNN      no libcudnn.so.9 on the loader's path\n  \
               NCCL       no libnccl.so.2 on the loader's path\n  \
               MPI        no mpirun; no libmpi on the loader's path\n  \
               launcher   none\n\
               \n\
               used\n  \
               cores      8; every rank is a thread of one process, and more than 8 take turns\n  \
               kernels    AVX2; kernels of all sets give the same bits\n  \
               memory     at most 16.0 GB for all ranks together; `pleach check` compares a run with it\n\
               \n\
               missing\n  \
               vectors    AVX-512, whose kernels are twice as wide\n  \
               GPUs       a GPU, for run.device = \"cuda\"\n  \
               NVRTC      install a CUDA toolkit, or `pip install nvidia-cuda-nvrtc`, and give its folder in PLEACH_CUDA\n  \
               cuBLASLt   install a CUDA toolkit, or `pip install nvidia-cublas`, and give its folder in PLEACH_CUDA\n  \
               cuDNN      `pip install nvidia-cudnn-cu13`, and give its folder in PLEACH_CUDA\n  \
               NCCL       install NCCL, or `pip install nvidia-nccl-cu13`, and give its folder in PLEACH_CUDA\n  \
               MPI        no library\n"
    );
}

/// NVIDIA's libraries of that machine, cuBLASLt excepted.
fn of_node() -> NvidiaLibraries {
    let found = |path: &str, version: &str| Opened::Found { path: path.into(), version: version.into() };
    let gpu = ListedGpu {
        name: "NVIDIA H200".into(),
        capability: "sm_90".into(),
        memory_bytes: 150_754_820_096,
        multiprocessors: 132,
    };
    NvidiaLibraries {
        driver: found("/usr/lib64/libcuda.so.1", "CUDA 13.0"),
        gpus: Ok(vec![gpu.clone(), gpu]),
        nvrtc: found("/opt/cuda/libnvrtc.so.13", "13.0"),
        nccl: found("/opt/nccl/libnccl.so.2", "2.28.9"),
        ..no_nvidia()
    }
}

#[test]
fn drivers_that_do_not_open_or_list_nothing_are_reported() {
    let old = "/usr/lib64/libcuda.so.1 is NVIDIA's driver for CUDA 12.4";
    let driver = Opened::Missing { problem: old.into(), remedy: "update the driver".into() };
    let nvidia = NvidiaLibraries { driver, ..of_node() };
    let text = report::text(&node(), &MEASURED, &no_mpi(), &nvidia);
    assert!(text.contains(&format!("  driver     {old}\n")), "{text}");
    assert!(text.contains("  driver     update the driver\n"), "{text}");
    let nvidia = NvidiaLibraries { gpus: Err("cuInit: the GPU is lost: why".into()), ..of_node() };
    let text = report::text(&node(), &MEASURED, &no_mpi(), &nvidia);
    assert!(
        text.contains("  driver     CUDA 13.0 at /usr/lib64/libcuda.so.1; cuInit: the GPU is lost: why\n"),
        "{text}"
    );
    let json: serde_json::Value =
        serde_json::from_str(&report::json(&node(), &MEASURED, &no_mpi(), &of_node()).expect("JSON"))
            .expect("an object");
    assert_eq!(json["nvidia"]["driver"]["version"], "CUDA 13.0");
    assert_eq!(json["nvidia"]["gpus"]["Ok"][1]["memory_bytes"], 150_754_820_096u64);
    assert!(json["nvidia"]["cublaslt"]["remedy"].as_str().is_some_and(|remedy| remedy.contains("nvidia-cublas")));
}

#[test]
fn kernels_that_the_program_carries_replace_the_compiler() {
    let targets = ["sm_80", "sm_90"].map(String::from).to_vec();
    let kernels = CarriedKernels::Of { targets, compiler: "13.0".into() };
    let text = report::text(&laptop(), &MEASURED, &no_mpi(), &NvidiaLibraries { kernels, ..no_nvidia() });
    assert!(text.contains("  GPU code   in this program, by NVRTC 13.0: sm_80, sm_90\n"), "{text}");
    assert_eq!(text.matches("  NVRTC  ").count(), 1, "it is not missing: {text}");
    let refused = CarriedKernels::of(b"other bytes");
    let text = report::text(&laptop(), &MEASURED, &no_mpi(), &NvidiaLibraries { kernels: refused, ..no_nvidia() });
    assert!(text.contains("  GPU code   the archive of compiled kernels is damaged"), "{text}");
    assert_eq!(text.matches("  NVRTC  ").count(), 2, "it is missing: {text}");
    assert_eq!(CarriedKernels::of(b""), CarriedKernels::None);
}

/// The libraries themselves, in the folder of wheels that PLEACH_CUDA names.
#[needs::cuda]
#[needs::cudnn]
#[test]
fn wheels_in_a_folder_are_opened() {
    let folder = std::env::var_os("PLEACH_CUDA").expect("PLEACH_CUDA must be set: run tools/install-cuda.sh");
    let nvidia = NvidiaLibraries::of(&nvidia::Search::only([folder.into()]));
    for library in [&nvidia.nvrtc, &nvidia.cublaslt, &nvidia.cudnn, &nvidia.nccl] {
        let Opened::Found { version, .. } = library else { panic!("{library:?}") };
        assert!(version.contains('.'), "{version}");
    }
}

#[test]
fn a_node_of_a_cluster_reports_features_that_are_not_used() {
    assert_eq!(
        report::text(&node(), &MEASURED, &no_mpi(), &of_node()),
        format!("pleach {} on linux x86_64\n\n", env!("CARGO_PKG_VERSION"))
            + "found\n  \
               cores      2 of 64: the quota of the process's control group leaves no more\n  \
               speed      208 GFLOP/s in fused multiply-adds, 18.2 GB/s read and written in copies; on 2 cores at once\n  \
               vectors    AVX-512, AVX2\n  \
               memory     512 GB, of which the process's control group leaves 8.00 GB\n  \
               GPUs       2 (NVIDIA H200), driver 550.54.15; libcuda at /usr/lib64/libcuda.so\n  \
               driver     CUDA 13.0 at /usr/lib64/libcuda.so.1; it lists 2 GPUs\n             \
               GPU 0: NVIDIA H200, sm_90, 151 GB, 132 multiprocessors\n             \
               GPU 1: NVIDIA H200, sm_90, 151 GB, 132 multiprocessors\n  \
               NVRTC      13.0 at /opt/cuda/libnvrtc.so.13\n  \
               cuBLASLt   no libcublasLt.so.13 on the loader's path\n  \
               cuDNN      no libcudnn.so.9 on the loader's path\n  \
               NCCL       2.28.9 at /opt/nccl/libnccl.so.2\n  \
               MPI        /usr/bin/mpirun; no libmpi on the loader's path\n  \
               launcher   Slurm: process 3 of 8; process 0 listens at n1:20012\n\
               \n\
               used\n  \
               cores      2; every rank is a thread of one of 8 processes, and more than 2 of this host take turns\n  \
               kernels    AVX-512; kernels of all sets give the same bits\n  \
               memory     at most 8.00 GB for all ranks together; `pleach check` compares a run with it\n  \
               GPUs       ranks with a process and a GPU each are joined by NCCL 2.28.9, others in one GPU's memory or by way of the host\n\
               \n\
               missing\n  \
               vectors    AMX, whose tiles make products = \"pairs\" several times faster\n  \
               cuBLASLt   install a CUDA toolkit, or `pip install nvidia-cublas`, and give its folder in PLEACH_CUDA\n  \
               cuDNN      `pip install nvidia-cudnn-cu13`, and give its folder in PLEACH_CUDA\n  \
               MPI        no library\n"
    );
}

#[test]
fn a_machine_without_vectors_and_a_silent_system_are_reported() {
    let cores = Cores { usable: 1, allowed: Some(1), built_in: Some(4), processor: None };
    let memory = Memory::default();
    let machine = Machine { instruction_sets: vec![InstructionSet::Scalar], cores, memory, ..laptop() };
    let text = report::text(&machine, &MEASURED, &no_mpi(), &no_nvidia());
    for line in [
        "  cores      1 of 4: the process's affinity allows no more\n",
        "; on 1 core at once\n",
        "  vectors    none for which there are kernels\n",
        "  kernels    portable; kernels of all sets give the same bits\n",
        "  vectors    AVX2 or AVX-512, whose kernels are several times faster\n",
        "  memory     unknown: the system does not say\n",
    ] {
        assert!(text.contains(line), "{line:?} in {text}");
    }
}

#[test]
fn tiles_are_named_with_the_choice_that_uses_them() {
    let mut machine = node();
    machine.instruction_sets.insert(0, InstructionSet::Amx);
    let text = report::text(&machine, &MEASURED, &no_mpi(), &no_nvidia());
    for line in [
        "  vectors    AMX, AVX-512, AVX2\n",
        "  kernels    AVX-512, and AMX with train.products = \"pairs\"; kernels of all sets give the same bits\n",
    ] {
        assert!(text.contains(line), "{line:?} in {text}");
    }
}

#[test]
fn programs_read_the_same() {
    let json: serde_json::Value =
        serde_json::from_str(&report::json(&node(), &MEASURED, &no_mpi(), &no_nvidia()).expect("JSON"))
            .expect("an object");
    assert_eq!(json["cores"]["usable"], 2);
    assert_eq!(json["instruction_sets"], serde_json::json!(["AVX-512", "AVX2", "portable"]));
    assert_eq!(json["measured"]["peak_flops"], 2.08e11);
    assert_eq!(json["memory"]["control_group_bytes"], 8_000_000_000u64);
    assert_eq!(json["gpus"]["devices"][1], "/dev/nvidia1");
    assert_eq!(json["libraries"]["mpirun"], "/usr/bin/mpirun");
    assert_eq!(json["launcher"]["process"], 3);
    assert_eq!(json["launcher"]["rendezvous"], "n1:20012");
    assert_eq!(json["uses"]["kernels"], "AVX-512");
    assert_eq!(json["uses"]["memory_bytes"], 8_000_000_000u64);
}

#[test]
fn what_is_there_is_found_by_its_files() {
    let root = Root::with(
        "node",
        &[
            ("dev/nvidia0", ""),
            ("dev/nvidia1", ""),
            ("dev/nvidiactl", ""),
            ("dev/nvidia-uvm", ""),
            ("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5\n"),
            ("proc/driver/nvidia/gpus/0000:01:00.0/information", "Model: \t\t NVIDIA H200\nIRQ: 1\n"),
            ("etc/ld.so.conf", "# comment\ninclude /etc/ld.so.conf.d/*.conf\n"),
            ("etc/ld.so.conf.d/cuda.conf", "/opt/cuda/lib\n"),
            ("etc/ld.so.conf.d/other.txt", "/opt/other\n"),
            ("opt/cuda/lib/libcuda.so.1", ""),
            ("opt/other/libmpi.so", ""),
            ("srv/nccl/libnccl.so.2", ""),
            ("usr/lib/libncclx.so", ""),
            ("usr/bin/mpiexec", ""),
            ("proc/meminfo", "MemTotal: 1000 kB\n"),
            ("proc/cpuinfo", "processor\t: 0\nmodel name\t: A CPU\n\nprocessor\t: 1\nmodel name\t: A CPU\n"),
        ],
    );
    let variables = [("LD_LIBRARY_PATH", ":/srv/nccl"), ("PATH", "/bin:/usr/bin"), ("SLURM_JOB_ID", "7")];
    let machine = Machine::below(&root.0, &environment(&variables));
    let path = |path: &str| Some(PathBuf::from(path));
    assert_eq!(machine.gpus.devices, ["/dev/nvidia0", "/dev/nvidia1"]);
    assert_eq!(machine.gpus.models, ["NVIDIA H200"]);
    assert_eq!(machine.gpus.driver.as_deref(), Some("550.54.15"));
    assert_eq!(machine.gpus.libcuda, path("/opt/cuda/lib/libcuda.so.1"));
    assert_eq!(machine.libraries.nccl, path("/srv/nccl/libnccl.so.2"));
    assert_eq!(machine.libraries.libmpi, None, "a file that the loader's configuration does not include");
    assert_eq!(machine.libraries.mpirun, path("/usr/bin/mpiexec"));
    assert_eq!(machine.memory.machine_bytes, Some(1_024_000));
    assert_eq!((machine.cores.built_in, machine.cores.processor.as_deref()), (Some(2), Some("A CPU")));
}

#[test]
fn an_empty_root_has_nothing() {
    let root = Root::with("empty", &[]);
    let machine = Machine::below(&root.0, &environment(&[]));
    assert!(machine.gpus.devices.is_empty() && machine.gpus.libcuda.is_none());
    assert_eq!((machine.memory.usable_bytes(), machine.cores.built_in), (None, None));
    let nowhere = Machine::below(Path::new("/no/such/root"), &environment(&[]));
    assert!(nowhere.libraries.nccl.is_none());
}

#[test]
fn variables_that_cannot_be_used_are_reported() {
    let machine = Machine { launcher: Started::of(&environment(&[("PLEACH_PROCESS", "0")])), ..laptop() };
    let expected = "pleach launch started this process, but PLEACH_PROCESSES is missing; set PLEACH_PROCESS and \
                    PLEACH_PROCESSES, or neither";
    let text = report::text(&machine, &MEASURED, &no_mpi(), &no_nvidia());
    assert!(text.contains(&format!("  launcher   {expected}\n")), "{text}");
    let json: serde_json::Value =
        serde_json::from_str(&report::json(&machine, &MEASURED, &no_mpi(), &no_nvidia()).expect("JSON"))
            .expect("an object");
    assert_eq!(json["launcher"]["problem"], expected);
}
