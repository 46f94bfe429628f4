//! Pages in Chromium: their own geometry, and how they look.
//!
//! `PLEACH_CHROMIUM` is the name of the program, otherwise `chromium`. `RENEW_PICTURES=1` writes the reference pictures
//! again; look at them.

mod browser;
mod sample;

use std::path::{Path, PathBuf};

use browser::{Browser, Theme, Window};
use report::{Delivery, Metrics, Run, page};

const WIDE: Window = Window { width: 1280, height: 2700 };
const NARROW: Window = Window { width: 390, height: 4700 };
/// The share of a picture's tiles that another version of Chromium may change, by antialiasing of letters and lines.
/// Without its curves a page differs by more.
const TOLERATED: f64 = 0.02;

/// Texts that are outside of the window, over each other or in a box that cuts them off, and a page that scrolls
/// sideways.
const GEOMETRY: &str = include_str!("geometry.js");

fn problems(browser: &Browser, html: &str, window: Window, theme: Theme) -> Vec<String> {
    let checked = html.replace("</body>", &format!("<script>\n{GEOMETRY}\n</script></body>"));
    let found = browser.attribute(&checked, window, theme, "data-problems");
    serde_json::from_str(&found).expect("a list of problems")
}

#[needs::chromium]
#[test]
fn texts_are_apart_and_inside_at_any_width_and_theme() {
    let browser = Browser::find();
    let (one, long) = (sample::run("one", 240), sample::run("long", 10_000));
    for (name, runs) in [
        ("one", vec![one.clone()]),
        ("long", vec![long.clone()]),
        ("both", vec![one, long]),
        ("empty", vec![sample::empty()]),
        ("odd", sample::odd()),
        ("broken", vec![sample::broken()]),
    ] {
        let html = page(&runs, Delivery::File);
        // Odd runs are checked where there is the least room.
        let windows = if ["odd", "broken"].contains(&name) { &[NARROW][..] } else { &[WIDE, NARROW] };
        for window in windows.iter().copied() {
            // The theme changes colours only; one page in the other one shows it.
            let theme = if name == "both" { Theme::Dark } else { Theme::Light };
            let found = problems(&browser, &html, window, theme);
            assert_eq!(found, [""; 0], "{name} at {} pixels, {theme:?}", window.width);
        }
    }
}

#[needs::chromium]
#[test]
fn the_geometry_of_a_bad_page_is_bad() {
    let browser = Browser::find();
    let html = "<!doctype html><html><body><p style='position:absolute;left:20px;top:20px'>one text</p>\
                <p style='position:absolute;left:30px;top:24px'>another text</p><div style='width:1500px'>wide</div>\
                <p style='position:absolute;left:20px;top:90px;width:30px;overflow:hidden;white-space:nowrap'>cut off here</p>\
                </body></html>";
    let found = problems(&browser, html, WIDE, Theme::Light);
    for problem in
        ["\"one text\" and \"another text\" overlap", "the page is 1508 pixels wide", "\"cut off here\" is cut off"]
    {
        assert!(found.iter().any(|found| found.starts_with(problem)), "{problem}: {found:?}");
    }
}

/// All 10,000 steps are in the page, and the drawing has no more points than pixels can show.
#[needs::chromium]
#[test]
fn a_long_run_is_small() {
    let html = page(&[sample::run("long", 10_000)], Delivery::File);
    assert!(html.len() <= 3_000_000, "{} bytes", html.len());
    let browser = Browser::find();
    let drawn = browser.document(&html, WIDE, Theme::Light);
    let longest = drawn.split(" d=\"").skip(1).filter_map(|rest| rest.split('"').next());
    let points = longest.map(|path| path.matches(['M', 'L']).count()).max().unwrap_or(0);
    assert!((1_000..=5 * WIDE.width as usize).contains(&points), "{points} points");
    println!("drawn in {} ms", browser.attribute(&html, WIDE, Theme::Light, "data-drawn-ms"));
}

/// Under the pointer are the values of the runs that have steps there, and a run of one step is a dot.
#[needs::chromium]
#[test]
fn the_pointer_shows_runs_where_they_are() {
    let browser = Browser::find();
    let one = Run { name: "dot".into(), metrics: Metrics::parse("{\"step\":1,\"loss\":4.0}\n"), ..sample::empty() };
    let html = page(&[one, sample::run("short", 40), sample::run("long", 400)], Delivery::File);
    let pointer = "<script>{ const loss = document.querySelector('figure svg'), box = loss.getBoundingClientRect();\n\
        const tip = (share) => { loss.dispatchEvent(new PointerEvent('pointermove', { clientX: box.left + share * box.width, \
        clientY: box.top + 50 })); return document.getElementById('tip').textContent; };\n\
        document.documentElement.dataset.tips = [tip(0.03), tip(0.5), loss.querySelectorAll('circle').length > 0].join(' | '); }\
        </script></body>";
    let tips = browser.attribute(&html.replace("</body>", pointer), WIDE, Theme::Light, "data-tips");
    let tips: Vec<&str> = tips.split(" | ").collect();
    assert!(tips[0].contains("dot4.0000") && tips[0].contains("short") && tips[0].contains("long"), "{tips:?}");
    assert!(!tips[1].contains("dot") && !tips[1].contains("short") && tips[1].contains("long"), "{tips:?}");
    assert_eq!(tips[2], "true");
}

/// Pictures have DejaVu Sans; other fonts have other lines.
#[needs::chromium]
#[needs::dejavu]
#[test]
fn pages_look_as_before() {
    let browser = Browser::find();
    let html = page(&[sample::run("sample", 1000)], Delivery::File);
    for (width, window) in [("wide", Window { height: 1900, ..WIDE }), ("narrow", Window { height: 3200, ..NARROW })] {
        for (shade, theme) in [("light", Theme::Light), ("dark", Theme::Dark)] {
            let reference: PathBuf =
                Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("src/tests/chromium/pictures/{width}-{shade}.png"));
            let picture = browser.picture(&html, window, theme);
            if std::env::var_os("RENEW_PICTURES").is_some() {
                std::fs::write(&reference, &picture).expect("written");
            }
            let expected = std::fs::read(&reference).expect("a reference picture");
            assert!(expected.len() < 100_000, "{} has {} bytes", reference.display(), expected.len());
            let difference = browser.difference(&picture, &expected);
            assert!(difference <= TOLERATED, "{width}, {shade}: {difference} of {TOLERATED}");
        }
    }
}

/// A picture without its curves differs by more than is tolerated.
#[needs::chromium]
#[test]
fn a_page_without_curves_looks_different() {
    let browser = Browser::find();
    let html = page(&[sample::run("sample", 1000)], Delivery::File);
    let [with, without] =
        [html.clone(), html.replace("svg .line {", "svg .line, svg .raw { display: none } svg .line {")]
            .map(|html| browser.picture(&html, Window { width: 1280, height: 900 }, Theme::Light));
    assert!(browser.difference(&with, &with) == 0.0);
    assert!(browser.difference(&with, &without) > TOLERATED);
}
