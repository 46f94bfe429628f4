//! cuDNN itself, as far as it goes without a GPU: it makes plans for GPUs that are described to it. The library wants a
//! driver to be there; a few functions that accept anything are enough, in a program of its own.

use crate::tests::toolkit;

use std::path::Path;
use std::process::Command;

use gpu::{AttentionPass, AttentionStrides, CausalAttention, MatrixElement};
use nvidia::{Search, cudnn};

/// Set in the program that has the functions of a driver.
const WITH_DRIVER: &str = "PLEACH_TEST_PART";

/// Functions of a driver: code is accepted and never run, all else fails.
const DRIVER: &str = r#"
static long handle = 1;
extern "C" {
#define FAILS(name) int name(void) { return 100; }
FAILS(cuModuleGetFunction) FAILS(cuModuleLoadData) FAILS(cuModuleUnload) FAILS(cuTensorMapEncodeIm2col)
FAILS(cuTensorMapEncodeTiled) FAILS(cuCtxGetCurrent) FAILS(cuCtxGetLimit) FAILS(cuCtxPopCurrent)
FAILS(cuCtxPushCurrent) FAILS(cuStreamGetCtx) FAILS(cuLinkCreate) FAILS(cuLinkAddData) FAILS(cuLinkComplete)
FAILS(cuLinkDestroy) FAILS(cuLaunchKernel) FAILS(cuLaunchCooperativeKernel) FAILS(cuDeviceGetCount)
FAILS(cuDeviceGet) FAILS(cuLibraryLoadFromFile) FAILS(cuKernelGetAttribute)
FAILS(cuOccupancyMaxPotentialClusterSize) FAILS(cuLaunchKernelEx)
int cuGetErrorString(int, const char **text) { *text = "no GPU"; return 0; }
int cuGetErrorName(int, const char **text) { *text = "no GPU"; return 0; }
int cuDriverGetVersion(int *version) { *version = 13000; return 0; }
int cuLibraryLoadData(long *library) { *library = handle++; return 0; }
int cuLibraryGetKernel(long *kernel) { *kernel = handle++; return 0; }
int cuLibraryUnload(void) { return 0; }
int cuKernelSetAttribute(void) { return 0; }
int cuKernelGetFunction(long *function) { *function = handle++; return 0; }
}
"#;

/// A GPU as cuDNN describes it.
fn described(name: &str, capability: u32, multiprocessors: u32, shared_bytes: u32) -> String {
    format!(
        r#"{{"deviceName": "{name}", "deviceVer": {capability}, "driverVer": 13000, "cudaDeviceId": 0, "pciDeviceId": 1,
        "multiProcessorCount": {multiprocessors}, "maxSharedMemoryPerBlock": 49152,
        "maxSharedMemoryPerBlockOptin": {shared_bytes}, "reservedSharedMemoryPerBlock": 1024,
        "oversizedSharedMemoryPerBlock": 0, "maxGridSize": [2147483647, 65535, 65535],
        "maxBlockSize": [1024, 1024, 64], "regsPerBlock": 65536, "maxRegistersPerSM": 65536, "maxCtasPerSM": 32,
        "maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048, "warpSize": 32, "isTccDriver": 0, "supportCoopLaunch": 1,
        "totalGlobalMem": 80000000000, "smClockRateKHz": 1980000, "memClockRateKHz": 2619000, "memoryBusWidth": 5120,
        "l2CacheSize": 52428800}}"#
    )
}

/// Queries, keys and values side by side in the rows of one tensor, as a projection leaves them.
fn attention(
    element: MatrixElement,
    [sequences, length, heads, kv_heads, head_dim]: [u64; 5],
    backward: bool,
) -> CausalAttention {
    let (side_by_side, own) = ((heads + 2 * kv_heads) * head_dim, heads * head_dim);
    let pass = match backward {
        false => AttentionPass::Forward,
        true => AttentionPass::Backward([own, side_by_side, side_by_side, side_by_side]),
    };
    let inputs = [side_by_side, side_by_side, side_by_side, own];
    let strides = AttentionStrides { inputs, log_sum_exp: heads };
    CausalAttention { pass, element, sequences, length, heads, kv_heads, head_dim, strides }
}

