//! Trainers that are part of the program, and how a description is read: whole, or as what differs from one of these.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use toml::{Table, Value};

use crate::{ProfileError, Software};

const NAMED: &[(&str, &str)] = &[
    ("megatron-2020", include_str!("../software/megatron-2020.toml")),
    ("megatron-2021", include_str!("../software/megatron-2021.toml")),
    ("megatron-2022", include_str!("../software/megatron-2022.toml")),
    ("deepspeed-2022", include_str!("../software/deepspeed-2022.toml")),
    ("largescale-2022", include_str!("../software/largescale-2022.toml")),
    ("deepspeed-bf16-2022", include_str!("../software/deepspeed-bf16-2022.toml")),
    ("metaseq-2022", include_str!("../software/metaseq-2022.toml")),
    ("megatron-core-2024", include_str!("../software/megatron-core-2024.toml")),
    ("torchtitan-2024", include_str!("../software/torchtitan-2024.toml")),
    ("megatron-core-2025", include_str!("../software/megatron-core-2025.toml")),
    ("megatron-tests-2025", include_str!("../software/megatron-tests-2025.toml")),
    ("nemo-2025", include_str!("../software/nemo-2025.toml")),
    ("megatron-bridge-2025", include_str!("../software/megatron-bridge-2025.toml")),
    ("zero-bubble-2024", include_str!("../software/zero-bubble-2024.toml")),
    ("torchtitan-eager-2024", include_str!("../software/torchtitan-eager-2024.toml")),
    ("fsdp1-2023", include_str!("../software/fsdp1-2023.toml")),
    ("llm-foundry-2024", include_str!("../software/llm-foundry-2024.toml")),
    ("nanotron-2025", include_str!("../software/nanotron-2025.toml")),
    ("deepspeed-2025", include_str!("../software/deepspeed-2025.toml")),
    ("deepspeed-zero3-2025", include_str!("../software/deepspeed-zero3-2025.toml")),
    ("scaling-2023", include_str!("../software/scaling-2023.toml")),
    ("scaling-unfused-2023", include_str!("../software/scaling-unfused-2023.toml")),
];

/// The key of a description that names the trainer it is like.
const LIKE: &str = "like";
/// Sections whose entries have sources, in addition to the description itself.
const SECTIONS: [&str; 2] = ["memory", "offers"];
const SOURCES: &str = "sources";

impl Software {
    /// The names of the trainers that are part of the program.
    pub fn names() -> impl Iterator<Item = &'static str> {
        NAMED.iter().map(|(name, _)| *name)
    }

    /// The trainer of this name, as text; `None` for a name that is not one of [`Software::names`].
    pub fn named(name: &str) -> Option<&'static str> {
        NAMED.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
    }

    /// Reads what would be `[software]` of a profile. With `like = "NAME"` it is the trainer of that name, but for the
    /// entries of `text`, each of which has a source of its own.
    ///
    /// # Errors
    /// No TOML, a key too few or too many, an unknown name, an entry without a source.
    pub fn from_toml(text: &str) -> Result<Software, ProfileError> {
        let syntax = |error: toml::de::Error| ProfileError::Syntax(error.to_string().trim_end().to_string());
        let whole = whole(toml::from_str(text).map_err(syntax)?)?;
        let software = Software::deserialize(Value::Table(whole)).map_err(|error| match error.message() {
            missing if missing.contains("missing field") => ProfileError::Syntax(format!("{missing}; {REMEDY}")),
            _ => syntax(error),
        })?;
        software.check()?;
        Ok(software)
    }

    pub(crate) fn check(&self) -> Result<(), ProfileError> {
        // Every field is a number, a string or a table, so there is nothing that TOML cannot hold.
        let all = Table::try_from(self).unwrap_or_default();
        every_number_is_usable("", &all)?;
        every_entry_has_a_source(&all)
    }
}

/// How to write a trainer in a few lines.
const REMEDY: &str =
    "write it, or begin with like = \"megatron-core-2025\" to have all that is not written from that trainer";

/// Times and sizes of a trainer are not negative, and none is so large that a product of two would be endless.
fn every_number_is_usable(section: &str, entries: &Table) -> Result<(), ProfileError> {
    for (key, value) in entries {
        let key = format!("{section}{key}");
        match value {
            Value::Table(inner) => every_number_is_usable(&format!("{key}."), inner)?,
            Value::Float(number) if !(0.0..=LARGEST).contains(number) => {
                let rule = "must be a number from 0 to 1e15; take it from the trainer's source or a measurement";
                return Err(ProfileError::Value { key, value: number.to_string(), rule });
            }
            Value::Float(_)
            | Value::Integer(_)
            | Value::String(_)
            | Value::Boolean(_)
            | Value::Datetime(_)
            | Value::Array(_) => {}
        }
    }
    Ok(())
}

/// Larger than any time in microseconds, and than any number of bytes, of a step.
const LARGEST: f64 = 1e15;

/// A description with the entries of the trainer that it is like.
fn whole(mut own: Table) -> Result<Table, ProfileError> {
    let Some(like) = own.remove(LIKE) else { return Ok(own) };
    let name = like.as_str().unwrap_or_default();
    let Some(text) = Software::named(name) else {
        let known = Software::names().collect::<Vec<_>>().join(", ");
        return Err(ProfileError::NoTrainer { like: like.to_string(), known });
    };
    every_entry_has_a_source(&own)?;
    let base = toml::from_str(text).map_err(|error| ProfileError::Syntax(error.to_string()))?;
    let mut all = whole(base)?;
    for (key, value) in own {
        match (all.get_mut(&key), value) {
            (Some(Value::Table(section)), Value::Table(entries)) => section.extend(entries),
            (_, value) => {
                all.insert(key, value);
            }
        }
    }
    Ok(all)
}

fn every_entry_has_a_source(description: &Table) -> Result<(), ProfileError> {
    let keys = |section: &str| description.get(section).and_then(Value::as_table).into_iter().flat_map(Table::keys);
    let has_none = |key: &&String| key.as_str() == "name" || key.as_str() == SOURCES;
    let own = description.keys().filter(|key| !has_none(key) && !SECTIONS.contains(&key.as_str()));
    match own.chain(SECTIONS.into_iter().flat_map(keys)).find(|key| !keys(SOURCES).any(|source| source == *key)) {
        Some(key) => Err(ProfileError::NoSource(key.clone())),
        None => Ok(()),
    }
}

impl<'de> Deserialize<'de> for Software {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Software, D::Error> {
        let whole = whole(Table::deserialize(deserializer)?).map_err(D::Error::custom)?;
        Software::deserialize(Value::Table(whole)).map_err(D::Error::custom)
    }
}

impl Serialize for Software {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Software::serialize(self, serializer)
    }
}
