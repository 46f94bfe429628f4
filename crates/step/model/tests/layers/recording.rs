//! Footprints and records against sums made by hand and formulas from the literature.

use comm::Operation;
use config::{
    Activation, Blocks, GradientSums, LayerRecompute, ModelSpec, Products, SavedInputs, SequenceParallel, Unit,
    UnitClass,
};
use device::{Dtype, Write};
use model::{MicrobatchShape, TensorParallel};
use program::{Footprint, PassKind, Purpose};
use record::{RecordCase, UnitRecord, footprints, record_unit};

use crate::cases;

/// Sizes at which every tensor fills whole cache lines, so that bytes are sums of shapes.
const SHAPE: MicrobatchShape = MicrobatchShape::whole(2, 256);

/// GPT-2 style: width 192, 12 heads, four times as wide inside.
fn wide() -> ModelSpec {
    ModelSpec {
        hidden: 192,
        num_heads: 12,
        num_kv_heads: 12,
        head_dim: 16,
        ffn_hidden: 768,
        ffn_hidden_of_layers: None,
        experts: None,
        vocabulary: 1000,
        context: 256,
        dropout: 0.1,
        attention_dropout: 0.1,
        ..cases::gpt2()
    }
}

fn case(model: &ModelSpec, tp: TensorParallel) -> RecordCase<'_> {
    RecordCase {
        model,
        tp,
        ep: 1,
        shape: SHAPE,
        stored: Dtype::F32,
        products: Products::Chained,
        sums: GradientSums::Single,
        sequence_parallel: SequenceParallel::Off,
        recompute: LayerRecompute::Everything(SavedInputs::Whole),
        purpose: Purpose::Train,
        write: Write::Accumulate,
    }
}

fn record(model: &ModelSpec, size: usize, unit: Unit, phase: PassKind) -> UnitRecord {
    let tp = TensorParallel { size, position: 0 };
    record_unit(&case(model, tp), unit, phase).unwrap()
}

fn multiply_adds(model: &ModelSpec, size: usize, unit: Unit, phase: PassKind) -> u64 {
    record(model, size, unit, phase).record.total().multiply_adds
}

/// Bytes of tensors of these many floats, each on cache lines of its own.
fn bytes(floats: &[usize]) -> usize {
    floats.iter().map(|floats| (floats * 4).next_multiple_of(device::ALIGN_BYTES)).sum()
}

#[test]
fn footprints_are_the_sums_of_the_tensors() {
    let model = ModelSpec { qk_norm: config::QkNorm::Heads, dropout: 0.1, attention_dropout: 0.0, ..cases::llama() };
    // Two ranks: 2 query heads and 1 key head of 4, 10 feed-forward columns, 7 rows of the table; 12 tokens of width
    // 12.
    let (tokens, hidden, heads, kv_heads, head_dim, ffn, rows) = (12, 12, 2, 1, 4, 10, 7);
    let tp = TensorParallel { size: 2, position: 1 };
    let actual = footprints(&RecordCase { shape: cases::SHAPE, ..case(&model, tp) }).unwrap();
    let residual = tokens * hidden;
    let (qk, qkv) = (tokens * (heads + kv_heads) * head_dim, tokens * (heads + 2 * kv_heads) * head_dim);
    let stats = tokens * 2;

    assert_eq!(actual.batch_bytes, bytes(&[tokens, tokens, tokens, tokens * 2]));
    // Cosines and sines of 8 positions and 2 pairs; twice 10 words of 8 bytes; 4 floats.
    assert_eq!(actual.constant_bytes, bytes(&[16, 16]));
    assert_eq!(actual.loss_sums_bytes, bytes(&[20, 20, 4]));
    let embedding = Footprint {
        output_bytes: bytes(&[residual]),
        // The gradient in front of the dropout.
        pending_bytes: bytes(&[residual]),
        ..Footprint::default()
    };
    assert_eq!(actual.units[UnitClass::Embedding], embedding);
    let layer = Footprint {
        output_bytes: bytes(&[residual]),
        // Normed queries and keys, log sums, input of the activation.
        saved_until_input_bytes: bytes(&[qk, tokens * heads, 2 * tokens * ffn]),
        // Statistics of both norms, the projection, statistics of each head, attention's output, the stream between the
        // blocks.
        saved_until_weight_bytes: bytes(&[
            stats,
            qkv,
            (heads + kv_heads) * stats,
            tokens * heads * head_dim,
            residual,
            stats,
        ]),
        // Outputs of both norms, gradients of those of both blocks; gradients of: activated, hidden, norm; projection,
        // normed heads, norm.
        pending_bytes: bytes(&[residual; 4])
            + bytes(&[tokens * ffn, 2 * tokens * ffn, residual])
            + bytes(&[qkv, qk, residual]),
        // One column block of the feed-forward; or of the heads, next to the sums of all heads' keys and values.
        scratch_bytes: bytes(&[tokens * ffn])
            .max(bytes(&[tokens * heads * head_dim, 2 * tokens * kv_heads * head_dim])),
        ..Footprint::default()
    };
    assert_eq!(actual.units[UnitClass::Layer(0)], layer);
    let head = Footprint {
        // Norm and statistics, losses, gradient of the norm; logits, maxima and sums of a chunk, here of all tokens.
        scratch_bytes: bytes(&[residual, stats, tokens, residual, tokens * rows, tokens, 2 * tokens]),
        ..Footprint::default()
    };
    assert_eq!(actual.units[UnitClass::Head], head);
}

