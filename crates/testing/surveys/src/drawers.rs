//! The drawers: which points of the space a survey has. Each varies some factors in an order of its own, by turns or by
//! a seed, so that it always draws the same points.

use std::ops::RangeInclusive;

use config::{
    ChunkOrder, ContextKind, ContextParallel, Degrees, Format, GradientSums, Overlap, Products, Recompute, RunConfig,
    SavedInputs, ScheduleKind, SequenceParallel, Tied,
};
use philox::philox4x32_10;
use prove::MAX_RANKS;
use testkit::models::Style;
use testkit::numbers::Numbers;

use crate::space::{Form, Point, RECOMPUTES, Schedule, Shape, ShardGroups, Sharing, Task, full};

/// Another seed draws other cells of the support matrix.
const SEED: u32 = 11;

/// Ranks that share a sequence of the support matrix.
const CP: usize = 2;

/// Tokens of a sequence that they share: each chunk has as many as masks of dropout are drawn for at once.
const SHARED_LENGTH: usize = 2 * CP * 4;

/// All indices of tables of these sizes, the last one fastest.
fn product<const N: usize>(sizes: [usize; N]) -> impl Iterator<Item = [usize; N]> {
    (0..sizes.iter().product()).map(move |mut number| {
        let mut indices = [0; N];
        for (index, size) in indices.iter_mut().zip(sizes).rev() {
            (*index, number) = (number % size, number / size);
        }
        indices
    })
}

/// All sixteen families of the promise of equality, each as its one rank in the plain manner.
pub fn families() -> Vec<Point> {
    let family = |[style, heads, tied, size]: [usize; 4]| {
        let (style, tied) = ([Style::Gpt2, Style::Llama][style], [Tied::Yes, Tied::No][tied]);
        Point::plain(Task::proof(style, [12, 4][heads], tied), [1, 2][size])
    };
    product([2; 4]).map(family).collect()
}

/// One of [`families`].
pub fn family(style: Style, num_kv_heads: usize, tied: Tied, microbatch_size: usize) -> Point {
    Point::plain(Task::proof(style, num_kv_heads, tied), microbatch_size)
}

/// All degrees of at most [`MAX_RANKS`] ranks with one of these numbers of ranks for a sequence, in ascending order.
pub fn all_degrees(cp: RangeInclusive<usize>) -> impl Iterator<Item = Degrees> {
    let all = product([MAX_RANKS; 4]).map(|counts| counts.map(|count| count + 1));
    let all = all.map(|[dp, cp, tp, pp]| Degrees { dp, cp, tp, pp });
    all.filter(move |degrees| cp.contains(&degrees.cp) && degrees.world_size() <= MAX_RANKS)
}

/// Schedules with every form of recomputation: all thirty-two pairs; any eight in a row have every schedule.
fn passes() -> Vec<(ScheduleKind, Recompute)> {
    let recomputes = [Recompute::None, Recompute::FULL, Recompute::Selective, full(2, SavedInputs::Sharded)];
    let pair = |[turn, index]: [usize; 2]| (Schedule::GENERATED[index], recomputes[(turn + index) % recomputes.len()]);
    product([recomputes.len(), Schedule::GENERATED.len()]).map(pair).collect()
}

/// Equality: every degree in every family, legal or not: 1,760. Forms, schedules and recomputation take turns, so that
/// each degree meets each form in two families and each schedule that suits it.
pub fn equality() -> Vec<Point> {
    let (forms, passes) = (Form::ALL, passes());
    let mut points = Vec::new();
    for (turn, family) in families().into_iter().enumerate() {
        for (index, degrees) in all_degrees(1..=1).enumerate() {
            let form = forms[(turn + index) % forms.len()];
            // Another shift in every round of forms, so that no form is tied to one schedule.
            let shift = index / forms.len() + 3 * (turn / forms.len());
            let start = (turn + index + shift) % passes.len();
            let turns = passes.iter().cycle().skip(start).take(passes.len());
            let plain = Point { degrees, form, ..family };
            let mut suiting = turns.map(|&(schedule, recompute)| {
                Point { schedule: Schedule::Generated(schedule), recompute, ..plain }.with_possible_inputs()
            });
            points.push(suiting.find(Point::suits).unwrap_or(plain));
        }
    }
    points
}

/// The points of [`equality`] with more than one rank per matrix, with sequence parallelism.
pub fn equality_sequence_parallel() -> Vec<Point> {
    let of_several = equality().into_iter().filter(|point| point.degrees.tp > 1);
    let sequence_parallel = SequenceParallel::On;
    of_several.map(|point| Point { sequence_parallel, ..point }.with_possible_inputs()).collect()
}

/// The points of [`equality`] in these families.
fn equality_in(families: [Point; 2]) -> impl Iterator<Item = Point> {
    equality().into_iter().filter(move |point| families.iter().any(|family| point.is_of(family)))
}

