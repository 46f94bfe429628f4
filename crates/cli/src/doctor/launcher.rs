//! Who started this process as one of several: the variables that launchers set.

use std::fmt;

use serde::Serialize;

use super::machine::Environment;

/// A launcher with the place that it gave this process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Launcher {
    /// What it is called.
    pub name: &'static str,
    /// Number of this process, if it was given one.
    pub process: Option<usize>,
    /// How many processes there are.
    pub processes: Option<usize>,
}

/// `(name, variable that shows it, number of the process, number of processes)`.
const VARIABLES: &[(&str, &str, &str, &str)] = &[
    ("torchrun", "TORCHELASTIC_RUN_ID", "RANK", "WORLD_SIZE"),
    ("Slurm", "SLURM_JOB_ID", "SLURM_PROCID", "SLURM_NTASKS"),
    ("Open MPI", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("MPICH", "PMI_SIZE", "PMI_RANK", "PMI_SIZE"),
];

/// The launchers that `environment` shows.
pub fn launchers(environment: Environment<'_>) -> Vec<Launcher> {
    let number = |name: &str| environment(name)?.parse().ok();
    let shown = VARIABLES.iter().filter(|(_, variable, _, _)| environment(variable).is_some());
    shown
        .map(|(name, _, process, processes)| Launcher { name, process: number(process), processes: number(processes) })
        .collect()
}

impl fmt::Display for Launcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.process, self.processes) {
            (Some(process), Some(processes)) => write!(f, "{}: process {process} of {processes}", self.name),
            (None, Some(processes)) => write!(f, "{}: {processes} processes", self.name),
            (_, None) => f.write_str(self.name),
        }
    }
}
