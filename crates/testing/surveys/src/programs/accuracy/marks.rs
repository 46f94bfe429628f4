//! How much of each scored row its prediction has seen, and the errors of each class apart.

use plan::Errors;
use surveys::accuracy::{Basis, Outcome};

use super::paragraph::paragraph;

/// The meanings of the marks, and the errors of all checks by mark.
pub fn section(outcomes: &[Outcome]) -> String {
    let marks = "Every scored table carries a mark: how its rows are related to those that any constant in use was \
                 fitted to, by a check of this page, or earlier by its profile (`[fitted]` of \
                 `crates/planning/cluster/profiles`). The nearest relation counts. *Cluster* means profile.";
    let mut text = String::from("\n## Marks\n") + &paragraph(marks) + "\n| mark | meaning |\n|---|---|\n";
    for basis in Basis::ALL {
        text += &format!("| {basis} | {} |\n", basis.meaning());
    }
    text += &paragraph(
        "Errors of the seconds of all scored rows, by mark. Rows with the marks *other cluster* and *unfitted* show \
         how far a prediction for a new cluster is off; the last line has both.",
    );
    text += "\n| mark | tables | rows | mean | median | p90 | largest | mean of the tables' means |\n\
             |---|---|---|---|---|---|---|---|\n";
    for basis in Basis::ALL {
        text += &format!("| {basis} | {} |\n", errors_of(outcomes, &[basis]));
    }
    let of_new_clusters = [Basis::OtherCluster, Basis::Unfitted];
    text += &format!("| other cluster or unfitted | {} |\n", errors_of(outcomes, &of_new_clusters));
    text
}

/// The cells of a line: tables and rows with one of these marks, and their errors.
fn errors_of(outcomes: &[Outcome], bases: &[Basis]) -> String {
    let mut tables: Vec<Vec<f64>> = vec![];
    for scored in outcomes.iter().flat_map(|outcome| &outcome.scored) {
        let rows = scored.rows.iter().filter(|(of, _)| bases.contains(of));
        tables.push(rows.filter_map(|(_, row)| row.time_s.error()).collect());
    }
    tables.retain(|errors| !errors.is_empty());
    let means: Vec<f64> = tables.iter().map(|errors| Errors::of(errors.iter().copied()).mean).collect();
    let of_tables = means.iter().sum::<f64>() / means.len().max(1) as f64;
    let Errors { rows, mean, median, p90, largest } = Errors::of(tables.iter().flatten().copied());
    let cells = [mean, median, p90, largest, of_tables].map(|share| format!("{:.1} %", 100.0 * share));
    format!("{} | {rows} | {}", tables.len(), cells.join(" | "))
}
