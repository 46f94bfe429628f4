//! The changes of a run file with which a run resumes.

use std::collections::BTreeMap;

use config::{HIDDEN, KeptRun, KeptRunFile, is_secret_key};

use crate::failure::Failure;
use crate::places::author::{self, Judged};
use crate::places::disk::Disk;

/// Changed keys of a run file, each with its values before and after.
pub type Changed = BTreeMap<String, [serde_json::Value; 2]>;

/// The key of `section.key=value`.
pub fn key_of(set: &str) -> &str {
    set.split_once('=').map_or(set, |(key, _)| key.trim())
}

/// Keys that depend on the value of another key: where that is changed, they are left to their defaults.
const DEPENDENT: &[(&str, &[&str])] = &[
    (
        "parallelism.zero",
        &["parallelism.reduce", "parallelism.prefetch", "parallelism.reshard", "parallelism.shard_group"],
    ),
    ("parallelism.dp", &["parallelism.shard_group"]),
    ("parallelism.pp", &["parallelism.stage_layers"]),
    ("parallelism.schedule", DEPENDENT_ON_SCHEDULE),
    ("parallelism.schedule_file", DEPENDENT_ON_SCHEDULE),
    ("parallelism.recompute", &["parallelism.recompute_every", "parallelism.recompute_inputs"]),
    ("parallelism.sequence_parallel", &["parallelism.recompute_inputs"]),
    (
        "train.precision",
        &[
            "train.products",
            "train.initial_loss_scale",
            "train.loss_scale_window",
            "train.loss_scale_hysteresis",
            "train.min_loss_scale",
        ],
    ),
    ("data.path", &["data.sources"]),
    ("data.sources", &["data.path"]),
];

/// Keys that have no effect where another one is removed.
const OF_REMOVED: &[(&str, &str)] = &[("run.store", "run.store_seconds")];

const DEPENDENT_ON_SCHEDULE: &[&str] = &[
    "parallelism.schedule",
    "parallelism.schedule_file",
    "parallelism.stages_per_rank",
    "parallelism.schedule_memory_percent",
    "parallelism.stage_layers",
];

/// The run that the run file `kept`, called `name` in messages, is with the user's `overrides`, and its author.
///
/// # Errors
/// All that is wrong with the run.
pub fn with_changes(kept: &KeptRunFile, name: &str, overrides: &[String]) -> Result<(KeptRun, Judged), Failure> {
    let judged = author::judge(kept);
    let base = kept.edited(|run| base(run, overrides));
    let base = base.map_err(|reason| Failure::Input(format!("{name}: {reason}")))?;
    let run = base.load(name, judged.author, overrides, &Disk).map_err(Failure::Run)?;
    Ok((run, judged))
}

/// The run file `run` without what `overrides` replace or make meaningless. Ranks follow from the degrees, which are
/// all there.
pub fn base(run: &str, overrides: &[String]) -> Result<String, String> {
    let mut table: toml::Table = run.parse().map_err(|error: toml::de::Error| error.message().to_string())?;
    let changed: Vec<&str> = overrides.iter().map(|set| key_of(set)).collect();
    let dependent = DEPENDENT.iter().filter(|(key, _)| changed.contains(key)).flat_map(|(_, dependent)| *dependent);
    let removed: Vec<&str> =
        overrides.iter().filter(|set| set.trim_end().ends_with('=')).map(|set| key_of(set)).collect();
    let orphaned = OF_REMOVED.iter().filter(|(key, _)| removed.contains(key)).map(|(_, orphan)| orphan);
    for key in dependent.chain(orphaned).chain(&["run.ranks"]) {
        let (section, name) = key.split_once('.').unwrap_or(("", key));
        if let Some(section) = table.get_mut(section).and_then(toml::Value::as_table_mut) {
            section.remove(name);
        }
    }
    Ok(table.to_string())
}

