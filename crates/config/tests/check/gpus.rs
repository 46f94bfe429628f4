//! Rules of GPUs.

use crate::expect;

#[test]
fn keys_of_gpus_and_of_threads_belong_to_their_devices() {
    expect(&[
        (&["run.device=gpu"], "run.device = \"gpu\" is not one of \"cpu\", \"cuda\" and \"soft-gpu\""),
        (
            &["run.gpus=2"],
            "run.gpus has no effect where run.device = \"cpu\"; write run.device = \"cuda\" or \"soft-gpu\", or leave it out",
        ),
        (&["run.device=cuda", "run.gpus=0"], "run.gpus = 0 must be positive; use at least 1"),
        (&["run.device=cuda", "run.gpus=1025"], "run.gpus = 1025 exceeds the GPUs of any machine; use at most 1024"),
        (
            &["run.device=soft-gpu", "run.threads_per_rank=2"],
            "run.threads_per_rank = 2 has no effect where run.device = \"soft-gpu\"; write run.device = \"cpu\", or leave it out",
        ),
    ]);
}
