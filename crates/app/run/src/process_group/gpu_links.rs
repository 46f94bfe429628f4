//! How the GPUs of a run's processes are joined: decided by all processes together, before work starts.

use std::sync::Arc;

use config::figures::counted;
use config::{CollectivesChoice, GpuCollectives, RunConfig};
use gpu::DeviceFacts;
use nvidia::driver::shared_hardware_queues;
use nvidia::nccl::Library;
use serde::{Deserialize, Serialize};
use train::MAX_MEMBERS;

use crate::failure::Failure;

/// The GPUs and the library of a process, from which all processes decide how GPUs are joined.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessGpus {
    pub host: String,
    pub ranks: usize,
    pub gpus: Vec<GpuPlace>,
    /// The version of its NCCL, or why it has none.
    pub nccl: Result<String, String>,
}

/// A GPU, or an instance of one that is divided (MIG).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuPlace {
    /// Its own identifier, or that of the instance.
    pub uuid: [u8; 16],
    /// The place in its host, which instances of a GPU share.
    pub bus_id: String,
}

impl GpuPlace {
    /// The place of a GPU.
    pub fn of(facts: &DeviceFacts) -> GpuPlace {
        GpuPlace { uuid: facts.uuid, bus_id: facts.bus_id.clone() }
    }
}

/// How ranks on GPUs are joined.
#[derive(Clone)]
pub enum GpuLinks {
    Nccl(Arc<Library>),
    /// By way of the host, and why.
    Host(String),
}

impl GpuLinks {
    /// The links that all processes decide from the same `members`. `own` is the library of this one.
    ///
    /// # Errors
    /// `run.gpu_collectives = "nccl"` for processes that NCCL does not join.
    pub fn decide(
        config: &RunConfig,
        members: &[ProcessGpus],
        own: Result<Arc<Library>, String>,
    ) -> Result<GpuLinks, Failure> {
        let found = obstacle(config, members).map_or(own, Err);
        match (found, config.run.gpu_collectives) {
            (Ok(library), GpuCollectives::Auto | GpuCollectives::Nccl) => Ok(GpuLinks::Nccl(library)),
            (_, GpuCollectives::Host) => Ok(GpuLinks::Host("as run.gpu_collectives says".into())),
            (Err(reason), GpuCollectives::Auto) => Ok(GpuLinks::Host(reason)),
            (Err(reason), GpuCollectives::Nccl) => Err(Failure::Input(refused(&reason))),
        }
    }

    /// A line of the start of a run of `ranks` ranks, and a warning where the environment slows NCCL.
    pub fn line(&self, ranks: usize) -> String {
        match self {
            GpuLinks::Nccl(library) => {
                let named = format!("{} at {}", library.version(), library.path().display());
                joined_by_nccl(&named, ranks, shared_hardware_queues())
            }
            GpuLinks::Host(reason) => format!("joined  by way of the host: {reason}\n"),
        }
    }
}

fn joined_by_nccl(library: &str, ranks: usize, warning: Option<String>) -> String {
    let larger = match ranks > MAX_MEMBERS {
        true => format!(", groups of more than {MAX_MEMBERS} ranks by way of the host"),
        false => String::new(),
    };
    let warning = warning.map_or(String::new(), |warning| format!("warning: {warning}\n"));
    format!("joined  by NCCL {library}{larger}; NCCL has joined GPUs in software only: docs/gpu.md\n{warning}")
}

/// The error of a run that must have NCCL.
pub fn refused(reason: &str) -> String {
    format!(
        "run.gpu_collectives = \"nccl\" needs a process and a GPU for each rank, and NCCL on every host; got: {reason};\nuse \"auto\" or \
         \"host\", or `pleach launch`, `srun`, `mpiexec` or `torchrun` with a process for each GPU"
    )
}

/// The reason for which NCCL does not join these processes.
fn obstacle(config: &RunConfig, members: &[ProcessGpus]) -> Option<String> {
    if config.run.collectives == CollectivesChoice::Native {
        return Some("run.collectives = \"native\", and MPI is given memory of the host".into());
    }
    let with_several = members.iter().enumerate().find(|(_, member)| member.ranks > 1);
    if let Some((process, member)) = with_several {
        return Some(format!("process {process} has {}", counted(member.ranks as u64, "rank")));
    }
    for (process, member) in members.iter().enumerate() {
        let shared =
            members[..process].iter().enumerate().find_map(|(other, of)| Some((other, shared_gpu(of, member)?)));
        if let Some((other, shared)) = shared {
            return Some(format!("processes {other} and {process} {shared} of {}", member.host));
        }
        if let Err(reason) = &member.nccl {
            return Some(format!("process {process} on {}: {reason}", member.host));
        }
    }
    None
}

