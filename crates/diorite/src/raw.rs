//! skeleton
use crate::{BlockDevice, File, OpenOptions, Result};
use std::sync::Arc;
/// A whole device as one file.
#[derive(Debug)]
pub struct RawFile {}
#[expect(unused_variables, reason = "skeleton")]
impl RawFile {
    /// Open an image, a device or a target, with 64 MiB of page cache if it is not direct.
    pub fn open(target: &str, options: &OpenOptions) -> Result<File> {
        todo!()
    }
    /// The same on a device that is open.
    pub fn open_device(
        device: Arc<dyn BlockDevice>,
        options: &OpenOptions,
        cache_bytes: usize,
    ) -> Result<File> {
        todo!()
    }
}
