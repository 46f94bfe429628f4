//! Failures that are planned, limits, and arguments that do not fit.

use gpu::{Arguments, DriverErrorKind, Gpu, LaunchShape};
use softgpu::{FaultPlan, PlannedFault, Settings};

use crate::tests::interpreter::machine::{Machine, threads_kernel};

fn planned(fault: PlannedFault) -> Machine {
    Machine::new(Settings { faults: FaultPlan::new(&[fault]), ..Settings::default() })
}

/// Launches an empty kernel `count` times; returns the failure with the number of the launch.
fn launches(machine: &Machine, count: usize) -> Option<(usize, DriverErrorKind)> {
    let memory = machine.gpu.allocate(4).ok()?;
    let function = machine.function(&threads_kernel("", "ret;"), "k");
    (1..=count).find_map(|number| {
        let arguments = Arguments::new().with(&memory.0.to_le_bytes());
        let launched = machine.gpu.launch(machine.stream, function, LaunchShape::linear(1, 1), &arguments);
        let ended = launched.and_then(|()| machine.gpu.synchronize(machine.stream));
        ended.err().map(|error| (number, error.kind))
    })
}

#[test]
fn planned_faults_come_at_their_number_and_stay() {
    assert_eq!(launches(&planned(PlannedFault::EccAtLaunch(3)), 5), Some((3, DriverErrorKind::Ecc)));
    let machine = planned(PlannedFault::TimeoutAtLaunch(2));
    assert_eq!(launches(&machine, 5), Some((2, DriverErrorKind::Timeout)));
    let later = machine.gpu.allocate(4).expect_err("a failed GPU");
    assert_eq!((later.call, later.kind), ("allocate", DriverErrorKind::Timeout));
    let lost = planned(PlannedFault::LostAtCall(4));
    let calls: Vec<bool> = (0..6).map(|_| lost.gpu.free_memory().is_ok()).collect();
    // The stream of the machine was call 1.
    assert_eq!(calls, [true, true, false, false, false, false]);
    assert_eq!(lost.gpu.free_memory().expect_err("a lost GPU").kind, DriverErrorKind::Lost);
}

#[test]
fn memory_that_is_used_up_can_be_freed() {
    let machine = planned(PlannedFault::OutOfMemoryAtAllocation(2));
    machine.gpu.allocate(16).expect("the first");
    assert_eq!(machine.gpu.allocate(16).expect_err("the second").kind, DriverErrorKind::OutOfMemory);
    machine.gpu.allocate(16).expect("the third");
    let small = Machine::new(Settings { memory_bytes: 100, ..Settings::default() });
    let first = small.gpu.allocate(60).expect("60 of 100");
    let error = small.gpu.allocate(60).expect_err("120 of 100");
    assert_eq!((error.kind, &*error.text), (DriverErrorKind::OutOfMemory, "60 bytes; 40 of 100 are free"));
    small.gpu.free(first).expect("an allocation");
    small.gpu.allocate(60).expect("60 of 100");
    assert_eq!(small.gpu.free(first).expect_err("freed").kind, DriverErrorKind::InvalidArgument);
}

#[test]
fn a_seed_plans_the_same_faults_again() {
    assert_eq!(FaultPlan::seeded(5), FaultPlan::seeded(5));
    let kinds: std::collections::HashSet<_> = (0..64).map(|seed| format!("{:?}", FaultPlan::seeded(seed))).collect();
    assert!(kinds.len() > 32, "{} of 64 plans differ", kinds.len());
}

#[test]
fn launches_that_do_not_fit() {
    let machine = Machine::new(Settings::default());
    let function = machine.function(&threads_kernel("", "ret;"), "k");
    let refuse = |shape: LaunchShape, arguments: &Arguments| {
        let error = machine.gpu.launch(machine.stream, function, shape, arguments).expect_err("a refusal");
        assert_eq!(error.kind, DriverErrorKind::InvalidArgument);
        error.text
    };
    let right = Arguments::new().with(&[0; 8]);
    assert_eq!(refuse(LaunchShape::linear(1, 1), &Arguments::new()), "k takes 1 arguments; got 0");
    assert_eq!(
        refuse(LaunchShape::linear(1, 1), &Arguments::new().with(&[0; 4])),
        "argument 0 of k has 8 bytes; got 4"
    );
    assert!(refuse(LaunchShape::linear(1, 1025), &right).contains("1 to 1024"));
    assert!(refuse(LaunchShape::linear(0, 1), &right).contains("a grid of 0 x 1 x 1 blocks"));
    let shared = LaunchShape { shared_bytes: 49 << 10, ..LaunchShape::linear(1, 1) };
    assert!(refuse(shared, &right).contains("49152 dynamic are allowed"));
    machine.gpu.allow_shared(function, 50 << 10).expect("within the block's memory");
    machine.gpu.launch(machine.stream, function, shared, &right).expect("allowed");
    machine.gpu.allow_shared(function, 228 << 10).expect_err("more than a block has");
}

#[test]
fn instructions_are_counted_by_opcode() {
    let machine = Machine::new(Settings::default());
    assert_eq!(launches(&machine, 3), None);
    let counters = machine.gpu.counters();
    assert_eq!(counters.launches.get("k"), Some(&3));
    assert_eq!(counters.warp_instructions.get("mul.wide.u32"), Some(&3));
}
