//! Places that texts name: files, items of files and keys of run files.

use crate::repository::Repository;

/// The page that lists all keys of run files, by section.
pub const KEYS: &str = "docs/run-file.md";

/// Whether `place` is a path, an item of a file (`path::item`) or a key of a run file (`section.key`).
pub fn exists(repository: &Repository, place: &str) -> bool {
    if let Some((path, item)) = place.split_once("::") {
        let text = repository.file(path).and_then(|file| file.text.as_deref());
        return text.is_some_and(|text| defines(text, item));
    }
    let is_key = place.split_once('.').is_some_and(|(section, key)| has_key(repository, section, key));
    let folder = format!("{}/", place.trim_end_matches('/'));
    is_key || repository.files.iter().any(|file| file.path == place || file.path.starts_with(&folder))
}

/// Whether a line of Rust defines `item`: a type, a trait, a function, a variant or a field.
fn defines(text: &str, item: &str) -> bool {
    const KEYWORDS: &[&str] =
        &["pub", "pub(crate)", "pub(super)", "const", "static", "struct", "enum", "trait", "fn", "type", "mod"];
    text.lines().any(|line| {
        let mut words = line.split_whitespace().skip_while(|word| KEYWORDS.contains(word));
        let rest = words.next().and_then(|word| word.strip_prefix(item));
        rest.is_some_and(|rest| {
            // A variant or field ends with a comma, opens a body, or has a type; a line that only uses the name does
            // not begin so.
            (rest.is_empty() && words.next().is_some_and(|next| ["{", ":", "="].contains(&next)))
                || rest.starts_with(['(', '<', ',', ':', ';', '{']) && !rest.starts_with("::")
        })
    })
}

/// Whether the page of run files lists `key` below the heading `## [section]`.
fn has_key(repository: &Repository, section: &str, key: &str) -> bool {
    let text = repository.file(KEYS).and_then(|file| file.text.as_deref()).unwrap_or_default();
    let heading = format!("## [{section}]");
    let row = format!("| `{key}` |");
    let lines = text.lines().skip_while(|line| *line != heading).skip(1);
    lines.take_while(|line| !line.starts_with("## ")).any(|line| line.starts_with(&row))
}
