//! `docs/reliability.md`: what trials showed.

use prove::reliability::{Reference, Shown};

/// The page.
pub fn page(all: &[Shown]) -> String {
    let layout = Reference::layout();
    let (parallelism, steps) = (&layout.parallelism, layout.train.steps);
    let row = |shown: &Shown| {
        let Shown { number, fault, demand, trials, failures, seen } = shown;
        format!("| {number} | {fault} | {demand} | {} of {trials} | {seen} |\n", trials - failures.len().min(*trials))
    };
    format!(
        "# Reliability\n\n\
         What a run does where processes are killed, bits flip and disks fill up. Written by\n\n\
         ```text\ncargo run --release -p prove --bin reliability -- --write docs/reliability.md\n```\n\n\
         A run of {} ranks (dp {} x tp {} x pp {}, ZeRO-1, dropout, single precision) does {steps} steps with a checkpoint after each. *The same* means that the\n\
         losses of all steps and the last weights have the bits of the undisturbed run. Each trial is kept in `target/reliability.txt`; stopped, the\n\
         command continues there. Places are drawn at random with a fixed seed; CI tries the first\n\
         few of each (`crates/prove/tests/reliability.rs`).\n\n\
         A process of R3 reports the loss of each step. When it waits at the drawn byte of a save, it still lives and trains; only then the signal\n\
         is sent, and the wait status must name that signal. A process that had ended before is counted apart, and its trial is repeated. The losses\n\
         that it reported, those after the resumption, and a hash of the last weights are compared with the undisturbed run.\n\n\
         | | what is done | what must hold | held | seen |\n|---|---|---|---|---|\n{}\n\
         R20, an older checkpoint under a newer program, is held by `crates/checkpoint/tests/checkpoints/older.rs`.\n",
        parallelism.world_size(),
        parallelism.dp,
        parallelism.tp,
        parallelism.pp,
        all.iter().map(row).collect::<String>(),
    )
}
