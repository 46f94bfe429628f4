//! The shrunk gradient of the embedding: that of the token table's use as input, and of nothing else, is multiplied by
//! a constant before it is accumulated; values are what they were, and every layout learns the same.

use config::{ModelSpec, Parallelism, TrainSpec, ZeroStage};
use device::{LogitGradient, Op};
use prove::{Outcome, Tensors};
use testkit::intercepted::{alter_ops, drop_ops};
use testkit::models::Style;
use testkit::wrapped_engine::WrapRank;
use train::RankEngine;

use crate::checklist::rig::*;

const TABLE: &str = "embedding.token.weight";

fn shrunk(scale: f32, steps: u32) -> TrainSpec {
    TrainSpec { embedding_gradient_scale: scale, ..training(steps) }
}

fn step(model: &ModelSpec, scale: f32, wrap: &WrapRank<'_>) -> Result<Outcome, String> {
    Case::new(model, degrees((1, 1, 1)), &shrunk(scale, 1)).wrapped(wrap).outcome()
}

/// Gradients that are not what the formula makes of those without shrinking, and of those `of_output` where the table
/// is not used as input.
fn differing(plain: &Tensors, of_output: &Tensors, shrunk: &Tensors, scale: f64) -> Verdict {
    let relative = |name: &str| {
        let (mut difference, mut size) = (0.0, 0.0);
        for (index, found) in shrunk[name].iter().enumerate() {
            let (whole, output) = (f64::from(plain[name][index]), f64::from(of_output[name][index]));
            let expected = output + scale * (whole - output);
            difference += (f64::from(*found) - expected).powi(2);
            size += expected.powi(2);
        }
        (difference / size).sqrt()
    };
    let far = shrunk.keys().filter_map(|name| {
        // Of other gradients the bits are the same; the table's is a sum of some forty terms, each rounded once.
        let holds = if name == TABLE { relative(name) <= GRADIENT_BOUND } else { shrunk[name] == plain[name] };
        (!holds).then(|| format!("the gradient of {name} is not the formula's"))
    });
    verdict(far)
}

/// Whether one step has the loss of a step without shrinking, and the gradients of the formula.
fn follows_the_formula(model: &ModelSpec, wrap: &WrapRank<'_>) -> Verdict {
    let without_input = |_, rank: RankEngine| {
        drop_ops(rank, |op| matches!(op, Op::EmbeddingBackward { dtable, .. } if dtable.rows == 257))
    };
    let plain = step(model, 1.0, &untouched)?;
    let of_output = step(model, 1.0, &without_input)?;
    let shrunk = step(model, 0.1, wrap)?;
    if plain.losses != shrunk.losses {
        return Err(format!("losses {:?} became {:?}", plain.losses, shrunk.losses));
    }
    differing(&plain.gradients, &of_output.gradients, &shrunk.gradients, f64::from(0.1f32))
}

#[test]
fn the_input_shrinks_the_tables_gradient_and_nothing_else() {
    for tied in [false, true] {
        let model = small_model(Style::Gpt2, tied);
        assert_holds(follows_the_formula(&model, &untouched));
        let rescaled = |is_meant: fn(usize) -> bool, factor: f32| {
            move |_: mesh::Coord, rank: RankEngine| {
                alter_ops(rank, move |op| {
                    if let Op::EmbeddingBackward { scale, dtable, .. } = op
                        && is_meant(dtable.rows)
                    {
                        *scale *= factor;
                    }
                })
            }
        };
        let forgotten = rescaled(|rows| rows == 257, 10.0);
        assert_found(follows_the_formula(&model, &forgotten), "the gradient of embedding.token.weight");
        let positions_too = rescaled(|rows| rows == 8, 0.1);
        assert_found(follows_the_formula(&model, &positions_too), "the gradient of embedding.position.weight");
    }
    let halved_output = |_, rank: RankEngine| {
        alter_ops(rank, |op| {
            if let Op::CrossEntropy { gradient: Some(LogitGradient { scale, .. }), .. } = op {
                *scale *= 0.1;
            }
        })
    };
    let tied = small_model(Style::Gpt2, true);
    assert_found(follows_the_formula(&tied, &halved_output), "the gradient of embedding.token.weight");
}

#[test]
fn a_power_of_two_shrinks_to_the_bit() {
    let model = small_model(Style::Llama, false);
    let [plain, half] = [1.0, 0.5].map(|scale| step(&model, scale, &untouched).expect("runs"));
    let expected: Vec<f32> = plain.gradients[TABLE].iter().map(|gradient| 0.5 * gradient).collect();
    assert_eq!(half.gradients[TABLE], expected);
}

#[test]
fn layouts_shrink_alike() {
    let (model, train) = (small_model(Style::Gpt2, true), shrunk(0.1, 3));
    let run = |layout| Case::new(&model, layout, &train).outcome().expect("runs");
    let one = run(degrees((1, 1, 1)));
    assert_holds(same_bits(&one, &run(degrees((1, 1, 2)))));
    let two = run(Parallelism { zero: ZeroStage::Off, ..degrees((2, 1, 1)) });
    for zero in [ZeroStage::One, TWO, THREE] {
        assert_holds(same_bits(&two, &run(Parallelism { zero, ..degrees((2, 1, 2)) })));
    }
    for at in [(2, 1, 1), (1, 2, 1), (2, 2, 2)] {
        assert_holds(within_bounds(&model, &one, &run(degrees(at))));
    }
}