/// The points of [`equality`] in two families of microbatches of two sequences, between which style, heads and tying
/// differ, with exact sums.
pub fn equality_exact() -> Vec<Point> {
    let families = [family(Style::Gpt2, 12, Tied::Yes, 2), family(Style::Llama, 4, Tied::No, 2)];
    equality_in(families).map(|point| point.with_sums(GradientSums::Exact)).collect()
}

/// The points of [`equality`] in two families that differ in every trait, with products in AMX order. A processor
/// without AMX computes those of single precision an order of magnitude slower than chained ones, so that all families
/// take hours.
pub fn equality_in_pairs() -> Vec<Point> {
    let families = [family(Style::Gpt2, 4, Tied::Yes, 2), family(Style::Llama, 12, Tied::No, 1)];
    equality_in(families).map(|point| point.with_products(Products::Pairs)).collect()
}

/// Random numbers of point `number` of a part of the support matrix.
fn random(number: usize, part: u32) -> [usize; 4] {
    philox4x32_10([number as u32, part, 0, 0], [SEED, 0]).map(|random| random as usize)
}

/// `point` on one of the numbers of ranks that suit it: one of `replicas`, `cp` ranks for each sequence, 2 to 4 stages,
/// microbatches in whole groups.
fn spread(point: Point, sharing: Sharing, replicas: &[usize], cp: usize, random: usize) -> Point {
    let counts = replicas.iter().flat_map(|dp| (2..=4).map(move |pp| (*dp, pp)));
    let points = counts.map(|(dp, pp)| Point { degrees: Degrees { dp, cp, tp: sharing.tp(), pp }, ..point });
    let suiting: Vec<Point> = points.filter(|point| point.degrees.world_size() <= MAX_RANKS && point.suits()).collect();
    suiting[random % suiting.len()]
}

/// A point of the support matrix on one rank.
fn cell(shape: Shape, form: Form, schedule: Schedule, sharing: Sharing) -> Point {
    let sequence_parallel = sharing.sequence_parallel();
    Point { form, schedule, sequence_parallel, ..Point::plain(Task::Small(shape), 1) }
}

/// The support matrix: every ZeRO form with every schedule, every way to shard matrices, every recomputation and all
/// numbers. Degrees and one of two shapes are drawn, alike for points that differ only in their sums or in the order of
/// their products.
pub fn matrix() -> Vec<Point> {
    let (plain, others): (Vec<_>, Vec<_>) = Numbers::ALL.into_iter().partition(|numbers| *numbers == numbers.plain());
    let schedules = Schedule::all();
    let sizes = [Form::OF_MATRIX.len(), schedules.len(), Sharing::ALL.len(), RECOMPUTES.len(), plain.len()];
    let mut points = Vec::new();
    for [form, schedule, sharing, recompute, numbers] in product(sizes) {
        let (form, schedule) = (Form::OF_MATRIX[form], schedules[schedule]);
        let (sharing, recompute) = (Sharing::ALL[sharing], RECOMPUTES[recompute]);
        if !sharing.allows(recompute) {
            continue;
        }
        let [of_shape, of_degrees, ..] = random(points.len(), 0);
        let shape = if of_shape.is_multiple_of(2) { Shape::Gpt2 } else { Shape::Llama };
        // Several sharding groups of several replicas.
        let replicas: &[usize] = match form.shard_groups {
            ShardGroups::One => &[2, 3],
            ShardGroups::Several => &[4],
        };
        let cell = Point { recompute, numbers: plain[numbers], ..cell(shape, form, schedule, sharing) };
        points.push(spread(cell, sharing, replicas, 1, of_degrees));
    }
    for numbers in others {
        let alike = points.iter().filter(|point| point.numbers == numbers.plain());
        let drawn: Vec<Point> = alike.map(|point| Point { numbers, ..*point }).collect();
        points.extend(drawn);
    }
    points
}

/// Points of the shapes that [`matrix`] leaves out: each shape in every order with every sharing, the rest drawn from
/// it.
pub fn matrix_of_other_shapes() -> Vec<Point> {
    let (all, shapes, schedules) = (matrix(), [Shape::GptNeoX, Shape::CodeGeeX], Schedule::all());
    let of = |(number, [shape, schedule, sharing]): (usize, [usize; 3])| {
        let (schedule, sharing) = (schedules[schedule], Sharing::ALL[sharing]);
        let is_alike = |point: &&Point| point.schedule == schedule && point.sharing() == sharing;
        let alike: Vec<&Point> = all.iter().filter(is_alike).collect();
        let [drawn, ..] = random(number, 1);
        Point { task: Task::Small(shapes[shape]), ..*alike[drawn % alike.len()] }
    };
    product([shapes.len(), schedules.len(), Sharing::ALL.len()]).enumerate().map(of).collect()
}

