//! Sequences: every token once per epoch, whatever the layout, and text that cannot be trained on.

use data::{Batches, Corpus, DataError, Document, Order, embedded, read, split};
use spec::{RunConfig, TrainSpec};

fn document(name: &str, text: &str) -> Document {
    Document { name: name.into(), text: text.into() }
}

fn train_spec(sequence_length: usize, global_batch: usize) -> TrainSpec {
    TrainSpec { sequence_length, global_batch, ..RunConfig::quick_start().train }
}

struct Sequence {
    tokens: Vec<i32>,
    labels: Vec<i32>,
    positions: Vec<i32>,
    visible: Vec<i32>,
}

fn sequence(batches: &Batches, length: usize, step: u32, sequence: u64) -> Sequence {
    let mut filled = Sequence {
        tokens: vec![-1; length],
        labels: vec![-1; length],
        positions: vec![-1; length],
        visible: vec![-1; 2 * length],
    };
    batches.fill(step, sequence, &mut filled.tokens, &mut filled.labels, &mut filled.positions, &mut filled.visible);
    filled
}

#[test]
fn labels_are_the_next_tokens_and_each_token_sees_its_past() {
    let corpus = Corpus::new([document("a", "abcdefgh")]);
    let batches = Batches::new(corpus, "training", &train_spec(3, 1), 256, Order::AsWritten).expect("long enough");
    assert_eq!(batches.num_windows(), 2);
    let second = sequence(&batches, 3, 1, 0);
    assert_eq!(second.tokens, b"def".map(i32::from));
    assert_eq!(second.labels, b"efg".map(i32::from));
    assert_eq!(second.positions, [0, 1, 2]);
    assert_eq!(second.visible, [0, 1, 0, 2, 0, 3]);
    assert_eq!(sequence(&batches, 3, 2, 0).tokens, b"abc".map(i32::from));
}

#[test]
fn an_epoch_visits_every_window_once_and_epochs_differ() {
    let text: String = (0..1000).map(|index| char::from(b'a' + (index % 26) as u8)).collect();
    let spec = train_spec(9, 4);
    let batches =
        Batches::new(Corpus::new([document("a", &text)]), "training", &spec, 256, Order::Shuffled { seed: 5 })
            .expect("long");
    assert_eq!(batches.num_windows(), 111);
    let order: Vec<u64> = (0..222u64).map(|index| batches.window((index / 4) as u32, index % 4)).collect();
    for epoch in order.chunks(111) {
        let mut sorted = epoch.to_vec();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..111).collect::<Vec<u64>>());
    }
    assert_ne!(order[..111], order[111..]);
}

#[test]
fn the_order_depends_on_the_seed_and_not_on_the_batch() {
    let text = "x".repeat(5000);
    let windows = |seed, batch: u64| -> Vec<u64> {
        let order = Order::Shuffled { seed };
        let corpus = Corpus::new([document("a", &text)]);
        let batches = Batches::new(corpus, "training", &train_spec(7, batch as usize), 256, order).expect("long");
        (0..96).map(|index| batches.window((index / batch) as u32, index % batch)).collect()
    };
    assert_eq!(windows(1, 4), windows(1, 12));
    assert_ne!(windows(1, 4), windows(2, 4));
}

#[test]
fn short_texts_and_unknown_tokens_are_refused() {
    let corpus = |text: &str| Corpus::new([document("one.txt", "ab"), document("two.txt", text)]);
    let spec = train_spec(8, 1);
    let said = |text, vocabulary| -> String {
        Batches::new(corpus(text), "training", &spec, vocabulary, Order::AsWritten).expect_err("wrong").to_string()
    };
    assert_eq!(
        said("cdefgh", 256),
        "the training text has 8 tokens, but train.sequence_length = 8 needs 9; give more text or shorter sequences"
    );
    assert_eq!(
        said("cdefgh~i", 120),
        "token 126 at byte 6 of two.txt is outside model.vocabulary = 120; at least 127 would do"
    );
}

#[test]
fn whole_documents_are_held_out() {
    let documents: Vec<Document> =
        (0..40).map(|index| document(&index.to_string(), &"word ".repeat(index + 1))).collect();
    let total: usize = documents.iter().map(|document| document.text.len()).sum();
    let parts = split(documents.clone());
    assert_eq!(parts, split(documents));
    assert_eq!(parts.train.len() + parts.held_out.len(), total);
    assert_eq!(parts.train.documents().len() + parts.held_out.documents().len(), 40);
    let share = parts.held_out.len() as f64 / total as f64;
    assert!(share > 0.05 && share <= 0.1, "{share}");
}

#[test]
fn one_document_is_cut_at_a_line_and_two_leave_the_shorter() {
    let text = "a line of text\n".repeat(100);
    let parts = split(vec![document("a", &text)]);
    assert_eq!((parts.train.len(), parts.held_out.len()), (90 * 15, 10 * 15));
    let parts = split(vec![document("a", "long text"), document("b", "short")]);
    assert_eq!(parts.held_out.documents()[0].0, "b");
    assert!(split(vec![document("a", "no line end")]).held_out.is_empty());
}

#[test]
fn the_embedded_corpus_is_long_enough_to_train_on() {
    let documents = embedded();
    assert!(documents.len() > 100);
    assert!(documents.iter().all(|document| !document.name.contains('\n') && !document.text.is_empty()));
    let parts = split(documents);
    assert!(parts.train.len() > 400_000 && parts.held_out.len() > 40_000);
    let quick_start = RunConfig::quick_start();
    for part in [parts.train, parts.held_out] {
        Batches::new(part, "training", &quick_start.train, quick_start.model.vocabulary, Order::AsWritten)
            .expect("legal");
    }
}

#[test]
fn files_and_folders_are_read_and_what_is_no_text_is_refused() {
    let folder = std::env::temp_dir().join(format!("pleach-data-{}", std::process::id()));
    std::fs::create_dir_all(folder.join("b/.hidden")).expect("a folder");
    let put = |name: &str, bytes: &[u8]| std::fs::write(folder.join(name), bytes).expect("a file");
    put("z.txt", b"last");
    put("b/a.txt", b"first");
    put("b/.hidden/x.txt", b"hidden");
    let texts: Vec<String> = read(&folder).expect("text").into_iter().map(|document| document.text).collect();
    assert_eq!(texts, ["first", "last"]);
    assert_eq!(read(&folder.join("z.txt")).expect("text").len(), 1);
    put("z.txt", b"caf\xe9 au lait");
    assert!(matches!(read(&folder), Err(DataError::NotUtf8 { offset: 3, .. })));
    put("z.txt", b"");
    assert!(matches!(read(&folder.join("z.txt")), Err(DataError::Empty(_))));
    assert!(matches!(read(&folder.join("absent")), Err(DataError::Unreadable { .. })));
    std::fs::remove_dir_all(&folder).expect("removed");
}
