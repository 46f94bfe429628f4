//! Keyed permutations.

use philox::{Permutation, philox4x32_10};

fn is_bijection(permutation: Permutation) -> bool {
    let mut seen = vec![false; permutation.len() as usize];
    for position in 0..permutation.len() {
        let index = permutation.get(position) as usize;
        if std::mem::replace(&mut seen[index], true) {
            return false;
        }
    }
    true
}

#[test]
fn every_small_length_is_permuted() {
    for len in 0..=300 {
        assert!(is_bijection(Permutation::new(7, 3, len)), "len {len}");
    }
}

#[test]
fn random_seeds_epochs_and_lengths_are_permuted() {
    for case in 0..200u32 {
        let [a, b, c, d] = philox4x32_10([case, 0, 0, 0], [1, 2]);
        let seed = u64::from(a) << 32 | u64::from(b);
        let permutation = Permutation::new(seed, u64::from(c), u64::from(d % 5000));
        assert!(is_bijection(permutation), "{permutation:?}");
    }
}

#[test]
fn long_lengths_stay_in_range() {
    for len in [u64::MAX, 1 << 63, (1 << 40) + 1] {
        let permutation = Permutation::new(1, 0, len);
        for position in [0, 1, len / 2, len - 1] {
            assert!(permutation.get(position) < len);
        }
    }
}

#[test]
fn epochs_and_seeds_differ_and_places_are_spread() {
    let len = 1000;
    let base = Permutation::new(5, 0, len);
    for other in [Permutation::new(5, 1, len), Permutation::new(6, 0, len)] {
        let fixed = (0..len).filter(|&i| base.get(i) == other.get(i)).count();
        // Two random permutations agree in a Poisson(1) number of places: more than 12 has probability 1e-10.
        assert!(fixed <= 12, "{fixed} places agree");
    }
    // The mean of index * position over random permutations is len^3 / 4, its deviation about len^2.5 / 12.
    let covariance: f64 = (0..len).map(|i| (i as f64 - 499.5) * (base.get(i) as f64 - 499.5)).sum();
    assert!(covariance.abs() < 6.0 * 1000f64.powf(2.5) / 12.0);
}
