//! A test that has begun asserts: none returns before its end or prints that it skips, and none is ignored but by an
//! attribute of crate `needs`, whose reason `cargo test` prints.

use crate::finding::Finding;
use crate::repository::SourceFile;
use crate::rust_code::code_only;

/// Begins what a test printed that did not run; written in two parts, for the rule holds for this file, too.
const SKIPPED: &str = concat!("\"skip", "ped: ");

/// Returns in tests, and lines that say that a test is skipped.
pub fn check(file: &SourceFile, text: &str) -> Vec<Finding> {
    let finding = |(line, message): (usize, &str)| Finding { path: file.path.clone(), line, message: message.into() };
    let early = "a test returns before its end; put what it needs above it, as `#[needs::cuda]`, or use `match`";
    let skips = "a test that lacks a tool is ignored with a reason: put the tool above it, as `#[needs::cuda]`";
    let code = code_only(text);
    let returns = returns_of_tests(&code).into_iter().map(|line| (line, early));
    let is_ignored = |line: &str| line.contains("cfg_attr(") && line.contains("ignore");
    let skipped = text.lines().zip(code.lines()).zip(1..);
    let skipped = skipped.filter(|((text, code), _)| text.contains(SKIPPED) || is_ignored(code));
    returns.chain(skipped.map(|(_, line)| (line, skips))).map(finding).collect()
}

/// The lines with a `return` of a test itself, not of a closure or function in it.
fn returns_of_tests(code: &str) -> Vec<usize> {
    let mut lines = vec![];
    for (at, attribute) in code.match_indices("#[test]") {
        let start = at + attribute.len();
        let body = code[start..].find('{').map_or("", |open| &code[start + open..]);
        let first_line = code[..code.len() - body.len()].lines().count();
        lines.extend(returns(body).into_iter().map(|line| first_line + line));
    }
    lines
}

/// The lines, counted from 0, of the `return`s in the block with which `code` begins.
fn returns(code: &str) -> Vec<usize> {
    let mut lines = vec![];
    // For each open brace, whether a `return` in it ends something else than the block.
    let mut open: Vec<bool> = vec![];
    for (at, c) in code.char_indices() {
        match c {
            '{' => {
                let is_inner = open.last().copied().unwrap_or(false) || begins_function(&code[..at]);
                open.push(is_inner);
            }
            '}' => {
                open.pop();
                if open.is_empty() {
                    break;
                }
            }
            'r' if open.last() == Some(&false) && is_word(code, at, "return") => {
                lines.push(code[..at].matches('\n').count());
            }
            _ => {}
        }
    }
    lines
}

/// Whether the block after `before` is the body of a closure or of a function.
fn begins_function(before: &str) -> bool {
    let statement = before.rsplit([';', '{', '}']).next().unwrap_or_default();
    let head = statement.rsplit_once("->").map_or(statement, |(head, _)| head).trim_end();
    head.ends_with('|') || statement.split_whitespace().any(|word| word == "fn")
}

fn is_word(code: &str, at: usize, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let before = code[..at].chars().next_back();
    code[at..].strip_prefix(word).is_some_and(|rest| !rest.starts_with(is_part)) && !before.is_some_and(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(code: &str) -> Vec<usize> {
        check(&SourceFile::of("crates/a/tests/b.rs", code), code).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn a_test_that_ends_early_is_found() {
        let test = |body: &str| format!("fn a() {{}}\n\n#[test]\nfn b() {{\n{body}\n    assert!(c);\n}}\n");
        for body in [
            "    return;",
            "    let Some(tool) = tool() else { return };",
            "    if !has_tool() { return }",
            "    match tool() { Some(tool) => run(tool), None => return println!(\"none\") }",
            "    for tool in tools() { let Some(tool) = tool.open() else { return }; }",
        ] {
            assert_eq!(lines(&test(body)), [5], "{body}");
        }
        let printed = concat!("    println!(\"skip", "ped: no tool\");");
        assert_eq!(lines(&test(printed)), [5]);
        assert_eq!(lines("#[cfg_attr(not(tool), ignore = \"needs a tool\")]\n#[test]\nfn b() {}\n"), [1]);
    }

    #[test]
    fn functions_and_closures_in_a_test_return() {
        for body in [
            "let f = |x: u8| { if x == 0 { return 1; } 2 };",
            "let f = move |x| -> Result<u8, String> { return Ok(x) };",
            "fn f(x: u8) -> u8 { return x }",
            "thread(|| { return });",
            "let returned = \"return\"; // return",
        ] {
            assert_eq!(lines(&format!("#[test]\nfn b() {{\n    {body}\n}}\nfn c() {{ return }}\n")), [0; 0], "{body}");
        }
    }
}
