//! Comments and the prose of pages have lines of at most 120 columns.

use crate::finding::Finding;
use crate::repository::SourceFile;

const COLUMNS: usize = 120;
/// The frozen corpus.
const EXEMPT: &str = "crates/training/data/corpus/";

/// Longer lines of a page or a source. Tables, code blocks and words without a space are not wrapped.
pub fn check(file: &SourceFile) -> Vec<Finding> {
    let text = file.text.as_deref().unwrap_or_default();
    let content: fn(&str) -> Option<&str> = match file.path.rsplit('.').next() {
        Some("md") => |line| Some(line),
        Some("rs" | "cu" | "cuh") => comment,
        _ => return vec![],
    };
    if file.path.starts_with(EXEMPT) {
        return vec![];
    }
    let long = prose(text, content).into_iter().filter(|(_, line)| can_be_wrapped(line));
    let finding = |(index, line): (usize, &str)| Finding {
        path: file.path.clone(),
        line: index + 1,
        message: format!("{} columns; wrap the line at {COLUMNS}", columns(line)),
    };
    long.map(finding).collect()
}

/// The lines whose `content` is neither a table nor code.
fn prose(text: &str, content: fn(&str) -> Option<&str>) -> Vec<(usize, &str)> {
    let mut is_code = false;
    let is_prose = |(_, line): &(usize, &str)| {
        let Some(content) = content(line).map(str::trim_start) else {
            is_code = false;
            return false;
        };
        let is_fence = content.starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence && !content.starts_with('|')
    };
    text.lines().enumerate().filter(is_prose).collect()
}

/// The content of a line that is a comment.
fn comment(line: &str) -> Option<&str> {
    let line = line.trim_start();
    line.starts_with("//").then(|| line.trim_start_matches(['/', '!']))
}

fn can_be_wrapped(line: &str) -> bool {
    let line = line.trim_end();
    let last = line.rfind(' ').map_or(0, |space| columns(&line[space + 1..]));
    let indent = line.len() - line.trim_start().len();
    columns(line) > COLUMNS && indent + last < COLUMNS && line.trim_start().contains(' ')
}

/// Columns of a terminal: two for a Chinese character or sign.
fn columns(line: &str) -> usize {
    line.chars().map(|c| if ('\u{2e80}'..='\u{ffe6}').contains(&c) { 2 } else { 1 }).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<usize> {
        check(&SourceFile::of(path, text)).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn long_prose_and_comments_are_found() {
        let long = "word ".repeat(25);
        assert_eq!(found("a.md", &format!("{long}\n{}\n", "word ".repeat(24))), [1]);
        assert_eq!(found("a.rs", &format!("    // {long}\nlet a = \"{long}\";\n")), [1]);
        assert_eq!(found("a.toml", &long), [0; 0]);
        assert_eq!(found("a.md", &"字 ".repeat(41)), [1]);
    }

    #[test]
    fn tables_code_and_words_without_a_space_are_not_wrapped() {
        let long = "word ".repeat(25);
        assert_eq!(found("a.md", &format!("| {long} |\n```text\n{long}\n```\n")), [0; 0]);
        assert_eq!(found("a.rs", &format!("//! | {long} |\n//! ```\n//! {long}\n//! ```\n")), [0; 0]);
        assert_eq!(found("a.md", &format!("[a](https://{})\n", "b".repeat(130))), [0; 0]);
    }
}
