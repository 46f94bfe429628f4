//! The records of the steps before a resumption, which stay in the file of records.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::Path;

use files::Draft;

/// The most bytes of a line; a longer one has no record.
const LINE_BYTES: u64 = 16 << 20;

/// Makes the lines `before` of the first `steps` steps all that is in the file `to`. A line that was cut off, or with
/// other bytes than text, has no step.
///
/// # Errors
/// A file that cannot be read or written; what is there stays.
pub fn keep_records(before: File, to: &Path, steps: u32) -> io::Result<()> {
    let permissions = before.metadata()?.permissions();
    let (mut before, draft) = (BufReader::new(before), Draft::create(to)?);
    let mut kept = BufWriter::new(&draft.file);
    let mut line = vec![];
    while before.by_ref().take(LINE_BYTES).read_until(b'\n', &mut line)? > 0 {
        let record: Option<serde_json::Value> = serde_json::from_slice(&line).ok();
        let step = record.and_then(|record| record["step"].as_u64());
        if step.is_some_and(|step| step <= u64::from(steps)) {
            kept.write_all(line.trim_ascii_end())?;
            kept.write_all(b"\n")?;
        }
        line.clear();
    }
    kept.flush()?;
    drop(kept);
    fs::set_permissions(draft.temporary(), permissions)?;
    draft.keep()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_done_steps_stay_whatever_else_is_in_the_file() {
        let folder = std::env::temp_dir().join(format!("pleach-records-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let path = folder.join("metrics.jsonl");
        let text: &[u8] =
            b"{\"step\":1,\"loss\":2}\r\n\xff\xfe\n\n{\"step\":2}\n{\"step\":3}\n{\"loss\":1}\n{\"step\":1,\"lo";
        fs::write(&path, text).expect("a file");
        keep_records(File::open(&path).expect("a file"), &path, 2).expect("written");
        assert_eq!(fs::read_to_string(&path).expect("text"), "{\"step\":1,\"loss\":2}\n{\"step\":2}\n");
        assert_eq!(fs::read_dir(&folder).expect("a folder").count(), 1);
        fs::remove_dir_all(&folder).expect("removed");
    }
}
