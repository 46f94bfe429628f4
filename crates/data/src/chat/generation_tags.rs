//! Blocks `{% generation %}`: the extension of transformers by which a template marks its answers.
//!
//! Here they become blocks `{% filter %}` with a scope of their own, of a filter that puts its content between two
//! marks, which are taken out of the text. So an answer is found wherever it is written, also in a macro.

/// A mark before an answer: a code point that is for no text.
pub(super) const ANSWER_BEGINS: char = '\u{fdd0}';
/// A mark after an answer.
pub(super) const ANSWER_ENDS: char = '\u{fdd1}';
/// The filter that writes the marks.
pub(super) const MARKER: &str = "__answer";

/// A part of a template.
enum Part<'a> {
    /// Text, a comment or an expression, as it is.
    Other(&'a str),
    /// A tag, with its delimiters, its first word, and where this is in it.
    Tag { text: &'a str, word: std::ops::Range<usize> },
}

/// `source` with filters in place of its blocks of answers, and whether it has any.
pub(super) fn as_filters(source: &str) -> (String, bool) {
    let (mut out, mut has_any, mut rest) = (String::with_capacity(source.len()), false, source);
    while !rest.is_empty() {
        let part = first_part(rest);
        match part {
            Part::Other(text) => {
                out.push_str(text);
                rest = &rest[text.len()..];
            }
            Part::Tag { text, word } => {
                rest = &rest[text.len()..];
                match &text[word.clone()] {
                    "generation" => {
                        has_any = true;
                        out.push_str(&format!(
                            "{}filter {MARKER} %}}{{% with{}",
                            &text[..word.start],
                            &text[word.end..]
                        ));
                    }
                    "endgeneration" => {
                        out.push_str(&format!("{}endwith %}}{{% endfilter{}", &text[..word.start], &text[word.end..]));
                    }
                    "raw" => {
                        out.push_str(text);
                        let end = end_of_raw(rest);
                        out.push_str(&rest[..end]);
                        rest = &rest[end..];
                    }
                    _ => out.push_str(text),
                }
            }
        }
    }
    (out, has_any)
}

/// Refuses a `break` or `continue` that leaves a block with a scope or an output of its own: the interpreter would not
/// close it.
pub(super) fn check_jumps(source: &str) -> Result<(), String> {
    let (mut open, mut rest): (Vec<&str>, &str) = (vec![], source);
    while !rest.is_empty() {
        match first_part(rest) {
            Part::Other(text) => rest = &rest[text.len()..],
            Part::Tag { text, word } => {
                rest = &rest[text.len()..];
                match &text[word] {
                    "raw" => rest = &rest[end_of_raw(rest)..],
                    word => judge(word, text, &mut open)?,
                }
            }
        }
    }
    Ok(())
}

/// Opens or closes a block by the first word of the tag `text`, or judges a jump.
fn judge<'a>(word: &'a str, text: &str, open: &mut Vec<&'a str>) -> Result<(), String> {
    match word {
        "set" if text.contains('=') => {}
        "for" | "with" | "filter" | "set" | "macro" | "call" | "autoescape" | "generation" => open.push(word),
        "endfor" | "endwith" | "endfilter" | "endset" | "endmacro" | "endcall" | "endautoescape" | "endgeneration" => {
            open.pop();
        }
        "break" | "continue" => match open.last() {
            Some(&"for") | None => {}
            Some(block) => return Err(format!("it has a {word} in a block {block}, which must be in the loop whole")),
        },
        _ => {}
    }
    Ok(())
}

/// The first part of `source`, which is not empty.
fn first_part(source: &str) -> Part<'_> {
    if source.starts_with("{#") {
        return Part::Other(source.find("#}").map_or(source, |end| &source[..end + 2]));
    }
    if source.starts_with("{{") {
        return Part::Other(&source[..end_of_expression(source, "}}")]);
    }
    if source.starts_with("{%") {
        let text = &source[..end_of_expression(source, "%}")];
        let start = text.len() - text[2..].trim_start_matches(['-', '+']).trim_start().len();
        let letters = text[start..].chars().take_while(|letter| letter.is_alphanumeric() || *letter == '_');
        let word = start..start + letters.map(char::len_utf8).sum::<usize>();
        return Part::Tag { text, word };
    }
    let openings = ["{#", "{{", "{%"].into_iter().filter_map(|opening| source.find(opening));
    Part::Other(openings.min().map_or(source, |end| &source[..end]))
}

/// The byte after the first `closing` of `source` that is in no string.
fn end_of_expression(source: &str, closing: &str) -> usize {
    let mut quote = None;
    let mut letters = source.char_indices().skip(2);
    while let Some((at, letter)) = letters.next() {
        match quote {
            Some(_) if letter == '\\' => {
                letters.next();
            }
            Some(own) if letter == own => quote = None,
            Some(_) => {}
            None if source[at..].starts_with(closing) => return at + closing.len(),
            None if letter == '\'' || letter == '"' => quote = Some(letter),
            None => {}
        }
    }
    source.len()
}

/// The byte at which the tag `{% endraw %}` begins.
fn end_of_raw(source: &str) -> usize {
    let mut from = 0;
    while let Some(at) = source[from..].find("{%").map(|at| from + at) {
        if source[at + 2..].trim_start_matches(['-', '+']).trim_start().starts_with("endraw") {
            return at;
        }
        from = at + 2;
    }
    source.len()
}

#[cfg(test)]
mod tests {
    use super::as_filters;

    #[test]
    fn blocks_of_answers_become_filters_and_nothing_else_changes() {
        let begins = "{% filter __answer %}{% with %}";
        let cases = [
            ("a{% generation %}b{% endgeneration %}c", &format!("a{begins}b{{% endwith %}}{{% endfilter %}}c"), true),
            (
                "{%- generation -%}b{%+ endgeneration +%}",
                &"{%- filter __answer %}{% with -%}b{%+ endwith %}{% endfilter +%}".to_string(),
                true,
            ),
            ("{% generation", &"{% filter __answer %}{% with".to_string(), true),
        ];
        for (source, filters, has_any) in cases {
            assert_eq!(as_filters(source), (filters.clone(), has_any), "{source}");
        }
        for same in [
            "{# {% generation %} #}{{ '{% generation %}' }}",
            "{% set a = \"%} \\\" {% generation %}\" %}",
            "{% raw %}{% generation %}{% endraw %}",
            "{% if generation %}x{% endif %}",
            "{%",
        ] {
            assert_eq!(as_filters(same), (same.to_string(), false));
        }
    }
}
