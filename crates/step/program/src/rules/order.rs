//! `order`: contributions to each gradient come in ascending order of microbatches, so that sums have the same bits
//! whatever the schedule.

use super::{contributions, name, on_rank};
use crate::{Program, Rule, Violation};

pub(crate) fn order(program: &Program) -> Vec<Violation> {
    let descents = contributions(program).into_iter().filter_map(|(gradient, list)| {
        let descent = list.windows(2).find(|pair| pair[0].1 > pair[1].1)?;
        let message = format!(
            "instruction {} adds {} to the {} after {}; sums then have other bits",
            descent[1].0,
            descent[1].1,
            name(gradient),
            descent[0].1
        );
        Some(on_rank(program, Rule::Order, &message))
    });
    descents.collect()
}
