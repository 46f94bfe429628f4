//! Sequences: every token once per epoch, whatever the layout, and text that cannot be trained on.

use config::{IGNORED_LABEL, Positions, RunConfig, TrainSpec, Visible};
use data::{
    Batches, Corpus, Document, Mixture, MixturePart, Order, Packing, Shares, Tokenizer, Window, embedded, split,
};

fn document(name: &str, text: &str) -> Document {
    Document { name: name.into(), text: text.into() }
}

fn corpus(documents: &[Document]) -> Corpus {
    Corpus::new(documents, &Tokenizer::bytes()).expect("bytes have tokens")
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
    let corpus = corpus(&[document("a", "abcdefgh")]);
    let batches = Batches::new(corpus, "training", &train_spec(3, 1), 256, Order::AsWritten).expect("long enough");
    assert_eq!(batches.num_windows(), 3);
    let second = sequence(&batches, 3, 1, 0);
    assert_eq!(second.tokens, b"def".map(i32::from));
    assert_eq!(second.labels, b"efg".map(i32::from));
    assert_eq!(second.positions, [0, 1, 2]);
    assert_eq!(second.visible, [0, 1, 0, 2, 0, 3]);
    // The rest of the text is a window whose other places stand for themselves.
    let rest = sequence(&batches, 3, 2, 0);
    assert_eq!((rest.tokens, rest.labels), (vec![103, 0, 0], vec![104, IGNORED_LABEL, IGNORED_LABEL]));
    assert_eq!((rest.positions, rest.visible), (vec![0, 1, 2], vec![0, 1, 1, 2, 2, 3]));
    assert_eq!(sequence(&batches, 3, 3, 0).tokens, b"abc".map(i32::from));
}

#[test]
fn an_epoch_visits_every_window_once_and_epochs_differ() {
    let text: String = (0..1000).map(|index| char::from(b'a' + (index % 26) as u8)).collect();
    let spec = train_spec(9, 4);
    let batches = Batches::new(corpus(&[document("a", &text)]), "training", &spec, 256, Order::Shuffled { seed: 5 })
        .expect("long");
    assert_eq!(batches.num_windows(), 111);
    let order: Vec<u64> = (0..222u64).map(|index| batches.window((index / 4) as u32, index % 4).number).collect();
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
    let windows = |seed, batch: u64| -> Vec<Window> {
        let order = Order::Shuffled { seed };
        let corpus = corpus(&[document("a", &text)]);
        let batches = Batches::new(corpus, "training", &train_spec(7, batch as usize), 256, order).expect("long");
        (0..96).map(|index| batches.window((index / batch) as u32, index % batch)).collect()
    };
    assert_eq!(windows(1, 4), windows(1, 12));
    assert_ne!(windows(1, 4), windows(2, 4));
}

#[test]
fn short_texts_and_unknown_tokens_are_refused() {
    let corpus = |text: &str| corpus(&[document("one.txt", "ab"), document("two.txt", text)]);
    let spec = train_spec(8, 1);
    let said = |text, vocabulary| -> String {
        let order = Order::Shuffled { seed: 1 };
        Batches::new(corpus(text), "training", &spec, vocabulary, order).expect_err("wrong").to_string()
    };
    assert_eq!(
        said("cdefgh", 256),
        "the training text has 8 tokens, but train.sequence_length = 8 needs 9; give more text or shorter sequences"
    );
    assert_eq!(
        said("cdefgh~i", 120),
        "token 126 is token 6 of two.txt: outside model.vocabulary = 120; use at least 127"
    );
    let measured = |text: &str| {
        let corpus = super::batches::corpus(&[document("one.txt", text)]);
        Batches::new(corpus, "evaluation", &spec, 256, Order::AsWritten).map(|batches| batches.num_windows())
    };
    assert_eq!(measured("ab").expect("a target"), 1, "a text that is measured may be short");
    assert_eq!(
        measured("a").expect_err("no target").to_string(),
        "the evaluation text has 1 tokens, and the first token of a text is not predicted; give more text"
    );
}

