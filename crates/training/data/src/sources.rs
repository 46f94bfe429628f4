//! The sources of a run before their text is tokenized.

use std::path::{Path, PathBuf};

use config::{DataSpec, SourceSpec, TokenizerSpec};
use xxhash_rust::xxh3::Xxh3Default;

use crate::cache::token_file;
use crate::chat::Chat;
use crate::corpus::Corpus;
use crate::document::{Document, Rendered};
use crate::embedded::embedded;
use crate::error::DataError;
use crate::file_names::{files_at, is_token_file};
use crate::megatron;
use crate::odd_files::OddFilesRule;
use crate::read::{Content, read_with};
use crate::split::{Split, split, split_conversations, split_tokens};
use crate::token_file::TokenFile;
use crate::tokenize::{Listener, NoListener};
use crate::tokenizer::Tokenizer;

/// All sources of a run, read and split.
#[derive(Debug)]
pub struct Sources {
    pub(crate) list: Vec<NamedSource>,
    /// The tokenizers of token files.
    pub(crate) own_tokenizers: Vec<Tokenizer>,
    /// Texts that are measured on only, with their names.
    pub(crate) validation: Vec<(String, Source)>,
}

/// A source with its share of the sequences.
#[derive(Debug)]
pub(crate) struct NamedSource {
    /// Empty for the only one.
    pub(crate) name: String,
    pub(crate) weight: f32,
    pub(crate) source: Source,
}

/// A source, opened.
#[derive(Debug)]
pub(crate) enum Source {
    Text(Split<Vec<Document>>),
    Tokens(Box<Split<Corpus>>),
    Chats(Split<Vec<Rendered>>),
}

impl Sources {
    /// Reads all sources of `data`, or the embedded corpus if there are none.
    ///
    /// # Errors
    /// All sources that cannot be read.
    pub fn open(data: &DataSpec) -> Result<Sources, DataError> {
        Sources::open_with_listener(data, &NoListener)
    }

    /// Returns the same as [`Sources::open`]; `listener` gets the progress of text that becomes token files of
    /// `data.cache`.
    ///
    /// # Errors
    /// See [`Sources::open`].
    pub fn open_with_listener(data: &DataSpec, listener: &dyn Listener) -> Result<Sources, DataError> {
        let mut sources = Sources { list: vec![], own_tokenizers: vec![], validation: vec![] };
        let cache = Cache::of(data, listener)?;
        let chat = data.chat.as_ref().map(Chat::open).transpose()?;
        let skipped = |error: &DataError| listener.skipped(error);
        let odd_files = OddFilesRule { odd_files: data.odd_files, skipped: &skipped };
        let ways = TextRendering { cache: cache.as_ref(), chat: chat.as_ref(), odd_files };
        if data.sources.is_empty() {
            let source = Source::Text(split(embedded(), data.held_out));
            sources.list.push(NamedSource { name: String::new(), weight: 1.0, source });
        }
        let mut errors = vec![];
        for spec in &data.sources {
            let name = if data.sources.len() == 1 { String::new() } else { spec.path.display().to_string() };
            match sources.open_one(spec, data, data.held_out, &ways) {
                Ok(source) => sources.list.push(NamedSource { name, weight: spec.weight, source }),
                Err(error) => errors.push(error),
            }
            // Others may take hours, where their text becomes token files.
            if cache.is_some() && !errors.is_empty() {
                break;
            }
        }
        let is_over = cache.is_some() && !errors.is_empty();
        for text in data.validation.iter().filter(|_| !is_over) {
            // All of it is the part that others train on.
            match sources.open_one(&text.source, data, 0.0, &ways) {
                Ok(source) => sources.validation.push((text.name.clone(), source)),
                Err(error) => errors.push(error),
            }
        }
        DataError::all(errors)?;
        Ok(sources)
    }

    fn open_one(
        &mut self,
        spec: &SourceSpec,
        data: &DataSpec,
        held_out: f32,
        ways: &TextRendering,
    ) -> Result<Source, DataError> {
        let source = open(spec, held_out, ways, &mut self.own_tokenizers)?;
        check_tokenizer(&data.tokenizer, spec, &source)?;
        Ok(source)
    }

    /// The tokenizer that `spec` names; one that is to be trained sees the training text, and nothing that is held out.
    /// `None` for that of the token files.
    ///
    /// # Errors
    /// See [`Tokenizer::new`].
    pub fn tokenizer(&self, spec: &TokenizerSpec) -> Result<Option<Tokenizer>, DataError> {
        let texts = self.list.iter().map(|named| -> Vec<Document> {
            match &named.source {
                Source::Text(parts) => parts.train.clone(),
                Source::Tokens(_) => vec![],
                Source::Chats(parts) => parts.train.iter().map(|own| own.document.clone()).collect(),
            }
        });
        Tokenizer::new(spec, &texts.flatten().collect::<Vec<Document>>())
    }

    /// Bytes of the training text.
    pub fn text_bytes(&self) -> u64 {
        let bytes = |named: &NamedSource| match &named.source {
            Source::Text(parts) => parts.train.iter().map(|document| document.text.len() as u64).sum(),
            Source::Tokens(_) => 0,
            Source::Chats(parts) => parts.train.iter().map(|own| own.document.text.len() as u64).sum(),
        };
        self.list.iter().map(bytes).sum()
    }

