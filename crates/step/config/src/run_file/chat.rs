//! The key `data.chat`.

use std::path::{Path, PathBuf};

use super::reader::{Choices, Reader, name_of};
use super::source::Value;
use crate::data_spec::{ChatDate, ChatSpec, LongConversations, TokenizerSpec};

const WANTED: &str =
    "a chat template such as { template = \"model\" }, perhaps with date = \"2026-01-31\" and long = \"cut\"";

const LONG: &Choices<LongConversations> = &[("refuse", LongConversations::Refuse), ("cut", LongConversations::Cut)];

/// Reads the key. Without a template of its own, the one in the tokenizer's folder is meant.
pub fn read(reader: &mut Reader, tokenizer: &TokenizerSpec) -> Option<ChatSpec> {
    reader.table_as("data.chat", WANTED, &["template", "date", "long"], |entries| chat(entries, tokenizer))
}

fn chat(entries: &[(String, Value)], tokenizer: &TokenizerSpec) -> Option<ChatSpec> {
    let mut chat = ChatSpec { template: folder_of(tokenizer), date: None, long: LongConversations::Refuse };
    for (key, value) in entries {
        match key.as_str() {
            "template" => chat.template = value.text()?.into(),
            "date" => chat.date = Some(ChatDate::parse(value.text()?)?),
            "long" => chat.long = LONG.iter().find(|(name, _)| Some(*name) == value.text())?.1,
            _ => return None,
        }
    }
    Some(chat)
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

/// The table, with nothing left to defaults.
pub fn written(chat: &ChatSpec) -> String {
    let ChatSpec { template, date, long } = chat;
    let template = toml::Value::String(template.to_string_lossy().into());
    let date = date.map_or(String::new(), |date| format!(", date = \"{date}\""));
    format!("{{ template = {template}{date}, long = \"{}\" }}", name_of(LONG, *long))
}
