//! Runs of several processes with one GPU in software each, joined by NCCL in software: the bits of the same runs on
//! CPUs whatever the hardware queues, and a process that is killed.
//!
//! The processes are this program, started again. Each opens the driver and NCCL by name and has the kernels of an
//! archive, as a release of the program has them.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use comm::Timeouts;
use comm::processes::{Listeners, Process, ProcessMap, WorldToken};
use config::{ChunkOrder, ContextKind, DeviceChoice, Overlap, ParamSpec, Tied, TrainSpec, ZeroStage};
use mesh::{Rank, Region};
use nvidia::Search;
use prove::{OutcomeSinks, RunPart, run_part};
use testkit::layout::Layout;
use testkit::models::proof_text;
use train::{
    Engine, EngineOptions, GpuPlaces, ProcessMember, RunDevice, Setup, Start, TensorSink, open_process_engine,
    queued_streams,
};

use crate::gpu_runs::experts::divided;
use crate::gpu_runs::released::{archive, put_driver};
use crate::gpu_runs::rig::{Folder, On, ZERO_THREE, graphs, layout};
use crate::gpu_runs::shared_sequences::{FOUR, shared};

/// The folder with the libraries and the archive, in the processes that are started.
const PART: &str = "PLEACH_TEST_PART";

/// The process that ends in the last layout, after a while.
const LOST: usize = 2;

/// Layouts whose runs are compared where not all cases are wanted: all axes of a pipeline, a ring, and experts, each
/// with other queues.
const SAMPLE: [(usize, Queues); 3] = [
    (0, Queues { number: 1, deal: "at creation" }),
    (3, Queues { number: 8, deal: "at first work" }),
    (5, Queues { number: 32, deal: "at creation" }),
];

/// Hardware queues of each GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Queues {
    number: usize,
    deal: &'static str,
}

/// All hardware queues, those of the killed run last.
const QUEUES: [Queues; 5] = [
    Queues { number: 1, deal: "at creation" },
    Queues { number: 1, deal: "at first work" },
    Queues { number: 8, deal: "at creation" },
    Queues { number: 8, deal: "at first work" },
    Queues { number: 32, deal: "at creation" },
];

/// Steps of most runs.
const STEPS: u32 = 2;

/// The runs: all axes of a pipeline with tensor and data parallelism, the three kinds of context parallelism, and
/// experts that replicas divide.
fn layouts() -> Vec<Layout> {
    let plain = layout(Tied::No, [2, 2, 1], ZeroStage::One, Overlap::On, STEPS);
    vec![
        layout(Tied::Yes, [2, 2, 2], ZERO_THREE, Overlap::On, STEPS),
        layout(Tied::No, [2, 1, 2], ZeroStage::One, Overlap::Off, STEPS),
        shared(Tied::No, FOUR, ContextKind::Gather, ChunkOrder::Balanced, ZERO_THREE),
        shared(Tied::No, FOUR, ContextKind::Ring, ChunkOrder::Balanced, ZeroStage::One),
        shared(Tied::Yes, FOUR, ContextKind::Heads, ChunkOrder::Contiguous, ZeroStage::One),
        divided(),
        // One of its processes ends.
        Layout { train: TrainSpec { steps: 500, ..plain.train }, ..plain },
    ]
}

/// Hashes of all that a run delivers, by parameter and box.
#[derive(Default)]
struct Hashes(Mutex<BTreeMap<String, u64>>);

impl TensorSink for Hashes {
    fn put(&self, param: &ParamSpec, region: &Region, values: &[f32]) {
        let mix = |hash: u64, value: &f32| (hash ^ u64::from(value.to_bits())).wrapping_mul(0x100_0000_01b3);
        let hash = values.iter().fold(0xcbf2_9ce4_8422_2325, mix);
        self.0.lock().expect("no panic").insert(format!("{}{region:?}", param.name).replace(' ', ""), hash);
    }
}

