//! The process group of a command: the processes that run its ranks, as this one joins and leaves them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use config::figures::counted;
use config::{DeviceChoice, EngineChoice, GpuCollectives, RunConfig};
use mesh::{MeshError, Rank};
use rendezvous::{Introduction, ProcessEntry, RendezvousError, Times, Token, meet};
use train::{Engine, Gpus, ModelChoices, Setup};

use crate::failure::Failure;
use crate::gpus::{arenas, devices};
use crate::memory::host::HostMemory;
use crate::memory::machine::memory_limit;
use crate::process_group::engine::{available_cores, engine};
use crate::process_group::gpu_links::{GpuLinks, refused};
use crate::process_group::meeting::Meeting;
use crate::process_group::member::{GroupMember, Part};
use crate::process_group::open_files::allow_all_open_files;
use crate::process_group::place::{Launched, Place, launched_host};
use crate::process_group::{descriptors, engine_connection, mpi_world};

/// The processes that run a command's ranks.
pub enum ProcessGroup {
    /// This one has all ranks.
    Alone,
    /// A launcher started several.
    Several(GroupMember),
}

/// Meets the other processes, does `work` with them and leaves. Returns nothing where process 0 has all ranks and this
/// is another process: its part is done.
///
/// # Errors
/// The errors of [`ProcessGroup::meet`], of `work`, and failures of other processes.
pub fn together<T>(
    meeting: &Meeting<'_>,
    work: impl FnOnce(&ProcessGroup) -> Result<T, Failure>,
) -> Result<Option<T>, Failure> {
    let Some(process_group) = ProcessGroup::meet(meeting)? else { return Ok(None) };
    let worked = work(&process_group);
    process_group.leave(worked).map(Some)
}

impl ProcessGroup {
    /// Meets the other processes, if a launcher started any that have ranks. `None` where process 0 has all ranks and
    /// this is another process.
    ///
    /// # Errors
    /// Variables of launchers that cannot be used, processes that do not arrive, and processes that differ.
    pub fn meet(meeting: &Meeting<'_>) -> Result<Option<ProcessGroup>, Failure> {
        let launch = match Launched::of_runs(&meeting.runs)? {
            Launched::Alone => return Ok(Some(ProcessGroup::Alone)),
            Launched::InFirst => return Ok(None),
            Launched::Several(launch) => launch,
        };
        allow_all_open_files();
        let place = Place::of_launch(launch);
        let shared = meeting.runs.iter().filter(|config| config.run.engine != EngineChoice::Threads);
        let layouts = shared.map(|config| config.parallelism.mesh().map(|mesh| (mesh, config.run.placement)));
        let layouts = layouts.collect::<Result<Vec<_>, MeshError>>();
        let ranks = place.ranks_of_first(&layouts.map_err(|error| Failure::Input(error.to_string()))?)?;
        descriptors::check_process(place.process, place.processes, ranks.len())?;
        let ranks = ranks.iter().map(|rank| rank.0).collect();
        let token = Token::of_process(&|name: &str| std::env::var(name).ok());
        let token = token.map_err(|error| Failure::Input(error.to_string()))?;
        let entry = ProcessEntry { process: place.process, host: place.host.clone(), ranks };
        let own = Introduction { entry, processes: place.processes, identity: meeting.identity()? };
        let seconds = meeting.runs.first().map(|config| &config.run);
        let of = |seconds: Option<f32>| Duration::from_secs_f32(seconds.unwrap_or_default());
        let times = Times {
            rendezvous: of(seconds.map(|run| run.rendezvous_seconds)),
            heartbeat: of(seconds.map(|run| run.heartbeat_seconds)),
        };
        let control = meet(place.rendezvous.as_ref(), &token, own, times);
        let control = Arc::new(control.map_err(|error| unmet(&error, place.process))?);
        let token = token.of_run(control.directory());
        let deadline = of(seconds.map(|run| run.timeout_seconds));
        let mut member = GroupMember::new(control, place, token, deadline);
        if meeting.runs.iter().any(|config| mpi_world::is_wanted(config)) {
            member.mpi = Some(mpi_world::open(&member, times.rendezvous)?);
        }
        Ok(Some(ProcessGroup::Several(member)))
    }

