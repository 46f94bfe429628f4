//! Public functions and types have doc comments. Fields, variants and constants need one only where the name does not
//! say everything.

use crate::finding::Finding;
use crate::repository::SourceFile;
use crate::rust_code::code_only;

/// Words between `pub` and the kind of an item.
const QUALIFIERS: &[&str] = &["const", "async", "unsafe"];
/// Kinds of items that need a doc comment.
const KINDS: &[&str] = &["fn", "struct", "enum", "trait"];

/// Public functions and types of product code without a doc comment.
pub fn check(file: &SourceFile, text: &str) -> Vec<Finding> {
    if !file.path.starts_with("crates/") || !file.is_product() {
        return vec![];
    }
    let lines: Vec<&str> = text.lines().collect();
    // Strings may contain Rust.
    let code = code_only(text);
    let mut findings = vec![];
    for (index, line) in code.lines().enumerate().take_while(|(_, line)| line.trim() != "mod tests {") {
        if let Some(item) = public_item(line)
            && !is_documented(&lines[..index])
        {
            let message = format!("{item} is public and has no doc comment");
            findings.push(Finding { path: file.path.clone(), line: index + 1, message });
        }
    }
    findings
}

/// `fn name` or `struct Name`, if the line begins such a public item.
fn public_item(line: &str) -> Option<String> {
    let mut words = line.trim_start().strip_prefix("pub ")?.split_whitespace();
    let kind = words.find(|word| !QUALIFIERS.contains(word))?;
    let name = words.next()?.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
    KINDS.contains(&kind).then(|| format!("{kind} {name}"))
}

/// Whether the lines before an item end with a doc comment, and perhaps attributes.
fn is_documented(before: &[&str]) -> bool {
    let mut inside_attribute = false;
    for line in before.iter().rev().map(|line| line.trim()) {
        if line.starts_with("///") {
            return true;
        }
        inside_attribute = !line.starts_with("#[") && (inside_attribute || line.ends_with(")]"));
        if !inside_attribute && !line.starts_with("#[") {
            return false;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        check(&SourceFile::of(path, text), text).iter().map(Finding::to_string).collect()
    }

    #[test]
    fn public_functions_and_types_need_a_doc_comment() {
        let text =
            "pub fn a() {}\n/// B.\n#[derive(Debug)]\npub struct B {\n    pub field: u32,\n}\n\npub const fn c() {}\n";
        let expected = [
            "crates/step/mesh/src/a.rs:1: fn a is public and has no doc comment",
            "crates/step/mesh/src/a.rs:8: fn c is public and has no doc comment",
        ];
        assert_eq!(found("crates/step/mesh/src/a.rs", text), expected);
        assert_eq!(found("crates/step/mesh/src/tests/a.rs", text), [""; 0]);
        assert_eq!(found("crates/step/mesh/src/a.rs", "mod tests {\n    pub fn a() {}\n}\n"), [""; 0]);
        assert_eq!(found("crates/step/mesh/src/a.rs", "const A: &str = \"\\\npub fn a() {}\";\n"), [""; 0]);
    }

    #[test]
    fn attributes_may_have_several_lines() {
        let text = "/// A.\n#[expect(\n    dead_code,\n    reason = \"a\"\n)]\npub enum A {}\n";
        assert_eq!(found("crates/step/mesh/src/a.rs", text), [""; 0]);
        let bare = text.strip_prefix("/// A.\n").expect("a comment");
        assert_eq!(found("crates/step/mesh/src/a.rs", bare).len(), 1);
    }
}
