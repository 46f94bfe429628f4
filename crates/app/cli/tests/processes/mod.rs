//! Runs in processes, on hosts, under Slurm and over MPI, and how runs end. They wait for processes, deadlines and
//! disks, so they are modules of one program, whose threads wait at the same time.

mod failures;

#[cfg(unix)]
mod interrupt;
#[cfg(unix)]
mod launch;

#[cfg(target_os = "linux")]
mod anomalies;
#[cfg(target_os = "linux")]
mod blame;
#[cfg(target_os = "linux")]
mod by_hand;
#[cfg(target_os = "linux")]
mod commands;
#[cfg(target_os = "linux")]
mod endings;
#[cfg(target_os = "linux")]
mod folders_of_others;
#[cfg(target_os = "linux")]
mod kills;
#[cfg(target_os = "linux")]
mod lost_hosts;
#[cfg(target_os = "linux")]
mod many_ranks;
#[cfg(target_os = "linux")]
mod many_threads;
#[cfg(target_os = "linux")]
mod memory;
#[cfg(target_os = "linux")]
mod mpi;
#[cfg(target_os = "linux")]
mod network;
#[cfg(target_os = "linux")]
mod pairs;
#[cfg(target_os = "linux")]
mod peer_memory;
#[cfg(target_os = "linux")]
mod runs;
#[cfg(target_os = "linux")]
mod screens;
#[cfg(target_os = "linux")]
mod secrets;
#[cfg(target_os = "linux")]
mod slurm;
#[cfg(target_os = "linux")]
mod stores;
#[cfg(target_os = "linux")]
mod stragglers;
#[cfg(target_os = "linux")]
mod text;
#[cfg(target_os = "linux")]
mod wait;