#[needs::cudnn]
#[test]
fn plans_are_made_for_gpus_that_are_described() {
    let library = cudnn::Library::open(&Search::only([toolkit::folder()])).expect("cuDNN in PLEACH_CUDA");
    match std::env::var_os(WITH_DRIVER) {
        Some(_) => check_plans(&library),
        None => check_plans_with_driver(&library),
    }
}

fn check_plans_with_driver(library: &cudnn::Library) {
    let own = std::env::temp_dir().join(format!("pleach-cudnn-{}", std::process::id()));
    std::fs::create_dir_all(&own).expect("a folder");
    compile_driver(&own);
    let libraries = library.path().parent().expect("a folder").to_path_buf();
    let path = std::env::join_paths([own.clone(), libraries]).expect("folders");
    let mut again = Command::new(std::env::current_exe().expect("this program"));
    again.args(["--exact", "tests::attention::plans_are_made_for_gpus_that_are_described", "--nocapture"]);
    let output = again.env(WITH_DRIVER, "1").env("LD_LIBRARY_PATH", path).output().expect("this program");
    std::fs::remove_dir_all(&own).expect("removed");
    let text = String::from_utf8_lossy(&output.stdout);
    println!("{text}");
    assert!(output.status.success() && text.contains("plans of"), "{}", String::from_utf8_lossy(&output.stderr));
}

fn compile_driver(folder: &Path) {
    let text = folder.join("driver.cpp");
    std::fs::write(&text, DRIVER).expect("written");
    let mut compiler = Command::new("g++");
    compiler.args(["-shared", "-fPIC", "-w", "-o"]).arg(folder.join("libcuda.so.1")).arg(text);
    assert!(compiler.status().expect("g++; install it to make a driver").success());
}

fn check_plans(library: &cudnn::Library) {
    let gpus = [("H100", 900, 132, 232_448), ("A100", 800, 108, 166_912), ("B200", 1000, 148, 232_448)];
    for (name, capability, multiprocessors, shared_bytes) in gpus {
        let json = described(name, capability, multiprocessors, shared_bytes);
        let gpu = library.described_gpu(&json).unwrap_or_else(|error| panic!("{error}"));
        let plan = |attention: &CausalAttention| gpu.plan(attention).unwrap_or_else(|error| panic!("{error}"));
        for element in [MatrixElement::Bf16, MatrixElement::F16] {
            // GPT-2, four heads of a group of Llama 3, and lengths and widths that are not multiples of tiles.
            for sizes in [[16, 1024, 12, 12, 64], [1, 8192, 4, 1, 128], [4, 2048, 16, 16, 128], [2, 1000, 6, 2, 80]] {
                let forward = plan(&attention(element, sizes, false)).expect("a plan of the forward pass");
                let backward = plan(&attention(element, sizes, true)).expect("a plan of the backward pass");
                println!("plans of cuDNN {} on {name}, {sizes:?}: {forward:?}, {backward:?}", library.version());
                let [sequences, length, heads, _, head_dim] = sizes.map(|size| size as usize);
                // Gradients of scores in 16 bits: who does not keep them adds to gradients in any order.
                let of_scores = 2 * sequences * heads * length * length;
                let tokens = 4 * sequences * heads * length * head_dim;
                assert!(backward.workspace_bytes >= of_scores, "{backward:?}");
                let most = 2 * sequences * heads * length.next_multiple_of(128).pow(2) + 4 * tokens;
                assert!(forward.workspace_bytes <= tokens && backward.workspace_bytes <= most, "{backward:?}");
            }
        }
        let single = plan(&attention(MatrixElement::F32, [1, 128, 2, 2, 64], false));
        let wide = plan(&attention(MatrixElement::Bf16, [1, 128, 2, 2, 512], true));
        assert_eq!([single, wide], [None, None], "{name}");
    }
    assert!(library.described_gpu("{}").is_err(), "a GPU without properties");
}
