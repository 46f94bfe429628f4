//! N27: dropout after a resumption is that of the undisturbed run, in the same layout and in another.

use device::DropoutKey;
use testkit::intercepted::{Masked, alter_ops, dropout_key};
use train::RankEngine;

use crate::checklist::findings::{assert_found, assert_holds};
use crate::resume::pairs::{Pair, learns_something_else, pairs};
use crate::resume::resumption::Resumption;

/// Steps before the resumption, of four.
const CUT: u32 = 2;

/// Each mask that is drawn after the resumption is changed.
fn masks(alter: fn(&mut DropoutKey)) -> impl Fn(mesh::Coord, RankEngine) -> RankEngine {
    move |_, rank| {
        alter_ops(rank, move |op| {
            if let Some((key, _)) = dropout_key(op) {
                alter(key);
            }
        })
    }
}

#[test]
fn dropout_continues_in_the_same_layout_and_in_another() {
    let pairs = pairs();
    assert!(pairs.iter().any(Pair::is_same_layout) && pairs.iter().filter(|pair| !pair.is_same_layout()).count() >= 5);
    for pair in &pairs {
        assert!(pair.after.model.dropout > 0.0 && pair.after.model.attention_dropout > 0.0);
        for cut in 1..pair.after.train.steps {
            assert_holds(Resumption::new(pair, cut).continues());
        }
    }
}

#[test]
fn masks_of_another_step_or_seed_after_a_resumption_are_found() {
    // The counter of steps restarts, is one too high, or is one too low; the resumption draws a seed of its own.
    let faults: [fn(&mut DropoutKey); 4] =
        [|key| key.step -= CUT, |key| key.step += 1, |key| key.step -= 1, |key| key.seed += 1];
    for pair in &pairs() {
        for fault in faults {
            let found = Resumption::new(pair, CUT).resumed_on(&masks(fault)).continues();
            assert_found(found, learns_something_else(pair));
        }
    }
}

/// Masks that a rank draws by its own place, as where each rank restores the generator that a rank of its number had
/// saved.
#[test]
fn masks_of_a_ranks_own_place_after_a_resumption_are_found() {
    let mut tried = [0; 2];
    for pair in &pairs() {
        let (dp, tp) = (pair.after.parallelism.degrees.dp as u64, pair.after.parallelism.degrees.tp);
        let tokens = (pair.after.train.global_batch * pair.after.train.sequence_length) as u64;
        if dp > 1 {
            let of_replica = move |_, rank: RankEngine| {
                alter_ops(rank, move |op| {
                    if let Some((key, _)) = dropout_key(op) {
                        key.first_token %= tokens / dp;
                    }
                })
            };
            assert_found(Resumption::new(pair, CUT).resumed_on(&of_replica).continues(), learns_something_else(pair));
            tried[0] += 1;
        }
        if tp > 1 {
            let of_first_heads = |_, rank: RankEngine| {
                alter_ops(rank, |op| {
                    if let Some((key, Masked::Probabilities)) = dropout_key(op) {
                        key.first_channel = 0;
                    }
                })
            };
            assert_found(
                Resumption::new(pair, CUT).resumed_on(&of_first_heads).continues(),
                learns_something_else(pair),
            );
            tried[1] += 1;
        }
    }
    assert!(tried.iter().all(|count| *count >= 2), "{tried:?}");
}
