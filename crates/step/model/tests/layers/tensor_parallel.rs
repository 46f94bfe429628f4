//! Two and four ranks against one: the same loss, and of every gradient its part.

use config::{AppliedTo, LayerRecompute, ModelSpec, ParamSpec, SavedInputs, SequenceParallel, Sharding};
use mesh::{Axis, AxisSizes};
use model::TensorParallel;

use crate::cases;
use crate::reference::{Exchange, ReferenceDevice};
use crate::rig::{Manner, Rank, Running, coord, draw};

/// Rounding in double precision, over sums of some hundred terms of order 1.
const TOLERANCE: f64 = 1e-12;

/// Loss and gradients by parameter, in declared order.
type Step = (f64, Vec<(ParamSpec, Vec<f64>)>);

fn step(model: &ModelSpec, tp: TensorParallel, manner: Manner, exchange: &Exchange) -> Step {
    let rank = Rank::new(model, tp, cases::SHAPE, manner);
    let device = ReferenceDevice::new(rank.arena_bytes);
    rank.initialize(&device);
    Running::scope(&rank, &device, exchange, |running| {
        let loss = running.step();
        let gradient = |(unit, param, range)| (ParamSpec::clone(param), running.gradient(unit, range));
        (loss, running.rank.declared().map(gradient).collect())
    })
}

