//! Texts of a drawing: escaped, and no wider than their room.

/// The largest and the smallest size of a title.
const SIZES: [f64; 7] = [17.0, 16.0, 15.0, 14.0, 13.0, 12.0, 11.0];

/// A text with the size at which it fits.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Fitted {
    pub(crate) text: String,
    pub(crate) size: f64,
    /// Whether its end is missing.
    pub(crate) is_cut: bool,
}

/// `text` within `width`, smaller than `largest` if it must be, and cut where it is too wide even then.
pub(crate) fn fitted(text: &str, width: f64, largest: f64) -> Fitted {
    let smallest = SIZES[SIZES.len() - 1];
    let size = SIZES.into_iter().filter(|size| *size <= largest).find(|size| columns(text) * size <= width);
    if let Some(size) = size {
        return Fitted { text: text.into(), size, is_cut: false };
    }
    let mut cut = String::new();
    for letter in text.chars() {
        if (columns(&cut) + columns("M…")) * smallest > width {
            break;
        }
        cut.push(letter);
    }
    Fitted { text: cut.trim_end().to_string() + "…", size: smallest, is_cut: true }
}

/// The width of a bold text in units of its size, about: that of DejaVu Sans, which is wider than the fonts that take
/// its place.
fn columns(text: &str) -> f64 {
    text.chars().map(width_of).sum()
}

fn width_of(letter: char) -> f64 {
    match letter {
        'i' | 'j' | 'l' | 'I' | '\'' | '.' | ',' | ':' | ';' | ' ' | '/' | '|' => 0.40,
        'f' | 't' | 'r' | '(' | ')' | '-' => 0.50,
        'm' | 'M' | 'w' | 'W' | '%' | '@' | '…' => 1.10,
        'a'..='z' | '0'..='9' => 0.72,
        // Letters of other scripts may be as wide as they are high.
        _ if letter.is_ascii() => 0.84,
        _ => 1.10,
    }
}

pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_becomes_smaller_before_it_is_cut() {
        let short = fitted("gpt", 1000.0, 17.0);
        assert_eq!(short, Fitted { text: "gpt".into(), size: 17.0, is_cut: false });
        let long = "a model of ".repeat(9);
        let smaller = fitted(&long, 800.0, 17.0);
        assert!(
            smaller.size < 17.0 && !smaller.is_cut && columns(&smaller.text) * smaller.size <= 800.0,
            "{smaller:?}"
        );
        let cut = fitted(&long.repeat(3), 800.0, 17.0);
        assert!(cut.is_cut && cut.text.ends_with('…') && columns(&cut.text) * cut.size <= 800.0, "{cut:?}");
        assert_eq!(fitted("a", 1.0, 13.0).text, "…");
    }

    #[test]
    fn texts_do_not_end_their_element() {
        assert_eq!(escaped("<a b=\"c\">&"), "&lt;a b=&quot;c&quot;&gt;&amp;");
    }
}
