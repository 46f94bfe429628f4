//! Placing colours: items of one size are coloured such that items of a colour are never alive together, then each
//! colour is placed as one. Where a schedule repeats itself, few colours remain, and they are as regularly as it runs.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::{Item, Packing};

/// More colours than this are left to the other heuristics.
const MOST_COLOURS: usize = 512;

/// Items that are alive when this part of the peak is, in per cent, are coloured before the others.
const PRESSURES_PERCENT: [usize; 3] = [98, 95, 90];

/// Items of one size of which no two are alive together, in order of time.
struct Colour {
    size_bytes: usize,
    members: Vec<usize>,
}

/// The best packing over several colourings, or `None` if there are too many colours.
pub(super) fn by_colour(items: &[Item], enough: usize) -> Option<Packing> {
    if least_colours(items) > MOST_COLOURS {
        return None;
    }
    let mut best: Option<Packing> = None;
    for order in orders(items) {
        let Some(colours) = colour(items, &order) else { continue };
        let packing = stacked(items, &colours);
        if best.as_ref().is_none_or(|best| packing.height_bytes < best.height_bytes) {
            best = Some(packing);
        }
        if best.as_ref().is_some_and(|best| best.height_bytes <= enough) {
            break;
        }
    }
    best
}

/// Colours that any colouring has: for each size as many as items of it are alive together at some time.
fn least_colours(items: &[Item]) -> usize {
    let mut by_size: BTreeMap<usize, Vec<(usize, isize)>> = BTreeMap::new();
    for item in items {
        // At one time deaths come first.
        by_size.entry(item.size_bytes).or_default().extend([(item.start, 1), (item.end, -1)]);
    }
    let most = |mut changes: Vec<(usize, isize)>| {
        changes.sort_unstable();
        let mut alive = 0;
        let counts = changes.into_iter().map(|(_, change)| {
            alive += change;
            alive
        });
        counts.max().unwrap_or(0).unsigned_abs()
    };
    by_size.into_values().map(most).sum()
}

/// Orders in which colours are given. In order of births fewest are needed in all; what matters is that few are needed
/// where most bytes are alive, so the items that are alive there come first. Long ones first leaves few gaps.
fn orders(items: &[Item]) -> Vec<Vec<usize>> {
    let mut by_birth: Vec<usize> = (0..items.len()).collect();
    by_birth.sort_by_key(|&index| items[index].start);
    let mut by_length = by_birth.clone();
    by_length.sort_by_key(|&index| Reverse(items[index].length()));
    let pressures = pressures(items);
    let peak = pressures.iter().copied().max().unwrap_or(0);
    let mut orders = vec![by_length];
    for percent in PRESSURES_PERCENT {
        let mut order = by_birth.clone();
        order.sort_by_key(|&index| pressures[index] * 100 < peak * percent);
        orders.push(order);
    }
    orders.push(by_birth);
    orders
}

/// For each item the most bytes that are alive during its life.
fn pressures(items: &[Item]) -> Vec<usize> {
    let mut live = vec![0; items.iter().map(|item| item.end).max().unwrap_or(0)];
    for item in items {
        for bytes in &mut live[item.start..item.end] {
            *bytes += item.size_bytes;
        }
    }
    items.iter().map(|item| live[item.start..item.end].iter().copied().max().unwrap_or(0)).collect()
}

/// Stacks colours, large ones first, of equal ones those that are in use longest.
fn stacked(items: &[Item], colours: &[Colour]) -> Packing {
    let in_use = |colour: &Colour| -> usize { colour.members.iter().map(|&member| items[member].length()).sum() };
    let mut order: Vec<usize> = (0..colours.len()).collect();
    order.sort_by_cached_key(|&index| Reverse((colours[index].size_bytes, in_use(&colours[index]))));
    let of_colours = stack(colours, &meetings(items, colours), &order);
    let mut offsets = vec![0; items.len()];
    for (colour, offset) in colours.iter().zip(of_colours) {
        for &member in &colour.members {
            offsets[member] = offset;
        }
    }
    Packing::new(items, offsets)
}

/// In the given order each item takes the first colour of its size that is free throughout its life; `None` if there
/// are too many colours.
fn colour(items: &[Item], order: &[usize]) -> Option<Vec<Colour>> {
    let mut by_size: BTreeMap<usize, Vec<Colour>> = BTreeMap::new();
    let mut number = 0;
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
            None if number == MOST_COLOURS => return None,
            None => {
                number += 1;
                colours.push(Colour { size_bytes: item.size_bytes, members: vec![index] });
            }
        }
    }
    Some(by_size.into_values().flatten().collect())
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
