//! cuBLASLt and NCCL themselves, as far as they go without a GPU.

use crate::tests::toolkit;

use std::sync::Arc;

use gpu::{BiasForm, FactorForm, MatrixElement, MatrixProduct, ProductLimits, ResultForm, SumForm};
use nvidia::{Search, cublaslt, nccl};

fn cublaslt_of_wheels() -> cublaslt::Library {
    cublaslt::Library::open(&Search::only([toolkit::folder()])).expect("cuBLASLt in PLEACH_CUDA")
}

fn nccl_of_wheels() -> Arc<nccl::Library> {
    Arc::new(nccl::Library::open(&Search::only([toolkit::folder()])).expect("NCCL in PLEACH_CUDA"))
}

#[needs::cuda]
#[test]
fn cublaslt_opens_and_describes_products() {
    let library = cublaslt_of_wheels();
    assert!(library.version().starts_with("13."), "{}", library.version());
    assert!(library.cuda().starts_with("13."), "{}", library.cuda());
    let elements = [MatrixElement::Bf16, MatrixElement::F32];
    let dense = MatrixProduct::dense([1024, 768, 3072], elements, [FactorForm::Plain, FactorForm::Transposed]);
    let limits = ProductLimits { workspace_bytes: 32 << 20, sums: SumForm::Split, most: 1 };
    let biased = MatrixProduct {
        factors: MatrixElement::F16,
        result: MatrixElement::F16,
        alignments: [16, 2, 256, 4],
        write: ResultForm::Accumulated,
        bias: BiasForm::Present,
        ..dense
    };
    for product in [dense, biased] {
        library.describe(&product, limits).expect("a description");
        library.describe(&product, ProductLimits { sums: SumForm::Unbroken, ..limits }).expect("a description");
    }
}

#[needs::cuda]
#[needs::no_gpu]
#[test]
fn without_a_gpu_cublaslt_has_no_handle() {
    let error = cublaslt_of_wheels().check_context().err().map(|error| error.to_string());
    let error = error.expect("no GPU, no handle");
    assert!(error.starts_with("cublasLtCreate: CUBLAS_STATUS_NOT_INITIALIZED: "), "{error}");
}

#[needs::cuda]
#[test]
fn nccl_opens_and_names_groups() {
    let library = nccl_of_wheels();
    assert!(library.version().starts_with("2."), "{}", library.version());
    let (first, second) = (library.group_id().expect("a name"), library.group_id().expect("a name"));
    assert_ne!(first, second);
    assert_eq!(nccl::GroupId::of_bytes(first.bytes()), first);
    assert_eq!(library.abort(std::iter::empty()), Ok(()));
}

#[needs::cuda]
#[needs::no_gpu]
#[test]
fn without_a_gpu_nccl_joins_no_group() {
    let library = nccl_of_wheels();
    let first = library.group_id().expect("a name");
    let error = nccl::Communicator::of_current_context(library, first, 1, 0).err().map(|error| error.to_string());
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
