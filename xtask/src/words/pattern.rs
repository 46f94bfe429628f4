//! Phrases as patterns over the words of a text.

use super::table::{Replaced, Scope};

/// A word of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// In lower case; `#` for a number and for a placeholder such as `{steps}`.
    pub word: String,
    /// Line, counted from 1.
    pub line: usize,
    /// Between it and the word before.
    gap: Gap,
    /// Whether it begins a sentence that is no question.
    opens_statement: bool,
}

/// What separates two words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gap {
    /// Spaces, line ends, marks of comments.
    Text,
    /// Two parts of one identifier.
    Identifier,
    /// Punctuation: no phrase goes across.
    Break,
}

/// A phrase that can be searched for.
#[derive(Clone, Debug)]
pub struct Pattern {
    words: Vec<Element>,
    except: Vec<Vec<Element>>,
    scope: Scope,
}

#[derive(Clone, Debug)]
enum Element {
    /// One of these words.
    Word(Vec<String>),
    /// One of these words, as the beginning of a statement.
    Opening(Vec<String>),
    /// At most two words.
    Any,
}

impl Pattern {
    /// The pattern of a replaced phrase.
    pub fn of(replaced: &Replaced) -> Pattern {
        let except = replaced.except.iter().map(|phrase| elements(phrase)).collect();
        Pattern { words: elements(replaced.phrase), except, scope: replaced.scope }
    }

    /// The first words of all matches.
    pub fn matches<'a>(&'a self, tokens: &'a [Token]) -> impl Iterator<Item = &'a Token> {
        let starts = (0..tokens.len()).filter(|at| {
            matched_words(&self.words, self.scope, &tokens[*at..])
                .is_some_and(|length| !self.excepted(tokens, *at, length))
        });
        starts.map(|at| &tokens[at])
    }

    /// Whether the match of `length` words at `at` is inside of a longer phrase that is right.
    fn excepted(&self, tokens: &[Token], at: usize, length: usize) -> bool {
        self.except.iter().any(|except| {
            (at.saturating_sub(except.len())..=at).any(|start| {
                let longer = matched_words(except, self.scope, &tokens[start..]);
                longer.is_some_and(|words| start + words >= at + length)
            })
        })
    }
}

/// A phrase as it is written in the table: words with spaces between; `a|b` for either, `^a` for the word that begins a
/// statement, `*` for at most two words, `#` for a number or a placeholder.
fn elements(phrase: &str) -> Vec<Element> {
    let alternatives = |part: &str| part.split('|').map(str::to_string).collect();
    let element = |part: &str| match (part, part.strip_prefix('^')) {
        ("*", _) => Element::Any,
        (_, Some(opening)) => Element::Opening(alternatives(opening)),
        (_, None) => Element::Word(alternatives(part)),
    };
    phrase.split(' ').map(element).collect()
}

/// How many words from the first on match; `None` where the phrase does not begin there.
fn matched_words(elements: &[Element], scope: Scope, tokens: &[Token]) -> Option<usize> {
    matched_from(elements, scope, tokens, 0)
}

fn matched_from(elements: &[Element], scope: Scope, tokens: &[Token], at: usize) -> Option<usize> {
    let Some((first, rest)) = elements.split_first() else { return Some(at) };
    let joined = |index: usize| index == 0 || tokens.get(index).is_some_and(|token| scope.joins(token.gap));
    match first {
        Element::Any => (0..=2)
            .take_while(|skipped| (at..at + skipped).all(joined))
            .find_map(|skipped| matched_from(rest, scope, tokens, at + skipped)),
        Element::Word(words) => {
            let token = tokens.get(at).filter(|token| words.contains(&token.word) && joined(at));
            token.and_then(|_| matched_from(rest, scope, tokens, at + 1))
        }
        Element::Opening(words) => {
            // A word follows: `What::Loss` is a name.
            let followed = tokens.get(at + 1).is_some_and(|next| next.gap == Gap::Text);
            let token = tokens.get(at).filter(|token| words.contains(&token.word) && token.opens_statement && followed);
            token.and_then(|_| matched_from(rest, scope, tokens, at + 1))
        }
    }
}

impl Scope {
    fn joins(self, gap: Gap) -> bool {
        match (self, gap) {
            (_, Gap::Text) | (Scope::Everywhere, Gap::Identifier) => true,
            (Scope::Prose, Gap::Identifier) | (_, Gap::Break) => false,
        }
    }
}

