//! Blanks: samples written out by hand, the statistics of the paper, and sequences that depend on the seed and their
//! number alone.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use crate::tests::folder::Folder;
use config::{BatchOrigin, BlanksSpec, IGNORED_LABEL, InstructionsSpec, RunConfig, TrainSpec};
use data::{Batches, Blanks, Corpus, Document, Instruction, Instructions, Kind, Order, Slot, Tokenizer};

const MASK: i32 = 5000;
const GMASK: i32 = 5001;
const SOP: i32 = 5002;
const EOP: i32 = 5003;

/// The numbers of GLM-130B.
fn paper() -> BlanksSpec {
    let [mask, gmask, sop, eop] = [MASK, GMASK, SOP, EOP].map(|token| token as usize);
    BlanksSpec {
        mask,
        gmask,
        sop,
        eop,
        span_share: 0.3,
        span_mean: 3.0,
        span_tokens: 0.15,
        samples: 4,
        instructions: None,
    }
}

fn blanks(spec: &BlanksSpec, length: usize) -> Blanks {
    Blanks::new(spec, Arc::new(Instructions::default()), 7, length)
}

/// The text of a sequence: each token is its own place.
fn counting(_: u64, tokens: &mut [i32]) {
    tokens.iter_mut().enumerate().for_each(|(index, token)| *token = index as i32);
}

/// `(tokens, labels, positions, first places that are seen, places after the last)`.
type Columns = [Vec<i32>; 5];

fn columns(slots: &[Slot]) -> Columns {
    let column = |of: fn(&Slot) -> i32| slots.iter().map(of).collect();
    [
        column(|slot| slot.token),
        column(|slot| slot.label),
        column(|slot| slot.position),
        column(|slot| slot.sees[0]),
        column(|slot| slot.sees[1]),
    ]
}

const NONE: i32 = IGNORED_LABEL;

#[test]
fn spans_are_filled_behind_their_context() {
    let text: Vec<i32> = (10..20).collect();
    let slots = blanks(&paper(), 64).spans(&text, &[1..3, 6..7], &[1, 0]);
    let expected: Columns = [
        vec![10, MASK, 13, 14, 15, MASK, 17, 18, 19, SOP, 16, SOP, 11, 12],
        vec![NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE, 16, EOP, 11, 12, EOP],
        vec![0, 1, 2, 3, 4, 5, 6, 7, 8, 5, 5, 1, 1, 1],
        vec![0; 14],
        vec![9, 9, 9, 9, 9, 9, 9, 9, 9, 10, 11, 12, 13, 14],
    ];
    assert_eq!(columns(&slots), expected);
}

#[test]
fn a_rest_is_written_behind_its_context() {
    let text: Vec<i32> = (10..17).collect();
    let slots = blanks(&paper(), 64).rest(&text, 3);
    let expected: Columns = [
        vec![10, 11, 12, GMASK, SOP, 13, 14, 15],
        vec![NONE, NONE, NONE, NONE, 13, 14, 15, 16],
        vec![0, 1, 2, 3, 4, 5, 6, 7],
        vec![0; 8],
        vec![4, 4, 4, 4, 5, 6, 7, 8],
    ];
    assert_eq!(columns(&slots), expected);
}

#[test]
fn a_task_is_answered_behind_itself_and_what_is_left_counts_for_nothing() {
    let task = Instruction { input: vec![10, 11, 12], target: vec![20, 21] };
    let slots = |length| columns(&blanks(&paper(), 64).answered(&task, length));
    let expected: Columns = [
        vec![10, 11, 12, MASK, SOP, 20, 21, EOP, EOP],
        vec![NONE, NONE, NONE, NONE, 20, 21, EOP, NONE, NONE],
        vec![0, 1, 2, 3, 3, 3, 3, 0, 0],
        vec![0, 0, 0, 0, 0, 0, 0, 7, 8],
        vec![4, 4, 4, 4, 5, 6, 7, 8, 9],
    ];
    assert_eq!(slots(9), expected);
    assert_eq!(slots(5)[0], [12, MASK, SOP, 20, 21], "the task loses its beginning");
    assert_eq!(slots(3)[0], [MASK, SOP, 20], "then the answer its end");
}

/// The sequences of a run of the paper, with their kinds.
fn run(number: u64) -> Vec<(Kind, Vec<Slot>)> {
    let blanks = blanks(&paper(), 2048);
    (0..number).map(|number| (blanks.kind(number), blanks.sequence(number, counting))).collect()
}

