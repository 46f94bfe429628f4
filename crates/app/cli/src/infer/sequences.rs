//! Sequences that another program wrote: `tokens.json`, checked to the last number.

use std::collections::BTreeSet;
use std::path::Path;

use config::{IGNORED_LABEL, ModelSpec};
use files::{InputKind, read_text};
use rendezvous::hash_bytes;
use serde::Deserialize;
use train::{SequenceBuffers, TokenSource};

/// The file as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    input_ids: Vec<Vec<i64>>,
    labels: Vec<Vec<i64>>,
    position_ids: Option<Vec<Vec<i64>>>,
    document_ids: Option<Vec<Vec<i64>>>,
    prefix_length: Option<Prefixes>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Prefixes {
    OfSequences(Vec<i64>),
    OfDocuments(Vec<Vec<i64>>),
}

/// Sequences that a model can read.
#[derive(Debug)]
pub struct Sequences {
    list: Vec<Sequence>,
    /// XXH3 of the file.
    hash: u64,
}

#[derive(Debug)]
struct Sequence {
    tokens: Vec<i32>,
    labels: Vec<i32>,
    positions: Vec<i32>,
    visible: Vec<i32>,
}

impl Sequences {
    /// Reads `path`; [`Sequences::check`] holds it against a model.
    ///
    /// # Errors
    /// A file that cannot be read, and the first thing in it that does not fit, with its place.
    pub fn read(path: &Path) -> Result<Sequences, String> {
        let name = path.display();
        let text = read_text(path, InputKind::Sequences).map_err(|error| format!("{name} {error}"))?;
        Sequences::parse(&text).map_err(|reason| format!("{name}: {reason}"))
    }

    fn parse(text: &str) -> Result<Sequences, String> {
        let written: Written = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let ids = &written.input_ids;
        let length = ids.first().map_or(0, Vec::len);
        if length == 0 {
            return Err("input_ids must hold tokens; use [B][S] with B and S at least 1".into());
        }
        let tables = [("input_ids", Some(ids)), ("labels", Some(&written.labels))];
        let optional =
            [("position_ids", written.position_ids.as_ref()), ("document_ids", written.document_ids.as_ref())];
        for (name, table) in tables.into_iter().chain(optional) {
            table.map_or(Ok(()), |table| check_sizes(name, table, ids.len(), length))?;
        }
        let sequence = |index: usize| -> Result<Sequence, String> {
            Ok(Sequence {
                tokens: narrow("input_ids", index, &ids[index])?,
                labels: narrow("labels", index, &written.labels[index])?,
                positions: match &written.position_ids {
                    Some(positions) => narrow("position_ids", index, &positions[index])?,
                    // Lengths are below 2^31 wherever they are read.
                    None => (0..length as i32).collect(),
                },
                visible: written.visible(index)?,
            })
        };
        let list = (0..ids.len()).map(sequence).collect::<Result<_, _>>()?;
        Ok(Sequences { list, hash: hash_bytes(text.as_bytes()) })
    }

    /// XXH3 of the file, which may be a pipe that nobody can read again.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Sequences `B`.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Tokens `S` of each.
    pub fn sequence_length(&self) -> usize {
        self.list.first().map_or(0, |sequence| sequence.tokens.len())
    }

    /// Whether `model` knows every token, label and position.
    ///
    /// # Errors
    /// The first that it does not.
    pub fn check(&self, model: &ModelSpec) -> Result<(), String> {
        let below = |limit: usize| move |value: i32| usize::try_from(value).is_ok_and(|value| value < limit);
        let (token, position) = (below(model.vocabulary), below(model.context));
        for (index, sequence) in self.list.iter().enumerate() {
            let outside = |name: &str, values: &[i32], fits: &dyn Fn(i32) -> bool, limit: String| {
                let place = values.iter().position(|value| !fits(*value));
                place.map_or(Ok(()), |place| {
                    Err(format!("{name}[{index}][{place}] = {} is outside {limit}", values[place]))
                })
            };
            let vocabulary = format!("model.vocabulary = {}", model.vocabulary);
            outside("input_ids", &sequence.tokens, &token, vocabulary.clone())?;
            let label = |value: i32| value == IGNORED_LABEL || token(value);
            outside("labels", &sequence.labels, &label, format!("{vocabulary}, and not -100"))?;
            outside("position_ids", &sequence.positions, &position, format!("model.context = {}", model.context))?;
        }
        Ok(())
    }
}

fn check_sizes(name: &str, table: &[Vec<i64>], count: usize, length: usize) -> Result<(), String> {
    if table.len() != count {
        return Err(format!("{name} has {} sequences, input_ids has {count}", table.len()));
    }
    match table.iter().position(|row| row.len() != length) {
        Some(row) => Err(format!("{name}[{row}] has the length {}, input_ids[0] has {length}", table[row].len())),
        None => Ok(()),
    }
}

fn narrow(name: &str, index: usize, values: &[i64]) -> Result<Vec<i32>, String> {
    let convert = |(place, value): (usize, &i64)| {
        i32::try_from(*value).map_err(|_| format!("{name}[{index}][{place}] = {value} is not a token of any model"))
    };
    values.iter().enumerate().map(convert).collect()
}

