//! The text of a run: its sources read, tokenized and split.

use std::sync::Arc;

use config::{DataSpec, RunConfig, TokenizerSpec, TrainSpec};
use xxhash_rust::xxh3::Xxh3Default;

use crate::blanks::Blanks;
use crate::corpus::Corpus;
use crate::document::{Document, Rendered};
use crate::error::DataError;
use crate::file_names::is_token_file;
use crate::instructions::Instructions;
use crate::mixture::{Mixture, MixturePart, Packing};
use crate::sources::{NamedSource, Source, Sources};
use crate::split::Split;
use crate::token_file::TokenFile;
use crate::tokenizer::Tokenizer;

/// Everything that a run reads.
#[derive(Clone, Debug)]
pub struct Dataset {
    /// The tokenizer of the tokens.
    pub tokenizer: Tokenizer,
    /// To train on: every source.
    pub train: Mixture,
    /// Never trained on: every source of which something is held out.
    pub held_out: Mixture,
    /// Bytes of the held-out text; where it came as tokens, of these tokens as text.
    pub held_out_bytes: u64,
    /// Texts that are measured on only, with their names.
    pub validation: Vec<(String, Mixture)>,
    /// Tasks next to the text.
    pub instructions: Arc<Instructions>,
}

impl Dataset {
    /// Reads all sources of `data`, or the embedded corpus if there are none. A tokenizer that is to be trained sees
    /// the training text of all sources, and nothing that is held out.
    ///
    /// # Errors
    /// The first thing that cannot be used.
    pub fn open(data: &DataSpec) -> Result<Dataset, DataError> {
        let sources = Sources::open(data)?;
        let given = sources.tokenizer(&data.tokenizer)?;
        Dataset::new(data, sources, given)
    }

    /// The dataset of `sources`, those of `data`, whose text becomes tokens with `given`, or else with the tokenizer of
    /// the token files.
    ///
    /// # Errors
    /// The first thing that cannot be used.
    pub fn new(data: &DataSpec, sources: Sources, given: Option<Tokenizer>) -> Result<Dataset, DataError> {
        let Sources { list, own_tokenizers, validation } = sources;
        let tokenizer = one_of(given, own_tokenizers)?.with_marks(&data.marks())?;
        let instructions = data.blanks.as_ref().and_then(|blanks| blanks.instructions.as_ref());
        let instructions = instructions.map(|own| Instructions::read(own.path.as_deref(), &tokenizer)).transpose()?;
        let packing = data.chat.as_ref().map_or(Packing::Continuous, |chat| Packing::Conversations(chat.long));
        let empty = Mixture { ingredients: vec![], visible: data.visible, positions: data.positions, packing };
        let mut dataset = Dataset {
            tokenizer,
            train: empty.clone(),
            held_out: empty.clone(),
            held_out_bytes: 0,
            validation: vec![],
            instructions: Arc::new(instructions.unwrap_or_default()),
        };
        for NamedSource { name, weight, source } in list {
            dataset.add(name, weight, source)?;
        }
        for (name, source) in validation {
            let corpus = match source {
                Source::Text(parts) => Corpus::new(&parts.train, &dataset.tokenizer)?,
                Source::Tokens(parts) => parts.train,
                Source::Chats(parts) => Corpus::of_conversations(&parts.train, &dataset.tokenizer)?,
            };
            let ingredient = MixturePart { name: name.clone(), corpus, weight: 1.0 };
            let text = Mixture { ingredients: vec![ingredient], ..empty.clone() };
            dataset.validation.push((name, text));
        }
        Ok(dataset)
    }

    fn add(&mut self, name: String, weight: f32, source: Source) -> Result<(), DataError> {
        let (parts, held_out_bytes) = match source {
            Source::Text(parts) => {
                let bytes = parts.held_out.iter().map(|document| document.text.len() as u64).sum();
                let corpus = |documents: &[Document]| Corpus::new(documents, &self.tokenizer);
                (Split { train: corpus(&parts.train)?, held_out: corpus(&parts.held_out)? }, bytes)
            }
            Source::Tokens(parts) => {
                // Tokens that the tokenizer does not know have no text that could be measured.
                let vocabulary = self.tokenizer.vocabulary();
                if let Err(of_held_out) = parts.held_out.check_vocabulary(vocabulary) {
                    let first = parts.train.check_vocabulary(vocabulary).err().unwrap_or(of_held_out);
                    let largest = parts.train.largest_token().max(parts.held_out.largest_token());
                    return Err(first.up_to(largest).of_tokenizer(self.tokenizer.name()));
                }
                let bytes = text_of_corpus(&self.tokenizer, &parts.held_out)?.len() as u64;
                (*parts, bytes)
            }
            Source::Chats(parts) => {
                let bytes = parts.held_out.iter().map(|own| own.document.text.len() as u64).sum();
                let corpus = |part: &[Rendered]| Corpus::of_conversations(part, &self.tokenizer);
                (Split { train: corpus(&parts.train)?, held_out: corpus(&parts.held_out)? }, bytes)
            }
        };
        self.train.ingredients.push(MixturePart { name: name.clone(), corpus: parts.train, weight });
        if !parts.held_out.is_empty() {
            self.held_out.ingredients.push(MixturePart { name, corpus: parts.held_out, weight });
            self.held_out_bytes += held_out_bytes;
        }
        Ok(())
    }

