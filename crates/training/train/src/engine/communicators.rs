//! The communicators of one rank, by group.

use std::collections::BTreeMap;

use config::{Degrees, UnsupportedAxis};
use device::{Communicator, DeviceError};
use mesh::{AxisSet, Group, Mesh, Rank};
use program::{PeerGroup, Peers};
use thiserror::Error;

/// One communicator for each group that a rank belongs to.
pub struct Communicators {
    groups: BTreeMap<PeerGroup, Box<dyn Communicator>>,
    world: Box<dyn Communicator>,
}

/// A collective over axes along which no engine opens a group.
#[derive(Debug, Error)]
#[error("a rank has no {0}; its groups are along {known}", known = known())]
pub struct MissingGroup(PeerGroup);

fn known() -> String {
    let axes = PeerGroup::ALL.into_iter().filter_map(|group| match group {
        PeerGroup::Along(axes) => Some(axes.to_string()),
        PeerGroup::Ends => None,
    });
    axes.collect::<Vec<_>>().join(", ")
}

impl Communicators {
    /// Opens every group of `rank` with `open`.
    ///
    /// # Errors
    /// A mesh with ranks along axes that no program divides work along.
    pub fn open(
        mesh: &Mesh,
        rank: Rank,
        mut open: impl FnMut(PeerGroup, Group) -> Box<dyn Communicator>,
    ) -> Result<Communicators, DeviceError> {
        Communicators::try_open(mesh, rank, |which, group| Ok(open(which, group)))
    }

    /// As [`Communicators::open`], where `open` may fail.
    ///
    /// # Errors
    /// As [`Communicators::open`], and those of `open`.
    pub fn try_open(
        mesh: &Mesh,
        rank: Rank,
        mut open: impl FnMut(PeerGroup, Group) -> Result<Box<dyn Communicator>, DeviceError>,
    ) -> Result<Communicators, DeviceError> {
        let degrees = Degrees::of(mesh, "the mesh of an engine");
        degrees.map_err(|unsupported: UnsupportedAxis| DeviceError::Communication(Box::new(unsupported)))?;
        let peers = Peers::of(mesh, rank);
        let groups = peers.each().map(|(which, group)| Ok((which, open(which, group.clone())?)));
        let groups = groups.collect::<Result<_, DeviceError>>()?;
        Ok(Communicators { groups, world: open(PeerGroup::WORLD, mesh.group(rank, AxisSet::ALL))? })
    }

    /// The same groups, each as `wrap` makes it.
    #[must_use]
    pub fn wrapped(
        self,
        mut wrap: impl FnMut(PeerGroup, Box<dyn Communicator>) -> Box<dyn Communicator>,
    ) -> Communicators {
        let Communicators { groups, world } = self;
        let groups = groups.into_iter().map(|(which, group)| (which, wrap(which, group))).collect();
        Communicators { groups, world: wrap(PeerGroup::WORLD, world) }
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
        let group = self.groups.get(&which).map(|group| &**group);
        group.ok_or_else(|| DeviceError::Communication(Box::new(MissingGroup(which))))
    }

    /// All ranks.
    pub fn world(&self) -> &dyn Communicator {
        &*self.world
    }
}