impl Written {
    /// For each token of a sequence the interval of keys that it sees, interleaved.
    fn visible(&self, index: usize) -> Result<Vec<i32>, String> {
        let length = self.input_ids[index].len();
        let documents = match &self.document_ids {
            Some(ids) => runs(index, &ids[index])?,
            None => vec![(0, length)],
        };
        let prefixes = self.prefixes(index, documents.len())?;
        let mut visible = Vec::with_capacity(2 * length);
        for (document, ((start, end), prefix)) in documents.into_iter().zip(prefixes).enumerate() {
            if prefix > end - start {
                let of = format!("document {document} of sequence {index}");
                return Err(format!("prefix_length = {prefix} is more than the {} tokens of {of}", end - start));
            }
            for place in start..end {
                visible.extend([start as i32, (place + 1).max(start + prefix) as i32]);
            }
        }
        Ok(visible)
    }

    fn prefixes(&self, index: usize, documents: usize) -> Result<Vec<usize>, String> {
        let (list, expected) = match (&self.prefix_length, &self.document_ids) {
            (None, _) => return Ok(vec![0; documents]),
            (Some(Prefixes::OfSequences(list)), None) => (list.get(index).map(|prefix| vec![*prefix]), "[B]"),
            (Some(Prefixes::OfDocuments(list)), Some(_)) => (list.get(index).cloned(), "[B][documents]"),
            (Some(Prefixes::OfSequences(_)), Some(_)) => (None, "[B][documents], because there are document_ids"),
            (Some(Prefixes::OfDocuments(_)), None) => (None, "[B], because there are no document_ids"),
        };
        let list = list.ok_or_else(|| format!("prefix_length must be {expected}"))?;
        if list.len() != documents {
            return Err(format!("prefix_length[{index}] has {} numbers for {documents} documents", list.len()));
        }
        let count = |prefix: &i64| {
            let rule = format!("prefix_length = {prefix} of sequence {index} must be a number of tokens, 0 or more");
            usize::try_from(*prefix).map_err(|_| rule)
        };
        list.iter().map(count).collect()
    }
}

/// Documents as ranges of places.
fn runs(index: usize, ids: &[i64]) -> Result<Vec<(usize, usize)>, String> {
    let mut runs: Vec<(usize, usize)> = vec![];
    let mut seen = BTreeSet::new();
    for (place, id) in ids.iter().enumerate() {
        let continues = place > 0 && ids[place - 1] == *id;
        if let (true, Some((_, end))) = (continues, runs.last_mut()) {
            *end = place + 1;
            continue;
        }
        if !seen.insert(*id) {
            return Err(format!(
                "document_ids[{index}][{place}] = {id} returns after another document; each document must be contiguous"
            ));
        }
        runs.push((place, place + 1));
    }
    Ok(runs)
}

impl TokenSource for Sequences {
    fn fill(&self, _step: u32, sequence: u64, buffers: SequenceBuffers<'_>) {
        let sequence = &self.list[sequence as usize];
        buffers.tokens.copy_from_slice(&sequence.tokens);
        buffers.labels.copy_from_slice(&sequence.labels);
        buffers.positions.copy_from_slice(&sequence.positions);
        buffers.visible.copy_from_slice(&sequence.visible);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn visible(more: &str) -> Result<Vec<i32>, String> {
        let text = format!(r#"{{"input_ids": [[1, 2, 3, 4, 5]], "labels": [[2, 3, 4, 5, -100]] {more}}}"#);
        Sequences::parse(&text).map(|sequences| sequences.list[0].visible.clone())
    }

    #[test]
    fn masks_are_intervals() {
        assert_eq!(visible(""), Ok(vec![0, 1, 0, 2, 0, 3, 0, 4, 0, 5]));
        assert_eq!(visible(r#", "prefix_length": [3]"#), Ok(vec![0, 3, 0, 3, 0, 3, 0, 4, 0, 5]));
        let documents = r#", "document_ids": [[7, 7, 0, 0, 0]]"#;
        assert_eq!(visible(documents), Ok(vec![0, 1, 0, 2, 2, 3, 2, 4, 2, 5]));
        let prefixes = format!(r#"{documents}, "prefix_length": [[0, 2]]"#);
        assert_eq!(visible(&prefixes), Ok(vec![0, 1, 0, 2, 2, 4, 2, 4, 2, 5]));
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let error = |more: &str| visible(more).expect_err("an error");
        let documents = r#", "document_ids": [[7, 7, 0, 0, 0]]"#;
        assert_eq!(
            error(r#", "document_ids": [[1, 1, 0, 1, 1]]"#),
            "document_ids[0][3] = 1 returns after another document; each document must be contiguous"
        );
        assert_eq!(error(r#", "position_ids": [[0, 1]]"#), "position_ids[0] has the length 2, input_ids[0] has 5");
        assert_eq!(
            error(r#", "prefix_length": [-1]"#),
            "prefix_length = -1 of sequence 0 must be a number of tokens, 0 or more"
        );
        assert_eq!(
            error(r#", "prefix_length": [6]"#),
            "prefix_length = 6 is more than the 5 tokens of document 0 of sequence 0"
        );
        assert_eq!(
            error(&format!(r#"{documents}, "prefix_length": [2]"#)),
            "prefix_length must be [B][documents], because there are document_ids"
        );
        assert_eq!(
            error(&format!(r#"{documents}, "prefix_length": [[2]]"#)),
            "prefix_length[0] has 1 numbers for 2 documents"
        );
        assert!(error(r#", "position": 1"#).contains("unknown field `position`"));
    }
}