/// Runs `body` on `size` threads and returns what each made.
fn run_group<R: Send>(size: usize, body: impl Fn(usize, &Exchange) -> R + Sync) -> Vec<R> {
    let (exchange, body) = (&Exchange::new(size), &body);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..size).map(|position| scope.spawn(move || body(position, exchange))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn group(model: &ModelSpec, size: usize, manner: Manner) -> Vec<Step> {
    run_group(size, |position, exchange| step(model, TensorParallel { size, position }, manner, exchange))
}

/// Element `index` of the local part on `position` of `size`: its value in the whole gradient, or 0 in padding.
fn whole_value(param: &ParamSpec, whole: &[f64], size: usize, position: usize, index: usize) -> f64 {
    let (global_rows, global_cols) = param.matrix_shape();
    let (_, cols) = param.local_shape(AxisSizes::only(Axis::Tp, size));
    let (first_row, first_col) = param.local_start(&coord(TensorParallel { size, position }));
    let (row, col) = (first_row + index / cols, first_col + index % cols);
    if row < global_rows { whole[row * global_cols + col] } else { 0.0 }
}

#[test]
fn ranks_agree_with_one_rank() {
    for (name, model) in cases::all() {
        let one = &group(&model, 1, Manner::PLAIN)[0];
        let sizes = [2, 4].into_iter().filter(|size| model.num_kv_heads.is_multiple_of(*size));
        for (size, manner) in sizes.flat_map(|size| [(size, Manner::PLAIN), (size, Manner::SEQUENCE_PARALLEL)]) {
            let name = format!("{name}, {:?}", manner.sequence_parallel);
            let ranks = group(&model, size, manner);
            for (position, (loss, gradients)) in ranks.iter().enumerate() {
                assert!((loss - one.0).abs() < TOLERANCE, "{name}, {size} ranks: loss {loss} against {}", one.0);
                for (index, (param, local)) in gradients.iter().enumerate() {
                    let whole = &one.1[index].1;
                    for (element, value) in local.iter().enumerate() {
                        // A replicated parameter of heads has on each rank the share of its heads, and with sequence
                        // parallelism one of the residual stream that of its tokens; the reduction adds them.
                        let is_share = param.sharding == Sharding::Replicated
                            && match (param.applied_to, manner.sequence_parallel) {
                                (AppliedTo::Residual, SequenceParallel::Off) => false,
                                (AppliedTo::Residual, SequenceParallel::On) => true,
                                (AppliedTo::Choice, _) => false,
                                (AppliedTo::Heads | AppliedTo::Hidden | AppliedTo::Vocabulary, _) => true,
                            };
                        let sum = || ranks.iter().map(|rank| rank.1[index].1[element]).sum();
                        let actual: f64 = if is_share { sum() } else { *value };
                        let expected = whole_value(param, whole, size, position, element);
                        let error = (actual - expected).abs();
                        assert!(
                            error < TOLERANCE,
                            "{name}, rank {position} of {size}, {} [{element}]: {actual} against {expected}",
                            param.name
                        );
                    }
                }
            }
            if manner.sequence_parallel == SequenceParallel::Off {
                replicas_are_equal(&name, &ranks);
            }
        }
    }
}

/// Recomputed activations have the same bits, also where ranks shard tokens or inputs.
#[test]
fn recomputation_leaves_the_same_bits_on_every_rank() {
    for (name, model) in cases::all() {
        for sequence_parallel in [SequenceParallel::Off, SequenceParallel::On] {
            let gradients = |recompute| group(&model, 2, Manner { sequence_parallel, recompute });
            let kept = gradients(LayerRecompute::Nothing);
            let whole = LayerRecompute::Everything(SavedInputs::Whole);
            assert_eq!(kept, gradients(LayerRecompute::Core), "{name}, {sequence_parallel:?}");
            assert_eq!(kept, gradients(whole), "{name}, {sequence_parallel:?}");
            if sequence_parallel == SequenceParallel::Off {
                assert_eq!(kept, gradients(LayerRecompute::Everything(SavedInputs::Sharded)), "{name}");
            }
        }
    }
}

/// A rank's initial values are its part of the whole, and padding is zero: also on ranks that hold nothing but padding.
#[test]
fn initial_values_do_not_depend_on_the_ranks() {
    for model in [cases::gpt2(), cases::llama(), ModelSpec { vocabulary: 5, ..cases::gpt2() }] {
        let values = |tp: TensorParallel| {
            let rank = Rank::new(&model, tp, cases::SHAPE, Manner::PLAIN);
            let device = ReferenceDevice::new(rank.arena_bytes);
            for (unit, layout) in &rank.layouts {
                draw(&device, layout, rank.params[unit], tp);
                let padding = rank.params[unit].elements(layout.len..layout.padded_len());
                assert!(device.values(padding).iter().all(|value| *value == 0.0));
            }
            let value =
                |(unit, param, range)| (ParamSpec::clone(param), device.values(rank.params[&unit].elements(range)));
            rank.declared().map(value).collect::<Vec<_>>()
        };
        let whole = values(TensorParallel { size: 1, position: 0 });
        for position in 0..4 {
            for ((param, local), (_, whole)) in values(TensorParallel { size: 4, position }).iter().zip(&whole) {
                for (element, value) in local.iter().enumerate() {
                    let expected = whole_value(param, whole, 4, position, element);
                    assert_eq!(*value, expected, "{}, rank {position}, element {element}", param.name);
                }
            }
        }
    }
}

/// Every rank gets the columns of all ranks; the columns of padding are not looked at.
#[test]
fn logits_are_columns_of_the_whole() {
    let tokens = cases::SHAPE.tokens();
    for (name, model) in [("gpt2", cases::gpt2()), ("llama", cases::llama())] {
        let logits = |size: usize| {
            run_group(size, |position, exchange| {
                let tp = TensorParallel { size, position };
                let rank = Rank::new(&model, tp, cases::SHAPE, Manner::PLAIN);
                let device = ReferenceDevice::new(rank.arena_bytes);
                rank.initialize(&device);
                Running::scope(&rank, &device, exchange, |running| running.logits())
            })
        };
        let (whole, ranks) = (&logits(1)[0], logits(2));
        let columns = model.padded_vocabulary(2) / 2;
        assert_eq!(ranks[0], ranks[1], "{name}");
        for row in 0..tokens {
            for token in 0..model.vocabulary {
                let actual = ranks[0][(token / columns * tokens + row) * columns + token % columns];
                let expected = whole[row * model.vocabulary + token];
                assert!((actual - expected).abs() < TOLERANCE, "{name}, token {token}: {actual} against {expected}");
            }
        }
    }
}

/// Replicated parameters of the residual stream get the same bits on every rank.
fn replicas_are_equal(name: &str, ranks: &[Step]) {
    for (_, gradients) in ranks {
        for ((param, values), (_, first)) in gradients.iter().zip(&ranks[0].1) {
            if param.applied_to == AppliedTo::Residual {
                assert_eq!(values, first, "{name}, {}", param.name);
            }
        }
    }
}
