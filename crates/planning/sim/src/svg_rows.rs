//! Rows of a drawing: the ranks of a step within a window of time, with numbers and tips.

use std::fmt::Write;

use crate::svg_text::escaped;
use crate::time_axis::{Tick, ticks};
use crate::trace::{Block, BlockKind, RankTrace, passes};

/// Height of a row, with the gap below it.
pub(crate) const ROW: f64 = 22.0;
const BAR: f64 = 16.0;
/// Height of the band of communication.
const COMMUNICATION: f64 = 5.0;
/// Height of the axis below the rows.
pub(crate) const AXIS: f64 = 34.0;
/// Width below which the turns of layers cannot be distinguished.
const THIN: f64 = 4.0;
/// A digit's width at the size of the labels.
const DIGIT: f64 = 6.5;
/// Columns between ticks of the time axis, about.
const TICK_DISTANCE: f64 = 90.0;
/// Blocks of a drawing, each of which has a tip; of more, the tips would be larger than the drawing.
const MOST_TIPS: usize = 4_000;

/// Time from one nanosecond to another, drawn between two columns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) from_ns: u64,
    pub(crate) to_ns: u64,
    pub(crate) left: f64,
    pub(crate) width: f64,
    pub(crate) top: f64,
}

impl Window {
    fn scale(&self) -> f64 {
        self.width / (self.to_ns - self.from_ns).max(1) as f64
    }

    /// The nanosecond that is drawn at this distance from the left edge.
    pub(crate) fn at(&self, pixels: f64) -> u64 {
        self.from_ns + (pixels / self.scale()).round() as u64
    }

    fn x(&self, at_ns: u64) -> f64 {
        self.left + (at_ns as f64 - self.from_ns as f64) * self.scale()
    }

    /// The part of a block within it.
    fn part(&self, block: &Block) -> Option<Block> {
        let (start_ns, end_ns) = (block.start_ns.max(self.from_ns), block.end_ns.min(self.to_ns));
        (start_ns < end_ns).then_some(Block { start_ns, end_ns, ..*block })
    }

    /// Left edge and width; what would be thinner than a hair is a hair.
    fn span(&self, block: &Block) -> (f64, f64) {
        (self.x(block.start_ns), ((block.end_ns - block.start_ns) as f64 * self.scale()).max(0.3))
    }
}

/// Rows of ranks within a window, drawn.
pub(crate) struct Rows {
    /// The elements.
    pub(crate) text: String,
    /// The kinds that are drawn.
    pub(crate) kinds: Vec<BlockKind>,
    /// Whether blocks have the numbers of their microbatches.
    pub(crate) has_numbers: bool,
}

/// The look of waiting.
pub(crate) const IDLE: &str = "#eeeeee";

/// Draws `ranks` in `window`, with an axis below them.
pub(crate) fn rows(ranks: &[RankTrace], window: Window) -> Rows {
    let thin_ns = (THIN / window.scale()) as u64;
    let drawn: Vec<Vec<Vec<Block>>> = ranks
        .iter()
        .map(|rank| {
            let blocks: Vec<Block> = rank.blocks().iter().filter_map(|block| window.part(block)).collect();
            passes(&blocks, thin_ns)
        })
        .collect();
    let has_tips = drawn.iter().flatten().flatten().count() <= MOST_TIPS;
    let (mut text, mut has_numbers) = (String::new(), false);
    for (row, (rank, passes)) in ranks.iter().zip(&drawn).enumerate() {
        let y = window.top + ROW * row as f64;
        let _ = writeln!(
            text,
            "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#111111\">{}</text>\
             <rect x=\"{}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{BAR}\" fill=\"{IDLE}\"/>",
            window.left - 8.0,
            y + 12.5,
            escaped(&rank.name),
            window.left,
            window.width,
        );
        let blocks = passes.concat();
        text += &if has_tips { tipped(&blocks, &rank.name, y, window) } else { joined(&blocks, y, window) };
        let numbers: Vec<String> = passes.iter().filter_map(|pass| number(pass, y, window)).collect();
        has_numbers |= !numbers.is_empty();
        text.extend(numbers);
    }
    text += &axis(window, window.top + ROW * ranks.len() as f64);
    let has = |kind: &BlockKind| drawn.iter().flatten().flatten().any(|block| block.kind == *kind);
    Rows { text, kinds: BlockKind::ALL.into_iter().filter(has).collect(), has_numbers }
}

