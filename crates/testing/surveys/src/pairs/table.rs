//! Shares of bounds by kind: the largest, and the quantile that no bound may exceed three times.

use std::collections::BTreeMap;
use std::fmt;
use std::fmt::Write as _;

use config::Format;
use prove::{EqualityClass, ParameterKind};
use serde::{Deserialize, Serialize};

use crate::pairs::measure::{Compared, LossScale};

/// The shares that show a 99.9 % quantile. Of fewer it is the largest, which is far below it where few were drawn.
const ENOUGH: usize = 1000;

/// Distances that have one derivation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Kind(String);

impl Kind {
    /// Of first gradients. A kink is one kind in all precisions: in single precision no more than one pair in a
    /// thousand meets it.
    pub fn gradient(kind: ParameterKind, class: EqualityClass, numbers: Format, has_kink: bool) -> Kind {
        // The output matrix's gradient is made before any activation's.
        let has_kink = has_kink && kind != ParameterKind::Output;
        match (class, has_kink) {
            (EqualityClass::OtherOrder, _) => Kind(format!("gradient, other order, {kind}")),
            (_, true) => Kind(format!("gradient, other sums, ReLU, {kind}")),
            (_, false) => Kind(format!("gradient, other sums, {}, {kind}", numbers.name())),
        }
    }

    /// Of losses.
    pub fn loss(numbers: Format, has_kink: bool) -> Kind {
        if has_kink { Kind("loss, ReLU".into()) } else { Kind(format!("loss, {}", numbers.name())) }
    }

    /// The kind of a distance of weights.
    pub fn weights(numbers: Format, has_kink: bool) -> Kind {
        if has_kink { Kind("weights, ReLU".into()) } else { Kind(format!("weights, {}", numbers.name())) }
    }