/// The GPU that two processes share: one, or instances of one. Places of PCI are those of a host.
fn shared_gpu(one: &ProcessGpus, other: &ProcessGpus) -> Option<String> {
    let pairs = || one.gpus.iter().flat_map(|gpu| other.gpus.iter().map(move |known| (gpu, known)));
    if pairs().any(|(gpu, known)| gpu.uuid == known.uuid) {
        return Some("share a GPU".into());
    }
    let same_bus = pairs().find(|(gpu, known)| gpu.bus_id == known.bus_id).filter(|_| one.host == other.host);
    same_bus.map(|(gpu, _)| format!("have instances (MIG) of GPU {}, which NCCL does not join,", gpu.bus_id))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(number: u8, ranks: usize, nccl: Result<&str, &str>) -> ProcessGpus {
        let nccl = nccl.map(String::from).map_err(String::from);
        let gpu = GpuPlace { uuid: [number; 16], bus_id: format!("0000:{number:02x}:00.0") };
        ProcessGpus { host: "h1".into(), ranks, gpus: vec![gpu; ranks], nccl }
    }

    /// An instance of the first GPU of a host.
    fn instance(host: &str, number: u8) -> ProcessGpus {
        let gpu = GpuPlace { uuid: [number; 16], bus_id: "0000:00:00.0".into() };
        ProcessGpus { host: host.into(), gpus: vec![gpu], ..member(number, 1, Ok("2.28.9")) }
    }

    fn decided(config: &RunConfig, members: &[ProcessGpus]) -> String {
        match GpuLinks::decide(config, members, Err("no library in this test".into())) {
            Ok(links) => links.line(members.len()),
            Err(failure) => failure.to_string(),
        }
    }

    #[test]
    fn the_start_names_groups_that_nccl_does_not_join_and_an_environment_that_slows_it() {
        let said = joined_by_nccl("2.28.9 at /lib", 64, None);
        assert_eq!(said, "joined  by NCCL 2.28.9 at /lib; NCCL has joined GPUs in software only: docs/gpu.md\n");
        let said = joined_by_nccl("2.28.9 at /lib", 65, Some("8 queues".into()));
        assert!(said.contains("at /lib, groups of more than 64 ranks by way of the host; NCCL"), "{said}");
        assert!(said.ends_with("docs/gpu.md\nwarning: 8 queues\n"), "{said}");
    }

    #[test]
    fn the_reason_is_named_for_which_gpus_are_joined_by_way_of_the_host() {
        let mut config = RunConfig::quick_start();
        let found = Ok("2.28.9");
        let cases = [
            (vec![member(0, 1, found), member(1, 2, found)], "process 1 has 2 ranks"),
            (
                vec![member(0, 1, found), member(1, 1, found), member(0, 1, found)],
                "processes 0 and 2 share a GPU of h1",
            ),
            (
                vec![instance("h1", 4), instance("h2", 5), instance("h1", 6)],
                "processes 0 and 2 have instances (MIG) of GPU 0000:00:00.0, which NCCL does not join, of h1",
            ),
            (vec![member(0, 1, found), member(1, 1, Err("it is missing"))], "process 1 on h1: it is missing"),
            // Of the others nothing is known but that they have one.
            (vec![member(0, 1, found), member(1, 1, found)], "no library in this test"),
        ];
        for (members, reason) in &cases {
            assert_eq!(decided(&config, members), format!("joined  by way of the host: {reason}\n"));
        }
        config.run.gpu_collectives = GpuCollectives::Nccl;
        for (members, reason) in &cases {
            let said = decided(&config, members);
            assert!(said.contains(&format!("got: {reason};\nuse \"auto\" or \"host\"")), "{said}");
        }
        config.run.gpu_collectives = GpuCollectives::Host;
        let said = decided(&config, &cases[0].0);
        assert_eq!(said, "joined  by way of the host: as run.gpu_collectives says\n");
        config.run.gpu_collectives = GpuCollectives::Auto;
        config.run.collectives = CollectivesChoice::Native;
        let said = decided(&config, &cases[4].0);
        assert!(said.contains("run.collectives = \"native\", and MPI is given memory of the host"), "{said}");
    }
}
