//! From what a user typed to a device.

use std::path::Path;
use std::sync::Arc;

use diorite_block::BlockDevice;

use crate::error::OpenError;
use crate::file::FileDevice;
use crate::options::OpenOptions;

/// Open `PATH` or `raw:PATH`.
pub fn open_target(spec: &str, options: &OpenOptions) -> Result<Arc<dyn BlockDevice>, OpenError> {
    let path = spec.strip_prefix("raw:").filter(|_| !Path::new(spec).exists()).unwrap_or(spec);
    Ok(FileDevice::open(path, options)?)
}
