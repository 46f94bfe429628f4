//! The variables of each launcher.

use crate::address::{Address, AddressError};
use crate::error::LaunchError;
use crate::host_list::{Host, parse_host_list};
use crate::launch::Launcher;
use crate::node_list::{expand_node_list, expand_tasks_per_node};
use crate::{Environment, variable};

/// Port of a rendezvous on one machine, where nothing else gives one.
const LOCAL_PORT: u16 = 29417;
/// First of the ports that follow from the number of a job; below those that systems give to outgoing connections.
const FIRST_JOB_PORT: u64 = 20_000;
/// Number of these ports.
const JOB_PORTS: u64 = 10_000;

/// The place that one launcher gives this process.
#[derive(Clone, Debug)]
pub(crate) struct Offer {
    pub(crate) launcher: Launcher,
    pub(crate) process: usize,
    pub(crate) processes: usize,
    /// Processes by which this launcher started its own: one for each host.
    pub(crate) agents: Option<usize>,
    pub(crate) local_process: Option<usize>,
    pub(crate) host: Option<String>,
}

impl Offer {
    /// Whether both are the same process of the same run.
    pub(crate) fn is_same_place(&self, other: &Offer) -> bool {
        (self.process, self.processes) == (other.process, other.processes)
    }
}

/// The variables of one launcher.
struct Names {
    number: &'static str,
    count: &'static str,
    local: &'static str,
    host: &'static str,
    agents: Option<&'static str>,
    remedy: &'static str,
}

const SET_BOTH: &str = "set PLEACH_PROCESS and PLEACH_PROCESSES, or neither";
const START_WHOLE: &str = "start all processes with the launcher itself, and do not unset its variables";
const SET_NUMBER: &str = "set it to the number of processes, for all of them";
const SET_COUNT: &str = "set it to spec.completions of the Job";

const fn names(launcher: Launcher) -> Names {
    let (number, count, local, host, agents, remedy) = match launcher {
        Launcher::Pleach => {
            (variable::PROCESS, variable::PROCESSES, variable::LOCAL_PROCESS, variable::HOST, None, SET_BOTH)
        }
        Launcher::Torchrun => {
            ("RANK", "WORLD_SIZE", "LOCAL_RANK", variable::HOST, Some("GROUP_WORLD_SIZE"), START_WHOLE)
        }
        Launcher::OpenMpi => (
            "OMPI_COMM_WORLD_RANK",
            "OMPI_COMM_WORLD_SIZE",
            "OMPI_COMM_WORLD_LOCAL_RANK",
            "PMIX_HOSTNAME",
            None,
            START_WHOLE,
        ),
        Launcher::Mpich => ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "PMI_HOSTNAME", None, START_WHOLE),
        Launcher::Pmix => {
            ("PMIX_RANK", variable::PROCESSES, variable::LOCAL_PROCESS, "PMIX_HOSTNAME", None, SET_NUMBER)
        }
        Launcher::Slurm => {
            ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURMD_NODENAME", None, START_WHOLE)
        }
        Launcher::Kubernetes => {
            ("JOB_COMPLETION_INDEX", variable::PROCESSES, variable::LOCAL_PROCESS, variable::HOST, None, SET_COUNT)
        }
    };
    Names { number, count, local, host, agents, remedy }
}

