//! How long saving holds a run up, and how fast a checkpoint is loaded under other layouts: `cargo bench -p train
//! --bench checkpoint [-- FOLDER]`.
//!
//! GPT-2 of 124 million parameters with the state of AdamW, in `FOLDER` or that of the system for what is temporary.
//! Each figure is printed with the time of the same cores for the same bytes: to copy them in memory, or to read them
//! from the files unchecked.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use checkpoint::{BLOCK_BYTES, Checkpoint, Committer, Disk, Retention, Store, committed};
use config::{Parallelism, RunConfig, TrainSpec};
use device::DeviceError;
use sync::lock;
use testkit::layout::engine;
use testkit::text::{Labels, ProofText};
use train::{Observer, Ports, SaveReport, SaveStream, Saving, Setup, Start, StepReport, StopRequest, Worker, run};

const RUN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../bench/compare/gpt2_124m_short.toml");
/// Steps from one checkpoint to the next: more than are held up by one.
const EVERY: u32 = 4;
/// Steps before the first one that is timed, and those that are.
const WARM_UP: u32 = 2;
const STEPS: u32 = 3 * EVERY;
/// Layouts of two ranks that load what one rank saved.
const LAYOUTS: [&str; 4] = ["dp=2, zero=1", "tp=2", "pp=2", "dp=2, zero=3"];
/// Each is loaded so often; the median counts.
const LOADS: usize = 5;

/// Keeps the seconds of steps and of saves, and those that instructions have waited for saving, by steps.
#[derive(Default)]
struct Stopwatch {
    steps: Mutex<Vec<f64>>,
    saves: Mutex<Vec<f64>>,
    waited: Mutex<BTreeMap<u32, f64>>,
}

impl Observer for Stopwatch {
    fn step(&self, report: &StepReport) -> StopRequest {
        lock(&self.steps).push(report.wall.as_secs_f64());
        StopRequest::None
    }

    fn saved(&self, report: SaveReport) {
        report.finished.outcome.expect("a checkpoint");
        lock(&self.saves).push(report.wall.as_secs_f64());
    }

    fn instruction(&self, worker: &Worker<'_>) -> Result<(), DeviceError> {
        let waited = worker.ports.saving.as_ref().map_or(Duration::ZERO, SaveStream::waited);
        lock(&self.waited).insert(worker.position.step, waited.as_secs_f64());
        Ok(())
    }
}

impl Stopwatch {
    /// Seconds of the timed steps.
    fn timed(&self) -> Vec<f64> {
        lock(&self.steps)[WARM_UP as usize..].to_vec()
    }

