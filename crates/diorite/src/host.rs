//! skeleton
use crate::{File, OpenOptions, Result};
use std::path::Path;
/// A file of the host's filesystem, with this library's page cache in place of the host's.
#[derive(Debug)]
pub struct HostFile {}
#[expect(unused_variables, reason = "skeleton")]
impl HostFile {
    /// Open, make or empty a file as the options say.
    pub fn open(path: impl AsRef<Path>, options: &OpenOptions) -> Result<File> {
        todo!()
    }
}
