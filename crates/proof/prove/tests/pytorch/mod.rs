//! Whole runs against an independent implementation: the same models, written in PyTorch and trained there in double
//! precision for ten steps (the GPT-NeoX for twenty, at a fifth of the rate) by `tools/reference/gpt.py`, from the
//! same weights and the same text.
//!
//! Let u = 2^-24. PyTorch's side is exact compared with ours; what it gives is stored in single precision, within u.
//!
//! **Gradients: 1e-5** relative Frobenius distance per tensor. Under random rounding a chain of K terms is off by u
//! sqrt(K / 6) of its result (`docs/numerics.md`), 1.3e-7 for the longest, K = 31. A gradient has passed at most R = 4
//! L + 2 = 14 such stages forward and as many backward; their errors add in quadrature to 7e-7, and as much again comes
//! from the norms, softmax and activations between them, of a few u each. Softmax takes the mean of its gradient away,
//! and norms the part along their input; in the gradients of queries, keys and their norms little is left of larger
//! terms, a quarter at worst: 6e-6.
//!
//! **Losses and norms: 1e-5** relative. A loss is a mean over tens of labels, off by less than a gradient; over ten
//! steps weights
//! drift apart as below, and the loss by that times the norm of the gradient, at most 5: 5e-6.
//!
//! **Weights: 1e-5** relative Frobenius distance per tensor. An AdamW step moves a weight by lr = 5e-3 times a number
//! of size 1 that
//! is off by what the gradients are off, 6e-6 at worst, and rounds it once. Against weights of size 0.05 (biases) and
//! more, ten
//! steps that err the same way are 10 (5e-3 x 6e-6 / 0.05 + u) = 7e-6 apart. PyTorch divides by the norm plus 1e-6
//! where it clips, which
//! scales gradients by 1e-6, and AdamW forgets scales.
//!
//! **Products with `"pairs"`** have the same bounds. In the counting of `docs/numerics.md` a chained sum over K makes
//! K / 2
//! roundings. In terms of bf16 a block of 32 steps makes 8 in its two chains (K / 4 where K is shorter) and one where
//! they
//! are added. Then six sums round the running sum of all blocks, of which the first five of the first block are 2^-8 as
//! large. Together that is K / 4 + 2 up to K = 32, and 9 + 6 K / 64 beyond. Products of terms that are left out are
//! 2^-24 of their step at most, of either sign. From K = 8 on a chained sum makes no fewer roundings. The shortest
//! product
//! of these layouts has K = 6: 3.5 roundings in place of 3.
//!
//! Key biases of dims that are not rotated are left out, and with them their neighbours: their exact gradient is
//! zero, and AdamW makes steps of rounding errors.

mod long_sequence;
mod vectors;

use config::{
    Activation, Blocks, ChunkOrder, ContextKind, ContextParallel, Degrees, Pairing, Parallelism, Position, Precision,
    Products, ScheduleKind, TrainSpec, ZeroStage,
};
use prove::{Distance, Outcome, ProofError, outcome_from};
use testkit::layout::{Layout, engine};
use testkit::models::plain_layout;
use vectors::{Vectors, all};

const BOUND: f64 = 1e-5;

/// Degrees (dp, tp, pp) and sequences per microbatch. The vocabulary of 31 is padded where tp is 2.
const LAYOUTS: [((usize, usize, usize), usize); 5] =
    [((1, 1, 1), 8), ((1, 2, 1), 2), ((1, 1, 2), 2), ((4, 1, 1), 1), ((2, 2, 2), 1)];

fn parallelism((dp, tp, pp): (usize, usize, usize), microbatch_size: usize) -> Parallelism {
    let zero = if dp > 1 { ZeroStage::One } else { ZeroStage::Off };
    Parallelism { zero, ..plain_layout(dp, tp, pp, microbatch_size) }
}

/// Both orders of products.
const PRODUCTS: [Products; 2] = [Products::Chained, Products::Pairs];

/// The layout of a model of `vectors` with this order of products.
fn layout(vectors: &Vectors, parallelism: Parallelism, products: Products) -> Layout {
    let train = TrainSpec { precision: Precision::Fp32(products), ..vectors.train.clone() };
    Layout { model: vectors.model.clone(), parallelism, train }
}

