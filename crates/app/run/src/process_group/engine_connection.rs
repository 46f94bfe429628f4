//! The engine of a process among others: connected with their ranks, and with the control channel, so that a failure
//! on either is one on both.

use std::sync::{Arc, Weak};

use comm::processes::{Process, ProcessMap, WorldToken};
use comm::{AbortCause, WorldFailure};
use config::{DeviceChoice, RunConfig};
use mesh::Rank;
use nvidia::nccl;
use rendezvous::{Control, FailureReport, ProcessFailure};
use train::{Engine, ProcessMember, RunDevice, Setup, engine_cores, open_process_engine};

use crate::failure::Failure;
use crate::process_group::core_share::{CoreNeed, core_share};
use crate::process_group::engine::options;
use crate::process_group::gpu_links::GpuLinks;
use crate::process_group::listening_addresses::ListeningAddresses;
use crate::process_group::member::GroupMember;
use crate::process_group::mpi_world;

/// Fresh ranks of this process for `setup` on `device`. All processes open the same engines in the same order.
///
/// # Errors
/// Processes that do not have each rank once, and processes that are not reached.
pub fn open(
    config: &RunConfig,
    setup: &Setup,
    member: &GroupMember,
    device: &RunDevice,
) -> Result<Box<dyn Engine>, Failure> {
    let GroupMember { control, place, token, .. } = member;
    let (mut listeners, addresses) =
        ListeningAddresses::listen(config.run.transport, place.rendezvous.as_ref(), place.process)?;
    let addresses: Vec<Vec<String>> = member.all_gather("addresses of ranks", &addresses.to_texts())?;
    listeners.mpi = member.mpi.clone().filter(|_| mpi_world::is_wanted(config));
    let token = WorldToken::new(*token.secret().bytes());
    let process_map = process_map(member, config, setup, &addresses)?;
    let first_ranks = process_map.processes().iter().map(|process| process.ranks.first().map_or(0, |rank| rank.0));
    let first_ranks = first_ranks.collect();
    let options = options(config, setup, ranks_on_host(&process_map, place.process));
    let cores = cores(member, config, &process_map)?;
    let nccl = nccl(config, setup, member, &process_map)?;
    let own_member = ProcessMember { process: place.process, process_map, listeners, token, cores, nccl };
    let ended = || control.failure().map(|failure| failure.to_string());
    let opened = open_process_engine(setup.groups(), options, device, own_member, &ended);
    let (engine, failure) = opened.map_err(|error| Failure::Work(error.to_string()))?;
    join(control, failure, first_ranks);
    Ok(engine)
}

/// NCCL, where it joins the GPUs of the run.
fn nccl(
    config: &RunConfig,
    setup: &Setup,
    member: &GroupMember,
    process_map: &ProcessMap,
) -> Result<Option<Arc<nccl::Library>>, Failure> {
    if config.run.device != DeviceChoice::Cuda {
        return Ok(None);
    }
    let here = process_map.processes().iter().filter(|process| process.host == member.place.host);
    let host: Vec<Rank> = here.flat_map(|process| process.ranks.clone()).collect();
    match member.gpu_links(config, setup, &host)? {
        GpuLinks::Nccl(library) => Ok(Some(library)),
        GpuLinks::Host(_) => Ok(None),
    }
}

/// Ranks on the host of `process`: only those take turns on its cores.
fn ranks_on_host(process_map: &ProcessMap, process: usize) -> usize {
    let all = process_map.processes();
    let own = all.get(process).map(|process| &process.host);
    all.iter().filter(|process| Some(&process.host) == own).map(|process| process.ranks.len()).sum()
}

/// A core for each thread that computes in this process; empty where the system places threads.
fn cores(member: &GroupMember, config: &RunConfig, process_map: &ProcessMap) -> Result<Vec<usize>, Failure> {
    let ranks = process_map.processes().get(member.place.process).map_or(0, |own| own.ranks.len());
    let threads = ranks.saturating_mul(config.run.threads_per_rank);
    let need = CoreNeed { host: member.place.host.clone(), allowed: engine_cores(), threads };
    Ok(core_share(member.place.process, &member.all_gather("cores of processes", &need)?))
}

/// All processes as transports take them.
fn process_map(
    member: &GroupMember,
    config: &RunConfig,
    setup: &Setup,
    addresses: &[Vec<String>],
) -> Result<ProcessMap, Failure> {
    let ranks = member.place.ranks_of_processes(&setup.mesh, config.run.placement)?;
    let entries = member.control.directory().processes.iter().zip(addresses).zip(ranks);
    let entries = entries.map(|((entry, addresses), ranks)| {
        let found = ListeningAddresses::from_texts(addresses).ok_or_else(|| {
            Failure::Work(format!("{} must give addresses of its ranks; got {addresses:?}", entry.named()))
        })?;
        Ok(Process { ranks, host: entry.host.clone(), tcp: found.tcp, local: found.local })
    });
    let processes = entries.collect::<Result<Vec<_>, Failure>>()?;
    ProcessMap::new(processes).map_err(|error| Failure::Work(error.to_string()))
}

/// From now on the failure of the world is one of the run, and the other way round. Neither keeps the other alive.
/// `first_ranks` has a rank of each process, which stands for a process that names none.
fn join(control: &Arc<Control>, failure: WorldFailure, first_ranks: Vec<usize>) {
    let weak = Arc::downgrade(control);
    failure.on_failure(move |cause| {
        let AbortCause { rank, description } = cause.clone();
        // A report waits until it is sent, and this may be the thread that moves the bytes of all ranks.
        let (weak, of_thread) = (weak.clone(), weak.clone());
        let report = FailureReport { rank: Some(rank.0), cause: description, ..FailureReport::default() };
        let own = report.clone();
        let tell = move |control: Weak<Control>, report| {
            if let Some(control) = control.upgrade() {
                control.report(report);
            }
        };
        if sync::start("failure", move || tell(of_thread, own)).is_err() {
            tell(weak, report);
        }
    });
    control.on_failure(move |reported: &ProcessFailure| {
        let rank = reported.report.rank.or_else(|| first_ranks.get(reported.process).copied()).unwrap_or(0);
        failure.abort(AbortCause { rank: Rank(rank), description: reported.to_string() });
    });
}
