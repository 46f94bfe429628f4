//! Streams, events and graphs: missing events are found.

use gpu::{DevicePointer, DriverError, DriverErrorKind, EventHandle, Gpu, StreamHandle};
use softgpu::{Check, Checks, Settings};

use crate::tests::interpreter::machine::Machine;

/// A GPU whose streams are interleaved by `seed`. Without checks, a missing event shows in the bytes.
fn machine(seed: u64, global: Check) -> Machine {
    Machine::new(Settings { seed, checks: Checks { global, ..Checks::default() }, ..Settings::default() })
}

/// One stream fills `from`, another copies it on.
fn fill_then_copy(machine: &Machine, event: Option<EventHandle>) -> (StreamHandle, DevicePointer) {
    let (from, to) = (machine.gpu.allocate(64).expect("memory"), machine.gpu.allocate(64).expect("memory"));
    let other = machine.gpu.create_stream().expect("a stream");
    machine.gpu.fill(machine.stream, from, 9, 64).expect("a fill");
    if let Some(event) = event {
        machine.gpu.record(event, machine.stream).expect("an event");
        machine.gpu.wait(other, event).expect("a wait");
        // The wait keeps the point that was recorded, even after the event is destroyed.
        machine.gpu.destroy_event(event).expect("an event");
    }
    machine.gpu.copy(other, to, from, 64).expect("a copy");
    (other, to)
}

fn download(machine: &Machine, stream: StreamHandle, pointer: DevicePointer) -> Vec<u8> {
    let pinned = machine.gpu.allocate_pinned(64).expect("memory");
    machine.gpu.download(stream, pinned, 0, pointer, 64).expect("a copy");
    machine.gpu.synchronize(stream).expect("no failure");
    let mut bytes = vec![0; 64];
    machine.gpu.read_pinned(pinned, 0, &mut bytes).expect("a range");
    bytes
}

#[test]
fn a_missing_event_shows_in_the_bytes_of_some_schedule() {
    let mut results: Vec<u8> = (0..16)
        .map(|seed| {
            let machine = machine(seed, Check::Off);
            let (stream, to) = fill_then_copy(&machine, None);
            download(&machine, stream, to)[0]
        })
        .collect();
    results.sort_unstable();
    results.dedup();
    assert_eq!(results, [0, 9]);
    for seed in 0..16 {
        let machine = machine(seed, Check::Off);
        let event = machine.gpu.create_event().expect("an event");
        let (stream, to) = fill_then_copy(&machine, Some(event));
        assert_eq!(download(&machine, stream, to), [9; 64]);
    }
}

#[test]
fn a_missing_event_is_a_fault_in_every_schedule() {
    for seed in 0..16 {
        let machine = machine(seed, Check::On);
        let (other, _) = fill_then_copy(&machine, None);
        let errors = [machine.stream, other].map(|stream| machine.gpu.synchronize(stream).err());
        let error = errors.into_iter().flatten().next().expect("a race");
        assert_eq!(error.kind, DriverErrorKind::KernelFault);
        assert!(error.text.contains("without an order with work of stream"), "{error}");
    }
}

#[test]
fn a_host_that_waits_orders_streams_too() {
    for seed in 0..16 {
        let machine = machine(seed, Check::On);
        let (from, to) = (machine.gpu.allocate(64).expect("memory"), machine.gpu.allocate(64).expect("memory"));
        let other = machine.gpu.create_stream().expect("a stream");
        machine.gpu.fill(machine.stream, from, 9, 64).expect("a fill");
        machine.gpu.synchronize(machine.stream).expect("no failure");
        machine.gpu.copy(other, to, from, 64).expect("a copy");
        assert_eq!(download(&machine, other, to), [9; 64]);
    }
}

