//! Whole conversations in sequences.

use std::collections::BTreeMap;

use config::{IGNORED_LABEL, LongConversations, RunConfig};
use data::{Batches, Dataset, Order, Packing, Targets};

use crate::tests::chat::{spec_of, vectors};
use crate::tests::folder::Folder;

/// Conversations of many lengths, one a line.
fn lines(number: usize) -> String {
    let line = |index: usize| {
        let answer = "word ".repeat(1 + (index * 7) % 11);
        format!("{{\"prompt\": \"question {index}\", \"completion\": \"{answer}\"}}\n")
    };
    (0..number).map(line).collect()
}

fn dataset(folder: &Folder, text: &str, long: LongConversations) -> Dataset {
    folder.put("chats.jsonl", text.as_bytes());
    let mut spec = spec_of(&folder.path("chats.jsonl"), &vectors().join("templates/chatml.jinja"));
    if let Some(chat) = &mut spec.chat {
        chat.long = long;
    }
    Dataset::open(&spec).expect("conversations")
}

fn batches(dataset: &Dataset, length: usize, order: Order) -> Result<Batches, String> {
    let mut train = RunConfig::quick_start().train;
    train.sequence_length = length;
    Batches::new(dataset.train.clone(), "training", &train, 400, order).map_err(|error| error.to_string())
}

/// One sequence: tokens, labels, positions, visible keys.
type Sequence = (Vec<i32>, Vec<i32>, Vec<i32>, Vec<i32>);

fn sequence(batches: &Batches, number: u64, length: usize) -> Sequence {
    let zeros = || vec![-1; length];
    let (mut tokens, mut labels, mut positions, mut visible) = (zeros(), zeros(), zeros(), vec![-1; 2 * length]);
    batches.fill(0, number, &mut tokens, &mut labels, &mut positions, &mut visible);
    (tokens, labels, positions, visible)
}

#[test]
fn every_answer_is_learned_once_an_epoch_and_sees_its_own_conversation() {
    let folder = Folder::new("packs");
    let dataset = dataset(&folder, &lines(60), LongConversations::Refuse);
    assert!(matches!(dataset.train.packing, Packing::Conversations(_)));
    let corpus = &dataset.train.ingredients[0].corpus;
    let length = 384;
    let batches = batches(&dataset, length, Order::AsWritten).expect("batches");
    assert_eq!(batches.targets(), Targets::Answers);
    // The list to be found: each conversation without its last token, its targets, and nothing else.
    let mut expected: BTreeMap<(Vec<i32>, Vec<i32>), usize> = BTreeMap::new();
    for index in 0..corpus.num_documents() {
        let tokens: Vec<i32> = corpus.document_tokens(index).map(|token| token as i32).collect();
        let answers: Vec<bool> = corpus.document_answers(index).collect();
        let targets = tokens.iter().zip(&answers).skip(1);
        let labels = targets.map(|(token, answer)| if *answer { *token } else { IGNORED_LABEL }).collect();
        *expected.entry((tokens[..tokens.len() - 1].to_vec(), labels)).or_default() += 1;
    }
    let mut found: BTreeMap<(Vec<i32>, Vec<i32>), usize> = BTreeMap::new();
    let mut used = 0;
    for number in 0..batches.num_windows() {
        let (tokens, labels, positions, visible) = sequence(&batches, number, length);
        let mut start = 0;
        while start < length {
            let seen = |place: usize| visible[2 * place] as usize;
            let end = (start..length).find(|place| seen(*place) != start).unwrap_or(length);
            for place in start..end {
                assert_eq!(positions[place] as usize, place - start, "positions begin with the conversation");
                assert_eq!(visible[2 * place + 1] as usize, place + 1, "a token sees itself and its past");
            }
            if labels[start..end].iter().any(|label| *label != IGNORED_LABEL) {
                let own = (tokens[start..end].to_vec(), labels[start..end].to_vec());
                *found.entry(own).or_default() += 1;
                used += end - start;
            } else {
                assert_eq!((end - start, tokens[start]), (1, 0), "places that are left see themselves");
            }
            start = end;
        }
    }
    assert_eq!(found, expected);
    // Best fit leaves little.
    let places = batches.num_windows() as usize * length;
    assert!(used * 10 > places * 9, "{used} of {places} places");
}