/// Activations that a rank keeps of a layer between its passes: the literature's number of 32-bit elements, and ours.
struct Kept {
    name: &'static str,
    /// Elements per token, from the formula's bytes at 16 bits.
    literature: f64,
    /// Bytes here.
    bytes: usize,
    /// Elements here, and what makes them differ.
    elements: usize,
    why: &'static str,
}

/// Korthikanti et al., table 2, at 16 bits with fused attention: `sbh (10 + 24/t)` bytes with tensor parallelism,
/// `sbh/t 34` with sequence parallelism, `2 sbh` with full recomputation. At 32 bits each two of these bytes are one
/// element, except that two of the ten are dropout masks, which counter-based random numbers make unnecessary: `4 +
/// 12/t`, `16/t`, 1 elements per token and column. The four are the inputs of two norms and of two column-parallel
/// maps; the twelve are queries, keys, values (3), attention's output (1), the activation's input (4) and output (4).
///
/// Here the outputs of the activation and of both norms are always recomputed, which leaves `2 + 8/t`, and statistics
/// of two norms and of the softmax are kept per row. Selective recomputation in the paper drops what fused attention
/// never has; here it drops attention's output as well.
fn kept(size: usize) -> Vec<Kept> {
    let model = wide();
    let (tokens, heads) = (SHAPE.tokens(), model.num_heads);
    let residual = tokens * model.hidden;
    let of = |sequence_parallel, recompute| {
        let tp = TensorParallel { size, position: 0 };
        footprints(&RecordCase { sequence_parallel, recompute, ..case(&model, tp) }).unwrap().units[UnitClass::Layer(0)]
    };
    // The input of the layer is the output of the unit before.
    let between =
        |layer: Footprint| layer.output_bytes + layer.saved_until_input_bytes + layer.saved_until_weight_bytes;
    let (off, on) = (SequenceParallel::Off, SequenceParallel::On);
    let (norm_statistics, softmax_statistics) = (4 * tokens, tokens * heads / size);
    let kept_in_blocks = residual * 8 / size + softmax_statistics;
    let core = residual / size + softmax_statistics;
    let t = size as f64;
    let activation = "outputs of the activation and of norms are recomputed; statistics per row are kept";
    let output = "outputs of the activation, norms and attention are recomputed; statistics of norms are kept";
    let full = LayerRecompute::Everything(SavedInputs::Whole);
    let kept = |name, literature, bytes, elements, why| Kept { name, literature, bytes, elements, why };
    vec![
        kept(
            "tensor parallel",
            4.0 + 12.0 / t,
            between(of(off, LayerRecompute::Nothing)),
            residual * 2 + norm_statistics + kept_in_blocks,
            activation,
        ),
        kept(
            "sequence parallel",
            16.0 / t,
            between(of(on, LayerRecompute::Nothing)),
            (residual * 2 + norm_statistics) / size + kept_in_blocks,
            activation,
        ),
        kept(
            "tensor parallel, selective",
            4.0 + 12.0 / t,
            between(of(off, LayerRecompute::Core)),
            residual * 2 + norm_statistics + kept_in_blocks - core,
            output,
        ),
        kept(
            "sequence parallel, selective",
            16.0 / t,
            between(of(on, LayerRecompute::Core)),
            (residual * 2 + norm_statistics) / size + kept_in_blocks - core,
            output,
        ),
        kept("full", 1.0, of(off, full).output_bytes, residual, ""),
        kept("full, sequence parallel", 1.0 / t, of(on, full).output_bytes, residual / size, ""),
        kept(
            "full, inputs sharded",
            1.0 / t,
            of(off, LayerRecompute::Everything(SavedInputs::Sharded)).saved_input_bytes,
            residual / size,
            "",
        ),
    ]
}