/// Keys whose values differ, each with both; a secret is not shown. The folder is where it is.
pub fn changes(before: &str, after: &str) -> Changed {
    let [before, after] = [before, after].map(values);
    let keys = before.keys().chain(after.keys()).filter(|key| *key != "run.folder");
    let both = |key: &String| [&before, &after].map(|values| values.get(key).cloned().unwrap_or_default());
    let changed = keys.map(|key| (key.clone(), both(key))).filter(|(_, [before, after])| before != after);
    let shown = |value: serde_json::Value| if value.is_null() { value } else { HIDDEN.into() };
    changed.map(|(key, both)| if is_secret_key(&key) { (key, both.map(shown)) } else { (key, both) }).collect()
}

/// The values of a resolved run file by `section.key`.
fn values(run: &str) -> BTreeMap<String, serde_json::Value> {
    let table: toml::Table = run.parse().unwrap_or_default();
    let sections = table.iter().filter_map(|(section, keys)| Some((section, keys.as_table()?)));
    let of_section = |(section, keys): (&String, &toml::Table)| {
        let section = section.clone();
        keys.clone()
            .into_iter()
            .map(move |(key, value)| (format!("{section}.{key}"), serde_json::to_value(value).unwrap_or_default()))
    };
    sections.flat_map(of_section).collect()
}

#[cfg(test)]
mod tests {
    use config::RunConfig;

    use super::*;

    fn resumed(run: &str, overrides: &[&str]) -> RunConfig {
        let overrides: Vec<String> = overrides.iter().map(ToString::to_string).collect();
        let base = base(run, &overrides).expect("a run file");
        RunConfig::load("", &base, &overrides).unwrap_or_else(|problems| panic!("{problems:?}"))
    }

    #[test]
    fn a_run_leaves_its_store_by_one_key() {
        let run = resumed("", &["run.store=s3://bucket/a", "run.store_seconds=60"]).to_toml();
        assert_eq!(resumed(&run, &[]).run.store_seconds, 60.0);
        assert_eq!(resumed(&run, &["run.store=s3://bucket/b"]).run.store_seconds, 60.0);
        assert_eq!(resumed(&run, &["run.store="]).run.store, None);
    }

    #[test]
    fn nothing_changes_by_itself() {
        let run = RunConfig::quick_start().to_toml();
        assert_eq!(resumed(&run, &[]).to_toml(), run);
        assert_eq!(changes(&run, &run), BTreeMap::new());
    }

    #[test]
    fn another_layout_needs_its_own_keys_only() {
        let of = |overrides: &[&str]| {
            let overrides: Vec<String> = overrides.iter().map(ToString::to_string).collect();
            RunConfig::load("", "", &overrides).expect("legal").to_toml()
        };
        let sharded = of(&["parallelism.zero=3", "parallelism.shard_group=2", "parallelism.schedule=interleaved"]);
        let off = resumed(&sharded, &["parallelism.zero=0", "parallelism.schedule=zb-v"]);
        assert_eq!((off.parallelism.zero, off.parallelism.shard_group), (config::ZeroStage::Off, None));
        let one = resumed(&sharded, &["parallelism.dp=1", "parallelism.tp=1", "parallelism.pp=1"]);
        assert_eq!((one.run.ranks, one.parallelism.zero), (1, resumed(&sharded, &[]).parallelism.zero));
        let single = resumed(&of(&["train.precision=fp16"]), &["train.precision=fp32"]);
        assert_eq!(single.train.precision, config::Precision::Fp32(config::Products::Chained));
    }

    #[test]
    fn what_changes_is_recorded_with_both_values() {
        let run = RunConfig::quick_start().to_toml();
        let after =
            resumed(&run, &["train.learning_rate=0.5", "train.batch_ramp={ start = 4, increment = 4, sequences = 9 }"]);
        let changed = changes(&run, &after.to_toml());
        let record = serde_json::to_string(&changed).expect("JSON");
        assert_eq!(
            record,
            "{\"train.batch_ramp\":[null,{\"increment\":4,\"sequences\":9,\"start\":4}],\"train.learning_rate\":[0.001,0.5]}"
        );
    }
}
