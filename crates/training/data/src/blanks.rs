//! Blanks that a model fills: the objective of GLM-130B (Zeng et al. 2022, section 2.2; Du et al. 2022 for how spans
//! are drawn).
//!
//! A sample is a context, all of whose tokens see each other and none of which is a target, and after it what fills its
//! blanks, which sees the context and its own past. In the context a span is one `[MASK]`, the rest of a text one
//! `[gMASK]`; what fills a blank begins with `sop`. Positions of a rest continue from the context; those of a span are
//! all that of its `[MASK]`.
//!
//! Which sequences have which blanks, and where, are functions of the seed and the sequence's number in the run.

use std::ops::Range;
use std::sync::Arc;

use config::BlanksSpec;
use config::IGNORED_LABEL;

use crate::draws::Draws;
use crate::instructions::{Instruction, Instructions};
use crate::mixture::Shares;

/// The source of sequences, with the settings that make them.
#[derive(Clone, Debug)]
pub struct Blanks {
    spec: BlanksSpec,
    seed: u64,
    sequence_length: usize,
    instructions: Arc<Instructions>,
    /// Instructions and text.
    tasks: Shares,
    /// Spans and rests, among sequences of text.
    kinds: Shares,
    /// Up to each length of a span from 1 on, its share and that of all shorter ones.
    span_lengths: Vec<f64>,
}

/// The kind of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Samples with spans to fill; the number of the sequence among those of text.
    Spans(u64),
    /// One sample whose rest is to be written; the number of the sequence among those of text.
    Rest(u64),
    /// Samples with tasks to answer; the number of the sequence among those.
    Instructions(u64),
}

/// A place of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// The input.
    pub token: i32,
    /// The target, or [`IGNORED_LABEL`].
    pub label: i32,
    /// The position, counted from the beginning of the sample.
    pub position: i32,
    /// The first place of the sample that it sees, and the one after the last.
    pub sees: [i32; 2],
}

impl Blanks {
    /// Sequences of `sequence_length` tokens, which the samples of `spec` divide.
    pub fn new(spec: &BlanksSpec, instructions: Arc<Instructions>, seed: u64, sequence_length: usize) -> Blanks {
        let share = spec.instructions.as_ref().filter(|_| !instructions.is_empty()).map_or(0.0, |own| own.share);
        Blanks {
            seed,
            sequence_length,
            instructions,
            tasks: Shares::new([share, 1.0 - share]),
            kinds: Shares::new([spec.span_share, 1.0 - spec.span_share]),
            span_lengths: span_lengths(f64::from(spec.span_mean)),
            spec: spec.clone(),
        }
    }

    /// The same without instructions: for text that is measured on.
    pub fn of_text(&self) -> Blanks {
        Blanks { tasks: Shares::new([0.0, 1.0]), ..self.clone() }
    }

    /// The kind of sequence `number` of the run.
    pub fn kind(&self, number: u64) -> Kind {
        match self.tasks.get(number) {
            (0, number) => Kind::Instructions(number),
            (_, number) => match self.kinds.get(number).0 {
                0 => Kind::Spans(number),
                _ => Kind::Rest(number),
            },
        }
    }

    /// All places of sequence `number` of the run; `window` gives the first tokens of the text that is sequence `n` of
    /// those of text.
    pub fn sequence(&self, number: u64, window: impl Fn(u64, &mut [i32])) -> Vec<Slot> {
        let (length, sample_length) = (self.sequence_length, self.sequence_length / self.spec.samples);
        let draws = |sample: usize| Draws::new(self.seed, number, sample as u32);
        match self.kind(number) {
            Kind::Rest(text) => {
                // With the two tokens of the blank, and without the last, which is a target only, they fill the
                // sequence.
                let mut tokens = vec![0; length - 1];
                window(text, &mut tokens);
                let context = draws(0).below(tokens.len() as u64) as usize;
                self.rest(&tokens, context)
            }
            Kind::Spans(text) => {
                let mut tokens = vec![0; length];
                window(text, &mut tokens);
                let samples = tokens.chunks_exact(sample_length).enumerate();
                concatenated(samples.map(|(sample, tokens)| {
                    let (spans, order) = self.draw_spans(sample_length, &mut draws(sample));
                    self.spans(&tokens[..sample_length - 2 * spans.len()], &spans, &order)
                }))
            }
            Kind::Instructions(tasks) => {
                let first = tasks * self.spec.samples as u64;
                let tasks =
                    (first..first + self.spec.samples as u64).map(|task| self.instructions.get(self.seed, task));
                concatenated(tasks.map(|task| self.answered(task, sample_length)))
            }
        }
    }

