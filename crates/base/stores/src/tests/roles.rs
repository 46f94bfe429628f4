//! Credentials that services lend: of a machine, of a container, and for a token of another service.

use std::path::PathBuf;
use std::time::Duration;

use super::served::{Asked, Served, answer};
use stores::{Address, Remote, RetryLimit, Settings, StoreError};

const LENT: &str = r#"{"Code":"Success","AccessKeyId":"lent-key","SecretAccessKey":"lent-secret","Token":"lent-token","Expiration":"2099-01-01T00:00:00Z"}"#;

/// A store and the services of a machine, at one port.
fn served(service: impl Fn(&Asked) -> Option<(&'static str, String)> + Send + Sync + 'static) -> Served {
    Served::start(move |stream, asked, _| {
        if asked.head.starts_with("GET /bucket?") {
            // It repeats the signature and the token, as stores do that explain a refusal.
            let body = format!("<Error><Code>Odd</Code><Message>{}</Message></Error>", asked.head.replace('\n', " "));
            return answer(stream, "403 Forbidden", "", body.as_bytes());
        }
        match service(asked) {
            Some((status, body)) => answer(stream, status, "", body.as_bytes()),
            None => answer(stream, "404 Not Found", "", b""),
        }
    })
}

fn listed(served: &Served, variables: &[(&str, String)]) -> StoreError {
    let endpoint = [("AWS_ENDPOINT_URL", served.url.clone())];
    let variables = endpoint.iter().chain(variables).map(|(name, value)| (name.to_string(), value.clone()));
    let settings = Settings::new(variables, RetryLimit { limit: Duration::from_secs(30) });
    let address = Address::parse("s3://bucket").expect("an address").expect("sound");
    let remote = Remote::open(&address, &settings).expect("a place");
    let first = remote.list("").expect_err("denied");
    remote.list("").expect_err("denied");
    first
}

/// Checks that the store was asked twice with the lent credentials, and that no message has them.
fn check(served: &Served, error: &StoreError, requests: usize) {
    let asked = served.asked();
    assert_eq!(asked.len(), requests, "credentials are lent once: {asked:?}");
    for asked in &asked[requests - 2..] {
        assert_eq!(asked.header("x-amz-security-token"), Some("lent-token"));
        let authorization = asked.header("authorization").expect("a signature");
        assert!(
            authorization.contains("Credential=lent-key/") && authorization.contains("/us-east-1/s3/"),
            "{authorization}"
        );
    }
    let text = format!("{error} {error:?}");
    assert!(text.contains("access is denied") && !text.contains("lent-"), "{text}");
}

/// A file with `text`, and its path.
fn file(name: &str, text: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("stores-{}-{name}", std::process::id()));
    std::fs::write(&path, text).expect("a file");
    path
}

#[test]
fn a_machine_lends_the_credentials_of_its_role() {
    let of_machine = served(|asked| {
        let has_token = asked.header("x-aws-ec2-metadata-token") == Some("of-metadata");
        let roles = "/latest/meta-data/iam/security-credentials/";
        if asked.head.starts_with("PUT /latest/api/token ")
            && asked.header("x-aws-ec2-metadata-token-ttl-seconds").is_some()
        {
            return Some(("200 OK", "of-metadata".into()));
        }
        let body = if asked.head.starts_with(&format!("GET {roles} ")) { "a-role" } else { LENT };
        let is_known =
            asked.head.starts_with(&format!("GET {roles} ")) || asked.head.starts_with(&format!("GET {roles}a-role "));
        (is_known && has_token).then(|| ("200 OK", body.into()))
    });
    let error = listed(&of_machine, &[("AWS_METADATA_ENDPOINT", of_machine.url.clone())]);
    check(&of_machine, &error, 5);
}

#[test]
fn a_machine_without_a_role_has_no_credentials() {
    let without = served(|_| None);
    let error = listed(&without, &[("AWS_METADATA_ENDPOINT", without.url.clone())]);
    assert!(matches!(error, StoreError::NoCredentials { .. }), "{error}");
    assert!(error.to_string().contains("404 Not Found"), "{error}");
}

