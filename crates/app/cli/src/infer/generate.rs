//! `pleach generate`: a text, continued.

use std::path::Path;
use std::sync::Mutex;

use config::EngineChoice;
use data::Tokenizer;
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
use sync::{into_inner, lock};
use train::{GENERATION_ROWS, Generation, Listener, Sampling, Setup, StopRequest};

use crate::arguments::inference::GenerateArguments;
use crate::infer;
use crate::screen::output::{ModelText, Reader, read_or_failed};

/// Prints the prompt and what follows it, token by token.
///
/// # Errors
/// Input that cannot be used, or the failure of a rank.
pub fn generate(arguments: &GenerateArguments) -> Result<(), Failure> {
    let sampling = sampling(arguments)?;
    let interrupt = Interrupt::listen()?;
    let source = infer::source(&arguments.from, &[])?;
    let request = Request { prompt: &arguments.prompt, max_tokens: arguments.max_tokens, sampling };
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
    let request = Request { prompt, max_tokens: SAMPLE_TOKENS, sampling };
    let output = ModelText::new(Box::new(std::io::stdout()), Reader::Terminal);
    continue_text(&source, request, interrupt, output).map(|_printed| ())
}

/// A text to continue.
struct Request<'a> {
    prompt: &'a str,
    max_tokens: usize,
    sampling: Sampling,
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
    let Request { prompt, max_tokens, sampling } = request;
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
            let printer = Printer::new(&tokenizer, prompt, Stopper { interrupt, process_group }, output);
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

/// Whether a signal reached any process.
struct Stopper<'a> {
    interrupt: &'a Interrupt,
    process_group: &'a ProcessGroup,
}

impl Stopper<'_> {
    fn is_pressed(&self) -> bool {
        match self.process_group {
            ProcessGroup::Alone => {}
            ProcessGroup::Several(member) => member.note_signal(self.interrupt),
        }
        self.interrupt.is_pressed()
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

/// Prints characters as soon as they are whole.
struct Printer<'a> {
    tokenizer: &'a Tokenizer,
    stopper: Stopper<'a>,
    state: Mutex<State>,
}

struct State {
    output: ModelText,
    tokens: Vec<u32>,
    /// Bytes of the text of `tokens` that are printed.
    printed_bytes: usize,
    failure: Option<Failure>,
}

/// The replacement for bytes that are not a character, or not yet.
const REPLACEMENT: char = '\u{fffd}';

impl<'a> Printer<'a> {
    fn new(tokenizer: &'a Tokenizer, prompt: &str, stopper: Stopper<'a>, mut output: ModelText) -> Printer<'a> {
        // If nobody reads, the first token finds out.
        let _ = output.write(prompt);
        let state = State { output, tokens: vec![], printed_bytes: 0, failure: None };
        Printer { tokenizer, stopper, state: Mutex::new(state) }
    }

    /// Prints what is still held back.
    fn finish(self) -> Result<(), Failure> {
        let mut state = into_inner(self.state);
        if let Some(failure) = state.failure {
            return Err(failure);
        }
        let text = self.tokenizer.decode(&state.tokens).map_err(Failure::Work)?;
        read_or_failed(state.output.write(&format!("{}\n", &text[state.printed_bytes..])))
    }
}

impl Listener for Printer<'_> {
    fn token(&self, token: i32) -> StopRequest {
        let mut state = lock(&self.state);
        state.tokens.push(token.unsigned_abs());
        let text = match self.tokenizer.decode(&state.tokens) {
            Ok(text) => text,
            Err(reason) => {
                state.failure = Some(Failure::Work(reason));
                return StopRequest::Stop;
            }
        };
        let whole = text.trim_end_matches(REPLACEMENT);
        // Bytes that never become a character are printed with the next one that does.
        let new = whole.get(state.printed_bytes..).unwrap_or_default();
        let printed = state.output.write(new);
        state.printed_bytes = state.printed_bytes.max(whole.len());
        match printed {
            Ok(()) if !self.stopper.is_pressed() => StopRequest::None,
            Ok(()) => StopRequest::Stop,
            Err(error) => {
                state.failure = read_or_failed(Err(error)).err();
                StopRequest::Stop
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::sync::Arc;

    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().expect("no panic").write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn characters_are_printed_when_they_are_whole() {
        let (shared, tokenizer, interrupt) = (Shared::default(), Tokenizer::bytes(), Interrupt::default());
        let stopper = Stopper { interrupt: &interrupt, process_group: &ProcessGroup::Alone };
        let printer =
            Printer::new(&tokenizer, "> ", stopper, ModelText::new(Box::new(shared.clone()), Reader::Program));
        let mut seen = vec![];
        for byte in "aé".bytes().chain([0xff, b'b', 0xc3]) {
            assert_eq!(printer.token(i32::from(byte)), StopRequest::None);
            seen.push(String::from_utf8(shared.0.lock().expect("no panic").clone()).expect("text"));
        }
        assert_eq!(seen, ["> a", "> a", "> aé", "> aé", "> aé\u{fffd}b", "> aé\u{fffd}b"]);
        interrupt.note(Signal::Interrupt.number());
        assert_eq!(printer.token(i32::from(b'!')), StopRequest::Stop);
        printer.finish().expect("printed");
        assert_eq!(*shared.0.lock().expect("no panic"), "> aé\u{fffd}b\u{fffd}!\n".as_bytes());
    }
}
