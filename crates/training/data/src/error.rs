//! Why text cannot be trained on.

use std::path::PathBuf;

use crate::file_problem::FileProblem;

/// An error of a corpus, with a remedy.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// There is no text.
    #[error("{} holds no text; name a text file, or a folder with text files (*.txt, *.md, *.jsonl, *.parquet or sources)", .0.display())]
    Empty(PathBuf),
    /// A thread cannot be started.
    #[error(transparent)]
    Thread(sync::NoThread),
    /// A file or folder cannot be read.
    #[error("{} cannot be read: {reason}", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        reason: std::io::Error,
    },
    /// A file cannot be written.
    #[error("{} cannot be written: {reason}", .path.display())]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        reason: std::io::Error,
    },
    /// A file is not text.
    #[error("{} is not UTF-8 at byte {offset}; convert it, or leave it out", .path.display())]
    NotUtf8 {
        /// The file.
        path: PathBuf,
        /// First byte that is not.
        offset: usize,
    },
    /// A file in another format than text.
    #[error("{} is {format}; decompress or convert it first, or leave it out", .path.display())]
    OtherFormat {
        /// The file.
        path: PathBuf,
        /// The format.
        format: &'static str,
    },
    /// A file in place of another one.
    #[error("{} is a pointer of Git LFS, and its file was not downloaded; use `git lfs pull`", .0.display())]
    Pointer(PathBuf),
    /// A file that is not what its name says.
    #[error("{} has the name of a table and does not hold one; write it again, or name it *.txt if it is text", .0.display())]
    NotTable(PathBuf),
    /// A table or a compressed file that is wrong at a place.
    #[error("{}, {error}", .path.display())]
    BadTable {
        /// The file.
        path: PathBuf,
        /// The place, and what is wrong there.
        error: formats::FormatError,
    },
    /// A compressed file that holds a table or another compressed file.
    #[error("{} holds {}; decompress it first", .path.display(), name_of(*.format))]
    FormatWithin {
        /// The file.
        path: PathBuf,
        /// The format within.
        format: formats::Format,
    },
    /// Tokens under a name of text.
    #[error("{} holds tokens; give it a name that ends with {ending}", .path.display())]
    TokensByName {
        /// The file.
        path: PathBuf,
        /// How it should end.
        ending: &'static str,
    },
    /// A line that never ends.
    #[error("{}:{line} has more than {limit_bytes} bytes; use one line for each document", .path.display())]
    LongLine {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// The most that it may have.
        limit_bytes: usize,
    },
    /// A tokenizer that is not known before the text is read.
    #[error(
        "data.cache needs a tokenizer that is there before the run; got data.tokenizer = {0:?}; use \"bytes\", a tokenizer.json, or the token file of `pleach data tokenize --tokenizer {0}`"
    )]
    CacheNeedsTokenizer(String),
    /// Another process that makes the same file.
    #[error("{} is being written by another process; wait for it, or name another file", .0.display())]
    Busy(PathBuf),
    /// A pattern that nothing matches.
    #[error("{} matches no file; `*` stands for any characters, `**` for any folders", .0.display())]
    NoMatch(PathBuf),
    /// Documents as text and documents as tokens.
    #[error("{} holds text and tokens; name them as two sources", .0.display())]
    TextAndTokens(PathBuf),
    /// Objects of JSON that are not those of one array, or one after the other.
    #[error("{}:{line} (byte {offset}) {problem}; a *.json holds objects, or one array of them", .path.display())]
    NotObjects {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// Where the error is.
        offset: usize,
        /// The error, as the rest of a sentence.
        problem: &'static str,
    },
    /// A row of CSV that is not one.
    #[error("{}:{line} {problem}; rows have a field for each column of the header, and fields with separators or quotes are in quotes", .path.display())]
    NotRow {
        /// The file.
        path: PathBuf,
        /// The line in which the row begins, counted from 1.
        line: usize,
        /// The error, as the rest of a sentence.
        problem: String,
    },
    /// Records of which none has a text.
    #[error(
        "{} has {records} rows or lines, and no text in any of them: their {} is empty or null; name another one by `column`",
        .path.display(),
        .column.as_ref().map_or("column".to_string(), |column| format!("column {column:?}"))
    )]
    NoValues {
        /// The file or the folder.
        path: PathBuf,
        /// Its records.
        records: u64,
        /// The column that was named.
        column: Option<String>,
    },
    /// A column of something without columns.
    #[error(
        "{} has neither JSON lines nor a table, so column {column:?} has no effect; leave it out, or name another file",
        .path.display()
    )]
    NoColumns {
        /// The file or the folder.
        path: PathBuf,
        /// The column that was named.
        column: String,
    },
    /// Several sources that cannot be used.
    #[error("{} sources cannot be used:{}", .0.len(), lines_of(.0))]
    Several(Vec<DataError>),
    /// A line of JSON lines is not an object with a text.
    #[error("{}:{line} (byte {offset}) {problem}; each line is an object such as {example}", .path.display())]
    NotJsonLine {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// Where the line begins, or where in it the JSON ends.
        offset: usize,
        /// The error, as the rest of a sentence.
        problem: String,
        /// A line as it is to be.
        example: String,
    },
    /// A record is not a conversation.
    #[error(
        "{document} {problem}; a conversation is an object such as {{\"messages\": [{{\"role\": \"user\", \"content\": \"...\"}}, {{\"role\": \"assistant\", \"content\": \"...\"}}]}}"
    )]
    NotConversation {
        /// The record.
        document: String,
        /// The error, as the rest of a sentence.
        problem: String,
    },
    /// A file without records.
    #[error("{} holds text, not conversations; with data.chat use JSON lines or a table", .0.display())]
    NoRecords(PathBuf),
    /// A folder without a chat template.
    #[error("{} holds no chat template: neither chat_template.jinja nor `chat_template` in tokenizer_config.json; name another folder or a file *.jinja by template in data.chat", .0.display())]
    NoTemplate(PathBuf),
    /// A description of a tokenizer that is not JSON.
    #[error("{} is not a JSON object: {reason}; write it again", .path.display())]
    NotJson {
        /// The file.
        path: PathBuf,
        /// The error of the library.
        reason: String,
    },
    /// Text that is to be put around documents and is not a token.
    #[error("data.{key} = {text:?} is not a token of {tokenizer}; use the text of one of its tokens, or \"\" for none")]
    NoToken {
        /// `begin` or `end`.
        key: &'static str,
        /// The text.
        text: String,
        /// The tokenizer.
        tokenizer: String,
    },
    /// A chat template that is not one.
    #[error("the chat template of {} cannot be used: {reason}", .path.display())]
    BadTemplate {
        /// The file.
        path: PathBuf,
        /// The error of the library.
        reason: String,
    },
    /// A conversation that the template does not write.
    #[error("{document} cannot be written as text: {reason}")]
    NotRendered {
        /// The record.
        document: String,
        /// The error.
        reason: String,
    },
    /// Conversations that are longer than a sequence.
    #[error(
        "{document} has {tokens} tokens, and train.sequence_length = {sequence_length} takes {} ({number} of the {part} conversations are longer); \
         use longer sequences, or long = \"cut\" in data.chat",
        .sequence_length + 1
    )]
    LongConversation {
        /// The first.
        document: String,
        /// Its tokens.
        tokens: usize,
        /// How many there are.
        number: usize,
        /// Which part of the conversations.
        part: &'static str,
        /// Tokens of a sequence.
        sequence_length: usize,
    },
    /// Conversations of which nothing is learned.
    #[error(
        "the {part} conversations{}{source_name} have no token of an answer within train.sequence_length = {sequence_length}; answers have the role \"assistant\"",
        if .source_name.is_empty() { "" } else { " of " }
    )]
    NoAnswers {
        /// Which part of the conversations.
        part: &'static str,
        /// Which source; empty where there is one alone.
        source_name: String,
        /// Tokens of a sequence.
        sequence_length: usize,
    },
    /// The text is shorter than a sequence and its next token.
    #[error(
        "the {part} text{}{source_name} has {tokens} tokens, but train.sequence_length = {sequence_length} needs {}; give more text or shorter sequences",
        if .source_name.is_empty() { "" } else { " of " }, .sequence_length + 1
    )]
    TooShort {
        /// Which part of the corpus.
        part: &'static str,
        /// Which source; empty where there is one alone.
        source_name: String,
        /// The available values.
        tokens: usize,
        /// Tokens of a sequence.
        sequence_length: usize,
    },
    /// Tokens next to a column that does not go with them.
    #[error("{document} {problem}; correct it, or name the column of tokens by `column` to learn all of them")]
    NotLearned {
        /// The row.
        document: String,
        /// The error, as the rest of a sentence.
        problem: String,
    },
    /// Tokens of which some are not learned, where a file is to hold them.
    #[error(
        "{document} has tokens that are not learned by its labels or masks, which token files do not hold; train on it \
         without `pleach data tokenize` and data.cache, or name the column of tokens by `column` to learn all of them"
    )]
    PartlyLearned {
        /// The row.
        document: String,
    },
    /// Rows of which some tokens are not learned, and blanks.
    #[error(
        "the {part} text{}{source_name} has labels or masks, which conflict with data.blanks; leave data.blanks out, or \
         name the column of tokens by `column`",
        if .source_name.is_empty() { "" } else { " of " }
    )]
    LabelsWithBlanks {
        /// Which part of the rows.
        part: &'static str,
        /// Which source; empty where there is one alone.
        source_name: String,
    },
    /// Rows with labels that are longer than a sequence.
    #[error(
        "{document} has {tokens} tokens, and train.sequence_length = {sequence_length} takes {} ({number} of the {part} \
         rows are longer, the longest by {}); rows with labels are not cut: use train.sequence_length = {} or more, or cut them before",
        .sequence_length + 1, .longest - .sequence_length - 1, .longest - 1
    )]
    LongRow {
        /// The first.
        document: String,
        /// Its tokens.
        tokens: usize,
        /// How many there are.
        number: usize,
        /// Tokens of the longest.
        longest: usize,
        /// Which part of the rows.
        part: &'static str,
        /// Tokens of a sequence.
        sequence_length: usize,
    },
    /// Rows with labels of which nothing is learned.
    #[error(
        "the {part} rows{}{source_name} have no token that their labels or masks learn; a first token is not predicted",
        if .source_name.is_empty() { "" } else { " of " }
    )]
    NoLabels {
        /// Which part of the rows.
        part: &'static str,
        /// Which source; empty where there is one alone.
        source_name: String,
    },
    /// Text without a token that follows another.
    #[error(
        "the {part} text{}{source_name} has {tokens} tokens, and the first token of a text is not predicted; give more text",
        if .source_name.is_empty() { "" } else { " of " }
    )]
    NoTargets {
        /// Which part of the corpus.
        part: &'static str,
        /// Which source; empty where there is one alone.
        source_name: String,
        /// The available tokens.
        tokens: usize,
    },
    /// A token that the model does not know.
    #[error("token {token} is {place}: outside model.vocabulary = {vocabulary}; use at least {}", .largest + 1)]
    OutsideVocabulary {
        /// The first such token.
        token: i64,
        /// The largest token next to it.
        largest: i64,
        /// Where it is: its offset within its document, the document's name, the byte within the file.
        place: String,
        /// Tokens that the model knows.
        vocabulary: usize,
    },
    /// A token that the tokenizer of the run does not know.
    #[error(
        "token {token} is {place}: {tokenizer} has {vocabulary} tokens, and the largest one there is {largest}; use the tokenizer that made them"
    )]
    OutsideTokenizer {
        /// The first such token.
        token: i64,
        /// Where it is.
        place: String,
        /// The name of the tokenizer.
        tokenizer: String,
        /// Tokens that it knows.
        vocabulary: usize,
        /// The largest token.
        largest: i64,
    },
    /// A token that no model knows.
    #[error("token {token} is {place}: no vocabulary has negative tokens; write the file again")]
    NegativeToken {
        /// The token.
        token: i64,
        /// Where it is.
        place: String,
    },
    /// A token file is not what it says.
    #[error("{}: {problem}", .path.display())]
    BadFile {
        /// The file.
        path: PathBuf,
        /// The error.
        problem: FileProblem,
    },
    /// A tokenizer cannot be made or read.
    #[error("the tokenizer {name} cannot be used: {reason}")]
    BadTokenizer {
        /// Its name.
        name: String,
        /// The error of the library.
        reason: String,
    },
    /// A text that a tokenizer cannot write.
    #[error("{document} cannot be written in the tokens of {tokenizer}: {reason}")]
    NotEncoded {
        /// Name of the document.
        document: String,
        /// The name of the tokenizer.
        tokenizer: String,
        /// The error of the library.
        reason: String,
    },
    /// Sources that do not go together.
    #[error("the tokenizer {found} is not that of the run, {expected}; {remedy}")]
    OtherTokenizer {
        /// The tokenizer of a source, with its file.
        found: String,
        /// The tokenizer of the run.
        expected: String,
        /// Remedy.
        remedy: &'static str,
    },
    /// A column of tokens, and a tokenizer that is trained on text.
    #[error(
        "{place} holds tokens, and data.tokenizer = \"bpe:{vocabulary}\" is trained on text; a column of tokens needs data.tokenizer = \"FOLDER/tokenizer.json\", the tokenizer that made it, or \"bytes\""
    )]
    TokensWithoutTokenizer {
        /// The source or the record.
        place: String,
        /// Of the tokenizer.
        vocabulary: usize,
    },
    /// `of the token files` is asked for where no source has a tokenizer.
    #[error("no source names its tokenizer: only *.tokens files do; give data.tokenizer")]
    NoTokenizer,
}

