//! Profiles from TOML and back, with what is wrong said by key.

use toml::{Table, Value};

use crate::{Cluster, Software, named};

/// The reason that a text is not a profile.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    /// It is not TOML, has a key too many or a value of another kind.
    #[error("{0}")]
    Syntax(String),
    /// It lacks a key.
    #[error("{place} has no `{key}`{unit}; write for example {key} = {example}, which is that of {EXAMPLE}")]
    Missing {
        /// The section in brackets, or the file.
        place: String,
        /// The key.
        key: String,
        /// The unit, as an end of a sentence.
        unit: &'static str,
        /// A value.
        example: String,
    },
    /// It lacks a section.
    #[error("the section [{section}] is missing; that of {EXAMPLE} is\n\n{example}")]
    NoSection {
        /// The section.
        section: String,
        /// How it is written.
        example: String,
    },
    /// It is like an unknown trainer.
    #[error("like = {like} must name a built-in trainer; use one of {known}")]
    NoTrainer {
        /// The value in the file.
        like: String,
        /// The names of all that are.
        known: String,
    },
    /// A number that nothing in this world has.
    #[error("{key} = {value} {rule}")]
    Value {
        /// The key.
        key: String,
        /// Its kind.
        value: String,
        /// The expected value.
        rule: &'static str,
    },
    /// A number that is far from every machine. Times of steps would not be numbers.
    #[error("{key} = {value} must be from {low} to {high}; take it from the data sheet")]
    Range {
        /// The key.
        key: String,
        /// Its value.
        value: String,
        /// The least value.
        low: String,
        /// The largest.
        high: String,
    },
    /// Nobody says where the numbers of a section, or what is said of a trainer, are from.
    #[error("[sources] has no `{0}`; say in a line where what `{0}` says is from")]
    NoSource(String),
}

impl Cluster {
    /// Reads a profile.
    ///
    /// # Errors
    /// See [`ProfileError`].
    pub fn from_toml(text: &str) -> Result<Cluster, ProfileError> {
        let cluster: Cluster = toml::from_str(text).map_err(|error| {
            missing(text).unwrap_or_else(|| ProfileError::Syntax(error.to_string().trim_end().to_string()))
        })?;
        cluster.check()?;
        Ok(cluster)
    }

    /// The profile as a file; reading it gives the same profile.
    pub fn to_toml(&self) -> String {
        // Every field is a number, a string or a table, so there is nothing that TOML cannot hold.
        toml::to_string(self).unwrap_or_default()
    }

    fn check(&self) -> Result<(), ProfileError> {
        let Cluster { accelerator, compute, attention, node, network, .. } = self;
        let positive = [
            ("accelerator.memory_gb", accelerator.memory_gb),
            ("accelerator.memory_gb_per_s", accelerator.memory_gb_per_s),
            ("accelerator.half_tflops", accelerator.half_tflops),
            ("accelerator.single_tflops", accelerator.single_tflops),
            ("accelerator.multiprocessors", f64::from(accelerator.multiprocessors)),
            ("node.accelerators", node.accelerators as f64),
            ("node.link.gb_per_s", node.link.gb_per_s),
            ("network.gb_per_s", network.gb_per_s),
        ];
        let shares = [
            ("compute.matrix_efficiency", compute.matrix_efficiency),
            ("compute.unaligned_efficiency", compute.unaligned_efficiency),
            ("compute.attention_efficiency", compute.attention_efficiency),
            ("compute.attention_backward_efficiency", compute.attention_backward_efficiency),
            ("compute.memory_efficiency", compute.memory_efficiency),
            ("node.link.efficiency", node.link.efficiency),
            ("network.efficiency", network.efficiency),
        ];
        let not_negative = [
            ("compute.tile_ramp_columns", compute.tile_ramp_columns),
            ("attention.ramp_tokens", attention.ramp_tokens),
            ("attention.tail_tiles", attention.tail_tiles),
            ("attention.backward_tail_tiles", attention.backward_tail_tiles),
            ("compute.kernel_gap_us", compute.kernel_gap_us),
            ("compute.issue_us", compute.issue_us),
            ("compute.contention", compute.contention),
            ("node.link.start_us", node.link.start_us),
            ("network.start_us", network.start_us),
            ("node.link.latency_us", node.link.latency_us),
            ("network.latency_us", network.latency_us),
        ];
        let second = attention.second.as_ref();
        let shares = shares.into_iter().chain(second.into_iter().flat_map(|of| {
            [
                ("attention.flash-2.efficiency", of.efficiency),
                ("attention.flash-2.backward_efficiency", of.backward_efficiency),
            ]
        }));
        let not_negative = not_negative.into_iter().chain(second.into_iter().flat_map(|of| {
            [
                ("attention.flash-2.ramp_tokens", of.ramp_tokens),
                ("attention.flash-2.tail_tiles", of.tail_tiles),
                ("attention.flash-2.backward_tail_tiles", of.backward_tail_tiles),
            ]
        }));
        let (shares, not_negative): (Vec<_>, Vec<_>) = (shares.collect(), not_negative.collect());
        let optional = [
            accelerator.tf32_tflops.map(|of| ("accelerator.tf32_tflops", of)),
            accelerator.host_link_gb_per_s.map(|of| ("accelerator.host_link_gb_per_s", of)),
        ];
        let positive: Vec<_> = positive.into_iter().chain(optional.into_iter().flatten()).collect();
        let is_positive = |value: f64| value > 0.0 && value.is_finite();
        all(&positive, is_positive, "is not above 0; take it from the data sheet")?;
        all(&shares, |value| value > 0.0 && value <= 1.0, "must be a share; use more than 0 and at most 1")?;
        all(&not_negative, |value| value >= 0.0 && value.is_finite(), "must not be negative; use 0 to leave it out")?;
        within(&positive, RATES)?;
        within(&shares, (LEAST_SHARE, 1.0))?;
        within(&not_negative, (0.0, MOST_LOSS))?;
        let sections = ["accelerator", "compute", "node", "network"];
        match sections.into_iter().find(|section| !self.sources.contains_key(*section)) {
            Some(section) => Err(ProfileError::NoSource(section.into())),
            None => self.software.as_ref().map_or(Ok(()), Software::check),
        }
    }
}