#[test]
fn a_conversation_that_is_too_long_is_refused_or_cut() {
    let folder = Folder::new("long");
    let text = lines(10) + &format!("{{\"prompt\": \"p\", \"completion\": \"{}\"}}\n", "long answer ".repeat(40));
    let refused = batches(&dataset(&folder, &text, LongConversations::Refuse), 96, Order::AsWritten);
    let message =
        refused.expect_err("too long").replace(&folder.path("chats.jsonl").display().to_string(), "chats.jsonl");
    let tokens: usize = message.split(' ').nth(2).and_then(|count| count.parse().ok()).expect("a count");
    assert!(tokens > 97, "{message}");
    assert_eq!(
        message,
        format!(
            "chats.jsonl:11 has {tokens} tokens, and train.sequence_length = 96 takes 97 (1 of the training conversations are \
             longer); use longer sequences, or long = \"cut\" in data.chat"
        )
    );
    let cut = batches(&dataset(&folder, &text, LongConversations::Cut), 96, Order::AsWritten).expect("batches");
    assert_eq!((cut.left_out().without_answer, cut.left_out().cut), (0, 1));
    let whole = (0..cut.num_windows()).map(|number| sequence(&cut, number, 96));
    // The cut one fills a sequence, whose last place has a target, too.
    let full = whole.filter(|(_, labels, positions, _)| positions[95] == 95 && labels[95] != IGNORED_LABEL);
    assert_eq!(full.count(), 1);
    // A prompt that fills the sequence leaves nothing to learn.
    let text = format!("{{\"prompt\": \"{}\", \"completion\": \"x\"}}\n", "long question ".repeat(40));
    let none = batches(&dataset(&folder, &text, LongConversations::Cut), 32, Order::AsWritten).expect_err("no answer");
    assert_eq!(
        none,
        "the training conversations have no token of an answer within train.sequence_length = 32; answers have the \
         role \"assistant\""
    );
}

#[test]
fn epochs_have_orders_of_their_own_and_the_same_sequences() {
    let folder = Folder::new("epochs");
    let dataset = dataset(&folder, &lines(40), LongConversations::Refuse);
    let shuffled = batches(&dataset, 96, Order::Shuffled { seed: 3 }).expect("batches");
    let epoch = |number: u64| -> Vec<Sequence> {
        let len = shuffled.num_windows();
        (number * len..(number + 1) * len).map(|sequence_number| sequence(&shuffled, sequence_number, 96)).collect()
    };
    let (mut first, mut second) = (epoch(0), epoch(1));
    assert_ne!(first, second);
    first.sort();
    second.sort();
    assert_eq!(first, second);
}

#[test]
fn hashes_know_which_tokens_are_answers() {
    let folder = Folder::new("hash");
    let text =
        "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"b\"}]}\n";
    let marked = vectors().join("templates/chatml_marked.jinja");
    let hash = |template: &std::path::Path| {
        folder.put("chats.jsonl", text.as_bytes());
        let spec = spec_of(&folder.path("chats.jsonl"), template);
        Dataset::open(&spec).expect("conversations").hash()
    };
    let all = folder.path("all.jinja");
    let source = std::fs::read_to_string(&marked).expect("a template");
    // The same text, whose prompt is an answer, too.
    folder.put(
        "all.jinja",
        format!(
            "{{% generation %}}{}{{% endgeneration %}}",
            source.replace("{% generation %}", "{% if true %}").replace("{% endgeneration %}", "{% endif %}")
        )
        .as_bytes(),
    );
    assert_ne!(hash(&marked), hash(&all));
    assert_eq!(hash(&marked), hash(&marked));
}