#[test]
fn saved_bytes_are_those_of_the_literature() {
    for size in [1, 2, 4] {
        for Kept { name, literature, bytes, elements, why } in kept(size) {
            let formula = literature * (SHAPE.tokens() * wide().hidden * 4) as f64;
            println!("tp {size}, {name:28}: formula {formula:9} bytes, recorded {bytes:9}. {why}");
            assert_eq!(bytes, elements * 4, "tp {size}, {name}");
            let differs = (bytes as f64 - formula).abs() > 0.02 * formula;
            assert_eq!(differs, !why.is_empty(), "tp {size}, {name}: {bytes} against {formula}");
        }
    }
}

/// Activations that are kept apart for recomputing the core are those that are otherwise kept with the rest.
#[test]
fn the_attention_core_is_a_part_of_what_is_saved() {
    for model in [wide(), ModelSpec { qk_norm: config::QkNorm::Heads, ..wide() }] {
        let of = |recompute| {
            let tp = TensorParallel { size: 2, position: 0 };
            footprints(&RecordCase { recompute, ..case(&model, tp) }).unwrap().units[UnitClass::Layer(0)]
        };
        let (kept, core) = (of(LayerRecompute::Nothing), of(LayerRecompute::Core));
        assert!(core.core_until_input_bytes > 0 && core.core_until_weight_bytes > 0, "{core:?}");
        assert_eq!(kept.saved_until_input_bytes, core.saved_until_input_bytes + core.core_until_input_bytes);
        assert_eq!(kept.saved_until_weight_bytes, core.saved_until_weight_bytes + core.core_until_weight_bytes);
    }
}

/// `72 B s h^2 (1 + s/(6h) + V/(12 l h))` floating-point operations per layer and step for full attention (Korthikanti
/// et al., equation 7): 12 T h^2 multiply-adds for each of the three passes. Attention's `s/(6h)` counts both products
/// over all pairs; ours are causal, and the backward pass computes one more product than twice the forward's, as
/// probabilities are not kept.
#[test]
fn multiply_adds_are_those_of_the_literature() {
    let model = wide();
    let (tokens, hidden, length) = (SHAPE.tokens() as u64, model.hidden as u64, SHAPE.sequence_length as u64);
    let product = SHAPE.sequences as u64 * length * (length + 1) / 2 * hidden;
    for size in [1, 2, 4] {
        let ranks = size as u64;
        let matrices = 12 * tokens * hidden * hidden / ranks;
        let layer = |phase| multiply_adds(&model, size, Unit::Layer(0), phase);
        assert_eq!(layer(PassKind::Forward), matrices + 2 * product / ranks);
        assert_eq!(layer(PassKind::BackwardInput), matrices + 5 * product / ranks);
        assert_eq!(layer(PassKind::BackwardWeight), matrices);
        // All but the down projection.
        assert_eq!(layer(PassKind::Recompute), matrices * 2 / 3 + 2 * product / ranks);
        let rows = model.padded_vocabulary(size) as u64 / ranks;
        assert_eq!(multiply_adds(&model, size, Unit::Head, PassKind::Forward), 3 * tokens * hidden * rows);
    }
    assert_eq!(
        multiply_adds(
            &ModelSpec { activation: Activation::SwiGlu, ..wide() },
            1,
            Unit::Layer(0),
            PassKind::BackwardWeight
        ),
        16 * tokens * hidden * hidden
    );
}

/// Two all-reduces of the residual in each layer's forward pass and two in its backward pass (Narayanan et al. 2021):
/// each rank sends `2 (t - 1) / t` of the tensor. Recomputation stops before the second. The head exchanges three
/// floats per token, in pieces so small that each is sent whole to each of the `t - 1` others, and the gradient.
#[test]
fn tensor_parallel_bytes_are_those_of_the_literature() {
    let model = wide();
    let floats = |size: usize, floats: usize| (2 * (size - 1) * floats * 4 / size) as u64;
    let residual = SHAPE.tokens() * model.hidden;
    for size in [2, 4] {
        let sent = |unit, phase| {
            let sent = record(&model, size, unit, phase).sent;
            assert!(sent.keys().all(|operation| *operation == Operation::AllReduce), "{unit:?}: {sent:?}");
            sent.values().map(|traffic| traffic.bytes).sum::<u64>()
        };
        assert_eq!(sent(Unit::Embedding, PassKind::Forward), floats(size, residual));
        assert_eq!(sent(Unit::Layer(0), PassKind::Forward), floats(size, 2 * residual));
        assert_eq!(sent(Unit::Layer(0), PassKind::Recompute), floats(size, residual));
        assert_eq!(sent(Unit::Layer(0), PassKind::BackwardInput), floats(size, 2 * residual));
        let small = ((size - 1) * 3 * SHAPE.tokens() * 4) as u64;
        assert_eq!(sent(Unit::Head, PassKind::Forward), small + floats(size, residual));
        for unit in [Unit::Embedding, Unit::Layer(0), Unit::Head] {
            assert_eq!(sent(unit, PassKind::BackwardWeight), 0, "{unit:?}");
        }
    }
}

