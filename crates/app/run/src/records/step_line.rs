//! A step as a line of text: whole, or as much of it as a window has columns for, in colour where the window has it.

use std::time::Duration;

use config::figures::grouped;
use train::{LossScalingReport, RouterFigures, StepReport, UpdateOutcome};

use crate::records::rates::Rates;

/// Whether lines have colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    /// Names are dim, alarms red.
    On,
    /// Text only.
    Off,
}

/// Whether a line has the remaining time of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemainingTime {
    /// The line is replaced with every step.
    Shown,
    /// The line stays on the screen, where the time would be out of date.
    Hidden,
}

/// A name with its value: `loss`, `2.3457`. Either may be empty.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Field {
    name: &'static str,
    value: String,
    emphasis: Emphasis,
}

/// The importance of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Emphasis {
    Usual,
    Important,
    Alarm,
}

impl Field {
    fn new(name: &'static str, value: String) -> Field {
        Field { name, value, emphasis: Emphasis::Usual }
    }

    fn width(&self) -> usize {
        self.text(Colour::Off).chars().count()
    }

    fn text(&self, colour: Colour) -> String {
        let Field { name, value, emphasis } = self;
        let gap = if name.is_empty() || value.is_empty() { "" } else { " " };
        match (colour, emphasis) {
            (Colour::Off, _) => format!("{name}{gap}{value}"),
            (Colour::On, Emphasis::Usual) if name.is_empty() => value.clone(),
            (Colour::On, Emphasis::Usual) => format!("\x1b[2m{name}\x1b[0m{gap}{value}"),
            (Colour::On, Emphasis::Important) => format!("\x1b[2m{name}\x1b[0m{gap}\x1b[1m{value}\x1b[0m"),
            (Colour::On, Emphasis::Alarm) => format!("\x1b[31m{name}{gap}{value}\x1b[0m"),
        }
    }
}

/// The line of a step of `steps`. In `columns` columns, fields at the end that do not fit are left out.
pub fn step_line(
    (report, steps): (&StepReport, u32),
    rates: &Rates,
    remaining_time: RemainingTime,
    columns: Option<usize>,
    colour: Colour,
) -> String {
    let (mut text, mut width) = (String::new(), 0);
    for field in fields(report, steps, rates, remaining_time) {
        let gap = if width == 0 { 0 } else { 2 };
        if width > 0 && columns.is_some_and(|columns| width + gap + field.width() > columns) {
            break;
        }
        width += gap + field.width();
        text += &format!("{:gap$}{}", "", field.text(colour));
    }
    text
}

/// The most wanted first; alarms come before speed.
fn fields(report: &StepReport, steps: u32, rates: &Rates, remaining_time: RemainingTime) -> Vec<Field> {
    let digits = steps.to_string().len();
    let alarm = |is_alarm: bool, usual: Emphasis| if is_alarm { Emphasis::Alarm } else { usual };
    let loss = Field {
        emphasis: alarm(!report.loss.is_finite(), Emphasis::Important),
        ..Field::new("loss", format!("{:.4}", report.loss))
    };
    let norm = Field {
        emphasis: alarm(!report.gradient_norm.is_finite(), Emphasis::Usual),
        ..Field::new("grad norm", format!("{:.3}", report.gradient_norm))
    };
    let mut fields = vec![Field::new("step", format!("{:>digits$}/{steps}", report.step)), loss];
    fields.extend(report.z_loss.map(|z_loss| Field::new("z loss", format!("{z_loss:.2e}"))));
    fields.extend([Field::new("lr", format!("{:.2e}", report.learning_rate)), norm]);
    if remaining_time == RemainingTime::Shown {
        fields.push(Field::new("", format!("{} left", clock(rates.left))));
    }
    fields.push(Field::new("", format!("{} tokens/s", grouped(rates.tokens_per_second.round() as u64))));
    let share = rates.peak_share.map_or(String::new(), |share| format!(", {:.0} % of peak", 100.0 * share));
    fields.push(Field::new("", format!("{:.1} GFLOP/s{share}", rates.flops / 1e9)));
    fields.extend(rates.idle_share.map(|share| Field::new("idle", format!("{:>2.0} %", 100.0 * share))));
    fields.extend(report.loss_scaling.as_ref().map(scaling));
    fields.extend(report.routers.iter().flat_map(routers));
    fields
}

/// The largest load of an expert, and those without a token.
fn routers(figures: &RouterFigures) -> Vec<Field> {
    let mut fields = vec![Field::new("largest load", format!("{:.2}", figures.largest_load))];
    if figures.idle_experts > 0 {
        let idle = Field::new("idle experts", figures.idle_experts.to_string());
        fields.push(Field { emphasis: Emphasis::Alarm, ..idle });
    }
    fields
}

