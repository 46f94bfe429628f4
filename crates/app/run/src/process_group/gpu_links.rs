//! How the GPUs of a run's processes are joined: decided by all processes together, before work starts.

use std::sync::Arc;

use config::figures::counted;
use config::{CollectivesChoice, GpuCollectives, RunConfig};
use nvidia::driver::shared_hardware_queues;
use nvidia::nccl::Library;
use serde::{Deserialize, Serialize};

use crate::failure::Failure;

/// The GPUs and the library of a process, from which all processes decide how GPUs are joined.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessGpus {
    pub host: String,
    pub ranks: usize,
    /// Identifiers of their GPUs.
    pub gpus: Vec<[u8; 16]>,
    /// The version of its NCCL, or why it has none.
    pub nccl: Result<String, String>,
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

    /// A line of the start.
    pub fn line(&self) -> String {
        match self {
            GpuLinks::Nccl(library) => {
                let warning = shared_hardware_queues().map_or(String::new(), |warning| format!("warning: {warning}\n"));
                format!(
                    "joined  by NCCL {} at {}; NCCL has joined GPUs in software only: docs/gpu.md\n{warning}",
                    library.version(),
                    library.path().display()
                )
            }
            GpuLinks::Host(reason) => format!("joined  by way of the host: {reason}\n"),
        }
    }
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
        let shares = |other: &&(usize, &ProcessGpus)| other.1.gpus.iter().any(|gpu| member.gpus.contains(gpu));
        if let Some((other, _)) = members.iter().enumerate().take(process).collect::<Vec<_>>().iter().find(shares) {
            return Some(format!("processes {other} and {process} share a GPU of {}", member.host));
        }
        if let Err(reason) = &member.nccl {
            return Some(format!("process {process} on {}: {reason}", member.host));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(number: u8, ranks: usize, nccl: Result<&str, &str>) -> ProcessGpus {
        let nccl = nccl.map(String::from).map_err(String::from);
        ProcessGpus { host: "h1".into(), ranks, gpus: vec![[number; 16]; ranks], nccl }
    }

    fn decided(config: &RunConfig, members: &[ProcessGpus]) -> String {
        match GpuLinks::decide(config, members, Err("no library in this test".into())) {
            Ok(links) => links.line(),
            Err(failure) => failure.to_string(),
        }
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
        let said = decided(&config, &cases[3].0);
        assert!(said.contains("run.collectives = \"native\", and MPI is given memory of the host"), "{said}");
    }
}
