//! The driver of GPUs in software.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};

use gpu::{DeviceFacts, Driver, DriverError, Gpu};

use crate::modules::SharedCode;
use crate::settings::Settings;
use crate::soft_gpu::SoftGpu;
use crate::state::invalid;
use crate::streams::WorkLog;

/// CUDA 13.0, as the driver counts.
const VERSION: u32 = 13000;

/// The driver of GPUs in software, each with settings of its own. Together they decode a text of PTX once.
#[derive(Clone, Debug)]
pub struct SoftDriver {
    devices: Vec<Settings>,
    code: SharedCode,
    log: Option<WorkLog>,
    /// By number, those that were opened last. Copies of the driver share them.
    opened: Arc<Mutex<BTreeMap<usize, Weak<SoftGpu>>>>,
}

impl SoftDriver {
    /// N GPUs that are alike.
    pub fn new(count: usize, settings: Settings) -> SoftDriver {
        SoftDriver::of(vec![settings; count])
    }

    /// A GPU for each of `settings`.
    pub fn of(settings: impl IntoIterator<Item = Settings>) -> SoftDriver {
        let devices = settings.into_iter().collect();
        SoftDriver { devices, code: SharedCode::default(), log: None, opened: Arc::default() }
    }

    /// The same GPUs, which log their work.
    pub fn with_log(self, log: &WorkLog) -> SoftDriver {
        SoftDriver { log: Some(log.clone()), ..self }
    }

    /// The GPU that was opened last under a number, while it is open.
    pub fn opened(&self, ordinal: usize) -> Option<Arc<SoftGpu>> {
        sync::lock(&self.opened).get(&ordinal).and_then(Weak::upgrade)
    }

    /// The same GPUs, which decode no text that is in `code` already.
    pub fn with_code(self, code: &SharedCode) -> SoftDriver {
        SoftDriver { code: code.clone(), ..self }
    }
}

impl Driver for SoftDriver {
    fn version(&self) -> Result<u32, DriverError> {
        Ok(VERSION)
    }

    fn devices(&self) -> Result<Vec<DeviceFacts>, DriverError> {
        Ok(self.devices.iter().enumerate().map(|(ordinal, settings)| settings.facts(ordinal)).collect())
    }

    fn open(&self, ordinal: usize) -> Result<Arc<dyn Gpu>, DriverError> {
        let Some(settings) = self.devices.get(ordinal) else {
            return Err(invalid("open", format!("GPU {ordinal} does not exist; there are {}", self.devices.len())));
        };
        let gpu = Arc::new(SoftGpu::with_code(ordinal, settings.clone(), self.code.clone()));
        self.log.iter().for_each(|log| gpu.log_work(log));
        sync::lock(&self.opened).insert(ordinal, Arc::downgrade(&gpu));
        Ok(gpu)
    }
}
