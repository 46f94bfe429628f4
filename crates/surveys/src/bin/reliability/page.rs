//! `docs/reliability.md`: what trials showed.

use surveys::reliability::{Reference, Shown};

/// The page as Markdown, with a row for each fault.
pub fn page(all: &[Shown]) -> String {
    let layout = Reference::layout();
    let (parallelism, steps) = (&layout.parallelism, layout.train.steps);
    let row = |shown: &Shown| {
        let Shown { number, fault, demand, trials, failures, seen } = shown;
        format!("| {number} | {fault} | {demand} | {} of {trials} | {seen} |\n", trials - failures.len().min(*trials))
    };
    format!(
        "# Reliability\n\n\
         Runs in which processes are killed, bits flip and disks fill up. Written by\n\n\
         ```text\ncargo run --release -p surveys --bin reliability -- --write docs/reliability.md\n```\n\n\
         The command keeps each trial in `target/reliability.txt` and continues there if it was stopped.\n\n\
         A run of {} ranks ({}, ZeRO-1, dropout, single precision) does {steps} steps with a\n\
         checkpoint after each. *The same* means that the losses of all steps and the last weights have the bits\n\
         of the undisturbed run. Places are drawn at random with a fixed seed; CI tries the first few of each\n\
         (`crates/surveys/tests/reliability.rs`).\n\n\
         A process of R3 reports the loss of each step. At the drawn byte its save waits while it trains on, and it\n\
         reports that. Only then it is sent SIGKILL, and its wait status must name that signal. A process that had\n\
         ended before is counted apart, and its trial is repeated. The losses before the kill, those after the\n\
         resumption, and a hash of the last weights are compared with the undisturbed run. The test also starts\n\
         processes that never train, that end by themselves, or that report other losses, and expects each of these\n\
         trials to fail.\n\n\
         | | what is done | what must hold | held | seen |\n|---|---|---|---|---|\n{}\n\
         R20, an older checkpoint under a newer program, is held by `crates/checkpoint/tests/checkpoints/older.rs`.\n\
         Kills of processes over TCP and MPI, hosts that are lost and back, flipped bits in memory and runs that diverge are\n\
         tests with counts of their own, which [failures.md](failures.md) has with dates and commits.\n",
        parallelism.world_size(),
        parallelism.degrees,
        all.iter().map(row).collect::<String>(),
    )
}