/// Sizes, rates and counts: from a thousandth of a core's or of a slow network's to a thousand times those of the
/// largest machine.
const RATES: (f64, f64) = (1e-3, 1e6);
/// The least share of a rate.
const LEAST_SHARE: f64 = 1e-6;
/// The largest loss: a quarter of an hour in microseconds, and more tokens, tiles or columns than any kernel waits for.
const MOST_LOSS: f64 = 1e9;

fn within(values: &[(&str, f64)], (low, high): (f64, f64)) -> Result<(), ProfileError> {
    match values.iter().find(|(_, value)| !(low..=high).contains(value)) {
        // The digits of a very small or large number would fill the line.
        Some((key, value)) => {
            let [low, high] = [low, high].map(|end| end.to_string());
            Err(ProfileError::Range { key: (*key).into(), value: format!("{value:?}"), low, high })
        }
        None => Ok(()),
    }
}

fn all(values: &[(&str, f64)], holds: impl Fn(f64) -> bool, rule: &'static str) -> Result<(), ProfileError> {
    match values.iter().find(|(_, value)| !holds(*value)) {
        Some((key, value)) => Err(ProfileError::Value { key: (*key).into(), value: value.to_string(), rule }),
        None => Ok(()),
    }
}

/// The profile that shows those who miss something what it looks like. It has every key that a profile needs.
const EXAMPLE: &str = "a100-80g-dgx";

/// Keys of the example that a profile may leave out.
const OPTIONAL: [&str; 4] = ["tf32_tflops", "host_link_gb_per_s", "attention", "fitted"];

/// The first thing that the example has and `text` has not, if it is TOML at all.
fn missing(text: &str) -> Option<ProfileError> {
    let own: Table = text.parse().ok()?;
    let example: Table = named(EXAMPLE)?.parse().ok()?;
    missing_in(&own, &example, "")
}

fn missing_in(own: &Table, example: &Table, section: &str) -> Option<ProfileError> {
    let mut needed = example.iter().filter(|(key, _)| !OPTIONAL.contains(&key.as_str()));
    needed.find_map(|(key, value)| {
        let inner = if section.is_empty() { key.clone() } else { format!("{section}.{key}") };
        match (own.get(key), value) {
            (Some(Value::Table(own)), Value::Table(value)) => missing_in(own, value, &inner),
            (Some(_), _) => None,
            (None, Value::Table(value)) => Some(ProfileError::NoSection {
                example: format!("[{inner}]\n{value}").trim_end().into(),
                section: inner,
            }),
            (None, value) => Some(ProfileError::Missing {
                place: if section.is_empty() { "the profile".into() } else { format!("[{section}]") },
                key: key.clone(),
                unit: unit(key),
                example: value.to_string(),
            }),
        }
    })
}

/// The unit of a key, by the end of its name.
fn unit(key: &str) -> &'static str {
    let units = [
        ("gb_per_s", ", in 10^9 bytes per second"),
        ("_gb", ", in units of 10^9 bytes"),
        ("_tflops", ", in 10^12 floating-point operations per second"),
        ("_us", ", in microseconds"),
        ("efficiency", ", a share of 1"),
        ("contention", ", a share of 1"),
        ("_columns", ", in columns"),
        ("accelerators", ", a whole number"),
        ("multiprocessors", ", a whole number"),
    ];
    units.into_iter().find(|(end, _)| key.ends_with(end)).map_or("", |(_, unit)| unit)
}
