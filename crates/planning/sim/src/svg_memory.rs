//! Memory over time: a row per stage, below the passes and on the same axis.

use std::fmt::Write;

use crate::memory::MemoryPart;
use crate::memory_over_time::MemoryOverTime;
use crate::svg_rows::{AXIS, Window, axis, time};
use crate::svg_text::escaped;

/// Height of all rows together, about; and the least and the largest height of one.
const TOGETHER: f64 = 380.0;
const HEIGHTS: [f64; 2] = [16.0, 64.0];
/// Gap below a row.
const GAP: f64 = 6.0;
/// Pixels of a row that share a tip.
const TIP: f64 = 24.0;
/// Tips of a drawing; of more, they would be larger than the drawing.
const MOST_TIPS: usize = 4_000;
/// Colours of state, which stays from step to step, and of all other bytes.
const STATE: &str = "#4a6fa5";
const PASSING: &str = "#a9c4e4";
const LIMIT: &str = "#c0392b";

/// Memory of stages to draw.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemoryRows<'a> {
    /// Names of stages with their memory.
    pub(crate) stages: &'a [(String, MemoryOverTime)],
    /// Bytes that a rank has.
    pub(crate) limit_bytes: f64,
}

/// Where a row is, and its scale.
#[derive(Clone, Copy)]
struct Row {
    window: Window,
    /// Its lower edge.
    bottom: f64,
    height: f64,
    bytes_per_row: f64,
}

impl Row {
    fn height_of(&self, bytes: usize) -> f64 {
        self.height * bytes as f64 / self.bytes_per_row
    }
}

impl MemoryRows<'_> {
    /// The height of the rows with their axis.
    pub(crate) fn height(&self) -> f64 {
        (self.row() + GAP) * self.stages.len() as f64 + AXIS
    }

    /// The height of a row.
    fn row(&self) -> f64 {
        (TOGETHER / self.stages.len().max(1) as f64).clamp(HEIGHTS[0], HEIGHTS[1])
    }

    /// The bytes that a row is high: the most that any stage uses.
    fn bytes_per_row(&self) -> f64 {
        self.stages.iter().map(|(_, memory)| memory.peak_bytes()).max().unwrap_or(0).max(1) as f64
    }

    /// The scale and the colours.
    pub(crate) fn heading(&self) -> String {
        let (scale, limit) = (self.bytes_per_row(), self.limit_bytes);
        let line = if scale > limit { ", which the line shows" } else { "" };
        format!(
            "memory of one rank of each stage: dark is state between steps, light the rest; a row is {} high, of {}{line}",
            bytes(scale),
            bytes(limit)
        )
    }

    /// The rows in `window`, from its top on.
    pub(crate) fn drawn(&self, window: Window) -> String {
        let (mut out, bytes_per_row) = (String::new(), self.bytes_per_row());
        let tips = (window.width / TIP) as usize;
        let has_tips = tips * self.stages.len() <= MOST_TIPS;
        for (index, (name, memory)) in self.stages.iter().enumerate() {
            let height = self.row();
            let top = window.top + (height + GAP) * index as f64;
            let row = Row { window, bottom: top + height, height, bytes_per_row };
            let middle = top + height / 2.0 + 4.0;
            let _ = writeln!(
                out,
                "<text x=\"{}\" y=\"{middle:.1}\" text-anchor=\"end\" fill=\"#111111\">{}</text>\
                 <rect x=\"{}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{height:.1}\" fill=\"#f4f4f4\"/>\
                 <path fill=\"{PASSING}\" d=\"{}\"/><path fill=\"{STATE}\" d=\"{}\"/>\
                 <text x=\"{:.1}\" y=\"{middle:.1}\" fill=\"#555555\">{}</text>",
                window.left - 8.0,
                escaped(name),
                window.left,
                window.width,
                area(memory, row, |_| true),
                area(memory, row, stays),
                window.left + window.width + 8.0,
                bytes(memory.peak_bytes() as f64),
            );
            if self.limit_bytes < bytes_per_row {
                let y = row.bottom - row.height * self.limit_bytes / bytes_per_row;
                let right = window.left + window.width;
                let _ = writeln!(out, "<path stroke=\"{LIMIT}\" d=\"M{} {y:.1}H{right:.1}\"/>", window.left);
            }
            if has_tips {
                out.extend((0..tips).filter_map(|index| tip(name, memory, row, index)));
            }
        }
        out + &axis(window, window.top + (self.row() + GAP) * self.stages.len() as f64 - GAP + 2.0)
    }
}

/// Whether bytes stay from step to step.
fn stays(part: MemoryPart) -> bool {
    match part {
        MemoryPart::Parameters
        | MemoryPart::Gradients
        | MemoryPart::Optimizer
        | MemoryPart::Constants
        | MemoryPart::Process => true,
        MemoryPart::Gathered
        | MemoryPart::Activations
        | MemoryPart::Logits
        | MemoryPart::Communication
        | MemoryPart::Scratch => false,
    }
}

