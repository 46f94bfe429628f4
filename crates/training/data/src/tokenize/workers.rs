//! Records become tokens on all cores, and come back in their order.

use std::num::NonZero;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use formats::Cell;
use sync::start_scoped;

use super::{Input, Position};
use crate::corpus::Corpus;
use crate::error::DataError;
use crate::records::{Record, Records};
use crate::tokenizer::{Tokenizer, tail};
use crate::tokens::TokenType;

/// Bytes of text, or four for each token, after which a batch is full.
const BATCH_BYTES: usize = 1 << 18;
/// Records after which a batch is full.
const BATCH_RECORDS: usize = 4096;
/// Batches that wait for a worker, and for the writer after it.
const WAITING: usize = 2;

/// Records that are to be tokenized.
struct Load {
    records: Vec<(Record, Beginning)>,
    /// After the last of them.
    end: Position,
}

/// The text that a record continues.
#[derive(Clone, Debug)]
enum Beginning {
    /// It begins a document.
    New,
    /// It continues the document of the record before, whose text ends like this.
    After(String),
}

impl Beginning {
    /// The text that the record after `record` continues.
    fn after(Record { content, ends, .. }: &Record) -> Beginning {
        match content {
            Cell::Text(text) if !ends => Beginning::After(tail(text).to_string()),
            Cell::Text(_) | Cell::Tokens(_) => Beginning::New,
        }
    }
}

/// Tokens of some records.
pub(crate) struct Batch {
    /// The tokens, as the file has them.
    pub(crate) tokens: Vec<u8>,
    /// Tokens of each record, and whether its document ends with it.
    pub(crate) records: Vec<(u64, bool)>,
    pub(crate) text_bytes: u64,
    /// Where the work continues after them.
    pub(crate) end: Position,
}

/// Tokenizes `inputs` from `start` on and hands over batches in their order.
///
/// Each worker has the batches of its turn, and a queue on either side: batches come back in order without being
/// sorted, and no more than a few for each core are in memory. `piped` are the records of the first input, where it was
/// opened before.
pub(crate) fn run(
    inputs: &[Input],
    piped: Option<Records>,
    tokenizer: &Tokenizer,
    start: Position,
    take: &mut dyn FnMut(Batch) -> Result<(), DataError>,
) -> Result<(), DataError> {
    let workers = thread::available_parallelism().map_or(1, NonZero::get);
    thread::scope(|scope| {
        let (mut loads, mut batches) = (vec![], vec![]);
        for _ in 0..workers {
            let (load, loaded) = sync_channel::<Result<Load, DataError>>(WAITING);
            let (batch, made) = sync_channel(WAITING);
            // Fewer workers make the same tokens.
            match start_scoped(scope, "tokens", move || work(tokenizer, &loaded, &batch)) {
                Ok(_) => {}
                Err(error) if loads.is_empty() => return Err(DataError::Thread(error)),
                Err(_) => break,
            }
            loads.push(load);
            batches.push(made);
        }
        start_scoped(scope, "texts", move || feed(inputs, piped, start, &loads)).map_err(DataError::Thread)?;
        for made in batches.iter().cycle() {
            // The first worker without a batch stands for the end: those after it have none either.
            let Ok(batch) = made.recv() else { break };
            take(batch?)?;
        }
        Ok(())
    })
}

fn work(
    tokenizer: &Tokenizer,
    loads: &Receiver<Result<Load, DataError>>,
    batches: &SyncSender<Result<Batch, DataError>>,
) {
    for load in loads {
        let batch = load.and_then(|load| tokenized(tokenizer, load));
        let is_last = batch.is_err();
        // Nobody takes a batch after an error.
        if batches.send(batch).is_err() || is_last {
            return;
        }
    }
}

