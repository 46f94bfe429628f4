//! A build without object stores refuses their addresses, each by its name and with the remedy.

#![cfg(not(feature = "object-stores"))]

use std::time::Duration;

use stores::{Address, Patience, Remote, Settings};

#[test]
fn addresses_are_refused_by_name() {
    let settings = Settings::new([], Patience { limit: Duration::from_secs(1) });
    for text in ["s3://bucket/prefix", "https://host/a.txt", "http://host/a.txt"] {
        let address = Address::parse(text).expect("an address").expect("sound");
        let error = Remote::open(&address, &settings).expect_err("there are no stores");
        assert_eq!(
            error.to_string(),
            format!(
                "{text} needs a build with the cargo feature `object-stores`, and this one is without; use files of this machine"
            )
        );
    }
}
