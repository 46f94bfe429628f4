//! Runs in processes, on hosts, under Slurm and over MPI, and how runs end. They wait for processes, deadlines and
//! disks, so they are modules of one program, whose threads wait at the same time.

mod anomalies;
mod blame;
mod by_hand;
mod commands;
mod endings;
mod failures;
mod folders_of_others;
mod interrupt;
mod kills;
mod launch;
mod lost_hosts;
mod many_ranks;
mod many_threads;
mod memory;
mod mpi;
mod network;
mod pairs;
mod peer_memory;
mod runs;
mod screens;
mod secrets;
mod slurm;
mod stores;
mod stragglers;
mod text;
mod wait;
