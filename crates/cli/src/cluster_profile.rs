//! The profile that an argument means.

use std::path::Path;

use cluster::{Cluster, Software, named, names};

use crate::cluster_arguments::Asked;
use crate::failure::Failure;

/// The profile of this name, or in this file.
///
/// # Errors
/// Neither a name nor a file, or a file that is no profile.
pub fn profile(name: &str) -> Result<Cluster, Failure> {
    let text = match named(name) {
        Some(text) => text.to_string(),
        None if Path::new(name).exists() => std::fs::read_to_string(name)
            .map_err(|error| Failure::Input(format!("--cluster {name} cannot be read: {error}")))?,
        None => {
            let known: Vec<&str> = names().collect();
            return Err(Failure::Input(format!(
                "--cluster {name}: there is no such file, and no profile of that name; there are {}",
                known.join(", ")
            )));
        }
    };
    Cluster::from_toml(&text).map_err(|error| Failure::Input(format!("--cluster {name}: {error}")))
}

/// The trainer whose run is meant: that of the profile, where it was asked for, or pleach itself.
///
/// # Errors
/// A profile without `[software]`.
pub fn software<'a>(asked: Asked, name: &str, cluster: &'a Cluster) -> Result<Option<&'a Software>, Failure> {
    match (asked, &cluster.software) {
        (Asked::Pleach, _) => Ok(None),
        (Asked::Software, Some(software)) => Ok(Some(software)),
        (Asked::Software, None) => Err(Failure::Input(format!(
            "--software: the profile {name} has no [software]; leave the option out, or add the section"
        ))),
    }
}