#[test]
fn a_token_of_a_masked_sequence_sees_its_own_document() {
    let documents = [document("a", "abcde"), document("b", "fg"), document("c", "hijklmn")];
    let mixture = Mixture { visible: Visible::Document, ..Mixture::from(corpus(&documents)) };
    let batches = Batches::new(mixture, "training", &train_spec(6, 1), 256, Order::AsWritten).expect("long enough");
    let first = sequence(&batches, 6, 0, 0);
    assert_eq!(first.tokens, b"abcdef".map(i32::from));
    assert_eq!(first.labels, [98, 99, 100, 101, IGNORED_LABEL, 103]);
    assert_eq!(first.positions, [0, 1, 2, 3, 4, 5]);
    assert_eq!(first.visible, [0, 1, 0, 2, 0, 3, 0, 4, 0, 5, 5, 6]);
    let second = sequence(&batches, 6, 1, 0);
    assert_eq!(second.tokens, b"ghijkl".map(i32::from));
    assert_eq!(second.labels, [IGNORED_LABEL, 105, 106, 107, 108, 109]);
    assert_eq!(second.visible, [0, 1, 1, 2, 1, 3, 1, 4, 1, 5, 1, 6]);
}

/// Positions start again with each document whatever tokens see; a document that began before the window starts with
/// it.
#[test]
fn positions_count_from_the_beginning_of_the_document() {
    let documents = [document("a", "abcde"), document("b", "fg"), document("c", "hijklmn")];
    for visible in [Visible::Past, Visible::Document] {
        let mixture = Mixture { visible, positions: Positions::Document, ..Mixture::from(corpus(&documents)) };
        let batches = Batches::new(mixture, "training", &train_spec(6, 1), 256, Order::AsWritten).expect("long enough");
        assert_eq!(sequence(&batches, 6, 0, 0).positions, [0, 1, 2, 3, 4, 0]);
        assert_eq!(sequence(&batches, 6, 1, 0).positions, [0, 0, 1, 2, 3, 4]);
        let masked = sequence(&batches, 6, 0, 0).visible[10] == 5;
        assert_eq!(masked, visible == Visible::Document);
    }
}

#[test]
fn masks_and_labels_agree_with_a_plain_reading_of_the_documents() {
    let lengths = [1usize, 1, 3, 7, 2, 1, 9, 4, 1, 1, 6];
    let documents: Vec<Document> = lengths
        .iter()
        .enumerate()
        .map(|(index, length)| {
            document(&index.to_string(), &char::from(b'a' + index as u8).to_string().repeat(*length))
        })
        .collect();
    let text: Vec<u8> = documents.iter().flat_map(|document| document.text.bytes()).collect();
    for length in [1, 2, 5, 8] {
        let mixture = Mixture { visible: Visible::Document, ..Mixture::from(corpus(&documents)) };
        let batches = Batches::new(mixture, "training", &train_spec(length, 1), 256, Order::AsWritten).expect("long");
        for window in 0..batches.num_windows() as usize {
            let filled = sequence(&batches, length, window as u32, 0);
            let start = window * length;
            for place in 0..length {
                if start + place + 1 >= text.len() {
                    assert_eq!(filled.visible[2 * place..2 * place + 2], [place as i32, place as i32 + 1]);
                    assert_eq!(filled.labels[place], IGNORED_LABEL, "window {window}, place {place} after the text");
                    continue;
                }
                // Every document has a letter of its own.
                let own = text[start + place];
                let first = (0..=place).find(|place| text[start + place] == own).expect("itself");
                let next = text[start + place + 1];
                let label = if next == own { i32::from(next) } else { IGNORED_LABEL };
                assert_eq!(filled.visible[2 * place..2 * place + 2], [first as i32, place as i32 + 1]);
                assert_eq!(filled.labels[place], label, "window {window}, place {place}");
            }
        }
    }
}