/// Sources that an error names.
const MOST_SOURCES: usize = 8;

/// A line for each error, and one for those that are left out.
fn lines_of(errors: &[DataError]) -> String {
    let mut text: String = errors.iter().take(MOST_SOURCES).map(|error| format!("\n  {error}")).collect();
    if errors.len() > MOST_SOURCES {
        text.push_str(&format!("\n  and {} more", errors.len() - MOST_SOURCES));
    }
    text
}

/// The format with its article.
fn name_of(format: formats::Format) -> &'static str {
    match format {
        formats::Format::Compressed(_) => "another compressed file",
        formats::Format::Parquet => "a table of parquet",
        formats::Format::ArrowFile | formats::Format::ArrowStream => "a table of Arrow",
        formats::Format::Other(name) => name,
    }
}

impl DataError {
    /// One error for all of several sources.
    ///
    /// # Errors
    /// The only one, or all; none of none.
    pub(crate) fn all(mut errors: Vec<DataError>) -> Result<(), DataError> {
        match errors.len() {
            0 => Ok(()),
            1 => errors.pop().map_or(Ok(()), Err),
            _ => Err(DataError::Several(errors)),
        }
    }

    /// `token` at `place` is not below `vocabulary`.
    pub(crate) fn outside_vocabulary(token: i64, place: String, vocabulary: usize) -> DataError {
        match token {
            ..0 => DataError::NegativeToken { token, place },
            0.. => DataError::OutsideVocabulary { token, largest: token, place, vocabulary },
        }
    }

    /// The same of tokens of which `largest` is the largest one.
    pub(crate) fn up_to(self, largest: i64) -> DataError {
        let DataError::OutsideVocabulary { token, place, vocabulary, .. } = self else { return self };
        DataError::OutsideVocabulary { token, place, vocabulary, largest }
    }

    /// The same of tokens that are outside of a tokenizer.
    pub(crate) fn of_tokenizer(self, name: &str) -> DataError {
        let DataError::OutsideVocabulary { token, place, vocabulary, largest } = self else { return self };
        DataError::OutsideTokenizer { token, place, tokenizer: name.into(), vocabulary, largest }
    }
}
