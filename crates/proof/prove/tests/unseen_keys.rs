//! Keys and values that no query of a rank sees are not computed with: where a sequence has documents, prefixes or
//! windows, attention on a rank's keys may find not-a-number in place of the others, and learns the same bits.

#![allow(clippy::unwrap_used, reason = "a test ends where something fails")]

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use config::{ChunkOrder, ContextKind, ContextParallel, Degrees, ModelSpec, Parallelism, TrainSpec};
use cpu::attention::KEYS;
use device::{AttentionOperands, Device, DeviceError, Op, Tensor};
use mesh::Coord;
use prove::{Outcome, outcome_of};
use testkit::intercepted::intercept_ops;
use testkit::layout::Layout;
use testkit::models::{Style, plain_layout, proof_model, proof_text, proof_training};
use testkit::wrapped_engine::WrappedEngine;
use train::{RankEngine, SequenceBuffers, TokenSource};

const CP: usize = 4;
const LENGTH: usize = 8 * KEYS;
/// Chunks of a rank together, in either order.
const SHARE: usize = LENGTH / CP;

/// The intervals of a sequence's queries.
#[derive(Clone, Copy, Debug)]
enum Masks {
    /// Each token sees the tokens before it of its document.
    Documents,
    /// Each token sees the first half of its document, and those before it.
    Prefixes,
    /// Each token sees as many as a chunk has.
    Windows,
}

impl TokenSource for Masks {
    fn fill(&self, step: u32, sequence: u64, buffers: SequenceBuffers<'_>) {
        let SequenceBuffers { tokens, labels, positions, visible } = buffers;
        let text = SequenceBuffers { tokens, labels, positions, visible: &mut visible[..] };
        proof_text().fill(step, sequence, text);
        for (place, interval) in visible.as_chunks_mut::<2>().0.iter_mut().enumerate() {
            let document = place / SHARE * SHARE;
            let own = match self {
                Masks::Documents => document..place + 1,
                Masks::Prefixes => document..(place + 1).max(document + SHARE / 2),
                Masks::Windows => (place + 1).saturating_sub(SHARE / 2)..place + 1,
            };
            *interval = [own.start as i32, own.end as i32];
        }
    }
}

fn layout(context: ContextParallel) -> Layout {
    let plain = plain_layout(1, 1, 1, 1);
    let parallelism = Parallelism { degrees: Degrees { cp: CP, ..plain.degrees }, context, ..plain };
    let train = TrainSpec { steps: 1, warmup_steps: 0, global_batch: 1, sequence_length: LENGTH, ..proof_training() };
    let model = ModelSpec { context: LENGTH, num_layers: 1, ..proof_model(Style::Llama, 4, false) };
    Layout { model, parallelism, train }
}

/// Attention operations of all ranks, and those of whose keys no query sees one.
#[derive(Debug, Default)]
struct Counts {
    all: AtomicUsize,
    unseen: AtomicUsize,
    /// Tiles of keys that were not a number.
    tiles: AtomicUsize,
}

/// Rows of the keys in tiles of which no query sees a key.
fn unseen_rows(device: &dyn Device, operands: &AttentionOperands) -> Result<[Range<usize>; 2], DeviceError> {
    let mut bytes = vec![0i32; operands.visible.len()];
    device.read(operands.visible, bytemuck::cast_slice_mut(&mut bytes))?;
    let (first_key, keys) = (operands.places.map_or(0, |places| places.first_key), operands.k.rows);
    let row = |place: i32| (place as usize).saturating_sub(first_key).min(keys);
    let seen =
        bytes.as_chunks::<2>().0.iter().map(|[first, end]| row(*first)..row(*end)).filter(|rows| !rows.is_empty());
    let hull = seen.reduce(|a, b| a.start.min(b.start)..a.end.max(b.end));
    Ok(match hull {
        None => [0..keys, keys..keys],
        Some(hull) => [0..hull.start / KEYS * KEYS, hull.end.next_multiple_of(KEYS).min(keys)..keys],
    })
}

