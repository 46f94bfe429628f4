//! Labels and masks next to tokens of tables and JSON.

use crate::tests::folder::Folder;
use config::{IGNORED_LABEL, OddFiles, RunConfig, SourceSpec, TrainSpec};
use data::{Batches, Content, Corpus, DataError, Mixture, Order, Targets, Tokenizer};

fn rows(folder: &Folder, lines: &[&str]) -> Result<Corpus, String> {
    folder.put("a.jsonl", lines.join("\n").as_bytes());
    match data::read(&folder.path("a.jsonl"), None).map_err(|error| error.to_string())? {
        Content::Tokens(corpus) => Ok(corpus),
        Content::Text(_) => panic!("text"),
    }
}

fn batches(corpus: Corpus, sequence_length: usize) -> Result<Batches, DataError> {
    let train = TrainSpec { sequence_length, ..RunConfig::quick_start().train };
    Batches::new(Mixture::from(corpus), "training", &train, 100, Order::AsWritten)
}

/// Tokens, labels, positions and visible keys of a sequence.
fn filled(batches: &Batches, sequence: u64, length: usize) -> [Vec<i32>; 4] {
    let [mut tokens, mut labels, mut positions] = [(); 3].map(|()| vec![0; length]);
    let mut visible = vec![0; 2 * length];
    batches.fill(0, sequence, &mut tokens, &mut labels, &mut positions, &mut visible);
    [tokens, labels, positions, visible]
}

#[test]
fn rows_with_labels_are_whole_and_only_their_labels_are_learned() {
    let folder = Folder::new("labels");
    let corpus = rows(
        &folder,
        &[
            "{\"input_ids\": [5, 6, 7, 8], \"labels\": [-100, -100, 7, 8], \"attention_mask\": [1, 1, 1, 1]}",
            "{\"input_ids\": [0, 9, 10, 0], \"labels\": [-100, 9, 10, -100], \"attention_mask\": [0, 1, 1, 0]}",
        ],
    );
    let batches = batches(corpus.expect("rows"), 5).expect("fits");
    assert_eq!((batches.targets(), batches.num_windows()), (Targets::Labels, 1));
    let none = IGNORED_LABEL;
    let [tokens, labels, positions, visible] = filled(&batches, 0, 5);
    // Padding is gone: the second row is 9 and 10, of which 10 is a target.
    assert_eq!(tokens, [5, 6, 7, 9, 0]);
    assert_eq!(labels, [none, 7, 8, 10, none]);
    assert_eq!(positions, [0, 1, 2, 0, 0]);
    assert_eq!(visible, [0, 1, 0, 2, 0, 3, 3, 4, 4, 5]);
}

#[test]
fn masks_of_trl_say_what_is_learned() {
    let folder = Folder::new("masks");
    for mask in ["completion_mask", "assistant_masks", "loss_mask"] {
        let line = format!("{{\"input_ids\": [5, 6, 7, 8], \"{mask}\": [0, 0, 1, 1]}}");
        let batches = batches(rows(&folder, &[&line]).expect("a row"), 3).expect("fits");
        assert_eq!(filled(&batches, 0, 3)[1], [IGNORED_LABEL, 7, 8], "{mask}");
    }
}

#[test]
fn labels_that_learn_everything_leave_rows_as_they_were() {
    let folder = Folder::new("all-labels");
    let line = "{\"input_ids\": [1, 2], \"labels\": [1, 2], \"attention_mask\": [1, 1], \"position_ids\": [0, 1]}";
    let batches = batches(rows(&folder, &[line, line]).expect("rows"), 3).expect("fits");
    assert_eq!(batches.targets(), Targets::All);
    assert_eq!(filled(&batches, 0, 3)[1], [2, 1, 2], "rows follow one another");
    // Whoever names the column learns all of its tokens.
    folder.put("a.jsonl", b"{\"input_ids\": [1, 2, 3], \"labels\": [-100, 2, 3]}");
    assert!(data::read(&folder.path("a.jsonl"), Some("input_ids")).is_ok());
}

#[test]
fn columns_that_do_not_go_with_the_tokens_are_refused_by_name() {
    let folder = Folder::new("wrong-labels");
    for (fields, said) in [
        ("\"labels\": [2, 3]", "has 2 numbers in `labels` for 3 tokens"),
        (
            "\"labels\": [2, 3, -100]",
            "has the label 2 for its token 1, number 0; a label is the token in its own place",
        ),
        ("\"labels\": \"none\"", "has `labels` that is not a list of whole numbers"),
        ("\"attention_mask\": [1, 0, 1]", "has a 0 in `attention_mask` at token 1, between tokens"),
        ("\"attention_mask\": [1, 2, 1]", "has 2 in `attention_mask` at token 1; its numbers are 0 and 1"),
        ("\"position_ids\": [0, 1, 0]", "has a second document from its token 2 on"),
    ] {
        let found = rows(&folder, &[&format!("{{\"input_ids\": [1, 2, 3], {fields}}}")]).expect_err(fields);
        assert!(found.contains(said), "{fields}: {found}");
        assert!(
            found.ends_with("; correct it, or name the column of tokens by `column` to learn all of them"),
            "{fields}: {found}"
        );
    }
    let corpus = rows(&folder, &["{\"input_ids\": [1, 2, 3, 4], \"labels\": [-100, 2, 3, 4]}"]).expect("a row");
    let long = batches(corpus, 2).expect_err("longer").to_string();
    assert!(long.contains("a.jsonl:1 has 4 tokens, and train.sequence_length = 2 takes 3"), "{long}");
    assert!(
        long.ends_with("rows with labels are not cut: use train.sequence_length = 3 or more, or cut them before"),
        "{long}"
    );
    let first = rows(&folder, &["{\"input_ids\": [1, 2], \"labels\": [1, -100]}"]).expect("a row");
    let nothing = batches(first, 2).expect_err("no target").to_string();
    assert!(nothing.contains("have no token that their labels or masks learn"), "{nothing}");
}

#[test]
fn token_files_do_not_hold_labels() {
    let folder = Folder::new("tokenized-labels");
    folder.put("a.jsonl", b"{\"input_ids\": [1, 2, 3], \"labels\": [-100, 2, 3]}");
    let (out, bytes) = (folder.path("o.tokens"), Tokenizer::bytes());
    let tokenize =
        || data::tokenize(&[SourceSpec::of(folder.path("a.jsonl"))], OddFiles::Refuse, &bytes, &out, &data::NoListener);
    let said = tokenize().expect_err("labels").to_string();
    assert!(
        said.contains(
            "a.jsonl:1 has tokens that are not learned by its labels or masks, which token files do not hold"
        ),
        "{said}"
    );
    // Padding is left out of them.
    folder.put("a.jsonl", b"{\"input_ids\": [1, 2, 0], \"attention_mask\": [1, 1, 0]}");
    assert_eq!(tokenize().expect("tokens").tokens, 2);
}
