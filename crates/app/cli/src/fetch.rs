//! A run of a store in a folder of this machine.

use std::path::Path;

use config::Trusted;
use run::failure::Failure;
use run::messages::stderr::tell;
use run::store::settings::RetryTime;
use run::store::stored::{self, NewestCheckpoint};

/// Downloads the newest checkpoint that is whole, and the files of the run.
///
/// # Errors
/// A store without an answer or without a checkpoint, and a folder that has another run, cannot be written or is in
/// use.
pub fn fetch(address: &Trusted<String>, out: &Path) -> Result<(), Failure> {
    let stored = stored::open("the address", address, RetryTime::Fixed)?;
    if stored.newest().map_err(stored::of_store)?.is_none() {
        return Err(stored::none(&stored));
    }
    let (address, folder) = (stored.address(), out.display());
    match stored::bring_newest(&stored, out, "name another folder with --out")? {
        NewestCheckpoint::Downloaded(steps) => tell(&format!("{folder} has the run of {address} after step {steps}\n")),
        NewestCheckpoint::AsNew(steps) => {
            tell(&format!(
                "{folder} has the checkpoint after step {steps}; {address} has no later one, and nothing is downloaded\n"
            ));
        }
        NewestCheckpoint::InUse => {
            let reason = "is in use by a run that trains; name another folder with --out, or wait for its end";
            return Err(Failure::Input(format!("{folder} {reason}")));
        }
        NewestCheckpoint::NoneWhole => {
            return Err(Failure::Input(format!("{address} has no checkpoint that is whole")));
        }
    }
    Ok(())
}
