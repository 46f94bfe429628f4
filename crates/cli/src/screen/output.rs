//! The two streams: a reader may go away, and a file behind them may find its disk full.

use std::io::{self, ErrorKind, Write};

use crate::failure::Failure;

/// Prints results to the standard output. A reader who closed the pipe has read enough.
///
/// # Errors
/// Output that cannot be written.
pub fn print(text: &str) -> Result<(), Failure> {
    print_to(&mut io::stdout().lock(), text)
}

fn print_to(out: &mut dyn Write, text: &str) -> Result<(), Failure> {
    read_or_failed(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
}

/// `written`, where a closed pipe is no failure.
///
/// # Errors
/// Output that cannot be written.
pub fn read_or_failed(written: io::Result<()>) -> Result<(), Failure> {
    match written {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::Work(format!("the output cannot be written: {error}")))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Tells people something on the standard error. Nothing depends on whether it arrives.
pub fn tell(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Broken(ErrorKind);

    impl Write for Broken {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_closed_pipe_is_an_end_and_a_full_disk_a_failure() {
        assert!(print_to(&mut Broken(ErrorKind::BrokenPipe), "text").is_ok());
        let failure = print_to(&mut Broken(ErrorKind::StorageFull), "text").expect_err("a failure");
        assert!(matches!(&failure, Failure::Work(told) if told.starts_with("the output cannot be written: ")));
    }
}