    /// XXH3 of the text and the tokens of all sources as they were read, whatever their names are.
    pub fn hash(&self) -> u64 {
        let mut hash = Xxh3Default::new();
        let validation = self.validation.iter().map(|(_, source)| source);
        for source in self.list.iter().map(|named| &named.source).chain(validation) {
            match source {
                Source::Text(Split { train, held_out }) => [train, held_out].into_iter().for_each(|part| {
                    hash.update(&(part.len() as u64).to_le_bytes());
                    part.iter().for_each(|document| add_document(&mut hash, document));
                }),
                Source::Chats(Split { train, held_out }) => [train, held_out].into_iter().for_each(|part| {
                    hash.update(&(part.len() as u64).to_le_bytes());
                    for Rendered { document, answers } in part {
                        add_document(&mut hash, document);
                        for end in answers.iter().flat_map(|answer| [answer.start, answer.end]) {
                            hash.update(&(end as u64).to_le_bytes());
                        }
                    }
                }),
                Source::Tokens(parts) => {
                    [&parts.train, &parts.held_out].into_iter().for_each(|part| part.hash_into(&mut hash));
                }
            }
        }
        hash.digest()
    }
}

fn add_document(hash: &mut Xxh3Default, document: &Document) {
    hash.update(&(document.text.len() as u64).to_le_bytes());
    hash.update(document.text.as_bytes());
}

/// The files that [`Sources::open`] reads of a source, sorted: a file, the two of a pair, or those of a folder.
///
/// # Errors
/// A folder that cannot be read.
pub fn files_of(source: &SourceSpec) -> Result<Vec<PathBuf>, DataError> {
    if source.is_tokens() && !is_token_file(&source.path) {
        return Ok(megatron::pair(&source.path).into());
    }
    files_at(&source.path)
}

/// Where token files of text are, and with which tokenizer they are made.
struct Cache<'a> {
    folder: &'a Path,
    tokenizer: Tokenizer,
    listener: &'a dyn Listener,
}

impl<'a> Cache<'a> {
    /// The cache of `data`, where it names one and has text.
    fn of(data: &'a DataSpec, listener: &'a dyn Listener) -> Result<Option<Cache<'a>>, DataError> {
        let Some(folder) = &data.cache else { return Ok(None) };
        let tokenizer = match &data.tokenizer {
            TokenizerSpec::Bytes | TokenizerSpec::File(_) => Tokenizer::new(&data.tokenizer, &[])?,
            // A file is named after its tokenizer, which one that is trained on the text gives too late.
            TokenizerSpec::Bpe { .. } => return Err(DataError::CacheNeedsTokenizer(data.tokenizer.to_string())),
            TokenizerSpec::OfTokenFiles => {
                let first = data.sources.iter().find(|source| is_token_file(&source.path));
                first.map(|source| TokenFile::open(&source.path).map(|file| file.tokenizer)).transpose()?
            }
        };
        let tokenizer = tokenizer.map(|tokenizer| tokenizer.with_marks(&data.marks())).transpose()?;
        Ok(tokenizer.map(|tokenizer| Cache { folder, tokenizer, listener }))
    }
}

/// The cache and the chat template by which text becomes documents, where it is not read as it is.
struct TextRendering<'a> {
    cache: Option<&'a Cache<'a>>,
    chat: Option<&'a Chat>,
    odd_files: OddFilesRule<'a>,
}

fn open(
    source: &SourceSpec,
    held_out: f32,
    ways: &TextRendering,
    own_tokenizers: &mut Vec<Tokenizer>,
) -> Result<Source, DataError> {
    if let Some(chat) = ways.chat {
        let conversations = chat.read_with(&source.path, source.column.as_deref(), &ways.odd_files)?;
        return Ok(Source::Chats(split_conversations(conversations, held_out)));
    }
    if let Some(Cache { folder, tokenizer, listener }) = ways.cache.filter(|_| !source.is_tokens()) {
        let file = token_file(folder, source, tokenizer, &ways.odd_files, *listener)?;
        return Ok(Source::Tokens(split_tokens(&file.corpus, held_out).into()));
    }
    if !source.is_tokens() {
        return Ok(match read_with(&source.path, source.column.as_deref(), &ways.odd_files)? {
            Content::Text(documents) => Source::Text(split(documents, held_out)),
            Content::Tokens(corpus) => Source::Tokens(split_tokens(&corpus, held_out).into()),
        });
    }
    let corpus = if is_token_file(&source.path) {
        let file = TokenFile::open(&source.path)?;
        own_tokenizers.push(file.tokenizer);
        file.corpus
    } else {
        megatron::open(&source.path)?
    };
    if corpus.is_empty() {
        return Err(DataError::Empty(source.path.clone()));
    }
    Ok(Source::Tokens(split_tokens(&corpus, held_out).into()))
}

/// Refuses tokens of an unknown tokenizer next to one that is trained on text. Token files bring theirs, which is
/// compared.
fn check_tokenizer(tokenizer: &TokenizerSpec, spec: &SourceSpec, source: &Source) -> Result<(), DataError> {
    match (source, tokenizer) {
        (Source::Tokens(_), TokenizerSpec::Bpe { vocabulary }) if !is_token_file(&spec.path) => {
            let (place, vocabulary) = (spec.path.display().to_string(), *vocabulary);
            Err(DataError::TokensWithoutTokenizer { place, vocabulary })
        }
        (Source::Tokens(_) | Source::Text(_) | Source::Chats(_), _) => Ok(()),
    }
}
