//! `pleach data`: the preparation of text.

use std::path::PathBuf;

use config::figures::counted;
use config::{DataSpec, OddFiles, Positions, SourceSpec, TokenizerSpec, Visible};
use data::megatron::{self, MegatronWriter};
use data::{Corpus, DataError, Dataset, Sources, TokenFile, Tokenizer, Written, files_of};
use files::Draft;
use run::failure::Failure;
use run::messages::patience::announced_while;
use run::places::output_file::data_file;
use run::store::downloads::downloaded_path;
use run::text::shared_text::made;
use run::text::tokenize_progress::TokenizeProgress;

use crate::arguments::data::{DataCommand, TokenizeArguments};
use crate::screen::output::print;

/// The ending of the name of a pair's tokenizer.
const TOKENIZER_ENDING: &str = "tokenizer.json";

/// How tokens are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    TokenFile,
    Megatron,
}

/// Does it.
///
/// # Errors
/// Text that cannot be read, or a file that cannot be written.
pub fn run(command: &DataCommand) -> Result<(), Failure> {
    match command {
        DataCommand::Tokenize(arguments) => tokenize(arguments),
    }
}

fn tokenize(arguments: &TokenizeArguments) -> Result<(), Failure> {
    let ending = arguments.out.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    let format = match ending {
        "tokens" => Format::TokenFile,
        "bin" | "idx" => Format::Megatron,
        _ => {
            let name = arguments.out.display();
            return Err(Failure::Input(format!("--out {name} should end with .tokens, or with .bin for Megatron-LM")));
        }
    };
    // Training a tokenizer may take minutes.
    let tokenizer = arguments.tokenizer.iter().map(PathBuf::from);
    let inputs: Vec<PathBuf> = arguments.inputs.iter().cloned().chain(tokenizer).collect();
    let spec = data_spec(arguments)?;
    let inputs = [inputs, files_read(&spec)?].concat();
    // Written in parts, under another name first.
    let out = match format {
        Format::TokenFile => data_file("--out", &arguments.out, &inputs)?,
        Format::Megatron => {
            let [index, tokens] = megatron::pair(&arguments.out);
            data_file("--out", &index, &inputs)?;
            // The tokenizer has their name, so it needs a file, too.
            data_file("--out", &tokens.with_extension(TOKENIZER_ENDING), &inputs)?;
            data_file("--out", &tokens, &inputs)?;
            arguments.out.clone()
        }
    };
    let arguments = &TokenizeArguments { out, ..arguments.clone() };
    match format {
        Format::TokenFile => print(&write_token_file(arguments, &spec)?),
        Format::Megatron => {
            let sources = Sources::open_with_listener(&spec, &TokenizeProgress::begin()).map_err(failure)?;
            let given = made(&sources, &spec.tokenizer)?;
            let dataset = Dataset::new(&spec, sources, given).map_err(failure)?;
            print(&write_megatron(arguments, &dataset).map_err(failure)?)
        }
    }
}

/// All files of the sources, which an output must not replace.
fn files_read(spec: &DataSpec) -> Result<Vec<PathBuf>, Failure> {
    let files = spec.sources.iter().map(files_of).collect::<Result<Vec<_>, _>>().map_err(failure)?;
    Ok(files.concat())
}

fn data_spec(arguments: &TokenizeArguments) -> Result<DataSpec, Failure> {
    let sources: Vec<SourceSpec> = arguments
        .inputs
        .iter()
        .map(|path| Ok(SourceSpec { column: arguments.column.clone(), ..SourceSpec::of(downloaded_path(path)?) }))
        .collect::<Result<_, Failure>>()?;
    let tokenizer = match &arguments.tokenizer {
        Some(text) => TokenizerSpec::parse(text)
            .ok_or_else(|| Failure::Input(format!("--tokenizer {text} is not {}", TokenizerSpec::FORMS)))?,
        None if sources.iter().any(SourceSpec::is_tokens) => TokenizerSpec::OfTokenFiles,
        None => TokenizerSpec::Bytes,
    };
    if let TokenizerSpec::Bpe { vocabulary: vocabulary @ ..256 } = tokenizer {
        return Err(Failure::Input(format!(
            "--tokenizer bpe:{vocabulary} must have a token for each of 256 bytes; use at least bpe:256"
        )));
    }
    let marks = data::marks_of(&tokenizer).map_err(failure)?;
    let odd_files = &arguments.odd_files;
    let odd_files = OddFiles::ALL
        .into_iter()
        .find(|known| known.name() == odd_files)
        .ok_or_else(|| Failure::Input(format!("--odd-files {odd_files} is not \"refuse\" or \"skip\"")))?;
    // The file holds everything; a run that reads it holds out what it will.
    Ok(DataSpec {
        sources,
        tokenizer,
        begin: arguments.begin.clone().unwrap_or(marks.begin),
        end: arguments.end.clone().unwrap_or(marks.end),
        visible: Visible::Past,
        positions: Positions::Sequence,
        blanks: None,
        chat: None,
        held_out: 0.0,
        validation: vec![],
        cache: None,
        odd_files,
        requests: None,
    })
}

