//! The XML of stores: elements with text. Declarations of types, entities but those of XML itself, sections of raw
//! text, comments and instructions are refused, for stores do not send them.

use std::borrow::Cow;

/// Elements inside of another; answers of stores have at most 5.
const MAX_DEPTH: usize = 16;

/// A part of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    Open(&'a str),
    /// The text between two tags, if there is more than spaces.
    Text(Cow<'a, str>),
    Close(&'a str),
}

/// Text that is not a document of a store.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not the XML of a store: {reason} at byte {at}")]
pub struct XmlError {
    reason: &'static str,
    at: usize,
}

/// The parts of a document, one after another; nothing after an error.
pub struct Events<'a> {
    text: &'a str,
    at: usize,
    open: Vec<&'a str>,
    /// The end of an element without content, `<a/>`.
    close: Option<&'a str>,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    BeforeRoot,
    Inside,
    AfterRoot,
    Failed,
}

impl<'a> Events<'a> {
    /// Of the document `text`.
    pub fn new(text: &'a str) -> Events<'a> {
        let start = text.trim_start_matches('\u{feff}').trim_start();
        let declaration = start.strip_prefix("<?xml ").and_then(|rest| rest.split_once("?>"));
        let rest = declaration.map_or(start, |(_, rest)| rest);
        Events { text, at: text.len() - rest.len(), open: vec![], close: None, state: State::BeforeRoot }
    }

    /// The next part; `None` at the end.
    fn step(&mut self) -> Result<Option<Event<'a>>, &'static str> {
        if let Some(name) = self.close.take() {
            return self.closed(name).map(Some);
        }
        let rest = &self.text[self.at..];
        let end = rest.find('<').unwrap_or(rest.len());
        if end > 0 {
            let text = &rest[..end];
            self.at += end;
            return match self.state {
                _ if text.trim().is_empty() => self.step(),
                State::Inside => Ok(Some(Event::Text(unescaped(text)?))),
                State::BeforeRoot | State::AfterRoot | State::Failed => Err("text outside of all elements"),
            };
        }
        if rest.is_empty() {
            return if self.state == State::AfterRoot { Ok(None) } else { Err("no end of an element") };
        }
        self.tag(&rest[1..]).map(Some)
    }

    /// The tag whose text after `<` begins `rest`.
    fn tag(&mut self, rest: &'a str) -> Result<Event<'a>, &'static str> {
        let end = rest.find('>').ok_or("no end of a tag")?;
        let tag = &rest[..end];
        self.at += end + 2;
        if let Some(name) = tag.strip_prefix('/') {
            return self.closed(name.trim_end());
        }
        let (tag, is_empty) = tag.strip_suffix('/').map_or((tag, false), |tag| (tag, true));
        // Attributes, such as the name space of the document, say nothing that is read.
        let (name, attributes) = tag.split_once(|letter: char| letter.is_ascii_whitespace()).unwrap_or((tag, ""));
        let is_name = |letter: char| letter.is_ascii_alphanumeric() || ['_', '-', '.', ':'].contains(&letter);
        if name.is_empty() || !name.chars().all(is_name) || attributes.contains('<') {
            return Err("no name of an element");
        }
        if self.state == State::AfterRoot {
            return Err("a second root");
        }
        if self.open.len() == MAX_DEPTH {
            return Err("too many elements inside of another");
        }
        self.state = State::Inside;
        self.open.push(name);
        self.close = is_empty.then_some(name);
        Ok(Event::Open(name))
    }

    fn closed(&mut self, name: &'a str) -> Result<Event<'a>, &'static str> {
        if self.open.pop() != Some(name) {
            return Err("the end of another element");
        }
        if self.open.is_empty() {
            self.state = State::AfterRoot;
        }
        Ok(Event::Close(name))
    }
}

impl<'a> Iterator for Events<'a> {
    type Item = Result<Event<'a>, XmlError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.state == State::Failed {
            return None;
        }
        let at = self.at;
        self.step()
            .map_err(|reason| {
                self.state = State::Failed;
                XmlError { reason, at }
            })
            .transpose()
    }
}