/// With sequence parallelism an all-reduce becomes a reduce-scatter and an all-gather, which send `(t - 1) / t` of the
/// tensor each: the same bytes (Korthikanti et al., section 4.2.2). The backward pass of the weights gathers the inputs
/// of column-parallel maps again, as theirs does; and, as it may run much later than that of the input, the gradients
/// after row-parallel layers as well, which they still have. The embedding scatters its sum and gathers its gradient.
#[test]
fn sequence_parallel_bytes_are_those_of_the_literature() {
    let model = wide();
    let residual = SHAPE.tokens() * model.hidden;
    for size in [2, 4] {
        let slices = |count: usize| (count * (size - 1) * residual * 4 / size) as u64;
        let sent = |unit, phase, operation| {
            let tp = TensorParallel { size, position: 0 };
            let case = RecordCase { sequence_parallel: SequenceParallel::On, ..case(&model, tp) };
            let sent = record_unit(&case, unit, phase).unwrap().sent;
            sent.get(&operation).map_or(0, |traffic| traffic.bytes)
        };
        let (layer, embedding, head) = (Unit::Layer(0), Unit::Embedding, Unit::Head);
        let (gathered, scattered) = (Operation::AllGather, Operation::ReduceScatter);
        for (unit, phase, gathers, scatters) in [
            (embedding, PassKind::Forward, 0, 1),
            (embedding, PassKind::BackwardInput, 0, 0),
            (embedding, PassKind::BackwardWeight, 1, 0),
            (layer, PassKind::Forward, 2, 2),
            (layer, PassKind::Recompute, 2, 1),
            (layer, PassKind::BackwardInput, 2, 2),
            (layer, PassKind::BackwardWeight, 4, 0),
            (head, PassKind::Forward, 1, 1),
        ] {
            assert_eq!(sent(unit, phase, gathered), slices(gathers), "{unit:?} {phase:?} gathers");
            assert_eq!(sent(unit, phase, scattered), slices(scatters), "{unit:?} {phase:?} scatters");
            if unit != head {
                assert_eq!(sent(unit, phase, Operation::AllReduce), 0, "{unit:?} {phase:?}");
            }
        }
    }
}

/// Parallel blocks are added up before their sum over the ranks is taken, unless each has a mask of its own.
#[test]
fn parallel_blocks_are_summed_once() {
    for (dropout, sums) in [(0.0, 1), (0.1, 2)] {
        let model = ModelSpec { dropout, blocks: Blocks::Parallel, ..wide() };
        let sent = |sequence_parallel, phase, operation| {
            let case = RecordCase { sequence_parallel, ..case(&model, TensorParallel { size: 2, position: 0 }) };
            let sent = record_unit(&case, Unit::Layer(0), phase).unwrap().sent;
            // Of two ranks, each sends half of the stream to gather or scatter it, and both halves to sum it.
            let residual_bytes = (SHAPE.tokens() * model.hidden * 4) as u64;
            let once = if operation == Operation::AllReduce { residual_bytes } else { residual_bytes / 2 };
            sent.get(&operation).map_or(0, |traffic| traffic.bytes) / once
        };
        let (plain, sequence) = (SequenceParallel::Off, SequenceParallel::On);
        assert_eq!(sent(plain, PassKind::Forward, Operation::AllReduce), sums, "dropout {dropout}");
        assert_eq!(sent(plain, PassKind::Recompute, Operation::AllReduce), 0, "dropout {dropout}");
        // Their norms are two, and each passes its own gradient on.
        assert_eq!(sent(plain, PassKind::BackwardInput, Operation::AllReduce), 2, "dropout {dropout}");
        assert_eq!(sent(sequence, PassKind::Forward, Operation::ReduceScatter), sums, "dropout {dropout}");
        assert_eq!(sent(sequence, PassKind::Forward, Operation::AllGather), 2, "dropout {dropout}");
    }
}

