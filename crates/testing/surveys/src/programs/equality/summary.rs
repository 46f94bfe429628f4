//! The largest distances of many cases.

use std::fmt;

use surveys::results::Row;

/// Counts and largest distances; reads as the columns of a table after the first.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    cases: usize,
    same_bits: Option<usize>,
    oracle_bits: usize,
    loss: f64,
    gradient: (f64, String),
    weight: (f64, String),
}

impl Summary {
    /// Takes a case in.
    pub fn add(&mut self, row: &Row) {
        self.cases += 1;
        self.same_bits = Some(self.same_bits.unwrap_or_default() + usize::from(row.same_bits));
        self.oracle_bits += usize::from(row.oracle_bits);
        self.loss = self.loss.max(row.loss);
        if row.gradient > self.gradient.0 {
            self.gradient = (row.gradient, row.gradient_of.clone());
        }
        if row.weight > self.weight.0 {
            self.weight = (row.weight, row.weight_of.clone());
        }
    }

    /// The same, of cases that have no run of the same order to compare with.
    pub fn without_reference(self) -> Summary {
        Summary { same_bits: None, ..self }
    }
}

impl<'a> FromIterator<&'a Row> for Summary {
    fn from_iter<I: IntoIterator<Item = &'a Row>>(rows: I) -> Summary {
        let mut summary = Summary::default();
        rows.into_iter().for_each(|row| summary.add(row));
        summary
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let same_bits = self.same_bits.map_or("-".to_string(), |count| count.to_string());
        let (gradient, weight) = (place(&self.gradient), place(&self.weight));
        write!(
            f,
            "| {} | {same_bits} | {} | {gradient} | {} | {weight} |",
            self.cases,
            self.oracle_bits,
            number(self.loss)
        )
    }
}

fn number(distance: f64) -> String {
    if distance == 0.0 { "0".into() } else { format!("{distance:.1e}") }
}

fn place((distance, name): &(f64, String)) -> String {
    let name = if *distance == 0.0 { "" } else { name };
    format!("{} | {name}", number(*distance))
}
