//! Uniform numbers.

use philox::{half_open_f32, half_open_f64, open_closed_f32, probability_threshold};

#[test]
fn intervals_are_closed_and_open_where_they_say() {
    assert_eq!(half_open_f32(0), 0.0);
    assert_eq!(half_open_f32(u32::MAX), 1.0 - f32::EPSILON / 2.0);
    assert_eq!(open_closed_f32(0), 2f32.powi(-33));
    assert_eq!(open_closed_f32(u32::MAX), 1.0);
    assert_eq!(half_open_f64(0, 0), 0.0);
    assert_eq!(half_open_f64(u32::MAX, u32::MAX), 1.0 - f64::EPSILON / 2.0);
}

#[test]
fn thresholds_round_and_saturate() {
    assert_eq!(probability_threshold(0.0), 0);
    assert_eq!(probability_threshold(0.5), 1 << 31);
    assert_eq!(probability_threshold(0.1), 429_496_736);
    assert_eq!(probability_threshold(1.0), u32::MAX);
    assert_eq!(probability_threshold(-1.0), 0);
}
