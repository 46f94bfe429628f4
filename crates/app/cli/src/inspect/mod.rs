//! `pleach inspect`: what a checkpoint holds, whether it is sound, and how it differs from another.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use checkpoint::{Checkpoint, CheckpointError, Hash, PieceRecord};
use config::figures::{bytes, counted, grouped};
use config::shown_run_file;
use mesh::Region;
use run::failure::Failure;
use run::places::checkpoint_path::checkpoint_path;
use run::signals::interrupt;

use crate::arguments::InspectArguments;
use crate::screen::aligned::aligned;
use crate::screen::narrow::wrapped;
use crate::screen::output::print;
use crate::screen::terminal;

/// Prints what the arguments ask for.
///
/// # Errors
/// Folders without a checkpoint, a checkpoint that is damaged, output that cannot be written.
pub fn inspect(arguments: &InspectArguments) -> Result<(), Failure> {
    interrupt::ends_at_once()?;
    let checkpoint = Checkpoint::open(&checkpoint_path(&arguments.checkpoint)?)?;
    if let Some(other) = &arguments.diff {
        let other = Checkpoint::open(&checkpoint_path(other)?)?;
        return print(&difference(&checkpoint, &other)?);
    }
    if !arguments.verify {
        let summary = summary(&checkpoint);
        let rest = if arguments.all { contents(&checkpoint) } else { tables(&checkpoint) };
        return print(&wrapped(&(summary + &rest), terminal::columns()));
    }
    let damage = checkpoint.verify();
    if damage.is_empty() {
        let (path, all) = (checkpoint.path().display(), bytes(checkpoint.bytes_read()));
        return print(&format!("{path} is sound: all {all} are those that were written\n"));
    }
    Err(Failure::Work(damage.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")))
}

/// Where the run stood, and how much there is.
fn summary(checkpoint: &Checkpoint) -> String {
    let (manifest, state) = (checkpoint.manifest(), checkpoint.state());
    let pieces: usize = manifest.tensors.values().map(|tensor| tensor.pieces.len()).sum();
    format!(
        "{}\nstate   after step {}, {}, {} skipped{}{}{}\nformat  {}, written by pleach {}\ndata    {} in {}, {}, {}\n",
        checkpoint.path().display(),
        state.steps,
        counted(state.sequences, "sequence"),
        counted(state.skipped_steps.into(), "step"),
        state.loss_scale.map_or(String::new(), |scale| format!(", loss scale {:.0}", scale.factor)),
        state.held_out_loss.map_or(String::new(), |loss| format!(", held-out loss {loss:.4}")),
        state.data_xxh3.map_or(String::new(), |hash| format!("\ntext    XXH3 {hash}")),
        manifest.format,
        manifest.build,
        bytes(manifest.data_bytes()),
        counted(manifest.files.len() as u64, "file"),
        counted(manifest.tensors.len() as u64, "tensor"),
        counted(pieces as u64, "piece"),
    )
}

/// The tensors by what they are for and where they belong, a line each.
fn tables(checkpoint: &Checkpoint) -> String {
    let mut groups: BTreeMap<(&str, &str), (u64, u64)> = BTreeMap::new();
    for (name, tensor) in &checkpoint.manifest().tensors {
        let moment = ["first_moment", "second_moment", "average"]
            .into_iter()
            .find(|moment| name.starts_with(&format!("{moment}.")));
        let own = moment.map_or(name.as_str(), |moment| &name[moment.len() + 1..]);
        let unit = own.split('.').next().unwrap_or(own);
        let (tensors, size) = groups.entry((moment.unwrap_or("weights"), unit)).or_default();
        *tensors += 1;
        *size += tensor.pieces.iter().map(PieceRecord::len_bytes).sum::<u64>();
    }
    let header = ["kind", "of", "tensors", "bytes"].map(String::from).to_vec();
    let row = |((kind, unit), (tensors, size)): (&(&str, &str), &(u64, u64))| {
        vec![kind.to_string(), unit.to_string(), grouped(*tensors), bytes(*size)]
    };
    let rows: Vec<Vec<String>> = std::iter::once(header).chain(groups.iter().map(row)).collect();
    format!(
        "\n{}\n--all lists files, tensors with their pieces, and the run file; --verify reads every byte\n",
        aligned(&rows)
    )
}

/// Files, tensors with their pieces, and the run file.
fn contents(checkpoint: &Checkpoint) -> String {
    let (manifest, state) = (checkpoint.manifest(), checkpoint.state());
    let mut text = String::new();
    // Writing to a string does not fail.
    for file in &manifest.files {
        let _ = writeln!(text, "file    {}  {} bytes, header {}", file.name, grouped(file.bytes), file.header_xxh3);
    }
    for (name, tensor) in &manifest.tensors {
        let _ = writeln!(text, "\n{name}  {} {:?}", tensor.dtype, tensor.shape);
        for piece in &tensor.pieces {
            let file = &manifest.files[piece.file].name;
            let (size, hashes) = (grouped(piece.len_bytes()), hashes(&piece.xxh3));
            let _ =
                writeln!(text, "  {}  {size} bytes at {} of {file}, {hashes}", ranges(&piece.region()), piece.offset);
        }
    }
    let _ = write!(text, "\n{}", shown_run_file(state.run.text()));
    text
}

/// Hashes of blocks, of many the first and the number.
fn hashes(hashes: &[Hash]) -> String {
    match hashes {
        [] => "empty".into(),
        [one] => one.to_string(),
        [first, more @ ..] => format!("{first} and {}", counted(more.len() as u64, "more block")),
    }
}

/// `[0:4, 6:12]`
fn ranges(region: &Region) -> String {
    let ranges: Vec<String> = (0..region.ndim())
        .map(|dim| {
            let indices = region.indices(dim);
            format!("{}:{}", indices.start, indices.end)
        })
        .collect();
    format!("[{}]", ranges.join(", "))
}

/// Elements that are compared at once.
const CHUNK_LEN: usize = 4 << 20;

/// Differences of two checkpoints; layouts do not count.
fn difference(first: &Checkpoint, second: &Checkpoint) -> Result<String, CheckpointError> {
    let mut lines = Vec::new();
    let steps = [first, second].map(|checkpoint| checkpoint.state().steps);
    if steps[0] != steps[1] {
        lines.push(format!("after step {} and after step {}", steps[0], steps[1]));
    }
    let [tensors, others] = [first, second].map(|checkpoint| &checkpoint.manifest().tensors);
    let mut same = 0;
    for (name, tensor) in tensors {
        match second.shape(name) {
            None => lines.push(format!("{name}  only in {}", first.path().display())),
            Some(other) if other != tensor.shape => lines.push(format!("{name}  {:?} and {other:?}", tensor.shape)),
            Some(shape) => match compare(name, shape, [first, second])? {
                None => same += 1,
                Some(told) => lines.push(format!("{name}  {told}")),
            },
        }
    }
    let only = others.keys().filter(|name| !tensors.contains_key(*name));
    lines.extend(only.map(|name| format!("{name}  only in {}", second.path().display())));
    lines.push(format!("{} with the same bits", counted(same, "tensor")));
    Ok(lines.join("\n") + "\n")
}

/// How the values of a tensor differ; `None` if they have the same bits.
fn compare(name: &str, shape: &[usize], checkpoints: [&Checkpoint; 2]) -> Result<Option<String>, CheckpointError> {
    let (mut differing, mut largest, mut first_place) = (0u64, 0f64, None);
    let mut place = 0;
    for slab in Region::whole(shape).slabs(CHUNK_LEN) {
        let mut values = [vec![0f32; slab.len()], vec![0f32; slab.len()]];
        for (checkpoint, values) in checkpoints.iter().zip(&mut values) {
            checkpoint.get(name, &slab, values)?;
        }
        for (index, (a, b)) in values[0].iter().zip(&values[1]).enumerate() {
            if a.to_bits() != b.to_bits() {
                differing += 1;
                first_place = first_place.or(Some(place + index));
                largest = largest.max((f64::from(*a) - f64::from(*b)).abs());
            }
        }
        place += slab.len();
    }
    Ok(first_place.map(|first| {
        let len: usize = shape.iter().product();
        format!(
            "{} of {} differ, the first at {first}, by at most {largest:.3e}",
            grouped(differing),
            counted(len as u64, "element")
        )
    }))
}
