//! Profiles of clusters and trainers, tables of measured runs, traces, lists of hosts and schedules.

use crate::hostile::case::{Case, Content, case, replaced};
use crate::hostile::fixtures::{Fixture, SMALL};
use crate::hostile::verdict::hold;

/// A profile that is the sound one with a part replaced.
fn profile(name: &str, from: &'static str, to: impl Into<String>) -> Case {
    case(format!("profile: {name}"), &format!("simulate {SMALL} --cluster {{}}/it.toml"))
        .with("it.toml", Content::Changed(Fixture::Cluster, "", replaced(from, to)))
        .refused("it.toml")
}

#[test]
fn profiles_that_describe_no_cluster_are_refused() {
    let text = |name: &str, content: &str| {
        case(format!("profile: {name}"), "simulate --cluster {}/it.toml").with("it.toml", content).refused("it.toml")
    };
    let mut cases = vec![
        text("empty", ""),
        text("JSON", "{}"),
        text("arrays in arrays", &format!("about = {}", "[".repeat(1_000_000))),
        text("a run file", "[model]\nhidden = 3\n"),
        profile("an unknown key", "[node]", "[node]\nfans = 3"),
        profile("a section less", "[network]", "[networks]"),
        profile("a key twice", "half_tflops = 312.0", "half_tflops = 312.0\nhalf_tflops = 312.0"),
        case("profile: a name of a million letters", &format!("simulate {SMALL} --cluster {{}}/it.toml"))
            .with("it.toml", Content::Changed(Fixture::Cluster, "", replaced("A100-SXM4-80GB", "A".repeat(1_000_000))))
            .done("cluster "),
    ];
    for (key, from) in [
        ("memory_gb", "memory_gb = 85.197"),
        ("memory_gb_per_s", "memory_gb_per_s = 2039.0"),
        ("half_tflops", "half_tflops = 312.0"),
        ("matrix_efficiency", "matrix_efficiency = 0.823"),
        ("gb_per_s", "gb_per_s = 300.0"),
        ("latency_us", "latency_us = 4.0"),
        ("accelerators", "accelerators = 8"),
    ] {
        for value in ["nan", "inf", "-inf", "-1", "0", "\"1\"", "[1]"] {
            // A link without latency is possible.
            if (key, value) != ("latency_us", "0") {
                cases.push(profile(&format!("{key} = {value}"), from, format!("{key} = {value}")));
            }
        }
    }
    for value in ["nan", "-1", "inf", "1e300"] {
        cases.push(
            case(
                format!("software: operations_per_kernel = {value}"),
                "simulate --cluster a100-80g-dgx --software={}/it.toml",
            )
            .with(
                "it.toml",
                Content::Changed(
                    Fixture::Software,
                    "",
                    replaced("operations_per_kernel = 4.5", format!("operations_per_kernel = {value}")),
                ),
            )
            .refused("it.toml"),
        );
    }
    hold(cases);
}

/// A table that `validate` reads.
fn table(name: &str, content: impl Into<Content>) -> Case {
    case(format!("table: {name}"), "validate {}/it.csv --cluster a100-80g-jean-zay").with("it.csv", content)
}

fn row(name: &str, from: &'static str, to: &str) -> Case {
    table(name, Content::Changed(Fixture::Table, "", replaced(from, to)))
}

