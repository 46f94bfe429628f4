//! A step drawn as SVG: a row per rank, a block per stage and microbatch, a legend and a time axis.

use std::fmt::Write;

use crate::time_axis::{Tick, ticks};
use crate::trace::{Block, BlockKind, Trace, passes};

const WIDTH: f64 = 1600.0;
const LEFT: f64 = 90.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 76.0;
const ROW: f64 = 22.0;
const BAR: f64 = 16.0;
/// Height of the band of communication.
const COMMUNICATION: f64 = 5.0;
const AXIS: f64 = 44.0;
/// Width below which the turns of layers cannot be told apart.
const THIN: f64 = 4.0;
/// A digit's width at the size of the labels.
const DIGIT: f64 = 6.5;
/// Ticks of the time axis, about.
const TICKS: f64 = 10.0;

/// The drawing, under a title.
pub fn svg(trace: &Trace, title: &str) -> String {
    let end_ns = trace.end_ns().max(1);
    let scale = (WIDTH - LEFT - RIGHT) / end_ns as f64;
    let bottom = TOP + ROW * trace.ranks.len() as f64;
    let height = bottom + AXIS;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
         font-family=\"DejaVu Sans, Helvetica, Arial, sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n\
         <text x=\"{LEFT}\" y=\"24\" font-size=\"15\" fill=\"#111111\">{}</text>\n",
        escaped(title)
    );
    let thin_ns = (THIN / scale) as u64;
    let rows: Vec<Vec<Vec<Block>>> = trace.ranks.iter().map(|rank| passes(&rank.blocks(), thin_ns)).collect();
    let labels: Vec<Vec<Label>> = rows.iter().map(|passes| labels(passes, scale)).collect();
    let blocks: Vec<Vec<Block>> = rows.into_iter().map(|passes| passes.concat()).collect();
    out += &legend(&blocks, &labels);
    for (row, ((rank, blocks), labels)) in trace.ranks.iter().zip(&blocks).zip(&labels).enumerate() {
        let y = TOP + ROW * row as f64;
        let _ = writeln!(
            out,
            "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#111111\">{}</text>\
             <rect x=\"{LEFT}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{BAR}\" fill=\"{IDLE}\"/>",
            LEFT - 8.0,
            y + 12.5,
            escaped(&rank.name),
            WIDTH - LEFT - RIGHT,
        );
        out += &bars(blocks, y, scale);
        out.extend(labels.iter().map(|label| label.at(y)));
    }
    out += &axis(end_ns, scale, bottom);
    out + "</svg>\n"
}

/// What waiting looks like.
const IDLE: &str = "#eeeeee";

/// Colours of Okabe and Ito, which differ in lightness as well: even and odd microbatches.
fn colours(kind: BlockKind) -> [&'static str; 2] {
    match kind {
        BlockKind::Forward => ["#0072b2", "#2a8cc4"],
        BlockKind::Recompute => ["#56b4e9", "#7cc5ee"],
        BlockKind::Backward => ["#d55e00", "#e07b2f"],
        BlockKind::BackwardInput => ["#e69f00", "#edb53d"],
        BlockKind::BackwardWeight => ["#f0e442", "#f5ec7e"],
        BlockKind::Communication => ["#a0468c", "#a0468c"],
        BlockKind::Optimizer => ["#333333", "#333333"],
    }
}

/// White on dark blocks, black on light ones.
fn label_colour(kind: BlockKind) -> &'static str {
    match kind {
        BlockKind::Forward | BlockKind::Communication | BlockKind::Optimizer => "#ffffff",
        BlockKind::Recompute | BlockKind::Backward | BlockKind::BackwardInput | BlockKind::BackwardWeight => "#111111",
    }
}

fn legend(blocks: &[Vec<Block>], labels: &[Vec<Label>]) -> String {
    let present = |kind: BlockKind| blocks.iter().flatten().any(|block| block.kind == kind);
    let drawn = BlockKind::ALL.into_iter().filter(|kind| present(*kind)).map(|kind| (kind.name(), colours(kind)[0]));
    let mut x = LEFT;
    let mut out = String::new();
    for (name, colour) in drawn.chain([("waiting", IDLE)]) {
        let _ = writeln!(
            out,
            "<rect x=\"{x:.1}\" y=\"40\" width=\"14\" height=\"14\" fill=\"{colour}\" stroke=\"#888888\" stroke-width=\"0.5\"/>\
             <text x=\"{:.1}\" y=\"52\" fill=\"#111111\">{name}</text>",
            x + 20.0
        );
        x += 50.0 + 7.5 * name.len() as f64;
    }
    let is_unlabelled = labels.iter().all(Vec::is_empty);
    let numbers = if is_unlabelled { "the shade changes with the microbatch" } else { "numbers are microbatches" };
    out + &format!("<text x=\"{:.1}\" y=\"52\" fill=\"#555555\">{numbers}</text>\n", x + 10.0)
}

