//! The body of an object on its way to a file.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::time::Instant;

use crate::attempts::Attempts;
use crate::error::StoreError;
use crate::failure::Failure;
use crate::http::{Limit, Method, Response};
use crate::object::Object;
use crate::place::Place;

/// Bytes that are written at once.
const PART_BYTES: usize = 128 << 10;

/// Why a body did not arrive whole.
enum Interrupted {
    Disk(io::Error),
    Request(Failure),
}

impl From<Failure> for Interrupted {
    fn from(failure: Failure) -> Interrupted {
        Interrupted::Request(failure)
    }
}

/// Replaces the content of `file` by the object at `path`, which must still be `object`. A body that breaks off is
/// continued where the server has ranges and a tag by which the rest is known to be of the same object, and begun again
/// elsewhere.
///
/// # Errors
/// See [`StoreError`].
pub fn download(
    place: &Place,
    path: &str,
    object: &Object,
    file: &mut File,
    mut attempts: Attempts<'_>,
) -> Result<(), StoreError> {
    // Bytes in the file, and the most that there were.
    let (mut done, mut furthest) = (0, 0);
    let tag = object.tag.as_deref().filter(|tag| is_of_bytes(tag));
    loop {
        let end = attempts.end();
        let failure = match attempts.while_reported(|| copy(place, path, object, file, &mut done, end)) {
            Ok(()) => return Ok(()),
            Err(Interrupted::Disk(error)) => return Err(error.into()),
            Err(Interrupted::Request(failure)) => failure,
        };
        attempts.arrived(done.saturating_sub(furthest));
        furthest = furthest.max(done);
        if tag.is_none() || done >= object.bytes {
            done = 0;
        }
        attempts.wait_after(failure)?;
    }
}

/// Whether a tag says that all bytes are the same, and not only their meaning.
fn is_of_bytes(tag: &str) -> bool {
    !tag.starts_with("W/")
}

/// Appends the body to `file`, part by part as they arrive, from byte `*done` on; adds to it the bytes that were
/// written.
fn copy(
    place: &Place,
    path: &str,
    object: &Object,
    file: &mut File,
    done: &mut u64,
    end: Instant,
) -> Result<(), Interrupted> {
    let mut headers = vec![];
    headers.extend(object.tag.clone().filter(|tag| is_of_bytes(tag)).map(|tag| ("if-match", tag)));
    if *done > 0 {
        headers.push(("range", format!("bytes={done}-")));
    }
    let mut response = place.ask(Method::Get, path, &headers, Limit::Beginning(end))?;
    if response.status.as_u16() != 206 {
        // A server without ranges sends all of it again.
        *done = 0;
    }
    // Where it sends another part, the next attempt is for all of it.
    check(&response, object, *done).inspect_err(|_| *done = 0)?;
    file.set_len(*done).and_then(|()| file.seek(SeekFrom::Start(*done))).map_err(Interrupted::Disk)?;
    let mut part = vec![0; PART_BYTES];
    while let count @ 1.. = response.read(&mut part)? {
        file.write_all(&part[..count]).map_err(Interrupted::Disk)?;
        *done += count as u64;
        if *done > object.bytes {
            break;
        }
    }
    match *done == object.bytes {
        true => Ok(()),
        false => Err(Failure::Line(format!("{done} bytes where {} were announced", object.bytes)).into()),
    }
}

/// Refuses the body of another object than `object`, and of another part of it than that from byte `done` on.
fn check(response: &Response, object: &Object, done: u64) -> Result<(), Failure> {
    let bare = |tag: &str| tag.trim_start_matches("W/").trim_matches('"').to_string();
    if let (Some(expected), Some(found)) = (object.tag.as_deref(), response.header("etag"))
        && bare(expected) != bare(found)
    {
        return Err(Failure::Changed);
    }
    let length = response.header("content-length").and_then(|length| length.parse::<u64>().ok());
    if response.status.as_u16() != 206 {
        let is_other = length.is_some_and(|length| length != object.bytes);
        return if is_other { Err(Failure::Changed) } else { Ok(()) };
    }
    let range = response.header("content-range").and_then(range);
    match range {
        Some((_, bytes)) if bytes != object.bytes => Err(Failure::Changed),
        Some((first, _)) if first == done => Ok(()),
        Some(_) | None => Err(Failure::Line(format!("the server sends another part than that from byte {done} on"))),
    }
}

