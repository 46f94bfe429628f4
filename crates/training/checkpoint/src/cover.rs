//! Which saved boxes a wanted box is put together from. Pure: no layout is known here, only boxes.

use mesh::{CopyRun, Region, copy_runs};

/// The part of a wanted box that one saved box has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// Index of the saved box.
    pub piece: usize,
    /// Ranges to copy, from the storage of the saved box to that of the wanted one, in ascending order of both.
    pub runs: Vec<CopyRun>,
}

/// Why saved boxes do not make a wanted one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Uncovered {
    /// Some of it was not saved.
    #[error("{missing} of the {len} elements of the box {wanted:?} were not saved")]
    Gap {
        /// The wanted box.
        wanted: Region,
        /// Elements that no saved box has.
        missing: usize,
        /// Elements of the wanted box.
        len: usize,
    },
    /// Some of it was saved twice, so that it is not known what holds.
    #[error("boxes {first} and {second} both hold a part of the box {wanted:?}")]
    Overlap {
        /// The wanted box.
        wanted: Region,
        /// Index of a saved box.
        first: usize,
        /// Index of another.
        second: usize,
    },
}

/// The shares of `saved` that together are `wanted`, each element once.
///
/// # Errors
/// Elements of `wanted` that no saved box has, or that two have.
///
/// # Panics
/// When boxes have different numbers of dims.
pub fn cover(saved: &[Region], wanted: &Region) -> Result<Vec<Share>, Uncovered> {
    let mut common: Vec<(usize, Region)> = Vec::new();
    for (piece, region) in saved.iter().enumerate() {
        // A box without elements starts nowhere.
        let Some(part) = region.intersect(wanted).filter(|part| !part.is_empty()) else { continue };
        if let Some((first, _)) = common.iter().find(|(_, other)| other.intersect(&part).is_some()) {
            return Err(Uncovered::Overlap { wanted: wanted.clone(), first: *first, second: piece });
        }
        common.push((piece, part));
    }
    let (len, covered) = (wanted.len(), common.iter().map(|(_, part)| part.len()).sum::<usize>());
    if covered != len {
        return Err(Uncovered::Gap { wanted: wanted.clone(), missing: len - covered, len });
    }
    Ok(common.into_iter().map(|(piece, _)| Share { piece, runs: copy_runs(&saved[piece], wanted) }).collect())
}