    /// The spans of a sample of `length` places, in the order of the text, and the order in which they are filled. A
    /// blank takes two places more than its tokens, for its mask and for `sop`, so `n` spans leave room for `length - 2
    /// n` tokens; spans are added until they have their share of those, and there is a token between any two.
    fn draw_spans(&self, length: usize, draws: &mut Draws) -> (Vec<Range<usize>>, Vec<usize>) {
        let (mut lengths, mut blank) = (Vec::new(), 0usize);
        while lengths.is_empty()
            || (blank as f64) < f64::from(self.spec.span_tokens) * (length - 2 * lengths.len()) as f64
        {
            // Half of the text stays, whatever is drawn.
            let room = ((length - 2 * (lengths.len() + 1)) / 2).saturating_sub(blank).max(1);
            let drawn = draws.unit();
            let own = self.span_lengths.partition_point(|behind| *behind <= drawn) + 1;
            lengths.push(own.min(room));
            blank += own.min(room);
        }
        // The one that fills the share is likely to be long; it may be anywhere.
        draws.shuffle(&mut lengths);
        let kept = length - 2 * lengths.len() - blank;
        let (mut spans, mut at) = (Vec::with_capacity(lengths.len()), 0);
        for (before, length) in draws.ascending(lengths.len(), kept + 1).into_iter().zip(lengths) {
            let start = before + at;
            spans.push(start..start + length);
            at += length;
        }
        let mut order: Vec<usize> = (0..spans.len()).collect();
        draws.shuffle(&mut order);
        (spans, order)
    }

    /// The sample of `text` whose `spans`, in the order of the text, are blank, and are filled in `order`.
    pub fn spans(&self, text: &[i32], spans: &[Range<usize>], order: &[usize]) -> Vec<Slot> {
        let (mut context, mut masks, mut at) = (Vec::new(), Vec::new(), 0);
        for span in spans {
            context.extend(&text[at..span.start]);
            masks.push(context.len());
            context.push(self.spec.mask as i32);
            at = span.end;
        }
        context.extend(&text[at..]);
        let mut sample = seen_by_all(&context);
        for index in order {
            let content = &text[spans[*index].clone()];
            self.fill(&mut sample, content, self.spec.eop as i32, |_| masks[*index]);
        }
        sample
    }

    /// The sample of `text` in which what follows the first `context` tokens is blank. The text continues after the
    /// last token, which is not an end.
    pub fn rest(&self, text: &[i32], context: usize) -> Vec<Slot> {
        let (context, rest) = text.split_at(context);
        let mut sample = seen_by_all(&[context, &[self.spec.gmask as i32]].concat());
        if let Some((last, rest)) = rest.split_last() {
            let behind = sample.len();
            self.fill(&mut sample, rest, *last, |index| behind + index);
        }
        sample
    }

    /// A task whose answer is a blank after it, and nothing in the places that are left. Where they do not fit, the
    /// task loses its beginning and then the answer its end.
    pub fn answered(&self, task: &Instruction, length: usize) -> Vec<Slot> {
        let Instruction { input, target } = task;
        let answer = &target[..target.len().min(length - 2)];
        let input = &input[input.len() - input.len().min(length - 2 - answer.len())..];
        let mut sample = seen_by_all(&[input, &[self.spec.mask as i32]].concat());
        let mask = input.len();
        self.fill(&mut sample, answer, self.spec.eop as i32, |_| mask);
        for place in sample.len() as i32..length as i32 {
            sample.push(Slot {
                token: self.spec.eop as i32,
                label: IGNORED_LABEL,
                position: 0,
                sees: [place, place + 1],
            });
        }
        sample
    }

    /// Adds what fills a blank: `sop` and `content`, whose targets are `content` and `last`.
    fn fill(&self, sample: &mut Vec<Slot>, content: &[i32], last: i32, position: impl Fn(usize) -> usize) {
        let tokens = std::iter::once(self.spec.sop as i32).chain(content.iter().copied());
        let labels = content.iter().copied().chain([last]);
        for (index, (token, label)) in tokens.zip(labels).enumerate() {
            let behind = sample.len() as i32 + 1;
            sample.push(Slot { token, label, position: position(index) as i32, sees: [0, behind] });
        }
    }
}

/// A context.
fn seen_by_all(tokens: &[i32]) -> Vec<Slot> {
    let sees = [0, tokens.len() as i32];
    let slot = |(position, token): (usize, &i32)| Slot {
        token: *token,
        label: IGNORED_LABEL,
        position: position as i32,
        sees,
    };
    tokens.iter().enumerate().map(slot).collect()
}

/// Samples one after the other, which do not see each other.
fn concatenated(samples: impl Iterator<Item = Vec<Slot>>) -> Vec<Slot> {
    let mut sequence: Vec<Slot> = Vec::new();
    for sample in samples {
        let first = sequence.len() as i32;
        sequence.extend(sample.into_iter().map(|slot| Slot { sees: slot.sees.map(|place| first + place), ..slot }));
    }
    sequence
}

/// A length that is drawn once in this many times is the longest.
const RAREST: f64 = 1e-12;

/// The distribution function of a Poisson distribution of this mean, without 0, from the length 1 on; the last is 1.
fn span_lengths(mean: f64) -> Vec<f64> {
    // Relative to the length 1, so that no exponential is needed.
    let (mut weights, mut weight, mut all) = (vec![1.0], 1.0, 1.0);
    while weight > RAREST * all || (weights.len() as f64) < mean {
        weight *= mean / (weights.len() + 1) as f64;
        weights.push(weight);
        all += weight;
    }
    let mut behind = 0.0;
    let mut shares: Vec<f64> = weights
        .iter()
        .map(|weight| {
            behind += weight / all;
            behind
        })
        .collect();
    if let Some(last) = shares.last_mut() {
        *last = 1.0;
    }
    shares
}
