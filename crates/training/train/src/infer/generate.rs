//! Continuing a text, token by token, on all ranks of a run.
//!
//! Each pass computes [`GENERATION_ROWS`] tokens that are not in the cache yet: of a prompt as many as fit, then one
//! each. Rows past the text's end are padding that nothing reads. The rank that has the head draws the next token, and
//! a sum over all ranks passes it to the others.

use std::sync::{Mutex, MutexGuard};

use config::{IGNORED_LABEL, Recheck, Unit};
use device::{COUNT_WORD, DeviceError, Reduction, SUM_WORDS, Stream, SumTree};
use sync::lock;

use crate::engine::Engine;
use crate::execute::reduce;
use crate::infer::sampling::Sampling;
use crate::ranks::failure::TrainError;
use crate::ranks::launch::{Flow, Progress, RankLaunch, Stop, launch};
use crate::setup::Setup;
use crate::setup::source::TensorSource;
use crate::setup::start::Start;
use crate::stop_request::StopRequest;
use crate::worker::Worker;
use crate::worker::batch::{SequenceBuffers, TokenSource};

/// The text that is continued, and the settings.
#[derive(Clone, Copy, Debug)]
pub struct Generation<'a> {
    /// The beginning of the text: at least one token, each of the model's vocabulary.
    pub prompt: &'a [i32],
    /// Tokens to add.
    pub max_tokens: usize,
    /// How each is drawn.
    pub sampling: Sampling,
}

/// Hears of a text as it grows.
pub trait Listener: Sync {
    /// A token was added; on rank 0's thread. [`StopRequest::Stop`] ends the text soon.
    fn token(&self, token: i32) -> StopRequest;

    /// The logits from which the token at `position` of the text is drawn, on the thread of the rank that draws.
    /// Nothing by default.
    fn logits(&self, _position: usize, _logits: &[f32]) {}
}

/// Continues a text with the weights of `initial` (or of the seed), for a [`Setup::generation`] of [`GENERATION_ROWS`].
///
/// A text that outgrows the model's context continues from its last half context, which is recomputed.
///
/// # Errors
/// The first rank's failure.
pub fn run_generation(
    setup: &Setup,
    engine: &dyn Engine,
    generation: Generation<'_>,
    initial: Option<&dyn TensorSource>,
    listener: &dyn Listener,
) -> Result<(), TrainError> {
    launch(setup, engine, engine.ranks().into_iter(), |launched| generate(launched, generation, initial, listener))
}

fn generate(
    launched: RankLaunch<'_>,
    generation: Generation<'_>,
    initial: Option<&dyn TensorSource>,
    listener: &dyn Listener,
) -> Result<(), Stop> {
    let text = Text::new(generation.prompt, launched.setup.model.context);
    let mut rank = launched.open(&text, Start::with(initial), Recheck::Off)?;
    let mut stop_request = StopRequest::None;
    for position in generation.prompt.len()..generation.prompt.len().saturating_add(generation.max_tokens) {
        launched.progress.begin_step((position - generation.prompt.len()) as u32 + 1);
        let last_row = compute(&mut rank, &text, launched.progress)?;
        let listened = |logits: &[f32]| listener.logits(position, logits);
        let drawn = draw(&rank, last_row, (generation.sampling, position), listened)?;
        let agreed = agree(&mut rank, drawn, stop_request)?;
        text.push(agreed.token);
        if launched.number.0 == 0 {
            stop_request = listener.token(agreed.token);
        }
        if agreed.stop {
            break;
        }
    }
    Ok(())
}

/// The token of `text` at `position`, which is added to it: the same on every rank.
///
/// # Errors
/// The device's and the groups', and logits without a distribution.
pub(crate) fn next_token(
    worker: &mut Worker<'_>,
    text: &Text,
    place: (Sampling, usize),
    progress: &Progress,
) -> Result<i32, Stop> {
    let last_row = compute(worker, text, progress)?;
    let drawn = draw(worker, last_row, place, |_| ())?;
    let token = agree(worker, drawn, StopRequest::None)?.token;
    text.push(token);
    Ok(token)
}

/// The next token, on the rank that draws it, and 0 on others.
fn draw(
    worker: &Worker<'_>,
    last_row: usize,
    (sampling, position): (Sampling, usize),
    listen: impl FnOnce(&[f32]),
) -> Result<i64, Stop> {
    if !draws(worker) {
        return Ok(0);
    }
    let logits = worker.read_logits(last_row..last_row + 1)?;
    listen(&logits);
    Ok(sampling.draw(&logits, position as u64)? as i64)
}