    /// The blanks that `config` asks for.
    ///
    /// # Errors
    /// A task with a token that the model does not know.
    pub fn blanks(&self, config: &RunConfig) -> Result<Option<Blanks>, DataError> {
        let Some(blanks) = &config.data.blanks else { return Ok(None) };
        self.instructions.check_vocabulary(config.model.vocabulary)?;
        let TrainSpec { seed, sequence_length, .. } = config.train;
        Ok(Some(Blanks::new(blanks, self.instructions.clone(), seed, sequence_length)))
    }

    /// XXH3 of all tokens, document by document, those to train on before those held out: another one where something
    /// was changed in the sources, whatever their names and sizes are.
    pub fn hash(&self) -> u64 {
        let mut hash = Xxh3Default::new();
        for part in [&self.train, &self.held_out] {
            hash.update(&(part.ingredients.len() as u64).to_le_bytes());
            part.ingredients.iter().for_each(|ingredient| ingredient.corpus.hash_into(&mut hash));
        }
        self.instructions.hash_into(&mut hash);
        hash.digest()
    }

    /// The text of one of the parts, document after document.
    ///
    /// # Errors
    /// The error of the tokenizer.
    pub fn text_of(&self, part: &Mixture) -> Result<String, DataError> {
        let corpora = part.ingredients.iter().map(|ingredient| text_of_corpus(&self.tokenizer, &ingredient.corpus));
        corpora.collect()
    }
}

/// The tokenizer of the sources of `data`: the one that is `given`, or that of the first token file.
///
/// # Errors
/// Token files of another tokenizer, or none at all.
pub fn common_tokenizer(data: &DataSpec, given: Option<Tokenizer>) -> Result<Tokenizer, DataError> {
    let files = data.sources.iter().filter(|source| is_token_file(&source.path));
    let own = files.map(|source| Ok(TokenFile::open(&source.path)?.tokenizer));
    one_of(given, own.collect::<Result<_, DataError>>()?)
}

/// The run's tokenizer: the one that is `given`, or that of the first token file. All that token files bring have to be
/// equal to it.
fn one_of(given: Option<Tokenizer>, own: Vec<Tokenizer>) -> Result<Tokenizer, DataError> {
    let remedy = match given {
        Some(_) => "leave data.tokenizer out",
        None => "make both with one tokenizer",
    };
    let Some(tokenizer) = given.or_else(|| own.first().cloned()) else { return Err(DataError::NoTokenizer) };
    for other in own {
        if other.identity()? != tokenizer.identity()? {
            let (found, expected) = (other.name().to_string(), tokenizer.name().to_string());
            return Err(DataError::OtherTokenizer { found, expected, remedy });
        }
    }
    Ok(tokenizer)
}

fn text_of_corpus(tokenizer: &Tokenizer, corpus: &Corpus) -> Result<String, DataError> {
    let mut text = String::new();
    for index in 0..corpus.num_documents() {
        let tokens: Vec<u32> = corpus.document_tokens(index).filter_map(|token| u32::try_from(token).ok()).collect();
        let decoded = tokenizer.decode(tokenizer.without_marks(&tokens)).map_err(|reason| DataError::NotEncoded {
            document: corpus.document_name(index),
            tokenizer: tokenizer.name().into(),
            reason,
        })?;
        text.push_str(&decoded);
    }
    Ok(text)
}

/// Number of different tokens in the data of a run, for `RunConfig::load_with`: read from the tokenizer's file or from
/// the head of the first token file.
///
/// # Errors
/// A file that cannot be read, or that no source says it.
pub fn vocabulary_of(data: &DataSpec) -> Result<usize, DataError> {
    match &data.tokenizer {
        TokenizerSpec::Bytes => Ok(Tokenizer::bytes().vocabulary()),
        TokenizerSpec::Bpe { vocabulary } => Ok(*vocabulary),
        TokenizerSpec::File(path) => Ok(Tokenizer::open(path)?.vocabulary()),
        TokenizerSpec::OfTokenFiles => {
            let file = data.sources.iter().find(|source| is_token_file(&source.path));
            file.map_or(Err(DataError::NoTokenizer), |file| TokenFile::vocabulary(&file.path))
        }
    }
}