/// Fills the blanks of a sample of [`counting`]: its spans in the order of the text, and the text, which must come out
/// whole.
fn filled(sample: &[Slot]) -> Vec<Vec<i32>> {
    let context = sample.iter().position(|slot| slot.token == SOP).unwrap();
    let mut spans: Vec<(i32, Vec<i32>)> = vec![];
    for slot in &sample[context..] {
        match slot.token {
            SOP => spans.push((slot.position, vec![])),
            token => spans.last_mut().unwrap().1.push(token),
        }
    }
    spans.sort();
    let mut rest = spans.iter();
    let whole: Vec<i32> = (0..context as i32)
        .zip(&sample[..context])
        .flat_map(|(place, slot)| match slot.token {
            MASK => {
                let (position, span) = rest.next().unwrap();
                assert_eq!(*position, place, "a span has the position of its mask");
                span.clone()
            }
            token => vec![token],
        })
        .collect();
    assert_eq!(whole, (whole[0]..whole[0] + whole.len() as i32).collect::<Vec<i32>>());
    spans.into_iter().map(|(_, span)| span).collect()
}

/// A span is as long as a Poisson variable of mean 3 that is not 0: its mean is `3 / (1 - e^-3) = 3.1572` and its
/// variance is `12 / (1 - e^-3) - 3.1572^2 = 2.661`. By Wald's identities the tokens of all spans over their number
/// have that mean also where the last span ends the drawing. Their deviation is that of as many independent spans; five
/// deviations are allowed, which random numbers exceed once in 1.7 million times.
#[test]
fn spans_are_those_of_the_paper() {
    let (mut tokens, mut spans) = (0usize, 0usize);
    for (kind, sequence) in run(100) {
        let Kind::Spans(_) = kind else { continue };
        for sample in sequence.chunks(512) {
            let drawn: Vec<usize> = filled(sample).iter().map(Vec::len).collect();
            let (blank, longest) = (drawn.iter().sum::<usize>(), *drawn.iter().max().unwrap());
            let text = 512 - 2 * drawn.len();
            assert!(blank as f64 >= 0.15 * text as f64, "{blank} of {text}");
            assert!(
                ((blank - longest) as f64) < 0.15 * (text + 2) as f64,
                "{blank} of {text} without the last span, {longest}"
            );
            (tokens, spans) = (tokens + blank, spans + drawn.len());
        }
    }
    let (mean, deviation) = (tokens as f64 / spans as f64, 2.661f64.sqrt());
    assert!((mean - 3.1572).abs() <= 5.0 * deviation / (spans as f64).sqrt(), "{mean} over {spans} spans");
    assert!(spans > 2500, "{spans}");
}

/// The length of a rest is uniform: each quarter has a quarter of them, within five deviations of a binomial variable.
#[test]
fn rests_are_as_long_as_chance_has_it() {
    let mut quarters = [0usize; 4];
    for (kind, sequence) in run(1500) {
        let Kind::Rest(_) = kind else { continue };
        let context = sequence.iter().position(|slot| slot.token == GMASK).unwrap();
        let text: Vec<i32> = (0..2047).collect();
        assert!(sequence == blanks(&paper(), 2048).rest(&text, context), "a context of {context}");
        quarters[context * 4 / 2047] += 1;
    }
    let all = quarters.iter().sum::<usize>() as f64;
    let within = 5.0 * (all * 0.25 * 0.75).sqrt();
    assert!(quarters.iter().all(|quarter| (*quarter as f64 - all / 4.0).abs() <= within), "{quarters:?}");
}

#[test]
fn samples_of_a_sequence_do_not_see_each_other() {
    let (_, sequence) = run(10).into_iter().find(|(kind, _)| matches!(kind, Kind::Spans(_))).unwrap();
    for (index, slot) in sequence.iter().enumerate() {
        let first = (index / 512 * 512) as i32;
        assert!(
            slot.sees[0] == first && slot.sees[1] > index as i32 && slot.sees[1] <= first + 512,
            "{index}: {slot:?}"
        );
        assert!((0..512).contains(&slot.position), "{index}: {slot:?}");
    }
}

fn tasks(folder: &Folder) -> Arc<Instructions> {
    let lines: Vec<String> = (0..3u8).map(|n| format!("{{\"input\": \"{n}?\", \"target\": \"{n}\"}}")).collect();
    folder.put("tasks.jsonl", lines.join("\n").as_bytes());
    Arc::new(Instructions::read(Some(&folder.path("tasks.jsonl")), &Tokenizer::bytes()).unwrap())
}