fn bars(blocks: &[Block], y: f64, scale: f64) -> String {
    let mut out = String::new();
    for kind in BlockKind::ALL {
        for parity in [0, 1] {
            let of_kind =
                blocks.iter().filter(|block| block.kind == kind && block.microbatch.unwrap_or(0) % 2 == parity);
            let mut path = String::new();
            for block in of_kind {
                let (x, width) = span(block, scale);
                let (top, height) = band(kind, y);
                let _ = write!(path, "M{x:.2} {top:.1}h{width:.2}v{height}h-{width:.2}z");
            }
            if !path.is_empty() {
                let _ = writeln!(out, "<path fill=\"{}\" d=\"{path}\"/>", colours(kind)[parity as usize]);
            }
        }
    }
    out
}

/// The number of a microbatch, in the middle of its pass.
struct Label {
    number: u32,
    x: f64,
    colour: &'static str,
}

impl Label {
    fn at(&self, y: f64) -> String {
        let Label { number, x, colour } = self;
        let y = y + 11.5;
        format!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"10\" text-anchor=\"middle\" fill=\"{colour}\">{number}</text>\n"
        )
    }
}

/// The labels for which there is room.
fn labels(passes: &[Vec<Block>], scale: f64) -> Vec<Label> {
    let label = |pass: &Vec<Block>| {
        let (first, last) = (pass.first()?, pass.last()?);
        let (x, width) = span(&Block { end_ns: last.end_ns, ..*first }, scale);
        let number = first.microbatch?;
        let digits = number.checked_ilog10().unwrap_or(0) + 1;
        let has_room = width >= DIGIT * f64::from(digits) + 4.0;
        has_room.then(|| Label { number, x: x + width / 2.0, colour: label_colour(first.kind) })
    };
    passes.iter().filter_map(label).collect()
}

/// Top and height: communication runs beside what computes, so it has a band of its own at the bottom of the row.
fn band(kind: BlockKind, y: f64) -> (f64, f64) {
    match kind {
        BlockKind::Communication => (y + BAR - COMMUNICATION, COMMUNICATION),
        BlockKind::Forward
        | BlockKind::Recompute
        | BlockKind::Backward
        | BlockKind::BackwardInput
        | BlockKind::BackwardWeight
        | BlockKind::Optimizer => (y, BAR),
    }
}

/// Left edge and width; what would be thinner than a hair is a hair.
fn span(block: &Block, scale: f64) -> (f64, f64) {
    (LEFT + block.start_ns as f64 * scale, ((block.end_ns - block.start_ns) as f64 * scale).max(0.3))
}

fn axis(end_ns: u64, scale: f64, bottom: f64) -> String {
    let mut out = String::new();
    for Tick { at_ns, label } in ticks(end_ns, TICKS) {
        let x = LEFT + at_ns * scale;
        let _ = writeln!(
            out,
            "<path stroke=\"#888888\" d=\"M{x:.1} {:.1}v6\"/><text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#111111\">{label}</text>",
            bottom + 2.0,
            bottom + 22.0
        );
    }
    out
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use config::{Microbatch, Unit};
    use program::Instr;

    use super::*;
    use crate::trace::{RankTrace, TimedInstr};

    /// One rank that computes each of so many microbatches forward, and again for a backward pass.
    fn drawn(microbatches: u32) -> String {
        let unit = Unit::Layer(0);
        let instrs = (0..microbatches).flat_map(|number| {
            let microbatch = Microbatch(number);
            let passes = [
                Instr::Forward { unit, microbatch },
                Instr::Recompute { unit, microbatch },
                Instr::BackwardInput { unit, microbatch },
            ];
            let start = |turn: usize| 1000 * (3 * u64::from(number) + turn as u64);
            let timed = move |(turn, instr)| TimedInstr { instr, start_ns: start(turn), end_ns: start(turn + 1) };
            passes.into_iter().enumerate().map(timed).collect::<Vec<_>>()
        });
        let rank = RankTrace { number: 0, name: "pp 0".into(), instrs: instrs.collect() };
        svg(&Trace { ranks: vec![rank], messages: vec![] }, "title")
    }

    #[test]
    fn the_legend_says_what_is_drawn() {
        let (few, many) = (drawn(4), drawn(2000));
        for word in ["forward", "forward again", "backward of inputs", "waiting"] {
            assert!(few.contains(&format!(">{word}<")) && many.contains(&format!(">{word}<")), "{word}");
        }
        assert!(!few.contains(">communication<"));
        assert!(few.contains("numbers are microbatches") && few.contains(">3</text>"));
        assert!(many.contains("the shade changes with the microbatch") && !many.contains(">3</text>"));
    }
}
