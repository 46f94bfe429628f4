use device::{Dtype, LogitGradient, Op, RowStatistics, Tensor, ZLoss};
use proptest::prelude::*;

use crate::operations::bench::{Bench, assert_same};
use crate::operations::case::{Case, Values};

/// Columns that are on this rank, that are not padding, and the global number of the first.
#[derive(Clone, Copy, Debug)]
struct Vocabulary {
    columns: usize,
    valid: usize,
    first: usize,
}

/// Labels on this rank, on others, in the padding, and ignored.
fn labels(case: &mut Case, rows: usize, vocabulary: Vocabulary) -> Tensor {
    let labels: Vec<i32> = (0..rows)
        .map(|_| match case.words.below(6) {
            0 => -100,
            1 => case.words.below(2 * (vocabulary.first + vocabulary.columns)) as i32,
            _ => (vocabulary.first + case.words.below(vocabulary.columns)) as i32,
        })
        .collect();
    case.ints(&labels)
}

/// Types of gradients that have a place of their own.
const PLACES: [Option<Dtype>; 4] = [None, Some(Dtype::Bf16), Some(Dtype::F16), Some(Dtype::F32)];

/// All three steps: each reads what the one before leaves. Before and after the last one, the loss is computed in one
/// operation.
///
/// With `coefficient` also the z-loss. The gradient has the place of the logits, or one of another type.
fn steps(
    case: &mut Case,
    [rows, gap]: [usize; 2],
    vocabulary: Vocabulary,
    [scale, coefficient]: [Option<f32>; 2],
    place: Option<Dtype>,
) -> Vec<Op> {
    let Vocabulary { columns, valid, first } = vocabulary;
    let logits = case.reals(rows, columns, gap, Values::Plain);
    let apart = place.map(|dtype| case.reals_of(dtype, [rows, columns], gap, Values::Plain));
    let max = case.vector(rows, Values::Plain);
    let sums = case.reals(rows, 2, 0, Values::Plain);
    let labels = labels(case, rows, vocabulary);
    let mut loss = |statistics: Option<RowStatistics>, into: Tensor| {
        let gradient = scale.map(|scale| LogitGradient { scale, into });
        let [loss, losses] = [(); 2].map(|()| case.vector(rows, Values::Plain));
        let z_loss = coefficient.map(|coefficient| ZLoss { coefficient, losses });
        Op::CrossEntropy { logits, valid_columns: valid, statistics, labels, first_row: first, gradient, loss, z_loss }
    };
    let given = Some(RowStatistics { max, sums });
    // Those that leave the logits come first.
    let mut all = vec![
        Op::RowMax { logits, valid_columns: valid, out: max },
        Op::SumExp { logits, valid_columns: valid, max, labels, first_row: first, sums },
    ];
    all.extend(apart.map(|apart| loss(None, apart)));
    all.push(loss(given, apart.unwrap_or(logits)));
    all.push(loss(None, logits));
    all
}

#[needs::cuda]
#[test]
fn losses_and_gradients_of_any_shape_have_the_bits_of_the_cpu() {
    let bench = Bench::of(&["cross_entropy"]);
    let sizes = (1usize..6, 0usize..3, 1usize..400, 0usize..400, prop_oneof![Just(0usize), 1usize..1000]);
    let factors = |some: &'static [f32]| prop::option::of(prop::sample::select(some));
    let strategy =
        (sizes, factors(&[1.0, 0.37, 1e-6]), factors(&[1e-4, 0.3]), prop::sample::select(&PLACES[..]), any::<u64>());
    proptest!(ProptestConfig::with_cases(32), |(((rows, gap, columns, padding, first), scale, coefficient, place, seed) in strategy)| {
        let vocabulary = Vocabulary { columns, valid: columns.saturating_sub(padding), first };
        let mut case = Case::new(seed);
        let ops = steps(&mut case, [rows, gap], vocabulary, [scale, coefficient], place);
        prop_assert_eq!(bench.difference(&case, &ops), None);
    });
}

/// Around lanes, chunks of 1,024 and the 16 chunks that a block of threads takes at once.
pub fn edges(bench: &Bench) {
    for (index, columns) in
        [15, 16, 17, 255, 256, 257, 1023, 1024, 1025, 4096, 16_384, 16_385, 20_000].into_iter().enumerate()
    {
        let vocabulary = Vocabulary { columns, valid: columns - index % 2, first: 7 * index };
        let mut case = Case::new(index as u64);
        let ops = steps(
            &mut case,
            [2, index % 3],
            vocabulary,
            [[Some(0.25), None][index / 5 % 2], [Some(1e-3), None][index % 3 % 2]],
            PLACES[index % PLACES.len()],
        );
        bench.compare_all(&case, &ops);
    }
    // Three rounds of 16 chunks, number by number: warps write the sums of a round after those before were read.
    let mut case = Case::new(33_001);
    let ops =
        steps(&mut case, [2, 0], Vocabulary { columns: 33_001, valid: 33_001, first: 0 }, [Some(0.5), None], None);
    bench.compare_all(&case, &ops);
    // Rows begin at multiples of four elements, where threads take four at once.
    for (columns, gap) in [(1030, 2), (2052, 0), (4092, 0), (5000, 8), (66_000, 0)] {
        let vocabulary = Vocabulary { columns, valid: columns - 3, first: 5 };
        for place in PLACES {
            let mut case = Case::new(columns as u64);
            let ops = steps(&mut case, [3, gap], vocabulary, [Some(0.25), Some(1e-3)], place);
            bench.compare_all(&case, &ops);
        }
    }
}