/// How the loss was scaled.
fn scaling(report: &LossScalingReport) -> Field {
    match report.update {
        UpdateOutcome::Updated => Field::new("loss scale", format!("{:.0}", report.factor)),
        UpdateOutcome::Skipped | UpdateOutcome::Hopeless => Field {
            emphasis: Emphasis::Alarm,
            ..Field::new(
                "loss scale",
                format!("{:.0}: overflow, skipped, {} so far", report.factor, report.skipped_steps),
            )
        },
    }
}

/// `1:02:03`, or `2:03` within an hour.
pub fn clock(time: Duration) -> String {
    let seconds = time.as_secs_f64().round() as u64;
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match hours {
        0 => format!("{minutes}:{seconds:02}"),
        hours => format!("{hours}:{minutes:02}:{seconds:02}"),
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// The report of a step in which nothing happened, for all tests of records.
    pub fn report() -> StepReport {
        StepReport {
            step: 7,
            loss: 2.345_678,
            gradient_norm: 0.987_6,
            loss_scaling: None,
            z_loss: None,
            routers: None,
            anomaly: None,
            learning_rate: 1.5e-3,
            tokens: 2048,
            valid_tokens: 2048,
            wall: Duration::from_millis(250),
        }
    }

    fn rates() -> Rates {
        Rates {
            tokens_per_second: 8192.0,
            flops: 7.05e10,
            peak_share: Some(0.354),
            idle_share: Some(0.04),
            resident_bytes: None,
            total_tokens: 14336,
            epoch: 0.25,
            expert_rank_load: None,
            left: Duration::from_millis(3_725_400),
        }
    }

    fn line(remaining_time: RemainingTime, columns: Option<usize>) -> String {
        step_line((&report(), 300), &rates(), remaining_time, columns, Colour::Off)
    }

    #[test]
    fn a_line_names_its_numbers() {
        assert_eq!(
            line(RemainingTime::Shown, None),
            "step   7/300  loss 2.3457  lr 1.50e-3  grad norm 0.988  1:02:05 left  8,192 tokens/s  70.5 GFLOP/s, 35 % of peak  idle  4 %"
        );
        let unknown = Rates { idle_share: None, peak_share: None, left: Duration::from_secs(61), ..rates() };
        assert_eq!(
            step_line((&report(), 9), &unknown, RemainingTime::Shown, None, Colour::Off),
            "step 7/9  loss 2.3457  lr 1.50e-3  grad norm 0.988  1:01 left  8,192 tokens/s  70.5 GFLOP/s"
        );
    }

    #[test]
    fn a_line_has_as_many_columns_as_its_window() {
        for (columns, expected) in [
            (60, "step   7/300  loss 2.3457  lr 1.50e-3  grad norm 0.988"),
            (80, "step   7/300  loss 2.3457  lr 1.50e-3  grad norm 0.988  8,192 tokens/s"),
            (
                200,
                "step   7/300  loss 2.3457  lr 1.50e-3  grad norm 0.988  8,192 tokens/s  70.5 GFLOP/s, 35 % of peak  idle  4 %",
            ),
            (3, "step   7/300"),
        ] {
            assert_eq!(line(RemainingTime::Hidden, Some(columns)), expected, "{columns} columns");
        }
    }

    /// Colours take no columns and no letters.
    #[test]
    fn colours_change_nothing_but_colours() {
        let skipped = LossScalingReport { factor: 4_294_967_296.0, update: UpdateOutcome::Skipped, skipped_steps: 2 };
        let report = StepReport { loss: f64::NAN, loss_scaling: Some(skipped), ..report() };
        for columns in [Some(60), Some(80), Some(200), None] {
            let of = |colour| step_line((&report, 9), &rates(), RemainingTime::Shown, columns, colour);
            let coloured = of(Colour::On);
            assert!(coloured.contains("\x1b[31mloss NaN\x1b[0m"), "{coloured:?}");
            let plain = ["\x1b[2m", "\x1b[0m", "\x1b[1m", "\x1b[31m"]
                .iter()
                .fold(coloured, |text, code| text.replace(code, ""));
            assert_eq!(plain, of(Colour::Off));
        }
        let line = step_line((&report, 9), &rates(), RemainingTime::Shown, None, Colour::Off);
        assert!(line.ends_with("idle  4 %  loss scale 4294967296: overflow, skipped, 2 so far"), "{line}");
    }
}
