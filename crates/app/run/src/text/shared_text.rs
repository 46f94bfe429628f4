//! The text of a command on all of its processes: each reads the files of `[data]`, and where they are missing, process
//! 0 sends them. The tokenizer is trained once.

use config::figures::grouped;
use config::{DataSpec, TokenizerSpec};
use data::{DataError, Dataset, Sources, Tokenizer, files_of};
use rendezvous::TextHash;

use crate::failure::Failure;
use crate::messages::patience::announced_while;
use crate::process_group::group::ProcessGroup;
use crate::process_group::member::GroupMember;
use crate::process_group::place::own_number;
use crate::store::downloads::downloaded;
use crate::text::text_transfer::TextTransfer;
use crate::text::tokenize_progress::TokenizeProgress;

const TOKENIZER: &str = "the tokenizer of the run";
const TOKENS: &str = "the hash of all tokens";

/// The text of this process before it meets the others.
pub struct OwnText {
    /// With files of this machine in place of addresses.
    data: DataSpec,
    sources: OwnSources,
}

enum OwnSources {
    /// All sources, read.
    Here(Sources),
    /// Files of texts are missing, by the places of the texts in `[data]`.
    Missing(Vec<usize>),
}

impl OwnText {
    /// Reads the sources of `data`, of which those at addresses are downloaded. Another process than process 0 may lack
    /// files.
    ///
    /// # Errors
    /// A source that cannot be read.
    pub fn read(data: &DataSpec) -> Result<OwnText, Failure> {
        let data = downloaded(data)?;
        let missing = missing(&data)?;
        let sources = if missing.is_empty() || own_number()? == 0 {
            OwnSources::Here(Sources::open_with_listener(&data, &TokenizeProgress::begin()).map_err(input)?)
        } else {
            OwnSources::Missing(missing)
        };
        Ok(OwnText { data, sources })
    }

    /// The hash that processes compare when they meet.
    pub fn hash(&self) -> TextHash {
        match &self.sources {
            OwnSources::Here(sources) => TextHash::Read(sources.hash()),
            OwnSources::Missing(_) => TextHash::FromProcess0,
        }
    }

    /// The text as tokens, the same ones on all processes of `process_group`.
    ///
    /// # Errors
    /// Text that cannot be used, and failures of other processes.
    pub fn tokenized(self, process_group: &ProcessGroup) -> Result<Dataset, Failure> {
        let OwnText { data, sources: own } = self;
        let data = &data;
        match process_group {
            ProcessGroup::Alone => {
                let sources = match own {
                    OwnSources::Here(sources) => sources,
                    // All ranks are here, and so must the text be.
                    OwnSources::Missing(_) => {
                        Sources::open_with_listener(data, &TokenizeProgress::begin()).map_err(input)?
                    }
                };
                let given = made(&sources, &data.tokenizer)?;
                Dataset::new(data, sources, given).map_err(input)
            }
            ProcessGroup::Several(member) => {
                let sources = own.completed(data, member)?;
                let given = tokenizer(&sources, &data.tokenizer, member)?;
                let dataset = Dataset::new(data, sources, given).map_err(input)?;
                compare(&dataset, member)?;
                Ok(dataset)
            }
        }
    }
}

impl OwnSources {
    /// All sources, with the files that process 0 sends for those that are missing.
    fn completed(self, data: &DataSpec, member: &GroupMember) -> Result<Sources, Failure> {
        match self {
            OwnSources::Here(sources) => {
                TextTransfer::agree(member, data, vec![])?.complete(member)?;
                Ok(sources)
            }
            OwnSources::Missing(missing) => {
                let received = TextTransfer::agree(member, data, missing)?.complete(member)?;
                Sources::open_with_listener(&received.data, &TokenizeProgress::begin()).map_err(input)
            }
        }
    }
}

/// Texts of which a file is not on this host, by their places among those of training and of validation.
fn missing(data: &DataSpec) -> Result<Vec<usize>, Failure> {
    let mut missing = vec![];
    for (number, source) in data.texts().enumerate() {
        let is_missing = match files_of(source) {
            Ok(files) => files.iter().any(|file| !file.exists()),
            Err(DataError::NoMatch(_)) => true,
            Err(error) => return Err(input(error)),
        };
        if is_missing {
            missing.push(number);
        }
    }
    Ok(missing)
}

/// The tokenizer that `spec` names, read or trained; to train one may take minutes.
///
/// # Errors
/// See [`Tokenizer::new`].
pub fn made(sources: &Sources, spec: &TokenizerSpec) -> Result<Option<Tokenizer>, Failure> {
    match spec {
        TokenizerSpec::Bpe { vocabulary } => {
            let bytes = grouped(sources.text_bytes());
            let what = format!("training the tokenizer bpe:{vocabulary} on {bytes} bytes of text");
            announced_while(&what, || sources.tokenizer(spec)).map_err(input)
        }
        TokenizerSpec::Bytes | TokenizerSpec::File(_) | TokenizerSpec::OfTokenFiles => {
            sources.tokenizer(spec).map_err(input)
        }
    }
}

/// The tokenizer of the run: one that is trained comes from process 0.
fn tokenizer(sources: &Sources, spec: &TokenizerSpec, member: &GroupMember) -> Result<Option<Tokenizer>, Failure> {
    let vocabulary = match spec {
        TokenizerSpec::Bpe { vocabulary } => *vocabulary,
        TokenizerSpec::Bytes | TokenizerSpec::File(_) | TokenizerSpec::OfTokenFiles => {
            return made(sources, spec);
        }
    };
    if member.is_first() {
        let trained = made(sources, spec)?;
        let description = trained.as_ref().map(Tokenizer::description).transpose().map_err(input)?;
        member.broadcast(TOKENIZER, description.unwrap_or_default().into_bytes())?;
        return Ok(trained);
    }
    let description = member.broadcast(TOKENIZER, vec![])?;
    Tokenizer::trained_elsewhere(&String::from_utf8_lossy(&description), vocabulary).map(Some).map_err(input)
}

/// Refuses processes whose tokens are not those of process 0.
fn compare(dataset: &Dataset, member: &GroupMember) -> Result<(), Failure> {
    let hashes = member.all_gather(TOKENS, &dataset.hash())?;
    let first = hashes.first().copied().unwrap_or_default();
    match hashes.iter().position(|hash| *hash != first) {
        None => Ok(()),
        Some(other) => Err(Failure::Work(format!(
            "{} has other tokens: hash {:016x}, and process 0 has {first:016x}; give all hosts the same files of [data]",
            member.control.directory().named(other),
            hashes[other]
        ))),
    }
}

fn input(error: DataError) -> Failure {
    Failure::Input(error.to_string())
}
