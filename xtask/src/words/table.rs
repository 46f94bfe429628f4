//! The replaced phrases.

/// A phrase that new text does not use.
#[derive(Clone, Copy, Debug)]
pub struct Replaced {
    /// Words with spaces between, as [`super::pattern`] reads them.
    pub phrase: &'static str,
    /// Longer phrases in which it is right.
    pub except: &'static [&'static str],
    /// Where it counts.
    pub scope: Scope,
    /// What to write.
    pub instead: &'static str,
    pub why: &'static str,
}

/// Where a phrase counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// In prose and in names of code: `hands_on`, `HandsOn`.
    Everywhere,
    /// In documents, comments and strings, with spaces between its words. Code has its own use of the word, such as
    /// `is_none` or `for one in pairs`.
    Prose,
}

impl Replaced {
    /// The phrase with the first of each alternatives: `give up`, `N would`.
    pub fn name(&self) -> String {
        let first = |part: &str| part.split('|').next().unwrap_or_default().trim_start_matches('^').to_string();
        let words = self.phrase.split(' ').filter(|part| *part != "*").map(first);
        let opening = if self.phrase.starts_with('^') { " at the start" } else { "" };
        format!("{}{opening}", words.collect::<Vec<_>>().join(" ").replace('#', "N"))
    }
}

/// The table.
pub const REPLACED: &[Replaced] = &[
    // Memory and parallelism.
    prose("share|shares|shared|sharing * out", &[], "shard or split", "the field shards"),
    prose("compute|computes|computed|computing again", &[], "recompute", "the field recomputes"),
    prose("for a while", &[], "gathered, or the event that ends it", "a reader needs to know when it ends"),
    prose("give|gives|gave|given|giving up", UP_TO, "free, discard or drop", "memory is freed"),
    prose("put|puts|putting off", &[], "defer", "the field defers"),
    everywhere("hungriest", &[], "the rank with the highest peak memory", "wordplay"),
    prose("in pairs", &[], "bf16x3 or in AMX order", "the first is of fp32 operands, the second of bf16 ones"),
    prose("linear map|maps", &[], "linear layer", "the field's word"),
    prose("narrow|wide numbers", &[], "bf16 or fp16 values, fp32 values", "name the type"),
    // Errors and remedies.
    prose("would do", &[], "use ...", "a remedy is an instruction"),
    everywhere("# would", &[], "KEY = VALUE must ...; use N", "a remedy is an instruction"),
    everywhere("would be one", &[], "use ...", "a remedy is an instruction"),
    prose("is|are none", NONE_THERE, "does not exist, or is not a ...", "name what is missing"),
    prose("is|are no", NO_THERE, "is not a ...", "English negates the verb"),
    everywhere("put|puts right", &[], "fix", "the common word"),
    everywhere("put it|them|this right", &[], "fix", "the common word"),
    prose("passed over", &[], "ignored or skipped", "name what happens"),
    // Verbs.
    prose("told", &[], "reported, given, printed or distinguished", "name the action"),
    prose("go|goes|going|went|gone on", &[], "continue, or resume for a run", "the field resumes"),
    everywhere("go|goes|going|went|gone by", &[], "follow or use", "name the relation"),
    everywhere("get|gets|got|getting on", &[], "make progress", "name what happens"),
    everywhere("become|becomes|became of", &[], "the result, or what happens to it", "name what happens"),
    everywhere("hand|hands|handed|handing on", &[], "pass", "the common word"),
    everywhere("hold|holds|held against", &[], "compare with", "the common word"),
    everywhere("lay|lays|laid * beside", &[], "compare with", "the common word"),
    prose("spoil|spoils|spoilt|spoiled", &[], "corrupt, or inject a fault", "the field injects faults"),
    prose("anew", &[], "again, or recreate, regenerate", "the common word"),
    prose("stand|stands", STANDS_FOR, "is, is written", "a plain verb"),
    prose("lie|lies", &[], "is, is at, is stored", "a plain verb"),
    // Relations.
    prose("beside", &[], "next to, with, in addition to, or compared with", "name the relation"),
    prose("behind", &[], "after, or past the end of", "name the relation"),
    prose("so many", &["so many that"], "N, or the number of", "name the number"),
    prose("^what", &[], "a noun: \"The peak memory of each rank\"", "a clause is no subject"),
];

const UP_TO: &[&str] = &["give|gives|gave|given|giving up to"];
const NONE_THERE: &[&str] = &["there is|are none"];
const NO_THERE: &[&str] = &["there is|are no", "is|are no longer", "is|are no more"];
const STANDS_FOR: &[&str] = &["stand|stands for", "stand|stands in for"];

const fn everywhere(
    phrase: &'static str,
    except: &'static [&'static str],
    instead: &'static str,
    why: &'static str,
) -> Replaced {
    Replaced { phrase, except, scope: Scope::Everywhere, instead, why }
}

const fn prose(
    phrase: &'static str,
    except: &'static [&'static str],
    instead: &'static str,
    why: &'static str,
) -> Replaced {
    Replaced { phrase, except, scope: Scope::Prose, instead, why }
}
