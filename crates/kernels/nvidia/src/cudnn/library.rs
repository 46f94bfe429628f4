//! The library, opened, and a handle for one GPU.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use gpu::{
    AttentionLibrary, AttentionPlaces, CausalAttention, DevicePointer, DriverError, DriverErrorKind, Gpu, StreamHandle,
};
use sync::lock;

use super::calls::Value;
use super::descriptor::Descriptor;
use super::error::{AttentionError, PlanFacts};
use super::functions::{BAD_PARAMETER, Functions, GPU_AS_JSON, GPU_HANDLE, GPU_PROPERTIES, INTERNAL_ERROR, RawHandle};
use super::plan::Plan;
use crate::library::{LibraryError, Opened, Wanted};
use crate::search::Search;

/// The library.
pub(crate) const CUDNN: Wanted = Wanted {
    title: "cuDNN",
    files: &["libcudnn.so.9"],
    needs: "9.11 or later",
    remedy: "`pip install nvidia-cudnn-cu13`, and give its folder",
};

/// The oldest version: 9.10.0 and 9.10.1 have faults in backward passes, and NVIDIA's own programs refuse them.
const OLDEST: usize = 91_100;

impl AttentionError {
    /// Whether the library says that it does not have what was described.
    pub(super) fn is_of_unsupported(&self) -> bool {
        (BAD_PARAMETER.0..INTERNAL_ERROR.0).contains(&self.status)
    }
}

impl From<AttentionError> for DriverError {
    fn from(AttentionError { call, status, text }: AttentionError) -> DriverError {
        DriverError { call, kind: DriverErrorKind::Other(status), text }
    }
}

/// cuDNN in this process.
pub struct Library {
    functions: Arc<Functions>,
    path: PathBuf,
}

impl Library {
    /// Finds and opens cuDNN.
    ///
    /// # Errors
    /// A library that is missing, too old, or without a function of the table.
    pub fn open(search: &Search) -> Result<Library, LibraryError> {
        let opened = Opened::find(CUDNN, search)?;
        let functions = Arc::new(Functions::bind(|name| opened.symbol(name.symbol))?);
        let library = Library { functions, path: opened.path().to_path_buf() };
        if library.functions.version() < OLDEST {
            let Wanted { title, needs, remedy, .. } = CUDNN;
            let (path, version) = (library.path.clone(), library.version());
            return Err(LibraryError::Version { title, path, version, needs, remedy });
        }
        Ok(library)
    }

    /// Its file, or its name where the loader has found it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its version: `9.28.1`.
    pub fn version(&self) -> String {
        let version = self.functions.version();
        format!("{}.{}.{}", version / 10_000, version / 100 % 100, version % 100)
    }

    /// A GPU that need not be there, from a description in JSON as the library itself writes it.
    ///
    /// # Errors
    /// A description that the library does not accept.
    pub fn described_gpu(&self, json: &str) -> Result<DescribedGpu, AttentionError> {
        let properties = Descriptor::of(&self.functions, GPU_PROPERTIES, &[(GPU_AS_JSON, Value::Text(json))])?;
        Ok(DescribedGpu { functions: Arc::clone(&self.functions), properties })
    }
}

/// A GPU that need not be there.
pub struct DescribedGpu {
    functions: Arc<Functions>,
    properties: Descriptor,
}

impl DescribedGpu {
    /// The plan that a rank on such a GPU would take; `None` where the library does not have the attention.
    ///
    /// # Errors
    /// The library's.
    pub fn plan(&self, attention: &CausalAttention) -> Result<Option<PlanFacts>, AttentionError> {
        Ok(Plan::first(&self.functions, &self.properties, attention)?.map(|plan| plan.facts()))
    }
}

/// Plans by attention; `None` where the library does not have it.
type Plans = HashMap<CausalAttention, Option<Plan>>;

/// The library for one GPU.
pub struct Handle {
    library: Arc<Library>,
    gpu: Arc<dyn Gpu>,
    /// One call at a time.
    opened: Mutex<OpenHandle>,
}

struct OpenHandle {
    raw: RawHandle,
    properties: Option<Descriptor>,
    plans: Plans,
}

impl Handle {
    /// Opens the library for `gpu`.
    ///
    /// # Errors
    /// A GPU that the library cannot use.
    pub fn open(library: Arc<Library>, gpu: Arc<dyn Gpu>) -> Result<Handle, DriverError> {
        gpu.enter()?;
        let raw = library.functions.open_handle()?;
        let opened = Mutex::new(OpenHandle { raw, properties: None, plans: HashMap::new() });
        let handle = Handle { library, gpu, opened };
        let parts = [(GPU_HANDLE, Value::Handle(raw))];
        let properties = Descriptor::of(&handle.library.functions, GPU_PROPERTIES, &parts)?;
        lock(&handle.opened).properties = Some(properties);
        Ok(handle)
    }

    /// Does something with the plan of an attention.
    fn with_plan<T>(
        &self,
        attention: &CausalAttention,
        action: impl FnOnce(RawHandle, &Plan) -> Result<T, AttentionError>,
    ) -> Result<Option<T>, DriverError> {
        self.gpu.enter()?;
        let mut opened = lock(&self.opened);
        let OpenHandle { raw, properties, plans } = &mut *opened;
        if !plans.contains_key(attention) {
            let made = match properties {
                Some(gpu) => Plan::first(&self.library.functions, gpu, attention)?,
                None => None,
            };
            plans.insert(*attention, made);
        }
        match plans.get(attention) {
            Some(Some(plan)) => Ok(Some(action(*raw, plan)?)),
            Some(None) | None => Ok(None),
        }
    }
}

impl AttentionLibrary for Handle {
    fn name(&self) -> String {
        format!("{} {}", CUDNN.title, self.library.version())
    }

    fn workspace_bytes(&self, attention: &CausalAttention) -> Result<Option<usize>, DriverError> {
        self.with_plan(attention, |_, plan| Ok(plan.facts().workspace_bytes))
    }

    fn attend(
        &self,
        stream: StreamHandle,
        attention: &CausalAttention,
        scale: f32,
        places: &AttentionPlaces,
        workspace: DevicePointer,
    ) -> Result<(), DriverError> {
        let submitted = self.with_plan(attention, |raw, plan| plan.submit(raw, stream, scale, places, workspace))?;
        submitted.ok_or_else(|| {
            let text = format!("{attention:?} has no plan");
            DriverError { call: "cudnnBackendExecute", kind: DriverErrorKind::InvalidArgument, text }
        })
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // A GPU that is lost has no handle any more.
        if self.gpu.enter().is_ok() {
            let mut opened = lock(&self.opened);
            opened.plans.clear();
            opened.properties = None;
            self.library.functions.close_handle(opened.raw);
        }
    }
}
