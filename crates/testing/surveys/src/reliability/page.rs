//! `docs/reliability.md`: what trials showed.

use super::{Reference, Shown};

/// Begins the section that `tools/count-faults.sh` fills.
const COUNTS: &str = "## Processes, memory and numbers\n";

/// The section of counts of a page, which this program keeps.
pub fn counts_of(page: &str) -> Option<&str> {
    let section = &page[page.find(COUNTS)?..];
    Some(section.find("\n## ").map_or(section, |end| &section[..end]).trim_end())
}

/// The page as Markdown, with a row for each fault, and the section of `counts`.
pub fn page(all: &[Shown], counts: &str) -> String {
    let layout = Reference::layout();
    let (parallelism, steps) = (&layout.parallelism, layout.train.steps);
    let row = |shown: &Shown| {
        let Shown { number, fault, demand, trials, failures, seen } = shown;
        format!("| {number} | {fault} | {demand} | {} of {trials} | {seen} |\n", trials - failures.len().min(*trials))
    };
    format!(
        "# Reliability\n\n\
         Runs in which processes are killed, bits flip and disks fill up. Written by\n\n\
         ```text\ncargo run --release -p surveys -- reliability --write docs/reliability.md\n```\n\n\
         The command keeps each trial in `target/reliability.txt` and continues there if it was stopped.\n\n\
         A run of {} ranks ({}, ZeRO-1, dropout, single precision) does {steps} steps with a\n\
         checkpoint after each. *The same* means that the losses of all steps and the last weights have the bits\n\
         of the undisturbed run. Places are drawn at random with a fixed seed; CI tries the first few of each\n\
         (`crates/testing/surveys/tests/reliability.rs`).\n\n\
         A process of R3 reports the loss of each step. At the drawn byte its save waits while it trains on, and it\n\
         reports that. Only then it is sent SIGKILL, and its wait status must name that signal. A process that had\n\
         ended before is counted apart, and its trial is repeated. The losses before the kill, those after the\n\
         resumption, and a hash of the last weights are compared with the undisturbed run. The test also starts\n\
         processes that never train, that end by themselves, or that report other losses, and expects each of these\n\
         trials to fail.\n\n\
         | | what is done | what must hold | held | seen |\n|---|---|---|---|---|\n{}\n\
         R20, an older checkpoint under a newer program, is held by `crates/training/checkpoint/tests/checkpoints/older.rs`.\n\n\
         {counts}\n",
        parallelism.world_size(),
        parallelism.degrees,
        all.iter().map(row).collect::<String>(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_section_of_counts_ends_where_the_next_begins() {
        let counts = format!("{COUNTS}\n| kills |\n\n### Details");
        assert_eq!(counts_of(&format!("# Reliability\n\n{counts}\n\n## Stamp\n")), Some(&*counts));
        assert_eq!(counts_of(&format!("# Reliability\n\n{counts}\n")), Some(&*counts));
        assert_eq!(counts_of("# Reliability\n"), None);
        let page = page(&[], &counts);
        assert_eq!(counts_of(&page), Some(&*counts), "{page}");
    }
}
