//! The text of a model on the screen, as it comes.

use std::sync::Mutex;

use data::{TextStream, Tokenizer};
use run::failure::Failure;
use run::process_group::group::ProcessGroup;
use run::signals::interrupt::Interrupt;
use sync::{into_inner, lock};
use train::{Listener, StopRequest};

use crate::screen::output::{ModelText, read_or_failed};

/// Whether a signal reached any process.
pub struct Stopper<'a> {
    pub interrupt: &'a Interrupt,
    pub process_group: &'a ProcessGroup,
}

impl Stopper<'_> {
    fn is_pressed(&self) -> bool {
        match self.process_group {
            ProcessGroup::Alone => {}
            ProcessGroup::Several(member) => member.note_signal(self.interrupt),
        }
        self.interrupt.is_pressed()
    }
}

/// The ends of a text, which are not printed.
pub struct Ends<'a> {
    /// Tokens after which a text is complete.
    pub tokens: Vec<u32>,
    /// Texts before which it ends, none of them empty.
    pub texts: &'a [String],
}

impl Ends<'_> {
    /// Bytes of `text` before the first end, if there is one.
    fn before_end(&self, text: &str) -> Option<usize> {
        self.texts.iter().filter_map(|end| text.find(end.as_str())).min()
    }

    /// Bytes of `text`, which has no end, that belong to no end whatever follows.
    fn before_beginning(&self, text: &str) -> usize {
        let may_begin = |at: &usize| self.texts.iter().any(|end| end.starts_with(&text[*at..]));
        text.char_indices().map(|(at, _)| at).find(may_begin).unwrap_or(text.len())
    }
}

/// Prints characters as soon as they are whole, up to the end of the text.
pub struct Printer<'a> {
    ends: &'a Ends<'a>,
    stopper: Stopper<'a>,
    state: Mutex<State<'a>>,
}

struct State<'a> {
    output: ModelText,
    stream: TextStream<'a>,
    /// Text that is whole, and may be the beginning of an end.
    held_back: String,
    /// Whether the text is complete: tokens that still come belong to no text.
    is_complete: bool,
    failure: Option<Failure>,
}

impl<'a> Printer<'a> {
    /// Prints the prompt, given as text and as tokens.
    pub fn new(
        tokenizer: &'a Tokenizer,
        (prompt, tokens): (&str, &[i32]),
        ends: &'a Ends<'a>,
        stopper: Stopper<'a>,
        mut output: ModelText,
    ) -> Printer<'a> {
        // If nobody reads, the first token finds out.
        let _ = output.write(prompt);
        let tokens: Vec<u32> = tokens.iter().map(|token| token.unsigned_abs()).collect();
        let stream = TextStream::after(tokenizer, &tokens);
        let state = State { output, stream, held_back: String::new(), is_complete: false, failure: None };
        Printer { ends, stopper, state: Mutex::new(state) }
    }

    /// Prints the text that is still held back, and a line end.
    ///
    /// # Errors
    /// The first error of the tokenizer or of the output.
    pub fn finish(self) -> Result<(), Failure> {
        let State { mut output, stream, held_back, failure, .. } = into_inner(self.state);
        if let Some(failure) = failure {
            return Err(failure);
        }
        let text = held_back + &stream.finish().map_err(Failure::Work)?;
        let bytes = self.ends.before_end(&text).unwrap_or(text.len());
        read_or_failed(output.write(&format!("{}\n", &text[..bytes])))
    }
}

impl State<'_> {
    /// Prints the text that is whole with `token`; returns whether somebody reads on.
    fn add(&mut self, token: u32, ends: &Ends<'_>) -> Result<bool, Failure> {
        if ends.tokens.contains(&token) {
            self.is_complete = true;
            return Ok(true);
        }
        self.held_back += &self.stream.push(token).map_err(Failure::Work)?;
        if ends.before_end(&self.held_back).is_some() {
            // The text before the end is printed last.
            self.is_complete = true;
            return Ok(true);
        }
        let text: String = self.held_back.drain(..ends.before_beginning(&self.held_back)).collect();
        let written = self.output.write(&text);
        let is_read = written.is_ok();
        read_or_failed(written).map(|()| is_read)
    }
}

