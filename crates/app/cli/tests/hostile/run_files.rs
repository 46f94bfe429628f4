//! Run files that no person would write.

use crate::hostile::case::{Case, Content, case};
use crate::hostile::verdict::hold;

/// A run file that `check` judges.
fn file(name: &str, content: impl Into<Content>) -> Case {
    case(name, "check {}/run.toml").with("run.toml", content)
}

fn repeated(count: usize, of: impl Fn(usize) -> String) -> String {
    (0..count).map(of).collect()
}

#[test]
fn what_is_no_toml_is_refused() {
    let encoded = |text: &str| text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>();
    hold(vec![
        file("empty", "").done("model "),
        file("a comment without an end", "#".repeat(4 << 20)).done("model "),
        file("lines without content", "\n".repeat(4 << 20)).done("model "),
        file("byte order mark", "\u{feff}[model]\nhidden = 64\nnum_heads = 4\n").done("hidden 64"),
        file("lines that end in CR LF", "[model]\r\nhidden = 64\r\nnum_heads = 4\r\n").done("hidden 64"),
        file("lines that end in CR", "[model]\rhidden = 64\r").refused("run.toml"),
        file("a key that steers the terminal", "[train]\n\"\\u001b]0;title\\u0007\" = 1\n")
            .refused("train.\\u001b]0;title\\u0007"),
        file("a key of 3 MB", format!("{} = 1\n", "k".repeat(3_000_000))).refused("more characters)"),
        file("a zero byte", "[model]\0hidden = 64\n").refused("run.toml"),
        file("zero bytes alone", vec![0; 1000]).refused("run.toml"),
        file("UTF-16", encoded("[model]\nhidden = 64\n")).refused("run.toml"),
        file("Latin-1", b"# caf\xe9\n".to_vec()).refused("is not UTF-8"),
        file("an overlong encoding", b"# \xc0\xaf\n".to_vec()).refused("is not UTF-8"),
        file("a surrogate", b"# \xed\xa0\x80\n".to_vec()).refused("is not UTF-8"),
        file("gzip", b"\x1f\x8b\x08\x00\xff\xff".to_vec()).refused("compressed by gzip"),
        file("zstd", b"\x28\xb5\x2f\xfd\xff\xff".to_vec()).refused("compressed by zstd"),
        file("a table of parquet", b"PAR1\xff\xff".to_vec()).refused("a table of parquet"),
        file("JSON", "{\"model\": {\"hidden\": 64}}").refused("run.toml"),
        file("YAML", "model:\n  hidden: 64\n").refused("run.toml"),
        file("a header that is cut off", "[model").refused("run.toml"),
        file("a string that is cut off", "[data]\npath = \"a").refused("run.toml"),
        file("a long string that is cut off", "[data]\npath = \"\"\"a").refused("run.toml"),
        file("a key without a value", "[model]\nhidden =\n").refused("run.toml"),
        file("a value without a key", "[model]\n= 64\n").refused("run.toml"),
        file("a key twice", "[model]\nhidden = 64\nhidden = 128\n").refused("run.toml"),
        file("a section twice", "[model]\nhidden = 64\n[model]\nnum_heads = 4\n").refused("run.toml"),
        file("a section as a list", "[[model]]\nhidden = 64\n").refused("model"),
        file("a section as a number", "model = 3\n").refused("model"),
        file("a section in a section", "[model.model]\nhidden = 64\n").refused("model.model"),
        file("arrays in arrays", format!("[model]\nhidden = {}", "[".repeat(1_000_000))).refused("run.toml"),
        file("closed arrays in arrays", format!("[model]\nhidden = {}{}", "[".repeat(100_000), "]".repeat(100_000)))
            .refused("run.toml"),
        file("tables in tables", format!("[model]\nhidden = {}", "{a=".repeat(100_000))).refused("run.toml"),
        file("a key of 100,000 parts", format!("{}a = 1", "a.".repeat(100_000))).refused("run.toml"),
        file("a section of 100,000 parts", format!("[{}a]", "a.".repeat(100_000))).refused("run.toml"),
        file("a key of a million letters", format!("[model]\n{} = 1", "a".repeat(1_000_000))).refused("run.toml"),
        file("a string of four million letters", format!("[model]\nnorm = \"{}\"", "a".repeat(4_000_000)))
            .refused("model.norm"),
        file("a number of a million digits", format!("[model]\nhidden = {}", "9".repeat(1_000_000)))
            .refused("run.toml"),
        file("a fraction of a million digits", format!("[model]\ninit_std = 0.{}", "9".repeat(1_000_000)))
            .done("model "),
    ]);
}

