//! Runs of letters, digits, signs or blanks that are longer than any word. The library takes time that grows with the
//! square of a word's length to train on it, so long runs are cut.

/// Longest run that stays whole: more than any word, and so short that each of its bytes, as a character of two, fits
/// the longest token that a tokenizer may have.
const LONGEST_BYTES: usize = 2000;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Letter,
    Digit,
    Blank,
    Sign,
}

fn class(character: char) -> Class {
    if character.is_alphabetic() {
        Class::Letter
    } else if character.is_numeric() {
        Class::Digit
    } else if character.is_whitespace() {
        Class::Blank
    } else {
        Class::Sign
    }
}

/// The parts of `text`, in order: the whole, unless it has long runs, which are cut.
pub(crate) fn parts(text: &str) -> Vec<&str> {
    let (mut parts, mut part, mut run) = (vec![], 0, 0);
    let mut of_run = None;
    for (at, character) in text.char_indices() {
        let own = Some(class(character));
        if own != of_run {
            (run, of_run) = (at, own);
        } else if at - run >= LONGEST_BYTES {
            parts.push(&text[part..at]);
            (part, run) = (at, at);
        }
    }
    parts.push(&text[part..]);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_words_stay_whole() {
        let text = "some words, 12 numbers and signs!\n".repeat(10_000);
        assert_eq!(parts(&text), [text.as_str()]);
        let line = "a1.".repeat(100_000);
        assert_eq!(parts(&line), [line.as_str()]);
        assert_eq!(parts(""), [""]);
    }

    #[test]
    fn long_runs_are_cut_between_characters() {
        for letter in ["a", "7", " ", "-", "é", "漢"] {
            let text = format!("begin {} end", letter.repeat(100_000));
            let parts = parts(&text);
            assert_eq!(parts.concat(), text);
            let most = LONGEST_BYTES + "begin ".len() + letter.len();
            assert!(parts.len() > 5 && parts.iter().all(|part| part.len() <= most), "{letter:?}");
        }
    }
}
