//! Blocks of random numbers.

use philox::{key_of_seed, philox4x32_10, philox4x32_10_x16};

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
