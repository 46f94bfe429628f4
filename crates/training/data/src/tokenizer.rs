//! Text to tokens and back.

use std::fmt::Display;
use std::fs;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use config::{Marks, TokenizerSpec};
use files::{InputError, InputKind, read_text};
use tokenizers::models::TrainerWrapper;
use tokenizers::models::bpe::{BPE, BpeTrainer};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::{NormalizedString, Normalizer};
use xxhash_rust::xxh3::xxh3_64;

use crate::document::Document;
use crate::error::DataError;
use crate::long_runs;
use crate::text_parts::parts;
use crate::tokenizer_file::{self, Growth};

/// How the tokenizer of bytes describes itself, where others are JSON.
const BYTES: &str = "bytes: token n is the byte n\n";
/// Tokens of single bytes.
const BYTE_TOKENS: usize = 256;
/// Name of a tokenizer's file in a run's folder.
pub const TOKENIZER_FILE: &str = "tokenizer.json";
/// Name of the file that stands for it where tokens are bytes.
pub const BYTES_FILE: &str = "tokenizer.txt";

#[derive(Clone, Debug)]
enum Kind {
    Bytes,
    /// The library, and what is known of the texts that it makes.
    Library(Box<tokenizers::Tokenizer>, Growth),
}

/// A tokenizer that is ready to use.
#[derive(Clone, Debug)]
pub struct Tokenizer {
    kind: Kind,
    /// For messages.
    name: String,
    vocabulary: usize,
    /// Tokens before and after each document.
    marks: [Vec<u32>; 2],
}

impl Tokenizer {
    fn of(kind: Kind, name: String, vocabulary: usize) -> Tokenizer {
        Tokenizer { kind, name, vocabulary, marks: [vec![], vec![]] }
    }

    /// Every byte is a token.
    pub fn bytes() -> Tokenizer {
        Tokenizer::of(Kind::Bytes, "\"bytes\"".into(), BYTE_TOKENS)
    }

    /// A byte-level byte-pair encoding of `vocabulary` tokens, at least 256, trained on `documents`: the same for the
    /// same documents. Words are cut as in GPT-2. A short text may give fewer merges, and then the last tokens are
    /// never used.
    ///
    /// # Errors
    /// The error of the library.
    pub fn train(documents: &[Document], vocabulary: usize) -> Result<Tokenizer, DataError> {
        let bytes: usize = documents.iter().map(|document| document.text.len()).sum();
        let texts = documents.iter().flat_map(|document| long_runs::parts(&document.text));
        Tokenizer::train_on(texts, bytes, vocabulary)
    }

    /// Trains a tokenizer as [`Tokenizer::train`] does, on texts of `bytes` bytes, in which no run of one class of
    /// characters is long.
    pub(crate) fn train_on<T: AsRef<str> + Send>(
        texts: impl Iterator<Item = T> + Send,
        bytes: usize,
        vocabulary: usize,
    ) -> Result<Tokenizer, DataError> {
        let name = format!("\"bpe:{vocabulary}\"");
        // Every merge joins two neighbours somewhere in the text: there are never more, so no room is taken for more.
        let most = vocabulary.min(BYTE_TOKENS + bytes);
        let mut trainer: TrainerWrapper = BpeTrainer::builder()
            .vocab_size(most)
            .min_frequency(2)
            .show_progress(false)
            .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
            .build()
            .into();
        let mut library = tokenizers::Tokenizer::new(BPE::default());
        let byte_level = ByteLevel::new(false, true, true);
        library.with_pre_tokenizer(Some(byte_level)).with_decoder(Some(byte_level));
        match library.train(&mut trainer, texts) {
            Ok(_) => Ok(Tokenizer::of(Kind::Library(Box::new(library), Growth::Usual), name, vocabulary)),
            Err(reason) => Err(DataError::BadTokenizer { name, reason: reason.to_string() }),
        }
    }

