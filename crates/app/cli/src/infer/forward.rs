//! `pleach forward`: logits, loss and gradients of given sequences, for other programs to compare with.

use std::path::Path;
use std::sync::OnceLock;

use checkpoint::{TensorEntry, TensorWriter};
use config::{ModelSpec, ParamSpec, RunConfig, Unit, params};
use mesh::Region;
use run::failure::Failure;
use run::gpus::kernels;
use run::messages::stderr::tell;
use run::places::output_file::data_file;
use run::process_group::delivery::{Deliverer, Destinations, receive_while};
use run::process_group::group::{ProcessGroup, together};
use run::process_group::meeting::Meeting;
use run::process_group::member::Part;
use run::process_group::process_ranks::ProcessRanks;
use run::process_group::signal_relay::end_all_while;
use run::signals::interrupt;
use run::source::run_source::RunSource;
use train::{
    ForwardingSink, LogitsSink, LossScalingReport, Observer, Ports, Setup, SetupError, Start, StepReport, StopRequest,
    TensorSink, UpdateOutcome,
};

use crate::arguments::inference::ForwardArguments;
use crate::infer;
use crate::infer::sequences::Sequences;

/// Computes and writes.
///
/// # Errors
/// Input that cannot be used, or the failure of a rank.
pub fn forward(arguments: &ForwardArguments) -> Result<(), Failure> {
    let signals = interrupt::ends_at_once()?;
    let sequences = Sequences::read(&arguments.tokens).map_err(Failure::Input)?;
    let source = open(arguments, &sequences)?;
    let model = &source.config.model;
    let fits = sequences.check(model);
    fits.map_err(|reason| Failure::Input(format!("{}: {reason}", arguments.tokens.display())))?;
    let inputs = [vec![arguments.tokens.clone()], source.files()].concat();
    let out = data_file("--out", &arguments.out, &inputs)?;
    let programs = Programs::new(&source.config, arguments)?;
    let command = format!("forward{}", if arguments.grads { " with gradients" } else { "" });
    let mut meeting = Meeting { programs: programs.fingerprints(), ..source.meeting(command)? };
    meeting.inputs.insert(format!("file {}", arguments.tokens.display()), sequences.hash());
    let computed = |process_group: &ProcessGroup| {
        let computing = Computing { source: &source, sequences: &sequences, programs: &programs, process_group };
        match process_group.once("the file of results", || Results::create(&out, arguments, model, &sequences))? {
            Part::First(results) => {
                let to = Destinations { logits: Some(&results), gradients: Some(&results), ..Destinations::default() };
                let loss = receive_while(process_group, model, to, || computing.compute(&results, &results))?;
                results.finish(loss).map(|()| Some(loss))
            }
            Part::Other(member) => {
                let deliverer = Deliverer::begin(member);
                let (logits, gradients) = (|message| deliverer.logits(message), |message| deliverer.gradient(message));
                computing.compute(&ForwardingSink::new(&logits), &ForwardingSink::new(&gradients))?;
                deliverer.end().map(|()| None)
            }
        }
    };
    let written =
        together(&meeting, |process_group| end_all_while(process_group, &signals, || computed(process_group)))?;
    if let Some(loss) = written.flatten() {
        let gradients = if arguments.grads { ", gradients" } else { "" };
        tell(&format!("loss {loss:.4}; written {}: logits, loss{gradients}\n", arguments.out.display()));
    }
    Ok(())
}

/// The programs of the command.
struct Programs {
    logits: Setup,
    /// One training step, of which only the gradients are kept.
    gradients: Option<Setup>,
}

impl Programs {
    fn new(config: &RunConfig, arguments: &ForwardArguments) -> Result<Programs, Failure> {
        let failed = |error: SetupError| Failure::Work(error.to_string());
        let copies = || (config.model.clone(), config.parallelism.clone(), config.train.clone());
        let (model, parallelism, train) = copies();
        let logits = Setup::forward(model, parallelism, train).map_err(failed)?;
        let (model, parallelism, train) = copies();
        let gradients = arguments.grads.then(|| Setup::new(model, parallelism, train).map_err(failed)).transpose()?;
        Ok(Programs { logits, gradients })
    }

    fn fingerprints(&self) -> Vec<u64> {
        std::iter::once(&self.logits).chain(&self.gradients).map(Setup::fingerprint).collect()
    }
}