/// The outline of the parts that `counts`: of every pixel the moment at which most bytes are in use.
fn area(memory: &MemoryOverTime, row: Row, counts: fn(MemoryPart) -> bool) -> String {
    let Row { window, bottom, .. } = row;
    let mut path = format!("M{} {bottom:.1}", window.left);
    let mut last = f64::NAN;
    for pixel in 0..window.width as usize {
        let (from_ns, to_ns) = (window.at(pixel as f64), window.at(pixel as f64 + 1.0));
        let Some((_, bytes)) = memory.largest(from_ns, to_ns) else { continue };
        let parts = memory.parts().iter().zip(bytes).filter(|(part, _)| counts(**part));
        let y = bottom - row.height_of(parts.map(|(_, bytes)| *bytes).sum());
        // Written as it is shown: equal heights take one line.
        if format!("{y:.1}") != format!("{last:.1}") {
            let _ = write!(path, "H{}V{y:.1}", window.left + pixel as f64);
            last = y;
        }
    }
    format!("{path}H{:.1}V{bottom:.1}z", window.left + window.width)
}

/// An invisible part of a row whose tip lists its bytes.
fn tip(name: &str, memory: &MemoryOverTime, row: Row, index: usize) -> Option<String> {
    let x = TIP * index as f64;
    let (from_ns, to_ns) = (row.window.at(x), row.window.at(x + TIP));
    let (ns, alive) = memory.largest(from_ns, to_ns)?;
    let parts = memory.parts().iter().zip(alive).filter(|(_, bytes)| **bytes > 0);
    let parts: Vec<String> = parts.map(|(part, own)| format!("{part} {}", bytes(*own as f64))).collect();
    let all = bytes(alive.iter().sum::<usize>() as f64);
    Some(format!(
        "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{TIP}\" height=\"{:.1}\" fill-opacity=\"0\"><title>{}: {all} at {}: {}</title></rect>\n",
        row.window.left + x,
        row.bottom - row.height,
        row.height,
        escaped(name),
        time(ns.max(from_ns)),
        parts.join(", ")
    ))
}

/// `54.3 GB`.
fn bytes(bytes: f64) -> String {
    let units = [(1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")];
    match units.into_iter().find(|(unit, _)| bytes >= *unit) {
        None => format!("{bytes:.0} B"),
        Some((unit, name)) => {
            let value = bytes / unit;
            let decimals = if value < 9.995 { 2 } else { usize::from(value < 99.95) };
            format!("{value:.decimals$} {name}")
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn stage(peak: usize) -> (String, MemoryOverTime) {
        let at = |ns, activations| {
            (ns, BTreeMap::from([(MemoryPart::Parameters, 40), (MemoryPart::Activations, activations)]))
        };
        ("pp 0".into(), MemoryOverTime::new([at(0, 0), at(50, peak - 40), at(75, 0)]))
    }

    fn window() -> Window {
        Window { from_ns: 0, to_ns: 100, left: 0.0, width: 100.0, top: 0.0 }
    }

    #[test]
    fn a_row_is_as_high_as_its_memory() {
        let stages = [stage(80)];
        let rows = MemoryRows { stages: &stages, limit_bytes: 160.0 };
        assert!(rows.heading().ends_with("; a row is 80 B high, of 160 B"), "{}", rows.heading());
        let drawn = rows.drawn(window());
        // 64 pixels are 80 bytes, and 32 are 40.
        assert!(drawn.contains("d=\"M0 64.0H0V32.0H50V0.0H75V32.0H100.0V64.0z\""), "{drawn}");
        assert!(drawn.contains("d=\"M0 64.0H0V32.0H100.0V64.0z\""), "{drawn}");
        assert!(drawn.contains("<title>pp 0: 80 B at 0.1 µs: parameters 40 B, activations 40 B</title>"), "{drawn}");
        assert!(drawn.contains(">80 B</text>") && !drawn.contains(LIMIT));
    }

    #[test]
    fn too_much_memory_is_above_a_line() {
        let stages = [stage(80)];
        let much = MemoryRows { stages: &stages, limit_bytes: 60.0 };
        assert!(much.heading().ends_with("a row is 80 B high, of 60 B, which the line shows"), "{}", much.heading());
        assert!(much.drawn(window()).contains("<path stroke=\"#c0392b\" d=\"M0 16.0H100.0\"/>"));
        assert!(much.height() < 64.0 + GAP + AXIS + 0.1);
    }

    #[test]
    fn bytes_have_three_digits() {
        let shown = [0.0, 999.0, 1e3, 54.32e9, 9.999e6, 123.4e12].map(bytes);
        assert_eq!(shown, ["0 B", "999 B", "1.00 kB", "54.3 GB", "10.0 MB", "123 TB"]);
    }
}
