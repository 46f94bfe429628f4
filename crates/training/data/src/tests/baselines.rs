//! The baselines against figures worked out by hand.

use config::{DataSpec, RunConfig, TokenizerSpec};
use data::{Baselines, Dataset, OrderTwo, gzip_bits_per_byte};

/// Counted in "abab": N(a) = N(b) = 2, so the empty context has N = 4, D = 2;
/// after a: b twice, N = 2, D = 1; after b: a once, N = 1, D = 1; after ab: a once; after ba: b once; N = D = 1 each.
#[test]
fn witten_bell_by_hand() {
    let model = OrderTwo::count(b"abab");
    let uniform = 1.0 / 256.0;
    let p_a = (2.0 + 2.0 * uniform) / 6.0;
    let p_b = p_a;
    let p_c = (0.0 + 2.0 * uniform) / 6.0;
    let p_b_after_a = (2.0 + p_b) / 3.0;
    let p_a_after_b = (1.0 + p_a) / 2.0;
    let p_c_after_b = (0.0 + p_c) / 2.0;
    let p_a_after_ab = (1.0 + p_a_after_b) / 2.0;
    let p_c_after_ab = (0.0 + p_c_after_b) / 2.0;
    let bits = |probabilities: &[f64]| -> f64 {
        probabilities.iter().map(|probability| -probability.log2()).sum::<f64>() / probabilities.len() as f64
    };
    for (text, probabilities) in [
        (&b"a"[..], &[p_a][..]),
        (b"ab", &[p_a, p_b_after_a]),
        (b"aba", &[p_a, p_b_after_a, p_a_after_ab]),
        (b"abc", &[p_a, p_b_after_a, p_c_after_ab]),
        // Neither c nor bc was seen: what is left is the empty context.
        (b"ca", &[p_c, p_a]),
    ] {
        let (found, expected) = (model.bits_per_byte(text), bits(probabilities));
        // Four roundings of 2^-53 per factor.
        assert!((found - expected).abs() < 1e-12, "{found} and {expected} for {text:?}");
    }
    assert_eq!(OrderTwo::count(b"").bits_per_byte(b"any"), 8.0);
    assert_eq!(model.bits_per_byte(b""), 0.0);
}

#[test]
fn probabilities_of_all_bytes_sum_to_one() {
    let model = OrderTwo::count(b"she sells sea shells by the sea shore");
    for context in [&b""[..], b"s", b"se", b"ls", b"zz", b"sz"] {
        let before = model.bits_per_byte(context) * context.len() as f64;
        let total: f64 = (0..=255u8)
            .map(|byte| {
                let text = [context, &[byte]].concat();
                (before - model.bits_per_byte(&text) * text.len() as f64).exp2()
            })
            .sum();
        assert!((total - 1.0).abs() < 1e-9, "{total} after {context:?}");
    }
}

#[test]
fn gzip_sees_repetitions() {
    // A stored byte: 18 bytes of header and trailer, and a deflate block of 3 for one letter.
    assert_eq!(gzip_bits_per_byte(b"a"), 8.0 * 21.0);
    assert!(gzip_bits_per_byte(&b"pleach ".repeat(1000)) < 0.2);
}

#[test]
fn the_embedded_text_has_both_figures() {
    let data = DataSpec { tokenizer: TokenizerSpec::Bytes, ..RunConfig::quick_start().data };
    let dataset = Dataset::open(&data).expect("text");
    let Baselines { gzip, order_two } = Baselines::measure(&dataset).expect("text").expect("held out");
    println!("gzip {gzip:.3}, order 2 {order_two:.3} bits per byte of {} bytes", dataset.held_out_bytes);
    assert!((1.0..4.0).contains(&gzip) && (1.0..4.0).contains(&order_two), "{gzip} and {order_two}");
    assert_eq!(dataset.held_out_bytes, dataset.held_out.len() as u64);
}
