//! The driver of GPUs in software.

use std::sync::Arc;

use gpu::{DeviceFacts, Driver, DriverError, Gpu};

use crate::modules::SharedCode;
use crate::settings::Settings;
use crate::soft_gpu::SoftGpu;
use crate::state::invalid;
use crate::work_log::WorkLog;

/// CUDA 13.0, as the driver counts.
const VERSION: u32 = 13000;

/// The driver of GPUs in software, each with settings of its own. Together they decode a text of PTX once.
#[derive(Clone, Debug)]
pub struct SoftDriver {
    devices: Vec<Settings>,
    code: SharedCode,
    log: Option<WorkLog>,
}

impl SoftDriver {
    /// N GPUs that are alike.
    pub fn new(count: usize, settings: Settings) -> SoftDriver {
        SoftDriver { devices: vec![settings; count], code: SharedCode::default(), log: None }
    }

    /// A GPU for each of `settings`.
    pub fn of(settings: impl IntoIterator<Item = Settings>) -> SoftDriver {
        SoftDriver { devices: settings.into_iter().collect(), code: SharedCode::default(), log: None }
    }

    /// The same GPUs, which log their work.
    pub fn with_log(self, log: &WorkLog) -> SoftDriver {
        SoftDriver { log: Some(log.clone()), ..self }
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
        let gpu = SoftGpu::with_code(ordinal, settings.clone(), self.code.clone());
        self.log.iter().for_each(|log| gpu.log_work(log));
        Ok(Arc::new(gpu))
    }
}
