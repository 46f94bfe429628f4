//! How rotations are slowed down for sequences longer than those that a model has learned from first.

use std::f64::consts::TAU;

/// The scaling of the frequencies of rotary positions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RotaryScaling {
    /// They stay.
    Off,
    /// All are divided, as if positions lay closer together (Chen et al. 2023, arXiv 2306.15595).
    Linear {
        /// By what.
        factor: f32,
    },
    /// Slow ones are divided, fast ones stay, and those between are in part: Llama 3.1.
    Llama3 {
        /// By what the slow ones are divided.
        factor: f32,
        /// Fewer turns than this over `original_context` are slow.
        low_turns: f32,
        /// More turns than this are fast.
        high_turns: f32,
        /// Tokens of the sequences that the model has learned from first.
        original_context: usize,
    },
}

impl RotaryScaling {
    /// The scaled `frequency`, in radians per position. Source of [`RotaryScaling::Llama3`]: `apply_scaling` in
    /// meta-llama/llama-models, `models/llama3/model.py`.
    pub fn scaled(self, frequency: f64) -> f64 {
        match self {
            RotaryScaling::Off => frequency,
            RotaryScaling::Linear { factor } => frequency / f64::from(factor),
            RotaryScaling::Llama3 { factor, low_turns, high_turns, original_context } => {
                let turns = original_context as f64 * frequency / TAU;
                let (low, high) = (f64::from(low_turns), f64::from(high_turns));
                let kept = ((turns - low) / (high - low)).clamp(0.0, 1.0);
                frequency * (kept + (1.0 - kept) / f64::from(factor))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers of Llama 3.1: a wavelength of 8192 tokens is slow, one of 2048 fast, and what turns 2.5 times is
    /// half-way.
    #[test]
    fn slow_rotations_are_slowed_down_and_fast_ones_stay() {
        let scaling = RotaryScaling::Llama3 { factor: 8.0, low_turns: 1.0, high_turns: 4.0, original_context: 8192 };
        for (turns, share) in [(0.01, 0.125), (1.0, 0.125), (2.5, 0.5625), (4.0, 1.0), (500.0, 1.0)] {
            let frequency = turns * TAU / 8192.0;
            let scaled = scaling.scaled(frequency);
            assert!((scaled / frequency - share).abs() < 1e-12, "{turns} turns: {}", scaled / frequency);
        }
        assert_eq!(RotaryScaling::Linear { factor: 4.0 }.scaled(2.0), 0.5);
        assert_eq!(RotaryScaling::Off.scaled(2.0), 2.0);
    }
}
