//! Losses against the committed ones.

#[test]
fn losses_are_the_golden_ones() {
    let golden = include_str!("golden/losses.txt");
    let measured = surveys::golden::losses().expect("runs");
    assert!(measured == golden, "numerics have changed; if that is meant, renew the file as it says.\n{measured}");
}
