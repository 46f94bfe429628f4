//! The text of a run: what it learns from, and what is held out to measure it.

use std::f64::consts::LN_2;
use std::path::Path;

use checkpoint::Hash;
use config::figures::{counted, grouped};
use config::{DeviceChoice, Marks, RunConfig, SampleSpec};
use data::{Baselines, Batches, Blanks, DataError, Dataset, LeftOut, Order, Targets, Tokenizer};
use train::{AttentionUse, Evaluation, EvaluationReport, SampleReport, Samples, Sampling, TokenSource, Validation};

use crate::failure::Failure;
use crate::gpus::devices::attention;
use crate::text::prompt;

/// Words of the text that a sample continues.
const BEGINNING_WORDS: usize = 4;

/// Text as sequences of a run.
pub struct Text {
    dataset: Dataset,
    training: Batches,
    /// Without it, why not.
    held_out: Result<Batches, String>,
    /// Texts that are measured on only, by name.
    validation: Vec<(String, Batches)>,
    sequence_length: usize,
    evaluate_every: u32,
    /// Windows of each text that are measured at once, at most.
    evaluated: u64,
    samples: SampleSpec,
    /// Tokens of its prompts.
    prompts: Vec<Vec<i32>>,
    /// The tokens around documents.
    marks: Marks,
    hash: Hash,
}

impl Text {
    /// The sequences of `config` from its text.
    ///
    /// # Errors
    /// Too little text to train on. Too little text is not an error.
    pub fn new(config: &RunConfig, dataset: Dataset) -> Result<Text, Failure> {
        let (train, vocabulary) = (&config.train, config.model.vocabulary);
        let order = Order::Shuffled { seed: train.seed };
        let training = Batches::new(dataset.train.clone(), "training", train, vocabulary, order).map_err(input)?;
        check_attention(config, &training)?;
        let held_out = Batches::new(dataset.held_out.clone(), "held-out", train, vocabulary, Order::AsWritten);
        let blanks = dataset.blanks(config).map_err(input)?;
        let held_out = held_out.and_then(|text| text.with_blanks(blanks.as_ref().map(Blanks::of_text)));
        let is_asked = config.data.held_out > 0.0;
        let held_out = held_out.map_err(|error| if is_asked { error.to_string() } else { "data.held_out = 0".into() });
        let training = training.with_blanks(blanks).map_err(input)?;
        let validation = dataset.validation.iter().map(|(name, text)| {
            let text = Batches::new(text.clone(), "validation", train, vocabulary, Order::AsWritten).map_err(input)?;
            Ok((name.clone(), text))
        });
        let validation = validation.collect::<Result<_, Failure>>()?;
        let hash = Hash(dataset.hash());
        let (evaluate_every, samples) = (config.run.evaluate_every, config.run.samples.clone());
        let prompts = match samples.every {
            0 => vec![],
            1.. => prompts(&samples, &dataset.tokenizer, vocabulary)?,
        };
        let sequence_length = train.sequence_length;
        let marks = config.data.marks();
        Ok(Text {
            dataset,
            training,
            held_out,
            validation,
            sequence_length,
            evaluate_every,
            evaluated: evaluated_windows(config),
            samples,
            prompts,
            marks,
            hash,
        })
    }

    /// Hash of all of its tokens.
    pub fn hash(&self) -> Hash {
        self.hash
    }

    /// Leaves the tokenizer in the folder of the run.
    ///
    /// # Errors
    /// A folder that cannot be written.
    pub fn save_tokenizer(&self, folder: &Path) -> Result<(), Failure> {
        self.dataset.tokenizer.save(folder).map_err(input)
    }

    /// Tokens and sequences, in a line; where there are several sources, their shares in another one.
    pub fn description(&self) -> String {
        let held_out = self.held_out.as_ref().map_or(0, |held_out| held_out.corpus().len());
        let sources = &self.dataset.train.ingredients;
        let sources: Vec<_> = sources.iter().map(|source| (source.name.as_str(), source.weight)).collect();
        let sequence_length = self.sequence_length;
        format!(
            "text    {}, {} per epoch; {} held out\n{}{}{}",
            counted(self.training.corpus().len() as u64, "token"),
            counted(self.training.num_windows(), "sequence"),
            counted(held_out as u64, "token"),
            shares(&sources),
            marks(&self.marks),
            left_out(self.training.left_out(), self.training.targets(), sequence_length),
        )
    }

