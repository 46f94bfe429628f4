//! The section `[data]`.

use std::mem::take;
use std::path::{Path, PathBuf};

use super::keys::{Keys, keys};
use super::run::PATH;
use super::source::Value;
use super::table::{Fields, Table, read_table, tables};
use crate::data_spec::{
    BlanksSpec, ChatSpec, DataSpec, InstructionsSpec, LongConversations, OddFiles, Positions, RewrittenAnswers,
    SourceSpec, TokenizerSpec, ValidationSpec, Visible,
};
use crate::problem::{Location, Problem};
use crate::trusted::Consequence::{Reads, Sends, Within, Writes};

/// Tokens of the encoding that text gets where nothing else is said: some two and a half bytes each, so that a step
/// reads more text than bytes would, at a table small enough for a model that learns within a minute.
const DEFAULT_VOCABULARY: usize = 1024;

// Without sources the embedded corpus is meant.
keys! { keys, data: DataSpec;
    sources = vec![] => { sources(keys, &mut data.sources) };
    tokenizer = TokenizerSpec::Bpe { vocabulary: DEFAULT_VOCABULARY } => {
        let of_text = data.tokenizer.clone();
        let is_tokens = data.sources.iter().any(SourceSpec::is_tokens);
        keys.judged(Reads, "tokenizer", &mut data.tokenizer)
            .or(if is_tokens { TokenizerSpec::OfTokenFiles } else { of_text })
            .megatron("tokenizer_type")
            .megatron("tokenizer_model: the path of a tokenizer.json");
    };
    begin = String::new() => { mark(keys, "begin", &mut data.begin); };
    end = String::new() => {
        mark(keys, "end", &mut data.end);
        keys.megatron("end", "append_eod: the text of the token");
    };
    visible = Visible::Past, .megatron("reset_attention_mask: write \"document\"");
    positions = Positions::Sequence, .megatron("reset_position_ids: write \"document\"");
    blanks = None => { keys.judged(Reads, "blanks", &mut data.blanks); };
    chat = None => {
        // Without a template of its own, the one in the tokenizer's folder is meant.
        let blank = ChatSpec { template: folder_of(&data.tokenizer), date: None, long: LongConversations::Refuse, rewritten: RewrittenAnswers::Split };
        keys.judged_as(Reads, "chat", &mut data.chat, |value| read_table(value, blank.clone()));
    };
    [quiet] odd_files = OddFiles::Refuse;
    held_out = 0.1, .below_one("must leave text to train on").megatron("split: the share that is not trained on");
    validation = vec![] => {
        let validation = keys.judged(Sends, "validation", &mut data.validation);
        validation.megatron("valid_data_path: a list of names and paths");
    };
    cache = None => {
        keys.acting(Writes, "cache", &mut data.cache, PATH);
        keys.megatron("cache", "data_cache_path");
    };
    requests = None => {
        if let Some(reader) = keys.reader() {
            data.requests = reader.requests(&["data.path", "data.sources", "data.validation"]);
        }
    };
}

/// The text of a token around documents. It is written where there is a token.
fn mark(keys: &mut Keys<'_>, name: &'static str, text: &mut String) {
    let mut written = Some(take(text)).filter(|text| !text.is_empty());
    keys.judged(Within, name, &mut written);
    *text = written.unwrap_or_default();
}

/// `data.path` is short for one source. Where one of the two keys is an override, it wins over the other in the file.
fn sources(keys: &mut Keys<'_>, sources: &mut Vec<SourceSpec>) {
    let (mut path, mut listed): (Option<PathBuf>, _) = match sources.as_slice() {
        [SourceSpec { path, weight, column: None }] if *weight == 1.0 => (Some(path.clone()), vec![]),
        sources => (None, sources.to_vec()),
    };
    let has_path = keys.judged(Sends, "path", &mut path).megatron("data_path").given();
    let key = keys.judged(Sends, "sources", &mut listed);
    let is_listed = key.megatron("train_data_path: a list of tables with path and weight").given();
    let Some(reader) = keys.reader() else { return };
    let overrides = |key| matches!(reader.location(key), Some(Location::Override(_)));
    let ways = (has_path, is_listed, overrides("data.path"), overrides("data.sources"));
    if let (true, true, true, true) | (true, true, false, false) = ways {
        reader.report(Problem::of_key("data.path", "conflicts with data.sources", "leave one of them out"));
    }
    let path_wins = !is_listed || ways == (true, true, true, false);
    *sources = path.filter(|_| path_wins).map_or(listed, |path| vec![SourceSpec::of(path)]);
}

