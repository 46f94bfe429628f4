//! The checkpoints of a run in an object store: under the names that they have in the folder of the run.
//!
//! A checkpoint is committed by its last object, the manifest, and discarded by the removal of that. Objects without a
//! manifest are not a checkpoint.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use files::InputKind;
use stores::{Address, Object, Remote, Settings, StoreError};

use crate::checkpoint::{Checkpoint, read_manifest};
use crate::checkpoint_error::CheckpointError;
use crate::checkpoint_folder::CheckpointFolder;
use crate::commit::give_name;
use crate::disk::Disk;
use crate::manifest::{MANIFEST, Manifest, ManifestError};
use crate::step_names::{Found, folder_name, named_steps};

/// The checkpoints of a run, below its address.
const CHECKPOINTS: &str = "checkpoints";

/// Why a checkpoint does not come to or from a store.
#[derive(Debug, thiserror::Error)]
pub enum StoredError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The store has other bytes than were sent.
    #[error("{address} has {found} where {expected} bytes were sent")]
    Length { address: String, found: String, expected: u64 },
    /// The checkpoint in the store is not as it was written.
    #[error("{address} is damaged: {reason}")]
    Damaged { address: String, reason: String },
}

/// The objects of a checkpoint in the store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredSteps {
    objects: Vec<Object>,
}

impl StoredSteps {
    /// Whether its manifest is there, without which it is nothing.
    pub fn is_committed(&self) -> bool {
        self.objects.iter().any(|object| file_name(object) == MANIFEST)
    }
}

fn file_name(object: &Object) -> &str {
    object.name.rsplit('/').next().unwrap_or_default()
}

/// The place of a run in a store.
#[derive(Debug)]
pub struct StoredRun {
    remote: Remote,
}

impl StoredRun {
    /// The run at `address`; no request is sent.
    ///
    /// # Errors
    /// Settings that cannot be used.
    pub fn open(address: &Address, settings: &Settings) -> Result<StoredRun, StoreError> {
        Ok(StoredRun { remote: Remote::open(address, settings)? })
    }

    /// Where it is.
    pub fn address(&self) -> &Address {
        self.remote.address()
    }

    /// The address of the checkpoint after `steps` steps.
    pub fn place(&self, steps: u32) -> String {
        self.address().join(&name_of(steps)).to_string()
    }

    /// All that there is of checkpoints, by their steps, whether they are committed or not.
    ///
    /// # Errors
    /// Failures of requests.
    pub fn list(&self) -> Result<BTreeMap<u32, StoredSteps>, StoreError> {
        let mut found: BTreeMap<u32, StoredSteps> = BTreeMap::new();
        for object in self.remote.list(CHECKPOINTS)? {
            let folder = object.name.split('/').nth(1).and_then(|folder| named_steps(Path::new(folder)));
            if let Some(steps) = folder.filter(|steps| object.name.starts_with(&format!("{}/", name_of(*steps)))) {
                found.entry(steps).or_default().objects.push(object);
            }
        }
        Ok(found)
    }

    /// The steps of the newest committed checkpoint.
    ///
    /// # Errors
    /// Failures of requests.
    pub fn newest(&self) -> Result<Option<u32>, StoreError> {
        let committed = |(steps, of_steps): (u32, StoredSteps)| of_steps.is_committed().then_some(steps);
        Ok(self.list()?.into_iter().rev().find_map(committed))
    }

    /// The manifest of a committed checkpoint.
    ///
    /// # Errors
    /// Failures of requests, and a manifest that is damaged.
    pub fn manifest(&self, steps: u32) -> Result<Manifest, StoredError> {
        let name = format!("{}/{MANIFEST}", name_of(steps));
        let bytes = self.remote.read(&name, InputKind::Manifest.limit_bytes().unwrap_or(u64::MAX))?;
        Manifest::parse(&bytes).map_err(|error| self.damaged(&name, manifest_reason(&error)))
    }

    /// Brings the checkpoint in the folder `path` into the store: its data, the files `with` of the run, and its
    /// manifest last. Until then the store has no such checkpoint.
    ///
    /// # Errors
    /// Files that cannot be read, failures of requests, and other lengths in the store.
    pub fn upload(&self, path: &Path, with: &[PathBuf]) -> Result<Manifest, StoredError> {
        let manifest = read_manifest(path)?;
        let place = name_of(manifest.state.steps);
        for file in &manifest.files {
            self.upload_file(&path.join(&file.name), &format!("{place}/{}", file.name))?;
        }
        for file in with {
            let name = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            self.upload_file(file, &name)?;
        }
        let there = self.list()?.remove(&manifest.state.steps).unwrap_or_default();
        for file in &manifest.files {
            let name = format!("{place}/{}", file.name);
            let found = there.objects.iter().find(|object| object.name == name).map(|object| object.bytes);
            if found != Some(file.bytes) {
                let found = found.map_or("nothing".into(), |bytes| format!("{bytes} bytes"));
                let address = self.address().join(&name).to_string();
                return Err(StoredError::Length { address, found, expected: file.bytes });
            }
        }
        self.upload_file(&path.join(MANIFEST), &format!("{place}/{MANIFEST}"))?;
        Ok(manifest)
    }

