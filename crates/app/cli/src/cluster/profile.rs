//! The profile that an argument means.

use std::path::Path;

use cluster::{Cluster, CollectiveLibrary, HalfFormats, Software, named, names};
use config::{CollectivesChoice, Precision, RunConfig};
use files::{InputKind, read_text};
use run::failure::Failure;
use run::presets;
use run::run_file::RunFile;

use crate::arguments::cluster::RunClusterArguments;

/// The cluster that a run is meant for, and the trainer, where it is not pleach.
///
/// # Errors
/// The errors of [`profile`] and [`software`]; no cluster at all.
pub fn of_run(
    run: &RunFile,
    arguments: &RunClusterArguments,
    config: &RunConfig,
) -> Result<(Cluster, Option<Software>), Failure> {
    let preset = run.file.as_deref().map(presets::named).transpose()?.flatten();
    let own = preset.and_then(|preset| preset.published).map(|published| published.cluster.to_string());
    let Some(name) = arguments.cluster.clone().or(own) else {
        return Err(Failure::Input(format!(
            "--cluster is required: only presets of published runs have a cluster of their own; use {}, or a file",
            names().collect::<Vec<_>>().join(", ")
        )));
    };
    let mut cluster = profile(&name)?;
    check_precision(config, &cluster)?;
    cluster.collectives = collectives(cluster.collectives, config.run.collectives);
    let software = software(arguments.software.as_deref(), &name, &cluster)?;
    Ok((cluster, software))
}

/// The load of experts that predictions of a run assume, relative to balanced routing.
///
/// # Errors
/// A load of a model without experts.
pub fn expert_load(arguments: &RunClusterArguments, config: &RunConfig) -> Result<f64, Failure> {
    match (arguments.expert_load, &config.model.experts) {
        (Some(load), None) => {
            Err(Failure::Input(format!("--expert-load {load} is of experts, and the model has none; leave it out")))
        }
        (load, _) => Ok(load.unwrap_or(1.0)),
    }
}

/// That the accelerators of `cluster` multiply the numbers of the run.
///
/// # Errors
/// Numbers that they do not have, with those that they have.
pub fn check_precision(config: &RunConfig, cluster: &Cluster) -> Result<(), Failure> {
    match (config.train.precision, cluster.accelerator.half_formats) {
        (Precision::Bf16(_), HalfFormats::Fp16) => Err(Failure::Input(format!(
            "train.precision = \"bf16\" must be multiplied by the accelerator; {} multiplies fp16 and fp32; use one of them",
            cluster.accelerator.name
        ))),
        (Precision::Bf16(_) | Precision::Fp16(..) | Precision::Fp32(_), HalfFormats::Both)
        | (Precision::Fp16(..) | Precision::Fp32(_), HalfFormats::Fp16) => Ok(()),
    }
}

/// The library whose collectives are priced: the run's choice is between pleach's own and those of MPI.
fn collectives(of_cluster: CollectiveLibrary, of_run: CollectivesChoice) -> CollectiveLibrary {
    match (of_cluster, of_run) {
        (CollectiveLibrary::Pleach, CollectivesChoice::Native) => CollectiveLibrary::Mpi,
        (CollectiveLibrary::Pleach, CollectivesChoice::Own) => CollectiveLibrary::Pleach,
        (CollectiveLibrary::Nccl | CollectiveLibrary::Mpi, _) => of_cluster,
    }
}

/// The profile of this name, or in this file: the value of `--cluster`.
///
/// # Errors
/// Neither a name nor a file, or a file that is not a profile.
pub fn profile(name: &str) -> Result<Cluster, Failure> {
    profile_of("--cluster", name)
}

/// The same as the value of `--base`.
///
/// # Errors
/// The errors of [`profile`].
pub fn base(name: &str) -> Result<Cluster, Failure> {
    profile_of("--base", name)
}

fn profile_of(option: &str, name: &str) -> Result<Cluster, Failure> {
    let text = match named(name) {
        Some(text) => text.to_string(),
        None if Path::new(name).exists() => read_text(Path::new(name), InputKind::Profile)
            .map_err(|error| Failure::Input(format!("{option} {name} {error}")))?,
        None => {
            let meant = name.to_ascii_lowercase();
            let near: Vec<&str> = names().filter(|known| !meant.is_empty() && known.contains(&meant)).collect();
            let remedy = match near.as_slice() {
                [] => format!("there are {}", names().collect::<Vec<_>>().join(", ")),
                near => format!("did you mean {}?", near.join(", ")),
            };
            return Err(Failure::Input(format!(
                "{option} {name}: there is no such file, and no profile of that name; {remedy}"
            )));
        }
    };
    Cluster::from_toml(&text).map_err(|error| Failure::Input(format!("{option} {name}: {error}")))
}

/// The trainer whose run is meant, or pleach itself where none was asked for.
///
/// # Errors
/// A profile without `[software]`, an unknown name, a file of another kind.
pub fn software(asked: Option<&str>, name: &str, cluster: &Cluster) -> Result<Option<Software>, Failure> {
    let refused = |reason: String| Failure::Input(format!("--software={}: {reason}", asked.unwrap_or_default()));
    let text = match asked {
        None => return Ok(None),
        Some("") => {
            return match &cluster.software {
                Some(software) => Ok(Some(software.clone())),
                None => Err(Failure::Input(format!(
                    "--software: the profile {name} has no [software]; {} are part of the program",
                    Software::names().collect::<Vec<_>>().join(", ")
                ))),
            };
        }
        Some(trainer) => match Software::named(trainer) {
            Some(text) => text.to_string(),
            None if Path::new(trainer).exists() => {
                read_text(Path::new(trainer), InputKind::Profile).map_err(|error| refused(error.to_string()))?
            }
            None => {
                let known = Software::names().collect::<Vec<_>>().join(", ");
                return Err(refused(format!("there is no such file, and no trainer of that name; there are {known}")));
            }
        },
    };
    Software::from_toml(&text).map(Some).map_err(|error| refused(error.to_string()))
}