    /// The processes, where there are several.
    pub fn member(&self) -> Option<&GroupMember> {
        match self {
            ProcessGroup::Alone => None,
            ProcessGroup::Several(member) => Some(member),
        }
    }

    /// Does `work` in process 0; the others wait until it is done.
    ///
    /// # Errors
    /// The failure of `work`, on all processes.
    pub fn once<T>(&self, topic: &str, work: impl FnOnce() -> Result<T, Failure>) -> Result<Part<'_, T>, Failure> {
        match self {
            ProcessGroup::Alone => work().map(Part::First),
            ProcessGroup::Several(member) => member.once(topic, work),
        }
    }

    /// Fresh ranks of this process for `setup`, whose products on GPUs have these algorithms.
    ///
    /// # Errors
    /// Processes that cannot be connected.
    pub fn engine(&self, config: &RunConfig, setup: &Setup, choices: ModelChoices) -> Result<Box<dyn Engine>, Failure> {
        let device = devices::run_device_with(config, choices)?;
        match self {
            ProcessGroup::Alone => Ok(engine(config, setup, &device)),
            ProcessGroup::Several(member) => engine_connection::open(config, setup, member, &device),
        }
    }

    /// The ranks of `setup` in this process.
    ///
    /// # Errors
    /// Ranks that cannot be placed.
    pub fn ranks_of(&self, config: &RunConfig, setup: &Setup) -> Result<Vec<Rank>, Failure> {
        match self {
            ProcessGroup::Alone => Ok(setup.mesh.ranks().collect()),
            ProcessGroup::Several(member) => member.place.ranks_of(&setup.mesh, config.run.placement),
        }
    }

    /// The GPUs of this process's ranks of `setup`, each once, as indices of [`Gpus::facts`].
    ///
    /// # Errors
    /// Ranks that cannot be placed.
    pub fn gpus_of(&self, config: &RunConfig, setup: &Setup, gpus: &Gpus) -> Result<BTreeSet<usize>, Failure> {
        let (host, own) = (self.host_ranks(config, setup)?.0, self.ranks_of(config, setup)?);
        let locals = host.iter().enumerate().filter(|(_, rank)| own.contains(rank)).map(|(local, _)| local);
        Ok(locals.map(|local| gpus.of_rank(local)).collect())
    }

    /// The memory of the run of `setup` on all hosts; nothing where one process has all ranks.
    ///
    /// # Errors
    /// Ranks that cannot be placed.
    pub fn memory(&self, config: &RunConfig, setup: &Setup) -> Result<Vec<HostMemory>, Failure> {
        match (self, config.run.engine) {
            (ProcessGroup::Alone, _) | (ProcessGroup::Several(_), EngineChoice::Threads) => Ok(vec![]),
            (ProcessGroup::Several(member), EngineChoice::Auto | EngineChoice::Processes) => {
                member.memory(config, setup)
            }
        }
    }

    /// Checks that the host of this process and its GPUs have the memory for its ranks of `setup`, and for those of the
    /// other processes there.
    ///
    /// # Errors
    /// Too little memory.
    pub fn check_memory(&self, config: &RunConfig, setup: &Setup) -> Result<(), Failure> {
        let (host, processes) = self.host_ranks(config, setup)?;
        let links = self.gpu_links(config, setup)?;
        if devices::has_gpus(config) && !host.is_empty() {
            let device = devices::run_device(config)?;
            match (links, self) {
                (Some(GpuLinks::Nccl(_)), ProcessGroup::Several(member)) => {
                    let own = member.place.ranks_of(&setup.mesh, config.run.placement)?;
                    arenas::check_own_memory(&device, setup, &host, &own)?;
                }
                (Some(GpuLinks::Nccl(_)), ProcessGroup::Alone) | (Some(GpuLinks::Host(_)) | None, _) => {
                    arenas::check_memory(&device, setup, &host, processes)?;
                }
            }
        }
        match (self, config.run.device) {
            (ProcessGroup::Alone, _) | (ProcessGroup::Several(_), DeviceChoice::Cuda) => Ok(()),
            (ProcessGroup::Several(member), DeviceChoice::Cpu) => {
                let hosts = self.memory(config, setup)?;
                let own = hosts.iter().find(|host| host.host == member.place.host);
                own.map_or(Ok(()), |own| own.check(memory_limit()))
            }
        }
    }

    /// The ranks of `setup` on the host of this process, in order, and the processes that have them.
    ///
    /// # Errors
    /// Ranks that cannot be placed.
    fn host_ranks(&self, config: &RunConfig, setup: &Setup) -> Result<(Vec<Rank>, usize), Failure> {
        match (self, config.run.engine) {
            (ProcessGroup::Alone, _) => Ok((setup.mesh.ranks().collect(), 1)),
            (ProcessGroup::Several(member), EngineChoice::Threads) => {
                Ok((if member.is_first() { setup.mesh.ranks().collect() } else { vec![] }, 1))
            }
            (ProcessGroup::Several(member), EngineChoice::Auto | EngineChoice::Processes) => {
                let ranks = member.place.ranks_of_processes(&setup.mesh, config.run.placement)?;
                let all = member.control.directory().processes.iter().zip(ranks);
                let here: Vec<_> = all.filter(|(entry, _)| entry.host == member.place.host).collect();
                let processes = here.len();
                Ok((here.into_iter().flat_map(|(_, ranks)| ranks).collect(), processes))
            }
        }
    }

    /// Threads that compute on this host for each of its cores: they take turns where that is more than 1.
    ///
    /// # Errors
    /// Ranks that cannot be placed.
    pub fn turns(&self, config: &RunConfig, setup: &Setup) -> Result<f64, Failure> {
        let threads = self.host_ranks(config, setup)?.0.len().saturating_mul(config.run.threads_per_rank);
        Ok(threads as f64 / available_cores() as f64)
    }

    /// The GPUs of this host with their ranks, a line each; nothing for other devices.
    ///
    /// # Errors
    /// A GPU that cannot be opened.
    pub fn device_lines(&self, config: &RunConfig, setup: &Setup) -> Result<String, Failure> {
        if !devices::has_gpus(config) {
            return Ok(String::new());
        }
        let (device, host) = (devices::run_device(config)?, self.host_ranks(config, setup)?.0);
        let (links, own) = match self {
            ProcessGroup::Alone => (None, vec![]),
            // Decided before, by all processes.
            ProcessGroup::Several(member) => {
                (member.known_links(config), member.place.ranks_of(&setup.mesh, config.run.placement)?)
            }
        };
        // A launcher may show each process a GPU of its own alone.
        let is_alone = matches!(links, Some(GpuLinks::Nccl(_))) && devices::visible(&device) < host.len();
        let memory = arenas::memory_lines(&device, setup, if is_alone { &own } else { &host })?;
        Ok(memory + &links.map_or(String::new(), |links| links.line(setup.mesh.world_size())))
    }

    /// How the GPUs of a run's processes are joined; `None` where one process has all ranks, or without NVIDIA's GPUs.
    /// All processes ask.
    ///
    /// # Errors
    /// `run.gpu_collectives = "nccl"` for ranks that NCCL does not join.
    pub fn gpu_links(&self, config: &RunConfig, setup: &Setup) -> Result<Option<GpuLinks>, Failure> {
        match (config.run.device, config.run.engine) {
            (DeviceChoice::Cpu, _) => return Ok(None),
            (DeviceChoice::Cuda, EngineChoice::Threads) => return Ok(None),
            (DeviceChoice::Cuda, EngineChoice::Auto | EngineChoice::Processes) => {}
        }
        match self {
            ProcessGroup::Alone if config.run.ranks > 1 && config.run.gpu_collectives == GpuCollectives::Nccl => {
                let reason = format!("{} in one process", counted(config.run.ranks as u64, "rank"));
                Err(Failure::Input(refused(&reason)))
            }
            ProcessGroup::Alone => Ok(None),
            ProcessGroup::Several(member) => {
                member.gpu_links(config, setup, &self.host_ranks(config, setup)?.0).map(Some)
            }
        }
    }

    /// FLOP/s of all GPUs of the run in its products, where their data sheets are known; other hosts have as many as
    /// this one.
    ///
    /// # Errors
    /// GPUs that cannot be listed.
    pub fn gpu_peak_flops(&self, config: &RunConfig, setup: &Setup) -> Result<Option<f64>, Failure> {
        if !devices::has_gpus(config) {
            return Ok(None);
        }
        let (ranks, of_host) = (setup.mesh.world_size(), self.host_ranks(config, setup)?.0.len());
        Ok(devices::peak_flops(&devices::run_device(config)?, config.train.precision, of_host)
            .map(|host| host * ranks as f64 / of_host.max(1) as f64))
    }

    /// The library of MPI, on a line of the start; nothing without one.
    pub fn mpi_line(&self) -> String {
        match self {
            ProcessGroup::Alone => String::new(),
            ProcessGroup::Several(member) => member.mpi.as_ref().map_or(String::new(), |mpi| {
                format!("mpi     {} at {}, {}\n", mpi.version(), mpi.path().display(), mpi.abi())
            }),
        }
    }

    /// Number of processes.
    pub fn processes(&self) -> usize {
        match self {
            ProcessGroup::Alone => 1,
            ProcessGroup::Several(member) => member.processes(),
        }
    }

    /// The number of this process.
    pub fn number(&self) -> usize {
        match self {
            ProcessGroup::Alone => 0,
            ProcessGroup::Several(member) => member.place.process,
        }
    }

    /// The name of the host of this process.
    pub fn host(&self) -> String {
        match self {
            ProcessGroup::Alone => launched_host(),
            ProcessGroup::Several(member) => member.place.host.clone(),
        }
    }

    /// Whether this is process 0, which prints and writes for all.
    pub fn is_first(&self) -> bool {
        match self {
            ProcessGroup::Alone => true,
            ProcessGroup::Several(member) => member.is_first(),
        }
    }

    /// Takes leave with the `result` of this process, which is a failure of the run where it is one.
    ///
    /// # Errors
    /// The error in `result`, and a failure of another process.
    pub fn leave<T>(self, result: Result<T, Failure>) -> Result<T, Failure> {
        let ProcessGroup::Several(member) = self else { return result };
        match result {
            Err(interrupted @ Failure::Interrupted { .. }) => {
                member.finish()?;
                Err(interrupted)
            }
            Err(failure) => {
                member.report(&failure);
                Err(Failure::Reported(Box::new(member.with_silent(failure))))
            }
            Ok(value) => member.finish().map(|()| value),
        }
    }
}

/// The failure of a meeting, as process `own` sees it.
fn unmet(error: &RendezvousError, own: usize) -> Failure {
    match error {
        RendezvousError::Refused(_) if own > 0 => Failure::OfFirst(error.to_string()),
        RendezvousError::Refused(_)
        | RendezvousError::Listen { .. }
        | RendezvousError::NotListening { .. }
        | RendezvousError::NoProof { .. }
        | RendezvousError::WrongProof { .. }
        | RendezvousError::NoAnswer { .. }
        | RendezvousError::Malformed { .. }
        | RendezvousError::System(_) => Failure::Work(error.to_string()),
    }
}