#[needs::cuda]
#[test]
fn losses_at_the_edges_of_chunks_have_the_bits_of_the_cpu() {
    assert_same(&["cross_entropy"], edges);
}

/// The first column of the vocabulary, and the last one that is not padding.
pub fn outermost_labels(bench: &Bench) {
    for (columns, valid, first) in [(8, 7, 0), (8, 8, 5)] {
        for place in PLACES {
            let mut case = Case::new(columns as u64);
            let mut ops = steps(&mut case, [5, 0], Vocabulary { columns, valid, first }, [Some(0.5), None], place);
            let end = (first + valid) as i32;
            let of_ends = case.ints(&[first as i32, end - 1, end, first as i32 - 1, 0]);
            for op in &mut ops {
                if let Op::SumExp { labels, .. } | Op::CrossEntropy { labels, .. } = op {
                    *labels = of_ends;
                }
            }
            bench.compare_all(&case, &ops);
        }
    }
}

#[needs::cuda]
#[test]
fn labels_at_the_ends_of_the_vocabulary_have_the_bits_of_the_cpu() {
    assert_same(&["cross_entropy"], outermost_labels);
}

/// Values after a NaN start again, and of zeros the last one counts: the order decides.
pub fn maxima(bench: &Bench) {
    for (index, columns) in [1, 2, 16, 17, 40, 256, 300, 1000, 5000].into_iter().enumerate() {
        let mut case = Case::new(index as u64);
        let logits = case.reals(4, columns, index % 3, Values::Wild);
        for row in 0..4 {
            for col in 0..columns {
                let zeros = [0.0f32, -0.0, f32::NEG_INFINITY, -1.0, f32::NAN];
                let values = [&zeros[..2], &zeros[..4], &zeros[..], &[]][row];
                if !values.is_empty() {
                    let value = values[case.words.below(values.len())];
                    case.put(logits, row, col, &value.to_le_bytes());
                }
            }
        }
        let out = case.vector(4, Values::Plain);
        for valid_columns in [0, columns / 2, columns] {
            bench.compare(&case, &Op::RowMax { logits, valid_columns, out });
        }
    }
}

#[needs::cuda]
#[test]
fn maxima_of_any_numbers_have_the_bits_of_the_cpu() {
    assert_same(&["cross_entropy"], maxima);
}

/// Sums of other ranks: any that come.
pub fn any_sums(bench: &Bench) {
    for (seed, gradient_scale, coefficient) in
        [(0, None, None), (1, Some(0.5), None), (2, Some(1e-3), Some(0.01)), (3, None, Some(0.5))]
    {
        let mut case = Case::new(seed);
        let rows = 300;
        let logits = case.reals(rows, 5, 0, Values::Wild);
        let max = case.vector(rows, Values::Plain);
        let sums = case.reals(rows, 2, 0, Values::Wild);
        let labels = labels(&mut case, rows, Vocabulary { columns: 5, valid: 4, first: 2 });
        let loss = case.vector(rows, Values::Plain);
        let z_loss = coefficient.map(|coefficient| ZLoss { coefficient, losses: case.vector(rows, Values::Plain) });
        let op = Op::CrossEntropy {
            logits,
            valid_columns: 4,
            statistics: Some(RowStatistics { max, sums }),
            labels,
            first_row: 2,
            gradient: gradient_scale.map(|scale| LogitGradient { scale, into: logits }),
            loss,
            z_loss,
        };
        bench.compare(&case, &op);
    }
}

#[needs::cuda]
#[test]
fn losses_of_any_sums_have_the_bits_of_the_cpu() {
    assert_same(&["cross_entropy"], any_sums);
}

/// The CPU asserts these.
#[needs::cuda]
#[test]
fn rows_that_do_not_fit_are_refused_with_the_tensors() {
    let bench = Bench::of(&["cross_entropy"]);
    let mut case = Case::new(0);
    let logits = case.reals(3, 4, 0, Values::Plain);
    let out = case.vector(2, Values::Plain);
    for (op, expected) in [
        (Op::RowMax { logits, valid_columns: 5, out }, "row_max: 5 valid columns of F32[3, 4] @0"),
        (Op::RowMax { logits, valid_columns: 4, out }, "row_max: F32[1, 2] @128 is not 1 for each row of F32[3, 4] @0"),
    ] {
        assert_eq!(bench.failure(&case, &op), expected);
    }
}
