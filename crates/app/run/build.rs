//! Says for which systems the program is built, and puts compiled kernels into it: the archive that `PLEACH_KERNELS`
//! names, or none.

use std::error::Error;
use std::path::PathBuf;
use std::{env, fs};

fn main() -> Result<(), Box<dyn Error>> {
    check_system(&env::var("CARGO_CFG_TARGET_OS")?, &env::var("CARGO_CFG_TARGET_ARCH")?)?;
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

/// Warns where the program was never tested; refuses where it cannot work.
fn check_system(system: &str, processor: &str) -> Result<(), String> {
    match (system, processor) {
        ("linux", "x86_64") => Ok(()),
        ("windows", _) => {
            Err("pleach needs Linux; on Windows, build it in the Windows Subsystem for Linux (WSL 2)".into())
        }
        _ => {
            println!(
                "cargo::warning=pleach is tested on Linux on x86-64 only; on {system} on {processor} its kernels are the \
                 portable ones, which compute the same bits more slowly, and nothing has been run"
            );
            Ok(())
        }
    }
}