/// The folder of a tokenizer's file.
fn folder_of(tokenizer: &TokenizerSpec) -> PathBuf {
    match tokenizer {
        TokenizerSpec::File(path) => match path.parent() {
            Some(folder) if folder != Path::new("") => folder.to_path_buf(),
            Some(_) | None => ".".into(),
        },
        TokenizerSpec::Bytes | TokenizerSpec::Bpe { .. } | TokenizerSpec::OfTokenFiles => PathBuf::new(),
    }
}

impl Table for SourceSpec {
    const LIST: &'static str = "a list of sources such as [{ path = \"a.txt\", weight = 2.0 }, { path = \"b.jsonl\" }]";

    /// The path alone.
    fn short(value: &Value) -> Option<SourceSpec> {
        value.text().map(SourceSpec::of)
    }

    fn fields(&mut self, fields: &mut Fields<'_>) {
        fields.field("path", &mut self.path);
        fields.require(!self.path.as_os_str().is_empty());
        fields.field("weight", &mut self.weight);
        fields.field("column", &mut self.column);
    }
}

impl Table for ValidationSpec {
    const LIST: &'static str = "a list of texts such as [{ name = \"books\", path = \"books.txt\" }]";

    fn fields(&mut self, fields: &mut Fields<'_>) {
        fields.field("name", &mut self.name);
        fields.field("path", &mut self.source.path);
        fields.require(!self.name.is_empty() && !self.source.path.as_os_str().is_empty());
        fields.field("column", &mut self.source.column);
    }
}

impl Table for ChatSpec {
    const WANTED: &'static str =
        "a chat template such as { template = \"model\" }, perhaps with date = \"2026-01-31\" and long = \"cut\"";

    fn fields(&mut self, fields: &mut Fields<'_>) {
        fields.field("template", &mut self.template);
        fields.field("date", &mut self.date);
        fields.field("long", &mut self.long);
        fields.field("rewritten", &mut self.rewritten);
    }
}

impl Table for BlanksSpec {
    const WANTED: &'static str = "blanks such as { mask = 1024, gmask = 1025, sop = 1026, eop = 1027 }, optionally with span_share, span_mean, \
                                  span_tokens, samples, instruction_share, and instructions = \"tasks.jsonl\"";

    fn fields(&mut self, fields: &mut Fields<'_>) {
        let tokens =
            [("mask", &mut self.mask), ("gmask", &mut self.gmask), ("sop", &mut self.sop), ("eop", &mut self.eop)];
        tokens.into_iter().for_each(|(name, token)| fields.required(name, token));
        fields.field("span_share", &mut self.span_share);
        fields.field("span_mean", &mut self.span_mean);
        fields.field("span_tokens", &mut self.span_tokens);
        fields.field("samples", &mut self.samples);
        let (mut path, mut share) = match self.instructions.take() {
            None => (None, None),
            Some(InstructionsSpec { path, share }) => (path, Some(share)),
        };
        fields.field("instructions", &mut path);
        fields.field("instruction_share", &mut share);
        let is_given = path.is_some() || share.is_some();
        self.instructions = is_given.then(|| InstructionsSpec { path, share: share.unwrap_or(0.05) });
    }
}

// Numbers of blanks that have a default have that of GLM-130B: 4 short samples, of 512 of 2,048 tokens.
tables! {
    SourceSpec = SourceSpec::of("");
    ValidationSpec = ValidationSpec { name: String::new(), source: SourceSpec::of("") };
    ChatSpec = ChatSpec { template: PathBuf::new(), date: None, long: LongConversations::Refuse, rewritten: RewrittenAnswers::Split };
    BlanksSpec = BlanksSpec {
        mask: 0, gmask: 0, sop: 0, eop: 0, span_share: 0.3, span_mean: 3.0, span_tokens: 0.15, samples: 4,
        instructions: None,
    };
}
