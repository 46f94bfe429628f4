//! The last instructions of each rank of this process, in rings that outlive it.

use std::collections::BTreeMap;

use blame::{Attempt, Peers, Ring, RingHeader};
use mesh::{AxisSet, Rank};
use program::{Family, Instr, Partner, PeerGroup, PeerGroups, RankView};

/// Where the rings of this process are.
#[derive(Clone, Debug)]
pub struct Rings {
    /// The attempt that they belong to.
    pub attempt: Attempt,
    /// Number of this process.
    pub process: usize,
    pub host: String,
}

impl Rings {
    /// The ring of `rank`; none where the file system of the run folder maps no files, which costs the report its
    /// instructions and the run nothing.
    pub(crate) fn open(&self, all: PeerGroups, rank: Rank) -> Option<RankRing> {
        let peers = all.of(rank);
        let numbers = |group: &mesh::Group| group.members().iter().map(|rank| rank.0).collect::<Vec<usize>>();
        let mut groups: BTreeMap<u8, Vec<usize>> =
            peers.each().filter_map(|(which, group)| Some((number(&all, which)?, numbers(group)))).collect();
        groups.extend(
            number(&all, PeerGroup::WORLD).map(|world| (world, numbers(&all.mesh().group(rank, AxisSet::ALL)))),
        );
        let pipeline = peers.group(PeerGroup::PIPELINE).map(numbers).unwrap_or_default();
        let (process, host, pid) = (self.process, self.host.clone(), std::process::id());
        let ring = self.attempt.ring(&RingHeader { rank: rank.0, process, host, pid, groups }).ok()?;
        Some(RankRing { ring, groups: all, pipeline })
    }
}

/// Number of a group among those of a ring: the world comes after all others.
fn number(all: &PeerGroups, group: PeerGroup) -> Option<u8> {
    let index = match group {
        PeerGroup::WORLD => Some(all.iter().len()),
        PeerGroup::Along(_) | PeerGroup::Ends => all.index(group),
    };
    u8::try_from(index?).ok()
}

/// The ring of one rank.
#[derive(Debug)]
pub(crate) struct RankRing {
    ring: Ring,
    groups: PeerGroups,
    /// Ranks of the pipeline, by stage.
    pipeline: Vec<usize>,
}

impl RankRing {
    /// Notes that `instr` begins in `step`.
    pub(crate) fn begin_instr(&mut self, step: u32, view: &RankView, instr: Instr) {
        let peers = self.peers(view, instr);
        self.ring.begin(step, peers, instr);
    }

    /// Notes that work of this name begins, in which all ranks take part.
    pub(crate) fn begin(&mut self, step: u32, name: &str) {
        let peers = self.group(PeerGroup::WORLD);
        self.ring.begin(step, peers, name);
    }

    /// Notes its end.
    pub(crate) fn end(&mut self) {
        self.ring.end();
    }

    fn group(&self, which: PeerGroup) -> Peers {
        number(&self.groups, which).map_or(Peers::None, Peers::Group)
    }

    /// The ranks that `instr` may wait for.
    fn peers(&self, view: &RankView, instr: Instr) -> Peers {
        let group = |which| self.group(which);
        match instr.family() {
            Family::Transfer { .. } => match instr.partner(view) {
                Partner::To(stage) | Partner::From(stage) => {
                    self.pipeline.get(stage).map_or(Peers::None, |rank| Peers::Rank(*rank))
                }
                Partner::None | Partner::Peers(_) | Partner::Ends { .. } | Partner::World => Peers::None,
            },
            Family::Pass(_) => group(PeerGroup::TENSOR),
            Family::Gather { unit } | Family::Reduce { unit, .. } => group(PeerGroup::Along(view.axes.of(unit).shards)),
            Family::SumTied => group(PeerGroup::Ends),
            Family::GradNorm => group(PeerGroup::WORLD),
            Family::Load { .. } | Family::Update { .. } | Family::CopyState { .. } => Peers::None,
            Family::CopyActs { .. } | Family::Bookkeeping { .. } => Peers::None,
        }
    }
}
