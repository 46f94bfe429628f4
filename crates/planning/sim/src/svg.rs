//! A step drawn as SVG: a caption, a row per rank with a block per stage and microbatch, the first and the last
//! microbatches of many once more, larger, memory over time, and bars of where the time goes.

use std::fmt::Write;

use crate::memory_over_time::MemoryOverTime;
use crate::svg_memory::MemoryRows;
use crate::svg_rows::{AXIS, IDLE, ROW, Rows, Window, colours, rows, time};
use crate::svg_text::{Fitted, escaped, fitted};
use crate::trace::{RankTrace, Trace};

/// The width of the drawing: that of the narrowest window of a desktop.
const WIDTH: f64 = 1280.0;
const LEFT: f64 = 60.0;
const RIGHT: f64 = 80.0;
const TOP: f64 = 116.0;
/// Height of a heading within the drawing.
const HEADING: f64 = 30.0;
/// Columns between the two larger drawings.
const GAP: f64 = 70.0;
/// Microbatches of a rank whose numbers a row has room for.
const READABLE: u32 = 24;
/// Microbatches of a rank in each of the two larger drawings, about.
const ENLARGED: u32 = 10;
/// Height of a bar of time with its gap.
const SPENT: f64 = 22.0;

/// The texts around the drawing of a step, and what is drawn below it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caption {
    /// The run: the name of its model, and its layout.
    pub title: String,
    /// Time, speed and shares of the step.
    pub subtitle: String,
    /// The size of the model, and the cluster.
    pub details: String,
    /// Where the time of the step goes, in nanoseconds.
    pub spent: Vec<(String, u64)>,
    /// Names of stages and the memory of one of their ranks; nothing where that is not known.
    pub memory: Vec<(String, MemoryOverTime)>,
    /// Bytes that a rank has.
    pub memory_limit_bytes: u64,
}

/// The drawing.
pub fn svg(trace: &Trace, caption: &Caption) -> String {
    let end_ns = trace.end_ns().max(1);
    let height_of_rows = ROW * trace.ranks.len() as f64 + AXIS;
    let whole = Window { from_ns: 0, to_ns: end_ns, left: LEFT, width: WIDTH - LEFT - RIGHT, top: TOP };
    let all = rows(&trace.ranks, whole);
    let mut bottom = TOP + height_of_rows;
    let mut body = legend(&all) + &all.text;
    if microbatches(&trace.ranks) > READABLE {
        body += &enlarged(trace, bottom);
        bottom += HEADING + height_of_rows;
    }
    if !caption.memory.is_empty() {
        let memory = MemoryRows { stages: &caption.memory, limit_bytes: caption.memory_limit_bytes as f64 };
        body += &heading(&memory.heading(), LEFT, bottom);
        body += &memory.drawn(Window { top: bottom + HEADING, ..whole });
        bottom += HEADING + memory.height();
    }
    if !caption.spent.is_empty() {
        body += &bars(&caption.spent, bottom);
        bottom += HEADING + SPENT * caption.spent.len() as f64;
    }
    let height = bottom + 16.0;
    let title = line(&caption.title, 26.0, 17.0, " font-weight=\"bold\" fill=\"#111111\"");
    let subtitle = line(&caption.subtitle, 48.0, 14.0, " fill=\"#111111\"");
    let details = line(&caption.details, 68.0, 13.0, " fill=\"#555555\"");
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
         font-family=\"DejaVu Sans, Helvetica, Arial, sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n{title}{subtitle}{details}{body}</svg>\n"
    )
}

/// A line of the caption, no wider than the drawing; one that is cut has its whole text as a tip.
fn line(text: &str, y: f64, size: f64, style: &str) -> String {
    let Fitted { text: shown, size, is_cut } = fitted(text, WIDTH - 2.0 * LEFT, size);
    let tip = if is_cut { format!("<title>{}</title>", escaped(text)) } else { String::new() };
    format!("<text x=\"{LEFT}\" y=\"{y}\" font-size=\"{size}\"{style}>{tip}{}</text>\n", escaped(&shown))
}

/// The largest number of microbatches of a rank.
fn microbatches(ranks: &[RankTrace]) -> u32 {
    let numbers = ranks.iter().flat_map(|rank| &rank.instrs).filter_map(|timed| timed.instr.microbatch());
    numbers.map(|microbatch| microbatch.0 + 1).max().unwrap_or(0)
}

/// The beginning and the end of the step side by side, each as long as some microbatches take.
fn enlarged(trace: &Trace, top: f64) -> String {
    let end_ns = trace.end_ns().max(1);
    let length_ns = (end_ns / u64::from(microbatches(&trace.ranks)) * u64::from(ENLARGED)).clamp(1, end_ns);
    let width = (WIDTH - LEFT - RIGHT - GAP) / 2.0;
    let first = Window { from_ns: 0, to_ns: length_ns, left: LEFT, width, top: top + HEADING };
    // After the last pass come reductions and the norm, which the whole drawing shows.
    let passes = trace.ranks.iter().flat_map(|rank| &rank.instrs).filter(|timed| timed.instr.pass().is_some());
    let to_ns = passes.map(|timed| timed.end_ns).max().unwrap_or(end_ns).max(length_ns);
    let last = Window { from_ns: to_ns - length_ns, to_ns, left: LEFT + width + GAP, ..first };
    let drawn = |name: &str, window: Window| heading(name, window.left, top) + &rows(&trace.ranks, window).text;
    drawn("the first microbatches", first) + &drawn("the last microbatches", last)
}

fn heading(text: &str, x: f64, top: f64) -> String {
    format!(
        "<text x=\"{x}\" y=\"{:.1}\" font-size=\"13\" font-weight=\"bold\" fill=\"#111111\">{text}</text>\n",
        top + 18.0
    )
}

