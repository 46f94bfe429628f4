//! Long files on their way to a store, in parts.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::thread;
use std::time::{Duration, Instant};

use ureq::http::StatusCode;

use crate::attempts::Attempts;
use crate::bucket::Bucket;
use crate::error::StoreError;
use crate::failure::{About, Failure};
use crate::http::AttemptKind;

/// Time in which the parts of a failed upload are discarded.
const DISCARD: Duration = Duration::from_secs(5);

/// The parts of a file that is uploaded.
#[derive(Clone, Copy, Debug)]
pub struct Parts {
    pub bytes: u64,
    pub part_bytes: u64,
    /// Parts that are sent at the same time, and are in memory.
    pub together: usize,
}

/// The end of an upload that did not fail.
enum Sent {
    Whole,
    /// The store has lost its parts, as after an answer that was lost.
    Gone(Failure),
}

/// Makes `file` the object `key` in `parts`. Nothing is there before all parts are; the store discards the parts of an
/// upload that fails, if it can be reached, and else its rules remove them.
///
/// # Errors
/// See [`StoreError`].
pub fn upload(
    bucket: &Bucket,
    key: &str,
    parts: Parts,
    file: &mut File,
    mut attempts: Attempts<'_>,
) -> Result<(), StoreError> {
    // Bytes of the upload that came furthest: parts that are sent again are not progress.
    let mut furthest = 0;
    loop {
        let id = attempts.until_done(|end, _| bucket.begin_upload(key, end))?;
        let sent = Upload { bucket, key, id: &id }.send(parts, file, &mut furthest, &mut attempts);
        let gone = match sent {
            Ok(Sent::Whole) => return Ok(()),
            Ok(Sent::Gone(failure)) => Ok(failure),
            Err(error) => Err(error),
        };
        let _ = bucket.discard_upload(key, &id, Instant::now() + DISCARD);
        attempts.wait_after(gone?)?;
    }
}

/// An upload that was begun.
struct Upload<'a> {
    bucket: &'a Bucket,
    key: &'a str,
    id: &'a str,
}

impl Upload<'_> {
    fn send(
        &self,
        parts: Parts,
        file: &mut File,
        furthest: &mut u64,
        attempts: &mut Attempts<'_>,
    ) -> Result<Sent, StoreError> {
        file.seek(SeekFrom::Start(0))?;
        let (mut sent, mut tags) = (0, vec![]);
        while sent < parts.bytes {
            let mut group = vec![];
            while group.len() < parts.together && sent < parts.bytes {
                let mut part = vec![0; parts.part_bytes.min(parts.bytes - sent) as usize];
                file.read_exact(&mut part)?;
                sent += part.len() as u64;
                group.push(part);
            }
            match self.send_group(&group, tags.len() + 1, attempts)? {
                Ok(of_group) => tags.extend(of_group),
                Err(failure) => return Ok(Sent::Gone(failure)),
            }
            if sent > *furthest {
                *furthest = sent;
                attempts.progress();
            }
        }
        loop {
            let end = attempts.end();
            match attempts.while_reported(|| self.bucket.end_upload(self.key, self.id, &tags, end)) {
                Ok(()) => return Ok(Sent::Whole),
                Err(failure) if is_gone(&failure) => return Ok(Sent::Gone(failure)),
                Err(failure) => attempts.wait_after(failure)?,
            }
        }
    }

    /// Sends the parts of `group`, whose first has the number `first`, at the same time, and those that fail again;
    /// returns their tags. The inner error is that of parts that are gone.
    fn send_group(
        &self,
        group: &[Vec<u8>],
        first: usize,
        attempts: &mut Attempts<'_>,
    ) -> Result<Result<Vec<String>, Failure>, StoreError> {
        let mut tags: Vec<Option<String>> = vec![None; group.len()];
        loop {
            let (end, attempt_kind) = (attempts.end(), attempts.attempt_kind());
            let missing: Vec<usize> = (0..group.len()).filter(|at| tags[*at].is_none()).collect();
            let sent = attempts.while_reported(|| self.send_together(group, first, &missing, end, attempt_kind));
            let mut failed = None;
            for (at, result) in missing.into_iter().zip(sent) {
                match result {
                    Ok(tag) => tags[at] = Some(tag),
                    Err(failure) if is_gone(&failure) => return Ok(Err(failure)),
                    Err(failure) => failed = Some(failure),
                }
            }
            match failed {
                None => return Ok(Ok(tags.into_iter().flatten().collect())),
                Some(failure) => attempts.wait_after(failure)?,
            }
        }
    }

    fn send_together(
        &self,
        group: &[Vec<u8>],
        first: usize,
        missing: &[usize],
        end: Instant,
        attempt_kind: AttemptKind,
    ) -> Vec<Result<String, Failure>> {
        let send = |at: usize| self.bucket.put_part(self.key, self.id, first + at, &group[at], end, attempt_kind);
        thread::scope(|scope| {
            let threads: Vec<_> =
                missing.iter().map(|at| (*at, thread::Builder::new().spawn_scoped(scope, move || send(*at)))).collect();
            let failed = || Failure::Line("a thread of the upload ended".into());
            threads
                .into_iter()
                .map(|(at, thread)| match thread {
                    Ok(thread) => thread.join().unwrap_or_else(|_| Err(failed())),
                    // A system without another thread sends one part after another.
                    Err(_) => send(at),
                })
                .collect()
        })
    }
}

/// Whether the store does not know the upload, or not all of its parts.
fn is_gone(failure: &Failure) -> bool {
    match failure {
        Failure::Answer { answer, about: About::Parts } => {
            answer.status == StatusCode::NOT_FOUND && answer.code() != Some("NoSuchBucket")
                || matches!(answer.code(), Some("InvalidPart" | "NoSuchUpload"))
        }
        Failure::Answer { about: About::Object | About::Place, .. }
        | Failure::Line(_)
        | Failure::Lasting(_)
        | Failure::Changed
        | Failure::Denied(_)
        | Failure::NoRole(_) => false,
    }
}