/// Of a hundred sequences 5 are tasks; of the 95 of text, 0.3 x 95 = 28.5 have spans.
#[test]
fn shares_are_kept_to_the_last_sequence_and_text_is_numbered_through() {
    let folder = Folder::new("blanks-shares");
    let tasks = tasks(&folder);
    let spec = BlanksSpec {
        instructions: Some(InstructionsSpec { path: Some("tasks.jsonl".into()), share: 0.05 }),
        ..paper()
    };
    let blanks = Blanks::new(&spec, tasks.clone(), 7, 2048);
    let kinds: Vec<Kind> = (0..100).map(|number| blanks.kind(number)).collect();
    let [mut texts, mut followed, mut spans] = [vec![], vec![], vec![]];
    for kind in kinds {
        match kind {
            Kind::Instructions(number) => followed.push(number),
            Kind::Rest(number) => texts.push(number),
            Kind::Spans(number) => {
                texts.push(number);
                spans.push(number);
            }
        }
    }
    // Shares are fixed-point numbers, which may round the last one away.
    assert!((4..=5).contains(&followed.len()) && (28..=29).contains(&spans.len()), "{followed:?}, {spans:?}");
    assert_eq!(texts, (0..texts.len() as u64).collect::<Vec<u64>>());
    assert_eq!(followed, (0..followed.len() as u64).collect::<Vec<u64>>());
    // Four samples a sequence, each of three tasks once before any comes again.
    for epoch in 0..4 {
        let mut seen: Vec<&Instruction> = (0..3).map(|task| tasks.get(7, 3 * epoch + task)).collect();
        seen.sort_by_key(|task| task.target.clone());
        assert_eq!(seen.iter().map(|task| task.target[0]).collect::<Vec<i32>>(), [48, 49, 50]);
    }
    let number = (0..100).find(|number| matches!(blanks.kind(*number), Kind::Instructions(_))).unwrap();
    let sequence = blanks.sequence(number, counting);
    let learned: Vec<i32> = sequence.iter().map(|slot| slot.label).filter(|label| *label != NONE).collect();
    assert_eq!((sequence.len(), learned.len()), (2048, 8), "{learned:?}");
    assert!((0..100).all(|number| !matches!(blanks.of_text().kind(number), Kind::Instructions(_))));
}

#[test]
fn a_sequence_depends_on_the_seed_and_its_number_and_on_nothing_else() {
    let text: String = (0..3000u32).map(|index| char::from(b'a' + (index * index % 26) as u8)).collect();
    let corpus = Corpus::new(&[Document { name: "a".into(), text }], &Tokenizer::bytes()).unwrap();
    let of = |seed, global_batch: u64, origin: BatchOrigin| -> Vec<[Vec<i32>; 4]> {
        let train = RunConfig::quick_start().train;
        let train =
            TrainSpec { sequence_length: 64, global_batch: global_batch as usize, batch_origin: origin, seed, ..train };
        let batches = Batches::new(corpus.clone(), "training", &train, 5004, Order::Shuffled { seed }).unwrap();
        let batches =
            batches.with_blanks(Some(Blanks::new(&paper(), Arc::default(), seed, 64))).expect("whole windows");
        let first = u64::from(origin.steps) * global_batch;
        let sequence = |number: u64| {
            let [mut tokens, mut labels, mut positions, mut visible] = [64, 64, 64, 128].map(|len| vec![-1; len]);
            let (step, sequence) = ((number / global_batch) as u32, number % global_batch);
            batches.fill(step, sequence, &mut tokens, &mut labels, &mut positions, &mut visible);
            [tokens, labels, positions, visible]
        };
        (first..48).map(sequence).collect()
    };
    let all = of(1, 4, BatchOrigin::default());
    assert_eq!(all, of(1, 12, BatchOrigin::default()));
    assert_eq!(all[24..], of(1, 4, BatchOrigin { steps: 6, sequences: 24 }));
    assert_ne!(all, of(2, 4, BatchOrigin::default()));
}

/// Without a file there are tasks, too, each of which is answered in a sample of 64 bytes.
#[test]
fn the_program_has_a_few_tasks_of_its_own() {
    let tasks = Instructions::read(None, &Tokenizer::bytes()).unwrap();
    let first: Vec<&Instruction> = (0..20).map(|number| tasks.get(7, number)).collect();
    let text = |tokens: &[i32]| tokens.iter().map(|byte| char::from(*byte as u8)).collect::<String>();
    assert!(first.iter().any(|task| text(&task.input) == "Half of 8:" && text(&task.target) == " 4"));
    assert!(first.iter().all(|task| task.input.len() + task.target.len() + 3 <= 64));
}

#[test]
fn what_is_no_task_is_refused() {
    let folder = Folder::new("blanks-refused");
    let said = |text: &str| {
        folder.put("tasks.jsonl", text.as_bytes());
        let path = folder.path("tasks.jsonl");
        let read = Instructions::read(Some(&path), &Tokenizer::bytes()).and_then(|tasks| tasks.check_vocabulary(100));
        let said = read.expect_err("no tasks").to_string();
        said.replace(&path.display().to_string(), "tasks.jsonl")
    };
    assert_eq!(
        said("{\"input\": \"a\", \"target\": \"b\"}\n{\"input\": \"a\"}"),
        "tasks.jsonl:2 (byte 30) has no field `target`; each line is an object such as {\"input\": \"...\", \"target\": \"...\"}"
    );
    assert!(said("\n\n").starts_with("tasks.jsonl holds no text"));
    assert_eq!(
        said("{\"input\": \"ab\", \"target\": \"x\"}"),
        "token 120 is in task 1 of data.blanks: outside model.vocabulary = 100; use at least 121"
    );
}
