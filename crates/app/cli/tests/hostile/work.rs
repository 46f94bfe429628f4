//! Work that could have no end: searches, schedules, tokenizers to train, texts to continue.

use crate::hostile::case::{Case, Content, case};
use crate::hostile::fixtures::{Fixture, SMALL};
use crate::hostile::verdict::hold;

fn plan(name: &str, more: &str) -> Case {
    case(format!("plan: {name}"), &format!("plan --cluster a100-80g-dgx {more}"))
}

#[test]
fn searches_end() {
    hold(vec![
        plan("no accelerators", "--gpus 0").refused("--gpus"),
        plan("-1 accelerators", "--gpus -1").refused("--gpus"),
        plan("2^64 accelerators", "--gpus 18446744073709551616").refused("--gpus"),
        plan("the largest prime below 2^64", "--gpus 18446744073709551557").refused("--gpus"),
        plan("2^63 accelerators", "--gpus 9223372036854775808").refused("--gpus"),
        plan("a number with 103,680 divisors", "--gpus 897612484786617600").refused("--gpus"),
        plan("a million accelerators", "--gpus 1000000").refused(""),
        plan("55,440 accelerators and as many sequences", "--gpus 55440 --set train.global_batch=55440").refused(""),
        plan("2^30 sequences", "--gpus 8 --set train.global_batch=1073741824").refused(""),
        plan("4,096 microbatches", "--gpus 8 --set train.global_batch=4096 --set model.num_layers=8").done("layouts"),
        plan("a thousand layers", "--gpus 8 --set model.num_layers=1000").done("layouts"),
        plan("a million layers", "--gpus 8 --set model.num_layers=1000000").refused(""),
        plan("no memory", "--gpus 8 --max-memory 0.000000001").refused("no layout fits"),
        plan("memory of NaN", "--gpus 8 --max-memory nan").refused("--max-memory"),
        plan("endless memory", "--gpus 8 --max-memory inf").refused("--max-memory"),
        plan("an unknown key", "--gpus 8 --fix a=b").refused("--fix a=b"),
        plan("an illegal value", "--gpus 8 --fix tp=3").refused("--fix tp"),
    ]);
}

#[test]
fn schedules_of_rates_are_not_listed() {
    let steps = "check --set train.schedule=cosine-restarts --set train.restart_steps=1 --set train.restart_growth=1";
    hold(vec![
        case("2^31 - 1 restarts of the learning rate", &format!("{steps} --set train.steps=2147483647"))
            .done(" more, "),
    ]);
}

#[test]
fn schedules_are_made_in_time() {
    let of = |schedule: &str, pp: usize, layers: usize, batch: usize, more: &str| {
        format!(
            "check --set parallelism.dp=1 --set parallelism.tp=1 --set parallelism.pp={pp} --set model.num_layers={layers} \
                 --set parallelism.microbatch_size=1 --set train.global_batch={batch} --set parallelism.schedule={schedule}{more}"
        )
    };
    let percent = |percent: &str| {
        format!(" --set parallelism.schedule_memory_percent={percent} --set run.rank_memory_bytes=1000000000000000")
    };
    hold(vec![
        case("zb-auto, 8 stages, 4,096 microbatches, 100 %", &of("zb-auto", 8, 8, 4096, &percent("100")))
            .done("model "),
        case("zb-auto, 8 stages, 4,096 microbatches, 100,000 %", &of("zb-auto", 8, 8, 4096, &percent("100000")))
            .done("model "),
        case("zb-auto, 8 stages, 4,096 microbatches, 2^31 - 1 %", &of("zb-auto", 8, 8, 4096, &percent("2147483647")))
            .done("model "),
        case("zb-auto, 32 stages, 65,536 microbatches", &of("zb-auto", 32, 32, 65536, &percent("200"))).refused(""),
        case("zb-v, 8 stages, 2,048 microbatches", &of("zb-v", 8, 16, 2048, "")).done("model "),
        case(
            "interleaved, 8 stages of 64 each",
            &of("interleaved", 8, 512, 64, " --set parallelism.stages_per_rank=64"),
        )
        .done(""),
        case("gpipe, 65,536 microbatches", &of("gpipe", 2, 4, 65536, "")).refused(""),
        case(
            "simulate, a million microbatches",
            &of("1f1b", 2, 4, 1_000_000, "").replace("check", "simulate --cluster a100-80g-dgx"),
        )
        .refused(""),
        case("explain, 65,536 microbatches", &of("1f1b", 2, 4, 65536, "").replace("check", "explain")).refused(""),
    ]);
}

