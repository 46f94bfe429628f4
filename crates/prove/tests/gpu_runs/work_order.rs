//! The order of the work of a GPU that streams, waits and the host enforce, from the calls of its host.

use std::collections::BTreeMap;

use gpu::{EventHandle, StreamHandle};
use testkit::wrapped_gpu::GpuCall;

/// For each stream, how much of its work comes before.
type Clock = BTreeMap<StreamHandle, usize>;

fn join(clock: &mut Clock, other: &Clock) {
    for (stream, count) in other {
        let known = clock.entry(*stream).or_default();
        *known = (*known).max(*count);
    }
}

/// The work before each piece of work, and before the host continues after each synchronization, in the order of the
/// calls. The call number `left_out` is not made. The host's polls of events are not counted: they add order only.
fn clocks(calls: &[GpuCall], left_out: Option<usize>) -> Vec<Clock> {
    let mut streams: BTreeMap<StreamHandle, Clock> = BTreeMap::new();
    let mut events: BTreeMap<EventHandle, Clock> = BTreeMap::new();
    let (mut host, mut all) = (Clock::new(), vec![]);
    for (number, call) in calls.iter().enumerate() {
        if left_out == Some(number) {
            continue;
        }
        match *call {
            GpuCall::Copy(stream) | GpuCall::Launch(stream) => {
                let clock = streams.entry(stream).or_default();
                join(clock, &host);
                all.push(clock.clone());
                *clock.entry(stream).or_default() += 1;
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
                all.push(host.clone());
            }
            GpuCall::Allocate | GpuCall::Create(_) | GpuCall::Load => {}
        }
    }
    all
}

/// The numbers of waits that other waits and the host's own imply: without any one of them, the same work comes before
/// every piece of work.
pub fn implied(calls: &[GpuCall]) -> Vec<usize> {
    let expected = clocks(calls, None);
    let is_implied = |(number, call): &(usize, &GpuCall)| {
        matches!(call, GpuCall::Wait(..)) && clocks(calls, Some(*number)) == expected
    };
    calls.iter().enumerate().filter(is_implied).map(|(number, _)| number).collect()
}

#[test]
fn a_wait_that_another_repeats_is_implied_and_one_that_orders_work_is_not() {
    let (first, second) = (StreamHandle(1), StreamHandle(2));
    let event = EventHandle(7);
    let launch_both = |between: &[GpuCall]| {
        let mut calls = vec![GpuCall::Launch(first), GpuCall::Record(event, first)];
        calls.extend(between);
        calls.push(GpuCall::Launch(second));
        implied(&calls)
    };
    let wait = GpuCall::Wait(second, event);
    assert_eq!(launch_both(&[wait]), vec![0; 0], "the only wait");
    assert_eq!(launch_both(&[wait, wait]), [2, 3], "each is implied by the other");
    assert_eq!(launch_both(&[GpuCall::Synchronize(first), wait]), [3], "the host has waited");
    assert_eq!(
        launch_both(&[GpuCall::Synchronize(second), wait]),
        vec![0; 0],
        "the host has waited for another stream"
    );
    assert_eq!(launch_both(&[wait, GpuCall::Launch(second), wait]), [4], "work in between needs the first wait");
}
