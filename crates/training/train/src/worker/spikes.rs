//! Spikes of the loss and of the gradient norm, found by robust statistics of the steps before.
//!
//! Every rank sees the same losses and norms, and only adds, multiplies, divides and compares, so every rank finds the
//! same spikes without exchanging anything. A value is a spike where it is more than N robust standard deviations above
//! the median of the last [`WINDOW`] steps: 1.4826 times the median of the distances to the median, after P. Rousseeuw
//! and C. Croux, "Alternatives to the median absolute deviation" (1993). A run diverges where its smoothed loss is
//! [`DIVERGED`] times its minimum.

use checkpoint::SpikeState;

/// Steps that the median is of.
pub const WINDOW: usize = 50;
/// Steps before a value can be a spike.
pub const LEAST_STEPS: usize = 5;
/// Steps before which the limit is twice as high: the median of few steps says little.
const EARLY_STEPS: usize = 20;
/// Factor from the median absolute deviation to the standard deviation of a normal distribution.
const TO_DEVIATION: f64 = 1.4826;
/// Least deviation of losses and of norms that counts, as a share of the median: values that hardly differ are not
/// spikes, and the norms of healthy steps now and then have twice the median.
const LEAST_DEVIATION: [f64; 2] = [0.01, 0.25];
/// Share of the newest loss in the smoothed one.
const SMOOTHING: f64 = 0.1;
/// Smoothed loss from which a run diverges, as a multiple of its minimum.
const DIVERGED: f64 = 1.5;
/// Smoothed loss at which a run that has diverged counts as recovered.
const RECOVERED: f64 = 1.25;

/// Which value is far above the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpikeKind {
    /// The loss of a step.
    Loss,
    GradientNorm,
    /// The smoothed loss: the run diverges.
    Divergence,
}

impl SpikeKind {
    /// The name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            SpikeKind::Loss => "loss spike",
            SpikeKind::GradientNorm => "gradient norm spike",
            SpikeKind::Divergence => "divergence",
        }
    }
}

/// A value far above the others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spike {
    /// Which value.
    pub kind: SpikeKind,
    pub value: f64,
    /// The median of the steps before; the least smoothed loss of a divergence.
    pub usual: f64,
    /// Robust standard deviations above it; the ratio of both for a divergence.
    pub score: f64,
}

/// The last values of one kind, the oldest first.
#[derive(Clone, Debug, Default, PartialEq)]
struct Recent {
    values: Vec<f64>,
    /// Memory for sorting.
    sorted: Vec<f64>,
}

impl Recent {
    fn with_capacity() -> Recent {
        Recent { values: Vec::with_capacity(WINDOW), sorted: Vec::with_capacity(WINDOW) }
    }

    /// The median, and how many robust deviations `value` is above it.
    fn score(&mut self, value: f64, least_deviation: f64) -> Option<(f64, f64)> {
        if self.values.len() < LEAST_STEPS {
            return None;
        }
        let median = self.median_of(|value| value);
        let deviation = TO_DEVIATION * self.median_of(|value| (value - median).abs());
        let deviation = deviation.max(least_deviation * median.abs());
        Some((median, if deviation > 0.0 { (value - median) / deviation } else { 0.0 }))
    }

    fn median_of(&mut self, of: impl Fn(f64) -> f64) -> f64 {
        let Recent { values, sorted } = self;
        sorted.clear();
        sorted.extend(values.iter().map(|value| of(*value)));
        sorted.sort_unstable_by(f64::total_cmp);
        sorted[sorted.len() / 2]
    }

    fn push(&mut self, value: f64) {
        if self.values.len() == WINDOW {
            self.values.remove(0);
        }
        self.values.push(value);
    }
}

/// Looks at every step.
#[derive(Clone, Debug, PartialEq)]
pub struct SpikeWatch {
    limit: f64,
    losses: Recent,
    norms: Recent,
    smoothed: Option<f64>,
    least: f64,
    has_diverged: bool,
}

