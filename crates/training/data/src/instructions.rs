//! Tasks in words with their answers: JSON lines with the fields `input` and `target`.

use std::path::Path;

use philox::Permutation;
use xxhash_rust::xxh3::Xxh3Default;

use crate::document::Document;
use crate::embedded;
use crate::error::DataError;
use crate::json_lines::fields;
use crate::read::text_file;
use crate::tokenizer::Tokenizer;

/// A task, as tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// The task.
    pub input: Vec<i32>,
    /// The answer.
    pub target: Vec<i32>,
}

/// The tasks of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Instructions {
    list: Vec<Instruction>,
}

impl Instructions {
    /// The instructions of the file `path`, or without one the few that are part of the program.
    ///
    /// # Errors
    /// A file that cannot be read or has no tasks, a line that is not a task, and errors of the tokenizer.
    pub fn read(path: Option<&Path>, tokenizer: &Tokenizer) -> Result<Instructions, DataError> {
        let (path, text) = match path {
            Some(path) => (path, text_file(path)?),
            None => (Path::new("embedded tasks"), embedded::TASKS.to_string()),
        };
        let lines = fields(path, &text, ["input", "target"])?;
        if lines.is_empty() {
            return Err(DataError::Empty(path.to_path_buf()));
        }
        let list = lines.into_iter().map(|(name, fields)| {
            let [input, target] = fields.map(|text| {
                let tokens = tokenizer.encode_document(&Document { name: name.clone(), text })?;
                // Tokens are below the vocabulary, which is below 2^31.
                Ok(tokens.into_iter().map(|token| token as i32).collect())
            });
            Ok(Instruction { input: input?, target: target? })
        });
        Ok(Instructions { list: list.collect::<Result<_, DataError>>()? })
    }

    /// Whether a model of `vocabulary` tokens knows every token.
    ///
    /// # Errors
    /// The first token that it does not, with its task, counted from 1.
    pub fn check_vocabulary(&self, vocabulary: usize) -> Result<(), DataError> {
        for (index, Instruction { input, target }) in self.list.iter().enumerate() {
            if let Some(token) = input.iter().chain(target).find(|token| **token as usize >= vocabulary) {
                let place = format!("in task {} of data.blanks", index + 1);
                return Err(DataError::outside_vocabulary(i64::from(*token), place, vocabulary));
            }
        }
        Ok(())
    }

    /// Adds all tokens to `hash`: nothing where there are none.
    pub(crate) fn hash_into(&self, hash: &mut Xxh3Default) {
        for tokens in self.list.iter().flat_map(|task| [&task.input, &task.target]) {
            hash.update(&(tokens.len() as u64).to_le_bytes());
            tokens.iter().for_each(|token| hash.update(&token.to_le_bytes()));
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Task `number` of a run seeded with `seed`: every epoch has its own order of all.
    ///
    /// # Panics
    /// Where there are none.
    pub fn get(&self, seed: u64, number: u64) -> &Instruction {
        let len = self.list.len() as u64;
        // Epochs of text are numbered from 0 up; these have the other end.
        let index = Permutation::new(seed, u64::MAX - number / len, len).get(number % len);
        &self.list[index as usize]
    }
}
