//! Memory in which threads share products in AMX order.

use std::marker::PhantomData;
use std::ptr::NonNull;

use device::{Bf16, DeviceError, Mapping};

use super::engine::{LARGEST_PANEL, MOST_SUMS};
use super::rounds::WorkspaceSizes;
use crate::gemm::PackingBuffers;

/// Bytes for the panels of a common operand: 1,700 lanes of three terms of 512 steps.
const PANEL_BYTES: usize = 5 << 20;
/// Sums that are kept between two runs of steps.
const SUMS: usize = 1 << 18;

/// The workspace of a rank, which all its threads see. It is in memory as far as it has been used.
pub(crate) struct RankWorkspace {
    start: NonNull<u8>,
    /// Holds the workspace.
    _mapping: Mapping,
}

// SAFETY: the workspace is plain memory; who may read and write which part of it is said where it is handed out.
unsafe impl Send for RankWorkspace {}
// SAFETY: as above.
unsafe impl Sync for RankWorkspace {}

impl RankWorkspace {
    /// Reserves the workspace.
    ///
    /// # Errors
    /// [`DeviceError::Buffers`].
    pub(crate) fn new() -> Result<Self, DeviceError> {
        let bytes = PANEL_BYTES + SUMS * size_of::<f32>();
        let refused = |_| DeviceError::Buffers { bytes, holder: "packed operands that the threads share" };
        let mut mapping = Mapping::new(bytes).map_err(refused)?;
        Ok(Self { start: NonNull::from(&mut mapping[..]).cast(), _mapping: mapping })
    }

    /// Sizes of the workspace, without those of one thread.
    pub(crate) const SIZES: WorkspaceSizes =
        WorkspaceSizes { panel_bytes: PANEL_BYTES, sums: SUMS, strip_bytes: STRIP_BYTES };

    /// The workspace of one product.
    pub(crate) fn workspace(&self) -> Workspace<'_> {
        // SAFETY: the sums begin after the panels, inside the mapping.
        let sums = unsafe { self.start.add(PANEL_BYTES) };
        Workspace { panels: self.start, sums: sums.cast(), sizes: Self::SIZES, of: PhantomData }
    }
}

/// Workspace for panels of the common operand and for sums that are kept. All threads have the same, so it gives out
/// raw places: in the first phase of a [round](super::rounds) a thread writes the panels that it packs, in the second
/// all read all panels, and a strip's sums belong to who has the strip.
#[derive(Clone, Copy)]
pub(crate) struct Workspace<'a> {
    panels: NonNull<u8>,
    sums: NonNull<f32>,
    pub(super) sizes: WorkspaceSizes,
    of: PhantomData<&'a mut u8>,
}

impl<'a> Workspace<'a> {
    /// Bytes of panels, to read.
    ///
    /// # Safety
    /// Nobody writes them while the slice lives.
    pub(super) unsafe fn panels(&self, start: usize, bytes: usize) -> &'a [u8] {
        self.check(start, bytes);
        // SAFETY: inside the room, initialised; the caller excludes writers.
        unsafe { std::slice::from_raw_parts(self.panels.add(start).as_ptr(), bytes) }
    }

    /// Bytes of panels, to write.
    ///
    /// # Safety
    /// Nobody else reads or writes them while the slice lives.
    pub(super) unsafe fn panels_mut(&self, start: usize, bytes: usize) -> &'a mut [u8] {
        self.check(start, bytes);
        // SAFETY: inside the room, initialised; the caller excludes everybody else.
        unsafe { std::slice::from_raw_parts_mut(self.panels.add(start).as_ptr(), bytes) }
    }

    /// Kept sums.
    ///
    /// # Safety
    /// Nobody else reads or writes them while the slice lives.
    pub(super) unsafe fn sums_mut(&self, start: usize, number: usize) -> &'a mut [f32] {
        assert!(start + number <= self.sizes.sums, "{number} sums from {start} on, of {}", self.sizes.sums);
        // SAFETY: inside the room, aligned, initialised; the caller excludes everybody else.
        unsafe { std::slice::from_raw_parts_mut(self.sums.add(start).as_ptr(), number) }
    }

    fn check(&self, start: usize, bytes: usize) {
        assert!(
            start + bytes <= self.sizes.panel_bytes,
            "{bytes} bytes of panels from {start} on, of {:?}",
            self.sizes
        );
    }
}

/// Workspace of one thread.
pub(crate) struct StripWorkspace<'a> {
    /// For the panels of a strip.
    pub strip: &'a mut [u8],
    /// [`LARGEST_PANEL`] elements: operands are rounded, and then packed, by whole panels.
    pub rounded: &'a mut [Bf16],
    /// For the sums of a tile.
    pub sums: &'a mut [f32],
}

/// Bytes of a packed strip.
const STRIP_BYTES: usize = 1 << 20;

impl PackingBuffers {
    /// Workspace for the strips of products in AMX order, and the rest.
    fn strip_workspace(&mut self) -> (StripWorkspace<'_>, &mut [u8]) {
        let (strip, rest) = self.bytes().split_at_mut(STRIP_BYTES);
        let (rounded, rest) = rest.split_at_mut(LARGEST_PANEL * size_of::<Bf16>());
        let (sums, rest) = rest.split_at_mut(MOST_SUMS * size_of::<f32>());
        (
            StripWorkspace { strip, rounded: bytemuck::cast_slice_mut(rounded), sums: bytemuck::cast_slice_mut(sums) },
            rest,
        )
    }

    /// Workspace for strips, where the common operand is elsewhere.
    pub(crate) fn workspace_for_strips(&mut self) -> StripWorkspace<'_> {
        self.strip_workspace().0
    }

    /// Workspace for a thread that multiplies alone.
    pub(super) fn workspace_for_all(&mut self) -> (StripWorkspace<'_>, Workspace<'_>) {
        let (strip, rest) = self.strip_workspace();
        let (panels, sums) = rest.split_at_mut(2 << 20);
        let sums: &mut [f32] = bytemuck::cast_slice_mut(sums);
        let sizes = WorkspaceSizes { panel_bytes: panels.len(), sums: sums.len(), strip_bytes: STRIP_BYTES };
        let (panels, sums) = (NonNull::from(panels).cast(), NonNull::from(sums).cast());
        (strip, Workspace { panels, sums, sizes, of: PhantomData })
    }
}