/// The text of elements by their path below the root, in the order of the document: `each(path, text)`. The path of an
/// element without elements inside is given when it ends, and so is that of one with elements inside, with no text.
///
/// # Errors
/// Another root than `root`, and text that is not a document.
pub fn walk(text: &str, root: &str, mut each: impl FnMut(&[&str], &str)) -> Result<(), XmlError> {
    let (mut path, mut content) = (vec![], String::new());
    for event in Events::new(text) {
        match event? {
            Event::Open(name) if path.is_empty() && name != root => {
                return Err(XmlError { reason: "another root", at: 0 });
            }
            Event::Open(name) => {
                path.push(name);
                content.clear();
            }
            Event::Text(part) => content += &part,
            Event::Close(_) => {
                each(&path[1..], &content);
                path.pop();
                content.clear();
            }
        }
    }
    Ok(())
}

/// `text` with characters in place of their names and numbers.
fn unescaped(text: &str) -> Result<Cow<'_, str>, &'static str> {
    if !text.contains('&') {
        return Ok(Cow::Borrowed(text));
    }
    let mut parts = text.split('&');
    let mut out = parts.next().unwrap_or_default().to_string();
    for part in parts {
        let (name, rest) = part.split_once(';').ok_or("no end of an entity")?;
        out.push(character(name).ok_or("an unknown entity")?);
        out += rest;
    }
    Ok(Cow::Owned(out))
}

fn character(name: &str) -> Option<char> {
    match name {
        "lt" => Some('<'),
        "gt" => Some('>'),
        "amp" => Some('&'),
        "quot" => Some('"'),
        "apos" => Some('\''),
        _ => {
            let digits = name.strip_prefix('#')?;
            let (digits, radix) = digits.strip_prefix('x').map_or((digits, 10), |digits| (digits, 16));
            let is_number = digits.chars().all(|digit| digit.is_digit(radix));
            char::from_u32(u32::from_str_radix(digits, radix).ok().filter(|_| is_number)?)
        }
    }
}

/// `text` as the content of an element.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn walked(text: &str) -> Result<Vec<String>, String> {
        let mut found = vec![];
        walk(text, "Root", |path, text| found.push(format!("{}={text}", path.join("/")))).map_err(|e| e.to_string())?;
        Ok(found)
    }

    #[test]
    fn elements_are_read_by_their_paths() {
        let text = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Root xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">\n\
                    <Key>a &amp; b&#x20;&lt;&#49;&quot;</Key><Empty/><In><Key>x</Key></In ></Root>\n";
        let found = walked(text).expect("a document");
        assert_eq!(found, ["Key=a & b <1\"", "Empty=", "In/Key=x", "In=", "="]);
        assert_eq!(walked("<Root></Root>"), Ok(vec!["=".to_string()]));
        assert_eq!(escaped("\"a<&>b\""), "&quot;a&lt;&amp;&gt;b&quot;");
    }

    #[test]
    fn what_stores_do_not_send_is_refused() {
        let deep = format!("<Root>{}", "<a>".repeat(20));
        for (text, reason) in [
            ("", "no end of an element at byte 0"),
            ("<Root>", "no end of an element at byte 6"),
            ("<Root", "no end of a tag"),
            ("<Root></Other>", "the end of another element at byte 6"),
            ("<Root></Root><Root/>", "a second root"),
            ("<Other/>", "another root"),
            ("text", "text outside of all elements"),
            ("<Root></Root>text", "text outside of all elements"),
            ("<!DOCTYPE a [<!ENTITY b \"c\">]><Root/>", "no name of an element"),
            ("<Root>&b;</Root>", "an unknown entity"),
            ("<Root>&#xD800;</Root>", "an unknown entity"),
            ("<Root>&#+65;</Root>", "an unknown entity"),
            ("<Root>&amp</Root>", "no end of an entity"),
            ("<Root><![CDATA[a]]></Root>", "no name of an element"),
            ("<Root><!-- a --></Root>", "no name of an element"),
            ("<Root><?a?></Root>", "no name of an element"),
            (deep.as_str(), "too many elements inside of another"),
        ] {
            let error = walked(text).expect_err(text);
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