#[test]
fn evaluation_and_generation_need_no_more_than_training() {
    let (tp, model) = (TensorParallel { size: 2, position: 0 }, wide());
    let of = |purpose| footprints(&RecordCase { purpose, ..case(&model, tp) }).unwrap();
    let (train, evaluate, generate) = (of(Purpose::Train), of(Purpose::Evaluate), of(Purpose::Generate));
    assert!(evaluate.units[UnitClass::Head].scratch_bytes < train.units[UnitClass::Head].scratch_bytes);
    assert_eq!(evaluate.units[UnitClass::Layer(0)].pending_bytes, 0);
    assert_eq!(evaluate.units[UnitClass::Layer(0)].scratch_bytes, train.units[UnitClass::Layer(0)].scratch_bytes);
    assert_eq!(generate.units[UnitClass::Head].output_bytes, bytes(&[2 * SHAPE.tokens() * 500]));
}

/// A term of an exact sum is whole in single precision before it is rounded: the largest matrix of a unit, besides what
/// a rank gathers or makes for it. Each of the two sequences is a term of each of a layer's twelve tensors.
#[test]
fn exact_sums_round_each_sequence_once() {
    let (tp, model) = (TensorParallel { size: 2, position: 0 }, wide());
    let of = |sums| footprints(&RecordCase { sums, ..case(&model, tp) }).unwrap();
    let (single, exact) = (of(GradientSums::Single), of(GradientSums::Exact));
    let table = bytes(&[500 * model.hidden]);
    assert_eq!(exact.units[UnitClass::Embedding].scratch_bytes, table);
    assert_eq!(exact.units[UnitClass::Head].scratch_bytes, single.units[UnitClass::Head].scratch_bytes + table);
    assert_eq!(
        Footprint { scratch_bytes: 0, ..single.units[UnitClass::Layer(0)] },
        Footprint { scratch_bytes: 0, ..exact.units[UnitClass::Layer(0)] }
    );
    let rounded = |unit, phase| {
        let case = RecordCase { sums: GradientSums::Exact, ..case(&model, tp) };
        record_unit(&case, unit, phase).unwrap().record.operations["add_rounded"].0
    };
    assert_eq!(rounded(Unit::Layer(0), PassKind::BackwardWeight), 12 * SHAPE.sequences as u64);
    assert_eq!(rounded(Unit::Embedding, PassKind::BackwardWeight), 2 * SHAPE.sequences as u64);
    assert_eq!(rounded(Unit::Head, PassKind::Forward), 3 * SHAPE.sequences as u64);
}

/// Values in bf16 or fp16 take half the bytes. Statistics of norms (4 numbers a token) and log-sum-exps (one a head)
/// stay single: for wide models nothing next to the rest.
#[test]
fn narrow_activations_take_half_the_bytes() {
    let (tp, model) = (TensorParallel { size: 2, position: 0 }, wide());
    let layer = |stored| footprints(&RecordCase { stored, ..case(&model, tp) }).unwrap().units[UnitClass::Layer(0)];
    let kept = |layer: &Footprint| layer.output_bytes + layer.saved_until_input_bytes + layer.saved_until_weight_bytes;
    let single = layer(Dtype::F32);
    let statistics = SHAPE.tokens() * (2 * 2 + model.num_heads / 2) * 4;
    for stored in [Dtype::Bf16, Dtype::F16] {
        let narrow = layer(stored);
        println!("bytes of a layer and microbatch, kept: {} in F32, {} in {stored:?}", kept(&single), kept(&narrow));
        println!("                            pending: {} in F32, {}", single.pending_bytes, narrow.pending_bytes);
        println!("                            scratch: {} in F32, {}", single.scratch_bytes, narrow.scratch_bytes);
        assert_eq!(2 * narrow.output_bytes, single.output_bytes);
        assert_eq!(2 * narrow.pending_bytes, single.pending_bytes);
        assert_eq!(2 * (kept(&narrow) - statistics), kept(&single) - statistics);
        let sent = |stored| {
            let sent = record_unit(&RecordCase { stored, ..case(&model, tp) }, Unit::Layer(0), PassKind::Forward)
                .unwrap()
                .sent;
            sent.values().map(|traffic| traffic.bytes).sum::<u64>()
        };
        assert_eq!(2 * sent(stored), sent(Dtype::F32));
    }
}
