//! Errors of the orders of products against exact sums, on the same operands of bf16.
//!
//! `cargo test -p cpu --test suite blocks::errors -- --nocapture` prints them.

use cpu::gemm::{
    BlockRule, BlocksProduct, Narrow, Orientation, PackingBuffers, PairsOperand, PairsProduct, Product, Write, gemm,
    gemm_blocks, gemm_pairs,
};
use cpu::instruction_set::InstructionSet;
use cpu::meter::Meter;
use cpu::view::{MatMut, MatRef};
use device::{Bf16, Element};

use crate::blocks::case::Random;

/// Rows and columns: 1,024 sums for each length.
const SIDE: usize = 32;
const U: f64 = 1.0 / (1 << 24) as f64;

/// How operands are drawn.
#[derive(Clone, Copy, Debug)]
enum Drawn {
    /// Normal, of mean zero.
    Normal,
    /// The magnitudes of such.
    Positive,
}

fn normal(random: &mut Random) -> f64 {
    let uniform = |random: &mut Random| (random.next() as f64 + 0.5) / f64::from(1u32 << 31);
    let (radius, angle) = ((-2.0 * uniform(random).ln()).sqrt(), std::f64::consts::TAU * uniform(random));
    radius * angle.cos()
}

/// An order: its name, what it makes of `a[SIDE, K]` and `b[SIDE, K]`, and the bound of its error in u sum |a b|.
struct Order {
    name: &'static str,
    multiply: fn(MatRef<'_, Bf16>, MatRef<'_, Bf16>, MatMut<'_>),
    bound: fn(usize) -> f64,
}

fn in_blocks(rule: BlockRule, a: MatRef<'_, Bf16>, b: MatRef<'_, Bf16>, c: MatMut<'_>) {
    let factors = Product { orientation: Orientation::Nt, a: a.into(), b: b.into() };
    let product = BlocksProduct { factors, narrow: Narrow::Bf16, rule };
    let (packing, set) = (&mut PackingBuffers::new(), InstructionSet::detect());
    gemm_blocks(product, c, Write::Assign, None, packing, set, &Meter::new());
}

/// Bounds: those of `cpu::gemm` and `cpu::gemm::pairs`, and those that `docs/numerics.md` derives for blocks.
const ORDERS: [Order; 4] = [
    Order {
        name: "chained",
        multiply: |a, b, c| {
            let product = Product { orientation: Orientation::Nt, a: a.into(), b: b.into() };
            let (packing, set) = (&mut PackingBuffers::new(), InstructionSet::detect());
            gemm(product, c, Write::Assign, None, packing, set, &Meter::new());
        },
        bound: |k| (k.min(256) + k.div_ceil(256)) as f64,
    },
    Order {
        name: "pairs",
        multiply: |a, b, c| {
            let [a, b] = [a, b].map(PairsOperand::Bf16);
            let (packing, set) = (&mut PackingBuffers::new(), InstructionSet::detect());
            gemm_pairs(
                PairsProduct { orientation: Orientation::Nt, a, b },
                c,
                Write::Assign,
                None,
                packing,
                set,
                &Meter::new(),
            );
        },
        bound: |k| (k.min(32).div_ceil(2) + 1 + k.div_ceil(32)) as f64,
    },
    Order {
        name: "blocks16",
        multiply: |a, b, c| in_blocks(BlockRule::BLOCKS16, a, b, c),
        bound: |k| 10.5 * k.div_ceil(16) as f64,
    },
    Order {
        name: "blocks8",
        multiply: |a, b, c| in_blocks(BlockRule::BLOCKS8, a, b, c),
        bound: |k| 11.0 * k.div_ceil(8) as f64,
    },
];

/// Root mean square error over root mean square sum, mean error over mean magnitude of sums, the largest in u sum |a
/// b|.
#[test]
fn errors_of_the_orders_stay_within_their_bounds() {
    let random = &mut Random(21);
    for drawn in [Drawn::Normal, Drawn::Positive] {
        for k in [16, 64, 256, 1024, 4096, 16384] {
            let mut draw = || -> Vec<Bf16> {
                let number = |random: &mut Random| match drawn {
                    Drawn::Normal => normal(random),
                    Drawn::Positive => normal(random).abs(),
                };
                (0..SIDE * k).map(|_| Bf16::narrow(number(random) as f32)).collect()
            };
            let (a, b) = (draw(), draw());
            for Order { name, multiply, bound } in ORDERS {
                let mut c = vec![0.0f32; SIDE * SIDE];
                let [a, b] = [&a, &b].map(|of| MatRef::dense(of, SIDE, k));
                multiply(a, b, MatMut::dense(&mut c, SIDE, SIDE));
                let (mut squares, mut sums, mut shrinkage, mut largest) = (0.0, 0.0, 0.0, 0.0f64);
                for (at, actual) in c.iter().enumerate() {
                    let terms = a.row(at / SIDE).iter().zip(b.row(at % SIDE));
                    let (exact, size) = terms.fold((0.0, 0.0), |(sum, size), (a, b)| {
                        let product = f64::from(a.widen()) * f64::from(b.widen());
                        (sum + product, size + product.abs())
                    });
                    let error = f64::from(*actual) - exact;
                    squares += error * error;
                    sums += exact * exact;
                    shrinkage -= error * exact.signum() / (SIDE * SIDE) as f64;
                    largest = largest.max(error.abs() / (U * size));
                }
                let scale = (sums / (SIDE * SIDE) as f64).sqrt();
                println!(
                    "{drawn:?} K = {k:5} {name:8}: rms {:.2e}, toward zero {:+.2e}, largest {largest:.2} u sum |a b|",
                    (squares / sums).sqrt(),
                    shrinkage / scale
                );
                assert!(largest <= bound(k), "{drawn:?} {name} K = {k}: {largest} of {}", bound(k));
            }
        }
    }
}
