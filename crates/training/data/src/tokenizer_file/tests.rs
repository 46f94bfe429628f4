use super::*;

fn with(key: &str, steps: &str) -> Result<Growth, String> {
    check(&format!("{{\"{key}\": {steps}}}"))
}

fn replace(of: &str, by: &str) -> String {
    format!("{{\"type\": \"Replace\", \"pattern\": {{\"String\": \"{of}\"}}, \"content\": \"{by}\"}}")
}

fn all(steps: &[String]) -> String {
    format!("{{\"type\": \"Sequence\", \"normalizers\": [{}]}}", steps.join(","))
}

#[test]
fn growth_follows_from_the_steps() {
    let doubled = |times: usize| all(&vec![replace("e", "ee"); times]);
    assert_eq!(with("normalizer", &doubled(6)), Ok(Growth::Usual));
    assert_eq!(with("normalizer", &doubled(10)), Ok(Growth::ToBeMeasured));
    let error = with("normalizer", &doubled(11)).expect_err("too much");
    assert_eq!(error, "normalizer may make 2048 bytes of one; use steps that make at most 1024");
    // Steps within steps count, and a letter becomes others on the way.
    let nested = all(&[all(&[replace("a", "bb")]), all(&[replace("b", "cc")]), all(&vec![replace("c", "cc"); 11])]);
    assert!(with("normalizer", &nested).expect_err("too much").starts_with("normalizer may make "));
    // Letters that do not become each other do not multiply.
    let apart: Vec<String> = ('a'..='z').map(|letter| replace(&letter.to_string(), "\u{2581}")).collect();
    assert_eq!(with("normalizer", &all(&apart)), Ok(Growth::Usual));
    assert_eq!(
        with("decoder", "{\"decoders\": [{\"type\": \"ByteFallback\"}, {\"type\": \"Fuse\"}]}"),
        Ok(Growth::Usual)
    );
    let levels = vec!["{\"type\": \"ByteLevel\"}".to_string(); 7].join(",");
    let levels = format!("{{\"type\": \"Sequence\", \"pretokenizers\": [{levels}]}}");
    assert_eq!(
        with("pre_tokenizer", &levels).expect_err("too much"),
        "pre_tokenizer may make 2187 bytes of one; use steps that make at most 1024"
    );
}

#[test]
fn patterns_may_be_of_anything() {
    let pattern = "{\"type\": \"Replace\", \"pattern\": {\"Regex\": \".\"}, \"content\": \"ab\"}".to_string();
    assert_eq!(with("normalizer", &pattern), Ok(Growth::Usual));
    assert!(with("normalizer", &all(&vec![pattern; 8])).is_err());
}

#[test]
fn texts_and_tokens_have_a_longest() {
    let long = "e".repeat(1025);
    let error = with("normalizer", &replace("e", &long)).expect_err("too long");
    assert!(error.starts_with("`content` of a step has 1025 bytes; use at most 1024"), "{error}");
    let error = with("normalizer", &format!("{{\"prepend\": \"{long}\"}}")).expect_err("too long");
    assert!(error.starts_with("`prepend` of a step has 1025 bytes; use at most 1024"), "{error}");
    let token = "a".repeat(4097);
    for vocabulary in [format!("{{\"{token}\": 0}}"), format!("[[\"{token}\", -1.0]]")] {
        let error = check(&format!("{{\"model\": {{\"vocab\": {vocabulary}}}}}")).expect_err("too long");
        assert_eq!(error, "model.vocab has a token of 4097 bytes; use at most 4096");
    }
    let error = check("{\"model\": {\"max_input_chars_per_word\": 100000}}").expect_err("too long");
    assert_eq!(error, "model.max_input_chars_per_word = 100000 must be at most 1000");
    for file in
        ["{\"model\": {\"vocab\": {\"a\": 16777216}}}", "{\"added_tokens\": [{\"id\": 16777216, \"content\": \"a\"}]}"]
    {
        let error = check(file).expect_err("too large");
        assert!(error.ends_with(" has the token 16777216; use numbers up to 16777215"), "{error}");
    }
    let many = "{\"type\": \"Strip\"},".repeat(100);
    assert_eq!(with("normalizer", &format!("[{many}{{}}]")), Ok(Growth::Usual));
    let error = with("normalizer", &all(&vec![replace("a", "b"); 1001])).expect_err("too many");
    assert!(error.starts_with("more than 1000 steps change the text"), "{error}");
}

/// A map of SentencePiece: no tree, and texts of 1 and 40 bytes.
#[test]
fn maps_are_read_as_far_as_their_longest_text() {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bytes = [&[0u8; 4][..], b"a\0", &[b'b'; 40], b"\0\0"].concat();
    let digits = bytes.chunks(3).flat_map(|chunk| {
        let bits = u32::from(chunk[0]) << 16 | u32::from(chunk[1]) << 8 | u32::from(chunk[2]);
        [18, 12, 6, 0].map(|shift| char::from(DIGITS[(bits >> shift & 63) as usize]))
    });
    let map = format!("{{\"type\": \"Precompiled\", \"precompiled_charsmap\": \"{}\"}}", digits.collect::<String>());
    assert_eq!(with("normalizer", &map), Ok(Growth::Usual));
    assert_eq!(with("normalizer", &all(&[map.clone(), replace(" ", "\u{2581}")])), Ok(Growth::ToBeMeasured));
    assert!(with("normalizer", &all(&[map.clone(), map])).is_err());
}
