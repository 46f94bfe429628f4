//! Long sequences that ranks share (context parallelism), each run against one rank.

use config::ContextKind;
use prove::{Distance, EqualityClass, Outcome, Promise, outcome_of};
use testkit::layout::Layout;
use testkit::models::{plain_layout, proof_text};

use crate::arena_use::Arenas;
use crate::space::Point;

/// The faults of a point: values beyond the bounds of other sums; where neither tensor parallelism nor blocks of keys
/// split a sum, a first loss with other bits than one rank's; ranks that use another arena than is planned, to the
/// byte.
///
/// # Errors
/// A run that fails.
pub fn faults(point: &Point) -> Result<Vec<String>, String> {
    let layout = point.layout();
    // One rank that learns the same, in microbatches of one sequence.
    let one = Layout { parallelism: plain_layout(1, 1, 1, 1), ..layout.clone() };
    let oracle = one.outcome(&proof_text()).map_err(|error| error.to_string())?;
    let setup = layout.setup().map_err(|error| error.to_string())?;
    let arenas = Arenas::of(&setup);
    let outcome = outcome_of(&setup, &arenas.engine(), &proof_text()).map_err(|error| error.to_string())?;
    let class = EqualityClass::of(&one.parallelism, &layout.parallelism);
    let distance =
        Distance::between(&oracle, &outcome, |name| layout.model.has_idle_key_biases() && name.ends_with("key.bias"));
    let promise = Promise::of(class, &layout.model, &layout.train, layout.train.steps);
    let mut faults = promise.faults([&oracle, &outcome], &distance);
    faults.extend(arenas.faults());
    let [first, own] = [&oracle, &outcome].map(|outcome: &Outcome| outcome.losses.first().map(|loss| loss.to_bits()));
    let is_split = point.degrees.tp > 1 || point.context.kind == ContextKind::Ring;
    if !is_split && first != own {
        faults.push("the first loss has other bits than that of one rank".into());
    }
    Ok(faults)
}
