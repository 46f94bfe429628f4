//! Rare events, and sums of what each of them adds: the least value that a pair of runs exceeds by a given chance.

/// Means from which a sum of jumps is compared with a normal number.
const MANY: f64 = 200.0;
/// Deviations of a normal number that are exceeded by a chance of 1e-5.
const DEVIATIONS: f64 = 4.3;

/// The least number that a Poisson variable of this mean exceeds with a probability below `chance`.
pub(crate) fn most_jumps(mean: f64, chance: f64) -> f64 {
    // Far from zero it is normal.
    if mean > 500.0 {
        return mean + DEVIATIONS * mean.sqrt();
    }
    let (mut number, mut term) = (0.0, (-mean).exp());
    let mut within = term;
    while 1.0 - within > chance {
        number += 1.0;
        term *= mean / number;
        within += term;
    }
    number
}

/// The value that the sum of a Poisson number of jumps exceeds with a probability of `chance`. The number has the mean
/// `mean`; each jump is a Gamma variable of mean 1 and this `shape`, so n of them are one of mean n and shape n times
/// that.
pub(crate) fn most_of_jumps(mean: f64, shape: f64, chance: f64) -> f64 {
    let deviation = (mean * (1.0 + 1.0 / shape)).sqrt();
    if mean > MANY {
        return mean + DEVIATIONS * deviation;
    }
    let is_exceeded = |value: f64| {
        let (mut probability, mut term, mut number) = (0.0, (-mean).exp(), 0.0);
        let mut left = 1.0 - term;
        while left > 0.01 * chance {
            number += 1.0;
            term *= mean / number;
            left -= term;
            probability += term * (1.0 - gamma_within(number * shape, shape * value));
        }
        probability > chance
    };
    if !is_exceeded(0.0) {
        return 0.0;
    }
    let (mut least, mut most) = (0.0, 1.0);
    while is_exceeded(most) {
        (least, most) = (most, 2.0 * most);
    }
    for _ in 0..30 {
        let middle = 0.5 * (least + most);
        if is_exceeded(middle) { least = middle } else { most = middle }
    }
    most
}

/// The probability that a Gamma variable of `shape` and scale 1 is at most `value`: the series of the incomplete
/// function (NIST Digital Library of Mathematical Functions, 8.11.4).
fn gamma_within(shape: f64, value: f64) -> f64 {
    if value <= 0.0 {
        return 0.0;
    }
    // Far beyond its mean nothing is left.
    if value > 10.0 * shape + 60.0 {
        return 1.0;
    }
    let first = (shape * value.ln() - value - ln_gamma(shape + 1.0)).exp();
    if first == 0.0 {
        // Too small for a number: all is on one side.
        return if value > shape { 1.0 } else { 0.0 };
    }
    let (mut term, mut sum, mut at) = (first, first, shape);
    while term > 1e-16 * sum {
        at += 1.0;
        term *= value / at;
        sum += term;
    }
    sum.min(1.0)
}

/// The logarithm of the Gamma function, by Stirling's series (the same, 5.11.1).
fn ln_gamma(of: f64) -> f64 {
    let (mut at, mut product) = (of, 1.0);
    while at < 10.0 {
        product *= at;
        at += 1.0;
    }
    let series = 1.0 / (12.0 * at) - 1.0 / (360.0 * at.powi(3)) + 1.0 / (1260.0 * at.powi(5));
    (at - 0.5) * at.ln() - at + 0.5 * (2.0 * std::f64::consts::PI).ln() + series - product.ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHANCE: f64 = 1e-5;

    #[test]
    fn jumps_are_counted_as_poisson_has_them() {
        // P(X > 0) = 1e-6, P(X > 1) = 5e-7, P(X > 1) = 1.2e-5, and of 1,000 the quantile is 4.3 deviations away.
        assert_eq!([1e-6, 1e-3, 5e-3].map(|mean| most_jumps(mean, CHANCE)), [0.0, 1.0, 2.0]);
        assert_eq!(most_jumps(1.0, CHANCE), 8.0);
        let [below, above] = [499.0, 501.0].map(|mean| most_jumps(mean, CHANCE));
        assert!((below - above).abs() < 8.0, "{below} {above}");
    }

    /// Squares of normal numbers, from a table of their distribution: 1 and 10 degrees of freedom.
    #[test]
    fn gamma_variables_have_the_probabilities_of_a_table() {
        for (degrees, square, beyond) in [(1.0, 3.841, 0.05), (1.0, 10.828, 1e-3), (10.0, 29.588, 1e-3)] {
            let found = 1.0 - gamma_within(0.5 * degrees, 0.5 * square);
            assert!((found / beyond - 1.0f64).abs() < 1e-3, "{degrees} {square}: {found}");
        }
        assert_eq!([0.0, -1.0, 1e3].map(|value| gamma_within(0.5, value)), [0.0, 0.0, 1.0]);
        // The factorials of 4 and 9, and the root of pi.
        for (of, expected) in [(5.0, 24.0), (10.0, 362_880.0), (0.5, 1.772_453_850_9)] {
            assert!((ln_gamma(of) - f64::ln(expected)).abs() < 1e-9, "{of}");
        }
    }

    /// A single jump in 200 runs is the square of a normal number that is exceeded in one of 500: 3.09 squared.
    #[test]
    fn rare_jumps_are_single_squares_and_many_are_their_sum() {
        assert_eq!(most_of_jumps(1e-6, 0.5, CHANCE), 0.0);
        let rare = most_of_jumps(5e-3, 0.5, CHANCE);
        assert!((9.5..9.7).contains(&rare), "{rare}");
        // Jumps of one size are counted.
        let equal = most_of_jumps(1.0, 1e6, CHANCE);
        assert!((7.9..9.1).contains(&equal), "{equal}");
        let [below, above] = [199.0, 201.0].map(|mean| most_of_jumps(mean, 0.5, CHANCE));
        assert!((below / above - 1.0).abs() < 0.07, "{below} {above}");
    }
}