    /// The tokenizer that `spec` names, trained on `documents` if it is to be trained. `None` for that of the token
    /// files, which names none.
    ///
    /// # Errors
    /// A file that cannot be read or is not a tokenizer.
    pub fn new(spec: &TokenizerSpec, documents: &[Document]) -> Result<Option<Tokenizer>, DataError> {
        match spec {
            TokenizerSpec::Bytes => Ok(Some(Tokenizer::bytes())),
            TokenizerSpec::Bpe { vocabulary } => Tokenizer::train(documents, *vocabulary).map(Some),
            TokenizerSpec::File(path) => Tokenizer::open(path).map(Some),
            TokenizerSpec::OfTokenFiles => Ok(None),
        }
    }

    /// The tokenizer in the file `path`, as [`Tokenizer::save`] or the Hugging Face library write it.
    ///
    /// # Errors
    /// A file that cannot be read or is not a tokenizer.
    pub fn open(path: &Path) -> Result<Tokenizer, DataError> {
        let unreadable = |error: InputError| DataError::Unreadable { path: path.to_path_buf(), reason: error.into() };
        let text = read_text(path, InputKind::Tokenizer).map_err(unreadable)?;
        Tokenizer::from_description(&text, path.display().to_string())
    }

    /// The tokenizer in a run's folder.
    ///
    /// # Errors
    /// A folder without one.
    pub fn load(folder: &Path) -> Result<Tokenizer, DataError> {
        let note = folder.join(BYTES_FILE);
        if note.exists() { Tokenizer::open(&note) } else { Tokenizer::open(&folder.join(TOKENIZER_FILE)) }
    }

    /// Writes it into a run's folder: `tokenizer.json`, or a note where tokens are bytes.
    ///
    /// # Errors
    /// A folder that cannot be written.
    pub fn save(&self, folder: &Path) -> Result<(), DataError> {
        let (name, stale) = match self.kind {
            Kind::Bytes => (BYTES_FILE, TOKENIZER_FILE),
            Kind::Library(..) => (TOKENIZER_FILE, BYTES_FILE),
        };
        self.save_as(&folder.join(name))?;
        // That of an earlier run in the same folder, if there was one.
        let _ = fs::remove_file(folder.join(stale));
        Ok(())
    }

