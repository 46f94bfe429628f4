//! Worlds of ranks over threads, and over processes that this one stands for.

#![allow(dead_code, clippy::unwrap_used)]

use comm::{ThreadTransport, Timeouts, Transport};
use std::sync::Arc;

/// How the ranks of a world talk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    /// As threads of one process.
    Threads,
    /// As processes over TCP.
    Tcp,
    /// As processes of one machine.
    SharedMemory,
}

/// The ends of the ranks of each process, one lane each.
pub fn processes(wire: Wire, world_size: usize, timeouts: Timeouts) -> Vec<Vec<Arc<dyn Transport>>> {
    let shared = |end: ThreadTransport| Arc::new(end) as Arc<dyn Transport>;
    match wire {
        Wire::Threads => vec![ThreadTransport::world(world_size, timeouts).into_iter().map(shared).collect()],
        #[cfg(target_os = "linux")]
        Wire::Tcp | Wire::SharedMemory => {
            let opened = linux::open(linux::members(wire, &linux::spread(world_size), 1, timeouts));
            opened.into_iter().map(|local| local.ends.into_iter().flatten().map(shared).collect()).collect()
        }
        #[cfg(not(target_os = "linux"))]
        Wire::Tcp | Wire::SharedMemory => panic!("worlds of several processes need Linux"),
    }
}

#[cfg(target_os = "linux")]
#[allow(unused_imports)]
pub use linux::{members, open, spread};

#[cfg(target_os = "linux")]
mod linux {
    use super::Wire;
    use comm::Timeouts;
    use comm::processes::{Listeners, LocalRanks, Process, ProcessMap, WorldMember, WorldToken};
    use mesh::Rank;
    use std::net::TcpListener;
    use std::num::NonZeroUsize;

    /// The ranks of up to four processes: neighbours are in different ones, as far as there are enough.
    pub fn spread(world_size: usize) -> Vec<Vec<usize>> {
        let processes = match world_size {
            0..4 => world_size,
            _ => 2 + world_size % 3,
        };
        (0..processes).map(|process| (process..world_size).step_by(processes).collect()).collect()
    }

    /// The processes with these ranks.
    pub fn members(wire: Wire, ranks: &[Vec<usize>], num_lanes: usize, timeouts: Timeouts) -> Vec<WorldMember> {
        let mut listeners = Vec::new();
        let mut processes = Vec::new();
        for (number, ranks) in ranks.iter().enumerate() {
            let mut process = Process {
                ranks: ranks.iter().copied().map(Rank).collect(),
                host: format!("host{number}"),
                tcp: None,
                local: None,
            };
            let mut listener = Listeners::default();
            if wire == Wire::SharedMemory {
                let (local, address) = Listeners::open_local().unwrap();
                (listener.local, process.local) = (Some(local), Some(address));
            } else {
                let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
                process.tcp = Some(tcp.local_addr().unwrap());
                listener.tcp = Some(tcp);
            }
            listeners.push(listener);
            processes.push(process);
        }
        let process_map = ProcessMap::new(processes).unwrap();
        let member = |(process, listeners)| WorldMember {
            process,
            process_map: process_map.clone(),
            listeners,
            token: WorldToken::new([0x5a; 32]),
            num_lanes: NonZeroUsize::new(num_lanes).unwrap(),
            timeouts,
        };
        listeners.into_iter().enumerate().map(member).collect()
    }

    /// Opens all processes of a world.
    pub fn open(members: Vec<WorldMember>) -> Vec<LocalRanks> {
        let open = |member: WorldMember| std::thread::spawn(|| comm::processes::open(member));
        let threads: Vec<_> = members.into_iter().map(open).collect();
        threads.into_iter().map(|thread| thread.join().unwrap().unwrap_or_else(|error| panic!("{error}"))).collect()
    }
}