impl Listener for Printer<'_> {
    fn token(&self, token: i32) -> StopRequest {
        let mut state = lock(&self.state);
        if state.is_complete {
            return StopRequest::Stop;
        }
        match state.add(token.unsigned_abs(), self.ends) {
            Ok(true) if !state.is_complete && !self.stopper.is_pressed() => StopRequest::None,
            Ok(_) => StopRequest::Stop,
            Err(failure) => {
                state.failure = Some(failure);
                StopRequest::Stop
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::sync::Arc;

    use run::signal::Signal;

    use crate::screen::output::Reader;

    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().expect("no panic").write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// The text that is printed after each of `bytes`, and in the end.
    fn printed(prompt: &str, bytes: &[u8], ends: &Ends<'_>) -> (Vec<String>, String) {
        let (shared, tokenizer, interrupt) = (Shared::default(), Tokenizer::bytes(), Interrupt::default());
        let stopper = Stopper { interrupt: &interrupt, process_group: &ProcessGroup::Alone };
        let output = ModelText::new(Box::new(shared.clone()), Reader::Program);
        let tokens: Vec<i32> = prompt.bytes().map(i32::from).collect();
        let printer = Printer::new(&tokenizer, (prompt, &tokens), ends, stopper, output);
        let text = || String::from_utf8(shared.0.lock().expect("no panic").clone()).expect("text");
        let mut seen = vec![];
        for byte in bytes {
            let request = printer.token(i32::from(*byte));
            seen.push(text());
            if request == StopRequest::Stop {
                break;
            }
        }
        printer.finish().expect("printed");
        (seen, text())
    }

    #[test]
    fn characters_are_printed_when_they_are_whole() {
        let ends = Ends { tokens: vec![], texts: &[] };
        let bytes: Vec<u8> = "aé".bytes().chain([0xff, b'b', 0xc3]).collect();
        let (seen, whole) = printed("> ", &bytes, &ends);
        assert_eq!(seen, ["> a", "> a", "> aé", "> aé", "> aé\u{fffd}b", "> aé\u{fffd}b"]);
        assert_eq!(whole, "> aé\u{fffd}b\u{fffd}\n");
    }

    #[test]
    fn a_text_ends_before_its_end() {
        let texts = ["###".to_string(), "stop".to_string()];
        let ends = Ends { tokens: vec![0], texts: &texts };
        let (seen, whole) = printed("", b"a#b##s\0more", &ends);
        assert_eq!(seen, ["a", "a", "a#b", "a#b", "a#b", "a#b##", "a#b##"]);
        assert_eq!(whole, "a#b##s\n", "the beginning of an end that does not come is text");
        let (seen, whole) = printed("", b"a sto####more", &ends);
        assert_eq!(seen.last().map(String::as_str), Some("a sto"));
        assert_eq!((seen.len(), whole.as_str()), (8, "a sto\n"));
        assert_eq!(printed("x", b"stop", &ends).1, "x\n");
        assert_eq!(printed("x", b"\0", &ends).1, "x\n");
        assert_eq!(printed("x", &[0xc3, 0], &ends).1, "x\u{fffd}\n");
    }

    #[test]
    fn an_interrupt_ends_a_text() {
        let (shared, tokenizer, interrupt) = (Shared::default(), Tokenizer::bytes(), Interrupt::default());
        let stopper = Stopper { interrupt: &interrupt, process_group: &ProcessGroup::Alone };
        let ends = Ends { tokens: vec![], texts: &[] };
        let output = ModelText::new(Box::new(shared.clone()), Reader::Program);
        let printer = Printer::new(&tokenizer, ("> ", &[]), &ends, stopper, output);
        assert_eq!(printer.token(i32::from(b'a')), StopRequest::None);
        interrupt.note(Signal::Interrupt.number());
        assert_eq!(printer.token(i32::from(b'!')), StopRequest::Stop);
        printer.finish().expect("printed");
        assert_eq!(*shared.0.lock().expect("no panic"), b"> a!\n");
    }
}
