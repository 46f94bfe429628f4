//! A layout in a process of its own, so that the peak of its memory is nobody else's.

use std::collections::BTreeMap;
use std::process::Command;

use crate::machine::layouts::{LAYOUTS, Measured, run_layout};

/// The option of a program that answers with [`answer`]; the number of one of [`LAYOUTS`] follows it.
pub const OPTION: &str = "--layout";

/// Why a child did not measure its layout.
#[derive(Debug, thiserror::Error)]
pub enum ChildError {
    /// It could not be started.
    #[error("the program cannot start itself: {0}")]
    Start(#[from] std::io::Error),
    #[error("{name}: the process that runs it failed: {message}")]
    Failed {
        /// The layout.
        name: &'static str,
        /// Its last words.
        message: String,
    },
}

/// Runs layout `index` in a child of `program`.
///
/// # Errors
/// See [`ChildError`].
pub fn run_in_child(program: &mut Command, index: usize) -> Result<Measured, ChildError> {
    let (name, _) = LAYOUTS[index];
    let output = program.args([OPTION, &index.to_string()]).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    read(&text).filter(|_| output.status.success()).ok_or_else(|| {
        let message = String::from_utf8_lossy(&output.stderr).trim().to_string();
        ChildError::Failed { name, message }
    })
}

/// The output of a child for the layout of number `index`.
///
/// # Errors
/// No such layout, or one that cannot be run.
pub fn answer(index: &str) -> Result<String, String> {
    let layout = index.parse().ok().and_then(|index: usize| LAYOUTS.get(index));
    let layout = layout.ok_or_else(|| format!("{OPTION} must be less than {}; got {index}", LAYOUTS.len()))?;
    let Measured { step_s, written_bytes, before_bytes, peak_bytes } =
        run_layout(*layout).map_err(|error| error.to_string())?;
    let mut text = format!("step_s {step_s}\nwritten");
    written_bytes.iter().for_each(|bytes| text += &format!(" {bytes}"));
    for (key, bytes) in [("before", before_bytes), ("peak", peak_bytes)] {
        text += &bytes.map_or(String::new(), |bytes| format!("\n{key} {bytes}"));
    }
    Ok(text + "\n")
}

fn read(text: &str) -> Option<Measured> {
    let lines: BTreeMap<&str, &str> = text.lines().filter_map(|line| line.split_once(' ')).collect();
    let bytes = |key| lines.get(key).and_then(|bytes| bytes.parse().ok());
    Some(Measured {
        step_s: lines.get("step_s")?.parse().ok()?,
        written_bytes: lines.get("written")?.split(' ').map(str::parse).collect::<Result<_, _>>().ok()?,
        before_bytes: bytes("before"),
        peak_bytes: bytes("peak"),
    })
}
