//! Splitting layers into stages.

use crate::{StageSplit, split_stages};
use config::{PerClass, Stage, Unit, UnitClass, UnitClasses};
use proptest::prelude::*;

use crate::tests::setup::per_class;

/// Least largest load over all splits, by trying all of them.
fn best_by_trying(num_layers: usize, num_stages: usize, work: &PerClass<u64>) -> u64 {
    /// With at least `least` layers in the first stage.
    fn splits(layers: usize, stages: usize, least: usize) -> Vec<Vec<usize>> {
        if stages == 1 {
            return vec![vec![layers]];
        }
        let with_first =
            |first| splits(layers - first, stages - 1, 1).into_iter().map(move |rest| [vec![first], rest].concat());
        (least..=layers + 2 - stages).flat_map(with_first).collect()
    }
    let all = splits(num_layers, num_stages, 0).into_iter();
    let loads = all.map(|given| StageSplit::given(&given, num_layers, num_stages).unwrap().largest_work(work));
    loads.min().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_split_has_a_lighter_heaviest_stage(
        num_stages in 1usize..6, more in 0usize..8, embedding in 0u64..40, layer in 0u64..12, head in 0u64..60,
    ) {
        let (num_layers, work) = (num_stages.saturating_sub(2) + more, per_class(0, embedding, layer, head));
        let split = split_stages(num_layers, num_stages, &work).unwrap();
        prop_assert_eq!(split.num_layers(), num_layers);
        prop_assert!((0..num_stages as u32).all(|stage| split.units(Stage(stage)).next().is_some()));
        prop_assert_eq!(split.largest_work(&work), best_by_trying(num_layers, num_stages, &work));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_split_of_different_layers_has_a_lighter_heaviest_stage(
        num_stages in 1usize..6, layers in prop::collection::vec(0u64..12, 4..10), embedding in 0u64..40, head in 0u64..60,
    ) {
        let classes = UnitClasses::of_shapes(&layers);
        let work = PerClass::new(&classes, |class| match (class, classes.first(class)) {
            (UnitClass::Embedding, _) => embedding,
            (UnitClass::Head, _) => head,
            (UnitClass::Layer(_), Unit::Layer(first)) => layers[first as usize],
            (UnitClass::Table | UnitClass::Layer(_) | UnitClass::Adapters(_) | UnitClass::Experts(_), _) => 0,
        });
        let split = split_stages(layers.len(), num_stages, &work).unwrap();
        prop_assert_eq!(split.num_layers(), layers.len());
        prop_assert!((0..num_stages as u32).all(|stage| split.units(Stage(stage)).next().is_some()));
        prop_assert_eq!(split.largest_work(&work), best_by_trying(layers.len(), num_stages, &work));
    }
}

#[test]
fn stages_of_wide_layers_have_fewer() {
    let classes = UnitClasses::of_shapes([4, 4, 1, 1, 1, 1, 1, 1, 1, 1]);
    let work = PerClass::new(&classes, |class| match class {
        UnitClass::Table | UnitClass::Embedding | UnitClass::Head | UnitClass::Adapters(_) | UnitClass::Experts(_) => 0,
        UnitClass::Layer(class) => [4, 1][class as usize],
    });
    assert_eq!(split_stages(10, 4, &work).unwrap().layers_per_stage(), [1, 1, 4, 4]);
}

#[test]
fn ends_that_cost_a_layer_each_take_a_layer_less() {
    let work = per_class(0, 1, 1, 1);
    assert_eq!(split_stages(22, 8, &work).unwrap().layers_per_stage(), [2, 3, 3, 3, 3, 3, 3, 2]);
}

#[test]
fn an_end_that_costs_more_than_a_layer_may_have_none() {
    let work = per_class(0, 1, 2, 5);
    assert_eq!(split_stages(4, 3, &work).unwrap().layers_per_stage(), [2, 2, 0]);
}

#[test]
fn units_of_stages_are_all_units_in_order() {
    let split = StageSplit::given(&[1, 3, 2], 6, 3).unwrap();
    let units: Vec<Unit> = (0..3).flat_map(|stage| split.units(Stage(stage))).collect();
    assert_eq!(units, Unit::computing(6).collect::<Vec<_>>());
    for stage in (0..3).map(Stage) {
        assert!(split.units(stage).all(|unit| split.stage_of(unit) == stage));
    }
}

#[test]
fn errors_carry_numbers_and_the_remedy() {
    let message = |given: &[usize], num_layers, num_stages| {
        StageSplit::given(given, num_layers, num_stages).unwrap_err().to_string()
    };
    assert_eq!(
        split_stages(6, 9, &per_class(0, 1, 1, 1)).unwrap_err().to_string(),
        "9 stages need at least 7 layers between the embedding and the head, the model has 6; use 1 to 8 stages"
    );
    assert_eq!(message(&[2, 2], 4, 3), "layers are given for 2 stages, the pipeline has 3; give one number per stage");
    assert_eq!(
        message(&[4, 0, 0], 4, 3),
        "stage 1 of [4, 0, 0] has nothing; every stage but the first and the last needs at least one layer"
    );
    assert!(StageSplit::given(&[0, 4, 0], 4, 3).is_ok());
    assert_eq!(
        message(&[2, 3], 4, 2),
        "the stages [2, 3] have 5 layers together, the model has 4; take 1 from one stage"
    );
    assert_eq!(message(&[2, 1], 4, 2), "the stages [2, 1] have 3 layers together, the model has 4; add 1 to one stage");
}