    /// Sequences of one pass over the text that is trained on.
    pub fn sequences_per_epoch(&self) -> u64 {
        self.training.num_windows()
    }

    /// Sequences to train on.
    pub fn training(&self) -> &dyn TokenSource {
        &self.training
    }

    /// Sequences to measure on, and when; `None` if there is too little text.
    pub fn evaluation(&self) -> Option<Evaluation<'_>> {
        let held_out = self.held_out.as_ref().ok()?;
        Some(self.evaluation_of(held_out))
    }

    /// The measurement of a text, or of its beginning.
    fn evaluation_of<'a>(&self, tokens: &'a Batches) -> Evaluation<'a> {
        let sequences = tokens.num_windows().min(self.evaluated);
        Evaluation { tokens, sequences, every: self.evaluate_every }
    }

    /// The texts of `data.validation`, and when they are measured.
    pub fn validation(&self) -> Vec<Validation<'_>> {
        let texts =
            self.validation.iter().map(|(name, tokens)| Validation { name, evaluation: self.evaluation_of(tokens) });
        texts.collect()
    }

    /// The texts that the run generates; `None` for none.
    pub fn samples(&self) -> Option<Samples<'_>> {
        let SampleSpec { every, tokens, temperature, .. } = self.samples;
        let sampling = Sampling { temperature, top_k: None, top_p: 1.0, seed: 0 };
        (every > 0).then_some(Samples { prompts: &self.prompts, max_tokens: tokens, sampling, every })
    }

    /// A text that the run has generated: its prompt, and what follows it.
    ///
    /// # Errors
    /// An error of the tokenizer.
    pub fn sampled(&self, report: &SampleReport) -> Result<[String; 2], String> {
        let [before, tokens]: [Vec<u32>; 2] = [&self.prompts[report.prompt], &report.tokens]
            .map(|tokens| tokens.iter().map(|token| token.unsigned_abs()).collect());
        let text = self.dataset.tokenizer.continuation(&before, &tokens)?;
        Ok([self.samples.prompts[report.prompt].clone(), text])
    }

    /// The measurement with what simple methods make of the same text, in lines; or the reason why it is missing.
    ///
    /// # Errors
    /// An error of the tokenizer.
    pub fn comparison(&self, measured: Option<&EvaluationReport>) -> Result<String, Failure> {
        match (measured, &self.held_out) {
            (Some(report), _) => self.with_baselines(report),
            // Whoever stopped the run did not wait for a measurement.
            (None, Ok(_)) => Ok(String::new()),
            (None, Err(reason)) => Ok(format!("held out not measured: {reason}\n")),
        }
    }

    /// The beginning of a line of held-out text, for a sample; `None` where no line is long enough.
    ///
    /// # Errors
    /// An error of the tokenizer.
    pub fn beginning(&self) -> Result<Option<String>, Failure> {
        let text = self.dataset.text_of(&self.dataset.held_out).map_err(input)?;
        let line = text.lines().find(|line| line.split_whitespace().count() > BEGINNING_WORDS);
        let words = |line: &str| line.split_whitespace().take(BEGINNING_WORDS).collect::<Vec<_>>().join(" ");
        Ok(line.map(words))
    }

    fn with_baselines(&self, report: &EvaluationReport) -> Result<String, Failure> {
        let dataset = &self.dataset;
        let is_whole = self.held_out.as_ref().is_ok_and(|held_out| held_out.num_windows() <= self.evaluated);
        let tokens = match is_whole {
            true => grouped(report.tokens),
            false => format!("the first {} of {}", grouped(report.tokens), grouped(dataset.held_out.len() as u64)),
        };
        let of = match self.training.targets() {
            Targets::All => None,
            // Text around a blank helps to fill it, so a model of past text is not comparable.
            Targets::Blanks => Some("a blank"),
            Targets::Answers => Some("an answer"),
            Targets::Labels => Some("a label"),
        };
        if let Some(of) = of {
            return Ok(format!(
                "held out {:.4} nats per token of {of}, {tokens} tokens, after step {}\n",
                report.loss, report.step
            ));
        }
        let bits = bits_per_byte(report.loss, dataset.held_out.len() as u64, dataset.held_out_bytes);
        let nats = format!("{:.4} nats per token, {tokens} tokens, after step {}", report.loss, report.step);
        let mut text = format!("held out {bits:.3} bits per byte ({nats})\n");
        if let Some(Baselines { gzip, order_two }) = Baselines::measure(dataset).map_err(input)? {
            text.push_str(&format!("         {order_two:.3} an order-2 model of bytes counted in the training text\n"));
            text.push_str(&format!("         {gzip:.3} gzip -9\n"));
        }
        Ok(text)
    }
}

