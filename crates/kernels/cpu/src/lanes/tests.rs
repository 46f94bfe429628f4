//! Every operation gives the same bits on every instruction set of this machine.

use super::*;

const ROUNDS: usize = 64;

/// Sixteen floats of every kind: random bits, with zeros, infinities, subnormals and NaNs of both signs among them.
fn sample(round: usize) -> [f32; LANES] {
    std::array::from_fn(|lane| {
        let words = philox::philox4x32_10([round as u32, lane as u32, 0, 0], [1, 2]);
        let special = [0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, f32::MIN_POSITIVE / 4.0, 1.0, f32::NAN, -f32::NAN];
        match words[1] % 8 {
            0 => special[words[2] as usize % special.len()],
            1..4 => f32::from_bits(words[0]),
            _ => philox::half_open_f32(words[3]) * 20.0 - 10.0,
        }
    })
}

/// All operations on one pair of blocks, as bits; NaNs of any payload count as one value.
struct AllOperations(usize);

impl Kernel for AllOperations {
    type Output = Vec<u32>;
    #[inline(always)]
    fn run<L: Lanes>(self) -> Vec<u32> {
        let [a, b, c] = [0, 1, 2].map(|offset| sample(3 * self.0 + offset));
        let (la, lb, lc) = (L::load(&a), L::load(&b), L::load(&c));
        let positive = L::splat(1e-30) + la.abs().min(L::splat(1e30));
        let (significand, exponent) = positive.significand_and_exponent();
        let results = [
            la + lb,
            la - lb,
            la * lb,
            la / lb,
            -la,
            la.mul_add(lb, lc),
            la.abs().sqrt(),
            la.max(lb),
            la.min(lb),
            la.abs(),
            la.copysign(lb),
            la.round(),
            significand.scaled(lb.round().max(L::splat(-124.0)).min(L::splat(128.0))),
            significand,
            exponent,
            L::select(la.less(lb), lc, la),
            L::splat(la.reduce_sum()),
            L::splat(lb.reduce_max()),
        ];
        let mut bits = Vec::new();
        let mut out = [0.0; LANES];
        for result in results {
            result.store(&mut out);
            bits.extend(out.map(canonical));
        }
        for count in 0..LANES {
            L::load_partial(&a[..count], 7.0).store(&mut out);
            bits.extend(out.map(canonical));
            let mut around = [9.0; LANES];
            la.store_partial(&mut around[..count]);
            bits.extend(around.map(canonical));
        }
        // A NaN would hide all other terms.
        let term = |value: f32| if value.is_nan() { 0.0 } else { value.clamp(-1e3, 1e3) };
        let row: Vec<f32> = (0..100).map(|i| term(sample(i)[i % LANES])).collect();
        for len in [0, 1, 15, 16, 17, 31, 100] {
            let sum = row_sum(len, |block| block.load::<L>(&row) + L::splat(1.0));
            bits.push((sum as f32).to_bits());
        }
        bits
    }
}

fn canonical(value: f32) -> u32 {
    if value.is_nan() { f32::NAN.to_bits() } else { value.to_bits() }
}

#[test]
fn instruction_sets_agree_to_the_bit() {
    for round in 0..ROUNDS {
        let scalar = run(InstructionSet::Scalar, AllOperations(round));
        for set in InstructionSet::available() {
            assert_eq!(run(set, AllOperations(round)), scalar, "{set:?}, round {round}");
        }
    }
}

#[test]
fn a_row_is_summed_in_the_written_order() {
    struct Sum<'a>(&'a [f32]);
    impl Kernel for Sum<'_> {
        type Output = f64;
        #[inline(always)]
        fn run<L: Lanes>(self) -> f64 {
            row_sum(self.0.len(), |block| block.load_or::<L>(self.0, 3.0))
        }
    }
    let row: Vec<f32> = (0..5000).map(|i| 1.0 / (1.0 + i as f32)).collect();
    for len in [0, 1, 75, 1023, 1024, 1025, 2048, 5000] {
        let mut total = 0.0;
        for chunk in row[..len].chunks(1024) {
            let mut lanes = [0f32; LANES];
            for (i, value) in chunk.iter().enumerate() {
                lanes[i % LANES] += value;
            }
            for width in [8, 4, 2, 1] {
                for lane in 0..width {
                    lanes[lane] += lanes[lane + width];
                }
            }
            total += f64::from(lanes[0]);
        }
        for set in InstructionSet::available() {
            assert_eq!(run(set, Sum(&row[..len])), total, "{set:?}, {len} elements");
        }
    }
}
