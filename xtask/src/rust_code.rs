//! Just enough Rust to measure it: code without comments and strings, code without comments and tests, and the length
//! of functions.

use std::ops::Range;

/// The kind of a run of characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Code,
    Comment,
    /// A string or a character literal.
    Literal,
}

/// The source cut into code, comments and literals, in order and without gaps.
fn spans(chars: &[char]) -> Vec<(Kind, Range<usize>)> {
    let mut spans = Vec::new();
    let (mut at, mut code_start) = (0, 0);
    while at < chars.len() {
        let (kind, end) = match chars[at] {
            '/' if chars.get(at + 1) == Some(&'/') => (Kind::Comment, line_end(chars, at)),
            '/' if chars.get(at + 1) == Some(&'*') => (Kind::Comment, block_comment_end(chars, at)),
            '"' => (Kind::Literal, string_end(chars, at)),
            'r' if starts_raw_string(chars, at) => (Kind::Literal, raw_string_end(chars, at)),
            '\'' => (Kind::Literal, character_end(chars, at)),
            _ => (Kind::Code, at),
        };
        if end == at {
            at += 1;
            continue;
        }
        spans.push((Kind::Code, code_start..at));
        spans.push((kind, at..end));
        (at, code_start) = (end, end);
    }
    spans.push((Kind::Code, code_start..chars.len()));
    spans
}

/// The source with the content of comments, strings and character literals replaced by spaces; lines stay where they
/// are.
pub fn code_only(source: &str) -> String {
    let chars: Vec<char> = source.chars().collect();
    let mut out = String::with_capacity(source.len());
    for (kind, span) in spans(&chars) {
        match kind {
            Kind::Code => out.extend(&chars[span]),
            Kind::Comment | Kind::Literal => {
                out.extend(chars[span].iter().map(|c| if *c == '\n' { '\n' } else { ' ' }));
            }
        }
    }
    out
}

/// The comments and literals of a source; each character of code is a `;`, so that no phrase goes across it. Lines stay
/// where they are.
pub fn text_only(source: &str) -> String {
    let chars: Vec<char> = source.chars().collect();
    let mut out = String::with_capacity(source.len());
    for (kind, span) in spans(&chars) {
        match kind {
            Kind::Code => out.extend(chars[span].iter().map(|c| if c.is_whitespace() { *c } else { ';' })),
            Kind::Comment | Kind::Literal => out.extend(&chars[span]),
        }
    }
    out
}

/// The part of a source that the product runs: strings stay; comments and items under `#[cfg(test)]` go, and any white
/// space between tokens is one space.
pub fn product_code(source: &str) -> String {
    let chars: Vec<char> = source.chars().collect();
    let code: Vec<char> = code_only(source).chars().collect();
    let tests = test_items(&code);
    let mut out = String::with_capacity(source.len());
    for (kind, span) in spans(&chars) {
        if kind == Kind::Comment {
            separate(&mut out);
            continue;
        }
        for at in span.filter(|at| !tests.iter().any(|test| test.contains(at))) {
            match kind {
                Kind::Code if chars[at].is_whitespace() => separate(&mut out),
                Kind::Code | Kind::Comment | Kind::Literal => out.push(chars[at]),
            }
        }
    }
    out.trim_end().to_string()
}

/// The code of a source without comments, literals and items under `#[cfg(test)]`.
pub fn code_without_tests(source: &str) -> String {
    let code: Vec<char> = code_only(source).chars().collect();
    let mut out = String::with_capacity(source.len());
    let mut from = 0;
    for test in test_items(&code) {
        out.extend(&code[from..test.start]);
        from = test.end;
    }
    out.extend(&code[from..]);
    out
}

/// Ends a token.
fn separate(out: &mut String) {
    if !out.is_empty() && !out.ends_with(' ') {
        out.push(' ');
    }
}

/// The items that only tests compile, with their attribute, in code without comments and strings.
fn test_items(code: &[char]) -> Vec<Range<usize>> {
    let attribute: Vec<char> = "#[cfg(test)]".chars().collect();
    let mut items = Vec::new();
    let mut at = 0;
    while at + attribute.len() <= code.len() {
        if code[at..].starts_with(&attribute) {
            let end = item_end(code, at + attribute.len());
            items.push(at..end);
            at = end;
        } else {
            at += 1;
        }
    }
    items
}

/// The end of the item that begins at `start`, other attributes included: after its first `;` outside brackets, or
/// after its body.
fn item_end(code: &[char], start: usize) -> usize {
    let mut depth = 0_usize;
    for (offset, c) in code[start..].iter().enumerate() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 && (*c == ';' || *c == '}') {
            return start + offset + 1;
        }
    }
    code.len()
}

fn line_end(chars: &[char], start: usize) -> usize {
    chars[start..].iter().position(|c| *c == '\n').map_or(chars.len(), |length| start + length)
}