fn failure(error: DataError) -> Failure {
    Failure::Input(error.to_string())
}

/// In parts, on all cores. The file is read again in the end, to compare its hash.
fn write_token_file(arguments: &TokenizeArguments, spec: &DataSpec) -> Result<String, Failure> {
    let tokenizer = match &spec.tokenizer {
        TokenizerSpec::Bpe { vocabulary } => {
            let what = format!("training the tokenizer bpe:{vocabulary}");
            Some(announced_while(&what, || data::train(&spec.sources, spec.odd_files, *vocabulary)).map_err(failure)?)
        }
        TokenizerSpec::Bytes | TokenizerSpec::File(_) | TokenizerSpec::OfTokenFiles => {
            Tokenizer::new(&spec.tokenizer, &[]).map_err(failure)?
        }
    };
    let tokenizer = data::common_tokenizer(spec, tokenizer).map_err(failure)?;
    let tokenizer = tokenizer.with_marks(&spec.marks()).map_err(failure)?;
    let listener = TokenizeProgress::begin();
    let Written { documents, tokens, hash } =
        data::tokenize(&spec.sources, spec.odd_files, &tokenizer, &arguments.out, &listener).map_err(failure)?;
    TokenFile::verify(&arguments.out).map_err(failure)?;
    let (documents, tokens) = (counted(documents, "document"), counted(tokens, "token"));
    Ok(format!("{}: {documents}, {tokens} of {}, hash {hash:016x}\n", arguments.out.display(), tokenizer.name()))
}

fn write_megatron(arguments: &TokenizeArguments, dataset: &Dataset) -> Result<String, DataError> {
    let mut writer = MegatronWriter::create(&arguments.out, dataset.tokenizer.vocabulary())?;
    for_each_document(dataset, |tokens| writer.push(tokens))?;
    let tokenizer = arguments.out.with_extension(TOKENIZER_ENDING);
    // All three get their names once all three are whole.
    let unwritable = |reason| DataError::Unwritable { path: tokenizer.clone(), reason };
    let draft = Draft::create(&tokenizer).map_err(unwritable)?;
    dataset.tokenizer.save_as(draft.temporary())?;
    writer.finish()?;
    draft.keep().map_err(unwritable)?;
    let corpus = megatron::open(&arguments.out)?;
    let (tokens, index) = (arguments.out.with_extension("bin"), arguments.out.with_extension("idx"));
    let [tokens, index, tokenizer] = [tokens, index, tokenizer].map(|path| path.display().to_string());
    Ok(format!("{tokens} and {index}: {}, which is in {tokenizer}\n", describe(&corpus, &dataset.tokenizer)))
}

/// Hands over the tokens of every document, all of which the tokenizer knows.
fn for_each_document(
    dataset: &Dataset,
    mut push: impl FnMut(&[u32]) -> Result<(), DataError>,
) -> Result<(), DataError> {
    for corpus in dataset.train.ingredients.iter().map(|ingredient| &ingredient.corpus) {
        corpus.check_vocabulary(dataset.tokenizer.vocabulary())?;
        for document in 0..corpus.num_documents() {
            // Tokens below a vocabulary fit 32 bits.
            let tokens: Vec<u32> = corpus.document_tokens(document).map(|token| token as u32).collect();
            push(&tokens)?;
        }
    }
    Ok(())
}

fn describe(corpus: &Corpus, tokenizer: &Tokenizer) -> String {
    let (documents, tokens) = (corpus.num_documents() as u64, corpus.len() as u64);
    format!("{}, {} of {}", counted(documents, "document"), counted(tokens, "token"), tokenizer.name())
}
