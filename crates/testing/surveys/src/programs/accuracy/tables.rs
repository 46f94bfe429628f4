//! The section of a check: its constants, and the errors of its tables.

use plan::{Errors, Ranking};
use surveys::accuracy::{Outcome, ScoredTable};

use super::paragraph::paragraph;

/// The fitted constants of a check, and its scored tables.
pub fn section(outcome: &Outcome) -> String {
    let mut text = format!("\n## {}\n", outcome.check.name);
    if let Some(about) = outcome.check.about {
        text += &paragraph(about);
    }
    if let Some(runs) = outcome.check.calibrated_on {
        text += &paragraph(&format!(
            "Fitted to {} rows of `{}` (`{}`), from profile `{}`, trainer `{}`:",
            outcome.calibrated_rows, runs.file, runs.rows, runs.profile, runs.software
        ));
        text += "\n| constant | value | range | |\n|---|---|---|---|\n";
        for (constant, value) in &outcome.constants {
            let open = outcome.open.iter().find(|(of, _)| of == constant).map(|(_, open)| open.to_string());
            let end = constant.end(*value).map(|end| format!("at the {end} of its range"));
            let notes: Vec<String> = end.into_iter().chain(open).collect();
            let (low, high) = constant.range();
            text += &format!("| `{constant}` | {value:.3} | {low} to {high} | {} |\n", notes.join("; "));
        }
    }
    text += "\n| scored on | mark | seconds | rows | mean | median | p90 | largest | one constant, mean |\n\
             |---|---|---|---|---|---|---|---|---|\n";
    for scored in &outcome.scored {
        let ScoredTable { runs, report, .. } = scored;
        let Errors { rows, mean, median, p90, largest } = report.errors;
        let [mean, median, p90, largest, baseline] =
            [mean, median, p90, largest, report.baseline.mean].map(|share| format!("{:.1} %", 100.0 * share));
        text += &format!(
            "| `{}` (`{}`), `{}`, `{}` | {} | {} | {rows} | {mean} | {median} | {p90} | {largest} | {baseline} |\n",
            runs.file,
            runs.rows,
            runs.profile,
            runs.software,
            marks(scored),
            runs.derived_from().map_or("published".into(), |source| format!("derived from {source}"))
        );
    }
    let ranked: Vec<(String, Ranking)> = outcome.scored.iter().flat_map(rankings).collect();
    if !ranked.is_empty() {
        text += "\n| order of | rows | Spearman | predicted best is slower by |\n|---|---|---|---|\n";
        for (name, Ranking { rows, spearman, best_slower_by }) in &ranked {
            let spearman = spearman.map_or("none".into(), |value| format!("{value:.3}"));
            text += &format!("| {name} | {rows} | {spearman} | {:.1} % |\n", 100.0 * best_slower_by);
        }
    }
    for scored in outcome.scored.iter().filter(|scored| scored.rows.len() <= 12) {
        let measured = if scored.runs.derived_from().is_some() { "derived s" } else { "measured s" };
        text += &format!(
            "\n`{}` ({}):\n\n| model | layout | {measured} | predicted s | error |\n|---|---|---|---|---|\n",
            scored.runs.file,
            marks(scored)
        );
        for (_, row) in &scored.rows {
            text += &format!(
                "| {} | {} | {:.2} | {:.2} | {:+.1} % |\n",
                row.model,
                row.layout,
                row.time_s.measured.unwrap_or_default(),
                row.time_s.predicted,
                100.0 * row.time_s.error().unwrap_or_default()
            );
        }
    }
    text
}

/// Of tables with many rows of one model: all together, and each model.
fn rankings(scored: &ScoredTable) -> Vec<(String, Ranking)> {
    let ScoredTable { runs, rows, report } = scored;
    if rows.len() <= 12 {
        return vec![];
    }
    let models = report.models.iter().map(|(model, ranking)| (model.clone(), *ranking));
    std::iter::once((format!("all of `{}`", runs.file), report.pooled)).chain(models).collect()
}

/// The marks of a table's rows.
fn marks(scored: &ScoredTable) -> String {
    scored.marks().iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
