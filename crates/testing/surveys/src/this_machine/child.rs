//! A layout in a process of its own, so that the peak of its memory is nobody else's.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use super::{LAYOUTS, Measured, run_layout};

/// Runs layout `index` in a child of `program`, which is to print [`answer`].
///
/// # Errors
/// A child that cannot be started or that fails, in words.
pub fn run_in_child(program: &Path, index: usize) -> Result<Measured, String> {
    let output = Command::new(program).args(["accuracy", "--layout", &index.to_string()]).output();
    let output = output.map_err(|error| format!("the program cannot start itself: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    read(&text).filter(|_| output.status.success()).ok_or_else(|| {
        let (name, message) = (LAYOUTS[index].0, String::from_utf8_lossy(&output.stderr));
        format!("{name}: the process that runs it failed: {}", message.trim())
    })
}

/// The output of a child for the layout of number `index`.
///
/// # Errors
/// No such layout, or one that cannot be run.
pub fn answer(index: usize) -> Result<String, String> {
    let layout = LAYOUTS.get(index);
    let layout = layout.ok_or_else(|| format!("--layout must be less than {}; got {index}", LAYOUTS.len()))?;
    let Measured { step_s, written_bytes, before_bytes, peak_bytes } = run_layout(*layout)?;
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
