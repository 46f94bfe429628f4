//! A target that is watched: no input may crash it, keep it for ever, or take its memory.

use std::fmt::Debug;
use std::fs;
use std::panic::RefUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use bolero::TypeGenerator;
use bolero::generator::bolero_generator::driver::{ByteSliceDriver, Options};
use sync::{into_inner, lock};

use crate::corrupted::Corrupted;

/// A reader's result for a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// It was sound, or a change that does not matter.
    Accepted,
    /// It was refused with a message.
    Refused,
}

impl<T, E: Debug> From<&Result<T, E>> for Read {
    fn from(read: &Result<T, E>) -> Read {
        if read.is_ok() { Read::Accepted } else { Read::Refused }
    }
}

/// One kind of files and who reads them.
pub struct Target<'a> {
    /// Folder in `found` of files that once were read wrongly.
    pub name: &'a str,
    /// Sound files.
    pub seeds: Vec<Vec<u8>>,
    /// Renews the hashes within a file.
    pub seal: fn(&mut [u8]),
    /// Reads a file and uses what is in it.
    pub read: &'a (dyn Fn(&[u8]) -> Read + RefUnwindSafe + Sync),
}

/// The function that a fuzzer calls with each input.
pub type Tried<'a> = &'a (dyn Fn(&Corrupted) + RefUnwindSafe);

/// Inputs of a plain test, which takes moments.
pub const INPUTS: usize = 400;
/// An input that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(300);
/// Memory limit of a process that reads such files.
const MEMORY_BYTES: u64 = 1 << 30;

#[derive(Default)]
struct Seen {
    inputs: AtomicU64,
    accepted: AtomicU64,
    longest: Mutex<(Duration, usize)>,
}

impl Target<'_> {
    /// All seeds, all files in `found`, then what `fuzz` comes up with, or in a plain test inputs that are the same
    /// each time.
    pub fn run(self, fuzz: impl FnOnce(Tried<'_>)) {
        let seen = Seen::default();
        for seed in &self.seeds {
            assert_eq!((self.read)(seed), Read::Accepted, "{}: a seed is sound", self.name);
        }
        for file in found(self.name) {
            (self.read)(&fs::read(&file).expect("a file"));
        }
        let started = Instant::now();
        std::thread::scope(|scope| {
            let (running, ended) = channel::<()>();
            scope.spawn(|| {
                let ended = ended;
                let mut inputs = u64::MAX;
                while ended.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                    let before = std::mem::replace(&mut inputs, seen.inputs.load(Ordering::Relaxed));
                    if before == inputs {
                        eprintln!("{}: input {inputs} is read for {PATIENCE:?}", self.name);
                        std::process::abort();
                    }
                }
            });
            let _running = running;
            let tried = |corrupted: &Corrupted| self.count(corrupted, &seen);
            if is_plain_test() {
                (0..INPUTS as u64).filter_map(drawn).for_each(|corrupted| tried(&corrupted))
            } else {
                fuzz(&tried)
            }
        });
        let (inputs, accepted) = (seen.inputs.into_inner(), seen.accepted.into_inner());
        let (longest, len) = into_inner(seen.longest);
        println!(
            "{}: {inputs} inputs in {:.0} s, {accepted} accepted; the longest took {longest:.1?} for {len} bytes; {} MiB",
            self.name,
            started.elapsed().as_secs_f64(),
            peak_bytes().unwrap_or_default() >> 20
        );
        assert!(accepted < inputs, "all of {inputs} are sound: the changes change nothing");
        assert!(peak_bytes().is_none_or(|peak| peak < MEMORY_BYTES), "{}: {:?} bytes", self.name, peak_bytes());
    }

    fn count(&self, corrupted: &Corrupted, seen: &Seen) {
        let file = corrupted.file(&self.seeds, self.seal);
        let started = Instant::now();
        let read = (self.read)(&file);
        let took = started.elapsed();
        seen.inputs.fetch_add(1, Ordering::Relaxed);
        seen.accepted.fetch_add(u64::from(read == Read::Accepted), Ordering::Relaxed);
        let mut longest = lock(&seen.longest);
        if took > longest.0 {
            *longest = (took, file.len());
        }
    }
}

/// Whether neither a time nor a fuzzer was asked for.
#[allow(unexpected_cfgs, reason = "cargo bolero sets it")]
fn is_plain_test() -> bool {
    let is_set = |name: &str| std::env::var_os(name).is_some();
    !cfg!(fuzzing) && !is_set("BOLERO_RANDOM_ITERATIONS") && !is_set("BOLERO_RANDOM_TEST_TIME_MS")
}

/// The input of a number, out of bytes of SplitMix64.
fn drawn(number: u64) -> Option<Corrupted> {
    let mut state = number << 32;
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    };
    let bytes: Vec<u8> = (0..64).flat_map(|_| next().to_le_bytes()).collect();
    Corrupted::generate(&mut ByteSliceDriver::new(&bytes, &Options::default()))
}

/// Files that once were read wrongly.
fn found(name: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/found").join(name);
    let mut files: Vec<PathBuf> =
        fs::read_dir(folder).into_iter().flatten().map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    files
}

/// The largest memory that this process has held, where the system says so.
fn peak_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()? << 10)
}

/// A folder that is removed with this.
pub struct Scratch(PathBuf);

impl Scratch {
    /// An empty one.
    pub fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("pleach-fuzz-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a folder");
        Scratch(path)
    }

    /// The file `name`, with this content.
    pub fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, bytes).expect("written");
        path
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
