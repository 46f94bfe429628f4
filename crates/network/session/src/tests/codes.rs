//! Codes by a secret.

use secrets::{Purpose, Secret};

const ONE: Purpose = Purpose::new("one");

/// Python: `hmac.new(bytes(range(32)), b"".join(len(p).to_bytes(8, "little") + p for p in (b"one", b"ab", b"")),
/// "sha256").hexdigest()`.
#[test]
fn codes_are_those_of_an_independent_implementation() {
    let mut bytes = [0; Secret::BYTES];
    (0..).zip(&mut bytes).for_each(|(value, byte)| *byte = value);
    let mac = Secret::new(bytes).mac(ONE, &[b"ab", b""]);
    let digits: String = mac.bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(digits, "bc28d15be67ab3ce72f675b7087909c1064240d894a5fd9bf42620c7a9127114");
}

#[test]
fn a_code_confirms_its_secret_purpose_and_parts_only() {
    let (secret, other) = (Secret::new([1; 32]), Secret::new([2; 32]));
    let mac = secret.mac(ONE, &[b"ab", b"c"]);
    assert!(secret.confirms(ONE, &[b"ab", b"c"], mac.bytes()));
    assert!(!other.confirms(ONE, &[b"ab", b"c"], mac.bytes()), "another secret");
    assert!(!secret.confirms(Purpose::new("two"), &[b"ab", b"c"], mac.bytes()), "another purpose");
    assert!(!secret.confirms(ONE, &[b"a", b"bc"], mac.bytes()), "parts that are cut elsewhere");
    assert!(!secret.confirms(ONE, &[b"abc"], mac.bytes()), "one part");
    assert!(!secret.confirms(ONE, &[b"ab", b"c"], &mac.bytes()[..31]), "a shorter code");
    assert_ne!(secret.derive(ONE, &[b"a"]).bytes(), secret.derive(ONE, &[b"b"]).bytes());
}
