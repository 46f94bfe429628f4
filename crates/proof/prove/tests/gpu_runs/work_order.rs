//! The order of the work of a GPU that streams, waits and the host enforce, from the calls of its host; and the waits
//! without which work that uses the same memory has no order.

use std::collections::BTreeMap;

use gpu::{EventHandle, PinnedHandle, StreamHandle};
use softgpu::{Pairs, Place};
use testkit::wrapped_gpu::{GpuCall, PinnedRange};

/// For each stream, how much of its work comes before.
type Clock = BTreeMap<StreamHandle, usize>;

fn join(clock: &mut Clock, other: &Clock) {
    for (stream, count) in other {
        let known = clock.entry(*stream).or_default();
        *known = (*known).max(*count);
    }
}

/// The work before each piece of work, and the work that the host has waited for at each access to pinned memory.
#[derive(Default)]
struct Order {
    work: BTreeMap<Place, Clock>,
    host: Vec<Clock>,
}

impl Order {
    /// The order of `calls` without the one at the place `left_out`. The host's polls of events are not counted: they
    /// add order only.
    fn of(calls: &[GpuCall], left_out: Option<usize>) -> Order {
        let mut streams: BTreeMap<StreamHandle, Clock> = BTreeMap::new();
        let mut events: BTreeMap<EventHandle, Clock> = BTreeMap::new();
        let (mut host, mut order) = (Clock::new(), Order::default());
        for (place, call) in calls.iter().enumerate() {
            if left_out == Some(place) {
                continue;
            }
            match *call {
                GpuCall::Transfer(stream, _) | GpuCall::Copy(stream) | GpuCall::Launch(stream) => {
                    order.add(streams.entry(stream).or_default(), stream, &host);
                }
                GpuCall::LaunchGraph(stream, kernels) => {
                    (0..kernels).for_each(|_| order.add(streams.entry(stream).or_default(), stream, &host));
                }
                GpuCall::Record(event, stream) => {
                    events.insert(event, streams.entry(stream).or_default().clone());
                }
                GpuCall::Wait(stream, event) => {
                    let event = events.get(&event).cloned().unwrap_or_default();
                    join(streams.entry(stream).or_default(), &event);
                }
                GpuCall::Synchronize(stream) => {
                    join(&mut host, streams.entry(stream).or_default());
                }
                GpuCall::Host(_) => order.host.push(host.clone()),
                GpuCall::Allocate
                | GpuCall::Create(_)
                | GpuCall::Load
                | GpuCall::CreateGraph(_)
                | GpuCall::SetNode(..) => {}
            }
        }
        order
    }

    /// Adds a piece of work of a stream with this clock.
    fn add(&mut self, clock: &mut Clock, stream: StreamHandle, host: &Clock) {
        join(clock, host);
        let count = clock.get(&stream).copied().unwrap_or(0);
        self.work.insert((stream, count), clock.clone());
        clock.insert(stream, count + 1);
    }

    /// Whether the first of a pair comes before the second.
    fn has(&self, (earlier, later): &(Place, Place)) -> bool {
        let clock = self.work.get(later);
        clock.is_some_and(|clock| clock.get(&earlier.0).copied().unwrap_or(0) > earlier.1)
    }
}

/// Why the wait at a place of `calls` is needed, if it is: without it a pair of work has no order, or the host uses
/// pinned memory before the end of a transfer that it waited for.
///
/// # Panics
/// A pair that has no order with all waits.
pub fn need(calls: &[GpuCall], pairs: &Pairs, place: usize) -> Option<String> {
    let (whole, without) = (Order::of(calls, None), Order::of(calls, Some(place)));
    let disordered: Vec<_> = pairs.iter().filter(|pair| !whole.has(pair)).collect();
    assert!(disordered.is_empty(), "no wait orders {disordered:?}");
    let lost_pair = pairs.iter().find(|pair| !without.has(pair));
    let of_pair = lost_pair.map(|(earlier, later)| format!("{later:?} uses the memory of {earlier:?}"));
    of_pair.or_else(|| {
        let transfer = lost_transfer(calls, &whole.host, &without.host)?;
        Some(format!("the host uses the memory of the transfer {transfer:?}"))
    })
}

