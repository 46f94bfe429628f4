//! The constants by themselves: single operations, fits to other tables, and what the errors owe to each.

use std::error::Error;

use cluster::Constant;
use plan::Errors;
use surveys::accuracy::{LEFT_OUT, NOT_TUNED_ON, OPERATIONS};

use super::paragraph::paragraph;

/// All three.
pub fn section() -> Result<String, Box<dyn Error>> {
    Ok(String::from("\n## Constants by themselves\n") + &operations()? + &left_out()? + &sensitivity()?)
}

fn operations() -> Result<String, Box<dyn Error>> {
    let mut text = String::from(
        "\nSingle operations that were measured, and what the profile says of them. The marks are those of [the \
         tables](#marks):\n\n\
         | measured | profile | mark | rows | mean | median | p90 | largest |\n|---|---|---|---|---|---|---|---|\n",
    );
    for operations in &OPERATIONS {
        let Errors { rows, mean, median, p90, largest } = operations.errors()?;
        let shares = [mean, median, p90, largest].map(percent).join(" | ");
        text += &format!(
            "| `{}` | `{}` | {} | {rows} | {shares} |\n",
            operations.file,
            operations.profile,
            operations.basis()?
        );
    }
    Ok(text)
}

fn left_out() -> Result<String, Box<dyn Error>> {
    let mut text = paragraph(
        "The constants of the A100, fitted to one table of `a100-80g-dgx` after the other and scored on the tables \
         that were left out (same cluster). *End* is an end of the range of a constant. How fast short products get \
         up to speed is known only from rows with short products; SC21's second table has none:",
    ) + "\n";
    for (index, check) in LEFT_OUT.iter().enumerate() {
        let outcome = check.run()?;
        if index == 0 {
            let keys: Vec<String> = outcome.constants.iter().map(|(constant, _)| format!("`{constant}`")).collect();
            text += &format!(
                "| fitted to | {} | rows left out | mean | largest |\n|---|{}---|---|---|\n",
                keys.join(" | "),
                "---|".repeat(keys.len())
            );
        }
        let marked = |(constant, value): &(Constant, f64)| match constant.end(*value) {
            Some(end) => format!("{value:.3}, {end}"),
            None => format!("{value:.3}"),
        };
        let values: Vec<String> = outcome.constants.iter().map(marked).collect();
        let scored = outcome.scored.iter().flat_map(|scored| &scored.rows);
        let errors = Errors::of(scored.filter_map(|(_, row)| row.time_s.error()));
        text += &format!(
            "| {} | {} | {} | {} | {} |\n",
            check.name,
            values.join(" | "),
            errors.rows,
            percent(errors.mean),
            percent(errors.largest)
        );
    }
    Ok(text)
}

fn sensitivity() -> Result<String, Box<dyn Error>> {
    let (mean, constants) = NOT_TUNED_ON.sensitivity()?;
    let mut text = paragraph(&format!(
        "The mean error of all rows that nothing was tuned on, {}, with a fifth less and a fifth more of one constant \
         in all profiles (shares at most 1). A constant that changes nothing is not needed. One whose change reduces \
         the error much hides a cause:",
        percent(mean)
    ));
    text += "\n| constant | a fifth less | a fifth more |\n|---|---|---|\n";
    for of in constants {
        text += &format!("| `{}` | {} | {} |\n", of.constant, percent(of.less), percent(of.more));
    }
    Ok(text)
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}
