//! The two streams: a reader may close its end, and the disk of a file may be full.

use std::io::{self, ErrorKind, IsTerminal, Write};

use run::failure::Failure;
use run::messages::stderr::{without_codes, write_message};

/// Prints results to the standard output. A reader who closed the pipe has read enough. Names out of files of others
/// may be in them: characters that steer a terminal are written as numbers.
///
/// # Errors
/// Output that cannot be written.
pub fn print(text: &str) -> Result<(), Failure> {
    print_to(&mut io::stdout().lock(), text)
}

fn print_to(out: &mut dyn Write, text: &str) -> Result<(), Failure> {
    read_or_failed(write_message(out, text))
}

/// `written`, where a closed pipe is not a failure.
///
/// # Errors
/// Output that cannot be written.
pub fn read_or_failed(written: io::Result<()>) -> Result<(), Failure> {
    match written {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::Write(format!("the output cannot be written: {error}")))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Who reads a text that a model makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// A program or a file, which receives every byte as it is.
    Program,
    /// A terminal, which receives characters that steer it as numbers.
    Terminal,
}

/// The text that a model makes, as it comes.
pub struct ModelText {
    out: Box<dyn Write + Send>,
    reader: Reader,
}

impl ModelText {
    /// A text for `reader`.
    pub fn new(out: Box<dyn Write + Send>, reader: Reader) -> ModelText {
        ModelText { out, reader }
    }

    /// The standard output, for whoever reads it.
    pub fn to_standard_output() -> ModelText {
        let reader = if io::stdout().is_terminal() { Reader::Terminal } else { Reader::Program };
        ModelText::new(Box::new(io::stdout()), reader)
    }

    /// Writes whole characters.
    ///
    /// # Errors
    /// Output that cannot be written.
    pub fn write(&mut self, text: &str) -> io::Result<()> {
        match self.reader {
            Reader::Program => self.out.write_all(text.as_bytes()),
            Reader::Terminal => self.out.write_all(without_codes(text).as_bytes()),
        }
        .and_then(|()| self.out.flush())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_do_not_steer_the_terminal_and_stay_json() {
        let mut printed = Vec::new();
        print_to(&mut printed, "{\"name\":\t\"\u{7f}\u{9b}31m\u{202e}é\"}\n").expect("printed");
        assert_eq!(String::from_utf8_lossy(&printed), "{\"name\":\t\"\\u007f\\u009b31m\\u202eé\"}\n");
        let value = serde_json::from_slice::<serde_json::Value>(&printed).expect("JSON");
        assert_eq!(value["name"], "\u{7f}\u{9b}31m\u{202e}é");
    }

    #[test]
    fn the_text_of_a_model_is_exact_for_programs_and_harmless_on_terminals() {
        let kept = |reader| {
            let kept = std::env::temp_dir().join(format!("pleach-model-text-{reader:?}-{}", std::process::id()));
            let mut text = ModelText::new(Box::new(std::fs::File::create(&kept).expect("a file")), reader);
            ["\x1b[31m", "é\r\n", "\u{9b}"].iter().for_each(|part| text.write(part).expect("written"));
            let read = std::fs::read_to_string(&kept).expect("text");
            std::fs::remove_file(&kept).expect("removed");
            read
        };
        assert_eq!(kept(Reader::Program), "\x1b[31mé\r\n\u{9b}");
        assert_eq!(kept(Reader::Terminal), "\\u001b[31mé\\u000d\n\\u009b");
    }

    struct FailingWriter(ErrorKind);

    impl Write for FailingWriter {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_closed_pipe_is_an_end_and_a_full_disk_a_failure() {
        assert!(print_to(&mut FailingWriter(ErrorKind::BrokenPipe), "text").is_ok());
        let failure = print_to(&mut FailingWriter(ErrorKind::StorageFull), "text").expect_err("a failure");
        assert!(matches!(&failure, Failure::Write(told) if told.starts_with("the output cannot be written: ")));
    }
}