/// The first transfer that the host has waited for by the first clocks, at its accesses to pinned memory, and not by
/// the second ones, of the same bytes.
fn lost_transfer(calls: &[GpuCall], waited: &[Clock], without: &[Clock]) -> Option<Place> {
    let mut counts = Clock::new();
    let mut transfers: Vec<(Place, PinnedRange)> = vec![];
    let mut accesses = waited.iter().zip(without);
    for call in calls {
        match *call {
            GpuCall::Transfer(stream, range) => {
                let count = counts.entry(stream).or_default();
                transfers.push(((stream, *count), range));
                *count += 1;
            }
            GpuCall::Copy(stream) | GpuCall::Launch(stream) => *counts.entry(stream).or_default() += 1,
            GpuCall::LaunchGraph(stream, kernels) => *counts.entry(stream).or_default() += kernels,
            GpuCall::Host(range) => {
                let (waited, without) = accesses.next()?;
                let has = |clock: &Clock, place: &Place| clock.get(&place.0).copied().unwrap_or(0) > place.1;
                let is_lost = |(place, other): &&(Place, PinnedRange)| {
                    other.meets(&range) && has(waited, place) && !has(without, place)
                };
                if let Some((place, _)) = transfers.iter().find(is_lost) {
                    return Some(*place);
                }
            }
            GpuCall::Allocate
            | GpuCall::Create(_)
            | GpuCall::Load
            | GpuCall::Record(..)
            | GpuCall::Wait(..)
            | GpuCall::Synchronize(_)
            | GpuCall::CreateGraph(_)
            | GpuCall::SetNode(..) => {}
        }
    }
    None
}

#[test]
fn a_wait_is_needed_where_nothing_else_orders_work_on_the_same_memory() {
    let (first, second) = (StreamHandle(1), StreamHandle(2));
    let event = EventHandle(7);
    let wait = GpuCall::Wait(second, event);
    let needed_between = |between: &[GpuCall], pairs: &[(Place, Place)]| {
        let mut calls = vec![GpuCall::Launch(first), GpuCall::Record(event, first)];
        calls.extend(between);
        calls.push(GpuCall::Launch(second));
        let pairs = pairs.iter().copied().collect();
        let waits = (0..calls.len()).filter(|place| calls[*place] == wait);
        waits.filter(|place| need(&calls, &pairs, *place).is_some()).collect::<Vec<usize>>()
    };
    let pair = ((first, 0), (second, 0));
    let none = vec![0; 0];
    assert_eq!(needed_between(&[wait], &[pair]), [2], "the only wait");
    assert_eq!(needed_between(&[wait], &[]), none, "they use no memory in common");
    assert_eq!(needed_between(&[wait, wait], &[pair]), none, "each is implied by the other");
    assert_eq!(needed_between(&[GpuCall::Synchronize(first), wait], &[pair]), none, "the host has waited");
    assert_eq!(
        needed_between(&[GpuCall::Synchronize(second), wait], &[pair]),
        [3],
        "the host waited for another stream"
    );
    assert_eq!(needed_between(&[wait, GpuCall::Copy(second), wait], &[pair]), [2], "work in between needs the first");
    let later = ((first, 0), (second, 1));
    assert_eq!(needed_between(&[wait, GpuCall::Copy(second)], &[later]), [2], "work before it shares nothing");
    let range = PinnedRange { pinned: PinnedHandle(3), offset: 8, bytes: 8 };
    let read = |range: PinnedRange, offset| {
        let host = GpuCall::Host(PinnedRange { offset, ..range });
        [GpuCall::Transfer(first, range), GpuCall::Record(event, first), wait, GpuCall::Synchronize(second), host]
    };
    assert_eq!(needed_between(&read(range, 12), &[]), [4], "the host reads what was copied");
    assert_eq!(needed_between(&read(range, 16), &[]), none, "the host reads other bytes");
}
