//! Event files of TensorBoard: records of TensorFlow, each with an `Event` of its protocol buffers.
//!
//! Sources: `tensorflow/core/util/event.proto`, `tensorflow/core/framework/summary.proto` and
//! `tensorflow/core/lib/io/record_writer.h` describe messages and records.

use std::collections::BTreeMap;

use crate::metrics::{HeldOut, Metrics, StepRow};

/// The name of the one event file of a run. TensorBoard reads all files whose names begin so.
pub const EVENT_FILE: &str = "events.out.tfevents.0000000000.pleach";

/// Tags with the key of their values in `metrics.jsonl`.
const TAGS: &[(&str, &str)] = &[
    ("loss/training", "loss"),
    ("loss/z_loss", "z_loss"),
    ("routers/balance_loss", "router_balance_loss"),
    ("routers/z_loss", "router_z_loss"),
    ("routers/entropy", "router_entropy"),
    ("routers/largest_load", "expert_load_max"),
    ("routers/smallest_load", "expert_load_min"),
    ("routers/idle_experts", "idle_experts"),
    ("routers/dropped_share", "dropped_share"),
    ("routers/smallest_bias", "router_bias_min"),
    ("routers/largest_bias", "router_bias_max"),
    ("optimizer/learning_rate", "learning_rate"),
    ("optimizer/grad_norm", "grad_norm"),
    ("optimizer/loss_scale", "loss_scale"),
    ("speed/tokens_per_second", "tokens_per_second"),
    ("speed/peak_share", "peak_share"),
    ("progress/total_tokens", "total_tokens"),
    ("progress/epoch", "epoch"),
    ("memory/resident_bytes", "resident_bytes"),
];

/// The bytes of an event file with all steps and measurements of a run. The time of a step is that of its line, or the
/// seconds until its end where the line has none; a measurement has the time of the step before it.
pub fn event_file(metrics: &Metrics) -> Vec<u8> {
    let time = |row: &StepRow| row.values.get("time").unwrap_or(row.total_seconds);
    let start = metrics.steps.first().map_or(0.0, time);
    let mut scalars_of: BTreeMap<u64, (f64, Vec<(String, f64)>)> = BTreeMap::new();
    for row in &metrics.steps {
        let values = TAGS.iter().filter_map(|(tag, key)| Some((tag.to_string(), row.values.get(key)?))).collect();
        scalars_of.insert(row.step, (time(row), values));
    }
    let held_out = metrics.held_out.iter().map(|measured| ("loss/held_out".to_string(), measured));
    let of_validation = |(name, losses): (&'_ String, &'_ Vec<HeldOut>)| {
        let tag = format!("loss/validation/{name}");
        losses.iter().map(|measured| (tag.clone(), *measured)).collect::<Vec<_>>()
    };
    let validation: Vec<(String, HeldOut)> = metrics.validation.iter().flat_map(of_validation).collect();
    for (tag, measured) in held_out.chain(validation.iter().map(|(tag, measured)| (tag.clone(), measured))) {
        let before = scalars_of.range(..=measured.step).next_back().map_or(start, |(_, (time, _))| *time);
        scalars_of.entry(measured.step).or_insert((before, vec![])).1.push((tag, measured.loss));
    }
    let mut file = record(&version_event(start));
    for (step, (time, values)) in &scalars_of {
        file.extend(record(&scalars(*time, *step, values)));
    }
    file
}

/// The first event of a file names its version.
fn version_event(time: f64) -> Vec<u8> {
    let mut event = vec![];
    double(&mut event, 1, time);
    bytes(&mut event, 3, b"brain.Event:2");
    event
}

/// `Event { wall_time, step, summary: Summary { value: [Value { tag, simple_value }] } }`.
fn scalars(time: f64, step: u64, values: &[(String, f64)]) -> Vec<u8> {
    let mut summary = vec![];
    for (tag, value) in values {
        let mut scalar = vec![];
        bytes(&mut scalar, 1, tag.as_bytes());
        float(&mut scalar, 2, *value as f32);
        bytes(&mut summary, 1, &scalar);
    }
    let mut event = vec![];
    double(&mut event, 1, time);
    key(&mut event, 2, 0);
    varint(&mut event, step);
    bytes(&mut event, 5, &summary);
    event
}

fn key(out: &mut Vec<u8>, field: u64, wire_type: u64) {
    varint(out, field << 3 | wire_type);
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn double(out: &mut Vec<u8>, field: u64, value: f64) {
    key(out, field, 1);
    out.extend(value.to_le_bytes());
}

fn float(out: &mut Vec<u8>, field: u64, value: f32) {
    key(out, field, 5);
    out.extend(value.to_le_bytes());
}

fn bytes(out: &mut Vec<u8>, field: u64, value: &[u8]) {
    key(out, field, 2);
    varint(out, value.len() as u64);
    out.extend(value);
}

/// Length, its checksum, the data, and its checksum.
fn record(data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u64).to_le_bytes();
    [&length, &masked(&length).to_le_bytes()[..], data, &masked(data).to_le_bytes()].concat()
}

/// A CRC-32C that may be inside of data with one: rotated, and moved by a constant.
fn masked(data: &[u8]) -> u32 {
    crc32c(data).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// The checksum of Castagnoli: polynomial 0x1EDC6F41, with the bits of each byte reversed.
fn crc32c(data: &[u8]) -> u32 {
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    let byte = |mut crc: u32| {
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ POLYNOMIAL } else { crc >> 1 };
        }
        crc
    };
    !data.iter().fold(!0, |crc, own| crc >> 8 ^ byte((crc ^ u32::from(*own)) & 0xff))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Vectors of RFC 3720, B.4.
    #[test]
    fn checksums_are_those_of_the_standard() {
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        let ascending: Vec<u8> = (0..32).collect();
        assert_eq!(crc32c(&ascending), 0x46dd_794e);
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn an_event_is_a_message_of_protocol_buffers() {
        let event = scalars(1.0, 300, &[("a".into(), 0.5)]);
        let expected = [
            &[0x09][..],
            &1f64.to_le_bytes(),
            &[0x10, 0xac, 0x02],
            &[0x2a, 10, 0x0a, 8, 0x0a, 1, b'a', 0x15],
            &0.5f32.to_le_bytes(),
        ];
        assert_eq!(event, expected.concat());
    }

    #[test]
    fn a_file_has_a_record_for_its_version_and_for_each_step() {
        let text = "{\"step\":1,\"loss\":4.5,\"time\":10.0}\n{\"step\":2,\"loss\":\"NaN\",\"time\":11.0}\n\
                    {\"step\":2,\"held_out_loss\":4.25}\n";
        let file = event_file(&Metrics::parse(text));
        let (mut rest, mut sizes) = (file.as_slice(), vec![]);
        while !rest.is_empty() {
            let size = u64::from_le_bytes(rest[..8].try_into().expect("eight bytes")) as usize;
            assert_eq!(rest[8..12], masked(&rest[..8]).to_le_bytes());
            assert_eq!(rest[12 + size..16 + size], masked(&rest[12..12 + size]).to_le_bytes());
            sizes.push(size);
            rest = &rest[16 + size..];
        }
        assert_eq!(sizes.len(), 3);
        let later = event_file(&Metrics::parse(&(text.to_string() + "{\"step\":7,\"held_out_loss\":4.0}\n")));
        // Of a step without a line: its number, and the time of the step before.
        let own = scalars(11.0, 7, &[("loss/held_out".into(), 4.0)]);
        assert!(later.windows(own.len()).any(|bytes| bytes == own));
        assert!(file.windows(13).any(|bytes| bytes == b"loss/held_out"));
    }
}
