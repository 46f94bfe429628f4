//! Puts compiled kernels into the program: the archive that `PLEACH_KERNELS` names, or none.

use std::error::Error;
use std::path::PathBuf;
use std::{env, fs};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-env-changed=PLEACH_KERNELS");
    let to = PathBuf::from(env::var_os("OUT_DIR").ok_or("cargo names no OUT_DIR")?).join("kernels");
    match env::var_os("PLEACH_KERNELS").map(PathBuf::from) {
        Some(archive) => {
            println!("cargo::rerun-if-changed={}", archive.display());
            let bytes =
                fs::read(&archive).map_err(|error| format!("PLEACH_KERNELS = {}: {error}", archive.display()))?;
            fs::write(to, bytes)?;
        }
        None => fs::write(to, [])?,
    }
    Ok(())
}
