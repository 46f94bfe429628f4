//! Rules of GPUs.

use config::RunConfig;

use crate::tests::check::expect;

#[test]
fn keys_of_gpus_and_of_threads_belong_to_their_devices() {
    expect(&[
        (&["run.device=gpu"], "run.device = \"gpu\" is not \"cpu\" or \"cuda\""),
        (&["run.device=cuda", "run.gpus=1025"], "run.gpus = 1025 exceeds the GPUs of any machine; use at most 1024"),
    ]);
}

#[test]
fn graphs_of_kernels_need_gpus() {
    expect(&[(&["run.gpu_graphs=on"], "run.gpu_graphs = \"on\" is not \"auto\" or \"off\"")]);
}

#[test]
fn algorithms_to_choose_from_need_a_library() {
    expect(&[
        (
            &["run.product_algorithms=best"],
            "run.product_algorithms = \"best\" is not one of \"first\", \"timed\" and \"equal\"",
        ),
        (
            &["run.product_algorithms=equal", "train.precision=bf16", "train.products=blocks16"],
            "run.product_algorithms = \"equal\" has no effect where run.device = \"cpu\"; write run.device = \"cuda\", or leave it out",
        ),
    ]);
}

#[test]
fn kernels_to_choose_from_need_products_in_blocks_on_a_gpu() {
    expect(&[
        (
            &["run.product_kernels=best"],
            "run.product_kernels = \"best\" is not one of \"auto\", \"estimated\" and \"timed\"",
        ),
        (
            &["run.device=cuda", "run.product_kernels=estimated"],
            "run.product_kernels = \"estimated\" has no effect where train.products = \"chained\"; write train.products = \
             \"blocks16\" or \"blocks8\", or leave it out",
        ),
    ]);
}

#[test]
fn a_library_of_attention_goes_with_one_of_products() {
    expect(&[(&["run.attention_library=on"], "run.attention_library = \"on\" is not \"auto\" or \"off\"")]);
}

#[test]
fn nccl_needs_gpus_of_nvidia_and_a_process_for_each_rank() {
    expect(&[
        (&["run.gpu_collectives=mpi"], "run.gpu_collectives = \"mpi\" is not one of \"auto\", \"host\" and \"nccl\""),
        (
            &["run.gpu_collectives=nccl"],
            "run.gpu_collectives = \"nccl\" has no effect where run.device = \"cpu\"; write run.device = \"cuda\", or leave it out",
        ),
        (
            &["run.device=cuda", "run.transport=mpi", "run.collectives=native", "run.gpu_collectives=nccl"],
            "run.gpu_collectives = \"nccl\" has no effect where run.collectives = \"native\": MPI is given memory of the host, and \
             GPU-aware MPI is not supported; write run.collectives = \"own\", or run.gpu_collectives = \"host\"",
        ),
    ]);
}

#[test]
fn gpus_have_soft_caps_of_more_than_zero() {
    let gpu = |key: &str| RunConfig::load("", "", &["run.device=cuda".into(), format!("model.{key}")]);
    for key in ["attention_soft_cap=50", "logit_soft_cap=30"] {
        gpu(key).expect("a kernel");
    }
    expect(&[(
        &["run.device=cuda", "model.logit_soft_cap=0"],
        "model.logit_soft_cap = 0.0 must be more than 0; leave it out, or use more than 0",
    )]);
}
