//! Names out of files of others, in results: none of their characters steers the terminal of who reads them. The
//! verdict of every case looks for such characters; these have them.

use crate::case::{Case, Content, case, replaced};
use crate::checkpoints::seal;
use crate::fixtures::{Fixture, SMALL};
use crate::verdict::hold;

/// Escapes of JSON and of TOML for what makes a terminal red, twice.
const ESCAPED: &str = r"\u001b[31m\u009b31m";
/// The same as characters.
const STEERING: &str = "\x1b[31m\u{9b}31m";

/// `inspect` of a checkpoint that anybody may have sealed.
fn checkpoint(name: &str, arguments: &str) -> Case {
    let edit = replaced("\"build\":\"", format!("\"build\":\"{ESCAPED}"));
    case(format!("steering: {name}"), arguments)
        .with("it", Content::Changed(Fixture::Checkpoint, "manifest.json", Box::new(move |bytes| seal(edit(bytes)))))
}

#[test]
fn names_in_results_do_not_steer_the_terminal() {
    let folder = format!("it{STEERING}");
    hold(vec![
        checkpoint("the build of a checkpoint", "inspect {}/it").done(&format!("written by pleach {ESCAPED}")),
        checkpoint("the build of a checkpoint with all tensors", "inspect {}/it --all").done(ESCAPED),
        case("steering: a folder of a checkpoint", &format!("inspect {{}}/{folder} --verify"))
            .with(&folder, Content::Copy(Fixture::Checkpoint))
            .done(&format!("it{ESCAPED} is sound")),
        case("steering: an accelerator", &format!("simulate {SMALL} --cluster {{}}/it.toml"))
            .with("it.toml", Content::Changed(Fixture::Cluster, "", replaced("A100-SXM4-80GB", ESCAPED)))
            .done(ESCAPED),
        case("steering: a row of a table", "validate {}/it.csv --cluster a100-80g-jean-zay")
            .with("it.csv", Content::Changed(Fixture::Table, "", replaced("bloom-176B", STEERING)))
            .done(ESCAPED),
    ]);
}
