//! SIGTERM at any time: the command ends with its exit code, and what was there is there.

use crate::hostile::case::{Case, Content, case};
use crate::hostile::fixtures::{Fixture, SMALL};
use crate::hostile::verdict::hold_at_once;

/// Words of letters without an order, for which a tokenizer is trained long.
fn words() -> String {
    let mut state = 88_172_645_463_325_252u64;
    let mut letter = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        char::from(b'a' + (state % 26) as u8)
    };
    (0..2_000_000).map(|place| if place % 40 == 39 { ' ' } else { letter() }).collect()
}

fn waiting(name: &str, arguments: &str) -> Case {
    case(format!("SIGTERM: {name}"), arguments).with("it", Content::Pipe).terminated()
}

#[test]
fn commands_end_by_sigterm_and_leave_all_as_it_was() {
    let run = Fixture::Run.name();
    let without_tokenizer = SMALL.replace("--set data.tokenizer=bytes ", "");
    hold_at_once(vec![
        case(
            "SIGTERM: a tokenizer of 4,000,000 tokens is trained",
            "data tokenize {}/t.txt --tokenizer bpe:4000000 --out {}/o.tokens",
        )
        .with("t.txt", words())
        .terminated(),
        case(
            "SIGTERM: a run trains its tokenizer",
            &format!(
                "train {without_tokenizer} --set data.tokenizer=bpe:4000000 --data {{}}/t.txt --set run.folder={{}}/run"
            ),
        )
        .with("t.txt", words())
        .terminated(),
        waiting(
            "a drawing into a pipe that nobody reads",
            &format!("simulate {SMALL} --cluster a100-80g-dgx --svg {{}}/it"),
        ),
        waiting(
            "a trace into a pipe that nobody reads",
            &format!("simulate {SMALL} --cluster a100-80g-dgx --trace {{}}/it"),
        ),
        waiting("a layout into a pipe that nobody reads", "plan --gpus 2 --cluster a100-80g-dgx --write {}/it"),
        waiting(
            "text from a pipe that nobody writes",
            &format!("train {SMALL} --set run.folder={{}}/run --data {{}}/it"),
        ),
        waiting("text to measure on from such a pipe", &format!("eval --from {run} --data {{}}/it")),
        waiting("text for tokens from such a pipe", "data tokenize {}/it --out {}/o.tokens"),
        waiting("sequences from such a pipe", &format!("forward --from {run} --tokens {{}}/it --out {{}}/o")),
        waiting("a run file from such a pipe", "check {}/it"),
        waiting("a profile from such a pipe", "simulate --cluster {}/it"),
        waiting("a table from such a pipe", "validate {}/it --cluster a100-80g-dgx"),
    ]);
}