/// The support matrix with sequences that two ranks share: every ZeRO form in every order with every sharing and every
/// kind of context parallelism; degrees, recomputation, numbers and shape are drawn.
pub fn matrix_of_shared_sequences() -> Vec<Point> {
    let (schedules, data) = (Schedule::all(), RunConfig::quick_start().data);
    let of = |(number, [form, schedule, sharing, kind]): (usize, [usize; 4])| {
        let [of_degrees, of_recompute, of_numbers, of_shape] = random(number, 2);
        let (form, sharing, kind) = (Form::OF_MATRIX[form], Sharing::ALL[sharing], ContextKind::ALL[kind]);
        // Groups of one replica are shared by the ranks of its sequences.
        let replicas: &[usize] = match form.shard_groups {
            ShardGroups::One => &[1, 2, 3],
            ShardGroups::Several => &[2, 4],
        };
        let recomputes = sharing.recomputes();
        let shape = if of_shape.is_multiple_of(2) { Shape::Gpt2 } else { wide(kind, sharing) };
        let cell = Point {
            recompute: recomputes[of_recompute % recomputes.len()],
            numbers: Numbers::ALL[of_numbers % Numbers::ALL.len()],
            context: ContextParallel::of(kind, &data),
            sequence_length: SHARED_LENGTH,
            ..cell(shape, form, schedules[schedule], sharing)
        };
        spread(cell, sharing, replicas, CP, of_degrees)
    };
    let sizes = [Form::OF_MATRIX.len(), schedules.len(), Sharing::ALL.len(), ContextKind::ALL.len()];
    product(sizes).enumerate().map(of).collect()
}

/// A model with fewer key than query heads, where ranks can split its heads.
fn wide(kind: ContextKind, sharing: Sharing) -> Shape {
    match kind {
        ContextKind::Gather | ContextKind::Ring => Shape::Llama,
        ContextKind::Heads if Shape::Llama.model().num_kv_heads.is_multiple_of(CP * sharing.tp()) => Shape::Llama,
        ContextKind::Heads => Shape::Gpt2,
    }
}

/// Long sequences: every legal (dp, cp, tp, pp) with cp above 1 and at most [`MAX_RANKS`] ranks, with each kind of
/// context parallelism, in balanced chunks where they divide a sequence and in contiguous ones. Other factors change
/// from one to the next.
pub fn long_sequences() -> Vec<Point> {
    let contexts: Vec<ContextParallel> = product([ContextKind::ALL.len(), 2])
        .map(|[kind, chunks]| ContextParallel {
            kind: ContextKind::ALL[kind],
            chunks: [ChunkOrder::Balanced, ChunkOrder::Contiguous][chunks],
        })
        .collect();
    let both = all_degrees(2..=MAX_RANKS).flat_map(|degrees| contexts.iter().map(move |context| (degrees, *context)));
    let points = both.enumerate().map(|(index, (degrees, context))| long(index, degrees, context));
    points.filter(Point::is_legal).collect()
}

fn long(index: usize, degrees: Degrees, context: ContextParallel) -> Point {
    let style = [Style::Gpt2, Style::Llama][index / 4 % 2];
    // Groups of queries, but as many keys as there are queries where ranks could not split the heads otherwise.
    let num_kv_heads = match context.kind {
        ContextKind::Heads if degrees.cp.is_multiple_of(3) => 12,
        ContextKind::Gather | ContextKind::Heads | ContextKind::Ring => 4,
    };
    let sequence_parallel = [SequenceParallel::Off, SequenceParallel::On][index / 2 % 2];
    let inputs = match sequence_parallel {
        SequenceParallel::Off => SavedInputs::Whole,
        SequenceParallel::On => SavedInputs::Sharded,
    };
    let schedules = [ScheduleKind::OneForwardOneBackward, ScheduleKind::ZeroBubbleH1, ScheduleKind::GPipe];
    let (format, sums) = [
        (Format::Fp32, GradientSums::Single),
        (Format::Bf16, GradientSums::Single),
        (Format::Fp32, GradientSums::Exact),
    ][index / 7 % 3];
    Point {
        degrees,
        context,
        sequence_parallel,
        form: Form::OF_LONG[index % Form::OF_LONG.len()],
        schedule: Schedule::Generated(schedules[index % schedules.len()]),
        recompute: [Recompute::None, Recompute::Selective, full(1, inputs)][index / 3 % 3],
        overlap: [None, Some(Overlap::On)][index / 11 % 2],
        numbers: Numbers::new(format, sums, Products::Chained),
        ..Point::plain(Task::Long { style, num_kv_heads }, 1 + index / 5 % 2)
    }
}

#[cfg(test)]
mod tests;