#[test]
fn a_container_lends_credentials_for_the_text_of_a_file() {
    let of_container = served(|asked| {
        let is_known =
            asked.head.starts_with("GET /lent?x=1 ") && asked.header("authorization") == Some("text-of-file");
        is_known.then(|| ("200 OK", LENT.into()))
    });
    let token = file("container", "text-of-file\n");
    let url = ("AWS_CONTAINER_CREDENTIALS_FULL_URI", format!("{}/lent?x=1", of_container.url));
    let token = ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", token.display().to_string());
    check(&of_container, &listed(&of_container, &[url, token]), 3);
}

#[test]
fn a_token_of_another_service_is_sent_in_the_body_alone() {
    let of_tokens = served(|asked| {
        let body = "<AssumeRoleWithWebIdentityResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\">\
                    <AssumeRoleWithWebIdentityResult><Credentials><SessionToken>lent-token</SessionToken>\
                    <SecretAccessKey>lent-secret</SecretAccessKey><Expiration>2099-01-01T00:00:00Z</Expiration>\
                    <AccessKeyId>lent-key</AccessKeyId></Credentials></AssumeRoleWithWebIdentityResult>\
                    </AssumeRoleWithWebIdentityResponse>";
        let form = "Action=AssumeRoleWithWebIdentity&DurationSeconds=3600&RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fr\
                    &RoleSessionName=pleach&Version=2011-06-15&WebIdentityToken=text.of-file";
        (asked.head.starts_with("POST / ") && asked.body == form).then(|| ("200 OK", body.into()))
    });
    let token = file("web", "text.of-file");
    let variables = [
        ("AWS_WEB_IDENTITY_TOKEN_FILE", token.display().to_string()),
        ("AWS_ROLE_ARN", "arn:aws:iam::1:role/r".into()),
        ("AWS_ENDPOINT_URL_STS", of_tokens.url.clone()),
    ];
    check(&of_tokens, &listed(&of_tokens, &variables), 3);
}

#[test]
fn a_service_that_refuses_a_token_does_not_repeat_it() {
    let refusing = served(|asked| {
        let body = format!(
            "<ErrorResponse><Error><Code>InvalidIdentityToken</Code><Message>{}</Message></Error></ErrorResponse>",
            asked.body
        );
        Some(("400 Bad Request", body))
    });
    let token = file("refused", "text.of-file");
    let variables = [
        ("AWS_WEB_IDENTITY_TOKEN_FILE", token.display().to_string()),
        ("AWS_ROLE_ARN", "a".into()),
        ("AWS_ENDPOINT_URL_STS", refusing.url.clone()),
    ];
    let error = listed(&refusing, &variables).to_string();
    assert!(error.contains("access is denied: 400 Bad Request: InvalidIdentityToken"), "{error}");
    assert!(!error.contains("text.of-file"), "{error}");
}

#[test]
fn secrets_do_not_go_to_other_machines_without_tls() {
    let variables = [("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://198.51.100.7/lent")];
    let sts =
        [("AWS_WEB_IDENTITY_TOKEN_FILE", "x"), ("AWS_ROLE_ARN", "a"), ("AWS_ENDPOINT_URL_STS", "http://198.51.100.7")];
    for variables in [&variables[..], &sts] {
        let (name, _) = variables[variables.len() - 1];
        let variables = variables.iter().map(|(name, value)| (name.to_string(), value.to_string()));
        let settings = Settings::new(variables, RetryLimit { limit: Duration::from_secs(1) });
        let address = Address::parse("s3://bucket").expect("an address").expect("sound");
        let error = Remote::open(&address, &settings).expect_err("no TLS").to_string();
        assert!(error.contains(&format!("{name} must be https://, or http:// on this machine")), "{error}");
    }
}
