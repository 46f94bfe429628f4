//! Files of sequences for `forward`.

use crate::hostile::case::{Case, Content, case};
use crate::hostile::fixtures::Fixture;
use crate::hostile::verdict::hold;

fn sequences(name: &str, content: impl Into<Content>) -> Case {
    case(name, "forward --tokens {}/it.json --out {}/o.safetensors --from")
        .and(Fixture::Run.name())
        .with("it.json", content)
}

fn with(ids: &str, labels: &str, more: &str) -> String {
    format!("{{\"input_ids\": {ids}, \"labels\": {labels}{more}}}")
}

#[test]
fn sequences_that_fit_no_model_are_refused() {
    let deep = "[".repeat(100_000);
    let sound = |more: &str| with("[[1, 2, 3, 4]]", "[[2, 3, 4, -100]]", more);
    let long = |count: usize, item: &str| format!("[[{}0]]", item.repeat(count - 1));
    hold(vec![
        sequences("sound", sound("")).writes("o.safetensors").done("written"),
        sequences("empty", "").refused("it.json: "),
        sequences("zero bytes", vec![0; 100]).refused("it.json: "),
        sequences("byte order mark", format!("\u{feff}{}", sound(""))).writes("o.safetensors").done("written"),
        sequences("text after the object", format!("{} x", sound(""))).refused("it.json: "),
        sequences("cut off", "{\"input_ids\": [[1, 2").refused("it.json: "),
        sequences("arrays in arrays", deep.clone()).refused("it.json: "),
        sequences("tokens in deep arrays", format!("{{\"input_ids\": {deep}")).refused("it.json: "),
        sequences("a list", "[1, 2]").refused("it.json: "),
        sequences("no labels", "{\"input_ids\": [[1]]}").refused("labels"),
        sequences("a key twice", "{\"input_ids\": [[1]], \"input_ids\": [[1]], \"labels\": [[1]]}")
            .refused("input_ids"),
        sequences("no sequences", with("[]", "[]", "")).refused("input_ids"),
        sequences("no tokens", with("[[]]", "[[]]", "")).refused("input_ids"),
        sequences("sequences of two lengths", with("[[1, 2], [3]]", "[[1, 2], [3]]", "")).refused("input_ids[1]"),
        sequences("fractions", with("[[1.5]]", "[[1]]", "")).refused("it.json: "),
        sequences("texts", with("[[\"a\"]]", "[[1]]", "")).refused("it.json: "),
        sequences("a token of 2^63", with("[[9223372036854775808]]", "[[1]]", "")).refused("it.json: "),
        sequences("a token of 2^31", with("[[2147483648]]", "[[1]]", "")).refused("input_ids[0][0]"),
        sequences("a token that the model does not know", with("[[256]]", "[[1]]", ""))
            .refused("input_ids[0][0] = 256"),
        sequences("a negative token", with("[[-1]]", "[[1]]", "")).refused("input_ids[0][0] = -1"),
        sequences("a label of -101", with("[[1]]", "[[-101]]", "")).refused("labels[0][0] = -101"),
        sequences("no label counts", with("[[1, 2]]", "[[-100, -100]]", ""))
            .writes("o.safetensors")
            .done("loss 0.0000"),
        sequences("more tokens than the context", with(&long(17, "0,"), &long(17, "0,"), "")).refused("17"),
        sequences("a million tokens", with(&long(1_000_000, "0,"), &long(1_000_000, "0,"), "")).refused("1000000"),
        sequences(
            "a million sequences",
            format!("{{\"input_ids\": [{}[0]], \"labels\": [{}[0]]}}", "[0],".repeat(999_999), "[0],".repeat(999_999)),
        )
        .refused(""),
        sequences("three million empty sequences", format!("{{\"input_ids\": [{}[]]", "[],".repeat(3_000_000)))
            .refused("it.json"),
        sequences(
            "a million documents",
            format!(
                "{{\"input_ids\": {}, \"labels\": {}, \"document_ids\": [[{}0]]}}",
                long(300_000, "0,"),
                long(300_000, "0,"),
                (1..300_000).map(|n| format!("{n},")).collect::<String>()
            ),
        )
        .refused("300000"),
        sequences("positions outside", sound(", \"position_ids\": [[0, 1, 2, 16]]")).refused("position_ids[0][3] = 16"),
        sequences("negative positions", sound(", \"position_ids\": [[0, 1, 2, -1]]"))
            .refused("position_ids[0][3] = -1"),
        sequences("a document in two pieces", sound(", \"document_ids\": [[0, 1, 0, 1]]"))
            .refused("document_ids[0][2]"),
        sequences("a negative prefix", sound(", \"prefix_length\": [-1]")).refused("prefix_length = -1"),
        sequences("a prefix of 2^63", sound(", \"prefix_length\": [9223372036854775807]")).refused("prefix_length"),
        sequences("a prefix that is too long", sound(", \"prefix_length\": [5]")).refused("prefix_length = 5"),
        sequences("too few prefixes", sound(", \"prefix_length\": []")).refused("prefix_length"),
        sequences("prefixes of documents that are not there", sound(", \"prefix_length\": [[1]]"))
            .refused("prefix_length"),
        sequences("an unknown key", sound(", \"attention_mask\": [[1]]")).refused("attention_mask"),
    ]);
}
