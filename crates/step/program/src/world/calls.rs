//! The sends, receives and collectives of a program, in the order in which the executor calls them.

use std::collections::BTreeSet;

use config::{Unit, UnitAxes};
use mesh::AxisSet;

use crate::peers::PeerGroup;
use crate::{Family, GradientAxes, Instr, Partner, Program, RankView, Value};

/// One call of a send, a receive or a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Call {
    /// Index of its instruction.
    pub index: usize,
    pub what: CallPartner,
    /// The value that is sent, or that is reduced or gathered in view.
    pub value: Value,
}

/// The other ranks of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallPartner {
    /// To this position of the pipeline.
    Send(usize),
    /// From this position of the pipeline.
    Receive(usize),
    /// A collective of one of the rank's groups.
    Join(PeerGroup),
    /// A collective of all ranks.
    World,
}

/// The calls of one program.
#[derive(Debug)]
pub(super) struct Calls {
    pub list: Vec<Call>,
}

impl Calls {
    pub(super) fn of(program: &Program) -> Calls {
        let mut list = vec![];
        for (index, instr) in program.instrs.iter().enumerate() {
            let mut call = |what, value| list.push(Call { index, what, value });
            let view = &program.view;
            match instr.family() {
                Family::Transfer { value, .. } => partner(*instr, view).into_iter().for_each(|what| call(what, value)),
                Family::Gather { unit } => {
                    call(CallPartner::Join(PeerGroup::Along(view.axes.of(unit).shards)), view.parameters(unit))
                }
                Family::Reduce { unit, by, axes } => {
                    let value = view.contribution(unit, by);
                    let groups = reduced(&axes, *view.axes.of(unit)).into_iter();
                    groups.for_each(|axes| call(CallPartner::Join(PeerGroup::Along(axes)), value));
                }
                Family::SumTied if instr.partner(view) != Partner::None => {
                    call(CallPartner::Join(PeerGroup::Ends), view.gradient(Unit::Table));
                }
                Family::GradNorm => call(CallPartner::World, Value::LossSums),
                Family::SumTied | Family::Pass(_) | Family::Load { .. } | Family::Update { .. } => {}
                Family::CopyState { .. } | Family::CopyActs { .. } | Family::Bookkeeping { .. } => {}
            }
        }
        Calls { list }
    }
}

/// Which way a transfer goes; none where the place knows no other end, which rule `pairs` refuses.
fn partner(instr: Instr, view: &RankView) -> Option<CallPartner> {
    match instr.partner(view) {
        Partner::To(to) => Some(CallPartner::Send(to)),
        Partner::From(from) => Some(CallPartner::Receive(from)),
        Partner::None | Partner::Peers(_) | Partner::Ends { .. } | Partner::World => None,
    }
}

/// The axes of the groups over which a reduction goes, one after the other: of parameters by themselves, then of the
/// whole buffer.
fn reduced(axes: &GradientAxes, of_unit: UnitAxes) -> Vec<AxisSet> {
    let of_parameters: BTreeSet<AxisSet> = axes.beyond(of_unit.data).collect();
    let of_buffer = [of_unit.shards, of_unit.replicas()];
    let of_buffer = of_buffer.into_iter().filter(|group| !axes.union().intersection(*group).is_empty());
    of_parameters.into_iter().filter(|axes| !axes.is_empty()).chain(of_buffer).collect()
}
