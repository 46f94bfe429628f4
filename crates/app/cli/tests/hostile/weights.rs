//! Weights as safetensors: headers that contradict their files.

use crate::hostile::case::{Case, Content, case};
use crate::hostile::fixtures::Fixture;
use crate::hostile::verdict::hold;

/// A run whose weights were changed.
fn weights(name: &str, change: impl Fn(Vec<u8>) -> Vec<u8> + Send + Sync + 'static) -> Case {
    case(name, "eval --from {}/run")
        .with("run", Content::Changed(Fixture::Run, "weights.safetensors", Box::new(change)))
        .refused("weights.safetensors")
}

/// A file of `header` and `data` zero bytes.
fn file(header: &str, data: usize) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.resize(bytes.len() + data, 0);
    bytes
}

/// Weights with another header.
fn header(name: &str, header: &str, data: usize) -> Case {
    let bytes = file(header, data);
    weights(&format!("header: {name}"), move |_| bytes.clone())
}

/// The weights with all of a tensor's values replaced.
fn filled_tensor(mut bytes: Vec<u8>, name: &str, value: f32) -> Vec<u8> {
    let (header, _) = parts(&bytes);
    let tensors: serde_json::Value = serde_json::from_str(&header).expect("JSON");
    let offsets = &tensors[name]["data_offsets"];
    let [from, to] = [0, 1].map(|end| 8 + header.len() + offsets[end].as_u64().expect("an offset") as usize);
    bytes[from..to].copy_from_slice(&value.to_le_bytes().repeat((to - from) / 4));
    bytes
}

/// The header and the data of weights.
fn parts(bytes: &[u8]) -> (String, &[u8]) {
    let len = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes")) as usize;
    (String::from_utf8(bytes[8..8 + len].to_vec()).expect("text"), &bytes[8 + len..])
}

/// Weights whose header is edited, with its data.
fn edited(name: &str, edit: impl Fn(String) -> String + Send + Sync + 'static) -> Case {
    weights(&format!("header: {name}"), move |bytes| {
        let (header, data) = parts(&bytes);
        let edited = edit(header.clone());
        assert_ne!(edited, header, "the edit changes something");
        let mut bytes = file(&edited, 0);
        bytes.extend(data);
        bytes
    })
}

