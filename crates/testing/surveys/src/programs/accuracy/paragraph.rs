//! Paragraphs of the page, in lines of at most 120 columns.

const COLUMNS: usize = 120;

/// `text` as one paragraph, with an empty line before and the end of its last line.
pub fn paragraph(text: &str) -> String {
    format!("\n{}\n", lines(text, COLUMNS).join("\n"))
}

/// `text` as an item of a list, with the end of its last line.
pub fn item(text: &str) -> String {
    const MARK: &str = "- ";
    format!("{MARK}{}\n", lines(text, COLUMNS - MARK.len()).join("\n  "))
}

fn lines(text: &str, columns: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.chars().count() + 1 + word.chars().count() <= columns => {
                line.push(' ');
                line.push_str(word);
            }
            Some(_) | None => lines.push(word.into()),
        }
    }
    lines
}
