//! The answer of a server that refuses.

use std::fmt;

use ureq::http::StatusCode;

/// Characters of the name of a region.
const REGION_CHARS: usize = 32;

/// An answer that refuses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub status: StatusCode,
    /// The name that S3 gives the error, where the body has one.
    code: Option<String>,
    /// The sentence of the body, or a body that is text.
    message: String,
    /// The region and the endpoint of the bucket, where the store names them.
    region: Option<String>,
    endpoint: Option<String>,
}

impl Answer {
    /// With this `body`, and the `region` of a header.
    pub fn new(status: StatusCode, region: Option<&str>, body: &str) -> Answer {
        let code = element(body, "Code").map(str::to_string);
        // Pages are for people, and a body of XML without a sentence has a name that says all.
        let text = Some(body.trim()).filter(|text| !text.starts_with('<')).unwrap_or_default();
        let message = element(body, "Message").unwrap_or(text);
        let region = element(body, "Region").or(region).filter(|text| is_name(text, "-") && text.len() <= REGION_CHARS);
        let endpoint = element(body, "Endpoint").filter(|text| is_name(text, "-.:"));
        let [region, endpoint] = [region, endpoint].map(|text| text.map(str::to_string));
        Answer { status, code, message: message.into(), region, endpoint }
    }

    /// The name of the error.
    pub fn code(&self) -> Option<&str> {
        self.code.as_deref()
    }

    /// The region of the bucket, where the store names it.
    pub fn region(&self) -> Option<&str> {
        self.region.as_deref()
    }

    /// The host that has the bucket, where the store names it.
    pub fn endpoint(&self) -> Option<&str> {
        self.endpoint.as_deref()
    }
}

/// `403 Forbidden: InvalidAccessKeyId: The key does not exist.`
impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.status.as_str())?;
        let parts = [self.code.as_deref().unwrap_or_default(), &self.message];
        self.status.canonical_reason().into_iter().try_for_each(|reason| write!(f, " {reason}"))?;
        parts.into_iter().filter(|part| !part.is_empty()).try_for_each(|part| write!(f, ": {part}"))
    }
}

/// The text of the first element `name` of a body, which may be cut off or of another form.
fn element<'a>(body: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = body.split_once(&format!("<{name}>"))?;
    rest.split_once(&format!("</{name}>")).map(|(text, _)| text.trim())
}

/// Whether `text` has letters, digits and characters of `more` alone.
fn is_name(text: &str, more: &str) -> bool {
    !text.is_empty() && text.chars().all(|letter| letter.is_ascii_alphanumeric() || more.contains(letter))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_told_by_its_status_its_name_and_its_sentence() {
        let body = "<?xml version=\"1.0\"?>\n<Error><Code>InvalidAccessKeyId</Code>\
                    <Message>The key does not exist.</Message></Error>";
        let answer = Answer::new(StatusCode::FORBIDDEN, None, body);
        assert_eq!(answer.code(), Some("InvalidAccessKeyId"));
        assert_eq!(answer.to_string(), "403 Forbidden: InvalidAccessKeyId: The key does not exist.");
    }

    #[test]
    fn the_place_of_a_bucket_is_read() {
        let body =
            "<Error><Code>AuthorizationHeaderMalformed</Code><Message>m</Message><Region>eu-west-1</Region></Error>";
        let answer = Answer::new(StatusCode::BAD_REQUEST, Some("us-east-1"), body);
        assert_eq!(answer.region(), Some("eu-west-1"));
        let body = "<Error><Code>PermanentRedirect</Code><Endpoint>b.s3.eu-west-1.amazonaws.com</Endpoint></Error>";
        let answer = Answer::new(StatusCode::MOVED_PERMANENTLY, None, body);
        assert_eq!((answer.region(), answer.endpoint()), (None, Some("b.s3.eu-west-1.amazonaws.com")));
        // Answers to HEAD have no body.
        assert_eq!(Answer::new(StatusCode::MOVED_PERMANENTLY, Some("eu-west-1"), "").region(), Some("eu-west-1"));
        assert_eq!(Answer::new(StatusCode::MOVED_PERMANENTLY, Some("; rm -r"), "").region(), None);
    }

    #[test]
    fn an_answer_without_a_sentence_has_its_status_and_its_name() {
        assert_eq!(Answer::new(StatusCode::NOT_FOUND, None, "").to_string(), "404 Not Found");
        let page = "<!doctype html><html><body>Nothing here</body></html>";
        assert_eq!(Answer::new(StatusCode::NOT_FOUND, None, page).to_string(), "404 Not Found");
        let code = "<Error><Code>SlowDown</Code></Error>";
        assert_eq!(Answer::new(StatusCode::OK, None, code).to_string(), "200 OK: SlowDown");
        assert_eq!(Answer::new(StatusCode::BAD_GATEWAY, None, " no server ").to_string(), "502 Bad Gateway: no server");
    }
}
