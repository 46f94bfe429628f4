//! Arguments of `launch`. The comments here are the help page.

use std::path::PathBuf;

use clap::Args;
use launcher::Address;

/// Examples and the form of a host file.
pub const LAUNCH_HELP: &str = "Examples:
  pleach launch --nproc 4 -- train RUN.toml
  pleach launch --nproc 2 --hosts hosts.txt --restarts 3 -- train RUN.toml
  pleach launch --restarts 3 -- mpiexec -n 8 pleach train RUN.toml

A host file has one line per host: HOST, HOST slots=N or HOST:N. # begins a
comment. pleach, the run file and the data must have the same paths on all
hosts. Process 0 prints as usual; lines of other processes are printed to the
standard error with the number of the process. A signal is sent to all
processes. When a process fails, the others end within two seconds, and the
exit code is that of the first failure.

Another launcher, such as mpiexec or srun, starts the processes itself: it
receives the signals, and its exit code is the result. No restart follows a
start that added no checkpoint.";

/// Arguments of `launch`.
#[derive(Debug, Args)]
pub struct LaunchArguments {
    /// Number of processes; with --hosts, on each host without a number in the file
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub nproc: u32,
    /// Start processes on the hosts of this file; process 0 is on the first host
    #[arg(long, value_name = "FILE")]
    pub hosts: Option<PathBuf>,
    /// Restart all processes after a failure, at most this many times. Training resumes from its newest checkpoint; a
    /// start that added no checkpoint is the last
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    pub restarts: u32,
    /// Address at which process 0 listens; the default is a free port of this machine, or a random port of the first
    /// host
    #[arg(long, value_name = "HOST:PORT")]
    pub rendezvous: Option<Address>,
    /// Command that starts a command on another host
    #[arg(long, value_name = "COMMAND", default_value = "ssh -o BatchMode=yes")]
    pub ssh: String,
    /// Path of pleach on the other hosts; the default is the path on this host
    #[arg(long, value_name = "PATH")]
    pub program: Option<PathBuf>,
    /// Print the commands and variables of all processes without starting them
    #[arg(long)]
    pub dry_run: bool,
    /// Command of pleach, e.g. train RUN.toml; or another launcher with such a command
    #[arg(value_name = "COMMAND", trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    pub command: Vec<String>,
}
