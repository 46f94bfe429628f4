//! `pleach cluster`: profiles that are made, not looked up.

pub mod gpus;
pub mod profile;
pub mod validate;

use std::path::{Path, PathBuf};

use cluster::{Cluster, Constant};
use config::Products;
use config::figures::counted;
use plan::machine::{self, measure, measure_gpus};
use plan::{Fitted, Open, PreparedRun, Report, fit};
use run::failure::Failure;
use run::gpus::devices::all_gpus;
use run::gpus::peak::profile_of;
use run::memory::machine::memory_limit;
use run::places::output_file::OutputFile;

use crate::arguments::cluster::{ClusterCommand, FitArguments, MeasureArguments, MeasuredDevice, MeasuredProducts};
use crate::cluster::profile::software;
use crate::cluster::validate::Runs;
use crate::screen::output::print;

/// Runs one of the commands.
///
/// # Errors
/// See the commands.
pub fn run(command: &ClusterCommand) -> Result<(), Failure> {
    match command {
        ClusterCommand::Fit(arguments) => fit_to_runs(arguments),
        ClusterCommand::Measure(arguments) => measure_machine(arguments),
    }
}

/// Measures, writes the profile and says what it says.
fn measure_machine(arguments: &MeasureArguments) -> Result<(), Failure> {
    let base: Vec<PathBuf> = arguments.base.iter().map(PathBuf::from).collect();
    let out = OutputFile::promised("--out", &arguments.out, &base)?;
    let measured = match arguments.device {
        MeasuredDevice::Cpu => measured_cores(arguments)?,
        MeasuredDevice::Cuda => measured_gpus(arguments)?,
    };
    out.write(measured.to_toml())?;
    let Cluster { about, accelerator, compute, node, .. } = &measured;
    let tflops = match arguments.device {
        MeasuredDevice::Cpu => accelerator.single_tflops,
        MeasuredDevice::Cuda => accelerator.half_tflops,
    };
    print(&format!(
        "{about}\n\
         peak        {:.1} GFLOP/s each, of which products reach {:.0} %, attention {:.0} % and backward {:.0} %\n\
         memory      {:.1} GB/s, of which operations between products reach {:.0} %\n\
         launch      {:.2} us, submitted in {:.2} us\n\
         reductions  {:.1} us, {:.1} GB/s\n\
         written to {}\n",
        1e3 * tflops,
        100.0 * compute.matrix_efficiency,
        100.0 * compute.attention_efficiency,
        100.0 * compute.attention_backward_efficiency,
        accelerator.memory_gb_per_s,
        100.0 * compute.memory_efficiency,
        compute.kernel_gap_us,
        compute.issue_us,
        node.link.start_us,
        node.link.gb_per_s * node.link.efficiency,
        out.path().display()
    ))
}

/// The profile of the cores of this machine.
fn measured_cores(arguments: &MeasureArguments) -> Result<Cluster, Failure> {
    if let Some(base) = &arguments.base {
        return Err(Failure::Input(format!(
            "--base {base} has no effect on cores, whose rates are all measured; leave it out, or add --device cuda"
        )));
    }
    if arguments.products == MeasuredProducts::Device {
        let remedy = "leave it out, or add --device cuda";
        return Err(Failure::Input(format!("--products device has no effect on cores; {remedy}")));
    }
    let mut measured = measure().map_err(|error| Failure::Work(error.to_string()))?;
    if let Some(limit) = memory_limit() {
        measured.accelerator.memory_gb = limit.bytes as f64 / measured.node.accelerators as f64 * 1e-9;
    }
    Ok(measured)
}

/// The profile of its GPUs.
fn measured_gpus(arguments: &MeasureArguments) -> Result<Cluster, Failure> {
    let (products, of_run) = match arguments.products {
        MeasuredProducts::Blocks => (machine::MeasuredProducts::Kernels, None),
        MeasuredProducts::Device => (machine::MeasuredProducts::Library, Some(Products::Device)),
    };
    let gpus = all_gpus(of_run)?;
    let gpu = &gpus.facts()[0];
    let mut base = match &arguments.base {
        Some(name) => profile::base(name)?,
        None => profile_of(gpu).ok_or_else(|| {
            Failure::Input(format!(
                "no built-in profile has the data sheet of {}; name a profile with its rates: --base NAME|FILE.toml",
                gpu.name
            ))
        })?,
    };
    // Prices count waves of tiles, also those by which the measured times become constants.
    base.accelerator.multiprocessors = gpu.multiprocessors;
    measure_gpus(&gpus, &base, products).map_err(|error| Failure::Work(error.to_string()))
}

