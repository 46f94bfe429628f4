//! Templates that were written to crash, to hang or to fill the memory: each ends with a text or with a refusal, within
//! its budget.
//!
//! As a plain test the grammar makes the same 500 templates each time. For longer (`tools/fuzz.sh`), or under a fuzzer:
//!
//! ```text
//! tools/fuzz.sh 600 templates_of_a_grammar
//! ```
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test ends where something fails")]

mod counting;
#[expect(dead_code, reason = "other tests of the crate use the rest")]
#[path = "../../src/tests/folder/mod.rs"]
mod folder;
mod grammar;
mod long;
mod refusals;

use std::cell::Cell;
use std::time::{Duration, Instant};

use config::{ChatDate, ChatSpec, LongConversations, RewrittenAnswers};
use data::{Chat, DataError, Rendered};

use counting::most_held;
use folder::Folder;
use grammar::Grammar;

/// A conversation of any test.
const RECORD: &str = r#"{"messages": [{"role": "user", "content": "Two and two?"}, {"role": "assistant", "content": "Four."}], "tools": [{"type": "function", "function": {"name": "sum", "parameters": {"a": [1, 2.5, null]}}}]}"#;
/// Templates of a plain test.
const TEMPLATES: u64 = 500;
/// Bytes of a step (`docs/limits.md`).
const BYTES_PER_STEP: usize = 64;
/// Bytes of a text that a template makes, which is written once more where it becomes a value.
const TEXT_BYTES: usize = 2 * (16 << 20);
/// Bytes of a template of this size, parsed.
const PARSED_BYTES: usize = 16 << 20;

/// The steps of `RECORD`, for one text.
fn steps() -> usize {
    (1 << 20) + 16 * RECORD.len()
}

/// The template in the file `one.jinja`.
fn opened(folder: &Folder) -> Result<Chat, DataError> {
    let date = ChatDate::parse("2026-01-31");
    let (long, rewritten) = (LongConversations::Refuse, RewrittenAnswers::Split);
    Chat::open(&ChatSpec { template: folder.path("one.jinja"), date, long, rewritten })
}

/// The result of a template for `RECORD`, within the memory of its steps.
fn rendered(folder: &Folder, template: &str) -> Result<Rendered, DataError> {
    folder.put("one.jinja", template.as_bytes());
    let (result, held) = most_held(|| opened(folder).and_then(|chat| chat.rendered("line 1".into(), RECORD, None)));
    let result = result.map(|mut texts| texts.remove(0));
    let most = BYTES_PER_STEP * steps() + TEXT_BYTES + PARSED_BYTES;
    assert!(held <= most, "{held} bytes of at most {most}: {template}");
    result
}

/// The templates of `TEMPLATES` seeds, out of bytes of SplitMix64.
fn drawn(number: u64) -> Vec<u8> {
    let mut state = number << 32;
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    };
    let words = 2 + next() % 14;
    (0..words).flat_map(|_| next().to_le_bytes()).collect()
}

/// Whether neither a time nor a fuzzer was asked for.
#[allow(unexpected_cfgs, reason = "cargo bolero sets it")]
fn is_plain_test() -> bool {
    let is_set = |name: &str| std::env::var_os(name).is_some();
    !cfg!(fuzzing) && !is_set("BOLERO_RANDOM_ITERATIONS") && !is_set("BOLERO_RANDOM_TEST_TIME_MS")
}

thread_local! {
    /// Inputs, inputs with a text, and the longest time.
    static SEEN: Cell<(u64, u64, Duration)> = const { Cell::new((0, 0, Duration::ZERO)) };
}

#[test]
fn templates_of_a_grammar() {
    let folder = Folder::new("grammar");
    let started = Instant::now();
    let path = folder.path("");
    let tried = |bytes: &[u8]| {
        let template = Grammar::template(bytes);
        let before = Instant::now();
        let result = rendered(&folder, &template);
        let (inputs, accepted, longest) = SEEN.get();
        SEEN.set((inputs + 1, accepted + u64::from(result.is_ok()), longest.max(before.elapsed())));
    };
    if is_plain_test() {
        (0..TEMPLATES).for_each(|number| tried(&drawn(number)));
    } else {
        let tried = std::panic::AssertUnwindSafe(tried);
        let bytes = bolero::produce_with::<Vec<u8>>().len(16_usize..256);
        bolero::check!().with_generator(bytes).for_each(|bytes| tried(bytes));
    }
    let (inputs, accepted, longest) = SEEN.get();
    let seconds = started.elapsed().as_secs_f64();
    println!("{inputs} inputs in {seconds:.0} s, {accepted} accepted; the longest took {longest:.1?}");
    assert!(path.exists() && accepted > inputs / 50 && accepted < inputs, "{accepted} of {inputs} have a text");
}
