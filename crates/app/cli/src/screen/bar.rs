//! The last line of a terminal while a run continues: a bar with the newest step, below the lines that stay.

use std::io::{self, Write};
use std::time::{Duration, Instant};

const BAR_COLUMNS: usize = 16;
/// Columns of a window that is too narrow for the bar: the newest step alone is its last line.
const NARROW: usize = 45;
/// Columns that stay free: a terminal writes `^C` after the line, which must not continue on the next one.
const FREE_COLUMNS: usize = 5;
/// Time from one drawing to the next.
const PAUSE: Duration = Duration::from_millis(50);
/// The beginning of the line, which is then empty.
const EMPTY_LINE: &str = "\r\x1b[2K";

/// The line. It never ends in a newline, so that it is written over.
pub struct Bar {
    out: Box<dyn Write + Send>,
    steps: u32,
    done: u32,
    message: String,
    columns: usize,
    drawn_at: Option<Instant>,
}

impl Bar {
    /// Of a run of `steps` steps, of which `done` were done before. Nothing is drawn before the first step.
    pub fn new(out: Box<dyn Write + Send>, done: u32, steps: u32) -> Bar {
        Bar { out, steps, done, message: String::new(), columns: 0, drawn_at: None }
    }

    /// Columns of its message in a window of `columns`.
    pub fn message_columns(columns: usize) -> usize {
        let bar = if columns < NARROW { 0 } else { BAR_COLUMNS + 1 };
        columns.saturating_sub(bar + FREE_COLUMNS)
    }

    /// A step more in a window of `columns`, with a line that stays if it has one. Steps that follow each other at once
    /// are not all drawn.
    ///
    /// # Errors
    /// The terminal's.
    pub fn advance(&mut self, line: Option<&str>, message: String, columns: usize) -> io::Result<()> {
        self.done += 1;
        (self.message, self.columns) = (message, columns);
        match line {
            Some(line) => {
                self.write_line(line)?;
                self.draw()
            }
            None if self.drawn_at.is_none_or(|drawn_at| drawn_at.elapsed() >= PAUSE) => self.draw(),
            None => Ok(()),
        }
    }

    /// A line above it that stays.
    ///
    /// # Errors
    /// The terminal's.
    pub fn say_above(&mut self, text: &str) -> io::Result<()> {
        self.write_line(text)?;
        if self.drawn_at.is_some() { self.draw() } else { self.out.flush() }
    }

    fn write_line(&mut self, text: &str) -> io::Result<()> {
        let place = if self.drawn_at.is_some() { EMPTY_LINE } else { "" };
        writeln!(self.out, "{place}{text}")
    }

    /// The line goes, until the next step.
    ///
    /// # Errors
    /// The terminal's.
    pub fn clear(&mut self) -> io::Result<()> {
        if self.drawn_at.take().is_some() {
            self.out.write_all(EMPTY_LINE.as_bytes())?;
        }
        self.out.flush()
    }

    /// Nothing in a window in which the line would continue on the next one: only its last part would be written over.
    fn draw(&mut self) -> io::Result<()> {
        if letters(&self.message) > Bar::message_columns(self.columns) {
            return self.clear();
        }
        let full = (u64::from(self.done.min(self.steps)) * BAR_COLUMNS as u64 / u64::from(self.steps.max(1))) as usize;
        let (full, empty) = ("█".repeat(full), "░".repeat(BAR_COLUMNS - full));
        let bar = if self.columns < NARROW { String::new() } else { format!("{full}{empty} ") };
        write!(self.out, "{EMPTY_LINE}{bar}{}", self.message)?;
        self.drawn_at = Some(Instant::now());
        self.out.flush()
    }
}

/// Columns of a text with colours, whose codes take none.
fn letters(text: &str) -> usize {
    let mut in_code = false;
    let is_letter = |c: &char| {
        let was_in_code = in_code;
        in_code = *c == '\x1b' || in_code && *c != 'm';
        !in_code && !was_in_code
    };
    text.chars().filter(is_letter).count()
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct SharedBuffer(Arc<Mutex<Vec<u8>>>);

    impl Write for SharedBuffer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("a lock").extend(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_is_written_over() {
        let kept = SharedBuffer::default();
        let mut bar = Bar::new(Box::new(kept.clone()), 3, 8);
        bar.say_above("before").expect("written");
        bar.advance(None, "step 4".into(), 80).expect("written");
        bar.say_above("note").expect("written");
        bar.advance(Some("stays"), "step 5".into(), 80).expect("written");
        bar.clear().expect("written");
        bar.clear().expect("written");
        let text = String::from_utf8(kept.0.lock().expect("a lock").clone()).expect("text");
        let (four, five) = ("\r\x1b[2K████████░░░░░░░░ step 4", "\r\x1b[2K██████████░░░░░░ step 5");
        assert_eq!(text, format!("before\n{four}\r\x1b[2Knote\n{four}\r\x1b[2Kstays\n{five}\r\x1b[2K"));
        assert_eq!((Bar::message_columns(80), Bar::message_columns(30), Bar::message_columns(5)), (58, 25, 0));
    }

    #[test]
    fn a_narrow_window_has_no_bar_and_a_narrower_one_no_line() {
        let written = |columns: usize| {
            let kept = SharedBuffer::default();
            let mut bar = Bar::new(Box::new(kept.clone()), 0, 8);
            bar.advance(Some("stays"), "\x1b[2mstep\x1b[0m 1/8".into(), columns).expect("written");
            String::from_utf8(kept.0.lock().expect("a lock").clone()).expect("text")
        };
        assert_eq!(written(13), "stays\n\r\x1b[2K\x1b[2mstep\x1b[0m 1/8");
        assert_eq!(written(12), "stays\n");
        assert_eq!(letters("\x1b[31mé\x1b[0m b"), 3);
    }
}
