//! Products of bf16 in all orders.

use std::hint::black_box;

use cpu::gemm::{
    BlockRule, BlocksProduct, Narrow, Orientation, PackingBuffers, PairsOperand, PairsProduct, Product, Write, gemm,
    gemm_blocks, gemm_pairs, gemm_rounded,
};
use cpu::instruction_set::InstructionSet;
use cpu::meter::Meter;
use cpu::peak::core_tile_flops_per_second;
use cpu::view::{MatMut, MatRef};
use device::{Bf16, Element};

use crate::{peak, seconds};

/// GFLOP/s of the best set's multiply-adds, in which chained products are summed, then of each set's own instructions.
pub fn peaks(sets: &[InstructionSet]) -> Vec<f64> {
    let of = |set: &InstructionSet| match set {
        InstructionSet::Amx => core_tile_flops_per_second().unwrap_or(f64::NAN) / 1e9,
        InstructionSet::Avx512 | InstructionSet::Avx2 | InstructionSet::Scalar => peak::gflops(*set),
    };
    sets.first().map(|set| peak::gflops(*set)).into_iter().chain(sets.iter().map(of)).collect()
}

/// A product with operands of bf16. A weight's gradient is in single precision, other results are of bf16.
pub struct Products {
    orientation: Orientation,
    sizes: (usize, usize, usize),
    a: Vec<Bf16>,
    b: Vec<Bf16>,
    single: Vec<f32>,
    narrow: Vec<Bf16>,
}

/// Where a product is stored.
enum Results<'a> {
    Single(MatMut<'a>),
    Narrow(MatMut<'a, Bf16>),
}

impl Products {
    pub fn new(orientation: Orientation, (m, n, k): (usize, usize, usize)) -> Self {
        let values = |len: usize| (0..len).map(|i| Bf16::narrow((i * 37 % 101) as f32 / 101.0 - 0.5)).collect();
        let (single, narrow) = (vec![0.0; m * n], vec![Bf16::default(); m * n]);
        Self { orientation, sizes: (m, n, k), a: values(m * k), b: values(k * n), single, narrow }
    }

    /// Least seconds of chained products on the best set, then of products in AMX order on each, in turns.
    pub fn best(&mut self, sets: &[InstructionSet], rounds: usize, packing: &mut PackingBuffers) -> Vec<f64> {
        let (m, n, k) = self.sizes;
        let flops = 2.0 * (m * n * k) as f64;
        let mut best = vec![f64::INFINITY; 1 + sets.len()];
        for _ in 0..rounds {
            best[0] = best[0].min(seconds(flops, || black_box(&mut *self).chained(sets[0], packing)));
            for (best, set) in best[1..].iter_mut().zip(sets) {
                *best = best.min(seconds(flops, || black_box(&mut *self).in_pairs(*set, packing)));
            }
        }
        best
    }

    /// Least seconds of products in blocks of 16 on each set.
    pub fn best_in_blocks(&mut self, sets: &[InstructionSet], rounds: usize, packing: &mut PackingBuffers) -> Vec<f64> {
        let (m, n, k) = self.sizes;
        let flops = 2.0 * (m * n * k) as f64;
        let mut best = vec![f64::INFINITY; sets.len()];
        for _ in 0..rounds {
            for (best, set) in best.iter_mut().zip(sets) {
                *best = best.min(seconds(flops, || black_box(&mut *self).in_blocks(*set, packing)));
            }
        }
        best
    }

    fn operands(&self) -> PairsProduct<'_> {
        let (m, n, k) = self.sizes;
        let (a, b) = match self.orientation {
            Orientation::Nt => (MatRef::dense(&self.a, m, k), MatRef::dense(&self.b, n, k)),
            Orientation::Nn => (MatRef::dense(&self.a, m, k), MatRef::dense(&self.b, k, n)),
            Orientation::Tn => (MatRef::dense(&self.a, k, m), MatRef::dense(&self.b, k, n)),
        };
        let [a, b] = [a, b].map(PairsOperand::Bf16);
        PairsProduct { orientation: self.orientation, a, b }
    }

    fn chained(&mut self, set: InstructionSet, packing: &mut PackingBuffers) {
        self.multiply(|PairsProduct { orientation, a, b }, result| {
            let (product, meter) = (Product { orientation, a: a.into(), b: b.into() }, &Meter::new());
            match result {
                Results::Single(c) => gemm(product, c, Write::Assign, None, packing, set, meter),
                Results::Narrow(c) => gemm_rounded(product, c, Write::Assign, None, packing, set, meter),
            }
        });
    }

    fn in_pairs(&mut self, set: InstructionSet, packing: &mut PackingBuffers) {
        self.multiply(|product, result| match result {
            Results::Single(c) => gemm_pairs(product, c, Write::Assign, None, packing, set, &Meter::new()),
            Results::Narrow(c) => gemm_pairs(product, c, Write::Assign, None, packing, set, &Meter::new()),
        });
    }

    fn in_blocks(&mut self, set: InstructionSet, packing: &mut PackingBuffers) {
        self.multiply(|PairsProduct { orientation, a, b }, result| {
            let factors = Product { orientation, a: a.into(), b: b.into() };
            let product = BlocksProduct { factors, narrow: Narrow::Bf16, rule: BlockRule::BLOCKS16 };
            match result {
                Results::Single(c) => gemm_blocks(product, c, Write::Assign, None, packing, set, &Meter::new()),
                Results::Narrow(c) => gemm_blocks(product, c, Write::Assign, None, packing, set, &Meter::new()),
            }
        });
    }

    /// Runs a kernel on the operands and what its results are stored in.
    fn multiply(&mut self, kernel: impl FnOnce(PairsProduct<'_>, Results<'_>)) {
        let (m, n, _) = self.sizes;
        let (mut single, mut narrow) = (std::mem::take(&mut self.single), std::mem::take(&mut self.narrow));
        let result = match self.orientation {
            Orientation::Tn => Results::Single(MatMut::dense(&mut single, m, n)),
            Orientation::Nt | Orientation::Nn => Results::Narrow(MatMut::dense(&mut narrow, m, n)),
        };
        kernel(self.operands(), result);
        (self.single, self.narrow) = (single, narrow);
    }
}