/// Fits constants and writes the profile.
fn fit_to_runs(arguments: &FitArguments) -> Result<(), Failure> {
    let trainer = arguments.software.iter().map(PathBuf::from);
    let inputs: Vec<PathBuf> =
        [arguments.table.clone(), arguments.base.clone().into()].into_iter().chain(trainer).collect();
    let out = OutputFile::promised("--out", &arguments.out, &inputs)?;
    let base = profile::base(&arguments.base)?;
    let software = software(arguments.software.as_deref(), &arguments.base, &base)?;
    let runs = Runs::prepared(&arguments.table, &arguments.rows, software.as_ref())?;
    let left_out = runs.left_out_line()
        + &runs.unread_line()
        + &runs.better_trainers_line(&base, software.as_ref(), arguments.software.as_deref())?;
    let runs = runs.predicted;
    let constants = chosen(&arguments.constants)?;
    let refused = |error: train::SetupError| Failure::Work(error.to_string());
    let mean = |cluster: &Cluster| -> Result<f64, Failure> {
        Ok(Report::new(&PreparedRun::all_on(&runs, cluster).map_err(refused)?).errors.mean)
    };
    let Fitted { cluster: mut fitted, open } = fit(&base, &constants, &runs).map_err(refused)?;
    let (before, after) = (mean(&base)?, mean(&fitted)?);
    let mut text = String::new();
    let mut start = base.clone();
    for constant in &constants {
        let (from, to) = (*constant.of(&mut start), *constant.of(&mut fitted));
        let (low, high) = constant.range();
        let notes = match open.iter().find(|(of, _)| of == constant).map(|(_, open)| open) {
            Some(open @ Open::Unseen) => format!("; {open}"),
            Some(open @ Open::Mixed) => format!("; {open}: give more rows, or fewer --constants"),
            None => constant
                .end(to)
                .map_or(String::new(), |end| format!("; at the {end} of its range: another cause may be missing")),
        };
        text += &format!("{:<28} {from:>8.3} -> {to:>8.3}   of {low} to {high}{notes}\n", constant.key());
    }
    let which = arguments.rows.rows.as_deref().map(|rows| format!(", rows {rows}")).unwrap_or_default();
    let trainer = software.as_ref().map_or("pleach", |software| &software.name);
    let source =
        format!("fitted to {}{which} from {}, for the trainer {trainer}", arguments.table.display(), arguments.base);
    for section in ["compute", "node", "network"] {
        let touched = constants.iter().any(|constant| constant.key().starts_with(section));
        if touched {
            fitted.sources.entry(section.into()).and_modify(|notes| *notes = format!("{notes}; {source}"));
        }
    }
    record(&mut fitted, &arguments.table, &constants);
    out.write(fitted.to_toml())?;
    print(&format!(
        "{text}{left_out}mean error of {}: {:.1} % -> {:.1} %; written to {}\n",
        counted(runs.len() as u64, "row"),
        100.0 * before,
        100.0 * after,
        out.path().display()
    ))
}

/// Notes in a profile that `constants` were fitted to `table`, whatever they were fitted to before.
fn record(fitted: &mut Cluster, table: &Path, constants: &[Constant]) {
    fitted.fitted.values_mut().for_each(|earlier| earlier.retain(|constant| !constants.contains(constant)));
    fitted.fitted.retain(|_, earlier| !earlier.is_empty());
    let table = table.file_name().unwrap_or_default().to_string_lossy();
    fitted.fitted.entry(table.into_owned()).or_default().extend(constants);
}

/// The constants of these keys; all of them without any.
fn chosen(keys: &[String]) -> Result<Vec<Constant>, Failure> {
    if keys.is_empty() {
        return Ok(Constant::ALL.to_vec());
    }
    let known = || Constant::ALL.map(Constant::key).join(", ");
    keys.iter()
        .map(|key| {
            let found = Constant::ALL.into_iter().find(|constant| constant.key() == key);
            found.ok_or_else(|| Failure::Input(format!("--constants {key} is not a constant; use one of {}", known())))
        })
        .collect()
}
