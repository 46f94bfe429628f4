//! NVRTC itself, in the folder that PLEACH_CUDA names.

use crate::tests::{soft_library, toolkit};

use std::path::PathBuf;

use nvidia::nvrtc::{Cache, CompileError, Compiler, Source, Target};
use nvidia::{LibraryError, Search};

const SCALE: &str = "#include \"factor.h\"\n\
    extern \"C\" __global__ void scale(float *x, unsigned n) {\n\
        unsigned i = blockIdx.x * blockDim.x + threadIdx.x;\n\
        if (i < n) x[i] = x[i] * FACTOR + 1.0f;\n\
    }\n";

fn scale() -> Source {
    Source::new("scale.cu", SCALE).header("factor.h", "#define FACTOR 2.5f\n")
}

fn compiler() -> Compiler {
    Compiler::open(&Search::only([toolkit::folder()])).expect("NVRTC in PLEACH_CUDA")
}

fn target(text: &str) -> Target {
    text.parse().expect("a target")
}

#[needs::cuda]
#[test]
fn kernels_become_ptx_and_cubins() {
    let compiler = compiler();
    assert!(compiler.version() >= (12, 8), "{:?}", compiler.version());
    assert!(compiler.architectures().expect("architectures").contains(&90));
    let compiled = compiler.compile(&scale(), &target("compute_90a"), &["--fmad=false"]).expect("PTX");
    let ptx = compiled.code.ptx().expect("PTX");
    assert!(ptx.contains(".visible .entry scale(") && ptx.contains(".target sm_90a"), "{ptx}");
    // 2.5 as the bits of fp32, and two roundings as asked for.
    assert!(ptx.contains("mul.rn.f32") && ptx.contains("0f40200000") && !ptx.contains("fma."), "{ptx}");
    let fused = compiler.compile(&scale(), &target("compute_90a"), &[]).expect("PTX");
    assert!(fused.code.ptx().is_some_and(|ptx| ptx.contains("fma.rn.f32")));
    for architecture in ["sm_80", "sm_90a", "sm_100a", "sm_120a"] {
        let compiled = compiler.compile(&scale(), &target(architecture), &[]).expect("a CUBIN");
        assert_eq!(&compiled.code.bytes()[..4], b"\x7fELF", "{architecture}");
        assert_eq!(compiled.code.ptx(), None);
    }
}

#[needs::cuda]
#[test]
fn errors_have_the_compilers_log_with_lines() {
    let compiler = compiler();
    let broken = Source::new("broken.cu", "extern \"C\" __global__ void a(float *x) {\n    x[0] = y;\n}\n");
    let error = compiler.compile(&broken, &target("compute_90"), &["--fmad=false"]).expect_err("no y").to_string();
    let expected = "broken.cu does not compile for compute_90 with [\"--fmad=false\"]:\nbroken.cu(2): error: identifier \"y\" is \
                    undefined";
    assert!(error.starts_with(expected), "{error}");
    let error = compiler.compile(&scale(), &target("compute_90"), &["--no-such-option"]).expect_err("no such option");
    assert!(error.to_string().contains("--no-such-option"), "{error}");
    let error = compiler.compile(&scale(), &target("sm_99"), &[]).expect_err("no such architecture");
    assert!(error.to_string().contains("invalid value for --gpu-architecture"), "{error}");
    let error = compiler.compile(&Source::new("zero.cu", "a\0b"), &target("sm_90"), &[]).expect_err("a zero byte");
    assert_eq!(error, CompileError::ZeroByte("zero.cu".into()));
    let warned = Source::new("warned.cu", "extern \"C\" __global__ void a() {\n    int unused;\n}\n");
    let compiled = compiler.compile(&warned, &target("compute_90"), &[]).expect("a warning only");
    assert!(compiled.log.contains("warned.cu(2): warning"), "{}", compiled.log);
}

#[needs::cuda]
#[test]
fn threads_compile_at_the_same_time() {
    let compiler = compiler();
    let alone = compiler.compile(&scale(), &target("compute_90"), &[]).expect("PTX");
    std::thread::scope(|scope| {
        let compile = || compiler.compile(&scale(), &target("compute_90"), &[]).expect("PTX");
        let all: Vec<_> = (0..4).map(|_| scope.spawn(compile)).collect();
        for thread in all {
            assert_eq!(thread.join().expect("a thread"), alone);
        }
    });
}