/// Rows of keys and values, which are side by side.
fn rows_of_both(operands: &AttentionOperands, rows: Range<usize>) -> Tensor {
    let (k, v) = (operands.k, operands.v);
    let width = k.dtype.size_bytes();
    assert_eq!((v.offset_bytes, k.row_stride), (k.offset_bytes + k.cols * width, 2 * k.cols), "keys | values");
    Tensor::new(k.offset_bytes + rows.start * k.row_stride * width, rows.len(), k.row_stride, k.dtype)
}

/// Replaces what no query sees while attention is computed.
fn without_unseen(rank: RankEngine, counts: &'static Counts) -> RankEngine {
    intercept_ops(rank, move |device, stream, op| {
        let (Op::Attention { operands } | Op::AttentionBackward { operands, .. }) = op else {
            return device.submit(stream, op);
        };
        let unseen = unseen_rows(device, operands)?;
        let tiles: usize = unseen.iter().map(|rows| rows.len().div_ceil(KEYS)).sum();
        counts.all.fetch_add(1, Ordering::Relaxed);
        counts.tiles.fetch_add(tiles, Ordering::Relaxed);
        counts.unseen.fetch_add(usize::from(unseen[0].len() == operands.k.rows), Ordering::Relaxed);
        let places = unseen.map(|rows| rows_of_both(operands, rows));
        let mut kept = places.map(|place| vec![0u8; place.size_bytes()]);
        for (place, bytes) in places.iter().zip(&mut kept).filter(|(place, _)| !place.is_empty()) {
            device.read(*place, bytes)?;
            device.write(*place, &vec![0xff; bytes.len()])?;
        }
        device.submit(stream, op)?;
        for (place, bytes) in places.iter().zip(&kept).filter(|(place, _)| !place.is_empty()) {
            device.write(*place, bytes)?;
        }
        Ok(())
    })
}

/// The outcomes of a plain run and of one without the keys that are not seen, and the counts.
fn outcomes(context: ContextParallel, masks: Masks) -> ([Outcome; 2], &'static Counts) {
    let (layout, counts) = (layout(context), &*Box::leak(Box::<Counts>::default()));
    let setup = layout.setup().unwrap();
    let wrap = |_: Coord, rank: RankEngine| without_unseen(rank, counts);
    let plain = layout.outcome(&masks).unwrap();
    ([plain, outcome_of(&setup, &WrappedEngine::new(&setup, &wrap), &masks).unwrap()], counts)
}

#[test]
fn keys_that_no_query_sees_are_not_computed_with() {
    use ChunkOrder::{Balanced, Contiguous};
    // Operations of both passes of the layer on all ranks, those on keys that are not seen at all, and tiles of keys.
    for (kind, chunks, masks, expected) in [
        // Of 16 pairs of blocks, 4 are of one document.
        (ContextKind::Ring, Contiguous, Masks::Documents, [32, 24, 48]),
        (ContextKind::Ring, Contiguous, Masks::Prefixes, [32, 24, 48]),
        // A window reaches into the block before.
        (ContextKind::Ring, Contiguous, Masks::Windows, [32, 18, 42]),
        // Of 36 pairs of chunks, 3 in each of 4 documents.
        (ContextKind::Ring, Balanced, Masks::Documents, [72, 48, 48]),
        (ContextKind::Ring, Balanced, Masks::Windows, [72, 42, 42]),
        (ContextKind::Gather, Contiguous, Masks::Documents, [8, 0, 48]),
        (ContextKind::Gather, Contiguous, Masks::Prefixes, [8, 0, 48]),
        (ContextKind::Gather, Balanced, Masks::Documents, [16, 0, 48]),
    ] {
        let ([plain, without], counts) = outcomes(ContextParallel { kind, chunks }, masks);
        let name = format!("{kind:?} in {chunks:?} chunks, {masks:?}");
        assert_eq!((&plain.losses, &plain.gradients), (&without.losses, &without.gradients), "{name}");
        assert_eq!((&plain.norms, &plain.weights), (&without.norms, &without.weights), "{name}");
        assert!(plain.losses.iter().all(|loss| loss.is_finite()), "{name}");
        let Counts { all, unseen, tiles } = counts;
        assert_eq!([all, unseen, tiles].map(|count| count.load(Ordering::Relaxed)), expected, "{name}");
    }
}