#[test]
fn files_that_are_no_weights_are_refused() {
    let tensor = |name: &str, shape: &str, from: u64, to: u64| {
        format!("\"{name}\": {{\"dtype\": \"F32\", \"shape\": {shape}, \"data_offsets\": [{from}, {to}]}}")
    };
    let one = |shape: &str, from: u64, to: u64| format!("{{{}}}", tensor("a", shape, from, to));
    let two = |first: (u64, u64), second: (u64, u64)| {
        format!("{{{}, {}}}", tensor("a", "[1]", first.0, first.1), tensor("b", "[1]", second.0, second.1))
    };
    let many: String = (0..50_000)
        .map(|n| format!("\"t{n}\": {{\"dtype\": \"F32\", \"shape\": [0], \"data_offsets\": [0, 0]}},"))
        .collect();
    hold(vec![
        weights("empty", |_| vec![]),
        weights("seven bytes", |_| vec![0; 7]),
        weights("eight bytes of zero", |_| vec![0; 8]),
        weights("a header of 2^64 - 1 bytes", |_| vec![255; 100]),
        weights("a header of 2^63 bytes", |_| [vec![0; 7], vec![128], vec![0; 100]].concat()),
        weights("a header of 33 MiB", |_| [(33u64 << 20).to_le_bytes().to_vec(), vec![b' '; 33 << 20]].concat()),
        weights("a header of all bytes", |bytes| [&((bytes.len() - 8) as u64).to_le_bytes()[..], &bytes[8..]].concat()),
        weights("a byte less", |mut bytes| {
            bytes.pop();
            bytes
        }),
        weights("a byte more", |bytes| [bytes, vec![0]].concat()),
        weights("twice", |bytes| bytes.repeat(2)),
        weights("half", |bytes| bytes[..bytes.len() / 2].to_vec()),
        weights("a pickle", |_| b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.".to_vec()),
        weights("a zip", |_| b"PK\x03\x04aaaaaaaaaaaaaaaaaaaaaaaa".to_vec()),
        header("empty", "", 0),
        header("null", "null", 0),
        header("a list", "[]", 0),
        header("no tensors", "{}", 0),
        header("cut off", "{\"a\": {", 0),
        header("no text", "\u{0}\u{1}", 0),
        header("arrays in arrays", &format!("{{\"a\": {}", "[".repeat(1_000_000)), 0),
        header(
            "a shape of nested arrays",
            &format!("{{\"a\": {{\"dtype\": \"F32\", \"shape\": {}", "[".repeat(100_000)),
            0,
        ),
        header(
            "50,000 tensors",
            &format!("{{{}\"z\": {{\"dtype\": \"F32\", \"shape\": [0], \"data_offsets\": [0, 0]}}}}", many),
            0,
        ),
        header("a name of a million letters", &format!("{{{}}}", tensor(&"a".repeat(1_000_000), "[1]", 0, 4)), 4),
        header("no dtype", "{\"a\": {\"shape\": [1], \"data_offsets\": [0, 4]}}", 4),
        header("an unknown dtype", "{\"a\": {\"dtype\": \"F31\", \"shape\": [1], \"data_offsets\": [0, 4]}}", 4),
        header("whole numbers", "{\"a\": {\"dtype\": \"I32\", \"shape\": [1], \"data_offsets\": [0, 4]}}", 4),
        header("a negative shape", &one("[-1]", 0, 4), 4),
        header("a fractional shape", &one("[1.5]", 0, 4), 4),
        header("a shape whose product overflows", &one("[4294967296, 4294967296, 4]", 0, 0), 0),
        header("a shape of 2^64 - 1", &one("[18446744073709551615]", 0, 4), 4),
        header("a shape of 100,000 dims", &one(&format!("[{}1]", "1,".repeat(100_000)), 0, 4), 4),
        header("offsets in reverse", &one("[1]", 4, 0), 4),
        header("offsets of 2^64 - 1", &one("[1]", 18446744073709551611, 18446744073709551615), 4),
        header("offsets past the end", &one("[1]", 100, 104), 4),
        header("offsets that do not fit the shape", &one("[2]", 0, 4), 4),
        header("three offsets", "{\"a\": {\"dtype\": \"F32\", \"shape\": [1], \"data_offsets\": [0, 4, 8]}}", 4),
        header("tensors that overlap", &two((0, 4), (0, 4)), 4),
        header("tensors that overlap by a part", &two((0, 4), (2, 6)), 6),
        header("a hole between tensors", &two((0, 4), (8, 12)), 12),
        header("a tensor twice", &format!("{{{}, {}}}", tensor("a", "[1]", 0, 4), tensor("a", "[1]", 4, 8)), 8),
        header("metadata of numbers", "{\"__metadata__\": {\"a\": 1}}", 0),
        edited("a tensor is renamed", |header| header.replacen("norm", "nrom", 1)),
        edited("a tensor of another shape", |header| header.replace("\"shape\":[16]", "\"shape\":[4,4]")),
        edited("a tensor of another type", |header| header.replacen("F32", "F64", 1)),
        weights("a file of 2^40 bytes", |_| vec![]).with("run/weights.safetensors", Content::Sparse(1 << 40)),
        weights("a pipe", |_| vec![]).with("run/weights.safetensors", Content::Pipe),
    ]);
}

/// Values that a trained model does not have.
#[test]
fn numbers_that_are_not_finite_are_named() {
    let filled = |value: f32| {
        move |bytes: Vec<u8>| {
            let (header, data) = parts(&bytes);
            let mut filled = file(&header, 0);
            filled.extend(value.to_le_bytes().repeat(data.len() / 4));
            filled
        }
    };
    let run = |name: &str, arguments: &str, value: f32| {
        case(format!("weights of {name}"), arguments)
            .with("run", Content::Changed(Fixture::Run, "weights.safetensors", Box::new(filled(value))))
    };
    let train = format!("train {} --from {{}}/run --set run.folder={{}}/new", crate::hostile::fixtures::SMALL);
    hold(vec![
        run("NaN: eval", "eval --from {}/run", f32::NAN).fails("weights must be finite"),
        run("infinity: eval", "eval --from {}/run", f32::INFINITY).fails("weights must be finite"),
        run("NaN: generate", "generate --from {}/run --prompt a", f32::NAN).fails("weights must be finite"),
        run("NaN: train", &train, f32::NAN).writes("new").fails("weights must be finite"),
        run("3e38: eval", "eval --from {}/run", 3e38).fails("not finite"),
        case("weights of a norm of 1e37, whose loss is finite as in PyTorch: eval", "eval --from {}/run")
            .with("run", Content::Changed(Fixture::Run, "weights.safetensors", Box::new(|bytes| filled_tensor(bytes, "head.norm.weight", 1e37))))
            .done("loss "),
        case("gradients that overflow fp16", &format!("forward --grads --from {} --tokens {} --out {{}}/o --set train.precision=fp16 --set train.initial_loss_scale=4294967296", Fixture::Run.name(), Fixture::Sequences.name()))
            .fails("the gradients overflow fp16 with train.initial_loss_scale = 4294967300; use a smaller one, such as --set train.initial_loss_scale=16777216"),
        run("zero: eval", "eval --from {}/run", 0.0).done("loss 5.5452"),
    ]);
}

/// As in the caches of hubs.
#[test]
fn links_lead_out_for_reading_alone() {
    let weights = Fixture::Run.path().join("weights.safetensors");
    hold(vec![
        case("weights through a link", "eval --from {}/run")
            .with("run", Content::Copy(Fixture::Run))
            .with("run/weights.safetensors", Content::Link(weights.display().to_string()))
            .done("loss "),
    ]);
}