fn tokenized(tokenizer: &Tokenizer, load: Load) -> Result<Batch, DataError> {
    let token_type = TokenType::of_vocabulary(tokenizer.vocabulary());
    let mut batch =
        Batch { tokens: vec![], records: Vec::with_capacity(load.records.len()), text_bytes: 0, end: load.end };
    for (Record { name, content, learned, ends }, beginning) in load.records {
        if learned.is_some() {
            return Err(DataError::PartlyLearned { document: name });
        }
        let tokens = match content {
            Cell::Tokens(tokens) => tokens,
            Cell::Text(text) => {
                batch.text_bytes += text.len() as u64;
                let (begins, before) = match &beginning {
                    Beginning::New => (true, ""),
                    Beginning::After(before) => (false, before.as_str()),
                };
                let tokens = tokenizer.encode_after(before, &text).map_err(|reason| DataError::NotEncoded {
                    document: name.clone(),
                    tokenizer: tokenizer.name().into(),
                    reason,
                })?;
                // A document without text has no tokens around it.
                let is_empty = begins && ends && tokens.is_empty();
                let begin = if begins && !is_empty { tokenizer.begin() } else { &[] };
                let end = if ends && !is_empty { tokenizer.end() } else { &[] };
                [begin, &tokens, end].concat()
            }
        };
        if let Some(at) = tokens.iter().position(|token| *token as usize >= tokenizer.vocabulary()) {
            let place = format!("token {at} of {name}");
            return Err(DataError::outside_vocabulary(tokens[at].into(), place, tokenizer.vocabulary()));
        }
        batch.records.push((tokens.len() as u64, ends));
        tokens.iter().for_each(|token| token_type.encode(*token, &mut batch.tokens));
    }
    Ok(batch)
}

/// The records of the first of `inputs`, where it is a pipe, which may not say anything for long.
pub(crate) fn piped(inputs: &[Input]) -> Result<Option<Records>, DataError> {
    if let Some(Input::Records(path, column)) = inputs.first()
        && !path.is_file()
    {
        return Records::open(path, column.as_deref()).map(Some);
    }
    Ok(None)
}

/// Reads the records and hands them to the workers in turns, until all are read or nobody takes them.
fn feed(inputs: &[Input], mut piped: Option<Records>, start: Position, loads: &[SyncSender<Result<Load, DataError>>]) {
    let mut turns = loads.iter().cycle();
    let mut send = |load: Result<Load, DataError>| -> bool {
        let is_last = load.is_err();
        turns.next().is_some_and(|turn| turn.send(load).is_ok()) && !is_last
    };
    for (number, input) in (0..).zip(inputs).skip(start.input as usize) {
        let from = if number == start.input { start.record } else { 0 };
        match read(input, piped.take(), (number, from), &mut send) {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) => {
                send(Err(error));
                return;
            }
        }
    }
}

/// Reads one input from record `from` on; whether somebody takes more.
fn read(
    input: &Input,
    piped: Option<Records>,
    (number, from): (u64, u64),
    send: &mut dyn FnMut(Result<Load, DataError>) -> bool,
) -> Result<bool, DataError> {
    let mut records = match input {
        Input::Records(path, column) => {
            let records = piped.map_or_else(|| Records::open(path, column.as_deref()), Ok);
            Stream::Records(Box::new(records?))
        }
        Input::TokenFile(_) | Input::Pair(_) => {
            let corpus = input.corpus()?.map(Box::new);
            let Some(corpus) = corpus else { return Ok(true) };
            Stream::Corpus { corpus, next: 0 }
        }
    };
    let (mut record, mut beginning) = (0, Beginning::New);
    let mut load = Load { records: vec![], end: Position::default() };
    let mut bytes = 0;
    while let Some(next) = records.next()? {
        record += 1;
        let own = std::mem::replace(&mut beginning, Beginning::after(&next));
        if record <= from {
            continue;
        }
        bytes += match &next.content {
            Cell::Text(text) => text.len(),
            Cell::Tokens(tokens) => 4 * tokens.len(),
        };
        load.records.push((next, own));
        if bytes >= BATCH_BYTES || load.records.len() >= BATCH_RECORDS {
            load.end = Position { input: number, record };
            if !send(Ok(std::mem::replace(&mut load, Load { records: vec![], end: Position::default() }))) {
                return Ok(false);
            }
            bytes = 0;
        }
    }
    load.end = Position { input: number + 1, record: 0 };
    Ok(send(Ok(load)))
}

enum Stream {
    Records(Box<Records>),
    Corpus { corpus: Box<Corpus>, next: usize },
}

impl Stream {
    fn next(&mut self) -> Result<Option<Record>, DataError> {
        match self {
            Stream::Records(records) => records.next_record(),
            Stream::Corpus { corpus, next } => {
                let index = *next;
                if index >= corpus.num_documents() {
                    return Ok(None);
                }
                *next += 1;
                let name = corpus.document_name(index);
                let tokens = corpus.document_tokens(index).map(u32::try_from).collect::<Result<Vec<u32>, _>>();
                let tokens = tokens.map_err(|_| {
                    let negative = corpus.document_tokens(index).find(|token| *token < 0).unwrap_or(-1);
                    DataError::outside_vocabulary(negative, format!("in {name}"), 0)
                })?;
                Ok(Some(Record { name, content: Cell::Tokens(tokens), learned: None, ends: true }))
            }
        }
    }
}
