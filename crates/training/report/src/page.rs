//! The page: data of runs inside of a document, with its style and its scripts.

use serde_json::{Value, json};

use crate::columns::columns;
use crate::numbers::short;
use crate::run::Run;

/// Steps that a page draws at most, of all runs together.
const MOST_STEPS: usize = 24_000;
/// Steps of one run that are drawn in any case.
const LEAST_STEPS: usize = 1_000;
/// Events of one run that are listed.
const MOST_EVENTS: usize = 500;

const DOCUMENT: &str = include_str!("page/document.html");
const STYLE: &str = include_str!("page/style.css");
/// In the order in which they need each other.
const SCRIPTS: [&str; 8] = [
    include_str!("page/format.js"),
    include_str!("page/elements.js"),
    include_str!("page/series.js"),
    include_str!("page/line_chart.js"),
    include_str!("page/bars.js"),
    include_str!("page/pipeline.js"),
    include_str!("page/sections.js"),
    include_str!("page/main.js"),
];

/// How a page comes to its reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// As a file, complete.
    File,
    /// By a server, which has newer [`data`] at `data.json` while runs continue.
    Served,
}

/// A document with everything inside: it loads nothing, except newer data where it is served.
pub fn page(runs: &[Run], delivery: Delivery) -> String {
    let names: Vec<&str> = runs.iter().map(|run| run.name.as_str()).collect();
    let served = match delivery {
        Delivery::File => "no",
        Delivery::Served => "yes",
    };
    // Replaced in one pass over the document, so that nothing inside of a run is taken for a place of the template.
    let mut out = String::new();
    let mut rest = DOCUMENT;
    while let Some((before, after)) = rest.split_once("{{") {
        let (place, after) = after.split_once("}}").unwrap_or((after, ""));
        out += before;
        out += &match place {
            "title" => escaped(&names.join(", ")),
            "style" => STYLE.to_string(),
            "served" => served.to_string(),
            "data" => data(runs),
            "scripts" => SCRIPTS.join("\n"),
            other => other.to_string(),
        };
        rest = after;
    }
    out + rest
}

/// JSON of all that a page draws, safe inside of a `script` element.
pub fn data(runs: &[Run]) -> String {
    let most = (MOST_STEPS / runs.len().max(1)).max(LEAST_STEPS);
    let runs: Vec<String> = runs.iter().map(|run| of_run(run, most)).collect();
    let text = format!("{{\"runs\":[{}]}}", runs.join(","));
    text.replace('<', "\\u003c")
}

fn of_run(run: &Run, most: usize) -> String {
    let Run { name, facts, run_file, metrics, memory, timeline } = run;
    let held_out: Vec<String> =
        metrics.held_out.iter().map(|held_out| format!("[{},{}]", held_out.step, short(held_out.loss))).collect();
    let validation: Vec<String> = metrics
        .validation
        .iter()
        .map(|(name, measured)| {
            let losses: Vec<String> =
                measured.iter().map(|one| format!("[{},{}]", one.step, short(one.loss))).collect();
            format!("[{},[{}]]", json(&json!(name)), losses.join(","))
        })
        .collect();
    let timeline = timeline.as_ref().filter(|timeline| timeline.can_be_drawn());
    let listed = metrics.events.len().min(MOST_EVENTS);
    let fields: [(&str, String); 11] = [
        ("name", json(&json!(name))),
        ("facts", json(&json!(facts))),
        ("run_file", json(&json!(run_file))),
        ("columns", columns(metrics, most)),
        ("rows", metrics.steps.len().to_string()),
        ("held_out", format!("[{}]", held_out.join(","))),
        ("validation", format!("[{}]", validation.join(","))),
        ("events", json(&json!(&metrics.events[..listed]))),
        ("more_events", (metrics.events.len() - listed).to_string()),
        ("memory", json(&json!(memory))),
        ("timeline", json(&json!(timeline))),
    ];
    let fields: Vec<String> = fields.iter().map(|(key, value)| format!("\"{key}\":{value}")).collect();
    format!("{{{}}}", fields.join(","))
}

fn json(value: &Value) -> String {
    value.to_string()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;
    use crate::run::{StageTime, Timeline, TimelineSource};

    fn run(name: &str) -> Run {
        let metrics = Metrics::parse("{\"step\":1,\"loss\":2.5,\"tokens\":64,\"seconds\":0.5}\n");
        Run { name: name.into(), run_file: "[train]\nsteps = 1\n".into(), metrics, ..Run::default() }
    }

    #[test]
    fn a_page_loads_nothing() {
        let page = page(&[run("a")], Delivery::File);
        for foreign in ["http://", "https://", "<link", "src=", "@import", "url("] {
            // The namespace of SVG is a name, which nobody loads.
            let found = page.replace("http://www.w3.org/2000/svg", "").contains(foreign);
            assert!(!found, "{foreign}");
        }
        assert!(!page.contains("{{"));
    }

    #[test]
    fn a_run_cannot_end_the_script_that_holds_it() {
        let run = Run { run_file: "a = \"</script><b>{{title}}\"".into(), ..run("<i>") };
        let page = page(&[run], Delivery::Served);
        assert!(page.contains("a = \\\"\\u003c/script>\\u003cb>{{title}}\\\""), "{page}");
        assert!(page.contains("<title>&lt;i&gt;"));
        assert_eq!(page.matches("</script>").count(), 2);
    }

    #[test]
    fn events_that_are_left_out_are_counted() {
        let lines: String =
            (1..=502).map(|step| format!("{{\"event\":\"a\",\"step\":{step},\"text\":\"b\"}}\n")).collect();
        let run = Run { metrics: Metrics::parse(&lines), ..run("a") };
        let data: Value = serde_json::from_str(&data(&[run])).expect("JSON");
        assert_eq!(data["runs"][0]["events"].as_array().map(Vec::len), Some(500));
        assert_eq!(data["runs"][0]["more_events"], 2);
    }

    #[test]
    fn a_timeline_without_time_is_not_drawn() {
        let stage = StageTime { name: "pp 0".into(), ..StageTime::default() };
        for (stages, end_us, is_drawn) in
            [(vec![stage.clone()], 5.0, true), (vec![stage], 0.0, false), (vec![], 5.0, false)]
        {
            let timeline = Timeline { source: TimelineSource::Measured, step: 1, end_us, stages };
            let data: Value =
                serde_json::from_str(&data(&[Run { timeline: Some(timeline), ..run("a") }])).expect("JSON");
            assert_eq!(data["runs"][0]["timeline"].is_object(), is_drawn);
        }
    }

    #[test]
    fn data_is_json() {
        let data: Value = serde_json::from_str(&data(&[run("a"), run("b")])).expect("JSON");
        assert_eq!(data["runs"][1]["columns"]["loss"], json!([2.5]));
    }
}