/// Colours of Okabe and Ito, which differ in lightness as well: even and odd microbatches.
pub(crate) fn colours(kind: BlockKind) -> [&'static str; 2] {
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

/// A rectangle for each block, with a tip.
fn tipped(blocks: &[Block], name: &str, y: f64, window: Window) -> String {
    let block = |block: &Block| {
        let ((x, width), (top, height)) = (window.span(block), band(block.kind, y));
        let fill = colours(block.kind)[(block.microbatch.unwrap_or(0) % 2) as usize];
        let of = block.microbatch.map_or(String::new(), |number| format!(" of microbatch {number}"));
        let [start, length] = [block.start_ns, block.end_ns - block.start_ns].map(time);
        format!(
            "<rect x=\"{x:.2}\" y=\"{top:.1}\" width=\"{width:.2}\" height=\"{height}\" fill=\"{fill}\"><title>{}: {}{of}, {length} from \
             {start}</title></rect>\n",
            escaped(name),
            block.kind.name(),
        )
    };
    blocks.iter().map(block).collect()
}

/// One path for all blocks of a kind and shade.
fn joined(blocks: &[Block], y: f64, window: Window) -> String {
    let mut out = String::new();
    for kind in BlockKind::ALL {
        for parity in [0, 1] {
            let of_kind =
                blocks.iter().filter(|block| block.kind == kind && block.microbatch.unwrap_or(0) % 2 == parity);
            let mut path = String::new();
            for block in of_kind {
                let ((x, width), (top, height)) = (window.span(block), band(kind, y));
                let _ = write!(path, "M{x:.2} {top:.1}h{width:.2}v{height}h-{width:.2}z");
            }
            if !path.is_empty() {
                let _ = writeln!(out, "<path fill=\"{}\" d=\"{path}\"/>", colours(kind)[parity as usize]);
            }
        }
    }
    out
}

/// The number of a microbatch in the middle of its pass, where there is room.
fn number(pass: &[Block], y: f64, window: Window) -> Option<String> {
    let (first, last) = (pass.first()?, pass.last()?);
    let (x, width) = window.span(&Block { end_ns: last.end_ns, ..*first });
    let number = first.microbatch?;
    let digits = number.checked_ilog10().unwrap_or(0) + 1;
    let (x, y, colour) = (x + width / 2.0, y + 11.5, label_colour(first.kind));
    let has_room = width >= DIGIT * f64::from(digits) + 2.0;
    has_room.then(|| {
        format!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"10\" text-anchor=\"middle\" fill=\"{colour}\" pointer-events=\"none\">\
             {number}</text>\n"
        )
    })
}

/// Top and height: communication runs at the same time as computation, so it has a band of its own at the bottom of the
/// row.
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

/// Moments below rows.
pub(crate) fn axis(window: Window, bottom: f64) -> String {
    let mut out = String::new();
    for Tick { at_ns, label } in ticks(window.to_ns, window.to_ns as f64 * window.scale() / TICK_DISTANCE) {
        if at_ns < window.from_ns as f64 {
            continue;
        }
        let x = window.x(at_ns as u64);
        let _ = writeln!(
            out,
            "<path stroke=\"#888888\" d=\"M{x:.1} {:.1}v6\"/><text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#555555\">{label}</text>",
            bottom + 2.0,
            bottom + 22.0
        );
    }
    out
}

/// `1.234 ms`.
pub(crate) fn time(ns: u64) -> String {
    match ns {
        ..1_000_000 => format!("{:.1} µs", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2} ms", ns as f64 / 1e6),
        1_000_000_000.. => format!("{:.2} s", ns as f64 / 1e9),
    }
}