impl SpikeWatch {
    /// Before the first step; a spike has a score above `limit`.
    pub fn new(limit: f32) -> SpikeWatch {
        SpikeWatch {
            limit: f64::from(limit),
            losses: Recent::with_capacity(),
            norms: Recent::with_capacity(),
            smoothed: None,
            least: f64::INFINITY,
            has_diverged: false,
        }
    }

    /// As after the steps that `state` is of.
    pub fn resumed(limit: f32, state: &SpikeState) -> SpikeWatch {
        let SpikeState { losses, norms, smoothed, least, has_diverged } = state;
        let mut watch = SpikeWatch::new(limit);
        let number = |bits: &u64| f64::from_bits(*bits);
        losses.iter().rev().take(WINDOW).rev().for_each(|bits| watch.losses.push(number(bits)));
        norms.iter().rev().take(WINDOW).rev().for_each(|bits| watch.norms.push(number(bits)));
        SpikeWatch {
            smoothed: smoothed.as_ref().map(number),
            least: number(least),
            has_diverged: *has_diverged,
            ..watch
        }
    }

    /// All that [`SpikeWatch::resumed`] needs.
    pub fn state(&self) -> SpikeState {
        let bits = |recent: &Recent| recent.values.iter().map(|value| value.to_bits()).collect();
        SpikeState {
            losses: bits(&self.losses),
            norms: bits(&self.norms),
            smoothed: self.smoothed.map(f64::to_bits),
            least: self.least.to_bits(),
            has_diverged: self.has_diverged,
        }
    }

    /// The spike of a step, if it has one; both numbers must be finite. [`SpikeWatch::take`] follows, unless the step
    /// is skipped.
    pub fn judge(&mut self, loss: f64, norm: f64) -> Option<Spike> {
        let kinds = [(SpikeKind::Loss, loss, &mut self.losses), (SpikeKind::GradientNorm, norm, &mut self.norms)];
        for ((kind, value, recent), least_deviation) in kinds.into_iter().zip(LEAST_DEVIATION) {
            let limit = if recent.values.len() < EARLY_STEPS { 2.0 * self.limit } else { self.limit };
            if let Some((usual, score)) = recent.score(value, least_deviation).filter(|(_, score)| *score > limit) {
                return Some(Spike { kind, value, usual, score });
            }
        }
        None
    }

    /// Takes the numbers of a step that updated weights; a divergence is reported once, until the run has recovered.
    pub fn take(&mut self, loss: f64, norm: f64) -> Option<Spike> {
        self.losses.push(loss);
        self.norms.push(norm);
        let smoothed = self.smoothed.map_or(loss, |before| before + SMOOTHING * (loss - before));
        self.smoothed = Some(smoothed);
        self.least = self.least.min(smoothed);
        let ratio = if self.least > 0.0 { smoothed / self.least } else { 1.0 };
        if ratio < RECOVERED {
            self.has_diverged = false;
        }
        if ratio < DIVERGED || self.has_diverged {
            return None;
        }
        self.has_diverged = true;
        Some(Spike { kind: SpikeKind::Divergence, value: smoothed, usual: self.least, score: ratio })
    }
}

