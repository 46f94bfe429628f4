//! The collectives that a rank issues for an instruction are those of the list that the simulator prices, one for one.

use std::sync::{Arc, Mutex};

use device::{DeviceError, Dtype, Reduction, Stream, step_sum_words};
use program::{Collective, Family, GroupCall, Instr, Partner, PeerGroup, PeerGroups};
use testkit::intercepted::{Call, intercept_calls};
use testkit::wrapped_engine::WrappedEngine;
use train::{Observer, Ports, RankEngine, StepReport, StopRequest, Worker};

use crate::conservation::cases::{Case, cases};

/// A collective of the reduction stream: its group, its kind and its bytes.
type Seen = (PeerGroup, Option<Collective>, usize);
type Log = Arc<Mutex<Vec<Seen>>>;

/// How often an executor at fault issues the calls over a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fault {
    group: PeerGroup,
    times: usize,
}

/// Compares what a rank issued with the list, after each instruction.
struct Comparer {
    logs: Vec<Log>,
    differences: Mutex<Vec<String>>,
}

impl Observer for Comparer {
    fn step(&self, _report: &StepReport) -> StopRequest {
        StopRequest::None
    }

    fn instruction(&self, worker: &Worker<'_>) -> Result<(), DeviceError> {
        let (instr, number) =
            (worker.position.program.instrs[worker.position.at], worker.ports.communicators.world().position());
        let issued = std::mem::take(&mut *self.logs[number].lock().unwrap());
        let expected = listed(worker, instr);
        // Before the first instruction of a run, ranks compare their programs.
        if issued != expected && (worker.position.step, worker.position.at) != (0, 0) {
            self.differences.lock().unwrap().push(format!("rank {number}, {instr}: {issued:?} for {expected:?}"));
        }
        Ok(())
    }
}

fn listed(worker: &Worker<'_>, instr: Instr) -> Vec<Seen> {
    let seen =
        |call: GroupCall, dtype: Dtype| (call.group, Some(call.collective), call.elements.len() * dtype.size_bytes());
    let sums = Dtype::from(worker.position.setup.train.sums);
    match instr.family() {
        Family::Gather { unit } => {
            vec![seen(worker.position.calls(&worker.state.units[&unit]).gather(), worker.position.setup.stored())]
        }
        Family::Reduce { unit, axes, .. } => {
            let calls = worker.position.calls(&worker.state.units[&unit]).reduction(&axes);
            calls.into_iter().map(|call| seen(call, sums)).collect()
        }
        Family::SumTied => match instr.partner(&worker.position.program.view) {
            Partner::Ends { .. } => {
                vec![seen(worker.position.calls(&worker.state.units[&config::Unit::Table]).tied(), sums)]
            }
            Partner::None | Partner::To(_) | Partner::From(_) | Partner::Peers(_) | Partner::World => vec![],
        },
        Family::GradNorm => {
            let calls = GroupCall::norm(step_sum_words(&worker.position.setup.model));
            calls.into_iter().map(|call| seen(call, Dtype::I64)).collect()
        }
        Family::Pass(_) | Family::Load { .. } | Family::Transfer { .. } | Family::Update { .. } => vec![],
        Family::CopyState { .. } | Family::CopyActs { .. } | Family::Bookkeeping { .. } => vec![],
    }
}

/// The rank with a log of its collectives on the reduction stream; sums are repeated or left out by `fault`.
fn logged(rank: RankEngine, groups: &PeerGroups, log: &Log, fault: Option<Fault>) -> RankEngine {
    groups.iter().chain([PeerGroup::WORLD]).fold(rank, |rank, group| {
        let log = Arc::clone(log);
        intercept_calls(rank, group, move |_, communicator, stream, call| {
            let times = fault.filter(|fault| fault.group == group && stream == Stream::Reduce);
            for _ in 0..times.map_or(1, |fault| fault.times) {
                if stream == Stream::Reduce {
                    log.lock().unwrap().push(seen(group, call));
                }
                communicator.call(stream, call)?;
            }
            Ok(())
        })
    })
}

fn seen(group: PeerGroup, call: Call) -> Seen {
    match call {
        Call::AllReduce(x, Reduction::Sum(tree)) => (group, Some(Collective::AllReduce(tree)), x.size_bytes()),
        Call::ReduceScatter(x, tree) => (group, Some(Collective::ReduceScatter(tree)), x.size_bytes()),
        Call::AllGather(x) => (group, Some(Collective::AllGather), x.size_bytes()),
        Call::AllReduce(x, Reduction::Max)
        | Call::AllToAll { from: x, .. }
        | Call::ExchangeRows { from: x, .. }
        | Call::Shift { from: x, .. }
        | Call::Send { x, .. }
        | Call::Receive { x, .. } => (group, None, x.size_bytes()),
    }
}

fn differences(case: &Case, fault: Option<Fault>) -> Vec<String> {
    let setup = case.setup();
    let logs: Vec<Log> = setup.mesh.ranks().map(|_| Log::default()).collect();
    let comparer = Comparer { logs, differences: Mutex::default() };
    let groups = setup.groups();
    let wrap = |coord, rank| logged(rank, &groups, &comparer.logs[setup.mesh.rank(coord).0], fault);
    let engine = WrappedEngine::new(&setup, &wrap);
    let tokens = case.tokens();
    // A sum that is left out may leave no finite loss, which ends the run.
    let ran = train::run(&setup, &engine, Ports::new(&tokens, &comparer));
    assert!(ran.is_ok() || fault.is_some(), "{}: {:?}", case.name, ran.err());
    comparer.differences.into_inner().unwrap()
}

#[test]
fn every_collective_that_is_issued_is_listed() {
    for case in cases() {
        assert_eq!(differences(&case, None), [""; 0], "{}", case.name);
    }
}

#[test]
fn an_executor_with_one_collective_more_or_fewer_is_found() {
    for (name, group) in [
        ("dp 3, ZeRO 1", PeerGroup::SHARDS),
        ("dp 3, ZeRO 3, tied", PeerGroup::SHARDS),
        ("dp 4 in groups of 2, ZeRO 1", PeerGroup::REPLICAS),
        ("dp 2 x tp 2 x pp 2, ZeRO 2 per", PeerGroup::TENSOR),
        ("pp 3, tied", PeerGroup::Ends),
    ] {
        let case = cases().into_iter().find(|case| case.name.starts_with(name)).unwrap();
        for times in [0, 2] {
            assert!(!differences(&case, Some(Fault { group, times })).is_empty(), "{name}: {times} times over {group}");
        }
    }
}
