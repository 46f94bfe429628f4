//! The answer of a store inside an error of the client, which has no types for it.

use std::fmt;

use object_store::Error;

/// How the client announces the status and the body of an answer that is not a success.
const STATUS: &str = "Server returned non-2xx status code: ";
/// And an answer that is a success by its status and an error by its body.
const ERROR: &str = "Server returned error response: ";

/// An answer that refuses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// With its name, as in `403 Forbidden`; empty where the status is that of a success.
    status: String,
    /// The name that S3 gives the error, where the body has one.
    code: Option<String>,
    /// The sentence of the body, or the body itself.
    message: String,
    /// The region and the endpoint of the bucket, where the store names them.
    region: Option<String>,
    endpoint: Option<String>,
}

impl Answer {
    /// The answer in `error`; `None` where there was none, as without a connection.
    pub fn of(error: &Error) -> Option<Answer> {
        Answer::parse(&error.to_string())
    }

    fn parse(text: &str) -> Option<Answer> {
        let (status, body) = match text.split_once(STATUS) {
            Some((_, rest)) => rest.split_once(':').unwrap_or((rest, "")),
            None => ("", text.split_once(ERROR)?.1),
        };
        let message = element(body, "Message").unwrap_or_else(|| body.trim());
        let code = element(body, "Code").map(str::to_string);
        // A body without a sentence, whose name says all.
        let message = if code.is_some() && message.starts_with('<') { "" } else { message };
        let named = |name| element(body, name).filter(|text| !text.is_empty()).map(str::to_string);
        let (region, endpoint) = (named("Region"), named("Endpoint"));
        Some(Answer { status: status.trim().into(), code, message: message.into(), region, endpoint })
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

    /// The number of the status.
    pub fn status(&self) -> &str {
        self.status.get(..3).unwrap_or_default()
    }
}

/// `403 Forbidden: InvalidAccessKeyId: The key does not exist.`
impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [self.status.as_str(), self.code.as_deref().unwrap_or_default(), &self.message];
        let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        f.write_str(&parts.join(": "))
    }
}

/// The text of the first element `name` of a body of XML.
fn element<'a>(body: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = body.split_once(&format!("<{name}>"))?;
    rest.split_once(&format!("</{name}>")).map(|(text, _)| text.trim())
}

/// The answer in `error`, or its first cause, as a refused connection, without the requests of the client around it.
pub fn cause(error: &Error) -> String {
    if let Some(answer) = Answer::of(error) {
        return answer.to_string();
    }
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generic(text: &str) -> Error {
        Error::Generic { store: "S3", source: text.into() }
    }

    #[test]
    fn an_answer_is_told_by_its_status_its_name_and_its_sentence() {
        let text = "Error performing GET http://h/b?list-type=2 in 5ms, after 4 retries, max_retries: 4, retry_timeout: \
                    120s  - Server returned non-2xx status code: 403 Forbidden: <?xml version=\"1.0\"?>\n<Error>\
                    <Code>InvalidAccessKeyId</Code><Message>The key does not exist.</Message></Error>";
        let answer = Answer::of(&generic(text)).expect("an answer");
        assert_eq!((answer.status(), answer.code()), ("403", Some("InvalidAccessKeyId")));
        assert_eq!(cause(&generic(text)), "403 Forbidden: InvalidAccessKeyId: The key does not exist.");
    }

    #[test]
    fn the_place_of_a_bucket_is_read() {
        let text = "x - Server returned non-2xx status code: 400 Bad Request: <Error><Code>AuthorizationHeaderMalformed</Code>\
                    <Message>m</Message><Region>eu-west-1</Region></Error>";
        assert_eq!(Answer::of(&generic(text)).expect("an answer").region(), Some("eu-west-1"));
        let text = "x - Server returned non-2xx status code: 301 Moved Permanently: <Error><Code>PermanentRedirect</Code>\
                    <Endpoint>b.s3.eu-west-1.amazonaws.com</Endpoint><Message>m</Message></Error>";
        let answer = Answer::of(&generic(text)).expect("an answer");
        assert_eq!((answer.region(), answer.endpoint()), (None, Some("b.s3.eu-west-1.amazonaws.com")));
    }

    #[test]
    fn an_answer_without_a_body_has_its_status() {
        assert_eq!(cause(&generic("x - Server returned non-2xx status code: 404 Not Found: ")), "404 Not Found");
        let code = "x - Server returned error response: <Error><Code>SlowDown</Code></Error>";
        assert_eq!(cause(&generic(code)), "SlowDown");
    }

    #[test]
    fn without_an_answer_the_first_cause_is_told() {
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        let error =
            Error::Generic { store: "S3", source: Box::new(Error::Generic { store: "in", source: refused.into() }) };
        assert_eq!(Answer::of(&error), None);
        assert_eq!(cause(&error), "connection refused");
    }
}
