use std::collections::BTreeSet;

use config::{Problem, context_kind_name};
use prove::{EqualityClass, narrow, without_bounds};
use testkit::models::proof_training;

use super::*;
use crate::space::recompute_name;

/// Whether a point of the equality should be legal, by arithmetic of its own: what is split is divided, and the
/// microbatches make the batch.
fn divides(point: &Point) -> bool {
    let (model, train, Degrees { dp, cp: _, tp, pp }) = (point.layout().model, proof_training(), point.degrees);
    let heads = [model.num_heads, model.num_kv_heads, model.ffn_hidden].iter().all(|count| count % tp == 0);
    let shared_out = match point.sequence_parallel {
        SequenceParallel::Off => true,
        SequenceParallel::On => (point.microbatch_size * train.sequence_length).is_multiple_of(tp),
    };
    let batch = train.global_batch % (dp * point.microbatch_size) == 0;
    heads && shared_out && batch && pp <= model.num_layers + 2
}

fn names(points: &[Point]) -> BTreeSet<String> {
    points.iter().map(ToString::to_string).collect()
}

fn said(refusals: &[Problem]) -> Vec<String> {
    refusals.iter().map(ToString::to_string).collect()
}

#[test]
fn a_point_of_equality_is_refused_exactly_if_something_does_not_divide() {
    let points = equality();
    assert_eq!((points.len(), names(&points).len()), (16 * 110, 16 * 110));
    for point in points.iter().chain(&equality_sequence_parallel()) {
        let refusals = point.refusals();
        assert_eq!(refusals.is_empty(), divides(point), "{point}: {refusals:?}");
        let named = ["parallelism.tp", "train.global_batch", "parallelism.pp"];
        assert!(refusals.iter().all(|problem| named.contains(&problem.key.as_str())), "{point}: {refusals:?}");
    }
    for family in families() {
        let legal = points.iter().filter(|point| point.is_of(&family) && point.is_legal()).count();
        let expected = match (family.layout().model.num_kv_heads, family.microbatch_size) {
            (12, 1) => 78,
            (12, _) => 77,
            (_, 1) => 65,
            (_, _) => 64,
        };
        assert_eq!(legal, expected, "legal points of {}", family.family());
    }
}

#[test]
fn every_model_is_as_wide_as_the_bounds_need() {
    let small = [Shape::Gpt2, Shape::Llama, Shape::GptNeoX, Shape::CodeGeeX].map(Shape::model);
    for model in families().iter().map(|family| family.layout().model).chain(small) {
        assert_eq!((narrow(&model), without_bounds(&model)), (None, None));
    }
}

#[test]
fn exact_points_have_the_bits_of_one_replica() {
    let points = equality_exact();
    assert_eq!(points.iter().filter(|point| point.is_legal()).count(), 77 + 64);
    for point in points {
        let reference = point.reference();
        assert_eq!((reference.degrees.dp, reference.microbatch_size), (1, 1), "{point}");
        let expected = if point.degrees.tp == 1 { EqualityClass::AnyOrder } else { EqualityClass::OtherSums };
        assert_eq!(point.class(), expected, "{point}");
    }
}

#[test]
fn points_in_pairs_have_every_degree_form_schedule_and_recomputation() {
    let points: Vec<Point> = equality_in_pairs().into_iter().filter(Point::is_legal).collect();
    assert_eq!(points.len(), 64 + 78);
    let met = |of: &dyn Fn(&Point) -> String| points.iter().map(of).collect::<BTreeSet<_>>();
    let legal = equality().into_iter().filter(Point::is_legal);
    let degrees: BTreeSet<String> = legal.map(|point| point.degrees.to_string()).collect();
    assert_eq!(met(&|point| point.degrees.to_string()), degrees);
    assert_eq!(met(&|point| point.form.to_string()).len(), Form::ALL.len());
    assert_eq!(met(&|point| point.schedule.to_string()).len(), Schedule::GENERATED.len());
    assert_eq!(met(&|point| recompute_name(point.recompute)).len(), 5, "every second layer from whole inputs as well");
    for point in equality_in_pairs() {
        let products = [point.reference(), point.oracle()].map(|of| of.numbers.products);
        assert_eq!(products, [Products::Pairs; 2], "{point}");
    }
}

#[test]
fn every_degree_meets_every_form_and_every_schedule_that_suits_it() {
    let points = equality();
    for degrees in all_degrees(1..=1) {
        let points = || points.iter().filter(|point| point.degrees == degrees);
        assert_eq!(points().map(|point| point.form).collect::<BTreeSet<_>>().len(), 8, "{degrees}");
        let met: BTreeSet<Schedule> = points().map(|point| point.schedule).collect();
        for schedule in Schedule::GENERATED.map(Schedule::Generated) {
            let suits = points().all(|point| Point { schedule, ..*point }.suits());
            assert!(!suits || met.contains(&schedule), "{degrees}: {schedule}");
        }
    }
    let pairs = points.iter().map(|point| (point.form, point.schedule));
    assert_eq!(pairs.collect::<BTreeSet<_>>().len(), 8 * 8);
}