    /// A kind by its name.
    pub fn named(name: &str) -> Kind {
        Kind(name.into())
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The shares of many pairs.
#[derive(Clone, Debug, Default)]
pub struct Shares {
    pairs: usize,
    lowered: Vec<u32>,
    by_kind: BTreeMap<Kind, Vec<(f64, u32)>>,
}

impl Shares {
    /// Adds those of the pair `number`.
    pub fn add(&mut self, number: u32, compared: &Compared) {
        self.pairs += 1;
        match compared.scale {
            LossScale::Drawn => {}
            LossScale::Lowered => self.lowered.push(number),
        }
        for share in &compared.shares {
            self.by_kind.entry(share.kind.clone()).or_default().push((share.share, number));
        }
    }

    /// Pairs that were added.
    pub fn pairs(&self) -> usize {
        self.pairs
    }

    /// Pairs whose runs skip different steps, and which were compared at a lower scale of the loss.
    pub fn lowered(&self) -> &[u32] {
        &self.lowered
    }

    /// The same, where they are more than one in a thousand and one more: a layout may overflow where another does not
    /// only within a rounding of the largest number of fp16.
    pub fn too_often_lowered(&self) -> Option<String> {
        let most = 1 + self.pairs / 1000;
        let found = self.lowered.len();
        (found > most).then(|| {
            format!(
                "{found} pairs skip different steps, and {most} of {} are the limit: {:?}",
                self.pairs, self.lowered
            )
        })
    }

    /// Kinds with a share above 1, and with the pair.
    pub fn exceeded(&self) -> Vec<String> {
        let all = self.by_kind.iter().flat_map(|(kind, shares)| shares.iter().map(move |share| (kind, share)));
        let beyond = all.filter(|(_, (share, _))| share.is_nan() || *share > 1.0);
        beyond.map(|(kind, (share, number))| format!("pair {number}: {kind} at {share:.2} of the bound")).collect()
    }

    /// Kinds of gradients with fewer shares than show the 99.9 % quantile.
    pub fn rare(&self) -> Vec<Kind> {
        let is_rare = |(kind, shares): &(&Kind, &Vec<_>)| kind.0.starts_with("gradient") && shares.len() < ENOUGH;
        self.by_kind.iter().filter(is_rare).map(|(kind, _)| kind.clone()).collect()
    }

    /// Kinds whose bound is more than three times the 99.9 % quantile of its distances.
    pub fn loose(&self) -> Vec<String> {
        let quantiles = self.by_kind.iter().map(|(kind, shares)| (kind, quantile(shares, 0.999)));
        let loose = quantiles.filter(|(_, quantile)| *quantile < 1.0 / 3.0);
        loose.map(|(kind, quantile)| format!("{kind}: the bound is {:.1} times the quantile", 1.0 / quantile)).collect()
    }
}

/// The least share that is not below `part` of all.
fn quantile(shares: &[(f64, u32)], part: f64) -> f64 {
    let mut sorted: Vec<f64> = shares.iter().map(|(share, _)| *share).collect();
    sorted.sort_by(f64::total_cmp);
    let index = (part * sorted.len() as f64).ceil() as usize;
    sorted.get(index.clamp(1, sorted.len().max(1)) - 1).copied().unwrap_or(0.0)
}

/// The rows of a table with a line for each kind.
pub fn table(shares: &Shares) -> String {
    let mut text = "| kind | pairs | median | 99 % | 99.9 % | largest | bound over the 99.9 % quantile |\n\
                    |---|---|---|---|---|---|---|\n"
        .to_string();
    for (kind, all) in &shares.by_kind {
        let at = |part| quantile(all, part);
        let _ = writeln!(
            text,
            "| {kind} | {} | {:.2} | {:.2} | {:.2} | {:.2} | {:.1} |",
            all.len(),
            at(0.5),
            at(0.99),
            at(0.999),
            at(1.0),
            1.0 / at(0.999)
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pairs::measure::Share;

    fn drawn(shares: Vec<Share>) -> Compared {
        Compared { shares, scale: LossScale::Drawn }
    }

    #[test]
    fn pairs_that_skip_different_steps_are_few() {
        let mut shares = Shares::default();
        (0..10).for_each(|number| shares.add(number, &drawn(vec![])));
        shares.add(10, &Compared { scale: LossScale::Lowered, ..drawn(vec![]) });
        assert_eq!((shares.lowered(), shares.too_often_lowered()), (&[10][..], None));
        shares.add(11, &Compared { scale: LossScale::Lowered, ..drawn(vec![]) });
        let found = shares.too_often_lowered();
        assert_eq!(found, Some("2 pairs skip different steps, and 1 of 12 are the limit: [10, 11]".into()));
    }

    #[test]
    fn a_bound_is_exceeded_above_1_and_loose_below_a_third() {
        let share = |share: f64| Share { kind: Kind::named("a"), share, of: "w".into() };
        let of = |all: &[f64]| {
            let mut shares = Shares::default();
            all.iter().zip(0..).for_each(|(one, number)| shares.add(number, &drawn(vec![share(*one)])));
            (shares.exceeded().len(), shares.loose().len())
        };
        assert_eq!(of(&[0.2, 0.5]), (0, 0));
        assert_eq!(of(&[0.2, 0.3]), (0, 1));
        assert_eq!(of(&[0.2, 1.1, f64::NAN]), (2, 0));
    }

    #[test]
    fn gradients_of_fewer_than_a_thousand_pairs_are_rare() {
        let share = |name: &str| Share { kind: Kind::named(name), share: 0.5, of: "w".into() };
        let mut shares = Shares::default();
        let all = drawn(["gradient, a", "gradient, b", "loss"].map(share).to_vec());
        (0..999).for_each(|number| shares.add(number, &all));
        shares.add(999, &drawn(vec![share("gradient, b")]));
        assert_eq!(shares.rare(), [Kind::named("gradient, a")]);
    }

    #[test]
    fn quantiles_are_values_that_were_measured() {
        let shares: Vec<(f64, u32)> = (1..=1000).map(|number| (f64::from(number), 0)).collect();
        assert_eq!([0.5, 0.999, 1.0].map(|part| quantile(&shares, part)), [500.0, 999.0, 1000.0]);
        assert_eq!(quantile(&shares[..2], 0.999), 2.0);
    }
}