    /// Seconds that the thread of the rank waited in each step that had something to wait for.
    fn waits(&self) -> Vec<f64> {
        let waited: Vec<f64> = lock(&self.waited).values().copied().collect();
        let of_steps = waited.windows(2).map(|two| two[1] - two[0]);
        of_steps
            .enumerate()
            .filter(|(step, _)| (*step as u32 + 1).is_multiple_of(EVERY))
            .map(|(_, wait)| wait)
            .collect()
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn setup(config: &RunConfig, steps: u32) -> Setup {
    let train = TrainSpec { steps, ..config.train.clone() };
    Setup::new(config.model.clone(), config.parallelism.clone(), train).expect("a plan")
}

fn text(setup: &Setup) -> ProofText {
    ProofText { vocabulary: setup.model.vocabulary, seed: 5, labels: Labels::Every }
}

fn store(folder: &Path) -> Store {
    let retention = Retention { newest: 1, every: 0, best: 0 };
    Store::open(folder, Arc::new(Disk), retention).expect("a folder")
}

/// The times of the steps, with a checkpoint after every [`EVERY`] where there is a store.
fn steps(config: &RunConfig, store: Option<&Store>) -> Stopwatch {
    let setup = setup(config, WARM_UP + STEPS);
    let (text, stopwatch) = (text(&setup), Stopwatch::default());
    let committer = store.map(|store| Committer::new(store, 1));
    let saving = committer.as_ref().map(|committer| Saving::with(committer).every(EVERY));
    let engine = engine(&setup, config.run.threads_per_rank);
    run(&setup, &*engine, Ports { saving, ..Ports::new(&text, &stopwatch) }).expect("a run");
    stopwatch
}

/// Costs of a checkpoint in the steps after it: seconds that the rank's thread waits, and seconds in all, with the
/// cores that the saving thread takes from it.
fn saving(config: &RunConfig, folder: &Path) {
    let plain = median(steps(config, None).timed());
    let stopwatch = steps(config, Some(&store(folder)));
    let saved = stopwatch.timed();
    // The first save is after step EVERY, so the timed steps begin in the middle of a row.
    let behind = |place: u32| {
        let is_behind = |index: u32| (WARM_UP + index + 1) > EVERY && (WARM_UP + index) % EVERY == place;
        median((0..STEPS).filter(|index| is_behind(*index)).map(|index| saved[index as usize]).collect())
    };
    let rows: Vec<f64> = (0..EVERY).map(behind).collect();
    let added: f64 = rows.iter().map(|seconds| seconds - plain).sum();
    let bytes = newest(folder).manifest().data_bytes() as f64;
    let cores = config.run.threads_per_rank;
    let copied = 2.0 * bytes / cpu::peak::copy_bytes_per_second(cores);
    let (wall, waited) = (median(lock(&stopwatch.saves).clone()), median(stopwatch.waits()));
    println!(
        "save: {:.2} GB in {wall:.2} s during steps of {plain:.3} s; {cores} cores copy as much in {copied:.3} s\n\
         the training thread waits {waited:.3} s for it: {:.2} x\n\
         steps are {added:.3} s longer in all ({}): {:.2} x",
        bytes / 1e9,
        waited / copied,
        rows.iter().map(|seconds| format!("{:+.3}", seconds - plain)).collect::<Vec<_>>().join(", "),
        added / copied
    );
}

fn newest(folder: &Path) -> Checkpoint {
    Checkpoint::open(&committed(folder).expect("a folder")[0].path).expect("a checkpoint")
}

/// Bytes per second at which `threads` threads read the file at `path`, block by block: each its part, into a buffer of
/// `buffer_len` bytes that is overwritten when it is full.
fn reading_rate(path: &Path, threads: usize, buffer_len: usize) -> f64 {
    let file = File::open(path).expect("a file");
    let part_bytes = file.metadata().expect("a length").len() / threads as u64;
    let mut buffers = vec![vec![1; buffer_len]; threads];
    let seconds = (0..LOADS).map(|_| {
        let started = Instant::now();
        std::thread::scope(|scope| {
            for (thread, buffer) in buffers.iter_mut().enumerate() {
                let file = &file;
                scope.spawn(move || {
                    for offset in (0..part_bytes).step_by(BLOCK_BYTES) {
                        let len = BLOCK_BYTES.min((part_bytes - offset) as usize);
                        let place = offset as usize % (buffer_len - len + 1);
                        let from = thread as u64 * part_bytes + offset;
                        file.read_exact_at(&mut buffer[place..place + len], from).expect("bytes");
                    }
                });
            }
        });
        started.elapsed().as_secs_f64()
    });
    (part_bytes * threads as u64) as f64 / median(seconds.collect())
}

/// The state of the newest checkpoint in the memory of ranks of each of [`LAYOUTS`].
fn loading(config: &RunConfig, folder: &Path) {
    let checkpoint = newest(folder);
    let [file] = &checkpoint.manifest().files[..] else { panic!("one rank saved") };
    let (path, len_bytes) = (checkpoint.path().join(&file.name), file.bytes as usize);
    for layout in LAYOUTS {
        let overrides: Vec<String> = layout.split(", ").map(|set| format!("parallelism.{set}")).collect();
        let parallelism = RunConfig::load("", BASE, &overrides).expect("a layout").parallelism;
        let ranks = parallelism.world_size();
        let parallelism = Parallelism { microbatch_size: 1, ..parallelism };
        let setup = setup(&RunConfig { parallelism, ..config.clone() }, WARM_UP + STEPS);
        let text = text(&setup);
        let (mut seconds, mut read) = (vec![], 0);
        for _ in 0..LOADS {
            let checkpoint = newest(folder);
            let stopwatch = Stopwatch::default();
            let engine = engine(&setup, 1);
            let started = Instant::now();
            // No step is left.
            let ports = Ports { start: Start::Checkpoint(&checkpoint), ..Ports::new(&text, &stopwatch) };
            run(&setup, &*engine, ports).expect("a run");
            seconds.push(started.elapsed().as_secs_f64());
            read = checkpoint.bytes_read();
        }
        let seconds = median(seconds);
        let rate = read as f64 / seconds;
        // Into memory for all of it, where state must be in the end; and into one block that stays in the cache, as if
        // to check it.
        let [kept, seen] = [len_bytes / ranks, BLOCK_BYTES].map(|buffer_len| reading_rate(&path, ranks, buffer_len));
        println!(
            "load under {layout}: {ranks} ranks read {:.2} GB in {seconds:.3} s, {:.2} GB/s; as many threads read the file into memory at \
             {:.2} GB/s: {:.0} %; and into one block each, which stays in the cache, at {:.2} GB/s: {:.0} %",
            read as f64 / 1e9,
            rate / 1e9,
            kept / 1e9,
            100.0 * rate / kept,
            seen / 1e9,
            100.0 * rate / seen
        );
    }
}

/// Keys that all layouts share.
const BASE: &str = "[parallelism]\ndp = 1\ntp = 1\npp = 1\nmicrobatch_size = 1\n";

fn main() {
    let folder = std::env::args().skip(1).find(|argument| argument != "--bench");
    let folder = folder.map_or_else(std::env::temp_dir, PathBuf::from);
    let folder = folder.join(format!("pleach-bench-checkpoint-{}", std::process::id()));
    let toml = fs::read_to_string(RUN).expect("a run file");
    let config = RunConfig::load(RUN, &toml, &[]).unwrap_or_else(|problems| panic!("{problems:#?}"));
    saving(&config, &folder);
    loading(&config, &folder);
    fs::remove_dir_all(&folder).expect("removed");
}