#[test]
fn more_tensor_parallelism_than_key_value_heads_is_refused_by_name() {
    let family = family(Style::Llama, 4, Tied::No, 1);
    let point = Point { degrees: Degrees { tp: 12, ..Degrees::ONE }, ..family };
    let expected = "parallelism.tp = 12 must be at most model.num_kv_heads = 4, since key and value heads are not split; \
                    use 1, 2 or 4";
    assert_eq!(said(&point.refusals()), [expected]);
}

#[test]
fn the_matrix_is_whole_and_legal() {
    let (points, others) = (matrix(), matrix_of_other_shapes());
    assert_eq!((points.len(), names(&points).len()), (8 * 9 * (4 + 5 + 4) * 7, 8 * 9 * (4 + 5 + 4) * 7));
    assert_eq!(others.len(), 2 * 9 * 3);
    for point in points.iter().chain(&others) {
        assert_eq!(point.refusals(), [], "{point}");
        assert!(point.degrees.world_size() <= MAX_RANKS, "{point}");
    }
}

#[test]
fn every_form_meets_every_schedule_tied_and_untied_and_in_several_degrees() {
    let points = matrix();
    for form in Form::OF_MATRIX {
        for schedule in Schedule::all() {
            let of = || points.iter().filter(|point| point.form == form && point.schedule == schedule);
            assert_eq!(of().map(|point| point.task).collect::<BTreeSet<_>>().len(), 2, "{form} {schedule}");
            let drawn = of().map(|point| point.degrees).collect::<BTreeSet<_>>().len();
            assert!(drawn >= 3, "{form} {schedule}: {drawn} degrees");
        }
    }
}

#[test]
fn what_a_rank_cannot_share_out_is_refused() {
    let points = matrix();
    let is_tokens = |point: &&Point| point.sharing() == Sharing::Tokens && point.recompute == Recompute::None;
    let point = points.iter().find(is_tokens).copied().unwrap_or(points[0]);
    let expected = "parallelism.recompute_inputs = \"whole\" must be \"sharded\" with \
                    parallelism.sequence_parallel = true, where a rank has its own tokens only; use \"sharded\"";
    assert_eq!(said(&Point { recompute: Recompute::FULL, ..point }.refusals()), [expected]);
}

#[test]
fn with_shared_sequences_every_form_meets_every_schedule_sharing_and_kind_and_all_are_legal() {
    let points = matrix_of_shared_sequences();
    assert_eq!((points.len(), names(&points).len()), (8 * 9 * 3 * 3, 8 * 9 * 3 * 3));
    for point in &points {
        assert_eq!(point.refusals(), [], "{point}");
        assert!(point.degrees.world_size() <= MAX_RANKS && point.degrees.cp == CP, "{point}");
    }
    // Whatever is drawn meets every kind.
    for column in [3, 4, 5] {
        let of = |point: &Point| (point.values()[column].clone(), context_kind_name(point.context.kind));
        let met: BTreeSet<(String, &'static str)> = points.iter().map(of).collect();
        let values: BTreeSet<&String> = met.iter().map(|(value, _)| value).collect();
        assert_eq!(met.len(), values.len() * ContextKind::ALL.len(), "{met:?}");
    }
}

#[test]
fn forms_that_sum_in_another_order_have_a_reference_of_their_own() {
    let reference = |form: Form, dp| form.reference(Degrees { dp, ..Degrees::ONE }).to_string();
    let said: Vec<String> =
        Form::ALL.into_iter().map(|form| format!("{form}: {} | {}", reference(form, 4), reference(form, 3))).collect();
    let expected = [
        "ZeRO-1: ZeRO off | ZeRO off",
        "ZeRO-3 ahead 1: ZeRO off | ZeRO off",
        "ZeRO-2 per microbatch: ZeRO-2 per microbatch | ZeRO-2 per microbatch",
        "ZeRO-1 in groups: ZeRO-1 in groups | ZeRO off",
        "ZeRO off: ZeRO off | ZeRO off",
        "ZeRO-2: ZeRO off | ZeRO off",
        "ZeRO-3 ahead 0 per microbatch: ZeRO-2 per microbatch | ZeRO-2 per microbatch",
        "ZeRO-3 ahead 2 kept in groups: ZeRO-1 in groups | ZeRO off",
    ];
    assert_eq!(said, expected);
}
