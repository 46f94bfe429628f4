//! A finished run whose folder another run takes: it keeps everything, under a name with the time of its end.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::failure::Failure;
use crate::places::names::{METRICS, WEIGHTS};

/// The treatment of a finished run in the folder of a new one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Earlier {
    /// It is renamed.
    #[default]
    Kept,
    Replaced,
}

/// Renames `folder` and returns its new name: `runs/latest-20261125-031055`, in UTC.
///
/// # Errors
/// A folder that cannot be renamed.
pub fn keep(folder: &Path) -> Result<PathBuf, Failure> {
    let to = free_name(folder, &stamp(seconds_of_end(folder)));
    let renamed = fs::rename(folder, &to);
    renamed.map(|()| to.clone()).map_err(|error| {
        let (folder, to) = (folder.display(), to.display());
        Failure::Input(format!(
            "{folder} holds a finished run and cannot be renamed to {to}: {error}; use --overwrite to replace the run, or another \
             folder: --set run.folder=..."
        ))
    })
}

/// When the run ended, in seconds since 1970: when its weights or, without them, its last step were written.
fn seconds_of_end(folder: &Path) -> u64 {
    let changed = |name: &str| fs::metadata(folder.join(name)).and_then(|metadata| metadata.modified()).ok();
    let end = changed(WEIGHTS).or_else(|| changed(METRICS)).unwrap_or_else(SystemTime::now);
    end.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// `folder-STAMP`, or followed by a number where that is taken.
fn free_name(folder: &Path, stamp: &str) -> PathBuf {
    let mut name = folder.as_os_str().to_os_string();
    name.push(format!("-{stamp}"));
    let first = PathBuf::from(&name);
    let numbered = (2u32..).map(|number| {
        let mut name = name.clone();
        name.push(format!("-{number}"));
        PathBuf::from(name)
    });
    std::iter::once(first.clone()).chain(numbered).find(|path| fs::symlink_metadata(path).is_err()).unwrap_or(first)
}

/// `20261125-031055` of seconds since 1970, in UTC.
fn stamp(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}{month:02}{day:02}-{hour:02}{minute:02}{second:02}")
}

/// Year, month and day of a number of days since 1970-01-01, in the Gregorian calendar.
fn date(days: u64) -> (u64, u64, u64) {
    let is_leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let (mut year, mut left) = (1970, days);
    while left >= 365 + u64::from(is_leap(year)) {
        left -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if left < length {
            break;
        }
        left -= length;
        month += 1;
    }
    (year, month, left + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_are_dates_of_the_calendar() {
        let cases = [
            (0, "19700101-000000"),
            (951_782_400, "20000229-000000"),
            (951_868_800, "20000301-000000"),
            (1_735_689_599, "20241231-235959"),
            (1_795_576_255, "20261125-031055"),
        ];
        for (seconds, text) in cases {
            assert_eq!(stamp(seconds), text);
        }
    }

    #[test]
    fn a_name_that_is_taken_has_a_number() {
        let folder = std::env::temp_dir().join(format!("pleach-kept-{}", std::process::id()));
        let run = folder.join("latest");
        fs::create_dir_all(folder.join("latest-1")).expect("a folder");
        assert_eq!(free_name(&run, "2"), folder.join("latest-2"));
        assert_eq!(free_name(&run, "1"), folder.join("latest-1-2"));
        fs::remove_dir_all(&folder).expect("removed");
    }
}
