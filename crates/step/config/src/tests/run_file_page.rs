//! Holds `docs/run-file.md` against the code: its keys, their defaults, and the names of Megatron-LM.

use std::collections::BTreeMap;

use config::{RunConfig, known_keys, known_names};

const PAGE: &str = include_str!("../../../../../docs/run-file.md");

/// One row of a table.
struct Row {
    key: String,
    kind: String,
    default: String,
    range: String,
    meaning: String,
    megatron: String,
}

fn rows() -> Vec<Row> {
    let mut section = "";
    let mut rows = vec![];
    for line in PAGE.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            section = title.trim_matches(['[', ']']);
        } else if line.starts_with("| `") {
            let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
            let [key, kind, default, range, meaning, megatron] = cells[..] else { panic!("not six cells: {line}") };
            assert!(!kind.is_empty(), "{line}");
            let kind = kind.replace('`', "");
            rows.push(Row {
                key: format!("{section}.{}", key.trim_matches('`')),
                kind,
                default: default.into(),
                range: range.into(),
                meaning: meaning.into(),
                megatron: megatron.trim_matches('`').into(),
            });
        }
    }
    rows
}

/// Every value of a run as its resolved file writes it.
fn values(overrides: &[&str]) -> BTreeMap<String, String> {
    let overrides: Vec<String> = overrides.iter().map(ToString::to_string).collect();
    let resolved = RunConfig::load("", "", &overrides).expect("legal").to_toml();
    let mut section = "";
    let mut values = BTreeMap::new();
    for line in resolved.lines() {
        if let Some((key, value)) = line.split_once(" = ") {
            values.insert(format!("{section}.{key}"), value.to_string());
        } else {
            section = line.trim_matches(['[', ']']);
        }
    }
    values
}

#[test]
fn the_page_has_every_key_and_no_other() {
    let mut documented: Vec<String> = rows().into_iter().map(|row| row.key).collect();
    documented.sort();
    let mut known = known_keys();
    known.sort();
    assert_eq!(documented, known);
    for row in rows() {
        assert!(!row.meaning.is_empty(), "{} has no meaning", row.key);
    }
}

#[test]
fn names_of_values_are_those_of_the_code() {
    let is_bare = |name: &str| name.parse::<usize>().is_ok() || ["true", "false"].contains(&name);
    let names = known_names();
    for row in rows() {
        let Some(names) = names.get(&row.key) else { continue };
        let shown = names.iter().map(|name| if is_bare(name) { name.to_string() } else { format!("{name:?}") });
        assert_eq!(row.kind, shown.collect::<Vec<_>>().join(", "), "{}", row.key);
    }
}

#[test]
fn defaults_are_those_of_the_code() {
    // Keys of rotary positions, DeepNorm, sharding, full recomputation and loss scaling are written only where they
    // have a meaning.
    let mut defaults = values(&[
        "model.position=rotary",
        "model.rotary_scaling=llama3",
        "model.blocks=deepnorm",
        "parallelism.zero=3",
        "parallelism.recompute=full",
        "train.precision=fp16",
    ]);
    // The values that those choices replaced are defaults, too.
    defaults.extend(values(&["model.position=rotary"]));
    let of_experts = values(&["model.experts=8", "model.biases=false"]);
    defaults.extend(of_experts.into_iter().filter(|(key, _)| key != "model.experts"));
    defaults.extend(values(&["train.precision=bf16"]));
    defaults.extend(values(&["train.optimizer=muon"]));
    defaults.extend(values(&["train.schedule=wsd"]));
    defaults.extend(values(&["train.schedule=cosine-restarts"]));
    defaults.extend(values(&[]));
    for row in rows() {
        match defaults.get(&row.key) {
            Some(value) => {
                assert!(row.default.starts_with(&format!("`{value}`")), "{}: {} for {value}", row.key, row.default);
            }
            None => assert!(row.default.starts_with("none"), "{} has no default: {}", row.key, row.default),
        }
    }
}

#[test]
fn names_of_megatron_are_recognised() {
    for row in rows().iter().filter(|row| !row.megatron.is_empty()) {
        let name = &row.megatron;
        let own_name = row.key.split_once('.').map(|(_, name)| name);
        let said = RunConfig::load("", "", &[format!("{name}=1")]).expect_err("no section")[0].to_string();
        let answer = match own_name == Some(name) {
            true => format!("`{name}` has no section; write {}", row.key),
            false => format!("`{name}` is `{}` here", row.key),
        };
        assert!(said.contains(&answer), "{said} lacks: {answer}");
    }
}

#[test]
fn ranges_of_numbers_hold_at_their_ends() {
    let mut tried = 0;
    for row in rows() {
        let refused = |value: &str| {
            let set = format!("{}={value}", row.key);
            let problems = RunConfig::load("", "", &[set]).err().unwrap_or_default();
            problems.iter().any(|problem| problem.key == row.key)
        };
        let expected: &[(&str, bool)] = if row.range.starts_with("from 1") {
            &[("0", true), ("1", false)]
        } else if row.range.starts_with("from 0, below 1") {
            &[("-0.1", true), ("0", false), ("1", true)]
        } else if row.range.starts_with("from 0") {
            &[("-1", true), ("0", false)]
        } else if row.range.starts_with("above 0") {
            &[("0", true), ("0.001", false)]
        } else {
            &[]
        };
        tried += expected.len();
        for (value, is_refused) in expected {
            // After a semicolon is what else must hold; then the end of the range alone is not enough.
            let is_decided = *is_refused || !row.range.contains(';');
            assert!(!is_decided || refused(value) == *is_refused, "{} = {value}", row.key);
        }
    }
    assert!(tried > 40, "{tried}");
}

#[test]
fn the_example_is_legal() {
    let example = PAGE.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).expect("an example");
    let config = RunConfig::load("", example, &[]).expect("legal");
    assert_eq!((config.run.ranks, config.model.hidden), (12, 256));
}