/// The first byte and the bytes of the whole object in `bytes 5-9/10`.
fn range(text: &str) -> Option<(u64, u64)> {
    let (range, bytes) = text.trim().strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let (first, last, bytes): (u64, u64, u64) = (first.parse().ok()?, last.parse().ok()?, bytes.parse().ok()?);
    (last.checked_add(1) == Some(bytes)).then_some((first, bytes))
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::time::Duration;

    use super::*;
    use crate::http::Http;
    use crate::pace::Pace;
    use crate::settings::{RetryLimit, Settings};
    use crate::tests::served::Served;
    use crate::web::Web;

    /// A pace that a test can wait for.
    const PACE: Pace =
        Pace { silence: Duration::from_secs(5), window: Duration::from_millis(100), least_rate: 1 << 10 };

    /// The object of `bytes` bytes from a server whose bodies `body` writes, and the first byte that each request asked
    /// for.
    fn downloaded(
        bytes: u64,
        limit: Duration,
        body: impl Fn(&mut std::net::TcpStream, u64) -> io::Result<()> + Send + Sync + 'static,
    ) -> (Result<Vec<u8>, StoreError>, Vec<u64>) {
        let first = |head: &str| -> u64 {
            let range = head.lines().find_map(|line| line.strip_prefix("range: bytes=")?.strip_suffix('-'));
            range.map_or(0, |first| first.parse().expect("a number"))
        };
        let server = Served::start(move |stream, asked, _| {
            let (from, last) = (first(&asked.head), bytes - 1);
            let range =
                if from == 0 { String::new() } else { format!("Content-Range: bytes {from}-{last}/{bytes}\r\n") };
            let status = if from == 0 { "200 OK" } else { "206 Partial Content" };
            let length = bytes - from;
            write!(stream, "HTTP/1.1 {status}\r\nETag: \"1\"\r\nContent-Length: {length}\r\n{range}\r\n")?;
            body(stream, length)
        });
        let place = Place::Web(Web::with(Http::new(PACE, None), &server.url));
        let settings = Settings::new([], RetryLimit { limit });
        let object = Object { name: "a".into(), bytes, tag: Some("\"1\"".into()), modified_ms: 0 };
        let path = std::env::temp_dir().join(format!("download-{}-{bytes}", std::process::id()));
        let mut file = File::options().create(true).read(true).write(true).truncate(true).open(&path).expect("a file");
        std::fs::remove_file(path).expect("a file");
        let result = download(&place, "a", &object, &mut file, Attempts::new("a".into(), &settings, PACE));
        let read = result.map(|()| {
            let mut found = vec![];
            file.rewind().expect("a file");
            file.read_to_end(&mut found).expect("a file");
            found
        });
        (read, server.asked().iter().map(|asked| first(&asked.head)).collect())
    }

    #[test]
    fn a_body_that_drips_is_tried_again_and_ends_although_each_attempt_brings_bytes() {
        let (result, from) = downloaded(1 << 20, Duration::from_secs(2), |stream, _| {
            loop {
                stream.write_all(b"a")?;
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        let error = result.expect_err("too slow").to_string();
        assert!(
            error.contains(" bytes arrived in 0 s, and the least rate is 1024 bytes per second; tried for "),
            "{error}"
        );
        assert!(from.len() > 2 && from.is_sorted() && from[1] > 0, "{from:?}");
    }

    #[test]
    fn a_line_that_breaks_is_tried_again_while_it_brings_enough() {
        const PART: u64 = 64 << 10;
        let (result, from) = downloaded(PART * 20, Duration::from_secs(10), |stream, left| {
            stream.write_all(&vec![b'a'; PART.min(left) as usize])
        });
        // Waits that grow from one break to the next are longer than the time for attempts by the ninth.
        assert!(result.expect("all of it") == vec![b'a'; PART as usize * 20]);
        assert_eq!(from, (0..20).map(|number| number * PART).collect::<Vec<_>>());
    }
}