#[test]
fn tables_that_hold_no_runs_are_refused() {
    const LAYOUT: &str = "8,4,12,1,2,2048";
    hold(vec![
        table("sound", Content::Copy(Fixture::Table)).done("bloom-176B"),
        table("empty", "").refused("it.csv has no header"),
        table("comments alone", "# a\n".repeat(100_000)).refused("it.csv has no header"),
        table("no UTF-8", b"\xff\xfe".to_vec()).refused("it.csv is not UTF-8"),
        table("zero bytes", vec![0; 100]).refused("it.csv"),
        table("a header alone", "layers,hidden,heads,tp,pp,global_batch,iter_s\n").refused("it.csv"),
        table("a column less", "layers,hidden,heads,tp,pp,iter_s\n1,1,1,1,1,1\n").refused("it.csv"),
        table("a column twice", "layers,layers,hidden,heads,tp,pp,global_batch,iter_s\n1,1,1,1,1,1,1,1\n")
            .refused("it.csv"),
        table(
            "a million columns",
            format!("layers,hidden,heads,tp,pp,global_batch,iter_s{}\n", ",a".repeat(1_000_000)),
        )
        .refused("it.csv"),
        table("a quotation mark that stays open", "layers,hidden,heads,tp,pp,global_batch,iter_s\n\"1,1,1,1,1,1,1\n")
            .refused("it.csv"),
        table(
            "a million rows",
            format!("layers,hidden,heads,tp,pp,global_batch,iter_s\n{}", "a,1,1,1,1,1,1\n".repeat(1_000_000)),
        )
        .refused("it.csv"),
        row("cells after the last column", ",104.5", ",104.5,1,2,3").refused("it.csv"),
        row("negative layers", ",70,14336", ",-70,14336").refused("it.csv"),
        row("2^31 layers", ",70,14336", ",2147483648,14336").refused("it.csv"),
        row("2^31 - 1 layers", ",70,14336", ",2147483647,14336").refused("it.csv"),
        row("no heads", ",14336,112", ",14336,0").refused("it.csv"),
        row("heads that do not divide", ",14336,112", ",14336,113").refused("it.csv"),
        row("a million pipeline ranks", LAYOUT, "8,4,1000000,1,2,2048").refused("it.csv"),
        row("2^31 - 1 replicas", LAYOUT, "2147483647,4,12,1,2,2048").refused("it.csv"),
        row("a batch of 2^31 - 1", LAYOUT, "8,4,12,1,2,2147483647").refused("it.csv"),
        row("a batch of 2^30 in microbatches of one", LAYOUT, "1,4,12,1,1,1073741824").refused("it.csv"),
        row("seconds of text", ",104.5", ",nan").refused("it.csv"),
        row("no seconds", ",104.5", ",0").refused("it.csv"),
        row("endless seconds", ",104.5", ",inf").refused("it.csv"),
        case("table: unknown rows", &format!("validate {} --cluster a100-80g-jean-zay --rows", Fixture::Table.name()))
            .and("(((((")
            .refused("--rows"),
        case(
            "table: rows in 100,000 parentheses",
            &format!("validate {} --cluster a100-80g-jean-zay --rows", Fixture::Table.name()),
        )
        .and("(".repeat(100_000))
        .refused("--rows"),
        case(
            "table: every 0 from 0",
            &format!("validate {} --cluster a100-80g-jean-zay --rows", Fixture::Table.name()),
        )
        .and("every 0 from 0")
        .refused("--rows"),
        case(
            "fit: an unknown constant",
            &format!("cluster fit --table {} --base a100-80g-dgx --constants a.b --out {{}}/o", Fixture::Table.name()),
        )
        .refused("--constants a.b"),
    ]);
}

fn trace(name: &str, content: impl Into<Content>) -> Case {
    case(format!("trace: {name}"), &format!("simulate {SMALL} --cluster a100-80g-dgx --against {{}}/it.json"))
        .with("it.json", content)
}

#[test]
fn traces_of_no_step_are_refused() {
    let event = |more: &str| format!("{{\"traceEvents\": [{{\"ph\": \"X\", \"name\": \"a\", \"pid\": 0{more}}}]}}");
    hold(vec![
        trace("sound", Content::Copy(Fixture::Trace)).done("predicted / measured"),
        trace("empty", "").refused("it.json"),
        trace("an empty list", "{\"traceEvents\": []}").refused("it.json"),
        trace("arrays in arrays", "[".repeat(1_000_000)).refused("it.json"),
        trace("arguments in arguments", format!("{{\"traceEvents\": [{{\"args\": {}", "{\"a\":".repeat(100_000)))
            .refused("it.json"),
        trace("half", Content::Changed(Fixture::Trace, "", Box::new(|bytes| bytes[..bytes.len() / 2].to_vec())))
            .refused("it.json"),
        trace("a negative process", event("").replace("\"pid\": 0", "\"pid\": -1")).refused("it.json"),
        trace("a time of 1e400", event(", \"ts\": 1e400")).refused("it.json"),
        trace("a duration of text", event(", \"dur\": \"a\"")).refused("it.json"),
        trace(
            "300,000 events",
            format!(
                "{{\"traceEvents\": [{}{{\"ph\": \"X\", \"name\": \"a\", \"pid\": 0}}]}}",
                "{\"ph\": \"X\", \"name\": \"a\", \"pid\": 0},".repeat(300_000)
            ),
        )
        .refused("it.json"),
    ]);
}

