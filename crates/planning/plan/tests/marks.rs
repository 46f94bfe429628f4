//! Every scored table is marked by the rows that constants in use were fitted to; profiles note which these are.
#![allow(clippy::unwrap_used, reason = "a test that fails is one that panics")]

use std::path::Path;

use cluster::{Cluster, Constant, RangeEnd, named, names};
use plan::accuracy::{CHECKS, Check, Runs};
use plan::{Basis, OPERATIONS};

/// `file: marks`, each mark once.
fn marks(check: &Check, runs: &Runs) -> String {
    let of_rows = check.marks(runs).unwrap();
    let marks = Basis::ALL.into_iter().filter(|basis| of_rows.contains(basis));
    format!("{} {}: {}", runs.file, runs.profile, marks.map(|basis| basis.to_string()).collect::<Vec<_>>().join(", "))
}

#[test]
fn every_scored_table_has_its_mark() {
    let marked = CHECKS.iter().flat_map(|check| check.scored_on.iter().map(|runs| marks(check, runs)));
    let expected = "\
vtrain_single_node.csv a100-vtrain: same table
vtrain_multi_node.csv a100-vtrain: same table
sc21_table1.csv a100-80g-dgx: fitted
korthikanti_table5.csv a100-80g-dgx: same cluster
mtnlg.csv a100-80g-dgx: same cluster
bloom.csv a100-80g-jean-zay: same cluster
glm.csv a100-40g-dgx: other cluster
sc21_table2.csv a100-80g-dgx: same cluster
bloom_trials_bf16.csv a100-80g-jean-zay: same cluster
bloom_reshaping.csv a100-80g-jean-zay: same cluster
megatron_2020_a100.csv a100-40g-dgx: other cluster
megatron_2020_v100.csv v100-32g-dgx1: unfitted
torchtitan_a100.csv a100-80g-dgx: same cluster
torchtitan_h100.csv h100-96g-500w: other cluster
torchtitan_h100.csv h100-96g-500w: other cluster
simumax_b200.csv b200-180g-dgx: same cluster
megatron_ci_memory.csv a100-80g-dgx: same cluster
megatron_ci_memory.csv h100-80g-dgx: other cluster
megatron_ci_memory.csv gb200-nvl72: other cluster";
    assert_eq!(marked.collect::<Vec<_>>().join("\n"), expected);
}

#[test]
fn fitted_rows_are_distinguished_from_others_of_the_table() {
    let check = &CHECKS[0];
    let calibrated_on = check.calibrated_on.unwrap();
    assert_eq!(marks(check, &calibrated_on), "vtrain_single_node.csv a100-vtrain: fitted");
    let all = calibrated_on.with_rows("layers > 0");
    let of_rows = check.marks(&all).unwrap();
    let fitted = of_rows.iter().enumerate().filter(|(_, basis)| **basis == Basis::Fitted);
    assert!(fitted.map(|(row, _)| row).eq((0..of_rows.len()).step_by(10)), "every tenth row");
}

#[test]
fn operations_that_a_profile_is_taken_from_are_in_sample() {
    let marks = OPERATIONS.iter().map(|operations| (operations.file, operations.basis().unwrap()));
    assert!(marks.clone().all(|(_, basis)| basis == Basis::Fitted), "{:?}", marks.collect::<Vec<_>>());
}

#[test]
fn derived_seconds_are_reported() {
    let scored: Vec<&Runs> = CHECKS.iter().flat_map(|check| check.scored_on).collect();
    let of = |file: &str| scored.iter().find(|runs| runs.file == file).unwrap().derived_from();
    assert_eq!(of("sc21_table1.csv"), Some("the printed TFLOP/s with equation 3 of the paper"));
    assert_eq!(of("sc21_table2.csv"), Some("the printed TFLOP/s"));
    assert_eq!(of("torchtitan_h100.csv"), Some("tokens per second"));
    assert_eq!(of("bloom.csv"), None);
}

/// `[fitted]` of a profile names tables that exist, and fitting to them gives its constants to three digits.
#[test]
fn constants_that_a_profile_calls_fitted_are() {
    let tables = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tables"));
    let profiles: Vec<(&str, Cluster)> =
        names().map(|name| (name, Cluster::from_toml(named(name).unwrap()).unwrap())).collect();
    for (name, cluster) in &profiles {
        for table in cluster.fitted.keys() {
            assert!(tables.join(table).exists(), "{name}: {table}");
        }
    }
    // The other fits take minutes.
    for check in [&CHECKS[2], &CHECKS[3]] {
        let outcome = check.run().unwrap();
        let table = check.calibrated_on.unwrap().file;
        for (name, mut cluster) in
            profiles.clone().into_iter().filter(|(_, cluster)| cluster.fitted.contains_key(table))
        {
            assert_eq!(cluster.fitted[table].len(), outcome.constants.len(), "{name}");
            for (constant, fitted) in &outcome.constants {
                assert!(cluster.fitted[table].contains(constant), "{name}: {constant}");
                let of_profile = *constant.of(&mut cluster);
                assert!((of_profile / fitted - 1.0).abs() < 1e-3, "{name}: {constant} = {of_profile}, fitted {fitted}");
            }
        }
    }
}

#[test]
fn constants_at_an_end_of_their_range_are_found() {
    assert_eq!(Constant::MatrixEfficiency.end(0.9), Some(RangeEnd::Upper));
    assert_eq!(Constant::MatrixEfficiency.end(0.823), None);
    assert_eq!(Constant::LinkStart.end(100.0), Some(RangeEnd::Upper));
    assert_eq!(Constant::LinkStart.end(98.97), None);
    assert_eq!(Constant::NetworkEfficiency.end(0.2), Some(RangeEnd::Lower));
}