/// The part of the command that each process does.
struct Computing<'a> {
    source: &'a RunSource,
    sequences: &'a Sequences,
    programs: &'a Programs,
    process_group: &'a ProcessGroup,
}

impl Computing<'_> {
    /// Delivers logits and gradients, and returns the loss.
    fn compute(&self, logits: &dyn LogitsSink, gradients: &dyn TensorSink) -> Result<f64, Failure> {
        let Computing { source, sequences, programs, process_group } = *self;
        if process_group.is_first() {
            kernels::tell(&source.config)?;
        }
        let ranks = ProcessRanks::open(process_group, &source.config, &programs.logits)?;
        let loss = ranks.forward(sequences, &source.weights, logits)?.loss;
        drop(ranks);
        if let Some(setup) = &programs.gradients {
            let (start, first_gradients) = (Start::Weights(&source.weights), Some(gradients));
            let overflow = Overflow::default();
            let ports = Ports { start, first_gradients, ..Ports::new(sequences, &overflow) };
            ProcessRanks::open(process_group, &source.config, setup)?.train(ports)?;
            overflow.check()?;
        }
        Ok(loss)
    }
}

/// Keeps the factor of a loss whose gradients overflowed: they were not delivered. Only the process of rank 0 hears of
/// it.
#[derive(Default)]
struct Overflow {
    factor: OnceLock<f32>,
}

impl Observer for Overflow {
    fn step(&self, report: &StepReport) -> StopRequest {
        match report.loss_scaling {
            Some(LossScalingReport { factor, update: UpdateOutcome::Skipped | UpdateOutcome::Hopeless, .. }) => {
                // A step is reported once.
                let _ = self.factor.set(factor);
            }
            Some(LossScalingReport { update: UpdateOutcome::Updated, .. }) | None => {}
        }
        StopRequest::None
    }
}

impl Overflow {
    fn check(&self) -> Result<(), Failure> {
        let Some(factor) = self.factor.get() else { return Ok(()) };
        let remedy = if *factor > 1.0 {
            format!("use a smaller one, such as --set train.initial_loss_scale={}", (factor / 256.0).max(1.0))
        } else {
            "use --set train.precision=bf16 or fp32".into()
        };
        Err(Failure::Work(format!("the gradients overflow fp16 with train.initial_loss_scale = {factor}; {remedy}")))
    }
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
    infer::source(&arguments.from, &changes).map_err(about_batch)
}

/// The file of results.
struct Results {
    writer: TensorWriter,
    vocabulary: usize,
}

impl Results {
    fn create(
        out: &Path,
        arguments: &ForwardArguments,
        model: &ModelSpec,
        sequences: &Sequences,
    ) -> Result<Results, Failure> {
        let entry = |name: String, shape: Vec<usize>| TensorEntry { name, shape };
        let sizes = [sequences.len(), sequences.sequence_length(), model.vocabulary];
        let mut entries = vec![entry("logits".into(), sizes.to_vec()), entry("loss".into(), vec![1])];
        if arguments.grads {
            let units = Unit::holding(model.num_layers);
            let all = units.flat_map(|unit| params(model, unit));
            entries.extend(all.map(|param| entry(gradient_name(&param), param.shape)));
        }
        let writer = TensorWriter::create(out, &entries).map_err(|error| Failure::Input(error.to_string()))?;
        Ok(Results { writer, vocabulary: model.vocabulary })
    }

    /// Adds the loss and gives the file its name.
    fn finish(self, loss: f64) -> Result<(), Failure> {
        self.writer.put("loss", &Region::whole(&[1]), &[loss as f32]);
        self.writer.finish().map_err(|error| Failure::Work(error.to_string()))
    }
}

fn gradient_name(param: &ParamSpec) -> String {
    format!("grad.{}", param.name)
}

impl LogitsSink for Results {
    fn put(&self, sequence: u64, first_token: usize, logits: &[f32]) {
        let extent = vec![1, logits.len() / self.vocabulary, self.vocabulary];
        let region = Region { start: vec![sequence as usize, first_token, 0], extent };
        self.writer.put("logits", &region, logits);
    }
}

impl TensorSink for Results {
    fn put(&self, param: &ParamSpec, region: &Region, values: &[f32]) {
        self.writer.put(&gradient_name(param), region, values);
    }
}