/// Share of the time of a run that measurements may take, where the run file does not say how much is measured.
const MEASURED_SHARE: f64 = 0.1;
/// Operations of a measured token over those of a trained one: a forward pass alone.
const MEASURED_COST: f64 = 1.0 / 3.0;

/// Windows of each text that a run measures at once: those of `run.evaluate_tokens`, or as many as make all
/// measurements cost [`MEASURED_SHARE`] of its steps. At least those of a batch.
fn evaluated_windows(config: &RunConfig) -> u64 {
    let (train, run, length) = (&config.train, &config.run, config.train.sequence_length.max(1) as u64);
    let tokens = match run.evaluate_tokens {
        Some(0) => return u64::MAX,
        Some(tokens) => return tokens.div_ceil(length).max(1),
        None => train.batches().at(train.steps).first_sequence * length,
    };
    let between = train.steps.saturating_sub(1).checked_div(run.evaluate_every).unwrap_or(0);
    let measurements = f64::from(1 + between) * (1 + config.data.validation.len()) as f64;
    let affordable = tokens as f64 * MEASURED_SHARE / MEASURED_COST / measurements;
    (affordable as u64 / length).max(train.global_batch as u64)
}

/// Conversations or rows that are not trained on, or not whole, in a line; nothing of other text, and where all are.
pub fn left_out(left_out: LeftOut, targets: Targets, sequence_length: usize) -> String {
    let LeftOut { conversations, without_answer, cut } = left_out;
    let (unit, learned) = match targets {
        Targets::Labels => ("row", "no token that is learned"),
        Targets::All | Targets::Blanks | Targets::Answers => ("conversation", "no token of an answer"),
    };
    let without = match without_answer {
        0 => None,
        count => Some(format!("{} left out: {learned} within {sequence_length} tokens", grouped(count))),
    };
    let cut = match cut {
        0 => None,
        count => Some(format!("{} cut to {sequence_length} tokens", grouped(count))),
    };
    let parts: Vec<String> = without.into_iter().chain(cut).collect();
    if parts.is_empty() {
        return String::new();
    }
    format!("        of {}, {}\n", counted(conversations, unit), parts.join("; "))
}

/// Refuses attention of a library, which knows no rows, for rows with labels.
///
/// # Errors
/// Such rows, where a library might compute attention.
pub fn check_attention(config: &RunConfig, batches: &Batches) -> Result<(), Failure> {
    let is_library = match (config.run.device, attention(config)) {
        (DeviceChoice::Cpu, _) | (DeviceChoice::Cuda, AttentionUse::Kernels) => false,
        (DeviceChoice::Cuda, AttentionUse::LibraryIfFound) => true,
    };
    match batches.targets() {
        Targets::Labels if is_library => Err(Failure::Input(
            "run.attention_library = \"auto\" must be \"off\" for rows of tokens with labels, which see themselves only".into(),
        )),
        Targets::Labels | Targets::All | Targets::Blanks | Targets::Answers => Ok(()),
    }
}

