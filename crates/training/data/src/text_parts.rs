//! Long texts are tokenized in parts, so that memory does not grow with them.
//!
//! The cuts depend on the text alone, so its tokens are the same however it was read. A cut is at the end of a line
//! where neither neighbour is a blank, or else before a single space: words are not cut there by the patterns of
//! GPT-2, of Llama and of their relatives, so that a text has the tokens that it has as a whole.

/// The most bytes of a part.
pub(crate) const PART_BYTES: usize = 1 << 20;
/// Bytes after a part that decide where it ends: a character.
pub(crate) const AFTER_BYTES: usize = 4;

/// Where the first part of `text` ends; `None` where all of it is one part. Bytes more than [`AFTER_BYTES`] after
/// [`PART_BYTES`] do not matter.
pub(crate) fn first_cut(text: &str) -> Option<usize> {
    if text.len() <= PART_BYTES {
        return None;
    }
    let most = text.floor_char_boundary(PART_BYTES);
    let is_word = |character: Option<char>| character.is_some_and(|character| !character.is_whitespace());
    let before = |at: usize| text[..at].chars().next_back();
    let after = |at: usize| text[at..].chars().next();
    let lines = text[..most].rmatch_indices('\n').map(|(at, _)| at);
    let mut line_ends = lines.filter(|at| is_word(before(*at)) && is_word(after(at + 1)));
    if let Some(at) = line_ends.next() {
        return Some(at + 1);
    }
    let spaces = text[..most].rmatch_indices(' ').map(|(at, _)| at);
    let mut word_ends = spaces.filter(|at| is_word(before(*at)) && is_word(after(at + 1)));
    Some(word_ends.next().unwrap_or(most))
}

/// The parts of `text`, in order.
pub(crate) fn parts(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest.take()?;
        let Some(cut) = first_cut(text) else { return Some(text) };
        let (part, after) = text.split_at(cut);
        rest = Some(after);
        Some(part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_end_between_words_and_are_the_text() {
        let line = "a line of words,\n\nwith some blank lines \n and\tothers\n";
        let cases = [
            (line.repeat(60_000), "s\n"),
            ("words ".repeat(400_000), "words"),
            ("é".repeat(1_500_000), "é"),
            ("\n".repeat(3 << 20), "\n"),
        ];
        for (text, end) in cases {
            let parts: Vec<&str> = parts(&text).collect();
            assert!(parts.len() > 2 && parts.iter().all(|part| part.len() <= PART_BYTES && !part.is_empty()));
            assert!(parts[..parts.len() - 1].iter().all(|part| part.ends_with(end)), "{end:?}");
            assert_eq!(parts.concat(), text);
            // Bytes that are not read yet change no cut.
            let seen = text.floor_char_boundary(PART_BYTES + AFTER_BYTES);
            assert_eq!(first_cut(&text[..seen]), Some(parts[0].len()));
        }
        assert_eq!(parts("short").collect::<Vec<_>>(), ["short"]);
        assert_eq!(parts("").collect::<Vec<_>>(), [""]);
    }
}
