//! The communicators of one rank, by group.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use comm::Transport;
use device::{Communicator, DeviceError};
use mesh::{AxisSet, Group, Rank};
use program::{PeerGroup, PeerGroups};
use thiserror::Error;

/// One communicator for each group that a rank belongs to.
pub struct Communicators {
    groups: Vec<(PeerGroup, Box<dyn Communicator>)>,
    world: Box<dyn Communicator>,
    /// An end of the rank, whose deadlines change after the first step; `None` for ranks that wait for nobody.
    end: Option<Arc<dyn Transport>>,
    /// Steps that have begun.
    steps: AtomicU32,
}

/// A collective over axes along which no engine opens a group.
#[derive(Debug, Error)]
#[error("a rank has no {missing}; its groups are along {known}")]
pub struct MissingGroup {
    missing: PeerGroup,
    known: String,
}

impl Communicators {
    /// Opens every group of `rank` with `open`.
    ///
    /// # Errors
    /// The errors of `open`.
    pub fn open(
        groups: &PeerGroups,
        rank: Rank,
        mut open: impl FnMut(PeerGroup, Group) -> Result<Box<dyn Communicator>, DeviceError>,
    ) -> Result<Communicators, DeviceError> {
        let mesh = groups.mesh();
        let peers = groups.of(rank);
        let groups = peers.each().map(|(which, group)| Ok((which, open(which, group.clone())?)));
        let groups = groups.collect::<Result<_, DeviceError>>()?;
        let world = open(PeerGroup::WORLD, mesh.group(rank, AxisSet::ALL))?;
        Ok(Communicators { groups, world, end: None, steps: AtomicU32::new(0) })
    }

    /// The same groups, over transports of which `end` is one of the rank.
    #[must_use]
    pub(crate) fn with_end(self, end: Arc<dyn Transport>) -> Communicators {
        Communicators { end: Some(end), ..self }
    }

    /// Notes that a step of the rank begins: the second one ends the first.
    pub(crate) fn begin_step(&self) {
        let begun = self.steps.fetch_add(1, Ordering::Relaxed);
        if let (1, Some(end)) = (begun, &self.end) {
            end.end_first_step();
        }
    }

    /// Which groups there are besides the world, in the order of those of the run.
    pub(crate) fn groups(&self) -> impl Iterator<Item = PeerGroup> + '_ {
        self.groups.iter().map(|(which, _)| *which)
    }

    /// The same groups, each as `wrap` makes it.
    #[must_use]
    pub fn wrapped(
        self,
        mut wrap: impl FnMut(PeerGroup, Box<dyn Communicator>) -> Box<dyn Communicator>,
    ) -> Communicators {
        let Communicators { groups, world, end, steps } = self;
        let groups = groups.into_iter().map(|(which, group)| (which, wrap(which, group))).collect();
        Communicators { groups, world: wrap(PeerGroup::WORLD, world), end, steps }
    }

    /// The ranks that differ along `axes`.
    ///
    /// # Errors
    /// See [`MissingGroup`].
    pub fn over(&self, axes: impl Into<AxisSet>) -> Result<&dyn Communicator, DeviceError> {
        self.group(PeerGroup::Along(axes.into()))
    }

    /// One of the groups.
    ///
    /// # Errors
    /// See [`MissingGroup`].
    pub fn group(&self, which: PeerGroup) -> Result<&dyn Communicator, DeviceError> {
        if which == PeerGroup::WORLD {
            return Ok(self.world());
        }
        let found = self.groups.iter().find(|(other, _)| *other == which);
        found.map(|(_, group)| &**group).ok_or_else(|| {
            let axes = self.groups.iter().filter_map(|(group, _)| match group {
                PeerGroup::Along(axes) => Some(axes.to_string()),
                PeerGroup::Ends => None,
            });
            let known = axes.collect::<Vec<_>>().join(", ");
            DeviceError::Communication(Box::new(MissingGroup { missing: which, known }))
        })
    }

    /// All ranks.
    pub fn world(&self) -> &dyn Communicator {
        &*self.world
    }
}