#[test]
fn a_graph_runs_what_was_captured_in_its_order() {
    for seed in 0..16 {
        let machine = machine(seed, Check::Off);
        let gpu = &machine.gpu;
        let memory: Vec<DevicePointer> = (0..3).map(|_| gpu.allocate(64).expect("memory")).collect();
        let other = gpu.create_stream().expect("a stream");
        let [fork, join] = [(); 2].map(|()| gpu.create_event().expect("an event"));
        gpu.begin_capture(machine.stream).expect("a capture");
        gpu.fill(machine.stream, memory[0], 3, 64).expect("a fill");
        gpu.record(fork, machine.stream).expect("an event");
        gpu.wait(other, fork).expect("a wait");
        gpu.copy(other, memory[1], memory[0], 64).expect("a copy");
        gpu.record(join, other).expect("an event");
        gpu.wait(machine.stream, join).expect("a wait");
        gpu.copy(machine.stream, memory[2], memory[1], 64).expect("a copy");
        let graph = gpu.end_capture(machine.stream).expect("a graph");
        assert_eq!(download(&machine, machine.stream, memory[2]), [0; 64]);
        for value in [3, 3] {
            gpu.fill(machine.stream, memory[2], 0, 64).expect("a fill");
            gpu.launch_graph(machine.stream, graph).expect("a launch");
            assert_eq!(download(&machine, machine.stream, memory[2]), [value; 64]);
        }
    }
}

/// A graph in which a stream fills memory and another one copies it on, with an edge from the fill to the copy or
/// without one.
fn fill_and_copy_in_a_graph(machine: &Machine, with_edge: bool) -> Result<Vec<u8>, DriverError> {
    let gpu = &machine.gpu;
    let [from, to] = [(); 2].map(|()| gpu.allocate(64).expect("memory"));
    let other = gpu.create_stream()?;
    let [fork, filled, join] = [(); 3].map(|()| gpu.create_event().expect("an event"));
    gpu.begin_capture(machine.stream)?;
    gpu.record(fork, machine.stream)?;
    gpu.wait(other, fork)?;
    gpu.fill(machine.stream, from, 9, 64)?;
    if with_edge {
        gpu.record(filled, machine.stream)?;
        gpu.wait(other, filled)?;
    }
    gpu.copy(other, to, from, 64)?;
    gpu.record(join, other)?;
    gpu.wait(machine.stream, join)?;
    let graph = gpu.end_capture(machine.stream)?;
    // Launches of a graph are in the order of their stream, and so is what follows.
    for _ in 0..2 {
        gpu.launch_graph(machine.stream, graph)?;
    }
    gpu.fill(machine.stream, from, 0, 64)?;
    gpu.synchronize(machine.stream)?;
    Ok(download(machine, machine.stream, to))
}

#[test]
fn a_missing_edge_of_a_graph_is_a_fault_in_every_schedule() {
    for seed in 0..16 {
        assert_eq!(fill_and_copy_in_a_graph(&machine(seed, Check::On), true), Ok(vec![9; 64]), "seed {seed}");
        let error = fill_and_copy_in_a_graph(&machine(seed, Check::On), false).expect_err("a race");
        assert_eq!(error.kind, DriverErrorKind::KernelFault);
        let text = format!(
            "without an order with work of branch {} of a graph of stream",
            u8::from(error.text.contains("are written"))
        );
        assert!(error.text.contains(&text), "seed {seed}: {error}");
    }
}

#[test]
fn a_capture_without_its_join_is_refused() {
    let machine = machine(0, Check::On);
    let gpu = &machine.gpu;
    let memory = gpu.allocate(64).expect("memory");
    let other = gpu.create_stream().expect("a stream");
    let fork = gpu.create_event().expect("an event");
    gpu.begin_capture(machine.stream).expect("a capture");
    gpu.record(fork, machine.stream).expect("an event");
    gpu.wait(other, fork).expect("a wait");
    gpu.fill(other, memory, 1, 64).expect("a fill");
    let error = gpu.end_capture(machine.stream).expect_err("one piece of work of the other stream");
    assert_eq!(error.kind, DriverErrorKind::InvalidArgument);
    assert!(error.text.contains("were not joined"), "{error}");
}

#[test]
fn events_are_reached_by_asking() {
    let machine = machine(1, Check::On);
    let gpu = &machine.gpu;
    let memory = gpu.allocate(64).expect("memory");
    let [from, to] = [(); 2].map(|()| gpu.create_event().expect("an event"));
    gpu.record(from, machine.stream).expect("an event");
    gpu.fill(machine.stream, memory, 1, 64).expect("a fill");
    gpu.record(to, machine.stream).expect("an event");
    assert_eq!(gpu.elapsed_ms(from, to).map_err(|error| error.kind), Err(DriverErrorKind::NotReady));
    while !gpu.is_reached(to).expect("no failure") {}
    assert!(gpu.elapsed_ms(from, to).expect("two times") >= 0.0);
    assert!(gpu.has_ended(machine.stream).expect("no failure"));
}
