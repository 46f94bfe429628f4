//! Pages of listings and the other answers of stores that are documents.

use crate::answer::Answer;
use crate::date;
use crate::failure::{About, Failure};
use crate::object::Object;
use crate::xml::{self, XmlError, escaped};

/// A page of a listing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// By the names of the store.
    pub objects: Vec<Object>,
    /// The sign by which the next page is asked for; none on the last one.
    pub next: Option<String>,
}

/// The parts of an object that is being read.
#[derive(Default)]
struct Entry {
    name: Option<String>,
    bytes: Option<u64>,
    tag: Option<String>,
    modified_ms: Option<i64>,
}

impl Page {
    /// # Errors
    /// Text that is not a page.
    pub fn parse(text: &str) -> Result<Page, Failure> {
        let (mut page, mut entry, mut is_cut, mut next) = (Page::default(), Entry::default(), false, None);
        let mut is_whole = true;
        xml::walk(text, "ListBucketResult", |path, text| match path {
            ["Contents", "Key"] => entry.name = Some(text.into()),
            ["Contents", "Size"] => entry.bytes = text.trim().parse().ok(),
            ["Contents", "ETag"] => entry.tag = Some(text.trim().into()).filter(|tag: &String| !tag.is_empty()),
            ["Contents", "LastModified"] => entry.modified_ms = date::of_listing(text),
            ["Contents"] => match std::mem::take(&mut entry) {
                Entry { name: Some(name), bytes: Some(bytes), tag, modified_ms: Some(modified_ms) } => {
                    page.objects.push(Object { name, bytes, tag, modified_ms });
                }
                Entry { .. } => is_whole = false,
            },
            ["IsTruncated"] => is_cut = text.trim() == "true",
            ["NextContinuationToken"] => next = Some(text.to_string()),
            _ => {}
        })
        .map_err(malformed)?;
        if !is_whole {
            return Err(not_understood("an object of the listing has no name, size or time"));
        }
        page.next = next.filter(|next| is_cut && !next.is_empty());
        match is_cut && page.next.is_none() {
            true => Err(not_understood("a listing has more pages and does not name the next")),
            false => Ok(page),
        }
    }
}

/// The name of an upload in parts that was begun.
///
/// # Errors
/// Text that is not an answer to such a request.
pub fn upload_id(text: &str) -> Result<String, Failure> {
    let mut id = String::new();
    xml::walk(text, "InitiateMultipartUploadResult", |path, text| {
        if path == ["UploadId"] {
            id = text.trim().into();
        }
    })
    .map_err(malformed)?;
    if id.is_empty() { Err(not_understood("an upload has no name")) } else { Ok(id) }
}

/// The body of the request that makes an object of parts with these tags.
pub fn parts(tags: &[String]) -> String {
    let part = |(number, tag): (usize, &String)| {
        format!("<Part><PartNumber>{}</PartNumber><ETag>{}</ETag></Part>", number + 1, escaped(tag))
    };
    let parts: String = tags.iter().enumerate().map(part).collect();
    format!("<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>")
}

/// Checks the answer to that request: a store may find out after the beginning of its answer that it failed.
///
/// # Errors
/// A failure, and text that is not an answer.
pub fn completed(text: &str) -> Result<(), Failure> {
    match xml::walk(text, "CompleteMultipartUploadResult", |_, _| {}) {
        Ok(()) => Ok(()),
        Err(_) if text.contains("<Error>") => {
            let answer = Answer::new(ureq::http::StatusCode::OK, None, text);
            Err(Failure::Answer { answer, about: About::Parts })
        }
        // One that broke off says nothing of the object.
        Err(error) => Err(Failure::Line(error.to_string())),
    }
}

fn malformed(error: XmlError) -> Failure {
    not_understood(&error.to_string())
}

fn not_understood(reason: &str) -> Failure {
    Failure::Lasting(format!("{reason}; check AWS_ENDPOINT_URL, the address of the store"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OBJECT: &str = "<Contents><Key>runs/a&amp;b/c.txt</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>\
                          <ETag>&quot;0a&quot;</ETag><Size>12</Size><StorageClass>STANDARD</StorageClass>\
                          <Owner><ID>75</ID><DisplayName>x</DisplayName></Owner></Contents>";

    fn page(inside: &str) -> Result<Page, Failure> {
        let head = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";
        let root = "ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"";
        Page::parse(&format!("{head}<{root}><Name>b</Name><Prefix/>{inside}</ListBucketResult>"))
    }

    #[test]
    fn a_page_has_its_objects_and_the_sign_of_the_next() {
        let object = Object {
            name: "runs/a&b/c.txt".into(),
            bytes: 12,
            tag: Some("\"0a\"".into()),
            modified_ms: 1_767_225_600_000,
        };
        let last = page(&format!("<IsTruncated>false</IsTruncated>{OBJECT}")).expect("a page");
        assert_eq!(last, Page { objects: vec![object.clone()], next: None });
        let more = "<IsTruncated>true</IsTruncated><NextContinuationToken>a/b==</NextContinuationToken>";
        let first = page(&format!("{OBJECT}{more}")).expect("a page");
        assert_eq!(first, Page { objects: vec![object], next: Some("a/b==".into()) });
        assert_eq!(page(""), Ok(Page::default()));
    }

    #[test]
    fn a_page_that_is_not_whole_is_refused() {
        let without = |part: &str| page(&OBJECT.replace(part, ""));
        for (result, reason) in [
            (without("<Size>12</Size>"), "has no name, size or time"),
            (without("<Key>runs/a&amp;b/c.txt</Key>"), "has no name, size or time"),
            (page(&OBJECT.replace(">12<", ">-12<")), "has no name, size or time"),
            (page(&OBJECT.replace("2026-01-01T", "yesterday")), "has no name, size or time"),
            (page("<IsTruncated>true</IsTruncated>"), "has more pages and does not name the next"),
            (Page::parse("<html></html>"), "another root at byte 0"),
            (Page::parse("not XML"), "text outside of all elements"),
        ] {
            let Err(Failure::Lasting(text)) = result else { panic!("{result:?} is refused") };
            assert!(text.contains(reason) && text.contains("check AWS_ENDPOINT_URL"), "{text}");
        }
    }

    #[test]
    fn uploads_are_named_and_completed() {
        let id = "<InitiateMultipartUploadResult><Bucket>b</Bucket><UploadId>a.b_c</UploadId></InitiateMultipartUploadResult>";
        assert_eq!(upload_id(id), Ok("a.b_c".into()));
        assert!(upload_id("<InitiateMultipartUploadResult/>").is_err());
        assert_eq!(
            parts(&["\"1\"".into(), "2".into()]),
            "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>&quot;1&quot;</ETag></Part>\
             <Part><PartNumber>2</PartNumber><ETag>2</ETag></Part></CompleteMultipartUpload>"
        );
        let done = "<CompleteMultipartUploadResult><ETag>\"3\"</ETag></CompleteMultipartUploadResult>";
        assert_eq!(completed(done), Ok(()));
        assert_eq!(completed(&format!("  \n{done}")), Ok(()));
        let failed = "<?xml version=\"1.0\"?><Error><Code>InternalError</Code><Message>m</Message></Error>";
        assert!(
            matches!(completed(failed), Err(Failure::Answer { answer, .. }) if answer.code() == Some("InternalError"))
        );
        assert!(matches!(completed(&done[..40]), Err(Failure::Line(_))));
    }
}