    /// Writes it into the file `path`.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn save_as(&self, path: &Path) -> Result<(), DataError> {
        files::replace(path, self.description()?)
            .map_err(|reason| DataError::Unwritable { path: path.to_path_buf(), reason })
    }

    /// The tokenizer of which `description` is what [`Tokenizer::description`] said.
    pub(crate) fn from_description(description: &str, name: String) -> Result<Tokenizer, DataError> {
        if description == BYTES {
            return Ok(Tokenizer::bytes());
        }
        let parsed =
            tokenizer_file::check(description).and_then(|growth| Ok((growth, refusing(|| description.parse())?)));
        let (growth, mut library): (Growth, tokenizers::Tokenizer) = match parsed {
            Ok(parsed) => parsed,
            Err(error) => {
                return Err(DataError::BadTokenizer { name, reason: format!("it is not a tokenizer: {error}") });
            }
        };
        // They are for batches of short texts; here they would cut documents off, or fill them up.
        if let Err(error) = library.with_padding(None).with_truncation(None) {
            return Err(DataError::BadTokenizer { name, reason: error.to_string() });
        }
        // Numbers may have gaps: the largest counts, not how many there are.
        let vocabulary = library.get_vocab(true).values().max().map_or(0, |largest| *largest as usize + 1);
        if vocabulary == 0 {
            return Err(DataError::BadTokenizer { name, reason: "it has no tokens".into() });
        }
        Ok(Tokenizer::of(Kind::Library(Box::new(library), growth), name, vocabulary))
    }

    /// Everything about it as text: `tokenizer.json`, or a note where tokens are bytes.
    ///
    /// # Errors
    /// The error of the library.
    pub fn description(&self) -> Result<String, DataError> {
        match &self.kind {
            Kind::Bytes => Ok(BYTES.into()),
            Kind::Library(library, _) => library
                .to_string(true)
                .map_err(|reason| DataError::BadTokenizer { name: self.name.clone(), reason: reason.to_string() }),
        }
    }

    /// The hash of its description: equal for tokenizers that are equal.
    ///
    /// # Errors
    /// The error of the library.
    pub fn identity(&self) -> Result<u64, DataError> {
        Ok(xxh3_64(self.description()?.as_bytes()))
    }

    /// The tokenizer that [`Tokenizer::train`] made with `vocabulary` in another process, from its description.
    ///
    /// # Errors
    /// A description that the library refuses.
    pub fn trained_elsewhere(description: &str, vocabulary: usize) -> Result<Tokenizer, DataError> {
        let tokenizer = Tokenizer::from_description(description, format!("\"bpe:{vocabulary}\""))?;
        Ok(tokenizer.with_vocabulary(vocabulary))
    }

    /// The same tokenizer for a model of `vocabulary` tokens, of which it may not use the last.
    pub(crate) fn with_vocabulary(self, vocabulary: usize) -> Tokenizer {
        Tokenizer { vocabulary, ..self }
    }

    /// The same tokenizer, which puts these tokens around each document.
    ///
    /// # Errors
    /// A text that is not a token.
    pub fn with_marks(self, Marks { begin, end }: &Marks) -> Result<Tokenizer, DataError> {
        let token = |key, text: &str| {
            let no_token = || DataError::NoToken { key, text: text.to_string(), tokenizer: self.name.clone() };
            if text.is_empty() { Ok(vec![]) } else { self.tokens_of_mark(text).ok_or_else(no_token) }
        };
        let marks = [token("begin", begin)?, token("end", end)?];
        Ok(Tokenizer { marks, ..self })
    }

    /// The token whose text this is, or several of those that were added to a vocabulary, as `[gMASK]<sop>`.
    fn tokens_of_mark(&self, text: &str) -> Option<Vec<u32>> {
        match &self.kind {
            Kind::Bytes => text.bytes().map(|byte| vec![u32::from(byte)]).next().filter(|_| text.len() == 1),
            Kind::Library(library, _) => {
                let added = library.get_added_tokens_decoder();
                let by_name = library.token_to_id(text).map(|token| vec![token]);
                by_name.or_else(|| {
                    let tokens = self.encode(text).ok()?;
                    let is_mark = tokens.len() == 1 || tokens.iter().all(|token| added.contains_key(token));
                    (is_mark && self.decode(&tokens).as_deref() == Ok(text)).then_some(tokens)
                })
            }
        }
    }

    /// `tokens` of a document without those around it.
    pub(crate) fn without_marks<'a>(&self, tokens: &'a [u32]) -> &'a [u32] {
        let tokens = tokens.strip_prefix(self.begin()).unwrap_or(tokens);
        tokens.strip_suffix(self.end()).unwrap_or(tokens)
    }

    /// Tokens before each document and each prompt.
    pub fn begin(&self) -> &[u32] {
        &self.marks[0]
    }

    /// Tokens after each document.
    pub fn end(&self) -> &[u32] {
        &self.marks[1]
    }

    /// Its name in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Number of different tokens: all are below it.
    pub fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    /// The tokens of a text, without any that mark its beginning or end. A text of more than 1 MiB is tokenized in
    /// parts, so that memory does not grow with it.
    ///
    /// # Errors
    /// The error of the library.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, String> {
        self.encode_after("", text)
    }

    /// Returns the same as [`Tokenizer::encode`], where the text continues a document that ends with `before` so far.
    pub(crate) fn encode_after(&self, before: &str, text: &str) -> Result<Vec<u32>, String> {
        match &self.kind {
            Kind::Bytes => Ok(text.bytes().map(u32::from).collect()),
            Kind::Library(library, growth) => {
                match growth {
                    Growth::Usual => {}
                    Growth::ToBeMeasured => check_growth(library, text)?,
                }
                let (mut tokens, mut before) = (Vec::new(), before);
                for part in parts(text) {
                    tokens.extend(encode_part(library, before, part)?);
                    before = tail(part);
                }
                Ok(tokens)
            }
        }
    }

    /// The tokens of a document, with those around it; none of one without text.
    pub(crate) fn encode_marked(&self, document: &Document) -> Result<Vec<u32>, DataError> {
        let tokens = self.encode_document(document)?;
        Ok(if tokens.is_empty() { tokens } else { [self.begin(), &tokens, self.end()].concat() })
    }

    /// The tokens of a document, without those around it.
    pub(crate) fn encode_document(&self, document: &Document) -> Result<Vec<u32>, DataError> {
        self.encode(&document.text).map_err(|reason| DataError::NotEncoded {
            document: document.name.clone(),
            tokenizer: self.name.clone(),
            reason,
        })
    }

    /// The tokens of a conversation, and for each whether it is of an answer: one of those from the first that shares a
    /// byte with one of `answers` to the last.
    pub(crate) fn encode_answers(
        &self,
        document: &Document,
        answers: &[Range<usize>],
    ) -> Result<(Vec<u32>, Vec<bool>), DataError> {
        self.encode_places(&document.text).map(|(tokens, places)| (tokens, of_answers(&places, answers))).map_err(
            |reason| DataError::NotEncoded { document: document.name.clone(), tokenizer: self.name.clone(), reason },
        )
    }

    /// Returns the same as [`Tokenizer::encode`], with the bytes of each token.
    fn encode_places(&self, text: &str) -> Result<(Vec<u32>, Vec<Range<usize>>), String> {
        match &self.kind {
            Kind::Bytes => Ok((text.bytes().map(u32::from).collect(), (0..text.len()).map(|at| at..at + 1).collect())),
            Kind::Library(library, growth) => {
                match growth {
                    Growth::Usual => {}
                    Growth::ToBeMeasured => check_growth(library, text)?,
                }
                let (mut tokens, mut places, mut start, mut before) = (Vec::new(), Vec::new(), 0, "");
                for part in parts(text) {
                    for (token, place) in tokens_after(library, before, part)? {
                        tokens.push(token);
                        places.push(start + place.start..start + place.end);
                    }
                    (start, before) = (start + part.len(), tail(part));
                }
                Ok((tokens, places))
            }
        }
    }

    /// The text of `tokens`; bytes that are not UTF-8, as where a character is cut in two, become U+FFFD. Unknown
    /// tokens have no text.
    ///
    /// # Errors
    /// The error of the library.
    pub fn decode(&self, tokens: &[u32]) -> Result<String, String> {
        match &self.kind {
            Kind::Bytes => {
                let bytes: Vec<u8> = tokens.iter().filter_map(|token| u8::try_from(*token).ok()).collect();
                Ok(String::from_utf8_lossy(&bytes).into_owned())
            }
            Kind::Library(library, _) => refusing(|| library.decode(tokens, false)),
        }
    }

    /// Whether `token` is a byte for characters that have no token, as "<0x0A>" is a line end.
    pub(crate) fn is_byte(&self, token: u32) -> bool {
        match &self.kind {
            Kind::Bytes => false,
            Kind::Library(library, _) => library
                .id_to_token(token)
                .is_some_and(|name| name.len() == 6 && name.starts_with("<0x") && name.ends_with('>')),
        }
    }
}

