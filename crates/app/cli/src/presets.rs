//! `pleach presets`: the run files that are part of the program.

use std::fmt::Write as _;

use config::figures::{bytes, grouped};
use config::{RunConfig, unique_parameters};
use run::failure::Failure;
use run::presets::{PRESETS, Published, all_published};

use crate::screen::narrow::wrapped;
use crate::screen::output::print;
use crate::screen::terminal;

/// Prints what there is.
///
/// # Errors
/// Output that cannot be written, or a preset that is not a legal run.
pub fn presets() -> Result<(), Failure> {
    let mut text = format!("{:<19} {:>15}  {:<26} {:>5}  memory\n", "name", "parameters", "layout", "ranks");
    for preset in PRESETS {
        let config = RunConfig::load(preset.name, preset.text, &[]).map_err(Failure::Run)?;
        let parallelism = &config.parallelism;
        let layout = parallelism.degrees.to_string();
        let memory =
            config.run.rank_memory_bytes.map_or("this machine's".into(), |there| format!("{} each", bytes(there)));
        let parameters = grouped(unique_parameters(&config.model));
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{:<19} {parameters:>15}  {layout:<26} {:>5}  {memory}", preset.name, config.run.ranks);
    }
    text += "\nseconds of a step\n";
    for (preset, Published { step_s, origin, software, .. }) in all_published() {
        let _ = writeln!(text, "{:<13} {step_s:>6} with {software}: {origin}", preset.name);
    }
    print(&wrapped(&text, terminal::columns()))
}
