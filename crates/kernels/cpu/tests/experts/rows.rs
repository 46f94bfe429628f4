//! Rows sorted by expert, gathered and combined.

use cpu::experts::{CombineRows, GroupRows, gather_rows, group_rows};
use cpu::lanes::run;
use cpu::view::{MatMut, MatRef};
use device::{Bf16, Write};

use crate::kernels::support::{random, same_on_all_sets};

/// Choices of `tokens` tokens with `per_token` slots: ascending for each token.
pub struct Routed {
    pub choice: Vec<i32>,
    pub tokens: usize,
    pub per_token: usize,
    pub experts: usize,
}

impl Routed {
    /// Drawn; experts of which the number is a multiple of 5 are chosen by none where others are enough.
    pub fn drawn(tokens: usize, per_token: usize, experts: usize) -> Routed {
        let mut choice = vec![];
        for token in 0..tokens {
            let keys = random(&format!("token {token}"), experts, 1.0);
            let mut order: Vec<usize> = (0..experts).collect();
            order.sort_by(|a, b| (a % 5 == 0).cmp(&(b % 5 == 0)).then(keys[*a].total_cmp(&keys[*b])));
            let mut chosen: Vec<i32> = order[..per_token].iter().map(|expert| *expert as i32).collect();
            chosen.sort_unstable();
            choice.extend(chosen);
        }
        Routed { choice, tokens, per_token, experts }
    }

    /// Every token chooses the last experts.
    pub fn all_to_last(tokens: usize, per_token: usize, experts: usize) -> Routed {
        let choice = (0..tokens).flat_map(|_| experts - per_token..experts).map(|expert| expert as i32).collect();
        Routed { choice, tokens, per_token, experts }
    }

    /// Cases of all kinds: drawn, one token, all experts, all tokens to one, one expert.
    pub fn cases() -> Vec<Routed> {
        vec![
            Routed::drawn(101, 2, 8),
            Routed::drawn(67, 5, 12),
            Routed::drawn(1, 3, 7),
            Routed::drawn(29, 6, 6),
            Routed::all_to_last(83, 1, 8),
            Routed::all_to_last(40, 3, 8),
            Routed::drawn(50, 1, 1),
        ]
    }
}

/// The tensors of [`GroupRows`].
#[derive(Clone, Debug, PartialEq)]
pub struct Rows {
    pub places: Vec<i32>,
    pub slots: Vec<i32>,
    pub offsets: Vec<i32>,
}

/// Rows of `experts` from `first` on, in room for `room`.
pub fn grouped(routed: &Routed, first: usize, experts: usize, room: usize) -> Rows {
    let count = routed.choice.len();
    let mut rows = Rows { places: vec![-9; count], slots: vec![-9; room], offsets: vec![-9; experts + 1] };
    let Rows { places, slots, offsets } = &mut rows;
    group_rows(GroupRows { choice: &routed.choice, first_expert: first, places, slots, offsets, ranks: 1 });
    rows
}

/// Of several ranks, each has the rows that it would have alone, from its own place on.
#[test]
fn rows_of_each_rank_begin_at_equal_distances() {
    for routed in Routed::cases() {
        for ranks in divisors(routed.experts) {
            let (of_rank, room) = (routed.experts / ranks, routed.choice.len() + 2);
            let mut all = Rows {
                places: vec![-9; routed.choice.len()],
                slots: vec![-9; ranks * room],
                offsets: vec![-9; ranks * (of_rank + 1)],
            };
            let Rows { places, slots, offsets } = &mut all;
            group_rows(GroupRows { choice: &routed.choice, first_expert: 0, places, slots, offsets, ranks });
            for rank in 0..ranks {
                let alone = grouped(&routed, rank * of_rank, of_rank, room);
                assert_eq!(all.slots[rank * room..(rank + 1) * room], alone.slots);
                assert_eq!(all.offsets[rank * (of_rank + 1)..(rank + 1) * (of_rank + 1)], alone.offsets);
                for (place, of_rank) in all.places.iter().zip(&alone.places).filter(|(_, place)| **place >= 0) {
                    assert_eq!(*place, of_rank + (rank * room) as i32);
                }
            }
        }
    }
}

fn divisors(number: usize) -> impl Iterator<Item = usize> {
    (1..=number).filter(move |ranks| number.is_multiple_of(*ranks))
}

