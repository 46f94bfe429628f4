//! Runs many cases, each reference and each oracle once.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use config::{Degrees, GradientSums, Products};
use prove::{EqualityClass, Outcome, Promise, ProofError, Verdict};
use testkit::layout::Layout;
use testkit::models::proof_text;

use crate::cases::{Case, Family};

/// Cases that have the same bits as one reference.
#[derive(Clone, Debug)]
pub struct Order {
    /// One stage in the plainest manner of this order of sums.
    pub reference: Case,
    pub cases: Vec<Case>,
}

/// A survey's result for one case: how it compares, or why it did not run.
pub type Finding = Result<Verdict, String>;

/// Groups cases by their reference.
pub fn orders(cases: impl IntoIterator<Item = Case>) -> Vec<Order> {
    let mut orders: BTreeMap<_, Order> = BTreeMap::new();
    for case in cases {
        let reference = case.reference();
        // A reference has one stage.
        let Degrees { dp, cp, tp, pp: _ } = reference.degrees;
        let key =
            (reference.family, (dp, cp, tp), case.sequence_parallel, reference.manner.form, case.sums, case.products);
        let order = orders.entry(key).or_insert_with(|| Order { reference, cases: Vec::new() });
        order.cases.push(case);
    }
    orders.into_values().collect()
}

/// Runs all cases of `orders` on `workers` threads (each starts its runs' ranks) and tells every finding.
pub fn survey(orders: &[Order], workers: usize, tell: &(dyn Fn(&Case, Finding) + Sync)) {
    let oracles = Oracles::default();
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(order) = orders.get(next.fetch_add(1, Ordering::Relaxed)) {
                    survey_order(order, oracles.of(&order.reference), tell);
                }
            });
        }
    });
}

fn survey_order(order: &Order, oracle: &Result<Outcome, String>, tell: &(dyn Fn(&Case, Finding) + Sync)) {
    let Layout { model, train, .. } = order.reference.layout();
    let is_oracle = order.reference == order.reference.of_one_rank();
    let reference = if is_oracle { oracle.clone() } else { outcome(&order.reference) };
    for case in &order.cases {
        let finding = || -> Finding {
            let (reference, oracle) =
                (reference.as_ref().map_err(String::clone)?, oracle.as_ref().map_err(String::clone)?);
            let outcome = outcome(case)?;
            let promise = Promise::of(case.class(), &model, &train, train.steps);
            Ok(Verdict::of(&promise, &model, &outcome, (reference, oracle)))
        };
        tell(case, finding());
    }
}

/// One rank per family, way to sum and order of products, run when first asked for.
#[derive(Default)]
pub struct Oracles {
    outcomes: [[OnceLock<Result<Outcome, String>>; 16]; 2 * Products::ALL.len()],
}

impl Oracles {
    /// The result of the one rank that `case` is compared with.
    pub fn of(&self, case: &Case) -> &Result<Outcome, String> {
        let oracle = case.of_one_rank();
        let index = Family::all().iter().position(|other| *other == oracle.family).unwrap_or_default();
        let order = Products::ALL.iter().position(|order| *order == oracle.products).unwrap_or_default();
        let sums = match oracle.sums {
            GradientSums::Single => 0,
            GradientSums::Exact => 1,
        };
        self.outcomes[2 * order + sums][index].get_or_init(|| outcome(&oracle))
    }
}

/// One rank with microbatches of 1 and of 2 sequences, compared for every family of microbatch 1.
pub fn microbatch_sizes(families: &[Family], products: Products) -> Vec<(Family, Finding)> {
    let compare = |family: Family| -> Finding {
        let of = |family| outcome(&Case { products, ..Case::oracle(family) });
        let (oracle, other) = (of(family)?, of(Family { microbatch_size: 2, ..family })?);
        let Layout { model, train, .. } = Case { products, ..Case::oracle(family) }.layout();
        let promise = Promise::of(EqualityClass::OtherOrder, &model, &train, train.steps);
        Ok(Verdict::of(&promise, &model, &other, (&other, &oracle)))
    };
    let ones = families.iter().filter(|family| family.microbatch_size == 1);
    ones.map(|family| (*family, compare(*family))).collect()
}

/// Runs one case; a failure in words.
pub fn outcome(case: &Case) -> Result<Outcome, String> {
    case.layout().outcome(&proof_text()).map_err(|error: ProofError| format!("{case}: {error}"))
}