fn block_comment_end(chars: &[char], start: usize) -> usize {
    let mut depth = 0;
    let mut at = start;
    while at + 1 < chars.len() {
        match (chars[at], chars[at + 1]) {
            ('/', '*') => (depth, at) = (depth + 1, at + 2),
            ('*', '/') => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    chars.len()
}

fn string_end(chars: &[char], start: usize) -> usize {
    let mut at = start + 1;
    while at < chars.len() {
        match chars[at] {
            '\\' => at += 2,
            '"' => return at + 1,
            _ => at += 1,
        }
    }
    chars.len()
}

/// `r"` or `r#...#"` that is not the tail of a name; `br"` counts too.
fn starts_raw_string(chars: &[char], start: usize) -> bool {
    let in_name = |c: &char| c.is_alphanumeric() || *c == '_';
    let previous = start.checked_sub(1).map(|index| chars[index]);
    let before_that = start.checked_sub(2).map(|index| chars[index]);
    let tail_of_name = match previous {
        Some('b' | 'c') => before_that.is_some_and(|c| in_name(&c)),
        Some(c) => in_name(&c),
        None => false,
    };
    let hashes = chars[start + 1..].iter().take_while(|c| **c == '#').count();
    !tail_of_name && chars.get(start + 1 + hashes) == Some(&'"')
}

fn raw_string_end(chars: &[char], start: usize) -> usize {
    let hashes = chars[start + 1..].iter().take_while(|c| **c == '#').count();
    let mut at = start + 2 + hashes;
    while at < chars.len() {
        if chars[at] == '"' && chars[at + 1..].iter().take_while(|c| **c == '#').count() >= hashes {
            return at + 1 + hashes;
        }
        at += 1;
    }
    chars.len()
}

/// The end of a character literal, or `start` where the quote begins a lifetime.
fn character_end(chars: &[char], start: usize) -> usize {
    match (chars.get(start + 1), chars.get(start + 2)) {
        (Some('\\'), _) => {
            let rest = chars.get(start + 3..).unwrap_or_default();
            rest.iter().position(|c| *c == '\'').map_or(chars.len(), |length| start + 4 + length)
        }
        (Some(_), Some('\'')) => start + 3,
        _ => start,
    }
}

/// A function and how many lines it takes, signature and closing brace included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionLength {
    pub name: String,
    /// Line of the signature, counted from 1.
    pub line: usize,
    pub lines: usize,
}

/// All functions with bodies of a source that rustfmt has formatted: a body ends at the first closing brace that is
/// indented like the signature.
pub fn function_lengths(source: &str) -> Vec<FunctionLength> {
    let code = code_only(source);
    let lines: Vec<&str> = code.lines().collect();
    let mut functions = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let Some(name) = function_name(line) else { continue };
        let indent = line.len() - line.trim_start().len();
        let closes = |candidate: &&str| {
            let text = candidate.trim();
            candidate.len() - candidate.trim_start().len() == indent
                && (text == "}" || text.ends_with(';') || text.ends_with('}') && text.contains('{'))
        };
        let length = lines[index..].iter().position(closes).map_or(1, |offset| offset + 1);
        functions.push(FunctionLength { name, line: index + 1, lines: length });
    }
    functions
}

fn function_name(line: &str) -> Option<String> {
    let qualifiers = ["pub", "pub(crate)", "pub(super)", "const", "async", "unsafe", "extern"];
    let mut words = line.split_whitespace().skip_while(|word| qualifiers.contains(word) || *word == "\"C\"");
    if words.next() != Some("fn") {
        return None;
    }
    let name: String = words.next()?.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    (!name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_strings_and_characters_vanish_and_lines_stay() {
        let source = "let a = \"un\\\"safe\"; // unsafe\n/* x /* y */ z */ let b = '\"'; let c: &'static str = r#\"q\"z\"#;\nlet d = '\\'';let e = 1;";
        let code = code_only(source);
        assert_eq!(code.lines().count(), source.lines().count());
        assert!(!code.contains("safe") && !code.contains('y') && !code.contains('q') && !code.contains("z"));
        assert!(code.contains("let b =") && code.contains("&'static str") && code.contains("let e = 1;"));
    }

    #[test]
    fn comments_tests_and_layout_are_no_product_code_and_strings_are() {
        let source = "//! About.\nfn a() -> [u8; 2] {\n    // why\n    b(\"// c\", 'd')\n}\n\n#[cfg(test)]\nuse e::{f, g};\n\
                      #[cfg(test)]\n#[expect(h)]\npub fn i(j: [u8; 4]) {\n    k(\"}\");\n}\n#[cfg(test)]\nmod tests {\n    fn l() {}\n}\nfn m() {}\n";
        assert_eq!(product_code(source), "fn a() -> [u8; 2] { b(\"// c\", 'd') } ; fn m() {}");
        let reworded = source.replace("why", "because").replace("About", "Of").replace("fn l() {}", "fn n() {}");
        assert_eq!(product_code(&reworded), product_code(source));
        for (old, new) in [("// c", "// C"), ("'d'", "'D'"), ("fn m", "fn n"), ("u8; 2", "u8; 3")] {
            assert_ne!(product_code(&source.replace(old, new)), product_code(source), "{old} is code");
        }
    }

    #[test]
    fn a_function_is_as_long_as_its_lines() {
        let source = "impl A {\n    pub fn one(&self) -> u8 {\n        if x {\n        }\n    }\n\n    fn two() {}\n    fn three(\n        a: u8,\n    ) {\n        b\n    }\n}\n";
        let lengths: Vec<(String, usize)> =
            function_lengths(source).into_iter().map(|function| (function.name, function.lines)).collect();
        assert_eq!(lengths, [("one".into(), 4), ("two".into(), 1), ("three".into(), 5)]);
    }
}