/// A step that is not as usual.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Anomaly {
    /// A loss or a gradient is not finite.
    NonFinite,
    /// A value is far above those of the steps before.
    Spike(Spike),
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Losses that fall from 7 to 3 with noise of 0.05, and norms around 1, by a small generator of numbers.
    fn steps(count: usize, seed: u64) -> Vec<(f64, f64)> {
        let mut state = seed;
        let mut noise = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f64 / f64::from(1 << 24) - 0.5
        };
        (0..count)
            .map(|step| {
                let falling = 4.0 / (1.0 + step as f64 / 30.0);
                (3.0 + falling + 0.2 * noise(), 1.0 + 3.0 / (1.0 + step as f64 / 10.0) + 0.6 * noise())
            })
            .collect()
    }

    fn found(watch: &mut SpikeWatch, steps: &[(f64, f64)]) -> Vec<(usize, SpikeKind)> {
        let mut found = vec![];
        for (index, (loss, norm)) in steps.iter().enumerate() {
            let spike = watch.judge(*loss, *norm);
            let diverged = watch.take(*loss, *norm);
            found.extend(spike.or(diverged).map(|spike| (index, spike.kind)));
        }
        found
    }

    #[test]
    fn a_healthy_run_with_a_bump_of_the_warm_up_is_silent() {
        for seed in 0..100 {
            let mut run = steps(400, seed);
            // The loss rises by a fifth over twenty steps of the warm-up, and falls again.
            for (offset, (loss, _)) in run[30..50].iter_mut().enumerate() {
                *loss *= 1.0 + 0.02 * (10.0 - (offset as f64 - 10.0).abs());
            }
            assert_eq!(found(&mut SpikeWatch::new(8.0), &run), [], "seed {seed}");
        }
    }

    #[test]
    fn a_poisoned_batch_is_found_in_its_step() {
        for seed in 0..20 {
            let mut run = steps(200, seed);
            run[150].0 += 2.0;
            run[170].1 *= 20.0;
            let expected = [(150, SpikeKind::Loss), (170, SpikeKind::GradientNorm)];
            assert_eq!(found(&mut SpikeWatch::new(8.0), &run), expected, "seed {seed}");
        }
    }

    /// The norms of a real run of twelve warm-up steps, one of which jumps.
    #[test]
    fn a_norm_that_jumps_in_the_warm_up_is_found() {
        let norms = [2.7, 1.9, 1.1, 1.0, 1.0, 0.9, 0.9, 0.8, 0.8, 0.7, 0.7, 47.7, 0.7];
        let run: Vec<_> = norms.iter().enumerate().map(|(step, norm)| (7.0 - 0.06 * step as f64, *norm)).collect();
        assert_eq!(found(&mut SpikeWatch::new(8.0), &run), [(11, SpikeKind::GradientNorm)]);
    }

    /// Norms of healthy steps have a long tail.
    #[test]
    fn a_norm_of_twice_the_median_now_and_then_is_no_spike() {
        for seed in 0..20 {
            let mut run = steps(600, seed);
            run.iter_mut().skip(40).step_by(37).for_each(|(_, norm)| *norm *= 2.0);
            assert_eq!(found(&mut SpikeWatch::new(8.0), &run), [], "seed {seed}");
        }
    }

    /// However slowly: within twenty steps of the first whose smoothed loss is 1.5 times its minimum.
    #[test]
    fn a_run_that_diverges_is_found_in_time() {
        for seed in 0..30 {
            let rate = 1.005 + 0.005 * seed as f64;
            let mut run = steps(900, seed);
            let mut factor = 1.0;
            for (loss, _) in &mut run[200..] {
                factor = f64::min(factor * rate, 4.0);
                *loss *= factor;
            }
            let (mut smoothed, mut least, mut late) = (run[0].0, f64::INFINITY, None);
            for (index, (loss, _)) in run.iter().enumerate() {
                smoothed += 0.1 * (loss - smoothed);
                least = f64::min(least, smoothed);
                late = late.or((smoothed >= 1.5 * least).then_some(index));
            }
            let late = late.expect("it diverges");
            let first = found(&mut SpikeWatch::new(8.0), &run)[0].0;
            assert!((200..=late + 20).contains(&first), "seed {seed}: found in step {first}, diverged in {late}");
        }
    }

    #[test]
    fn a_watch_that_is_resumed_finds_the_same() {
        let mut run = steps(300, 3);
        run[250].0 += 2.0;
        let mut whole = SpikeWatch::new(8.0);
        let expected = found(&mut whole, &run);
        for cut in [0, 1, 19, 100, 240] {
            let mut before = SpikeWatch::new(8.0);
            found(&mut before, &run[..cut]);
            let mut resumed = SpikeWatch::resumed(8.0, &before.state());
            let later: Vec<_> =
                found(&mut resumed, &run[cut..]).into_iter().map(|(step, kind)| (step + cut, kind)).collect();
            assert_eq!((later, resumed == whole), (expected.clone(), true), "after {cut} steps");
        }
    }
}