#[test]
fn rows_are_sorted_by_expert_and_then_by_token() {
    for routed in Routed::cases() {
        for (first, experts) in [(0, routed.experts), (routed.experts / 2, routed.experts - routed.experts / 2), (0, 1)]
        {
            let room = routed.choice.len() + 3;
            let Rows { places, slots, offsets } = grouped(&routed, first, experts, room);
            let mut sorted: Vec<(i32, usize)> =
                routed.choice.iter().enumerate().map(|(slot, expert)| (*expert, slot)).collect();
            sorted.retain(|(expert, _)| (first..first + experts).contains(&(*expert as usize)));
            sorted.sort_unstable();
            let expected: Vec<i32> = sorted.iter().map(|(_, slot)| *slot as i32).collect();
            assert_eq!(slots[..expected.len()], expected);
            assert!(slots[expected.len()..].iter().all(|slot| *slot == -1));
            for (group, first_row) in offsets.iter().enumerate() {
                let before = sorted.iter().filter(|(expert, _)| (*expert as usize) < first + group).count();
                assert_eq!(*first_row as usize, before);
            }
            for (slot, place) in places.iter().enumerate() {
                let row = expected.iter().position(|other| *other as usize == slot);
                assert_eq!(*place, row.map_or(-1, |row| row as i32));
            }
        }
    }
}

#[test]
fn numbers_of_no_expert_have_no_row() {
    let routed = Routed { choice: vec![-1, 3, 9, i32::MIN, i32::MAX, 2], tokens: 6, per_token: 1, experts: 4 };
    let rows = grouped(&routed, 2, 2, 4);
    let expected = Rows { places: vec![-1, 1, -1, -1, -1, 0], slots: vec![5, 1, -1, -1], offsets: vec![0, 1, 2] };
    assert_eq!(rows, expected);
}

#[test]
#[should_panic(expected = "6 rows of experts, but room for 5")]
fn more_rows_than_room_are_refused() {
    grouped(&Routed::drawn(3, 2, 2), 0, 2, 5);
}

/// Rows of other ranks' experts, and after the last, are not touched.
#[test]
fn gathered_rows_are_those_of_their_tokens() {
    for routed in Routed::cases() {
        let (width, room) = (19, routed.choice.len() + 4);
        let rows = grouped(&routed, routed.experts / 2, routed.experts - routed.experts / 2, room);
        let from = random("from", routed.tokens * width, 1.0);
        let mut to = vec![7.5; room * width];
        let from_view = MatRef::dense(&from, routed.tokens, width);
        gather_rows(from_view, &rows.places, MatMut::dense(&mut to, room, width));
        for (row, slot) in rows.slots.iter().enumerate() {
            let actual = &to[row * width..(row + 1) * width];
            match usize::try_from(*slot) {
                Ok(slot) => assert_eq!(actual, from_view.row(slot / routed.per_token)),
                Err(_) => assert_eq!(actual, [7.5; 19]),
            }
        }
    }
}

/// The bits of the chain that the operation's documentation writes down, from rows of which the unused ones are NaN.
#[test]
fn combined_rows_are_chains_in_ascending_order() {
    fn check<E: cpu::lanes::Stored>() {
        for routed in Routed::cases() {
            let (width, room) = (35, routed.choice.len() + 4);
            let rows = grouped(&routed, routed.experts / 2, routed.experts - routed.experts / 2, room);
            let mut y: Vec<E> = random("y", room * width, 1.0).iter().map(|value| E::narrow(*value)).collect();
            for (row, _) in rows.slots.iter().enumerate().filter(|(_, slot)| **slot < 0) {
                y[row * width..(row + 1) * width].fill(E::narrow(f32::NAN));
            }
            let before: Vec<E> = random("out", routed.tokens * width, 1.0).iter().map(|x| E::narrow(*x)).collect();
            let weights = random("weights", routed.choice.len(), 2.0);
            let weights = MatRef::dense(&weights, routed.tokens, routed.per_token);
            for (write, weights) in
                [(Write::Assign, Some(weights)), (Write::Accumulate, Some(weights)), (Write::Assign, None)]
            {
                let actual = same_on_all_sets(|set| {
                    let (mut out, y) = (before.clone(), MatRef::dense(&y, room, width));
                    let to = MatMut::dense(&mut out, routed.tokens, width);
                    run(set, CombineRows { y, weights, places: &rows.places, out: to, write });
                    out.iter().map(|value| value.widen()).collect()
                });
                for (index, actual) in actual.iter().enumerate() {
                    let (token, column) = (index / width, index % width);
                    let start = match write {
                        Write::Assign => 0.0,
                        Write::Accumulate => before[index].widen(),
                    };
                    let chain = |sum: f32, slot: usize| {
                        let Ok(row) = usize::try_from(rows.places[token * routed.per_token + slot]) else { return sum };
                        let weight = weights.map_or(1.0, |weights| weights.row(token)[slot]);
                        weight.mul_add(y[row * width + column].widen(), sum)
                    };
                    let expected = E::narrow((0..routed.per_token).fold(start, chain)).widen();
                    assert_eq!(actual.to_bits(), expected.to_bits(), "token {token}, column {column}");
                }
            }
        }
    }
    check::<f32>();
    check::<Bf16>();
}
