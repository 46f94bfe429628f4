//! Folders of runs that `report` and `blame` read: files of other people, and outputs that would damage them.

use crate::hostile::case::{Case, Content, case};
use crate::hostile::fixtures::Fixture;
use crate::hostile::verdict::hold;

/// A command on a copy of a run.
fn on_run(name: &str, arguments: &str) -> Case {
    case(name, arguments).with("run", Content::Copy(Fixture::Run))
}

/// The name of the newest checkpoint of the run.
fn checkpoint() -> String {
    let path = Fixture::Checkpoint.path();
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
    format!("run/checkpoints/{}", name.unwrap_or_default())
}

#[test]
fn reports_damage_no_run() {
    let refused = "is a place of the run's own files in {}/run; name another place";
    let mut cases = vec![
        on_run("report: a device", "report {}/run --out /dev/null").done("written /dev/null"),
        on_run("report: a full disk", "report {}/run --csv /dev/full").fails("No space left"),
        on_run("report: the standard output", "report {}/run --out -").done("<!doctype html>"),
        on_run("report: its own place", "report {}/run").writes("run/report.html").done("written"),
        on_run("report: events in a file", "report {}/run --tensorboard {}/run/run.toml").refused(refused),
        on_run("report: events that are a pipe", "report {}/run --tensorboard {}/events")
            .with("events", Content::Folder)
            .with("events/run", Content::Folder)
            .with("events/run/events.out.tfevents.0000000000.pleach", Content::Pipe)
            .refused("is a pipe"),
        on_run("report: events that are a link", "report {}/run --tensorboard {}/events")
            .with("events", Content::Folder)
            .with("events/run", Content::Folder)
            .with("victim", "old")
            .with("events/run/events.out.tfevents.0000000000.pleach", Content::Link("../../victim".into()))
            .writes("events/run/events.out.tfevents.0000000000.pleach")
            .done("written"),
        on_run("report: a link to the weights", "report {}/run --out {}/it.html")
            .with("it.html", Content::Link("run/weights.safetensors".into()))
            .refused(refused),
    ];
    for name in ["run.toml", "metrics.jsonl", "weights.safetensors", "train.log", "timeline.json"] {
        for option in ["--out", "--csv"] {
            let arguments = format!("report {{}}/run {option} {{}}/run/{name}");
            cases.push(on_run(&format!("report {option}: {name}"), &arguments).refused(refused));
        }
    }
    for name in ["manifest.json", "rank-00000.safetensors"] {
        let arguments = format!("report {{}}/run --out {{}}/{}/{name}", checkpoint());
        cases.push(on_run(&format!("report over {name}"), &arguments).refused(refused));
    }
    hold(cases);
}

#[test]
fn records_of_runs_are_bounded() {
    let steps = |lines: u32| (0..lines).map(|step| format!("{{\"step\":{step},\"n{step}\":1}}\n")).collect::<String>();
    let mut cases = vec![
        on_run("report: 20,000 names of numbers", "report {}/run --csv {}/it.csv")
            .with("run/metrics.jsonl", steps(20_000))
            .writes("it.csv")
            .done("written"),
        on_run("report: words in place of records", "report {}/run --out -")
            .with("run/metrics.jsonl", "\nno record\nof a step\n")
            .refused("{}/run/metrics.jsonl:2 is not a record of a step, and neither is another line; restore the file"),
        on_run("report: bytes in place of records", "report {}/run --csv -")
            .with("run/metrics.jsonl", b"\0\xff\xfe".repeat(1000))
            .refused("{}/run/metrics.jsonl:1 is not a record of a step"),
        on_run("report: words between records", "report {}/run --csv {}/it.csv")
            .with("run/metrics.jsonl", "{\"step\":1,\"loss\":2}\nwords\n{\"step\":2,\"loss\":1}\n{\"step\":3,")
            .writes("it.csv")
            .done("{}/run/metrics.jsonl:2 is not a record of a step; 1 line without one left out\n"),
        on_run("report: two million lines", "report {}/run --out -")
            .with("run/metrics.jsonl", "\n".repeat((1 << 21) + 1))
            .refused("metrics.jsonl has 2097153 lines, and 2097152 are the limit of a report"),
        on_run("blame: a report without an end", "blame {}/run")
            .with("run/failures", Content::Folder)
            .with("run/failures/0001.json", Content::Link("/dev/zero".into()))
            .refused("a file of records must be a regular file"),
        on_run("blame: a report that is a pipe", "blame {}/run --list")
            .with("run/failures", Content::Folder)
            .with("run/failures/0001.json", Content::Pipe)
            .refused("it is a pipe"),
        on_run("blame: brackets", "blame {}/run")
            .with("run/failures", Content::Folder)
            .with("run/failures/0001.json", "[".repeat(200_000))
            .refused("failures/0001.json"),
        on_run("blame: a device", "blame /dev/zero").refused("/dev/zero is not a folder"),
    ];
    for (name, content) in [("metrics.jsonl", "a pipe"), ("timeline.json", "a pipe"), ("metrics.jsonl", "a device")] {
        let file = match content {
            "a pipe" => Content::Pipe,
            _ => Content::Link("/dev/zero".into()),
        };
        let case =
            on_run(&format!("report: {name} is {content}"), "report {}/run --out -").with(&format!("run/{name}"), file);
        cases.push(case.refused("a file of records must be a regular file"));
    }
    hold(cases);
}
