//! The processes of a run, as this one meets and leaves them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use checkpoint::Hash;
use comm::processes::Listeners;
use config::RunConfig;
use rendezvous::{
    Control, FailureReport, Identity, Introduction, ProcessEntry, TextHash, Times, Token, hash_bytes, hash_file, meet,
};
use sync::lock;
use train::{Engine, Setup};

use crate::failure::Failure;
use crate::processes::engine_connection;
use crate::processes::listening_addresses::ListeningAddresses;
use crate::processes::place::{Place, launch_of_several};
use crate::run::engine::engine;

/// The processes that run together.
pub enum Company {
    /// This one has all ranks.
    Alone,
    /// A launcher started several.
    Several(Several),
}

/// One of several processes, in touch with the others.
pub struct Several {
    /// In touch with all of them.
    pub control: Arc<Control>,
    place: Place,
    token: Token,
    /// Until an engine takes them.
    listeners: Mutex<Option<Listeners>>,
    deadline: Duration,
}

impl Company {
    /// Meets the other processes, if a launcher started any. All must have the same binary, `config`, programs, text and `start`.
    ///
    /// # Errors
    /// Variables of launchers that cannot be used, processes that do not arrive, and processes that differ.
    pub fn meet(config: &RunConfig, setup: &Setup, text: Hash, start: &str) -> Result<Company, Failure> {
        let Some(launch) = launch_of_several(config)? else { return Ok(Company::Alone) };
        let place = Place::of_launch(launch, &setup.mesh, config.run.placement)?;
        let token = Token::of_process(&|name: &str| std::env::var(name).ok());
        let token = token.map_err(|error| Failure::Input(error.to_string()))?;
        let (listeners, addresses) =
            ListeningAddresses::listen(config.run.transport, place.rendezvous.as_ref(), place.process)?;
        let entry = ProcessEntry {
            process: place.process,
            host: place.host.clone(),
            ranks: place.ranks.iter().map(|rank| rank.0).collect(),
            addresses: addresses.to_texts(),
        };
        let identity = identity(config, setup, text, start)?;
        let own = Introduction { entry, processes: place.processes, identity };
        let times = Times {
            rendezvous: Duration::from_secs_f32(config.run.rendezvous_seconds),
            heartbeat: Duration::from_secs_f32(config.run.heartbeat_seconds),
        };
        let control = meet(place.rendezvous.as_ref(), &token, own, times);
        let control = Arc::new(control.map_err(|error| Failure::Work(error.to_string()))?);
        let deadline = Duration::from_secs_f32(config.run.timeout_seconds);
        Ok(Company::Several(Several { control, place, token, listeners: Mutex::new(Some(listeners)), deadline }))
    }

    /// Does `work` where this process is the first; the others wait until it is done, and have nothing.
    ///
    /// # Errors
    /// The failure of `work`, on all processes.
    pub fn once<T>(&self, topic: &str, work: impl FnOnce() -> Result<T, Failure>) -> Result<Option<T>, Failure> {
        match self {
            Company::Alone => work().map(Some),
            Company::Several(several) => several.once(topic, work),
        }
    }

    /// Fresh ranks of this process for `setup`.
    ///
    /// # Errors
    /// Processes that cannot be connected.
    pub fn engine(&self, config: &RunConfig, setup: &Setup) -> Result<Box<dyn Engine>, Failure> {
        match self {
            Company::Alone => Ok(engine(config, setup)),
            Company::Several(Several { control, place, token, listeners, .. }) => {
                let listeners = lock(listeners).take().unwrap_or_default();
                engine_connection::open(config, setup, (control, place.process), (listeners, token))
            }
        }
    }

    /// Takes leave with the `result` of this process, which is a failure of the run where it is one.
    ///
    /// # Errors
    /// That of `result`, and a failure of another process.
    pub fn leave<T>(self, result: Result<T, Failure>) -> Result<T, Failure> {
        let Company::Several(Several { control, deadline, .. }) = self else { return result };
        match result {
            Err(interrupted @ Failure::Interrupted { .. }) => {
                finish(control, deadline)?;
                Err(interrupted)
            }
            Err(failure) => {
                control.report(FailureReport { cause: failure.to_string(), ..FailureReport::default() });
                Err(failure)
            }
            Ok(value) => finish(control, deadline).map(|()| value),
        }
    }
}

impl Several {
    /// Number of processes.
    pub fn processes(&self) -> usize {
        self.place.processes
    }

    fn once<T>(&self, topic: &str, work: impl FnOnce() -> Result<T, Failure>) -> Result<Option<T>, Failure> {
        if self.place.process != 0 {
            let heard = self.control.broadcast(topic, vec![], self.deadline);
            return heard.map(|_| None).map_err(|error| Failure::Work(error.to_string()));
        }
        let done = work().inspect_err(|failure| {
            self.control.report(FailureReport { cause: failure.to_string(), ..FailureReport::default() });
        })?;
        let sent = self.control.broadcast(topic, vec![], self.deadline);
        sent.map(|_| Some(done)).map_err(|error| Failure::Work(error.to_string()))
    }
}

/// Says goodbye, once the last other owner of `control` is gone.
fn finish(control: Arc<Control>, deadline: Duration) -> Result<(), Failure> {
    match Arc::try_unwrap(control) {
        Ok(control) => control.finish(deadline).map_err(|error| Failure::Work(error.to_string())),
        Err(_) => Err(Failure::Work("the control channel is still in use at the end of the run".into())),
    }
}

fn identity(config: &RunConfig, setup: &Setup, text: Hash, start: &str) -> Result<Identity, Failure> {
    let binary = std::env::current_exe().and_then(|path| hash_file(&path));
    let binary = binary.map_err(|error| Failure::Work(format!("this program cannot be read: {error}")))?;
    Ok(Identity {
        version: env!("CARGO_PKG_VERSION").into(),
        binary,
        run_file: hash_bytes(format!("{start}\n{}", config.to_toml()).as_bytes()),
        program: setup.fingerprint(),
        text: TextHash::Read(text.0),
    })
}
