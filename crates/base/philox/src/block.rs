//! The Philox4x32-10 block function.

/// Multipliers of the two halves of a round (SC11 paper, table 2; Random123 `PHILOX_M4x32_*`).
const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
/// Additive constants of the key schedule: the golden ratio and sqrt(3) - 1 (Random123 `PHILOX_W32_*`).
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
const ROUNDS: usize = 10;

/// The key `[low word, high word]` of a 64-bit seed.
#[inline(always)]
pub const fn key_of_seed(seed: u64) -> [u32; 2] {
    [seed as u32, (seed >> 32) as u32]
}

/// The key of initial weights: separated from dropout masks of the same seed.
pub const fn key_of_initial_weights(seed: u64) -> [u32; 2] {
    key_of_seed(seed ^ 0x696e_6974_7761_6974)
}

/// High and low word of a 32 x 32 bit product.
#[inline(always)]
const fn multiply(a: u32, b: u32) -> (u32, u32) {
    let product = a as u64 * b as u64;
    ((product >> 32) as u32, product as u32)
}

#[inline(always)]
const fn next_key(key: [u32; 2]) -> [u32; 2] {
    [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])]
}

#[inline(always)]
const fn round(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let (high0, low0) = multiply(MULTIPLIERS[0], counter[0]);
    let (high1, low1) = multiply(MULTIPLIERS[1], counter[2]);
    [high1 ^ counter[1] ^ key[0], low1, high0 ^ counter[3] ^ key[1], low0]
}

/// Four random words for `counter` under `key`: Philox4x32 with ten rounds.
#[inline(always)]
pub fn philox4x32_10(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let mut words = round(counter, key);
    let mut key = key;
    for _ in 1..ROUNDS {
        key = next_key(key);
        words = round(words, key);
    }
    words
}

/// Sixteen blocks under one key. `counters[word][lane]` is word `word` of the counter of block `lane`,
/// and so is the result: `out[word][lane]` is word `word` of `philox4x32_10` of block `lane`.
///
/// Always inlined, so that it is compiled with the vector instructions of its caller.
#[inline(always)]
pub fn philox4x32_10_x16(counters: [[u32; 16]; 4], key: [u32; 2]) -> [[u32; 16]; 4] {
    // Words live in the low halves of 64-bit lanes, where a vector multiplication wants its factors and leaves its
    // product, so that no round moves values between lanes.
    let mut wide = counters.map(|word| word.map(u64::from));
    let mut key = key;
    for index in 0..ROUNDS {
        if index > 0 {
            key = next_key(key);
        }
        #[expect(clippy::needless_range_loop, reason = "four arrays advance together, in a form that vectorizes")]
        for lane in 0..16 {
            let low = |word: u64| word & 0xffff_ffff;
            let product0 = u64::from(MULTIPLIERS[0]) * low(wide[0][lane]);
            let product1 = u64::from(MULTIPLIERS[1]) * low(wide[2][lane]);
            wide[0][lane] = (product1 >> 32) ^ low(wide[1][lane]) ^ u64::from(key[0]);
            wide[1][lane] = product1;
            wide[2][lane] = (product0 >> 32) ^ low(wide[3][lane]) ^ u64::from(key[1]);
            wide[3][lane] = product0;
        }
    }
    wide.map(|word| word.map(|word| word as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The known-answer vectors `philox4x32 10` that are published with Random123 (`kat_vectors`).
    #[test]
    fn equals_the_published_known_answers() {
        let zero = philox4x32_10([0; 4], [0; 2]);
        assert_eq!(zero, [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        let ones = philox4x32_10([u32::MAX; 4], [u32::MAX; 2]);
        assert_eq!(ones, [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
        let pi = philox4x32_10([0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344], [0xa409_3822, 0x299f_31d0]);
        assert_eq!(pi, [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]);
    }

    #[test]
    fn sixteen_blocks_equal_single_blocks() {
        let counters: [[u32; 16]; 4] = std::array::from_fn(|word| {
            std::array::from_fn(|lane| (word as u32 * 0x9e37 + lane as u32).wrapping_mul(0x85eb_ca6b))
        });
        let key = key_of_seed(0x0123_4567_89ab_cdef);
        assert_eq!(key, [0x89ab_cdef, 0x0123_4567]);
        let wide = philox4x32_10_x16(counters, key);
        for lane in 0..16 {
            let single = philox4x32_10(std::array::from_fn(|word| counters[word][lane]), key);
            assert_eq!(single, std::array::from_fn(|word| wide[word][lane]));
        }
    }
}