#[test]
fn sources_are_taken_in_proportion_to_their_weights() {
    for weights in [&[1.0f32][..], &[1.0, 1.0], &[3.0, 1.0], &[0.2, 0.5, 0.3], &[1e-3, 1.0, 7.0, 2.5]] {
        let shares = Shares::new(weights.iter().copied());
        let total: f64 = weights.iter().map(|weight| f64::from(*weight)).sum();
        let mut counts = vec![0u64; weights.len()];
        for number in 0..20_000 {
            let (corpus, before) = shares.get(number);
            assert_eq!(before, counts[corpus], "sequence {number} of {weights:?}");
            counts[corpus] += 1;
            for (count, weight) in counts.iter().zip(weights) {
                // Each corpus rounds what the one before it leaves: one sequence each, and less than one more for 32
                // bits of the shares.
                let due = (number + 1) as f64 * f64::from(*weight) / total;
                assert!((*count as f64 - due).abs() <= weights.len() as f64 + 0.01, "{counts:?} after {number}");
            }
        }
        assert!(shares.get(u64::MAX).0 < weights.len());
    }
}

#[test]
fn a_mixture_repeats_its_short_sources_and_evaluates_each_once() {
    let ingredient = |name: &str, text: &str, weight| MixturePart {
        name: name.into(),
        corpus: corpus(&[document(name, text)]),
        weight,
    };
    let mixture = Mixture {
        ingredients: vec![ingredient("a", &"a".repeat(41), 1.0), ingredient("b", &"b".repeat(13), 1.0)],
        visible: Visible::Past,
        positions: Positions::Sequence,
        packing: Packing::Continuous,
    };
    let spec = train_spec(4, 2);
    let batches = Batches::new(mixture.clone(), "training", &spec, 256, Order::Shuffled { seed: 1 }).expect("long");
    assert_eq!(batches.num_windows(), 13);
    let mut seen = [vec![], vec![]];
    for index in 0..20 {
        let window = batches.window(index / 2, u64::from(index % 2));
        seen[window.corpus].push(window.number);
        let letter = [b'a', b'b'][window.corpus];
        assert_eq!(sequence(&batches, 4, index / 2, u64::from(index % 2)).labels, [i32::from(letter); 4]);
    }
    assert_eq!([seen[0].len(), seen[1].len()], [10, 10]);
    seen[0].sort_unstable();
    assert_eq!(seen[0], (0..10).collect::<Vec<u64>>());
    seen[1].truncate(9);
    seen[1].sort_unstable();
    assert_eq!(seen[1], [0, 0, 0, 1, 1, 1, 2, 2, 2]);

    let all = Batches::new(mixture.clone(), "held-out", &spec, 256, Order::AsWritten).expect("long");
    let order: Vec<usize> = (0..13u32).map(|index| all.window(index / 2, u64::from(index % 2)).corpus).collect();
    assert_eq!(order, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1]);
    let long = train_spec(13, 1);
    assert_eq!(
        Batches::new(mixture, "training", &long, 256, Order::Shuffled { seed: 1 }).expect_err("b is short").to_string(),
        "the training text of b has 13 tokens, but train.sequence_length = 13 needs 14; give more text or shorter sequences"
    );
}

/// One permutation for sources of one length would pair their windows in every epoch.
#[test]
fn sources_of_one_length_have_orders_of_their_own() {
    let ingredient = |name: &str| MixturePart {
        name: name.into(),
        corpus: corpus(&[document(name, &name.repeat(401))]),
        weight: 1.0,
    };
    let mixture = Mixture {
        ingredients: vec![ingredient("a"), ingredient("b")],
        visible: Visible::Past,
        positions: Positions::Sequence,
        packing: Packing::Continuous,
    };
    let batches = |mixture: Mixture| {
        Batches::new(mixture, "training", &train_spec(4, 2), 256, Order::Shuffled { seed: 1 }).expect("long")
    };
    let both = batches(mixture.clone());
    let mut seen = [vec![], vec![]];
    for index in 0..400u64 {
        let window = both.window((index / 2) as u32, index % 2);
        seen[window.corpus].push(window.number);
    }
    let alike = |a: &[u64], b: &[u64]| a.iter().zip(b).filter(|(a, b)| a == b).count();
    let [a, b] = &seen;
    // Random orders of 100 agree in a Poisson(1) number of places: more than 12 has probability 1e-10.
    for (first, second) in
        [(&a[..100], &b[..100]), (&a[100..], &b[100..]), (&a[..100], &a[100..]), (&a[100..], &b[..100])]
    {
        assert!(alike(first, second) <= 12, "{first:?}\n{second:?}");
    }
    // A source alone has the order that it had before there were mixtures.
    let alone = batches(Mixture { ingredients: mixture.ingredients[..1].to_vec(), ..mixture });
    let numbers: Vec<u64> = (0..100u64).map(|index| alone.window((index / 2) as u32, index % 2).number).collect();
    assert_eq!(numbers, (0..100).map(|place| philox::Permutation::new(1, 0, 100).get(place)).collect::<Vec<_>>());
}

