//! Output of a process on the standard error of this one, line by line with a label.

use std::io::{BufRead, BufReader, Read, Write};
use std::thread::JoinHandle;

/// Longest piece of a line that is kept together.
const MAX_LINE: u64 = 64 << 10;

/// Copies `output` on a thread of its own until it ends.
pub fn copy(output: impl Read + Send + 'static, label: String) -> JoinHandle<()> {
    std::thread::spawn(move || copy_to(output, &label, |line| drop(std::io::stderr().lock().write_all(line))))
}

/// Calls `write` with each labelled line of `output`, whole, so that lines of different processes do not mix.
fn copy_to(output: impl Read, label: &str, mut write: impl FnMut(&[u8])) {
    let mut reader = BufReader::new(output);
    loop {
        let mut line = label.as_bytes().to_vec();
        let read = reader.by_ref().take(MAX_LINE).read_until(b'\n', &mut line);
        match read {
            Ok(0) | Err(_) => return,
            Ok(_) if line.ends_with(b"\n") => {}
            Ok(_) => line.push(b'\n'),
        }
        write(&line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_has_the_label() {
        let mut lines = vec![];
        copy_to(&b"one\n\ntwo\nlast"[..], "[3] ", |line| lines.push(String::from_utf8_lossy(line).into_owned()));
        assert_eq!(lines, ["[3] one\n", "[3] \n", "[3] two\n", "[3] last\n"]);
    }
}
