//! Placing colours: items of one size are coloured such that items of a colour are never alive together, then each
//! colour is placed as one. Few colours remain where a schedule repeats itself, so many orders can be tried.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::{Item, Placement};

/// More colours than this are left to the other heuristics.
const MOST_COLOURS: usize = 512;
/// Orders that are tried from each starting order.
const ROUNDS: usize = 16;

/// Items of one size of which no two are alive together, in order of time.
struct Colour {
    size_bytes: usize,
    members: Vec<usize>,
}

/// The best placement of colours over several orders, or `None` if there are too many colours.
pub(super) fn by_colour(items: &[Item], enough: usize) -> Option<Placement> {
    let length = |index: &usize| items[*index].length();
    let mut by_start: Vec<usize> = (0..items.len()).collect();
    by_start.sort_by_key(|&index| items[index].start);
    let mut by_length = by_start.clone();
    by_length.sort_by_key(|index| Reverse(length(index)));
    let mut best: Option<Placement> = None;
    for order in [by_length, by_start] {
        let colours = colour(items, &order);
        if colours.len() > MOST_COLOURS {
            continue;
        }
        let busy: Vec<usize> = colours.iter().map(|colour| colour.members.iter().map(length).sum()).collect();
        let placement = stacked(items, &colours, &busy, enough);
        let height_bytes = placement.height_bytes;
        if best.as_ref().is_none_or(|best| height_bytes < best.height_bytes) {
            best = Some(placement);
        }
        if height_bytes <= enough {
            break;
        }
    }
    best
}

/// Stacks colours in several orders, moving those that reach too high to the front.
fn stacked(items: &[Item], colours: &[Colour], busy: &[usize], enough: usize) -> Placement {
    let meets = meetings(items, colours);
    let degree = |index: usize| -> usize { meets[index].iter().map(|other| colours[*other].size_bytes).sum() };
    let keys: [Vec<usize>; 3] = [
        colours.iter().map(|colour| colour.size_bytes).collect(),
        busy.to_vec(),
        (0..colours.len()).map(degree).collect(),
    ];
    let mut best: (usize, Vec<usize>) = (usize::MAX, vec![]);
    'search: for key in keys {
        let mut order: Vec<usize> = (0..colours.len()).collect();
        order.sort_by_key(|&index| Reverse((key[index], busy[index])));
        for _ in 0..ROUNDS {
            let offsets = stack(colours, &meets, &order);
            let end = |index: usize| offsets[index] + colours[index].size_bytes;
            let height = (0..colours.len()).map(end).max().unwrap_or(0);
            let (high, low): (Vec<usize>, Vec<usize>) = order.iter().partition(|index| end(**index) > enough);
            order = [high, low].concat();
            if height < best.0 {
                best = (height, offsets);
            }
            if height <= enough {
                break 'search;
            }
        }
    }
    let mut offsets = vec![0; items.len()];
    for (colour, offset) in colours.iter().zip(best.1) {
        for &member in &colour.members {
            offsets[member] = offset;
        }
    }
    Placement::new(items, offsets)
}

/// In the given order each item takes the first colour of its size that is free throughout its life.
fn colour(items: &[Item], order: &[usize]) -> Vec<Colour> {
    let mut by_size: BTreeMap<usize, Vec<Colour>> = BTreeMap::new();
    for &index in order {
        let item = &items[index];
        let colours = by_size.entry(item.size_bytes).or_default();
        let place = |colour: &Colour| {
            let at = colour.members.partition_point(|other| items[*other].start < item.start);
            let before = at.checked_sub(1).map(|before| colour.members[before]);
            let after = colour.members.get(at).copied();
            let free = [before, after].into_iter().flatten().all(|other| !items[other].meets(item));
            free.then_some(at)
        };
        match colours.iter().enumerate().find_map(|(colour, members)| Some((colour, place(members)?))) {
            Some((colour, at)) => colours[colour].members.insert(at, index),
            None => colours.push(Colour { size_bytes: item.size_bytes, members: vec![index] }),
        }
    }
    by_size.into_values().flatten().collect()
}

/// For each colour those with which it is alive together at some time.
fn meetings(items: &[Item], colours: &[Colour]) -> Vec<Vec<usize>> {
    let mut meets = vec![vec![]; colours.len()];
    for first in 0..colours.len() {
        for second in first + 1..colours.len() {
            if meet(items, &colours[first].members, &colours[second].members) {
                meets[first].push(second);
                meets[second].push(first);
            }
        }
    }
    meets
}

fn meet(items: &[Item], first: &[usize], second: &[usize]) -> bool {
    let (mut a, mut b) = (0, 0);
    while let (Some(&left), Some(&right)) = (first.get(a), second.get(b)) {
        if items[left].meets(&items[right]) {
            return true;
        }
        if items[left].end <= items[right].end {
            a += 1;
        } else {
            b += 1;
        }
    }
    false
}

/// Each colour at the lowest offset that no colour placed before and met takes.
fn stack(colours: &[Colour], meets: &[Vec<usize>], order: &[usize]) -> Vec<usize> {
    let mut offsets = vec![usize::MAX; colours.len()];
    let mut taken: Vec<(usize, usize)> = vec![];
    for &index in order {
        taken.clear();
        let placed = meets[index].iter().filter(|other| offsets[**other] != usize::MAX);
        taken.extend(placed.map(|&other| (offsets[other], offsets[other] + colours[other].size_bytes)));
        taken.sort_unstable();
        let mut offset = 0;
        for &(start, end) in &taken {
            if start >= offset + colours[index].size_bytes {
                break;
            }
            offset = offset.max(end);
        }
        offsets[index] = offset;
    }
    offsets
}
