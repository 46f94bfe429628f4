//! The files of a source: one, those of a folder, or those of a pattern.

use std::fs;
use std::path::{Component, Path, PathBuf};

use crate::error::DataError;

/// Endings of the files that are read from a folder; one that is named itself may end as it likes.
const ENDINGS: &[&str] = &[
    "txt", "text", "md", "rst", "tex", "org", "adoc", "jsonl", "ndjson", "rs", "py", "c", "h", "cc", "cpp", "hpp",
    "cu", "cuh", "go", "java", "kt", "swift", "js", "ts", "rb", "sh", "pl", "lua", "hs", "ml", "scala", "jl", "r",
    "sql", "html", "css", "toml", "yaml", "yml", "xml", "parquet", "arrow", "arrows", "feather",
];
/// Endings of tables.
const TABLES: &[&str] = &["parquet", "arrow", "arrows", "feather"];
/// Endings of compressed files, in front of which is the ending of what they hold, or none.
const COMPRESSED: &[&str] = &["gz", "zst"];

/// The files that `path` stands for, sorted: the files of a folder and of the folders below it that have a known
/// ending, without hidden ones and links; the files that a pattern with `*`, `**` or `?` matches; or the file itself.
///
/// # Errors
/// A folder that cannot be read, a pattern that nothing matches.
pub(crate) fn files_at(path: &Path) -> Result<Vec<PathBuf>, DataError> {
    if path.is_dir() {
        return files_below(path);
    }
    if is_pattern(path) && fs::symlink_metadata(path).is_err() {
        return matching(path);
    }
    Ok(vec![path.to_path_buf()])
}

/// Whether a file's name is that of a table, whose content is never text.
pub(crate) fn has_name_of_table(file: &Path) -> bool {
    let ending = file.extension().map(|ending| ending.to_string_lossy().to_lowercase()).unwrap_or_default();
    TABLES.contains(&ending.as_str())
}

/// The ending of a file's name without that of a compression.
pub(crate) fn inner_ending(file: &Path) -> Option<String> {
    let ending = |path: &Path| path.extension().map(|ending| ending.to_string_lossy().to_lowercase());
    let own = ending(file)?;
    if COMPRESSED.contains(&own.as_str()) { ending(&file.with_extension("")) } else { Some(own) }
}

fn is_known(file: &Path) -> bool {
    let own = file.extension().map(|ending| ending.to_string_lossy().to_lowercase()).unwrap_or_default();
    match inner_ending(file) {
        Some(ending) => ENDINGS.contains(&ending.as_str()),
        None => COMPRESSED.contains(&own.as_str()),
    }
}

/// Whether a file of this name, in a folder of data or in one below it, is read.
pub fn is_text_of_folder(name: &str) -> bool {
    !name.split('/').any(is_hidden) && is_known(Path::new(name))
}

/// Whether the file `name`, with its folders, is what `pattern` says.
pub fn selects(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<&str>, Vec<&str>) = (pattern.split('/').collect(), name.split('/').collect());
    selects_parts(&pattern, &name)
}

fn selects_parts(pattern: &[&str], name: &[&str]) -> bool {
    let (Some((wanted, patterns)), Some((own, rest))) = (pattern.split_first(), name.split_first()) else {
        return pattern.is_empty() && name.is_empty();
    };
    if *wanted == "**" {
        // The last part is the file.
        let goes_on = !rest.is_empty() && !is_hidden(own) && selects_parts(pattern, rest);
        return goes_on || selects_parts(patterns, name);
    }
    matches(wanted, own) && is_hidden(wanted) == is_hidden(own) && selects_parts(patterns, rest)
}

fn unreadable(path: &Path) -> impl Fn(std::io::Error) -> DataError {
    move |reason| DataError::Unreadable { path: path.to_path_buf(), reason }
}

/// Whether the name is hidden.
fn is_hidden(name: &str) -> bool {
    name.starts_with('.')
}

