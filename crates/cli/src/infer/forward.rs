//! `pleach forward`: logits, loss and gradients of given sequences, for other programs to compare with.

use checkpoint::{TensorEntry, TensorWriter};
use config::{ModelSpec, ParamSpec, Unit, params};
use mesh::Region;
use train::{LogitsSink, Observer, Ports, Setup, Start, StepReport, TensorSink, Wish};

use crate::arguments::inference::ForwardArguments;
use crate::failure::Failure;
use crate::input::run_source::RunSource;
use crate::input::sequences::Sequences;
use crate::run::interrupt;
use crate::screen::output::tell;

/// Computes and writes.
///
/// # Errors
/// Input that cannot be used, or the failure of a rank.
pub fn forward(arguments: &ForwardArguments) -> Result<(), Failure> {
    interrupt::ends_at_once()?;
    let sequences = Sequences::read(&arguments.tokens).map_err(Failure::Input)?;
    let source = open(arguments, &sequences)?;
    let model = &source.config.model;
    let fits = sequences.check(model);
    fits.map_err(|reason| Failure::Input(format!("{}: {reason}", arguments.tokens.display())))?;
    let results = Results::create(arguments, model, &sequences)?;
    let loss = logits(&source, &sequences, &results)?;
    if arguments.grads {
        gradients(&source, &sequences, &results)?;
    }
    results.writer.put("loss", &Region::whole(&[1]), &[loss as f32]);
    results.writer.finish().map_err(|error| Failure::Work(error.to_string()))?;
    let gradients = if arguments.grads { ", gradients" } else { "" };
    tell(&format!("loss {loss:.4}; written {}: logits, loss{gradients}\n", arguments.out.display()));
    Ok(())
}

/// The run for one step on all sequences, without dropout.
fn open(arguments: &ForwardArguments, sequences: &Sequences) -> Result<RunSource, Failure> {
    let count = |number: usize| toml::Value::Integer(number as i64);
    // All sequences are one batch, also where the run's first batches are smaller.
    let ramp = [("start", sequences.len()), ("increment", sequences.len()), ("sequences", 0)];
    let ramp = ramp.into_iter().map(|(key, number)| (key.to_string(), count(number))).collect();
    let changes = [
        ("train.steps", count(1)),
        ("train.warmup_steps", count(0)),
        ("train.global_batch", count(sequences.len())),
        ("train.batch_ramp", toml::Value::Table(ramp)),
        ("train.sequence_length", count(sequences.sequence_length())),
        ("model.dropout", toml::Value::Float(0.0)),
        ("model.attention_dropout", toml::Value::Float(0.0)),
    ];
    let given = arguments.from.overrides.iter().find(|text| {
        ["train.global_batch", "train.sequence_length"].iter().any(|key| text.trim_start().starts_with(key))
    });
    if let Some(given) = given {
        let name = arguments.tokens.display();
        return Err(Failure::Input(format!("--set {given}: {name} says how many sequences and tokens there are")));
    }
    let about_batch = |failure: Failure| {
        let concerns = matches!(&failure, Failure::Run(problems)
            if problems.iter().any(|problem| problem.key.starts_with("train.")));
        match concerns {
            true => Failure::Input(format!(
                "{failure}\ntrain.global_batch and train.sequence_length are the sequences and tokens of {}",
                arguments.tokens.display()
            )),
            false => failure,
        }
    };
    RunSource::open(&arguments.from.from, &changes, &arguments.from.overrides).map_err(about_batch)
}

fn logits(source: &RunSource, sequences: &Sequences, results: &Results) -> Result<f64, Failure> {
    let config = &source.config;
    let setup = Setup::forward(config.model.clone(), config.parallelism.clone(), config.train.clone())
        .map_err(|error| Failure::Work(error.to_string()))?;
    Ok(source.ranks(&setup)?.forward(sequences, &source.weights, results)?.loss)
}

/// One training step, of which only the gradients are kept.
fn gradients(source: &RunSource, sequences: &Sequences, results: &Results) -> Result<(), Failure> {
    let config = &source.config;
    let setup = Setup::new(config.model.clone(), config.parallelism.clone(), config.train.clone())
        .map_err(|error| Failure::Work(error.to_string()))?;
    let ports = Ports {
        start: Start::Weights(&source.weights),
        first_gradients: Some(results),
        ..Ports::new(sequences, &Silent)
    };
    source.ranks(&setup)?.train(ports)?;
    Ok(())
}

struct Silent;

impl Observer for Silent {
    fn step(&self, _report: &StepReport) -> Wish {
        Wish::Continue
    }
}

/// The file of results.
struct Results {
    writer: TensorWriter,
    /// `[1, S, V]`: the logits of one sequence.
    sequence: Vec<usize>,
}

impl Results {
    fn create(arguments: &ForwardArguments, model: &ModelSpec, sequences: &Sequences) -> Result<Results, Failure> {
        let entry = |name: String, shape: Vec<usize>| TensorEntry { name, shape };
        let sizes = [sequences.len(), sequences.sequence_length(), model.vocabulary];
        let mut entries = vec![entry("logits".into(), sizes.to_vec()), entry("loss".into(), vec![1])];
        if arguments.grads {
            let units = std::iter::once(Unit::Table).chain(Unit::computing(model.num_layers));
            let all = units.flat_map(|unit| params(model, unit));
            entries.extend(all.map(|param| entry(gradient_name(&param), param.shape)));
        }
        let writer =
            TensorWriter::create(&arguments.out, &entries).map_err(|error| Failure::Input(error.to_string()))?;
        Ok(Results { writer, sequence: vec![1, sizes[1], sizes[2]] })
    }
}

fn gradient_name(param: &ParamSpec) -> String {
    format!("grad.{}", param.name)
}

impl LogitsSink for Results {
    fn put(&self, sequence: u64, logits: &[f32]) {
        let region = Region { start: vec![sequence as usize, 0, 0], extent: self.sequence.clone() };
        self.writer.put("logits", &region, logits);
    }
}

impl TensorSink for Results {
    fn put(&self, param: &ParamSpec, region: &Region, values: &[f32]) {
        self.writer.put(&gradient_name(param), region, values);
    }
}
