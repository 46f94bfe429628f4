//! Runs whose processes are killed, whose bits flip and whose disks fill up: trials of each, with their results.
//!
//! *Same* means that the losses of all steps and the last weights have the bits of the undisturbed run.

mod child;
mod damage;
mod interruptions;
mod kept;
mod kills;
mod layouts;
pub mod page;
mod reference;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

pub use child::{Report, Role};
pub use damage::{flipped_bits, wrong_files};
pub use interruptions::{full_disks, stops, vanished_folders};
pub use kept::{Kept, kept_in};
pub use kills::{StartChild, kills, locks};
pub use layouts::{layouts, pairs};
pub use reference::Reference;

/// The results of trials of one fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// The fault, as `facts` number it: `R3`.
    pub number: &'static str,
    /// The injected fault.
    pub fault: &'static str,
    /// The requirement.
    pub demand: &'static str,
    pub trials: usize,
    /// Broken requirements, a line for each trial.
    pub failures: Vec<String>,
    /// Other observations, as the rest of a row.
    pub seen: String,
}

/// A folder of trials, emptied before each and removed in the end.
#[derive(Debug)]
pub struct TrialFolder(PathBuf);

impl TrialFolder {
    /// A new folder of this process.
    ///
    /// # Errors
    /// A place for temporary files that cannot be written.
    pub fn new(name: &str) -> std::io::Result<TrialFolder> {
        // Tests of one process do trials at the same time.
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let (process, number) = (std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let folder = TrialFolder(std::env::temp_dir().join(format!("pleach-{name}-{process}-{number}")));
        folder.clear()?;
        Ok(folder)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Removes all that is in it.
    ///
    /// # Errors
    /// The error of the system.
    pub fn clear(&self) -> std::io::Result<()> {
        match std::fs::remove_dir_all(&self.0) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        std::fs::create_dir_all(&self.0)
    }
}

impl Drop for TrialFolder {
    fn drop(&mut self) {
        // Files that are left there are temporary anyway.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Trial `number` of the fault `fault`: three random numbers, always the same.
fn draw(fault: u32, number: usize) -> [usize; 3] {
    let [a, b, c, _] = philox::philox4x32_10([number as u32, 0, 0, 0], [fault, 0x7265_6c69]);
    [a as usize, b as usize, c as usize]
}
