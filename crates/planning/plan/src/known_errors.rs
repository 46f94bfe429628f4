//! Errors of predictions: how far they were from measured runs, by accelerator and trainer.

use std::fmt;

use cluster::{Cluster, Software};

/// By accelerator and trainer, of all scored rows of `docs/accuracy.md`; written with that page, by
/// `survey accuracy --errors`.
pub const TABLE: &str = include_str!("../errors.csv");

/// Errors of scored rows, as shares of what was measured.
#[derive(Clone, Debug, PartialEq)]
pub struct KnownErrors {
    /// The accelerator, without its size and form: `A100`.
    pub accelerator: String,
    /// The trainer of the rows; nothing where they are those of all trainers.
    pub trainer: Option<&'static str>,
    /// How many rows were scored.
    pub rows: usize,
    /// The most that a prediction was too short, below 0.
    pub shortest: f64,
    /// The most that one was too long.
    pub longest: f64,
    /// The mean, whatever the signs.
    pub mean: f64,
}

/// How far predictions were from measured runs on such accelerators, or that none were compared.
pub fn known_errors(cluster: &Cluster, software: Option<&Software>) -> String {
    let known = KnownErrors::new(cluster, software);
    known.map_or_else(|| format!("no run on {} was compared", cluster.accelerator.name), |known| known.to_string())
}

/// A row of the table.
struct Line<'a> {
    accelerator: &'a str,
    trainer: &'static str,
    rows: usize,
    shortest: f64,
    longest: f64,
    mean: f64,
}

/// The name of an accelerator without its size and form.
pub fn family(cluster: &Cluster) -> &str {
    cluster.accelerator.name.split(['-', ' ']).next().unwrap_or_default()
}

impl KnownErrors {
    /// Of runs of `software` on accelerators like those of `cluster`; where none was measured, of all trainers on
    /// these; nothing where none was.
    pub fn new(cluster: &Cluster, software: Option<&Software>) -> Option<KnownErrors> {
        let accelerator = family(cluster);
        let of_accelerator: Vec<Line> = lines().filter(|line| line.accelerator == accelerator).collect();
        let own = software.and_then(named);
        let of_trainer: Vec<&Line> = of_accelerator.iter().filter(|line| Some(line.trainer) == own).collect();
        let (trainer, chosen) = match of_trainer.is_empty() {
            true => (None, of_accelerator.iter().collect()),
            false => (own, of_trainer),
        };
        let rows = chosen.iter().map(|line| line.rows).sum::<usize>();
        (rows > 0).then(|| KnownErrors {
            accelerator: accelerator.to_string(),
            trainer,
            rows,
            shortest: chosen.iter().map(|line| line.shortest).fold(0.0, f64::min),
            longest: chosen.iter().map(|line| line.longest).fold(0.0, f64::max),
            mean: chosen.iter().map(|line| line.rows as f64 * line.mean).sum::<f64>() / rows as f64,
        })
    }
}

impl fmt::Display for KnownErrors {
    /// `A100 with megatron-2021: 22 measured rows, 12.3 % too short to 7.4 % too long, 3.3 % on average`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let KnownErrors { accelerator, trainer, rows, shortest, longest, mean } = self;
        let of = trainer.map_or("with other trainers".to_string(), |trainer| format!("with {trainer}"));
        let percent = |share: f64| format!("{:.1} %", 100.0 * share.abs());
        let range = match (*shortest < 0.0, *longest > 0.0) {
            (true, true) => format!("{} too short to {} too long", percent(*shortest), percent(*longest)),
            (true, false) => format!("up to {} too short", percent(*shortest)),
            (false, _) => format!("up to {} too long", percent(*longest)),
        };
        write!(f, "{accelerator} {of}: {rows} measured rows, {range}, {} on average", percent(*mean))
    }
}

/// The name of a trainer in the program that has this description.
fn named(software: &Software) -> Option<&'static str> {
    Software::names().find(|name| {
        Software::named(name).and_then(|text| Software::from_toml(text).ok()).is_some_and(|of| of.name == software.name)
    })
}

fn lines() -> impl Iterator<Item = Line<'static>> {
    TABLE.lines().skip(1).filter_map(|line| {
        let [accelerator, trainer, rows, shortest, longest, mean] = line.split(',').collect::<Vec<_>>()[..] else {
            return None;
        };
        let [shortest, longest, mean] = [shortest, longest, mean].map(|share| share.parse().ok());
        Some(Line {
            accelerator,
            trainer,
            rows: rows.parse().ok()?,
            shortest: shortest?,
            longest: longest?,
            mean: mean?,
        })
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that fails is one that panics")]

    use cluster::named as profile;

    use super::*;

    fn known(name: &str, trainer: Option<&str>) -> Option<KnownErrors> {
        let cluster = Cluster::from_toml(profile(name).unwrap()).unwrap();
        let software = trainer.map(|trainer| Software::from_toml(Software::named(trainer).unwrap()).unwrap());
        KnownErrors::new(&cluster, software.as_ref())
    }

    #[test]
    fn every_line_is_read_and_names_a_trainer() {
        assert_eq!(lines().count(), TABLE.lines().count() - 1);
        for line in lines() {
            assert!(Software::names().any(|name| name == line.trainer), "{}", line.trainer);
            assert!(line.rows > 0 && line.shortest <= line.longest && line.mean <= line.longest.max(-line.shortest));
        }
    }

    #[test]
    fn errors_are_those_of_the_trainer_or_else_of_the_accelerator() {
        let own = known("a100-80g-dgx", Some("megatron-2021")).unwrap();
        assert_eq!((own.accelerator.as_str(), own.trainer), ("A100", Some("megatron-2021")));
        let all = known("a100-80g-dgx", None).unwrap();
        assert!(all.trainer.is_none() && all.rows > own.rows);
        assert_eq!(known("a100-80g-jean-zay", Some("nemo-2025")).unwrap(), all, "nobody measured it");
        assert_eq!(known("ascend-910", None), None);
        let errors = KnownErrors { shortest: -0.25, longest: 0.0, mean: 0.17, rows: 4, ..own };
        let printed = "A100 with megatron-2021: 4 measured rows, up to 25.0 % too short, 17.0 % on average";
        assert_eq!(errors.to_string(), printed);
    }
}
