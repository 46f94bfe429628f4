//! Who holds which experts, drawn: a column for each expert, a row for each rank.

use mesh::Rank;

use crate::explain::expert_map::{ExpertMap, layers};

/// Width of the picture.
const WIDTH: f64 = 1280.0;
/// Room for the names of ranks.
const LEFT: f64 = 150.0;
const ROW: f64 = 24.0;
/// The first row of a stage, below its title.
const TITLE: f64 = 34.0;
const TOP: f64 = 84.0;
/// Columns of this width or more have the number of their expert below.
const NUMBERED: f64 = 40.0;
/// Fills of tensor-parallel ranks in turns, those that colour-blind readers tell apart (Okabe and Ito 2008).
const FILLS: [&str; 6] = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00"];

/// The picture as SVG, with `title` above it.
pub fn picture(map: &ExpertMap, title: &str) -> String {
    let mut body = String::new();
    let mut top = TOP;
    for (stage, of_stage) in map.layers.iter().enumerate().filter(|(_, layers)| !layers.is_empty()) {
        let name = match map.layers.len() {
            1 => layers(of_stage),
            _ => format!("pp {stage}: {}", layers(of_stage)),
        };
        body += &text((LEFT, top + 16.0), "start", &format!("font-size=\"14\" fill=\"#111111\">{name}"));
        top += TITLE;
        let mut ranks: Vec<(Rank, usize)> = vec![];
        for (place, row) in map.rows.iter().enumerate() {
            ranks.extend(row.ranks[stage].iter().map(|rank| (*rank, place)));
        }
        ranks.sort_unstable();
        for (rank, place) in ranks {
            body += &row(map, (rank, place), top);
            top += ROW;
        }
        body += &axis(map.experts.number, top);
        top += ROW + 8.0;
    }
    let height = top + 30.0;
    let said = format!(
        "{} experts a layer, {} for each token. A filled place is an expert that the rank holds; ranks of one colour hold \
         the same ones and sum their gradients.",
        map.experts.number, map.experts.per_token
    );
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
         font-family=\"DejaVu Sans, Helvetica, Arial, sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n{}{}{body}</svg>\n",
        text(
            (20.0, 28.0),
            "start",
            &format!("font-size=\"17\" font-weight=\"bold\" fill=\"#111111\">{}", escaped(title))
        ),
        text((20.0, 52.0), "start", &format!("font-size=\"13\" fill=\"#555555\">{said}"))
    )
}

fn column(number: usize) -> f64 {
    (WIDTH - LEFT - 20.0) / number as f64
}

/// The places of one rank.
fn row(map: &ExpertMap, (rank, place): (Rank, usize), top: f64) -> String {
    let width = column(map.experts.number);
    let held = &map.rows[place].held;
    let mut row = text((LEFT - 10.0, top + 16.0), "end", &format!("fill=\"#111111\">rank {} (tp {place})", rank.0));
    row += &rect((LEFT, top), width * map.experts.number as f64, "#eeeeee", "");
    let tip = format!("<title>rank {} holds experts {} to {}</title>", rank.0, held.start, held.end - 1);
    for expert in held.clone() {
        row += &rect((LEFT + expert as f64 * width, top), width, FILLS[place % FILLS.len()], &tip);
    }
    row
}

/// Numbers of experts, as many as there is room for.
fn axis(number: usize, top: f64) -> String {
    let every = (NUMBERED / column(number)).ceil().max(1.0) as usize;
    let at = |expert: usize| LEFT + (expert as f64 + 0.5) * column(number);
    let numbers = (0..number).step_by(every);
    numbers.map(|expert| text((at(expert), top + 14.0), "middle", &format!("fill=\"#555555\">{expert}"))).collect()
}

fn rect((x, y): (f64, f64), width: f64, fill: &str, tip: &str) -> String {
    let height = ROW - 4.0;
    format!(
        "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{fill}\" stroke=\"#ffffff\" \
         stroke-width=\"1\">{tip}</rect>\n"
    )
}

/// A text at `place`; `rest` are other attributes, `>` and the text.
fn text((x, y): (f64, f64), anchor: &str, rest: &str) -> String {
    format!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" {rest}</text>\n")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