#[test]
fn many_keys_take_linear_time() {
    hold(vec![
        file("100,000 unknown keys", format!("[model]\n{}", repeated(100_000, |n| format!("k{n} = 1\n"))))
            .refused("model.k0"),
        file("100,000 unknown sections", repeated(100_000, |n| format!("[s{n}]\nk = 1\n")))
            .refused("s0")
            .says("and 99872 more; correct these first"),
        file(
            "20,000 groups",
            format!("[train]\ngroups = [{}]", repeated(20_000, |n| format!("{{ parameters = [\"layers.{n}.*\"] }},"))),
        )
        .refused("train.groups"),
        file(
            "a group of 100,000 patterns",
            format!("[train]\ngroups = [{{ parameters = [{}] }}]", "\"*.bias\",".repeat(100_000)),
        )
        .done("model "),
        file(
            "a pattern of 10,000 stars",
            format!("[train]\ngroups = [{{ parameters = [\"{}b\"] }}]", "*".repeat(10_000)),
        )
        .refused("train.groups"),
        file(
            "a pattern of stars and letters",
            format!("[train]\ngroups = [{{ parameters = [\"{}\"] }}]", "*e".repeat(2_000)),
        )
        .refused("train.groups"),
        file("100,000 sources", format!("[data]\nsources = [{}]", repeated(100_000, |n| format!("\"f{n}\","))))
            .done("model "),
        file("300,000 layers of stages", format!("[parallelism]\nstage_layers = [{}]", "1,".repeat(300_000)))
            .refused("parallelism.stage_layers"),
        file("300,000 widths of layers", format!("[model]\nffn_hidden_of_layers = [{}]", "64,".repeat(300_000)))
            .refused("model.ffn_hidden_of_layers"),
    ]);
}

/// `section.key=value` for each of `keys`.
fn set(name: &str, keys: &[&str]) -> Case {
    keys.iter().fold(case(name, "check"), |case, key| case.and("--set").and(*key))
}

#[test]
fn numbers_at_the_ends_of_their_ranges() {
    const LARGEST: &str = "2147483647";
    let mut cases = vec![];
    for key in [
        "model.num_layers",
        "model.hidden",
        "model.num_heads",
        "model.num_kv_heads",
        "model.head_dim",
        "model.ffn_hidden",
        "model.vocabulary",
        "model.context",
        "parallelism.dp",
        "parallelism.tp",
        "parallelism.pp",
        "parallelism.microbatch_size",
        "train.global_batch",
        "train.sequence_length",
        "run.threads_per_rank",
    ] {
        for value in [
            LARGEST,
            "2147483648",
            "-1",
            "0",
            "9223372036854775808",
            "1e300",
            "nan",
            "inf",
            "-inf",
            "true",
            "[1]",
            "\"1\"",
            "1979-05-27",
        ] {
            cases.push(set(&format!("{key} = {value}"), &[&format!("{key}={value}")]).refused(key));
        }
    }
    for key in [
        "train.learning_rate",
        "train.beta1",
        "train.beta2",
        "train.epsilon",
        "train.weight_decay",
        "model.dropout",
        "model.init_std",
    ] {
        for value in ["nan", "inf", "-inf", "1e39", "\"\"", "{}"] {
            cases.push(set(&format!("{key} = {value}"), &[&format!("{key}={value}")]).refused(key));
        }
    }
    hold(cases);
}

#[test]
fn sizes_are_judged_before_anything_is_made() {
    hold(vec![
        set("a million layers", &["model.num_layers=1000000"]).refused(""),
        set(
            "a million layers on one rank",
            &["model.num_layers=1000000", "parallelism.dp=1", "parallelism.tp=1", "parallelism.pp=1"],
        )
        .refused(""),
        set(
            "100,000 layers on as many stages",
            &["model.num_layers=100000", "parallelism.pp=100000", "parallelism.dp=1", "parallelism.tp=1"],
        )
        .refused(""),
        set("a million replicas", &["parallelism.dp=1000000", "train.global_batch=2000000"]).refused(""),
        set("2^30 sequences of a microbatch each", &["train.global_batch=1073741824", "parallelism.microbatch_size=1"])
            .refused(""),
        set(
            "a ramp of a million sizes",
            &[
                "train.global_batch=1048576",
                "train.batch_ramp={ start = 2, increment = 2, sequences = 100000 }",
                "parallelism.microbatch_size=1",
            ],
        )
        .refused(""),
        set(
            "a ramp of 512 sizes",
            &[
                "train.global_batch=1024",
                "train.batch_ramp={ start = 2, increment = 2, sequences = 100000 }",
                "parallelism.microbatch_size=1",
            ],
        )
        .and("--ramp")
        .refused("more than 256"),
        set(
            "a ramp of 255 sizes of long programs",
            &[
                "parallelism.dp=1",
                "parallelism.tp=1",
                "parallelism.pp=2",
                "model.num_layers=2",
                "parallelism.microbatch_size=1",
                "train.global_batch=16384",
                "train.batch_ramp={ start = 64, increment = 64, sequences = 100000 }",
            ],
        )
        .and("--ramp")
        .refused("passes together, more than 2097152"),
        case("a folder with a zero byte", "train --set").and("run.folder=\"a\\u0000b\"").refused("cannot be written"),
        case("a text with a zero byte", "train --set").and("data.path=\"a\\u0000b\"").refused("cannot be read"),
        set("a key without a section", &["hidden=3"]).refused("hidden"),
        set("no key", &["=3"]).refused("=3"),
        set("no value, as if the key were not there", &["model.hidden="]).done("hidden 128"),
        set("a value in several lines", &["model.hidden=3\n[train]\nsteps=3"]).refused("model.hidden"),
        (0..5000).fold(case("5,000 overrides", "check"), |case, _| case.and("--set=model.hidden=64")).done("hidden 64"),
        (0..5000)
            .fold(case("5,000 unknown overrides", "check"), |case, n| case.and(format!("--set=model.k{n}=64")))
            .refused("model.k0"),
    ]);
}
