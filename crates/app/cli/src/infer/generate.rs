//! `pleach generate`: a text, continued.

use std::path::Path;

use config::EngineChoice;
use run::failure::Failure;
use run::gpus::kernels;
use run::process_group::group::{ProcessGroup, together};
use run::process_group::meeting::Meeting;
use run::process_group::process_ranks::ProcessRanks;
use run::process_group::signal_relay::relay_while;
use run::signal::Signal;
use run::signals::interrupt::Interrupt;
use run::source::run_source::RunSource;
use run::text::prompt::prompt;
use train::{GENERATION_ROWS, Generation, Listener, Sampling, Setup, StopRequest};

use crate::arguments::inference::GenerateArguments;
use crate::infer;
use crate::infer::printer::{Ends, Printer, Stopper};
use crate::screen::output::{ModelText, Reader};

/// Prints the prompt and what follows it, token by token.
///
/// # Errors
/// Input that cannot be used, or the failure of a rank.
pub fn generate(arguments: &GenerateArguments) -> Result<(), Failure> {
    let sampling = sampling(arguments)?;
    let interrupt = Interrupt::listen()?;
    let source = infer::source(&arguments.from, &[])?;
    if arguments.stop.iter().any(String::is_empty) {
        return Err(Failure::Input("--stop \"\" ends every text before it begins; use at least one character".into()));
    }
    let (prompt, max_tokens, stop) = (&arguments.prompt, arguments.max_tokens, &arguments.stop);
    let request = Request { prompt, max_tokens, sampling, stop };
    match continue_text(&source, request, &interrupt, ModelText::to_standard_output())? {
        Printed::Here(Some(signal)) => Err(Failure::Interrupted { signal, told: format!("ended by {signal}") }),
        Printed::Here(None) | Printed::InFirst => Ok(()),
    }
}

/// The process that printed a text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Printed {
    /// This one, with the signal that had come by then.
    Here(Option<Signal>),
    /// Process 0, which is another one.
    InFirst,
}

const SAMPLE_TOKENS: usize = 160;

/// The sample of a run: the continuation of `prompt` by the weights in `folder`, as the command gives it without
/// options, printed to the standard output, where people read it among the lines of the run: nothing in it steers a
/// terminal. An interrupt ends it early.
///
/// # Errors
/// The errors of [`generate`].
pub fn sample(folder: &Path, prompt: &str, interrupt: &Interrupt) -> Result<(), Failure> {
    let mut source = RunSource::open(folder, &[], &[])?;
    // The sample is of one rank, in whichever process writes it.
    source.config.run.engine = EngineChoice::Threads;
    kernels::without_compiling_again(&mut source.config)?;
    let sampling = Sampling { temperature: 0.8, top_k: None, top_p: 1.0, seed: 0 };
    let request = Request { prompt, max_tokens: SAMPLE_TOKENS, sampling, stop: &[] };
    let output = ModelText::new(Box::new(std::io::stdout()), Reader::Terminal);
    continue_text(&source, request, interrupt, output).map(|_printed| ())
}

/// A text to continue.
struct Request<'a> {
    prompt: &'a str,
    max_tokens: usize,
    sampling: Sampling,
    /// Texts before which it ends.
    stop: &'a [String],
}

fn continue_text(
    source: &RunSource,
    request: Request<'_>,
    interrupt: &Interrupt,
    output: ModelText,
) -> Result<Printed, Failure> {
    let (config, tokenizer) = (&source.config, source.tokenizer()?);
    if config.parallelism.degrees.dp > 1 {
        let dp = config.parallelism.degrees.dp;
        return Err(Failure::Input(format!(
            "parallelism.dp = {dp}: replicas split sequences, and one text is one sequence; use 1"
        )));
    }
    if config.parallelism.degrees.cp > 1 {
        let cp = config.parallelism.degrees.cp;
        return Err(Failure::Input(format!(
            "parallelism.cp = {cp}: ranks share the tokens of whole sequences, and a text is continued token by token; use 1"
        )));
    }
    if config.data.blanks.is_some() {
        return Err(Failure::Input(
            "data.blanks: the run fills blanks after a text whose tokens attend to each other, and here each token attends to those before it; \
             `pleach forward` computes it, with prefix_length"
                .into(),
        ));
    }
    let tokens = prompt(&tokenizer, request.prompt, config.model.vocabulary)?;
    let setup =
        Setup::generation(config.model.clone(), config.parallelism.clone(), config.train.clone(), GENERATION_ROWS)
            .map_err(|error| Failure::Work(error.to_string()))?;
    let Request { prompt, max_tokens, sampling, stop } = request;
    let ends = Ends { tokens: source.end_tokens()?, texts: stop };
    let generation = Generation { prompt: &tokens, max_tokens, sampling };
    let command = format!("generate {max_tokens} tokens with {sampling:?} after {prompt:?}");
    let meeting = Meeting { programs: vec![setup.fingerprint()], ..source.meeting(command)? };
    let generated = |process_group: &ProcessGroup, listener: &dyn Listener| {
        if process_group.is_first() {
            kernels::tell(config)?;
        }
        ProcessRanks::open(process_group, config, &setup)?.generate(generation, &source.weights, listener)
    };
    together(&meeting, |process_group| match process_group {
        ProcessGroup::Several(member) if !member.is_first() => {
            relay_while(member, interrupt, || generated(process_group, &QuietListener))?.map(|()| Printed::InFirst)
        }
        ProcessGroup::Several(_) | ProcessGroup::Alone => {
            let stopper = Stopper { interrupt, process_group };
            let printer = Printer::new(&tokenizer, (prompt, &tokens), &ends, stopper, output);
            generated(process_group, &printer)?;
            printer.finish().map(|()| Printed::Here(interrupt.signal()))
        }
    })
    .map(|printed| printed.unwrap_or(Printed::InFirst))
}

/// The listener of a process that prints nothing: process 0 prints for all.
struct QuietListener;

impl Listener for QuietListener {
    fn token(&self, _token: i32) -> StopRequest {
        StopRequest::None
    }
}

fn sampling(arguments: &GenerateArguments) -> Result<Sampling, Failure> {
    let GenerateArguments { temperature, top_k, top_p, seed, .. } = *arguments;
    if !temperature.is_finite() || temperature < 0.0 {
        return Err(Failure::Input(format!("--temperature {temperature} must not be negative; use 0 or more")));
    }
    if !(0.0..=1.0).contains(&top_p) {
        return Err(Failure::Input(format!("--top-p {top_p} must be a probability; use 0 to 1")));
    }
    if top_k == Some(0) {
        return Err(Failure::Input("--top-k 0 leaves no token to sample; use 1 or more".into()));
    }
    Ok(Sampling { temperature, top_k, top_p, seed })
}
