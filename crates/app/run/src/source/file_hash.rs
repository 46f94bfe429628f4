//! Hashes of files that all processes of a command must have alike.

use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use files::InputKind;
use rendezvous::{hash_bytes, hash_file};

use crate::failure::Failure;

/// Parts of a large file that are compared, and their bytes.
const SAMPLES: u64 = 256;
const SAMPLE_BYTES: u64 = 16 << 10;

/// XXH3 of the file `path`.
///
/// # Errors
/// A file that cannot be read.
pub fn file_hash(path: &Path) -> Result<u64, Failure> {
    hash_file(path).map_err(|error| unreadable(path, &error))
}

/// XXH3 of the size of the file `path` and of 256 parts of it, the first and the last among them: of all of it, up to 4
/// MiB. Weights of another run or another step differ in every part.
///
/// # Errors
/// A file that cannot be read.
pub fn sampled_hash(path: &Path) -> Result<u64, Failure> {
    sampled(path).map_err(|error| unreadable(path, &error))
}

fn sampled(path: &Path) -> std::io::Result<u64> {
    let mut file = files::open(path, InputKind::Data)?;
    let size = file.metadata()?.len();
    let mut seen = size.to_le_bytes().to_vec();
    for offset in offsets(size) {
        file.seek(SeekFrom::Start(offset))?;
        (&mut file).take(SAMPLE_BYTES).read_to_end(&mut seen)?;
    }
    Ok(hash_bytes(&seen))
}

/// Where the parts of a file of `size` bytes begin.
fn offsets(size: u64) -> impl Iterator<Item = u64> {
    let parts = size.div_ceil(SAMPLE_BYTES).clamp(1, SAMPLES);
    let last = size.saturating_sub(SAMPLE_BYTES);
    (0..parts).map(move |part| (last as u128 * u128::from(part) / u128::from((parts - 1).max(1))) as u64)
}

fn unreadable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::Input(format!("{} cannot be read: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_small_files_and_reach_both_ends_of_large_ones() {
        for size in [0, 1, SAMPLE_BYTES, SAMPLE_BYTES + 1, SAMPLES * SAMPLE_BYTES] {
            let mut covered = 0;
            for offset in offsets(size) {
                assert!(offset <= covered, "{size}: bytes from {covered} to {offset} are left out");
                covered = offset + SAMPLE_BYTES;
            }
            assert!(covered >= size, "{size}");
        }
        let large: Vec<u64> = offsets(1 << 40).collect();
        assert_eq!((large.len() as u64, large[0]), (SAMPLES, 0));
        assert_eq!(large.last(), Some(&((1 << 40) - SAMPLE_BYTES)));
    }
}
