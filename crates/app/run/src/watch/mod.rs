//! A run as programs watch it from outside: numbers over HTTP, a file that is renewed, a command that is called on
//! events.

mod notify;
mod numbers;
mod server;
mod status_file;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};

use config::RunConfig;
use sync::lock;
use train::{EvaluationReport, SaveReport, StepReport, Straggler};

use crate::failure::Failure;
use crate::records::anomaly::anomaly_line;
use crate::records::rates::Rates;
use crate::watch::numbers::Numbers;
use crate::watch::server::Server;
use crate::watch::status_file::StatusFile;

pub use notify::{Event, Notify};
pub use status_file::{State, fail as fail_status, has_finished_after, status_of};

/// Tells of the failure of a run in `step` that nothing watches any more.
pub fn fail(config: &RunConfig, step: u32, message: &str) {
    status_file::fail(&config.run.folder);
    if let Some(command) = &config.run.notify {
        Notify::new(command, &config.run.folder).event(Event::Failed, step, message);
    }
}

/// Everything that watches a run, in process 0.
pub struct Watchers {
    numbers: Arc<Mutex<Numbers>>,
    status: Mutex<StatusFile>,
    notify: Option<Notify>,
    server: Option<Server>,
}

impl Watchers {
    /// Opens what the run file asks for, of a run that has `done` steps.
    ///
    /// # Errors
    /// An address that cannot be listened at.
    pub fn open(config: &RunConfig, folder: &Path, done: u32) -> Result<Watchers, Failure> {
        let numbers = Arc::new(Mutex::new(Numbers::new(done, config.train.steps)));
        let server = config.run.metrics_address.as_ref();
        let server = server.map(|address| Server::start(address, Arc::clone(&numbers))).transpose()?;
        let status = StatusFile::new(folder, done, config.train.steps);
        let notify = config.run.notify.as_ref().map(|command| Notify::new(command, folder));
        Ok(Watchers { numbers, status: Mutex::new(status), notify, server })
    }

    /// Where the numbers are served, if they are.
    pub fn address(&self) -> Option<SocketAddr> {
        self.server.as_ref().map(Server::address)
    }

    /// The run begins or has ended: the file and the command say so.
    pub fn turn(&self, event: Event, message: &str) {
        let state = match event {
            Event::Finished => State::Finished,
            Event::Stopped => State::Stopped,
            Event::Failed => State::Failed,
            Event::Started | Event::Anomaly | Event::Straggler | Event::NotSaved => State::Training,
        };
        lock(&self.status).write(state);
        self.event(event, self.last_step(), message);
    }

    /// A step has ended.
    pub fn step(&self, report: &StepReport, rates: &Rates) {
        lock(&self.numbers).step(report, rates);
        lock(&self.status).step(report.step, report.loss);
        if let Some(anomaly) = &report.anomaly {
            let line = anomaly_line(report.step, anomaly);
            let message = format!("{line}; loss {}, gradient norm {}", report.loss, report.gradient_norm);
            self.event(Event::Anomaly, report.step, &message);
        }
    }

    /// A rank or a link is slow.
    pub fn straggler(&self, step: u32, straggler: &Straggler) {
        lock(&self.numbers).straggler();
        self.event(Event::Straggler, step, &straggler.to_string());
    }

    /// The held-out loss was measured.
    pub fn evaluation(&self, report: &EvaluationReport) {
        lock(&self.numbers).evaluation(report.loss);
    }

    /// A checkpoint was committed, or not.
    pub fn saved(&self, report: &SaveReport) {
        lock(&self.numbers).saved(report);
        if let Err(error) = &report.finished.outcome {
            self.event(Event::NotSaved, report.steps, &error.to_string());
        }
    }

    /// Tells the command of `run.notify` about an event.
    pub fn event(&self, event: Event, step: u32, message: &str) {
        if let Some(notify) = &self.notify {
            notify.event(event, step, message);
        }
    }

    /// The last step that was reported.
    pub fn last_step(&self) -> u32 {
        lock(&self.numbers).last_step()
    }
}
