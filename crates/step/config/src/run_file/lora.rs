//! The key `model.lora`.

use super::reader::{Reader, count};
use super::source::Value;
use crate::lora::{LinearLayer, LoraSpec};

const WANTED: &str = "adapters such as { rank = 8, alpha = 16.0, targets = [\"query\", \"value\"] }, with targets among query, key, \
     value, output, gate, up and down";

/// Reads the key.
pub fn read(reader: &mut Reader) -> Option<LoraSpec> {
    reader.table_as("model.lora", WANTED, &["rank", "alpha", "targets"], lora)
}

/// Without targets, queries and values have adapters; without an alpha, their scale is 1.
fn lora(entries: &[(String, Value)]) -> Option<LoraSpec> {
    let (mut rank, mut alpha, mut targets) = (None, None, vec![LinearLayer::Query, LinearLayer::Value]);
    for (key, value) in entries {
        match key.as_str() {
            "rank" => rank = Some(count(value)?),
            "alpha" => alpha = Some(value.number()?),
            "targets" => targets = value.list()?.iter().map(target).collect::<Option<_>>()?,
            _ => return None,
        }
    }
    targets.sort_unstable();
    targets.dedup();
    let rank = rank?;
    Some(LoraSpec { rank, alpha: alpha.unwrap_or(rank as f32), targets })
}

fn target(value: &Value) -> Option<LinearLayer> {
    let name = value.text()?;
    LinearLayer::ALL.into_iter().find(|layer| layer.name() == name)
}

/// The table, with nothing left to defaults.
pub fn written(lora: &LoraSpec) -> String {
    let LoraSpec { rank, alpha, targets } = lora;
    let targets: Vec<String> = targets.iter().map(|target| format!("\"{}\"", target.name())).collect();
    format!("{{ rank = {rank}, alpha = {alpha:?}, targets = [{}] }}", targets.join(", "))
}