    /// Brings the manifest of the checkpoint in the folder `path` into the store, which has its data.
    ///
    /// # Errors
    /// Files that cannot be read, and failures of requests.
    pub fn upload_manifest(&self, path: &Path) -> Result<Manifest, StoredError> {
        let manifest = read_manifest(path)?;
        self.upload_file(&path.join(MANIFEST), &format!("{}/{MANIFEST}", name_of(manifest.state.steps)))?;
        Ok(manifest)
    }

    fn upload_file(&self, path: &Path, name: &str) -> Result<(), StoredError> {
        let unreadable = |reason| CheckpointError::Read { path: path.to_path_buf(), reason };
        let mut file = files::open(path, InputKind::Data).map_err(|error| unreadable(error.into()))?;
        Ok(self.remote.upload(name, &mut file)?)
    }

    /// Removes a checkpoint, first the manifest, so that what is removed in part is nothing.
    ///
    /// # Errors
    /// Failures of requests.
    pub fn remove(&self, steps: u32) -> Result<(), StoreError> {
        self.remote.remove(&format!("{}/{MANIFEST}", name_of(steps)))?;
        self.remove_objects(&self.list()?.remove(&steps).unwrap_or_default())
    }

    /// Removes the objects of a checkpoint that is not committed.
    ///
    /// # Errors
    /// Failures of requests.
    pub fn remove_objects(&self, of_steps: &StoredSteps) -> Result<(), StoreError> {
        of_steps.objects.iter().try_for_each(|object| self.remote.remove(&object.name))
    }

    /// Brings the checkpoint after `steps` steps into the folder `checkpoints`, every byte compared with its hash, and
    /// makes `latest` name it. Returns its folder.
    ///
    /// # Errors
    /// Failures of requests, a checkpoint that is damaged, and a folder that cannot be written.
    pub fn fetch(&self, steps: u32, checkpoints: &Path) -> Result<PathBuf, StoredError> {
        let failed = |reason| CheckpointError::Write { path: checkpoints.to_path_buf(), reason };
        let of_steps = self.list()?.remove(&steps).unwrap_or_default();
        let draft = checkpoints.join(format!(".{}.fetched", folder_name(steps)));
        if draft.exists() {
            std::fs::remove_dir_all(&draft).map_err(failed)?;
        }
        std::fs::create_dir_all(&draft).map_err(failed)?;
        // The manifest says which of the objects are parts of it, and how long they are.
        let manifest = self.manifest(steps)?;
        let parts = manifest.files.iter().map(|file| (file.name.as_str(), Some(file.bytes))).chain([(MANIFEST, None)]);
        for (part, bytes) in parts {
            let name = format!("{}/{part}", name_of(steps));
            let object = of_steps.objects.iter().find(|object| object.name == name);
            let object = object.ok_or_else(|| self.damaged(&name, "it is not there".into()))?;
            if let Some(expected) = bytes.filter(|bytes| *bytes != object.bytes) {
                return Err(self.damaged(&name, format!("{} bytes where {expected} were written", object.bytes)));
            }
            let mut file = files::recreate(&draft.join(part)).map_err(failed)?;
            self.remote.download(object, &mut file)?;
            file.sync_all().map_err(failed)?;
        }
        let damage = Checkpoint::open(&draft).map(|checkpoint| checkpoint.verify().into_iter().next());
        if let Some(error) = damage.unwrap_or_else(Some) {
            let _ = std::fs::remove_dir_all(&draft);
            return Err(self.damaged(&name_of(steps), error.to_string()));
        }
        let folder = CheckpointFolder::new(checkpoints, Arc::new(Disk));
        let path = folder.committed(steps);
        if path.exists() {
            // One that is damaged, or this would not be needed.
            folder.set_aside(&Found { path, steps })?;
        }
        Ok(give_name(&folder, &draft, steps)?)
    }

    /// Brings the file `name` of the run to `path`. Returns whether the store has it.
    ///
    /// # Errors
    /// Failures of requests, and a file that cannot be written.
    pub fn fetch_file(&self, name: &str, path: &Path) -> Result<bool, StoredError> {
        let object = match self.remote.describe(name) {
            Ok(object) => object,
            Err(StoreError::NotFound { .. }) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        let failed = |reason| CheckpointError::Write { path: path.to_path_buf(), reason };
        // A file that is there stays until the other one is whole.
        let mut draft = files::Draft::create(path).map_err(failed)?;
        self.remote.download(&object, &mut draft.file)?;
        draft.keep().map_err(failed)?;
        Ok(true)
    }

    fn damaged(&self, name: &str, reason: String) -> StoredError {
        StoredError::Damaged { address: self.address().join(name).to_string(), reason }
    }
}

/// The place of a checkpoint below the address of its run.
fn name_of(steps: u32) -> String {
    format!("{CHECKPOINTS}/{}", folder_name(steps))
}

fn manifest_reason(error: &ManifestError) -> String {
    match error {
        ManifestError::Malformed(reason) => reason.clone(),
        ManifestError::Newer(format) => format!("its format is {format}; use a newer build"),
    }
}