/// Runs a layout, and tells losses, norms, gradients and weights of the ranks of this process, a line each.
fn lines(setup: &Setup, engine: &dyn Engine) -> Result<Vec<String>, String> {
    let (gradients, weights) = (Hashes::default(), Hashes::default());
    let sinks = OutcomeSinks { gradients: &gradients, weights: &weights };
    let reports =
        run_part(setup, engine, &proof_text(), RunPart::from(Start::Seed), sinks).map_err(|error| error.to_string())?;
    let numbers = reports
        .iter()
        .enumerate()
        .map(|(step, report)| format!("step {step} {:x} {:x}", report.loss.to_bits(), report.gradient_norm.to_bits()));
    let tensors = [("gradient", gradients), ("weight", weights)].into_iter().flat_map(|(kind, hashes)| {
        let hashes = hashes.0.into_inner().expect("no panic");
        hashes.into_iter().map(move |(name, hash)| format!("{kind} {name} {hash:x}"))
    });
    Ok(numbers.chain(tensors).collect())
}

/// The engine of one process of a layout, which has the rank of its number.
fn engine(setup: &Setup, folder: &Path, process: usize, addresses: &[SocketAddr], own: TcpListener) -> Box<dyn Engine> {
    let kernels: &'static [u8] = std::fs::read(folder.join("archive")).expect("an archive").leak();
    let places = GpuPlaces { libraries: vec![folder.to_path_buf()], code: folder.join("code"), carried: kernels };
    let device = RunDevice::open(DeviceChoice::Cuda, None, graphs(), &places).expect("a driver and an archive");
    let nccl = nvidia::nccl::Library::open(&Search::with(places.libraries)).unwrap_or_else(|error| panic!("{error}"));
    let process_of = |(number, address): (usize, &SocketAddr)| {
        let (ranks, host) = (vec![Rank(number)], format!("host{number}"));
        Process { ranks, host, tcp: Some(*address), local: None }
    };
    let process_map = ProcessMap::new(addresses.iter().enumerate().map(process_of).collect()).expect("a map");
    let listeners = Listeners { tcp: Some(own), ..Listeners::default() };
    let (token, cores, nccl) = (WorldToken::new([0xa5; 32]), vec![], Some(Arc::new(nccl)));
    let seat = ProcessMember { process, process_map, listeners, token, cores, nccl };
    let timeouts = Timeouts::new(Duration::from_secs(60)).scaled(addresses.len(), 1);
    let queued = queued_streams(&setup.parallelism);
    let options = EngineOptions { timeouts, queued, threads_per_rank: 1, library: None };
    let opened = open_process_engine(setup.groups(), options, &device, seat, &|| None);
    opened.unwrap_or_else(|error| panic!("{error}")).0
}

/// The part of a started process: for each layout it says where it listens, reads where all listen, and tells its
/// results.
fn take_part(folder: &Path) {
    let mut input = std::io::stdin().lines().map(|line| line.expect("a line"));
    while let Some(line) = input.next() {
        let mut words = line.split(' ');
        let (Some(number), Some(process)) = (words.next(), words.next()) else { panic!("{line}") };
        let (number, process): (usize, usize) = (number.parse().expect("one"), process.parse().expect("one"));
        let all = layouts();
        let setup = all[number].setup().expect("a plan");
        let own = TcpListener::bind("127.0.0.1:0").expect("a listener");
        println!("listens at {}", own.local_addr().expect("an address"));
        let addresses = input.next().expect("addresses");
        let addresses: Vec<SocketAddr> = addresses.split(' ').map(|address| address.parse().expect("one")).collect();
        let engine = engine(&setup, folder, process, &addresses, own);
        if (number + 1, process) == (all.len(), LOST) {
            std::thread::spawn(|| {
                std::thread::sleep(Duration::from_millis(500));
                std::process::abort();
            });
        }
        match lines(&setup, &*engine) {
            Ok(lines) => lines.iter().for_each(|line| println!("reported {line}")),
            Err(error) => println!("reported failed {}", error.replace('\n', " ")),
        }
        println!("reported end");
    }
}