fn hosts(name: &str, content: impl Into<Content>) -> Case {
    case(format!("hosts: {name}"), "launch --hosts {}/it --dry-run -- train").with("it", content)
}

#[test]
fn lists_that_name_no_hosts_are_refused() {
    hold(vec![
        hosts("sound", "localhost slots=2\n").done("localhost"),
        hosts("empty", "").refused("it"),
        hosts("comments alone", "# a\n").refused("it"),
        hosts("no UTF-8", b"\xff\n".to_vec()).refused("it"),
        hosts("zero bytes", vec![0; 10]).refused("it"),
        hosts("no slots", "a slots=\n").refused("it"),
        hosts("slots of text", "a slots=b\n").refused("it"),
        hosts("zero slots", "a slots=0\n").refused("it"),
        hosts("2^64 slots", "a slots=18446744073709551616\n").refused("it"),
        hosts("2^63 slots", "a slots=9223372036854775808\n").refused("it"),
        hosts("a billion slots", "a slots=1000000000\n").refused("it"),
        hosts("an option in place of a name", "-oProxyCommand=id\n").refused("it"),
        hosts("a name with a semicolon", "a;id\n").refused("it"),
        hosts("a name with a substitution", "$(id)\n").refused("it"),
        hosts("a name of 100,000 letters", "a".repeat(100_000)).refused("it"),
        hosts("100,000 hosts", (0..100_000).map(|n| format!("h{n}\n")).collect::<String>()).refused("got 100000"),
        hosts("a host twice", "a\na\n").refused("it"),
    ]);
}

fn schedule(name: &str, content: impl Into<Content>) -> Case {
    let run =
        SMALL.replace("parallelism.pp=1", "parallelism.pp=2").replace("train.global_batch=2", "train.global_batch=4");
    case(format!("schedule: {name}"), &format!("check {run} --set parallelism.schedule_file={{}}/it"))
        .with("it", content)
}

#[test]
fn schedules_of_no_run_are_refused() {
    let sound = String::from_utf8(Fixture::Schedule.read()).expect("text");
    hold(vec![
        schedule("sound", sound.clone()).done("model "),
        schedule("empty", "").refused("{}/it"),
        schedule("no UTF-8", b"\xff".to_vec()).refused("{}/it"),
        schedule("zero bytes", vec![0; 100]).refused("{}/it"),
        schedule("words", "a b c\n").refused("{}/it"),
        schedule("twice", sound.repeat(2)).refused("{}/it"),
        schedule("half", sound[..sound.len() / 2].to_string()).refused("{}/it"),
        schedule("a deadlock", "0F0 0B0 0F1 0B1 0F2 0B2 0F3 0B3\n1B0 1F0 1B1 1F1 1B2 1F2 1B3 1F3\n").refused("{}/it"),
        schedule("a cell twice", sound.replacen("0F0", "0F0 0F0", 1)).refused("{}/it"),
        schedule("a stage of 2^32", sound.replacen("0F0", "4294967296F0", 1)).refused("{}/it"),
        schedule("a stage of 2^32 - 1", sound.replacen("0F0", "4294967295F0", 1)).refused("{}/it"),
        schedule("a microbatch of 2^32", sound.replacen("0F0", "0F4294967296", 1)).refused("{}/it"),
        schedule("a microbatch of 2^32 - 1", sound.replacen("0F0", "0F4294967295", 1)).refused("{}/it"),
        schedule("a million cells", "0F0 ".repeat(1_000_000)).refused("{}/it"),
        schedule("a million ranks", "0F0\n".repeat(1_000_000)).refused("{}/it"),
        schedule(
            "a million microbatches",
            format!("{}\n", (0..1_000_000).map(|n| format!("0F{n} ")).collect::<String>()),
        )
        .refused("{}/it"),
        schedule("a million stages", format!("{}\n", (0..1_000_000).map(|n| format!("{n}F0 ")).collect::<String>()))
            .refused("{}/it"),
    ]);
}