#[needs::cuda]
#[test]
fn the_cache_answers_without_the_compiler() {
    let compiler = compiler();
    let folder = std::env::temp_dir().join(format!("pleach-kernels-{}", std::process::id()));
    let cache = Cache::in_folder(&folder);
    let compile = || cache.compile(&compiler, &scale(), &target("compute_90a"), &["--fmad=false"]).expect("PTX");
    let first = compile();
    let files: Vec<PathBuf> =
        std::fs::read_dir(&folder).expect("a folder").map(|f| f.expect("a file").path()).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    assert_eq!(compile(), first);
    // The second answer is the file's: another file's code comes back under this name.
    let other = Source::new("other.cu", "extern \"C\" __global__ void other() {}\n");
    let other = cache.compile(&compiler, &other, &target("compute_90a"), &[]).expect("PTX");
    let added = std::fs::read_dir(&folder).expect("a folder").map(|f| f.expect("a file").path());
    let added = added.filter(|path| !files.contains(path)).collect::<Vec<_>>();
    std::fs::copy(&added[0], &files[0]).expect("copied");
    assert_eq!(compile(), other);
    std::fs::write(&files[0], "torn").expect("written");
    assert_eq!(compile(), first);
    // A file in the place of the folder takes no code, and what is compiled is returned.
    let full = Cache::in_folder(files[0].join("below"));
    let has = |cache: &Cache| cache.has(compiler.version(), &scale(), &target("compute_90a"), &["--fmad=false"]);
    assert!(has(&cache) && !has(&full) && cache.try_to_write().is_ok() && full.try_to_write().is_err());
    assert_eq!(full.compile(&compiler, &scale(), &target("compute_90a"), &["--fmad=false"]), Ok(first));
    assert!(has(&full) && !has(&Cache::in_folder(full.folder())), "kept in memory");
    assert!(!folder.join("probe").exists());
    std::fs::remove_dir_all(&folder).expect("removed");
}

/// Its version is one that NVRTC never has, and its CUBINs are PTX; a folder of its settings keeps what NVRTC keeps.
#[needs::cuda]
#[test]
fn the_library_in_software_compiles_by_nvrtc_and_shares_what_is_kept() {
    let real = compiler();
    let kept = std::env::temp_dir().join(format!("pleach-kept-ptx-{}", std::process::id()));
    let settings = format!("nvrtc = {}\nkernels = {}\n", real.path().display(), kept.display());
    let libraries = soft_library::folder("nvrtc", &settings, &["libnvrtc.so.13"]);
    let soft = Compiler::open(&Search::only([libraries.clone()])).unwrap_or_else(|error| panic!("{error}"));
    let (major, minor) = real.version();
    assert_eq!((soft.version(), soft.architectures()), ((major, minor + 1000), real.architectures()));
    let compiled = soft.compile(&scale(), &target("sm_90a"), &["--fmad=false"]).expect("code");
    let cache = Cache::in_folder(&kept);
    assert!(cache.has(real.version(), &scale(), &target("compute_90a"), &["--fmad=false"]));
    let ptx = real.compile(&scale(), &target("compute_90a"), &["--fmad=false"]).expect("PTX");
    assert_eq!(cache.compile(&real, &scale(), &target("compute_90a"), &["--fmad=false"]).as_ref(), Ok(&ptx));
    let (head, text) = compiled.code.bytes().split_at(64);
    assert!(head.starts_with(b"\x7fELF") && text.strip_suffix(&[0]) == Some(ptx.code.bytes()));
    let broken = Source::new("broken.cu", "extern \"C\" __global__ void a(float *x) {\n    x[0] = y;\n}\n");
    let errors =
        [&real, &soft].map(|compiler| compiler.compile(&broken, &target("compute_90"), &[]).expect_err("no y"));
    assert_eq!(errors[0], errors[1]);
    [kept, libraries].iter().for_each(|folder| std::fs::remove_dir_all(folder).expect("removed"));
}

#[test]
fn a_missing_library_is_named_with_its_wheel() {
    let error = Compiler::open(&Search::only(["/no/such/folder".into()])).err().map(|error| error.to_string());
    let expected = "NVRTC is missing: libnvrtc.so.13 is not in /no/such/folder; install a CUDA toolkit, or `pip install \
                    nvidia-cuda-nvrtc`, and give its folder";
    assert_eq!(error.as_deref(), Some(expected));
}

#[test]
fn a_file_that_is_no_library_and_one_of_something_else_are_refused() {
    let folder = std::env::temp_dir().join(format!("pleach-nvrtc-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let file = folder.join("libnvrtc.so.13");
    std::fs::write(&file, "no library").expect("written");
    let error = Compiler::open(&Search::only([folder.clone()])).err();
    let is_loaders = |reason: &str| reason.contains("libnvrtc") && reason != "dlopen failed";
    let is_named = |error: &LibraryError| matches!(error, LibraryError::Open { path, reason, .. } if *path == file && is_loaders(reason));
    assert!(error.as_ref().is_some_and(is_named), "{error:?}");
    let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
    let libc = maps.lines().filter_map(|line| line.split_whitespace().nth(5)).find(|path| path.contains("libc.so"));
    std::fs::copy(libc.expect("libc"), &file).expect("copied");
    let error = Compiler::open(&Search::only([folder.clone()])).err().map(|error| error.to_string());
    let expected = format!(
        "{} is too old for pleach: it has no nvrtcGetErrorString; it needs NVRTC 12.8 or later: install a CUDA toolkit, or \
         `pip install nvidia-cuda-nvrtc`, and give its folder",
        file.display()
    );
    assert_eq!(error, Some(expected));
    std::fs::remove_dir_all(&folder).expect("removed");
}
