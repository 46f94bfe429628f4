//! Values of other lanes.

use super::registers::{LANES, Lanes, Registers, lanes_in};
use crate::code::{Row, Shuffle, ShuffleMode, Slot, Vote, VoteMode};

/// The value of a lane that does not take part: a NaN, not a count.
const NOBODY: u32 = u32::MAX;

/// Reads a register of another lane.
pub fn shuffle(registers: &mut Registers, lanes: Lanes, shuffle: &Shuffle) {
    let [values, numbers, clamps] =
        [shuffle.from, shuffle.lane, shuffle.clamp].map(|row| registers.small[usize::from(row)]);
    let mut results = [0; LANES];
    let mut in_range = 0;
    for lane in lanes_in(lanes) {
        let own = lane as u32;
        let number = numbers[lane] & 31;
        let (clamp, segment) = (clamps[lane] & 31, clamps[lane] >> 8 & 31);
        let greatest = own & segment | clamp & !segment;
        let (other, is_in_range) = match shuffle.mode {
            ShuffleMode::Up => (own.wrapping_sub(number), own as i32 - number as i32 >= greatest as i32),
            ShuffleMode::Down => (own + number, own + number <= greatest),
            ShuffleMode::Butterfly => (own ^ number, own ^ number <= greatest),
            ShuffleMode::Index => {
                let other = own & segment | number & !segment;
                (other, other <= greatest)
            }
        };
        let other = if is_in_range { other as usize } else { lane };
        results[lane] = if lanes >> other & 1 == 1 { u64::from(values[other]) } else { u64::from(NOBODY) };
        in_range |= Lanes::from(is_in_range) << lane;
    }
    registers.write(Slot::Small(shuffle.to), lanes, &results);
    if let Some(row) = shuffle.is_in_range {
        registers.write_predicate(row, lanes, in_range);
    }
}

/// Reads a predicate of all lanes.
pub fn vote(registers: &mut Registers, lanes: Lanes, vote: &Vote) {
    let holds = registers.lanes_of(vote.from) & lanes;
    let all = |answer: bool| if answer { Lanes::MAX } else { 0 };
    match vote.mode {
        VoteMode::All => registers.write_predicate(vote.to, lanes, all(holds == lanes)),
        VoteMode::Any => registers.write_predicate(vote.to, lanes, all(holds != 0)),
        VoteMode::Uniform => registers.write_predicate(vote.to, lanes, all(holds == lanes || holds == 0)),
        VoteMode::Ballot => registers.write(Slot::Small(vote.to), lanes, &[u64::from(holds); LANES]),
    }
}

/// The lanes that have the same value.
pub fn matching(registers: &mut Registers, lanes: Lanes, is_all: bool, to: Row, found: Option<Row>, from: Slot) {
    let values = registers.values(from);
    let equal = |lane: usize| {
        lanes_in(lanes).filter(|other| values[*other] == values[lane]).fold(0, |mask: Lanes, other| mask | 1 << other)
    };
    let mut results = [0; LANES];
    for lane in lanes_in(lanes) {
        let same = equal(lane);
        results[lane] = u64::from(if is_all && same != lanes { 0 } else { same });
    }
    registers.write(Slot::Small(to), lanes, &results);
    if let Some(row) = found {
        let is_found = lanes_in(lanes).all(|lane| equal(lane) == lanes);
        registers.write_predicate(row, lanes, if is_found { Lanes::MAX } else { 0 });
    }
}

/// Elects the lowest lane.
pub fn elect(registers: &mut Registers, lanes: Lanes, to: Slot, is_elected: Row) {
    let leader = lanes.trailing_zeros();
    registers.write(to, lanes, &[u64::from(leader); LANES]);
    registers.write_predicate(is_elected, lanes, 1u32.checked_shl(leader).unwrap_or(0));
}