fn files_below(folder: &Path) -> Result<Vec<PathBuf>, DataError> {
    let mut folders = vec![folder.to_path_buf()];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).map_err(unreadable(&folder))? {
            let entry = entry.map_err(unreadable(&folder))?;
            if is_hidden(&entry.file_name().to_string_lossy()) {
                continue;
            }
            // Links are not followed: a link to a folder above would never end.
            let kind = entry.file_type().map_err(unreadable(&folder))?;
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file() && is_known(&entry.path()) {
                files.push(entry.path());
            }
        }
    }
    files.sort();
    Ok(files)
}

fn is_pattern(path: &Path) -> bool {
    path.to_string_lossy().contains(['*', '?'])
}

/// The files that match `pattern`, sorted. A link that it names is followed to a file; folders that are links are
/// entered only where the pattern spells them out.
fn matching(pattern: &Path) -> Result<Vec<PathBuf>, DataError> {
    let parts: Vec<Component> = pattern.components().collect();
    let literal = parts.iter().take_while(|part| !is_pattern(part.as_os_str().as_ref())).count();
    let start: PathBuf = parts[..literal].iter().collect();
    let names: Vec<String> =
        parts[literal..].iter().map(|part| part.as_os_str().to_string_lossy().into_owned()).collect();
    // Places that match the pattern's beginning, each with the parts that are left.
    let mut places = vec![(start, names.as_slice())];
    let mut files = Vec::new();
    while let Some((place, names)) = places.pop() {
        let Some((name, rest)) = names.split_first() else {
            if fs::metadata(&place).is_ok_and(|found| found.is_file()) {
                files.push(place);
            }
            continue;
        };
        if name == "**" {
            places.push((place.clone(), rest));
        }
        let folder = if place.as_os_str().is_empty() { Path::new(".") } else { &place };
        if !fs::metadata(folder).is_ok_and(|found| found.is_dir()) {
            continue;
        }
        for entry in fs::read_dir(folder).map_err(unreadable(folder))? {
            let entry = entry.map_err(unreadable(folder))?;
            let own = entry.file_name().to_string_lossy().into_owned();
            let is_folder = entry.file_type().map_err(unreadable(folder))?.is_dir();
            if name == "**" {
                if is_folder && !is_hidden(&own) {
                    places.push((place.join(entry.file_name()), names));
                }
            } else if matches(name, &own) && is_hidden(name) == is_hidden(&own) {
                places.push((place.join(entry.file_name()), rest));
            }
        }
    }
    files.sort();
    files.dedup();
    if files.is_empty() { Err(DataError::NoMatch(pattern.to_path_buf())) } else { Ok(files) }
}

/// Whether `name` is what `pattern` says: `*` stands for any characters, `?` for one.
fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    let (mut p, mut n) = (0, 0);
    // Where the last star is, and the first character that it does not stand for.
    let mut star = None;
    while n < name.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(wanted) if *wanted == '?' || *wanted == name[n] => (p, n) = (p + 1, n + 1),
            Some(_) | None => match star {
                Some((at, after)) => {
                    star = Some((at, after + 1));
                    (p, n) = (at + 1, after + 1);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|left| *left == '*')
}

/// Whether a path names a token file.
pub(crate) fn is_token_file(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "tokens")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_any_characters() {
        for (pattern, name) in [("*", "a"), ("a*c", "abbc"), ("*.txt", "a.txt"), ("a?c", "abc"), ("*a*b*", "xaxbx")] {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [("a*c", "abb"), ("*.txt", "a.txt.gz"), ("a?c", "ac"), ("", "a"), ("**a", "b")] {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [("**/*.txt", "a.txt"), ("**/*.txt", "b/c/a.txt"), ("a*/?.txt", "ab/c.txt")] {
            assert!(selects(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [("*.txt", "b/a.txt"), ("**/*.txt", ".b/a.txt"), ("*", ".a"), ("**", "a"), ("a/*", "a")]
        {
            assert!(!selects(pattern, name), "{pattern} {name}");
        }
        let many = "a".repeat(100);
        assert!(!matches(&"*a".repeat(50), &format!("{many}b")), "in time that is a product of the two lengths");
    }
}
