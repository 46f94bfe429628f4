//! `pleach diff A B`: the first value at which two layouts of one run differ.

use config::figures::{counted, grouped};
use prove::{Difference, Exchange, Found, Holding, ProofError, SingleProcess, Watch, first_difference, run_first};
use run::failure::Failure;
use run::process_group::group::ProcessGroup;
use run::process_group::member::GroupMember;
use run::signals::interrupt;
use run::verdict::Verdict;
use serde_json::{Value, json};

use crate::arguments::PairArguments;
use crate::arguments::format::Format;
use crate::compare::pair::{Pair, RunRanks, Runs};
use crate::screen::output::print;

/// Ranks that are named; of more, how many there are.
const NAMED_RANKS: usize = 4;

/// Runs both layouts and prints where they first differ.
///
/// # Errors
/// Input that cannot be used, or the failure of a rank.
pub fn diff(arguments: &PairArguments) -> Result<(), Failure> {
    let signals = interrupt::ends_at_once()?;
    let pair = Pair::open(arguments)?;
    let Some(found) = pair.with("diff", &signals, find)?.flatten() else { return Ok(()) };
    print(&match arguments.format() {
        Format::Text => text(&pair.names, pair.steps, &found),
        Format::Json => format!("{}\n", record(pair.steps, &found)),
    })
}

/// The first difference, on process 0; nothing on others.
fn find(runs: &Runs<'_>) -> Result<Option<Found>, Failure> {
    let run = |verdict: &Verdict, steps: u32, watch: &dyn Watch| -> Result<(), ProofError> {
        let ranks = match runs.ranks(verdict).map_err(of_processes)? {
            RunRanks::Here(ranks) | RunRanks::Shared(ranks, _) => ranks,
            RunRanks::InFirst => return Ok(()),
        };
        let tokens = runs.text.training();
        ranks.watched(|setup, engine| run_first(steps, setup, engine, tokens, watch)).map_err(of_processes)
    };
    let [a, b] = &runs.pair.verdicts;
    let first = |steps: u32, watch: &dyn Watch| run(a, steps, watch);
    let second = |steps: u32, watch: &dyn Watch| run(b, steps, watch);
    let exchange: &dyn Exchange = match runs.process_group {
        ProcessGroup::Alone => &SingleProcess,
        ProcessGroup::Several(member) => &Others(member),
    };
    first_difference([&first, &second], runs.pair.steps, exchange).map_err(|error| Failure::Work(error.to_string()))
}

/// The topic of messages of a comparison.
const VALUES: &str = "values of the runs";

/// Each message is followed by another one; an empty one is the last of its process.
struct Others<'a>(&'a GroupMember);

impl Exchange for Others<'_> {
    fn is_first(&self) -> bool {
        self.0.is_first()
    }

    fn gather(&self, messages: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>, ProofError> {
        if !self.is_first() {
            for message in messages.into_iter().chain([vec![]]) {
                self.0.send(VALUES, message).map_err(of_processes)?;
            }
            return Ok(vec![]);
        }
        let mut all = vec![];
        for process in 1..self.0.processes() {
            loop {
                let message = self.0.take(VALUES, process).map_err(of_processes)?;
                if message.is_empty() {
                    break;
                }
                all.push(message);
            }
        }
        Ok(all)
    }

    fn broadcast(&self, message: Vec<u8>) -> Result<Vec<u8>, ProofError> {
        self.0.broadcast(VALUES, message).map_err(of_processes)
    }
}

fn of_processes(failure: Failure) -> ProofError {
    ProofError::Processes(failure.to_string())
}

fn text(names: &[String; 2], steps: u32, found: &Found) -> String {
    let difference = match found {
        Found::Nothing { values } => {
            let (values, steps) = (grouped(*values as u64), counted(u64::from(steps), "step"));
            return format!(
                "{} and {}, {steps}: no difference; {values} values have the same bits on all ranks that hold them\n",
                names[0], names[1]
            );
        }
        Found::First(difference) => difference,
    };
    let (differing, of) = difference.differing;
    let mut text = format!("{}{}\n", difference.value, difference.element);
    let width = names.iter().map(String::len).max().unwrap_or(0);
    for (name, holdings) in names.iter().zip(&difference.holdings) {
        for (value, holders) in by_value(holdings) {
            text += &format!("  {name:width$}  {value:e} on {}\n", ranks(&holders));
        }
        if holdings.is_empty() {
            text += &format!("  {name:width$}  not computed\n");
        }
    }
    let apart = difference
        .last_places()
        .map_or("not to be counted in last places".into(), |places| format!("{} apart", counted(places, "last place")));
    text + &format!("{apart}; {} of {} differ\n", grouped(differing as u64), counted(of as u64, "element"))
}

/// The different values, each with those that hold it.
fn by_value(holdings: &[Holding]) -> Vec<(f32, Vec<&Holding>)> {
    let mut values: Vec<(f32, Vec<&Holding>)> = vec![];
    for holding in holdings {
        match values.iter_mut().find(|(value, _)| value.to_bits() == holding.value.to_bits()) {
            Some((_, holders)) => holders.push(holding),
            None => values.push((holding.value, vec![holding])),
        }
    }
    values
}

fn ranks(holders: &[&Holding]) -> String {
    let name = |holder: &&Holding| {
        let microbatch = holder.microbatch.map_or(String::new(), |microbatch| format!("; {microbatch}"));
        format!("rank {} ({}{microbatch})", holder.rank, holder.place)
    };
    let mut named: Vec<String> = holders.iter().take(NAMED_RANKS).map(name).collect();
    if holders.len() > NAMED_RANKS {
        named.push(format!("{} more", counted((holders.len() - NAMED_RANKS) as u64, "rank")));
    }
    named.join(", ")
}

fn record(steps: u32, found: &Found) -> Value {
    match found {
        Found::Nothing { values } => json!({ "steps": steps, "differs": false, "values": values }),
        Found::First(difference) => {
            let Difference { value, element, differing: (differing, of), holdings, .. } = &**difference;
            let [a, b] = holdings.each_ref().map(|holdings| holdings.iter().map(holder).collect::<Vec<_>>());
            json!({
                "steps": steps,
                "differs": true,
                "step": value.step,
                "value": format!("{value}{element}"),
                "differing_elements": differing,
                "elements": of,
                "last_places": difference.last_places(),
                "a": a,
                "b": b,
            })
        }
    }
}

fn holder(holding: &Holding) -> Value {
    json!({
        "rank": holding.rank,
        "place": holding.place,
        "microbatch": holding.microbatch.map(|microbatch| microbatch.0),
        "value": holding.value,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_with_one_value_are_listed_together() {
        let holding = |rank, value| Holding { rank, place: format!("dp {rank}"), microbatch: None, value };
        let holdings =
            [(0, 1.0), (1, 2.0), (2, 1.0), (3, 1.0), (4, 1.0), (5, 1.0)].map(|(rank, value)| holding(rank, value));
        let lines: Vec<String> =
            by_value(&holdings).iter().map(|(value, holders)| format!("{value:e} on {}", ranks(holders))).collect();
        assert_eq!(
            lines,
            ["1e0 on rank 0 (dp 0), rank 2 (dp 2), rank 3 (dp 3), rank 4 (dp 4), 1 rank more", "2e0 on rank 1 (dp 1)"]
        );
    }
}