#[test]
fn whole_documents_are_held_out() {
    let documents: Vec<Document> =
        (0..40).map(|index| document(&index.to_string(), &"word ".repeat(index + 1))).collect();
    let total: usize = documents.iter().map(|document| document.text.len()).sum();
    let parts = split(documents.clone(), 0.1);
    assert_eq!(parts, split(documents.clone(), 0.1));
    let len = |part: &[Document]| part.iter().map(|document| document.text.len()).sum::<usize>();
    assert_eq!(len(&parts.train) + len(&parts.held_out), total);
    assert_eq!(parts.train.len() + parts.held_out.len(), 40);
    let share = len(&parts.held_out) as f64 / total as f64;
    assert!(share > 0.05 && share <= 0.1, "{share}");
    assert!(split(documents, 0.0).held_out.is_empty());
}

#[test]
fn one_document_is_cut_at_a_line_and_two_leave_the_shorter() {
    let text = "a line of text\n".repeat(100);
    let parts = split(vec![document("a", &text)], 0.1);
    assert_eq!((parts.train[0].text.len(), parts.held_out[0].text.len()), (90 * 15, 10 * 15));
    let parts = split(vec![document("a", "long text"), document("b", "short")], 0.1);
    assert_eq!(parts.held_out[0].name, "b");
    assert!(split(vec![document("a", "no line end")], 0.1).held_out.is_empty());
    assert!(split(vec![document("a", &text)], 0.0).held_out.is_empty());
}

#[test]
fn the_embedded_corpus_is_long_enough_to_train_on() {
    let documents = embedded();
    assert!(documents.len() > 100);
    assert!(documents.iter().all(|document| !document.name.contains('\n') && !document.text.is_empty()));
    let parts = split(documents, 0.1);
    let (train, held_out) = (corpus(&parts.train), corpus(&parts.held_out));
    assert!(train.len() > 400_000 && held_out.len() > 40_000, "{} and {} bytes", train.len(), held_out.len());
    let quick_start = RunConfig::quick_start();
    for part in [train, held_out] {
        Batches::new(part, "training", &quick_start.train, quick_start.model.vocabulary, Order::AsWritten)
            .expect("legal");
    }
}

/// While the batch grows, steps take up the same sequences in the same order as in any other run; none is left out or
/// comes twice.
#[test]
fn a_growing_batch_consumes_the_same_sequences() {
    let corpus = corpus(&[document("a", &"abcdefghijklmnopqrstuvwxyz".repeat(40))]);
    let batches = |train: TrainSpec| {
        Batches::new(corpus.clone(), "text", &train, 256, Order::Shuffled { seed: 3 }).expect("text enough")
    };
    let ramp = config::BatchRamp { start: 2, increment: 2, sequences: 12, grows: config::BatchGrowth::Microbatches };
    let grown = TrainSpec { batch_ramp: Some(ramp), ..train_spec(5, 8) };
    let (ramped, plain) = (batches(grown.clone()), batches(train_spec(5, 1)));
    let mut consumed = 0;
    for step in 0..10 {
        for sequence in 0..grown.batches().at(step).sequences as u64 {
            assert_eq!(ramped.window(step, sequence), plain.window(consumed, 0), "step {step}, sequence {sequence}");
            consumed += 1;
        }
    }
    assert_eq!(consumed, 2 + 2 + 4 + 6 + 6 * 8, "2, 2, 4, 6 and then 8 sequences");
}