/// Bytes before a part of a text that are tokenized with it, where it would have other tokens alone.
const BEFORE_BYTES: usize = 64;
/// Bytes of a part that show whether it has the same tokens alone.
const PROBED_BYTES: usize = 256;

/// The end of a part, for the next one.
pub(crate) fn tail(part: &str) -> &str {
    &part[part.ceil_char_boundary(part.len().saturating_sub(BEFORE_BYTES))..]
}

/// The tokens of a part of a text, after a part that ends with `before`. Some tokenizers put a space in front of a
/// text, which a part does not have: there the part is tokenized after `before`.
fn encode_part(library: &tokenizers::Tokenizer, before: &str, part: &str) -> Result<Vec<u32>, String> {
    let alone = |text: &str| refusing(|| library.encode_fast(text, false)).map(|own| own.get_ids().to_vec());
    if before.is_empty() {
        return alone(part);
    }
    let probe = &part[..part.floor_char_boundary(PROBED_BYTES)];
    let after: Vec<u32> = tokens_after(library, before, probe)?.map(|(token, _)| token).collect();
    match after == alone(probe)? {
        true => alone(part),
        false => Ok(tokens_after(library, before, part)?.map(|(token, _)| token).collect()),
    }
}

/// The tokens of `part` after `before`, each with its bytes in `part`.
fn tokens_after(
    library: &tokenizers::Tokenizer,
    before: &str,
    part: &str,
) -> Result<impl Iterator<Item = (u32, Range<usize>)>, String> {
    let text = format!("{before}{part}");
    let encoding = refusing(|| library.encode(text.as_str(), false))?;
    let (ids, offsets, start) = (encoding.get_ids().to_vec(), encoding.get_offsets().to_vec(), before.len());
    let of_part = move |(token, (from, to)): (u32, (usize, usize))| {
        (to > start || start == 0).then(|| (token, from.saturating_sub(start)..to.saturating_sub(start)))
    };
    Ok(ids.into_iter().zip(offsets).filter_map(of_part))
}

