//! Conversations as text: rendered by the chat template of a model's folder, with the places of the answers.
//!
//! A template is a program that came with a model: module `jinja` runs it with a budget that bounds its steps and the
//! memory of its values. It reads nothing but the conversation, the special tokens of its folder, and the date that the
//! run file gives.

mod answer_marks;
mod answers;
mod conversation;
mod dates;
mod jinja;
mod template;
mod template_files;

use std::path::Path;

use config::{ChatSpec, RewrittenAnswers};
use formats::Cell;

pub use conversation::Conversation;

use crate::document::{Document, Rendered};
use crate::error::DataError;
use crate::file_names::files_at;
use crate::odd_files::OddFilesRule;
use crate::records::Records;
use template::Template;

/// A chat template that is ready to use.
#[derive(Debug)]
pub struct Chat {
    template: Template,
    rewritten: RewrittenAnswers,
}

impl Chat {
    /// The template that `spec` names.
    ///
    /// # Errors
    /// A folder without a template, or a template that is not one.
    pub fn open(spec: &ChatSpec) -> Result<Chat, DataError> {
        let files = template_files::read(&spec.template)?;
        let path = files.path.clone();
        let template = Template::new(files, spec.date).map_err(|reason| DataError::BadTemplate { path, reason })?;
        Ok(Chat { template, rewritten: spec.rewritten })
    }

    /// The conversations of the file, the folder or the pattern `path`, in the order of its files: one in each line of
    /// JSON lines, or in each row of a table, whose column holds lists of structs, or JSON.
    ///
    /// # Errors
    /// A file that cannot be read, a record that is not a conversation, one that the template refuses, or none at all.
    pub fn read(&self, path: &Path, column: Option<&str>) -> Result<Vec<Rendered>, DataError> {
        self.read_with(path, column, &OddFilesRule::REFUSE)
    }

    /// Returns the same as [`Chat::read`], without the files that `odd_files` leaves out.
    ///
    /// # Errors
    /// See [`Chat::read`].
    pub(crate) fn read_with(
        &self,
        path: &Path,
        column: Option<&str>,
        odd_files: &OddFilesRule,
    ) -> Result<Vec<Rendered>, DataError> {
        let mut all = vec![];
        for file in odd_files.readable(files_at(path)?, |file| Records::open_conversations(file, column))? {
            let mut records = Records::open_conversations(&file, column)?;
            while let Some(record) = records.next_record()? {
                let text = match record.content {
                    Cell::Text(text) => text,
                    Cell::Tokens(_) => {
                        let problem = "has tokens".into();
                        return Err(DataError::NotConversation { document: record.name, problem });
                    }
                };
                all.extend(self.rendered(record.name, &text, column)?);
            }
        }
        if all.is_empty() { Err(DataError::Empty(path.to_path_buf())) } else { Ok(all) }
    }

    /// The texts of the conversation in `json`, which `name` names in messages: one, or several where the template
    /// writes earlier answers otherwise.
    ///
    /// # Errors
    /// JSON that is not a conversation, and what the template refuses.
    pub fn rendered(&self, name: String, json: &str, column: Option<&str>) -> Result<Vec<Rendered>, DataError> {
        let conversation = match Conversation::parse(json, column) {
            Ok(conversation) => conversation,
            Err(problem) => return Err(DataError::NotConversation { document: name, problem }),
        };
        let of = |(text, answers)| Rendered { document: Document { name: name.clone(), text }, answers };
        match answers::rendered(&self.template, &conversation, self.rewritten) {
            Ok(samples) => Ok(samples.into_iter().map(of).collect()),
            Err(reason) => Err(DataError::NotRendered { document: name, reason }),
        }
    }
}
