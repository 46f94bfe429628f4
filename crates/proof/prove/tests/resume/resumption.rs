//! One resumption, clean or with a fault, and the two checks that judge it.

use checkpoint::Manifest;
use config::{Format, GradientSums, Products, TrainSpec};
use mesh::Coord;
use prove::{Distance, Outcome, Promise, is_noise};
use testkit::numbers::{Numbers, training};
use testkit::resumed::{LayoutPart, Surroundings, newest, outcome_of_part, resumed_spec};
use testkit::wrapped_engine::WrapRank;
use train::{RankEngine, TokenSource};

use crate::checklist::findings::{Verdict, verdict};
use crate::resume::pairs::Pair;
use crate::resume::rig::Folder;
use crate::resume::saved::Snapshot;
use crate::resume::text;

/// Gives the text of a run, whose place in it is a part of its training.
pub type TextOf<'a> = dyn Fn(&TrainSpec) -> Box<dyn TokenSource> + 'a;

/// A run in two parts, and what is wrong with it.
pub struct Resumption<'a> {
    pub pair: &'a Pair,
    /// Steps of the first part.
    pub cut: u32,
    /// Text of the second part.
    pub text: &'a TextOf<'a>,
    /// Surroundings of the ranks of the first part.
    pub saving: &'a WrapRank<'a>,
    /// Changes what the first part has saved.
    pub inject: &'a dyn Fn(&mut Manifest),
    /// Surroundings of the ranks of the second part.
    pub resumed: &'a WrapRank<'a>,
}

/// A rank as it is.
pub fn untouched(_: Coord, rank: RankEngine) -> RankEngine {
    rank
}

impl<'a> Resumption<'a> {
    /// A clean one.
    pub fn new(pair: &'a Pair, cut: u32) -> Resumption<'a> {
        Resumption { pair, cut, text: &text::shuffled, saving: &untouched, inject: &|_| (), resumed: &untouched }
    }

    pub fn with_fault(self, inject: &'a dyn Fn(&mut Manifest)) -> Resumption<'a> {
        Resumption { inject, ..self }
    }

    pub fn saving_on(self, saving: &'a WrapRank<'a>) -> Resumption<'a> {
        Resumption { saving, ..self }
    }

    pub fn resumed_on(self, resumed: &'a WrapRank<'a>) -> Resumption<'a> {
        Resumption { resumed, ..self }
    }

    pub fn reading(self, text: &'a TextOf<'a>) -> Resumption<'a> {
        Resumption { text, ..self }
    }

    /// Runs the first part, and the second until `until` steps are done. Returns the values of the ranks when the first
    /// ended, and when the second began.
    fn run(&self, until: u32) -> Result<(Outcome, [Snapshot; 2]), String> {
        let said = |error: prove::ProofError| error.to_string();
        let (folder, Pair { before, after, .. }) = (Folder::new(), self.pair);
        let [left, arrived] = [Snapshot::at_the_end_of(self.cut), Snapshot::at_the_beginning_of(self.cut + 1)];
        let tokens = text::shuffled(&before.train);
        let first = Surroundings { wrap: self.saving, watch: &left, ..Surroundings::plain(&*tokens) };
        let first = outcome_of_part(&LayoutPart { layout: before.clone(), until: self.cut }, &folder.0, first);
        let first = first.map_err(said)?;
        rewrite(&folder, self.inject);
        let checkpoint = newest(&folder.0).map_err(|error| error.to_string())?;
        let tokens = (self.text)(&resumed_spec(&after.train, &checkpoint));
        drop(checkpoint);
        let second = Surroundings { wrap: self.resumed, watch: &arrived, ..Surroundings::plain(&*tokens) };
        let second = outcome_of_part(&LayoutPart { layout: after.clone(), until }, &folder.0, second);
        Ok((first.followed_by(second.map_err(said)?), [left, arrived]))
    }

    /// N27 and N33: whether the two parts learn what the run learns that was not stopped, as the classes of their
    /// layouts promise.
    pub fn continues(&self) -> Verdict {
        let (layout, class) = (&self.pair.before, self.pair.class());
        let undisturbed = self.pair.undisturbed()?;
        let (resumed, _) = self.run(self.pair.after.train.steps)?;
        let promise = Promise::of(class, &layout.model, &layout.train, layout.train.steps);
        let distance = Distance::between(undisturbed, &resumed, |name| is_noise(&layout.model, name));
        verdict(promise.faults([undisturbed, &resumed], &distance))
    }

    /// N32: whether ranks hold, before the first step after the resumption, the bits that ranks held when they saved.
    pub fn arrives(&self) -> Verdict {
        let (_, [left, arrived]) = self.run(self.cut + 1)?;
        verdict(left.differences(&arrived, &self.pair.before.model))
    }
}

/// Rewrites the newest manifest, changed by `inject`. Its hash is right: nothing but its contents tells that it is
/// not the one that was saved.
fn rewrite(folder: &Folder, inject: &dyn Fn(&mut Manifest)) {
    let checkpoint = newest(&folder.0).expect("a checkpoint");
    let mut manifest = checkpoint.manifest().clone();
    inject(&mut manifest);
    let file = checkpoint.path().join(checkpoint::MANIFEST);
    std::fs::write(file, manifest.to_bytes().expect("JSON")).expect("written");
}

/// The training of the pairs in `format`.
pub fn training_in(format: Format) -> TrainSpec {
    training(Numbers::new(format, GradientSums::Single, Products::Chained))
}
