//! cuBLASLt and NCCL themselves, as far as they go without a GPU.

mod toolkit;

use std::sync::Arc;

use nvidia::{Search, cublaslt, nccl};

#[test]
fn cublaslt_opens_and_describes_products() {
    let Some(folder) = toolkit::folder() else { return };
    let library = Arc::new(cublaslt::Library::open(&Search::only([folder])).expect("cuBLASLt in PLEACH_CUDA"));
    assert!(library.version().starts_with("13."), "{}", library.version());
    assert!(library.cuda().starts_with("13."), "{}", library.cuda());
    use cublaslt::{Element, Product, Stored};
    let product = Product {
        m: 1024,
        n: 768,
        k: 3072,
        factors: Element::Bf16,
        result: Element::F32,
        a: Stored::Plain,
        b: Stored::Transposed,
    };
    library.describe(&product).expect("a description");
    if gpu_is_there() {
        eprintln!("skipped: the error without a GPU, for this machine has one");
        return;
    }
    let error = cublaslt::Handle::of_current_context(library).err().map(|error| error.to_string());
    let error = error.expect("no GPU, no handle");
    assert!(error.starts_with("cublasLtCreate: CUBLAS_STATUS_NOT_INITIALIZED: "), "{error}");
}

#[test]
fn nccl_opens_and_names_groups() {
    let Some(folder) = toolkit::folder() else { return };
    let library = Arc::new(nccl::Library::open(&Search::only([folder])).expect("NCCL in PLEACH_CUDA"));
    assert!(library.version().starts_with("2."), "{}", library.version());
    let (first, second) = (library.group_id().expect("a name"), library.group_id().expect("a name"));
    assert_ne!(first, second);
    assert_eq!(nccl::GroupId::of_bytes(first.bytes()), first);
    assert_eq!(library.together(|| Ok(())), Ok(nccl::Progress::Done));
    if gpu_is_there() {
        eprintln!("skipped: the error without a GPU, for this machine has one");
        return;
    }
    let error = nccl::Communicator::of_current_context(library, &[first], 1, 0).err().map(|error| error.to_string());
    let error = error.expect("no GPU, no communicator");
    assert!(error.starts_with("ncclCommInitRankConfig: unhandled cuda error"), "{error}");
}

#[test]
fn missing_libraries_are_named_with_their_wheels() {
    let nowhere = Search::only(["/no/such/folder".into()]);
    let error = cublaslt::Library::open(&nowhere).err().map(|error| error.to_string());
    let expected = "cuBLASLt is missing: libcublasLt.so.13 is not in /no/such/folder; install a CUDA toolkit, or `pip install \
                    nvidia-cublas`, and give its folder";
    assert_eq!(error.as_deref(), Some(expected));
    let error = nccl::Library::open(&nowhere).err().map(|error| error.to_string());
    let expected = "NCCL is missing: libnccl.so.2 is not in /no/such/folder; install NCCL, or `pip install nvidia-nccl-cu13`, and \
                    give its folder";
    assert_eq!(error.as_deref(), Some(expected));
}

fn gpu_is_there() -> bool {
    std::path::Path::new("/proc/driver/nvidia/version").exists()
}
