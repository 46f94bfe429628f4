//! Rules of `[data]`; those of its blanks are in [`super::blanks`].

use super::Rules;
use crate::data_spec::{Positions, SourceSpec, TokenizerSpec};
use crate::model::{ModelSpec, Position, TopQuery};
use crate::run_file::{Item as _, RunConfig};
use crate::secret::has_credentials;

/// Every byte is a token of a byte-level encoding, so that it can write any text.
const BYTES: usize = 256;

pub(super) fn check(config: &RunConfig, rules: &mut Rules) {
    let data = &config.data;
    if let [SourceSpec { path, weight, .. }] = data.sources.as_slice() {
        refuse! { rules;
            *weight > 0.0 && *weight != 1.0 => "data.sources",
                format!("gives {} the weight {weight:?}, which has no effect on the only source", path.display()),
                "leave weight out, or add a source";
        }
    }
    let of_validation = data.validation.iter().map(|text| ("data.validation", &text.source));
    for (key, source) in data.sources.iter().map(|source| ("data.sources", source)).chain(of_validation) {
        // One source is written as a path.
        let written = if key == "data.sources" && data.sources.len() == 1 { "data.path" } else { key };
        let column = source.column.as_deref().filter(|_| source.is_tokens());
        let path = source.path.display();
        refuse! { rules;
            has_credentials(&source.path.to_string_lossy()) => written,
                "must not have a user or a password in an address, nor a signature, which the run file would keep",
                "leave them out; for s3:// set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile";
            column.is_some() => key, format!(
                "gives {path} the column {:?}, and files of tokens have no columns", column.unwrap_or_default()
            ), "leave column out";
        }
    }
    for SourceSpec { path, weight, .. } in &data.sources {
        refuse! { rules;
            !(*weight > 0.0 && weight.is_finite()) => "data.sources",
                format!("gives {} the weight {weight:?}, which must be positive", path.display()), "use more than 0";
        }
    }
    refuse! { rules;
        data.positions == Positions::Document && !reads_positions(&config.model) => "data.positions" = "\"document\"",
            "has no effect where model.position = \"alibi\", which reads distances only", "leave it out";
    }
    check_validation(config, rules);
    let TokenizerSpec::Bpe { vocabulary } = data.tokenizer else { return };
    refuse! { rules;
        data.cache.is_some() => "data.cache", "must have a tokenizer that exists before the text is read", format!(
            "use data.tokenizer = \"bytes\", a tokenizer.json, or `pleach data tokenize --tokenizer bpe:{vocabulary}` \
             in place of it"
        );
        vocabulary < BYTES => "data.tokenizer" = data.tokenizer.written(),
            format!("must have a token for each of the {BYTES} byte values"), format!("use \"bpe:{BYTES}\" or more");
    }
}

/// Names go into files and onto pages, each for one text.
fn check_validation(config: &RunConfig, rules: &mut Rules) {
    let names: Vec<&str> = config.data.validation.iter().map(|text| text.name.as_str()).collect();
    for (index, name) in names.iter().enumerate() {
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
        refuse! { rules;
            name.len() > LONGEST_NAME || !name.chars().all(is_plain) => "data.validation",
                format!("has the name {name:?}, which must be at most {LONGEST_NAME} letters, digits, `-`, `_` or `.`"),
                "use another name";
            names[..index].contains(name) => "data.validation",
                format!("has the name {name:?} twice"), "use a name for each text";
        }
    }
    refuse! { rules;
        config.data.blanks.is_some() && !names.is_empty() => "data.validation",
            "has no effect with data.blanks", "leave it out";
    }
}

/// Letters of a name of `data.validation`.
const LONGEST_NAME: usize = 64;

fn reads_positions(model: &ModelSpec) -> bool {
    match model.position {
        Position::Learned { .. } | Position::Rotary { .. } => true,
        Position::Alibi => model.top_query == TopQuery::On,
    }
}
