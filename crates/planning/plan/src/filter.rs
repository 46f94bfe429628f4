//! Which rows of a table are meant: `model = gpt and pp > 1`, `every 10 from 0`.

use std::str::FromStr;

use crate::table::Row;

/// A choice of rows: comparisons of columns with numbers and words, joined by `and` and `or`, of which `and` binds
/// closer.
#[derive(Clone, Debug, PartialEq)]
pub struct Filter {
    /// One of these holds; each is a list of which all hold.
    any: Vec<Vec<Test>>,
}

#[derive(Clone, Debug, PartialEq)]
enum Test {
    /// Every `step`-th row of the table, from row `first`, counted from 0.
    Every {
        step: usize,
        first: usize,
    },
    /// Not those.
    NotEvery {
        step: usize,
        first: usize,
    },
    Compare {
        column: String,
        relation: Relation,
        value: String,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relation {
    Equal,
    NotEqual,
    Less,
    AtMost,
    More,
    AtLeast,
}

/// The reason that a text is not a choice of rows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` chooses no rows: {reason}; write for example `model = gpt and pp > 1`, or `every 10 from 0`")]
pub struct FilterError {
    text: String,
    reason: String,
}

impl Filter {
    /// Every row.
    pub fn all() -> Filter {
        Filter { any: vec![vec![]] }
    }

    /// The columns that are compared.
    pub fn columns(&self) -> impl Iterator<Item = &str> {
        self.any.iter().flatten().filter_map(|test| match test {
            Test::Compare { column, .. } => Some(column.as_str()),
            Test::Every { .. } | Test::NotEvery { .. } => None,
        })
    }

    /// Whether a row is meant. A column that is empty equals nothing.
    pub fn takes(&self, row: &Row) -> bool {
        self.any.iter().any(|all| all.iter().all(|test| test.takes(row)))
    }
}

impl Test {
    fn takes(&self, row: &Row) -> bool {
        let is_every = |step: usize, first: usize| row.index >= first && (row.index - first).is_multiple_of(step);
        match self {
            Test::Every { step, first } => is_every(*step, *first),
            Test::NotEvery { step, first } => !is_every(*step, *first),
            Test::Compare { column, relation, value } => {
                let Some(cell) = row.text(column) else { return *relation == Relation::NotEqual };
                let order = match (cell.parse::<f64>(), value.parse::<f64>()) {
                    (Ok(cell), Ok(value)) => cell.total_cmp(&value),
                    (Ok(_) | Err(_), _) => cell.cmp(value.as_str()),
                };
                match relation {
                    Relation::Equal => order.is_eq(),
                    Relation::NotEqual => order.is_ne(),
                    Relation::Less => order.is_lt(),
                    Relation::AtMost => order.is_le(),
                    Relation::More => order.is_gt(),
                    Relation::AtLeast => order.is_ge(),
                }
            }
        }
    }
}

impl FromStr for Filter {
    type Err = FilterError;

    fn from_str(text: &str) -> Result<Filter, FilterError> {
        let refused = |reason: String| FilterError { text: text.into(), reason };
        let words: Vec<&str> = text.split_whitespace().collect();
        let any = words.split(|word| *word == "or");
        let tests = |words: &[&str]| words.split(|word| *word == "and").map(test).collect::<Result<Vec<_>, _>>();
        Ok(Filter { any: any.map(tests).collect::<Result<Vec<_>, _>>().map_err(refused)? })
    }
}

fn test(words: &[&str]) -> Result<Test, String> {
    let every = |step: &str, first: &str| match (step.parse(), first.parse()) {
        (Ok(step), Ok(first)) if step > 0 => Ok((step, first)),
        _ => Err(format!("`every {step} from {first}` needs two whole numbers, the first above 0")),
    };
    match words {
        ["every", step, "from", first] => every(step, first).map(|(step, first)| Test::Every { step, first }),
        ["not", "every", step, "from", first] => every(step, first).map(|(step, first)| Test::NotEvery { step, first }),
        [column, relation, value @ ..] if !value.is_empty() => {
            let relation = match *relation {
                "=" => Relation::Equal,
                "!=" => Relation::NotEqual,
                "<" => Relation::Less,
                "<=" => Relation::AtMost,
                ">" => Relation::More,
                ">=" => Relation::AtLeast,
                other => return Err(format!("`{other}` must be one of = != < <= > >=")),
            };
            let value = value.join(" ").trim_matches(['"', '\'']).to_string();
            let is_order = !matches!(relation, Relation::Equal | Relation::NotEqual);
            if is_order && value.parse::<f64>().is_err() {
                return Err(format!("`{value}` is not a number; words are compared with = and !="));
            }
            Ok(Test::Compare { column: (*column).into(), relation, value })
        }
        words => {
            let text = words.join(" ");
            let hint = if text.contains(['=', '<', '>']) { ", which has spaces around its relation" } else { "" };
            Err(format!("`{text}` is not a comparison of a column with a value{hint}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Table;

    fn taken(filter: &str) -> Vec<usize> {
        let text = "model,layers,hidden,heads,tp,pp,global_batch\ngpt,2,8,1,1,1,4\ngpt,2,8,1,2,1,4\nbert,2,8,1,2,2,\n";
        let table = Table::read("runs.csv", text).unwrap();
        let filter: Filter = filter.parse().unwrap();
        table.rows.iter().filter(|row| filter.takes(row)).map(|row| row.index).collect()
    }

    #[test]
    fn rows_are_chosen_by_numbers_words_and_places() {
        assert_eq!(taken("tp = 2"), [1, 2]);
        assert_eq!(taken("tp >= 2 and model = gpt"), [1]);
        assert_eq!(taken("pp > 1 or tp < 2"), [0, 2]);
        assert_eq!(taken("every 2 from 0"), [0, 2]);
        assert_eq!(taken("not every 2 from 0 and model != bert"), [1]);
        assert_eq!(taken("global_batch != 4"), [2], "an empty cell equals nothing");
        assert_eq!(taken("model = gpt \"large\" or model = 'bert'"), [2], "words may have quotes and be several");
        let filter: Filter = "tp = 2 and model = gpt or every 2 from 0".parse().unwrap();
        assert_eq!(filter.columns().collect::<Vec<_>>(), ["tp", "model"]);
    }

    #[test]
    fn what_is_no_choice_is_refused_with_an_example() {
        let refused = |text: &str| text.parse::<Filter>().unwrap_err().to_string();
        assert_eq!(
            refused("tp == 2"),
            "`tp == 2` chooses no rows: `==` must be one of = != < <= > >=; write for example `model = gpt and pp > 1`, or \
             `every 10 from 0`"
        );
        assert!(
            refused("tp>1")
                .contains("`tp>1` is not a comparison of a column with a value, which has spaces around its")
        );
        assert!(refused("tp > many").contains("`many` is not a number; words are compared with = and !="));
        assert!(refused("every 0 from 1").contains("needs two whole numbers"));
        assert!(refused("tp = 2 and").contains("`` is not a comparison"));
    }
}
