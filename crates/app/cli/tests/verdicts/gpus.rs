//! Which values of keys about GPUs go together.

use crate::verdicts::oracle::{Values, int, text};

/// GPUs have every order of products but that of AMX, the one in software none of older tensor cores, and ranks without
/// threads of their own. CPUs have all but that of a library, which alone has
/// choices of algorithms. Blocks have choices of kernels on GPUs, and those of 16 of algorithms with the same bits.
pub fn gpus(values: &Values) -> bool {
    let is_device = text(values, "train.products", "chained") == "device";
    let has_choice = text(values, "run.product_algorithms", "first") == "timed"
        || text(values, "run.attention_library", "auto") == "off";
    if has_choice && !is_device {
        return false;
    }
    let is_equal = text(values, "run.product_algorithms", "first") == "equal";
    let products = text(values, "train.products", "chained");
    let has_kernels = text(values, "run.product_kernels", "auto") != "auto";
    if (is_equal && products != "blocks16") || (has_kernels && !["blocks16", "blocks8"].contains(&products)) {
        return false;
    }
    match text(values, "run.device", "cpu") {
        "cpu" => {
            !values.contains_key("run.gpus")
                && ["run.gpu_collectives", "run.gpu_graphs", "run.product_kernels"]
                    .iter()
                    .all(|key| text(values, key, "auto") == "auto")
                && !is_device
                && !is_equal
        }
        _ => {
            (1..=1024).contains(&int(values, "run.gpus", 1))
                && int(values, "run.threads_per_rank", 1) == 1
                && text(values, "train.products", "chained") != "pairs"
                && (text(values, "run.gpu_collectives", "auto") != "nccl" || has_nccl(values))
        }
    }
}

/// NCCL joins GPUs of NVIDIA, one to a process, in place of MPI.
fn has_nccl(values: &Values) -> bool {
    text(values, "run.device", "cpu") == "cuda"
        && text(values, "run.engine", "auto") != "threads"
        && text(values, "run.collectives", "own") == "own"
}
