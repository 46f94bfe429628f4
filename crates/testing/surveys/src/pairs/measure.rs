//! One pair, run and compared.

use std::fmt;

use config::{Format, LossScaling, Precision};
use prove::{EqualityClass, Outcome, ParameterKind, Promise, parted_at};
use serde::{Deserialize, Serialize};

use crate::pairs::draw::Pair;
use crate::pairs::table::Kind;

/// A distance as a share of its bound.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Share {
    /// The kind of the bounded value.
    pub kind: Kind,
    /// The distance over the bound.
    pub share: f64,
    /// The tensor.
    pub of: String,
}

/// A pair that has run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Compared {
    /// Its distances.
    pub shares: Vec<Share>,
    /// The scale of the loss at which they were compared.
    pub scale: LossScale,
}

/// The scale of the loss of a pair's runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LossScale {
    /// The drawn one, or none.
    Drawn,
    /// A lower one, since at the drawn one a step overflowed in one of the runs alone.
    Lowered,
}

/// The factor by which the scale of the loss is lowered for runs that skip different steps.
const LOWERED: f32 = 1.0 / 256.0;

/// Runs both layouts of `pair`, and compares each distance with its bound. If the layouts skip different steps, nothing
/// is promised from there on, and they are compared again with a lower scale of the loss.
///
/// # Errors
/// A layout that does not run, or runs that skip different steps at the lower scale as well.
pub fn measure(pair: &Pair) -> Result<Compared, String> {
    let run = |pair: &Pair| -> Result<[Outcome; 2], String> {
        let [first, second] = &pair.layouts;
        let outcome = |layout: &testkit::layout::Layout| {
            layout.outcome(&pair.text).map_err(|error| format!("pair {}: {error}; {pair}", pair.number))
        };
        Ok([outcome(first)?, outcome(second)?])
    };
    let [a, b] = run(pair)?;
    if parted_at([&a, &b]).is_none() {
        return Ok(Compared { shares: shares(pair, [&a, &b]), scale: LossScale::Drawn });
    }
    let pair = lowered(pair);
    let [a, b] = run(&pair)?;
    match parted_at([&a, &b]) {
        None => Ok(Compared { shares: shares(&pair, [&a, &b]), scale: LossScale::Lowered }),
        Some(step) => Err(format!("pair {}: they do not both skip step {}; {pair}", pair.number, step + 1)),
    }
}

/// `pair` with the lower scale.
fn lowered(pair: &Pair) -> Pair {
    let mut pair = pair.clone();
    for layout in &mut pair.layouts {
        layout.train.precision = match layout.train.precision {
            Precision::Fp16(products, scaling) => {
                let initial = (scaling.initial * LOWERED).max(scaling.minimum);
                Precision::Fp16(products, LossScaling { initial, ..scaling })
            }
            Precision::Fp32(_) | Precision::Bf16(_) => layout.train.precision,
        };
    }
    pair
}

/// Whether `pair` has gradients of a kind.
pub fn has_gradients_of(pair: &Pair, kind: &Kind) -> bool {
    ParameterKind::ALL.iter().any(|parameter| gradient_kind(pair, *parameter) == *kind)
}

/// The kind of a first gradient of `pair`.
fn gradient_kind(pair: &Pair, parameter: ParameterKind) -> Kind {
    let (class, model) = (pair.class(), &pair.layouts[0].model);
    let kink = model.activation.has_kink() && class != EqualityClass::OtherOrder;
    Kind::gradient(parameter, class, format_of_gradients(pair), kink)
}

/// The format in which first gradients differ. With another order only, the first activations are the same bits, and
/// gradients are summed in single precision.
fn format_of_gradients(pair: &Pair) -> Format {
    match pair.class() {
        EqualityClass::LibraryOrder | EqualityClass::OtherSums => pair.layouts[0].train.precision.stored(),
        EqualityClass::SameOrder | EqualityClass::AnyOrder | EqualityClass::OtherOrder | EqualityClass::OtherDevice => {
            Format::Fp32
        }
    }
}

/// The shares of every kind in `outcomes` of the layouts of `pair`.
pub fn shares(pair: &Pair, outcomes: [&Outcome; 2]) -> Vec<Share> {
    let (model, train) = (&pair.layouts[0].model, &pair.layouts[0].train);
    let class = pair.class();
    let distances = Promise::of(class, model, train, train.steps).distances(outcomes);
    let stored = train.precision.stored();
    let kink = |is_first: bool| model.activation.has_kink() && !(is_first && class == EqualityClass::OtherOrder);
    let gradients = distances.gradients.iter().map(|(kind, bounded)| Share {
        kind: gradient_kind(pair, *kind),
        share: bounded.share(),
        of: bounded.what.clone(),
    });
    let is_first = train.steps == 1;
    let of_weights = if is_first { format_of_gradients(pair) } else { stored };
    let rest = [
        (Kind::loss(stored, kink(is_first)), &distances.loss),
        (Kind::weights(of_weights, kink(is_first)), &distances.weight),
    ];
    // Losses and weights of some runs have no bound.
    let rest = rest.into_iter().filter(|(_, bounded)| bounded.bound.is_some());
    let rest = rest.map(|(kind, bounded)| Share { kind, share: bounded.share(), of: bounded.what.clone() });
    gradients.chain(rest).collect()
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}: {:.3} of its bound", self.kind, self.of, self.share)
    }
}