/// The tokens around documents, in a line where there are some.
fn marks(Marks { begin, end }: &Marks) -> String {
    let parts = [("begin", begin), ("end", end)].into_iter().filter(|(_, token)| !token.is_empty());
    let parts: Vec<String> = parts.map(|(what, token)| format!("{what} with {token:?}")).collect();
    if parts.is_empty() { String::new() } else { format!("        documents {}\n", parts.join(" and ")) }
}

/// The shares of the sequences that several sources have by their weights, in a line.
fn shares(sources: &[(&str, f32)]) -> String {
    if sources.len() < 2 {
        return String::new();
    }
    let all: f64 = sources.iter().map(|(_, weight)| f64::from(*weight)).sum();
    let share = |(name, weight): &(&str, f32)| format!("{:.1} % {name}", 100.0 * f64::from(*weight) / all);
    format!("        sequences: {}\n", sources.iter().map(share).collect::<Vec<_>>().join(", "))
}

/// Bits per byte of text in which `tokens` tokens stand for `bytes` bytes.
fn bits_per_byte(nats_per_token: f64, tokens: u64, bytes: u64) -> f64 {
    nats_per_token / LN_2 * tokens as f64 / bytes.max(1) as f64
}

/// The prompts of samples as tokens of the model.
fn prompts(samples: &SampleSpec, tokenizer: &Tokenizer, vocabulary: usize) -> Result<Vec<Vec<i32>>, Failure> {
    let tokens = |text: &String| prompt::prompt(tokenizer, text, vocabulary);
    samples.prompts.iter().map(tokens).collect()
}

fn input(error: DataError) -> Failure {
    Failure::Input(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_sources_have_their_shares() {
        assert_eq!(shares(&[("", 1.0)]), "");
        let three = [("a.txt", 3.0), ("b.txt", 1.0), ("c.txt", 0.5)];
        assert_eq!(shares(&three), "        sequences: 66.7 % a.txt, 22.2 % b.txt, 11.1 % c.txt\n");
    }

    #[test]
    fn conversations_that_are_not_learned_whole_are_counted() {
        let of = |targets, without_answer, cut| {
            left_out(LeftOut { conversations: 1_200, without_answer, cut }, targets, 512)
        };
        let left_out = |without_answer, cut| of(Targets::Answers, without_answer, cut);
        assert_eq!(
            of(Targets::Labels, 3, 0),
            "        of 1,200 rows, 3 left out: no token that is learned within 512 tokens\n"
        );
        assert_eq!(left_out(0, 0), "");
        assert_eq!(
            left_out(3, 0),
            "        of 1,200 conversations, 3 left out: no token of an answer within 512 tokens\n"
        );
        let both = "        of 1,200 conversations, 1 left out: no token of an answer within 512 tokens; 40 cut to 512 tokens\n";
        assert_eq!(left_out(1, 40), both);
    }

    #[test]
    fn measurements_cost_a_tenth_of_a_run_unless_it_says_otherwise() {
        let windows = |sets: &[&str]| {
            let sets: Vec<String> = sets.iter().map(|set| set.to_string()).collect();
            evaluated_windows(&RunConfig::load("", "", &sets).expect("a legal run"))
        };
        let keys = ["train.steps=100", "train.global_batch=16", "train.sequence_length=128"];
        // 1,600 sequences are trained: 480 cost a tenth of that, in one measurement or in four.
        assert_eq!(windows(&keys), 480);
        assert_eq!(windows(&[&keys[..], &["run.evaluate_every=30"]].concat()), 120);
        assert_eq!(windows(&[&keys[..], &["run.evaluate_every=1"]].concat()), 16, "a batch at least");
        assert_eq!(windows(&[&keys[..], &["run.evaluate_tokens=1000"]].concat()), 8);
        assert_eq!(windows(&[&keys[..], &["run.evaluate_tokens=0"]].concat()), u64::MAX);
    }

    #[test]
    fn bits_are_those_of_bytes() {
        assert_eq!(bits_per_byte(LN_2, 100, 100), 1.0);
        assert_eq!(bits_per_byte(3.0 * LN_2, 100, 300), 1.0);
    }
}