/// A started process, and both its pipes.
struct Started {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Started {
    fn new(folder: &Path) -> Started {
        let mut command = Command::new(std::env::current_exe().expect("a program"));
        command
            .args(["--exact", "gpu_runs::nccl::processes_over_nccl_have_the_bits_of_the_cpu", "--nocapture"])
            .env(PART, folder);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a process");
        let (input, output) = (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
        Started { child, input, output: BufReader::new(output) }
    }

    /// The rest of the next line that has `key`.
    fn line_of(&mut self, key: &str) -> String {
        loop {
            let mut line = String::new();
            assert_ne!(self.output.read_line(&mut line).expect("a line"), 0, "the process ended before {key}");
            // The test program writes the name of the test before it.
            if let Some((_, value)) = line.trim_end().split_once(key) {
                return value.to_owned();
            }
        }
    }

    /// The results of a layout, sorted.
    fn reported(&mut self) -> Vec<String> {
        let mut all = vec![];
        loop {
            match self.line_of("reported ") {
                end if end == "end" => return all,
                line => all.push(line),
            }
        }
    }
}

/// Begins a layout on the first of `processes`, as many as it has ranks.
fn begin<'a>(processes: &'a mut [Started], number: usize, setup: &Setup) -> &'a mut [Started] {
    let own = &mut processes[..setup.mesh.world_size()];
    for (process, started) in own.iter_mut().enumerate() {
        writeln!(started.input, "{number} {process}").expect("written");
    }
    let addresses: Vec<String> = own.iter_mut().map(|started| started.line_of("listens at ")).collect();
    for started in own.iter_mut() {
        writeln!(started.input, "{}", addresses.join(" ")).expect("written");
    }
    own
}

/// The folder of the libraries and of the archive.
fn libraries(queues: Queues) -> Folder {
    let folder = Folder::new();
    put_driver(&folder.0);
    let settings = format!("hardware_queues = {}\ndeal = {}\n", queues.number, queues.deal);
    std::fs::write(folder.0.join("softgpu.settings"), settings).expect("written");
    // One file: under both names it is one library with one GPU.
    std::fs::hard_link(folder.0.join("libcuda.so.1"), folder.0.join("libnccl.so.2")).expect("another name");
    std::fs::write(folder.0.join("archive"), archive()).expect("written");
    folder
}

#[needs::cuda]
#[test]
fn processes_over_nccl_have_the_bits_of_the_cpu() {
    match std::env::var_os(PART) {
        Some(folder) => take_part(Path::new(&folder)),
        None => compare_processes(),
    }
}

fn compare_processes() {
    let mut layouts = layouts();
    let lost = layouts.pop().expect("the last one");
    let expected: Vec<OnceCell<Vec<String>>> = layouts.iter().map(|_| OnceCell::new()).collect();
    for queues in QUEUES {
        let is_drawn = |number: &usize| SAMPLE.contains(&(*number, queues)) || needs::all_cases!();
        let drawn: Vec<usize> = (0..layouts.len()).filter(is_drawn).collect();
        let is_last = Some(&queues) == QUEUES.last();
        if drawn.is_empty() && !is_last {
            continue;
        }
        let folder = libraries(queues);
        let mut processes: Vec<Started> = (0..8).map(|_| Started::new(&folder.0)).collect();
        for number in drawn {
            let setup = layouts[number].setup().expect("a plan");
            let own = begin(&mut processes, number, &setup);
            let mut reported: Vec<String> = own.iter_mut().flat_map(Started::reported).collect();
            let expected = expected[number].get_or_init(|| {
                let mut expected = lines(&setup, &*On::Cpus.engine(&setup)).expect("a run on CPUs");
                expected.sort();
                expected
            });
            reported.sort();
            assert!(
                expected.len() > STEPS as usize && reported == *expected,
                "run {number}, {queues:?}: {}",
                differing(&reported, expected)
            );
        }
        if is_last {
            kill_one(&mut processes, layouts.len(), &lost);
        }
        for Started { mut child, input, .. } in processes {
            drop(input);
            child.wait().expect("ended");
        }
    }
}

/// One of the processes of the last layout ends, which the others say by name.
fn kill_one(processes: &mut [Started], number: usize, lost: &Layout) {
    let setup = lost.setup().expect("a plan");
    let own = begin(processes, number, &setup);
    for (process, started) in own.iter_mut().enumerate().filter(|(process, _)| *process != LOST) {
        let reported = started.reported();
        let is_named = |line: &String| line.starts_with("failed") && line.contains(&format!("rank {LOST}"));
        assert!(reported.iter().any(is_named), "{process}: {reported:?}");
    }
}

/// The first line that only one has.
fn differing(reported: &[String], expected: &[String]) -> String {
    let missing = expected.iter().find(|line| !reported.contains(line));
    let other = reported.iter().find(|line| !expected.contains(line));
    format!("{} and {} lines; {missing:?} is missing, {other:?} is there", reported.len(), expected.len())
}