#[test]
fn tokenizers_are_trained_within_the_text() {
    let tokenize = |name: &str, tokenizer: &str, content: Content| {
        case(format!("bpe: {name}"), &format!("data tokenize {{}}/it.txt --tokenizer {tokenizer} --out {{}}/o.tokens"))
            .with("it.txt", content)
    };
    let text = || Content::Copy(Fixture::Text);
    hold(vec![
        tokenize("4,000,000 tokens", "bpe:4000000", text()).writes("o.tokens").done("tokens"),
        tokenize("2^31 - 1 tokens", "bpe:2147483647", text()).writes("o.tokens").done("tokens"),
        tokenize("2^31 tokens", "bpe:2147483648", text()).refused("bpe:2147483648"),
        tokenize("2^64 tokens", "bpe:18446744073709551616", text()).refused("bpe:"),
        tokenize("2^64 - 1 tokens", "bpe:18446744073709551615", text()).refused("bpe:"),
        tokenize("255 tokens", "bpe:255", text()).refused("bpe:255"),
        tokenize("-1 tokens", "bpe:-1", text()).refused("bpe:-1"),
        tokenize("a text of one letter", "bpe:1000", Content::from("a".repeat(300_000)))
            .writes("o.tokens")
            .done("tokens"),
        tokenize(
            "a text without spaces",
            "bpe:1000",
            Content::from(
                (0..60_000u64).map(|n| char::from(b'a' + ((n * n * 2654435761) >> 7) as u8 % 26)).collect::<String>(),
            ),
        )
        .writes("o.tokens")
        .done("tokens"),
    ]);
}

#[test]
fn texts_are_continued_within_reason() {
    let generate = |name: &str, more: &str| {
        case(format!("generate: {name}"), &format!("generate --from {} --prompt a {more}", Fixture::Run.name()))
    };
    let run = Fixture::Run.name();
    hold(vec![
        generate("no tokens", "--max-tokens 0").done(""),
        generate("2^64 tokens", "--max-tokens 18446744073709551616").refused("--max-tokens"),
        generate("a temperature of NaN", "--temperature nan").refused("--temperature"),
        generate("an endless temperature", "--temperature inf").refused("--temperature"),
        generate("a negative temperature", "--temperature -1").refused("--temperature"),
        generate("no probability", "--top-p 0 --max-tokens 3").done(""),
        generate("a probability of NaN", "--top-p nan").refused("--top-p"),
        generate("a probability of 2", "--top-p 2").refused("--top-p"),
        generate("none of the tokens", "--top-k 0").refused("--top-k"),
        generate("2^63 of the tokens", "--top-k 9223372036854775808 --max-tokens 3").done(""),
        case("generate: an empty prompt", &format!("generate --from {run} --prompt")).and("").done(""),
        case("generate: a prompt of 100,000 letters", &format!("generate --max-tokens 2 --from {run} --prompt"))
            .and("a".repeat(100_000))
            .done(""),
        case("explain: a rank that is not there", &format!("explain {SMALL} --rank 9")).refused("9"),
        case("explain: rank 2^63", &format!("explain {SMALL} --rank 9223372036854775808"))
            .refused("9223372036854775808"),
        case(
            "simulate: ranks that are not there",
            &format!("simulate {SMALL} --cluster a100-80g-dgx --trace {{}}/t --ranks 9"),
        )
        .refused("9"),
        case(
            "simulate: 2^63 ranks",
            &format!("simulate {SMALL} --cluster a100-80g-dgx --trace {{}}/t --ranks 0-9223372036854775808"),
        )
        .refused("--ranks"),
        case("launch: 5,000 processes", "launch --nproc 5000 -- train").refused("--nproc"),
        case("launch: nothing", "launch --").refused(""),
        case("completions: of no shell", "completions cmd.exe").refused("cmd.exe"),
        case("an unknown command", "tarin").refused("tarin"),
        case("a command of zero letters", "").refused(""),
    ]);
}
