//! The engine of a process among others: connected with their ranks, and with the control channel, so that a failure
//! on either is one on both.

use std::sync::Arc;

use comm::processes::{Listeners, Process, ProcessMap, WorldToken};
use comm::{AbortCause, WorldFailure};
use config::RunConfig;
use mesh::Rank;
use rendezvous::{Control, FailureReport, ProcessFailure, Token};
use train::{Engine, ProcessSeat, Setup, open_process_engine};

use crate::failure::Failure;
use crate::processes::listening_addresses::ListeningAddresses;
use crate::run::engine::options;

/// Fresh ranks of process `process` for `setup`.
///
/// # Errors
/// A directory whose processes do not have each rank once, and processes that are not reached.
pub fn open(
    config: &RunConfig,
    setup: &Setup,
    (control, process): (&Arc<Control>, usize),
    (listeners, token): (Listeners, &Token),
) -> Result<Box<dyn Engine>, Failure> {
    let token = WorldToken::new(*token.bytes());
    let seat = ProcessSeat { process, process_map: process_map(control)?, listeners, token };
    let opened = open_process_engine(setup.mesh, options(config, setup), seat);
    let (engine, failure) = opened.map_err(|error| Failure::Work(error.to_string()))?;
    join(control, failure);
    Ok(engine)
}

/// The directory of the rendezvous as transports take it.
fn process_map(control: &Control) -> Result<ProcessMap, Failure> {
    let entries = control.directory().processes.iter().map(|entry| {
        let addresses = ListeningAddresses::from_texts(&entry.addresses).ok_or_else(|| {
            Failure::Work(format!("{} must give addresses of its ranks; got {:?}", entry.named(), entry.addresses))
        })?;
        let ranks = entry.ranks.iter().map(|rank| Rank(*rank)).collect();
        Ok(Process { ranks, host: entry.host.clone(), tcp: addresses.tcp, local: addresses.local })
    });
    let processes = entries.collect::<Result<Vec<_>, Failure>>()?;
    ProcessMap::new(processes).map_err(|error| Failure::Work(error.to_string()))
}

/// From now on the failure of the world is one of the run, and the other way round. Neither keeps the other alive.
fn join(control: &Arc<Control>, failure: WorldFailure) {
    let weak = Arc::downgrade(control);
    failure.on_failure(move |cause| {
        let AbortCause { rank, description } = cause.clone();
        // A report waits until it is sent, and this may be the thread that moves the bytes of all ranks.
        std::thread::spawn(move || {
            if let Some(control) = weak.upgrade() {
                control.report(FailureReport { rank: Some(rank.0), cause: description, ..FailureReport::default() });
            }
        });
    });
    let first_rank = |control: &Control, process: usize| {
        control.directory().processes.get(process).and_then(|entry| entry.ranks.first().copied()).unwrap_or(0)
    };
    let ranks: Vec<usize> =
        (0..control.directory().processes.len()).map(|process| first_rank(control, process)).collect();
    control.on_failure(move |heard: &ProcessFailure| {
        let rank = heard.report.rank.or_else(|| ranks.get(heard.process).copied()).unwrap_or(0);
        failure.abort(AbortCause { rank: Rank(rank), description: heard.to_string() });
    });
}