/// Brings the cache up to the text's end; returns the row of the last pass that holds the last token.
fn compute(worker: &mut Worker<'_>, text: &Text, progress: &Progress) -> Result<usize, DeviceError> {
    loop {
        let Pass { first, rows, is_last } = text.next_pass(worker.position.shape.tokens());
        worker.position.first_cached = first;
        worker.begin_step(0)?;
        progress.run_program(worker, |_, _, _| Ok(Flow::Continue))?;
        if is_last {
            return Ok(rows - 1);
        }
        reduce::wait_for_all(&worker.ports, &worker.state.constants)?;
    }
}

/// Whether this rank draws tokens: of those that have the head's logits, one.
fn draws(worker: &Worker<'_>) -> bool {
    worker.position.program.view.computes(Unit::Head)
        && worker.position.rank.model.is_first()
        && worker.position.order.replica == 0
}

/// The values that all ranks know after a token.
struct Agreed {
    token: i32,
    stop: bool,
}

/// One rank has drawn the token, one may request to stop; the sums have both.
fn agree(worker: &mut Worker<'_>, drawn: i64, stop_request: StopRequest) -> Result<Agreed, DeviceError> {
    let sums = worker.state.constants.norm_sums;
    let mut words = [0i64; SUM_WORDS];
    words[0] = drawn;
    words[COUNT_WORD] = match stop_request {
        StopRequest::None => 0,
        StopRequest::Stop => 1,
    };
    worker.ports.device.write(sums, bytemuck::cast_slice(&words))?;
    worker.ports.communicators.world().all_reduce(Stream::Reduce, sums, Reduction::Sum(SumTree::RANK_ORDER))?;
    worker.ports.device.read(sums, bytemuck::cast_slice_mut(&mut words))?;
    Ok(Agreed { token: words[0] as i32, stop: words[COUNT_WORD] > 0 })
}

/// The text as one rank knows it, and which part of it is in the rank's cache.
pub(crate) struct Text {
    context: usize,
    state: Mutex<State>,
}

struct State {
    /// The text from the first token that is still seen.
    tokens: Vec<i32>,
    /// Tokens of it in the cache.
    cached: usize,
    /// First token of the pass that runs.
    first: usize,
}

impl State {
    fn of(prompt: &[i32], context: usize) -> State {
        let seen = prompt.len().min(context);
        State { tokens: prompt[prompt.len() - seen..].to_vec(), cached: 0, first: 0 }
    }
}

/// One pass over some tokens of the text.
struct Pass {
    first: usize,
    rows: usize,
    is_last: bool,
}

impl Text {
    pub(crate) fn new(prompt: &[i32], context: usize) -> Text {
        Text { context, state: Mutex::new(State::of(prompt, context)) }
    }

    /// Begins again with `prompt`; nothing of it is in the cache.
    pub(crate) fn restart(&self, prompt: &[i32]) {
        *self.lock() = State::of(prompt, self.context);
    }

    /// Where the context is full, the first half is forgotten, and with it all positions change.
    fn push(&self, token: i32) {
        let mut state = self.lock();
        if state.tokens.len() == self.context {
            let forgotten = self.context.div_ceil(2);
            state.tokens.drain(..forgotten);
            state.cached = 0;
        }
        state.tokens.push(token);
    }

    fn next_pass(&self, most_rows: usize) -> Pass {
        let mut state = self.lock();
        let (first, len) = (state.cached, state.tokens.len());
        state.first = first;
        state.cached = len.min(first + most_rows);
        Pass { first, rows: state.cached - first, is_last: state.cached == len }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The rank's own thread alone uses it.
        lock(&self.state)
    }
}

impl TokenSource for Text {
    fn fill(&self, _step: u32, _sequence: u64, buffers: SequenceBuffers<'_>) {
        let state = self.lock();
        buffers.labels.fill(IGNORED_LABEL);
        let intervals = buffers.visible.as_chunks_mut().0;
        let rows = buffers.tokens.iter_mut().zip(buffers.positions).zip(intervals);
        for (place, ((token, position), visible)) in (state.first..).zip(rows) {
            // A context is below 2^31 wherever it is read.
            let known = state.tokens.get(place).map(|known| (*known, place as i32));
            (*token, *position) = known.unwrap_or((0, 0));
            *visible = [0, *position + 1];
        }
    }

    fn first_place(&self) -> usize {
        self.lock().first
    }
}
