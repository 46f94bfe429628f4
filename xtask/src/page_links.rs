//! Checks the links of pages: each relative link leads to a file or folder of the repository, and its anchor to a
//! heading.

use std::collections::BTreeSet;

use crate::finding::Finding;
use crate::repository::Repository;

/// Links of all pages that lead nowhere.
pub fn check(repository: &Repository) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, text) in repository.with_extension("md") {
        for (line, target) in links(text) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
            let path = if path.is_empty() { file.path.clone() } else { resolved(&file.path, path) };
            if let Some(problem) = problem(repository, &path, anchor) {
                findings.push(Finding { path: file.path.clone(), line, message: format!("link {target}: {problem}") });
            }
        }
    }
    findings
}

fn problem(repository: &Repository, path: &str, anchor: &str) -> Option<String> {
    let folder = format!("{}/", path.trim_end_matches('/'));
    let exists = repository.files.iter().any(|file| file.path == path || file.path.starts_with(&folder));
    if !exists {
        return Some(format!("`{path}` does not exist"));
    }
    let text = repository.file(path).and_then(|file| file.text.as_deref()).unwrap_or_default();
    let has_anchor = anchor.is_empty() || !path.ends_with(".md") || anchors(text).contains(anchor);
    (!has_anchor).then(|| format!("`{path}` has no heading `{anchor}`"))
}

/// Targets of links outside of blocks and code, with their lines counted from 1.
fn links(text: &str) -> Vec<(usize, &str)> {
    let mut links = Vec::new();
    let mut is_block = false;
    for (index, line) in text.lines().enumerate() {
        if line.starts_with("```") {
            is_block = !is_block;
        } else if !is_block {
            let targets = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
            links.extend(targets.map(|target| (index + 1, target)));
        }
    }
    links
}

/// `target` as seen from the file at `from`, below the root.
fn resolved(from: &str, target: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            name => parts.push(name),
        }
    }
    parts.join("/")
}

/// Anchors of the headings of a page: letters and digits in lower case, with hyphens for spaces.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut is_block = false;
    let headings = text.lines().filter(|line| {
        is_block ^= line.starts_with("```");
        !is_block && line.starts_with('#')
    });
    headings.map(anchor).collect()
}

fn anchor(heading: &str) -> String {
    let words = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = words.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repository::SourceFile;

    #[test]
    fn links_that_lead_nowhere_are_found() {
        let page = "see [a](b.md), [c](b.md#two-words), [d](../README.md), [e](https://x.y#z)\n```\n[f](g)\n```\n";
        let faulty = "see [a](c.md)\nand [b](b.md#three), [c](#here)\n";
        let files = vec![
            SourceFile::of("README.md", "# A\n"),
            SourceFile::of("docs/a.md", page),
            SourceFile::of("docs/b.md", "# B\n## Two words\n```\n# three\n```\n"),
            SourceFile::of("docs/faulty.md", faulty),
        ];
        let found: Vec<String> = check(&Repository { files }).iter().map(Finding::to_string).collect();
        assert_eq!(
            found,
            [
                "docs/faulty.md:1: link c.md: `docs/c.md` does not exist",
                "docs/faulty.md:2: link b.md#three: `docs/b.md` has no heading `three`",
                "docs/faulty.md:2: link #here: `docs/faulty.md` has no heading `here`",
            ]
        );
    }
}
