//! An all-reduce of 64 MiB over MPI, compared with `MPI_Allreduce` of the same library, in turns within one run.
//!
//! Needs the mpiexec of the library, which `PLEACH_MPI_LIBRARY` names; see `docs/clusters.md`:
//!
//! ```text
//! cargo bench -p comm --bench mpi --no-run
//! PLEACH_MPI_LIBRARY=/usr/lib/x86_64-linux-gnu/libmpich.so.12 mpiexec.mpich -n 2 target/release/deps/mpi-...
//! ```

use comm::processes::{Listeners, LocalRanks, MpiEndpoint, Process, ProcessMap, WorldMember, WorldToken, open};
use comm::{ChannelId, GroupCommunicator, HostMap, Timeouts, Transport};
use mesh::{Axis, AxisSet, AxisSizes, Mesh, Rank};
use mpi::ThreadLevel;
use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

const ELEMENTS: usize = 16 << 20;
const TURNS: usize = 15;
const WAIT: Duration = Duration::from_secs(60);
/// Process n listens at this port plus n.
const FIRST_PORT: u16 = 29_600;

fn main() -> Result<(), Box<dyn Error>> {
    // `cargo bench` of the whole workspace starts this without a launcher.
    let Some(path) = std::env::var_os("PLEACH_MPI_LIBRARY") else {
        println!("all-reduce over MPI: skipped, PLEACH_MPI_LIBRARY names no library");
        return Ok(());
    };
    let endpoint = Arc::new(MpiEndpoint::open(path.into(), ThreadLevel::Funneled, WAIT, &|| None)?);
    let (process, processes) = (endpoint.process(), endpoint.processes());
    let LocalRanks { ends, .. } = open(member(&endpoint)?)?;
    let end = ends.into_iter().flatten().next().ok_or("no rank")?;
    let communicator = communicator(Arc::new(end))?;
    let mut data = vec![1.0f32; ELEMENTS];
    let (mut own, mut librarys) = (vec![], vec![]);
    for turn in 0..TURNS {
        communicator.barrier()?;
        let started = Instant::now();
        communicator.all_reduce_sum(&mut data)?;
        let ours = started.elapsed();
        communicator.barrier()?;
        let (reduced, theirs) = endpoint.all_reduce_sum(data)?;
        data = reduced;
        data.fill(1.0);
        if turn > 2 {
            own.push(ours);
            librarys.push(theirs);
        }
    }
    if process == 0 {
        let gb_per_s = |times: &mut Vec<Duration>| {
            times.sort();
            ELEMENTS as f64 * 4.0 / times[times.len() / 2].as_nanos() as f64
        };
        let (own, library) = (gb_per_s(&mut own), gb_per_s(&mut librarys));
        println!(
            "all-reduce of 64 MiB, {processes} processes, {}, {}: pleach {own:.2} GB/s, MPI_Allreduce {library:.2} GB/s, {:.0} %",
            endpoint.version(),
            endpoint.abi(),
            100.0 * own / library
        );
    }
    drop(communicator);
    endpoint.finish(WAIT, &|| None)?;
    Ok(())
}

/// This process as a member of the world: one rank in each.
fn member(endpoint: &Arc<MpiEndpoint>) -> Result<WorldMember, Box<dyn Error>> {
    let address = |number: usize| SocketAddr::from((Ipv4Addr::LOCALHOST, FIRST_PORT + number as u16));
    let process =
        |number| Process { ranks: vec![Rank(number)], host: "host".into(), tcp: Some(address(number)), local: None };
    let tcp = TcpListener::bind(address(endpoint.process()))?;
    // Everybody listens before anybody connects.
    endpoint.all_reduce_sum(vec![0.0])?;
    Ok(WorldMember {
        process: endpoint.process(),
        process_map: ProcessMap::new((0..endpoint.processes()).map(process).collect())?,
        listeners: Listeners { tcp: Some(tcp), mpi: Some(Arc::clone(endpoint)), ..Listeners::default() },
        token: WorldToken::new([0x5a; WorldToken::BYTES]),
        num_lanes: NonZeroUsize::MIN,
        timeouts: Timeouts::new(WAIT),
    })
}

fn communicator(transport: Arc<dyn Transport>) -> Result<GroupCommunicator, Box<dyn Error>> {
    let sizes = AxisSizes { tp: transport.world_size(), ..AxisSizes::ONE };
    let group = Mesh::new(sizes)?.group(transport.rank(), Axis::Tp);
    Ok(GroupCommunicator::new(transport, group, &HostMap::one_host(), ChannelId::new(AxisSet::of(Axis::Tp), 0)))
}