fn run(layout: &Layout, vectors: &Vectors) -> Result<Outcome, ProofError> {
    let setup = layout.setup()?;
    outcome_from(&setup, &*engine(&setup, 1), &vectors.text, Some(&vectors.initial))
}

fn distance(vectors: &Vectors, layout: &Layout) -> Distance {
    let ours = run(layout, vectors).unwrap_or_else(|error| panic!("{}: {error}", vectors.name));
    let is_free = |name: &str| layout.model.has_idle_key_biases() && name.ends_with("key.bias");
    Distance::between(&vectors.outcome, &ours, is_free)
}

fn agrees(distance: &Distance) -> bool {
    [distance.loss, distance.norm, distance.gradient.0, distance.weight.0].iter().all(|&far| far <= BOUND)
}

#[test]
fn every_layout_learns_what_pytorch_learns() {
    for vectors in all() {
        println!("{}: losses of PyTorch in single precision are {:.1e} away", vectors.name, vectors.loss_in_float);
        for ((degrees, microbatch_size), products) in
            LAYOUTS.into_iter().flat_map(|layout| PRODUCTS.map(|of| (layout, of)))
        {
            let layout = layout(&vectors, parallelism(degrees, microbatch_size), products);
            let distance = distance(&vectors, &layout);
            let Distance { loss, norm, gradient, weight, .. } = &distance;
            println!(
                "  {degrees:?} {products:?}: loss {loss:.1e}, norm {norm:.1e}, gradient {:.1e} ({}), weight {:.1e} ({})",
                gradient.0, gradient.1, weight.0, weight.1
            );
            assert!(agrees(&distance), "{} on {degrees:?}, {products:?}: {distance:?}", vectors.name);
        }
    }
}

/// Sequences of 12 tokens with several documents, shared by 2 and 6 ranks in balanced chunks and by 4 in contiguous
/// ones, also with every other axis; by 2 that exchange heads, and by 6 and 3 that pass blocks of keys around. No sum
/// is longer than on one rank, so the bounds are the same.
#[test]
fn ranks_that_share_sequences_learn_what_pytorch_learns() {
    let of = |kind, cp, chunks, degrees| {
        let plain = parallelism(degrees, 1);
        let degrees = Degrees { cp, ..plain.degrees };
        Parallelism { degrees, context: ContextParallel { kind, chunks }, ..plain }
    };
    let shared = |cp, chunks, degrees| of(ContextKind::Gather, cp, chunks, degrees);
    let layouts = [
        shared(2, ChunkOrder::Balanced, (1, 1, 1)),
        shared(6, ChunkOrder::Balanced, (1, 1, 1)),
        shared(4, ChunkOrder::Contiguous, (1, 1, 1)),
        shared(2, ChunkOrder::Balanced, (2, 2, 2)),
        of(ContextKind::Heads, 2, ChunkOrder::Contiguous, (1, 1, 1)),
        of(ContextKind::Heads, 2, ChunkOrder::Balanced, (2, 1, 2)),
        of(ContextKind::Ring, 6, ChunkOrder::Balanced, (1, 1, 1)),
        of(ContextKind::Ring, 3, ChunkOrder::Contiguous, (2, 2, 1)),
    ];
    for vectors in all() {
        for (parallelism, products) in layouts.iter().flat_map(|layout| PRODUCTS.map(|of| (layout, of))) {
            let distance = distance(&vectors, &layout(&vectors, parallelism.clone(), products));
            println!("  {} on {}, {products:?}: {distance:?}", vectors.name, parallelism.degrees);
            assert!(agrees(&distance), "{} on {}, {products:?}: {distance:?}", vectors.name, parallelism.degrees);
        }
    }
}

/// Both orders of products agree with PyTorch, but not bit by bit with each other: the test above has trained in both.
#[test]
fn the_order_of_products_changes_bits() {
    for vectors in all() {
        let [chained, pairs] = PRODUCTS.map(|products| layout(&vectors, parallelism((1, 1, 1), 8), products));
        let [chained, pairs] = [chained, pairs].map(|layout| run(&layout, &vectors).expect("runs"));
        assert!(!Distance::between(&chained, &pairs, |_| false).same_bits, "{}", vectors.name);
    }
}