/// Which tokens, by their bytes in ascending order, are of one of the ascending `answers`.
fn of_answers(places: &[Range<usize>], answers: &[Range<usize>]) -> Vec<bool> {
    let mut is_answer = vec![false; places.len()];
    let mut from = 0;
    for answer in answers {
        let shares = |place: &Range<usize>| place.start < answer.end && place.end > answer.start;
        let is_after = |place: &Range<usize>| place.start >= answer.end;
        let end = places[from..].iter().position(is_after).map_or(places.len(), |end| from + end);
        let first = places[from..end].iter().position(shares).map_or(end, |first| from + first);
        let last = places[from..end].iter().rposition(shares).map_or(first, |last| from + last + 1);
        is_answer[first..last].fill(true);
        from = end;
    }
    is_answer
}

/// Bytes of text that are normalised at once to measure the growth.
const MEASURED_BYTES: usize = 4 << 10;
/// Bytes that a text may become for each of its own, where it is longer than [`SMALL_BYTES`].
const MOST_GROWTH: usize = 16;
/// Bytes that a text of any length may become.
const SMALL_BYTES: usize = 1 << 20;

/// Whether the normalizer lets `text` grow within reason, found out part by part.
fn check_growth(library: &tokenizers::Tokenizer, text: &str) -> Result<(), String> {
    let Some(normalizer) = library.get_normalizer() else { return Ok(()) };
    let limit = SMALL_BYTES.max(text.len().saturating_mul(MOST_GROWTH));
    let (mut rest, mut grown) = (text, 0);
    while !rest.is_empty() {
        let (part, next) = rest.split_at(rest.floor_char_boundary(MEASURED_BYTES));
        let mut part = NormalizedString::from(part);
        refusing(|| normalizer.normalize(&mut part))?;
        grown += part.get().len();
        if grown > limit {
            return Err(format!(
                "its normalizer makes more than {limit} bytes of {}; use one that makes less",
                text.len()
            ));
        }
        rest = next;
    }
    Ok(())
}

/// The library's result or error. The library panics on some files that contradict themselves; it only reads, so it is
/// unchanged after a panic.
fn refusing<T, E: Display>(work: impl FnOnce() -> Result<T, E>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(done) => done.map_err(|error| error.to_string()),
        Err(panic) => {
            let told = panic.downcast_ref::<String>().map(String::as_str);
            Err(told.or(panic.downcast_ref::<&str>().copied()).unwrap_or("the library panicked").to_string())
        }
    }
}
