//! How rotations are slowed down for sequences longer than those that a model has learned from first.

use std::f64::consts::TAU;

/// The scaling of the frequencies of rotary positions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RotaryScaling {
    /// They stay.
    Off,
    /// All are divided, as if positions lay closer together (Chen et al. 2023, arXiv 2306.15595).
    Linear {
        /// The factor by which all frequencies are divided.
        factor: f32,
    },
    /// Slow ones are divided, fast ones stay, and those between are in part: Llama 3.1.
    Llama3 {
        /// The factor by which the slow ones are divided.
        factor: f32,
        /// Fewer turns than this over `original_context` are slow.
        low_turns: f32,
        /// More turns than this are fast.
        high_turns: f32,
        /// Tokens of the sequences that the model has learned from first.
        original_context: usize,
    },
    /// The same, where what is in between is by number of the pairs, and rotated values grow: YaRN (Peng et al. 2023,
    /// arXiv 2309.00071).
    Yarn {
        /// The factor by which the slow ones are divided.
        factor: f32,
        /// The pair that turns so often over `original_context`, rounded up, is the first slow one.
        low_turns: f32,
        /// The pair that turns so often, rounded down, is the last fast one.
        high_turns: f32,
        /// Tokens of the sequences that the model has learned from first.
        original_context: usize,
        /// Factor of cosines and sines.
        magnitude: f32,
    },
}

/// A scaling of the pairs of one table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PairScaling {
    scaling: RotaryScaling,
    /// The last fast pair and the first slow one, where the numbers of pairs decide.
    pub ends: [f32; 2],
}

impl RotaryScaling {
    /// The factor of cosines and sines that the paper of YaRN fits to a division by `factor`.
    pub fn fitted_magnitude(factor: f32) -> f32 {
        if factor <= 1.0 { 1.0 } else { (0.1 * f64::from(factor).ln() + 1.0) as f32 }
    }

    /// Factor of cosines and sines.
    pub fn magnitude(self) -> f32 {
        match self {
            RotaryScaling::Off | RotaryScaling::Linear { .. } | RotaryScaling::Llama3 { .. } => 1.0,
            RotaryScaling::Yarn { magnitude, .. } => magnitude,
        }
    }

    /// The scaling of `pairs` pairs, of which number `i` turns by `base^(-i / pairs)` in a position. Source of the
    /// ends: section 3.2 of the paper of YaRN.
    pub fn of_pairs(self, base: f32, pairs: usize) -> PairScaling {
        let ends = match self {
            RotaryScaling::Off | RotaryScaling::Linear { .. } | RotaryScaling::Llama3 { .. } => [0.0; 2],
            RotaryScaling::Yarn { low_turns, high_turns, original_context, .. } => {
                let pair = |turns: f32| {
                    let turns_of_first = original_context as f64 / (f64::from(turns) * TAU);
                    pairs as f64 * turns_of_first.ln() / f64::from(base).ln()
                };
                let first = pair(high_turns).floor().max(0.0) as f32;
                let last = pair(low_turns).ceil().min(2.0 * pairs as f64 - 1.0) as f32;
                [first, if first == last { last + 0.001 } else { last }]
            }
        };
        PairScaling { scaling: self, ends }
    }
}

impl PairScaling {
    /// The scaled `frequency` of `pair`, in radians per position. Source of [`RotaryScaling::Llama3`]: `apply_scaling`
    /// in meta-llama/llama-models, `models/llama3/model.py`.
    pub fn scaled(&self, pair: usize, frequency: f64) -> f64 {
        match self.scaling {
            RotaryScaling::Off => frequency,
            RotaryScaling::Linear { factor } => frequency / f64::from(factor),
            RotaryScaling::Llama3 { factor, low_turns, high_turns, original_context } => {
                let turns = original_context as f64 * frequency / TAU;
                let (low, high) = (f64::from(low_turns), f64::from(high_turns));
                let kept = ((turns - low) / (high - low)).clamp(0.0, 1.0);
                frequency * (kept + (1.0 - kept) / f64::from(factor))
            }
            RotaryScaling::Yarn { factor, .. } => {
                let [first, last] = self.ends.map(f64::from);
                let kept = 1.0 - ((pair as f64 - first) / (last - first)).clamp(0.0, 1.0);
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
            let scaled = scaling.of_pairs(500_000.0, 64).scaled(0, frequency);
            assert!((scaled / frequency - share).abs() < 1e-12, "{turns} turns: {}", scaled / frequency);
        }
        assert_eq!(RotaryScaling::Linear { factor: 4.0 }.of_pairs(100.0, 4).scaled(1, 2.0), 0.5);
        assert_eq!(RotaryScaling::Off.of_pairs(100.0, 4).scaled(1, 2.0), 2.0);
    }

    /// Numbers of Qwen 3: of 64 pairs with a base of a million, number 23.5 turns 32 times over 32,768 tokens, and
    /// number 39.7 once.
    #[test]
    fn yarn_tells_pairs_apart_by_their_numbers() {
        let magnitude = RotaryScaling::fitted_magnitude(4.0);
        assert!((magnitude - 1.138_629_4).abs() < 1e-6, "{magnitude}");
        let (low_turns, high_turns, original_context) = (1.0, 32.0, 32_768);
        let yarn = RotaryScaling::Yarn { factor: 4.0, low_turns, high_turns, original_context, magnitude };
        let scaling = yarn.of_pairs(1e6, 64);
        assert_eq!(scaling.ends, [23.0, 40.0]);
        for (pair, share) in [(0, 1.0), (23, 1.0), (40, 0.25), (63, 0.25)] {
            assert!((scaling.scaled(pair, 3.0) / 3.0 - share).abs() < 1e-12, "{pair}");
        }
        let between = scaling.scaled(30, 1.0);
        assert!((between - (1.0 - 7.0 / 17.0 * 0.75)).abs() < 1e-12, "{between}");
    }
}
