//! Misspelled keys of inline tables, each with the nearest one.

use super::expect;

#[test]
fn a_misspelled_key_of_an_inline_table_is_named_with_the_nearest_one() {
    expect(&[
        (
            &["train.groups=[{ parameters = [\"*\"], learning_rate = 2 }]"],
            "train.groups has the unknown key `learning_rate` in { learning_rate = 2, parameters = [\"*\"] }; \
             did you mean `learning_rate_scale`?",
        ),
        (
            &["data.sources=[{ path = \"a.txt\" }, { colum = \"body\", path = \"b.txt\" }]"],
            "data.sources has the unknown key `colum` in { colum = \"body\", path = \"b.txt\" }; did you mean `column`?",
        ),
        (
            &["data.validation=[{ nme = \"books\", path = \"b.txt\" }]"],
            "data.validation has the unknown key `nme` in { nme = \"books\", path = \"b.txt\" }; did you mean `name`?",
        ),
        (
            &["data.chat={ tempalte = \"x\" }"],
            "data.chat has the unknown key `tempalte` in { tempalte = \"x\" }; did you mean `template`?",
        ),
        (&["model.lora={ rnk = 4 }"], "model.lora has the unknown key `rnk` in { rnk = 4 }; did you mean `rank`?"),
        (
            &["train.batch_ramp={ incr = 4, sequences = 100, start = 4 }"],
            "train.batch_ramp has the unknown key `incr` in { incr = 4, sequences = 100, start = 4 }; did you mean `increment`?",
        ),
        (&["data.blanks={ maks = 4 }"], "data.blanks has the unknown key `maks` in { maks = 4 }; did you mean `mask`?"),
    ]);
}