/// A bar for each part of the step's time, with its share.
fn bars(spent: &[(String, u64)], top: f64) -> String {
    const NAMES: f64 = 300.0;
    const LONGEST: f64 = 640.0;
    let all: u64 = spent.iter().map(|(_, ns)| ns).sum();
    let most = spent.iter().map(|(_, ns)| *ns).max().unwrap_or(0).max(1);
    let mut out = heading("where the time of the slowest rank goes", LEFT, top);
    for (index, (name, ns)) in spent.iter().enumerate() {
        let y = top + HEADING + SPENT * index as f64;
        let (x, width) = (LEFT + NAMES, LONGEST * *ns as f64 / most as f64);
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#111111\">{}</text>\
             <rect x=\"{x}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"14\" fill=\"#4a6fa5\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" fill=\"#555555\">{}, {}</text>",
            x - 8.0,
            y + 11.5,
            escaped(name),
            x + width + 8.0,
            y + 11.5,
            time(*ns),
            escaped(&share(*ns, all)),
        );
    }
    out
}

/// `34.1 %`; a part that is there is never 0.0 %.
pub fn share(part_ns: u64, all_ns: u64) -> String {
    let percent = 100.0 * part_ns as f64 / all_ns.max(1) as f64;
    if part_ns > 0 && percent < 0.05 { "< 0.1 %".into() } else { format!("{percent:.1} %") }
}

fn legend(all: &Rows) -> String {
    let drawn = all.kinds.iter().map(|kind| (kind.name(), colours(*kind)[0]));
    let mut x = LEFT;
    let mut out = String::new();
    for (name, colour) in drawn.chain([("waiting", IDLE)]) {
        let _ = writeln!(
            out,
            "<rect x=\"{x:.1}\" y=\"82\" width=\"14\" height=\"14\" fill=\"{colour}\" stroke=\"#888888\" stroke-width=\"0.5\"/>\
             <text x=\"{:.1}\" y=\"94\" fill=\"#111111\">{name}</text>",
            x + 20.0
        );
        x += 50.0 + 7.5 * name.len() as f64;
    }
    let numbers = if all.has_numbers { "numbers are microbatches" } else { "the shade changes with the microbatch" };
    out + &format!("<text x=\"{:.1}\" y=\"94\" fill=\"#555555\">{numbers}</text>\n", x + 10.0)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use config::{Microbatch, Unit};
    use program::Instr;

    use super::*;
    use crate::memory::MemoryPart;
    use crate::trace::{RankTrace, TimedInstr};

    /// One rank that computes each of this many microbatches forward, and again for a backward pass.
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
        let spent = vec![("a < b".to_string(), 3_000), ("kernels".to_string(), 1_000)];
        let at = |ns, bytes| (ns, BTreeMap::from([(MemoryPart::Activations, bytes)]));
        let memory = vec![("pp 0".to_string(), MemoryOverTime::new([at(0, 500), at(1000, 900)]))];
        let caption = Caption {
            title: "GPT & layout".into(),
            subtitle: "4.00 µs".into(),
            details: "1,000 parameters".into(),
            spent,
            memory,
            memory_limit_bytes: 1000,
        };
        svg(&Trace { ranks: vec![rank], messages: vec![] }, &caption)
    }

    #[test]
    fn the_legend_says_what_is_drawn() {
        let (few, many) = (drawn(4), drawn(2000));
        for word in ["forward", "recompute", "backward of inputs", "waiting"] {
            assert!(few.contains(&format!(">{word}<")) && many.contains(&format!(">{word}<")), "{word}");
        }
        assert!(!few.contains(">communication<"));
        assert!(few.contains("numbers are microbatches") && few.contains(">3</text>"));
        assert!(many.contains("the shade changes with the microbatch"));
    }

    #[test]
    fn a_drawing_says_what_it_shows_and_where_the_time_goes() {
        let few = drawn(4);
        for text in [
            ">GPT &amp; layout<",
            ">4.00 µs<",
            ">1,000 parameters<",
            ">a &lt; b<",
            ">3.0 µs, 75.0 %<",
            ">1.0 µs, 25.0 %<",
            "light the rest; a row is 900 B high, of 1.00 kB<",
            ">900 B<",
        ] {
            assert!(few.contains(text), "{text}");
        }
        let tip = "<title>pp 0: forward of microbatch 3, 1.0 µs from 9.0 µs</title>";
        assert!(few.contains(tip), "{few}");
    }

    #[test]
    fn a_part_that_is_there_is_not_nothing() {
        let shares =
            [(0, 100), (1, 10_000), (6, 10_000), (34_100, 100_000), (5, 0)].map(|(part, all)| share(part, all));
        assert_eq!(shares, ["0.0 %", "< 0.1 %", "0.1 %", "34.1 %", "500.0 %"]);
    }

    /// The numbers of 128 microbatches have no room in a row; the first and the last ones are drawn again.
    #[test]
    fn many_microbatches_are_readable_at_both_ends() {
        let (few, many) = (drawn(4), drawn(128));
        assert!(!few.contains("the first microbatches") && many.contains("the first microbatches"));
        let numbers: Vec<u32> = many
            .split("pointer-events=\"none\">")
            .skip(1)
            .filter_map(|rest| rest.split('<').next()?.parse().ok())
            .collect();
        for number in [0, 5, 9, 118, 127] {
            assert!(numbers.contains(&number), "{number}: {numbers:?}");
        }
        assert!(drawn(2000).len() < 600_000, "no tips where they would be larger than the drawing");
    }
}
