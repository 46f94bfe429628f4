//! Round moments of a step, for the axes of drawings.

/// A moment with what is written at it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tick {
    /// Nanoseconds from the start of the step.
    pub(crate) at_ns: f64,
    /// Number and unit.
    pub(crate) label: String,
}

/// At most about `number` moments from 0 to `end_ns`, at distances that are 1, 2 or 5 times a power of ten.
pub(crate) fn ticks(end_ns: u64, number: f64) -> Vec<Tick> {
    let (unit_ns, unit) = match end_ns {
        ..1_000_000 => (1e3, "µs"),
        1_000_000..1_000_000_000 => (1e6, "ms"),
        1_000_000_000.. => (1e9, "s"),
    };
    let end = end_ns.max(1) as f64 / unit_ns;
    let step = round_step(end / number);
    let decimals = if step >= 1.0 { 0 } else { (-step.log10()).ceil() as usize };
    let tick = |index: usize| {
        let value = index as f64 * step;
        Tick { at_ns: value * unit_ns, label: format!("{value:.decimals$} {unit}") }
    };
    (0..=(end / step) as usize).map(tick).collect()
}

/// 1, 2 or 5 times a power of ten, at least `least`.
fn round_step(least: f64) -> f64 {
    let power = 10f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power).into_iter().find(|step| *step >= least * 0.999).unwrap_or(least)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_round() {
        let labels = |end_ns, number| ticks(end_ns, number).into_iter().map(|tick| tick.label).collect::<Vec<_>>();
        assert_eq!(labels(44_600_000_000, 5.0), ["0 s", "10 s", "20 s", "30 s", "40 s"]);
        assert_eq!(labels(3_770_000, 4.0), ["0 ms", "1 ms", "2 ms", "3 ms"]);
        assert_eq!(labels(900, 3.0), ["0.0 µs", "0.5 µs"]);
        assert_eq!(labels(0, 3.0).len(), 3, "a step of nothing has an axis, too");
    }
}
