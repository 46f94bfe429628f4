//! The built command: started, and what it said.

pub mod several;
pub mod shown;
pub mod trace_events;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// How the line begins that commands print on a processor with AMX alone.
pub const ADVICE_OF_AMX: &str = "numbers this processor has AMX: ";

/// Runs `pleach` to its end. Compiled kernels are those of all tests.
pub fn pleach(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pleach"));
    command.args(arguments).env("XDG_CACHE_HOME", caches()).output().expect("the command starts")
}

/// The folder of caches that tests share: compiled kernels of these sources are in `pleach/kernels` below.
pub fn caches() -> PathBuf {
    static SOURCES: LazyLock<u64> = LazyLock::new(|| {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernels/cuda/kernels");
        let entries = std::fs::read_dir(folder).expect("sources of kernels");
        let mut texts: Vec<Vec<u8>> =
            entries.map(|entry| std::fs::read(entry.expect("a file").path()).expect("a source")).collect();
        texts.sort();
        let mut hasher = DefaultHasher::new();
        texts.hash(&mut hasher);
        hasher.finish()
    });
    std::env::temp_dir().join(format!("pleach-of-tests-{:016x}", *SOURCES))
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The output of a command that succeeds.
pub fn prints(arguments: &[&str]) -> String {
    let output = pleach(arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", stderr(&output));
    String::from_utf8(output.stdout).expect("text")
}

/// A port of 127.0.0.1 that nobody uses, below those that systems give to connections: it is free, too, when its
/// process listens.
pub fn free_port() -> u16 {
    const FIRST: u16 = 10_000;
    const PORTS: u32 = 20_000;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let own = std::process::id().wrapping_mul(97);
    let drawn = || FIRST + (own.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % PORTS) as u16;
    (0..PORTS).map(|_| drawn()).find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).expect("a free port")
}
