//! Files that cannot be written: the error, the room of the disk, and the remedy.

use std::io::{self, ErrorKind};
use std::path::Path;

use checkpoint::CheckpointError;
use config::figures::bytes;

/// That the file `path` cannot be written.
pub fn unwritten(path: &Path, error: &io::Error) -> String {
    format!("{} cannot be written: {error}{}", path.display(), remedy(path, error))
}

/// That a checkpoint cannot be written.
pub fn unwritten_checkpoint(error: &CheckpointError) -> String {
    match error {
        CheckpointError::Write { path, reason } => format!("{error}{}", remedy(path, reason)),
        CheckpointError::Locked { .. }
        | CheckpointError::Exists { .. }
        | CheckpointError::State(_)
        | CheckpointError::Process(_)
        | CheckpointError::Incomplete { .. }
        | CheckpointError::Read { .. }
        | CheckpointError::None { .. }
        | CheckpointError::Manifest { .. }
        | CheckpointError::Newer { .. }
        | CheckpointError::Length { .. }
        | CheckpointError::Block { .. }
        | CheckpointError::Header { .. }
        | CheckpointError::NoTensor { .. }
        | CheckpointError::Uncovered { .. } => error.to_string(),
    }
}

/// The remedy for an error whose message does not tell it.
fn remedy(path: &Path, error: &io::Error) -> String {
    if error.kind() == ErrorKind::FileTooLarge {
        "; `ulimit -f` shows the limit of this process".into()
    } else if files::is_full(error) {
        let room = files::disk_space_at(path).map_or(String::new(), |room| {
            format!(" ({} of {} are free)", bytes(room.free_bytes), bytes(room.all_bytes))
        });
        format!("; its disk or quota has no room for it{room}: free some, or use a smaller run.keep_newest")
    } else {
        String::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_named_with_its_room() {
        let (path, full) = (std::env::temp_dir().join("step-00000002"), || io::Error::from_raw_os_error(28));
        let text = unwritten(&path, &full());
        let start = format!(
            "{} cannot be written: No space left on device (os error 28); its disk or quota has no room for it (",
            path.display()
        );
        assert!(text.starts_with(&start), "{text}");
        assert!(text.ends_with(" are free): free some, or use a smaller run.keep_newest"), "{text}");
        let of_checkpoint = unwritten_checkpoint(&CheckpointError::Write { path: path.clone(), reason: full() });
        assert!(of_checkpoint.contains("; earlier checkpoints are as they were; its disk or quota has no room"));
        let denied = unwritten(Path::new("a"), &ErrorKind::PermissionDenied.into());
        assert_eq!(denied, "a cannot be written: permission denied");
    }
}