#[test]
fn gpipe_learns_it_too() {
    for vectors in all() {
        let schedule = ScheduleKind::GPipe.into();
        let parallelism = Parallelism { schedule, ..parallelism((1, 1, 2), 2) };
        for products in PRODUCTS {
            assert!(agrees(&distance(&vectors, &layout(&vectors, parallelism.clone(), products))));
        }
    }
}

/// A small change of the computation, reported by its name.
type Change = (&'static str, fn(&mut Layout));

fn rotary(layout: &mut Layout, change: impl Fn(&mut f32, &mut usize, &mut Pairing)) {
    if let Position::Rotary { base, rotary_dims, pairing, .. } = &mut layout.model.position {
        change(base, rotary_dims, pairing);
    }
}

const CHANGES_OF_ALL: [Change; 8] = [
    ("epsilon of norms", |layout| layout.model.norm.epsilon = 1.1e-5),
    ("weight decay", |layout| layout.train.weight_decay = 0.11),
    ("beta1", |layout| layout.train.beta1 = 0.901),
    ("beta2", |layout| layout.train.beta2 = 0.951),
    ("warm-up", |layout| layout.train.warmup_steps = 4),
    ("minimum of the learning rate", |layout| layout.train.min_learning_rate = 6e-4),
    ("no clipping", |layout| layout.train.clip_norm = None),
    ("blocks", |layout| {
        layout.model.blocks = match layout.model.blocks {
            Blocks::Sequential | Blocks::PostNorm | Blocks::Sandwich => Blocks::Parallel,
            Blocks::Parallel => Blocks::Sequential,
            Blocks::DeepNorm { alpha } => Blocks::DeepNorm { alpha: 1.001 * alpha },
        }
    }),
];

const CHANGES_OF_PLAIN: [Change; 1] = [("form of GELU", |layout| {
    layout.model.activation = match layout.model.activation {
        Activation::GeluTanh => Activation::GeluErf,
        Activation::GeluErf
        | Activation::GeluSigmoid
        | Activation::Relu
        | Activation::SwiGlu
        | Activation::GeGlu
        | Activation::GeGluTanh
        | Activation::SwiGluClamped => Activation::GeluTanh,
    }
})];

const CHANGES_OF_GATED: [Change; 1] = [("gated activation", |layout| {
    layout.model.activation = match layout.model.activation {
        Activation::SwiGlu => Activation::GeGlu,
        Activation::GeGlu
        | Activation::GeGluTanh
        | Activation::SwiGluClamped
        | Activation::GeluTanh
        | Activation::GeluErf
        | Activation::GeluSigmoid
        | Activation::Relu => Activation::SwiGlu,
    }
})];

const CHANGES_OF_ROTARY: [Change; 3] = [
    ("base of angles", |layout| rotary(layout, |base, _, _| *base *= 1.01)),
    ("turned dims", |layout| rotary(layout, |_, rotary_dims, _| *rotary_dims -= 2)),
    ("pairs of dims", |layout| {
        rotary(layout, |_, _, pairing| {
            *pairing = if *pairing == Pairing::Half { Pairing::Interleaved } else { Pairing::Half };
        });
    }),
];

const CHANGES_OF_Z_LOSS: [Change; 1] =
    [("coefficient of the z-loss", |layout| layout.model.z_loss = layout.model.z_loss.map(|of| 1.01 * of))];

#[test]
fn what_is_computed_otherwise_is_found() {
    for vectors in all() {
        let of_activation = match vectors.model.activation.inputs_per_output() {
            1 => &CHANGES_OF_PLAIN,
            _ => &CHANGES_OF_GATED,
        };
        let of_position: &[Change] = match vectors.model.position {
            Position::Rotary { .. } => &CHANGES_OF_ROTARY,
            Position::Learned { .. } | Position::Alibi => &[],
        };
        let of_losses: &[Change] = if vectors.model.z_loss.is_some() { &CHANGES_OF_Z_LOSS } else { &[] };
        for (what, change) in CHANGES_OF_ALL.iter().chain(of_activation).chain(of_position).chain(of_losses) {
            let mut layout = layout(&vectors, parallelism((1, 1, 1), 8), Products::Chained);
            change(&mut layout);
            let distance = distance(&vectors, &layout);
            assert!(!agrees(&distance), "{}, {what}: {distance:?}", vectors.name);
        }
    }
}
