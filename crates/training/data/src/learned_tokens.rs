//! Columns next to tokens, which say what of them is padding and what is learned, as transformers and TRL write them.

use formats::{Cell, ColumnChoice, FormatError, Rows};
use serde_json::{Map, Value};

/// The tokens to learn, each in its own place, and -100 in the places that are not learned.
const LABELS: &str = "labels";
/// A 1 for each token, and a 0 for padding.
const ATTENTION_MASK: &str = "attention_mask";
/// A 1 for each token that is learned.
const MASKS: [&str; 3] = ["completion_mask", "assistant_masks", "loss_mask"];
/// Positions; from 0 on in a row that is one document.
const POSITIONS: &str = "position_ids";
/// All columns.
const COLUMNS: [&str; 6] = [LABELS, ATTENTION_MASK, MASKS[0], MASKS[1], MASKS[2], POSITIONS];
/// The label of a place that is not learned.
const NOT_LEARNED: i64 = config::IGNORED_LABEL as i64;

/// The tokens of a row, and whether each of them is learned; `None` where all are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Learned {
    pub(crate) tokens: Vec<u32>,
    pub(crate) learned: Option<Vec<bool>>,
}

impl Learned {
    /// All of `tokens`.
    pub(crate) fn all(tokens: Vec<u32>) -> Learned {
        Learned { tokens, learned: None }
    }

    /// The tokens of a row next to which `numbers` returns those of each column: without padding, which is neither
    /// read nor learned.
    ///
    /// # Errors
    /// A column that does not go with the tokens, as the rest of a sentence.
    pub(crate) fn of(
        tokens: Vec<u32>,
        mut numbers: impl FnMut(&str) -> Result<Option<Vec<i64>>, String>,
    ) -> Result<Learned, String> {
        let mut is_learned = vec![true; tokens.len()];
        let mut kept = 0..tokens.len();
        let mut positions = None;
        for column in COLUMNS {
            let Some(own) = numbers(column)? else { continue };
            if own.len() != tokens.len() {
                return Err(format!("has {} numbers in `{column}` for {} tokens", own.len(), tokens.len()));
            }
            match column {
                LABELS => {
                    for (at, (label, token)) in own.iter().zip(&tokens).enumerate() {
                        is_learned[at] &= *label == i64::from(*token);
                        if *label != i64::from(*token) && *label != NOT_LEARNED {
                            return Err(format!(
                                "has the label {label} for its token {token}, number {at}; a label is the token in \
                                 its own place, or {NOT_LEARNED} where it is not learned"
                            ));
                        }
                    }
                }
                ATTENTION_MASK => kept = unpadded(&own)?,
                POSITIONS => positions = Some(own),
                mask => {
                    for (at, number) in own.iter().enumerate() {
                        is_learned[at] &= *number == 1;
                        check_bit(mask, at, *number)?;
                    }
                }
            }
        }
        if let Some(at) = positions.and_then(|own| (1..own.len()).find(|at| kept.contains(at) && own[*at] == 0)) {
            return Err(format!(
                "has a second document from its token {at} on, where `{POSITIONS}` begins again; write a row for each"
            ));
        }
        let learned = Some(is_learned[kept.clone()].to_vec()).filter(|learned| learned.contains(&false));
        Ok(Learned { tokens: tokens[kept].to_vec(), learned })
    }

    /// The tokens of the field of a JSON object, next to its other fields.
    ///
    /// # Errors
    /// See [`Learned::of`].
    pub(crate) fn of_object(tokens: Vec<u32>, object: &Map<String, Value>) -> Result<Learned, String> {
        Learned::of(tokens, |column| match object.get(column) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => whole_numbers(column, value).map(Some),
        })
    }
}

/// The places between padding on both sides.
fn unpadded(mask: &[i64]) -> Result<std::ops::Range<usize>, String> {
    for (at, number) in mask.iter().enumerate() {
        check_bit(ATTENTION_MASK, at, *number)?;
    }
    let first = mask.iter().position(|number| *number == 1).unwrap_or(mask.len());
    let end = mask.iter().rposition(|number| *number == 1).map_or(first, |last| last + 1);
    match (first..end).find(|at| mask[*at] == 0) {
        None => Ok(first..end),
        Some(at) => Err(format!(
            "has a 0 in `{ATTENTION_MASK}` at token {at}, between tokens that are attended to; padding is before or after all of them"
        )),
    }
}

fn check_bit(column: &str, at: usize, number: i64) -> Result<(), String> {
    match number {
        0 | 1 => Ok(()),
        _ => Err(format!("has {number} in `{column}` at token {at}; its numbers are 0 and 1")),
    }
}

fn whole_numbers(column: &str, value: &Value) -> Result<Vec<i64>, String> {
    let list = value.as_array().and_then(|list| {
        let number = |value: &Value| value.as_i64().or(value.as_bool().map(i64::from));
        list.iter().map(number).collect::<Option<Vec<i64>>>()
    });
    list.ok_or_else(|| format!("has `{column}` that is not a list of whole numbers"))
}

/// The columns next to a column of tokens, row by row.
#[derive(Default)]
pub(crate) struct LearnedColumns(Vec<(&'static str, Box<dyn Rows + Send>)>);

impl LearnedColumns {
    /// Those that `open` finds.
    pub(crate) fn open(open: impl Fn(&ColumnChoice) -> Result<Box<dyn Rows + Send>, FormatError>) -> LearnedColumns {
        let column = |name: &'static str| Some((name, open(&ColumnChoice::Named(name.into())).ok()?));
        LearnedColumns(COLUMNS.into_iter().filter_map(column).collect())
    }

    /// The next row, whose tokens are `tokens`.
    ///
    /// # Errors
    /// See [`Learned::of`].
    pub(crate) fn next(&mut self, tokens: Vec<u32>) -> Result<Learned, String> {
        let mut own = Vec::with_capacity(self.0.len());
        for (column, rows) in &mut self.0 {
            let text = match rows.next_row().map_err(|error| format!("has a column `{column}`: {error}"))? {
                Some(Cell::Text(text)) if !text.is_empty() => text,
                Some(Cell::Text(_) | Cell::Tokens(_)) | None => continue,
            };
            let value = serde_json::from_str(&text).map_err(|_| format!("has `{column}` that is not a list"))?;
            own.push((*column, whole_numbers(column, &value)?));
        }
        Learned::of(tokens, |column| {
            Ok(own.iter_mut().find(|(name, _)| *name == column).map(|(_, numbers)| std::mem::take(numbers)))
        })
    }
}
