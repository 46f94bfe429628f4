//! R4 and R5: bits that flip in a checkpoint, and files that are not its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use checkpoint::{Checkpoint, CheckpointError, Disk, Found, Manifest, committed};
use mesh::Region;
use prove::ProofError;
use train::StopRequest;

use super::kept::{Counts, Kept, row};
use super::reference::run_saved;
use super::{Reference, Shown, TrialFolder, draw};

/// Reads all tensors, as ranks do, and returns the error that they would report.
fn load(path: &Path) -> Result<(), CheckpointError> {
    let checkpoint = Checkpoint::open(path)?;
    checkpoint.manifest().tensors.iter().try_for_each(|(name, tensor)| {
        let whole = Region::whole(&tensor.shape);
        checkpoint.get(name, &whole, &mut vec![0.0; whole.len()])
    })
}

/// The newest checkpoint that loads, and what is wrong with those that are newer.
fn newest_sound(folder: &Path) -> Result<(Option<Found>, Vec<CheckpointError>), CheckpointError> {
    let mut damage = Vec::new();
    for found in committed(folder)? {
        match load(&found.path) {
            Ok(()) => return Ok((Some(found), damage)),
            Err(error) => damage.push(error),
        }
    }
    Ok((None, damage))
}

/// The files of a checkpoint, by name.
fn files(path: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = fs::read_dir(path)?.map(|entry| entry.map(|entry| entry.path())).collect::<Result<Vec<_>, _>>()?;
    files.sort();
    Ok(files)
}

/// Checkpoints of the reference after each step, and the newest of them.
fn saved(folder: &TrialFolder) -> Result<Found, ProofError> {
    run_saved(Arc::new(Disk), folder.path(), |_| StopRequest::None)?;
    let none = CheckpointError::None { folder: folder.path().into() };
    Ok(committed(folder.path())?.into_iter().next().ok_or(none)?)
}

/// Whether a message names the place of byte `at` of `file`: the file, and the tensor or the header.
fn names_place(told: &str, manifest: &Manifest, file: &Path, at: usize) -> bool {
    let name = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let Some(index) = manifest.files.iter().position(|file| file.name == name) else { return told.contains(&name) };
    let pieces = &manifest.pieces_of_files()[index];
    let piece = pieces.iter().rfind(|(_, piece)| piece.offset <= at as u64);
    told.contains(&name)
        && told.contains(&piece.map_or("its header".into(), |(tensor, _)| format!("of tensor {tensor},")))
}

/// Single bits of random files at random places: each is found, named by file and tensor, and the checkpoint before is
/// used.
///
/// # Errors
/// A run that fails undisturbed.
pub fn flipped_bits(reference: &Reference, trials: usize, kept: &Kept) -> Result<Shown, ProofError> {
    let folder = TrialFolder::new("flips").map_err(ProofError::Trial)?;
    let newest = saved(&folder)?;
    let manifest = Checkpoint::open(&newest.path)?.manifest().clone();
    let files = files(&newest.path).map_err(ProofError::Trial)?;
    let said = |error: std::io::Error| error.to_string();
    let row = row(kept, "R4", trials, |number| {
        let [which, place, bit] = draw(4, number);
        let file = &files[which % files.len()];
        let sound = fs::read(file).map_err(said)?;
        let at = place % sound.len();
        let mut flipped = sound.clone();
        flipped[at] ^= 1 << (bit % 8);
        fs::write(file, &flipped).map_err(said)?;
        let (used, damage) = newest_sound(folder.path()).map_err(|error| error.to_string())?;
        let told = damage.first().map_or("nothing".into(), ToString::to_string);
        let is_before = used.is_some_and(|used| used.steps + 1 == reference.steps());
        fs::write(file, &sound).map_err(said)?;
        match is_before && damage.len() == 1 && names_place(&told, &manifest, file, at) {
            true => Ok(Counts::new()),
            false => Err(format!("bit {} of byte {at} of {}: {told}", bit % 8, file.display())),
        }
    });
    Ok(Shown {
        number: "R4",
        fault: "one bit of a random file of the newest checkpoint flips",
        demand: "found, named by file and tensor; the one before is used",
        trials,
        failures: row.failures,
        seen: format!("{} files", files.len()),
    })
}

/// Files that are cut, gone, exchanged for another's, or of another step: each is refused, and the checkpoint before is
/// used.
///
/// # Errors
/// A run that fails undisturbed.
pub fn wrong_files(reference: &Reference) -> Result<Shown, ProofError> {
    let folder = TrialFolder::new("files").map_err(ProofError::Trial)?;
    let newest = saved(&folder)?;
    let before = newest.path.with_file_name(format!("step-{:08}", newest.steps - 1));
    let files = files(&newest.path).map_err(ProofError::Trial)?;
    let (mut failures, mut trials) = (Vec::new(), 0);
    for (index, file) in files.iter().enumerate() {
        let sound = fs::read(file).map_err(ProofError::Trial)?;
        let other = fs::read(&files[(index + 1) % files.len()]).map_err(ProofError::Trial)?;
        let of_another_step = file.file_name().map(|name| before.join(name)).unwrap_or_default();
        let wrongs = [
            ("cut", Some(sound[..sound.len() / 2].to_vec())),
            ("gone", None),
            ("another's", Some(other)),
            ("of another step", Some(fs::read(of_another_step).map_err(ProofError::Trial)?)),
        ];
        // Ranks without parameters of their own have files that are alike.
        for (wrong, bytes) in wrongs.into_iter().filter(|(_, bytes)| bytes.as_ref() != Some(&sound)) {
            match &bytes {
                Some(bytes) => fs::write(file, bytes),
                None => fs::remove_file(file),
            }
            .map_err(ProofError::Trial)?;
            trials += 1;
            let (used, damage) = newest_sound(folder.path())?;
            // Without its manifest a folder is not a checkpoint, and nothing is reported.
            let is_told = damage.iter().all(CheckpointError::is_damage);
            if !(is_told && used.is_some_and(|used| used.steps + 1 == reference.steps())) {
                failures.push(format!("{} is {wrong}: {damage:?}", file.display()));
            }
            fs::write(file, &sound).map_err(ProofError::Trial)?;
        }
    }
    Ok(Shown {
        number: "R5",
        fault: "each file is cut, gone, another's, or of another step",
        demand: "refused with the reason; the one before is used",
        trials,
        failures,
        seen: String::new(),
    })
}