/// Whether the variables of `launcher` are there.
fn is_shown(environment: Environment<'_>, launcher: Launcher) -> bool {
    let is_set = |name: &str| environment(name).is_some();
    match launcher {
        // A count alone completes a launcher that has none.
        Launcher::Pleach => {
            is_set(variable::PROCESS)
                || is_set(variable::PROCESSES) && !is_set("JOB_COMPLETION_INDEX") && !is_set("PMIX_RANK")
        }
        Launcher::Torchrun => {
            let is_ranked = is_set("RANK") && is_set("WORLD_SIZE");
            // Scripts set these two from the variables of another launcher, too. Without one the address is missing.
            let others = ["SLURM_STEP_ID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", variable::PROCESS];
            let has_address = is_set("MASTER_ADDR") && is_set("MASTER_PORT");
            let is_alone = !others.into_iter().any(is_set);
            // A count without a number would let each process train everything.
            let counts_others = environment("WORLD_SIZE").is_some_and(|count| count.trim() != "1")
                && is_alone
                && !["JOB_COMPLETION_INDEX", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", variable::PROCESSES]
                    .into_iter()
                    .any(is_set);
            is_set("TORCHELASTIC_RUN_ID") || is_ranked && (has_address || is_alone) || counts_others
        }
        Launcher::OpenMpi => is_set("OMPI_COMM_WORLD_SIZE") || is_set("OMPI_COMM_WORLD_RANK"),
        Launcher::Mpich => is_set("PMI_RANK") || is_set("PMI_SIZE"),
        // Open MPI and Slurm set it next to their own.
        Launcher::Pmix => is_set("PMIX_RANK") && !is_set("OMPI_COMM_WORLD_SIZE") && !is_set("SLURM_STEP_ID"),
        // The shell of an allocation and the script of a batch job are steps of one task, or of none.
        Launcher::Slurm => {
            let tasks = environment("SLURM_STEP_NUM_TASKS").map(|tasks| tasks.trim().parse::<usize>());
            is_set("SLURM_STEP_ID") && !matches!(tasks, None | Some(Ok(0 | 1)))
        }
        Launcher::Kubernetes => is_set("JOB_COMPLETION_INDEX"),
    }
}

/// The offers of all launchers whose variables are there, in the order of [`Launcher::ALL`].
pub(crate) fn offers(environment: Environment<'_>) -> Result<Vec<Offer>, LaunchError> {
    let shown = Launcher::ALL.into_iter().filter(|launcher| is_shown(environment, *launcher));
    let mut offers: Vec<Offer> = vec![];
    for launcher in shown {
        // These two complete each other with pleach's own variables; next to another launcher they are its
        // surroundings.
        let is_surrounding = matches!(launcher, Launcher::Kubernetes | Launcher::Pmix) && !offers.is_empty();
        if !is_surrounding {
            offers.push(offer(environment, launcher)?);
        }
    }
    Ok(offers)
}

fn offer(environment: Environment<'_>, launcher: Launcher) -> Result<Offer, LaunchError> {
    let Names { number, count, local, host, agents, remedy } = names(launcher);
    let read = |variable| read_number(environment, launcher, variable);
    let missing = |variable| LaunchError::Missing { launcher, variable, remedy };
    let process = read(number)?.ok_or_else(|| missing(number))?;
    let processes = read(count)?.ok_or_else(|| missing(count))?;
    if process >= processes {
        return Err(LaunchError::Outside { launcher, number, process, count, processes });
    }
    Ok(Offer {
        launcher,
        process,
        processes,
        agents: agents.map(read).transpose()?.flatten(),
        local_process: read(local)?,
        host: environment(host).filter(|host| !host.is_empty()),
    })
}

fn read_number(
    environment: Environment<'_>,
    launcher: Launcher,
    variable: &'static str,
) -> Result<Option<usize>, LaunchError> {
    let Some(value) = environment(variable) else { return Ok(None) };
    match value.trim().parse() {
        Ok(number) => Ok(Some(number)),
        Err(_) => Err(LaunchError::NotANumber { launcher, variable, value }),
    }
}

/// Where process 0 listens: `PLEACH_RENDEZVOUS`, then `MASTER_ADDR` and `MASTER_PORT`, then what the launcher gives.
pub(crate) fn rendezvous(environment: Environment<'_>, offer: &Offer) -> Result<Option<Address>, LaunchError> {
    let Offer { launcher, processes, .. } = *offer;
    if let Some(text) = environment(variable::RENDEZVOUS) {
        let parsed = text.parse().map_err(|error| LaunchError::Address { variable: variable::RENDEZVOUS, error });
        return parsed.map(Some);
    }
    if let Some(host) = environment("MASTER_ADDR") {
        return master(environment, launcher, host).map(Some);
    }
    match launcher {
        Launcher::Slurm => slurm(environment),
        // All processes on this machine: the loopback interface is enough.
        Launcher::OpenMpi => local(environment, launcher, "OMPI_COMM_WORLD_LOCAL_SIZE", processes),
        Launcher::Mpich => local(environment, launcher, "MPI_LOCALNRANKS", processes),
        Launcher::Pleach | Launcher::Torchrun | Launcher::Pmix | Launcher::Kubernetes => Ok(None),
    }
}

fn master(environment: Environment<'_>, launcher: Launcher, host: String) -> Result<Address, LaunchError> {
    let remedy = "set it to a free port of MASTER_ADDR, for all processes";
    let Some(port) = environment("MASTER_PORT") else {
        return Err(LaunchError::Missing { launcher, variable: "MASTER_PORT", remedy });
    };
    let error = AddressError { text: format!("{host}:{port}") };
    let refused = LaunchError::Address { variable: "MASTER_ADDR:MASTER_PORT", error };
    let Ok(port @ 1..) = port.trim().parse::<u16>() else { return Err(refused) };
    if host.trim().is_empty() {
        return Err(refused);
    }
    // The agent of torchrun listens at MASTER_PORT itself.
    let is_taken = environment("TORCHELASTIC_USE_AGENT_STORE").is_some_and(|taken| taken == "True");
    let port = match (is_taken, port) {
        (false, port) => port,
        (true, u16::MAX) => u16::MAX - 1,
        (true, port) => port + 1,
    };
    Ok(Address { host: host.trim().into(), port })
}

/// The first host of the step, where Slurm puts its task 0, and a port that follows from job and step.
fn slurm(environment: Environment<'_>) -> Result<Option<Address>, LaunchError> {
    let Some(nodes) = environment("SLURM_STEP_NODELIST") else { return Ok(None) };
    let names =
        expand_node_list(&nodes).map_err(|error| LaunchError::NodeList { variable: "SLURM_STEP_NODELIST", error })?;
    let number = |name| environment(name).and_then(|text: String| text.trim().parse::<u64>().ok()).unwrap_or(0);
    // Steps of one job may run at the same time.
    let mixed = number("SLURM_JOB_ID").wrapping_add(number("SLURM_STEP_ID").wrapping_mul(7919));
    let port = job_port(mixed);
    Ok(names.into_iter().next().map(|host| Address { host, port }))
}

fn job_port(job: u64) -> u16 {
    (FIRST_JOB_PORT + job % JOB_PORTS) as u16
}

/// On the loopback interface where all processes are on this machine: two starts at the same time have different ports.
fn local(
    environment: Environment<'_>,
    launcher: Launcher,
    local_count: &'static str,
    processes: usize,
) -> Result<Option<Address>, LaunchError> {
    let is_local = read_number(environment, launcher, local_count)? == Some(processes);
    let job = read_number(environment, launcher, variable::JOB)?;
    let port = job.map_or(LOCAL_PORT, |job| job_port(job as u64));
    Ok(is_local.then(|| Address { host: "127.0.0.1".into(), port }))
}

/// All hosts with their processes, where the launcher gives them.
pub(crate) fn hosts(environment: Environment<'_>, launcher: Launcher) -> Result<Option<Vec<Host>>, LaunchError> {
    match launcher {
        Launcher::Pleach => {
            let Some(list) = environment(variable::HOSTS) else { return Ok(None) };
            let hosts = parse_host_list(&list.replace(',', "\n"), 1);
            hosts.map(Some).map_err(|error| LaunchError::Hosts { list, error })
        }
        Launcher::Slurm => {
            let (Some(nodes), Some(tasks)) =
                (environment("SLURM_STEP_NODELIST"), environment("SLURM_STEP_TASKS_PER_NODE"))
            else {
                return Ok(None);
            };
            let of = |variable| move |error| LaunchError::NodeList { variable, error };
            let names = expand_node_list(&nodes).map_err(of("SLURM_STEP_NODELIST"))?;
            let tasks = expand_tasks_per_node(&tasks).map_err(of("SLURM_STEP_TASKS_PER_NODE"))?;
            let hosts = names.into_iter().zip(tasks).filter(|(_, processes)| *processes > 0);
            Ok(Some(hosts.map(|(name, processes)| Host { name, processes }).collect()))
        }
        Launcher::Torchrun | Launcher::OpenMpi | Launcher::Mpich | Launcher::Pmix | Launcher::Kubernetes => Ok(None),
    }
}