/// The words of a text, those inside of identifiers each by itself.
pub fn tokens(text: &str) -> Vec<Token> {
    let chars: Vec<char> = text.chars().collect();
    let (mut tokens, mut at, mut line, mut gap_start) = (Vec::new(), 0, 1, 0);
    while at < chars.len() {
        let end = word_end(&chars, at);
        if end == at {
            line += usize::from(chars[at] == '\n');
            at += 1;
            continue;
        }
        let gap = gap(&chars[gap_start..at]);
        let word = word(&chars[at..end]);
        let opens_statement = chars[at].is_uppercase() && !is_question(&chars[end..]);
        tokens.push(Token { word, line, gap, opens_statement });
        (at, gap_start) = (end, end);
    }
    tokens
}

fn word(chars: &[char]) -> String {
    let written: String = chars.iter().collect();
    if written.starts_with(|c: char| c.is_ascii_digit() || c == '{') {
        "#".into()
    } else if written == "None" {
        // The value of Rust and Python, not the word.
        written
    } else {
        written.to_lowercase()
    }
}

/// The end of the word at `start`; `start` where none begins.
fn word_end(chars: &[char], start: usize) -> usize {
    if chars[start] == '{' {
        let length = chars[start..].iter().take(40).position(|c| *c == '}' || c.is_whitespace());
        return length.filter(|length| chars[start + length] == '}').map_or(start, |length| start + length + 1);
    }
    let mut end = start;
    while end < chars.len() && chars[end].is_alphanumeric() {
        // `CamelCase` is two words.
        if end > start && chars[end].is_uppercase() && chars[end - 1].is_lowercase() {
            break;
        }
        end += 1;
    }
    end
}

fn gap(between: &[char]) -> Gap {
    let is_mark = |c: &char| c.is_whitespace() || "/!#\\*`".contains(*c);
    if between.iter().all(|c| *c == '_') {
        Gap::Identifier
    } else if between.iter().all(is_mark) && between.iter().any(|c| c.is_whitespace()) {
        Gap::Text
    } else {
        Gap::Break
    }
}

/// Whether the sentence that goes on here ends with a question mark.
fn is_question(rest: &[char]) -> bool {
    let ends = |at: &usize| ".?!|".contains(rest[*at]) && rest.get(at + 1).is_none_or(|c| !c.is_alphanumeric());
    (0..rest.len()).find(ends).is_some_and(|at| rest[at] == '?')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(phrase: &'static str, except: &'static [&'static str], scope: Scope, text: &str) -> Vec<usize> {
        let replaced = Replaced { phrase, except, scope, instead: "", why: "" };
        Pattern::of(&replaced).matches(&tokens(text)).map(|token| token.line).collect()
    }

    #[test]
    fn words_match_as_a_whole_in_any_case_and_across_lines_of_comments() {
        let text = "Told\nfn told_of()\nretold tolds\n\"told.\"\n";
        assert_eq!(lines("told", &[], Scope::Everywhere, text), [1, 2, 4]);
        let text = "// it is computed\n    // again; computed, again\nfn ComputedAgain, \
                    computed_again\n\"computed \\\n  again\"";
        assert_eq!(lines("computed again", &[], Scope::Everywhere, text), [1, 3, 3, 4]);
        assert_eq!(lines("computed again", &[], Scope::Prose, text), [1, 4]);
        assert_eq!(lines("is none", &[], Scope::Prose, "a.is_none() is none; a is None"), [1]);
    }

    #[test]
    fn alternatives_numbers_and_gaps() {
        assert_eq!(
            lines("# would", &[], Scope::Everywhere, "2 would\n{choice} would be\n1e-5 would\nit would\n"),
            [1, 2, 3]
        );
        assert_eq!(lines("{steps} would", &[], Scope::Everywhere, "{steps} would"), [0; 0]);
        let shared = "shared out\nshares the tokens out\nshare a b c out\nshares. out\n";
        assert_eq!(lines("share|shares|shared * out", &[], Scope::Everywhere, shared), [1, 2]);
    }

    #[test]
    fn a_longer_phrase_that_is_right_excepts_a_match() {
        let text = "there is none\nit is none\nit is none at all\n";
        assert_eq!(lines("is none", &["there is", "there is none"], Scope::Prose, text), [2, 3]);
        assert_eq!(lines("is none", &["is none at all"], Scope::Prose, text), [1, 2]);
    }

    #[test]
    fn a_statement_begins_with_a_capital_and_is_no_question() {
        let text =
            "/// What it says.\n/// What is it?\n/// says what it is.\n/// What a.b says? No.\nWhat::Loss => x\n";
        assert_eq!(lines("^what", &[], Scope::Prose, text), [1]);
    }
}
