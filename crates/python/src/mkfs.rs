//! The function `mkfs`.

use diorite::mkfs::{Flavor, MkfsOptions};
use diorite::{Error, Existing, Filesystem};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::errors::Failure;
use crate::paths::HostPath;

fn flavor(name: &str) -> PyResult<Flavor> {
    match name {
        "ext2" => Ok(Flavor::Ext2),
        "ext3" => Ok(Flavor::Ext3),
        "ext4" => Ok(Flavor::Ext4),
        other => {
            let message = format!("the type must be \"ext2\", \"ext3\" or \"ext4\", not {other:?}");
            Err(PyValueError::new_err(message))
        }
    }
}

/// Make a volume: in a new image of ``size`` bytes, or without a size on an existing image or device.
///
/// The previous content is lost. A target with known content (a volume, a partition table, a member of an array or a volume group, another
/// format) raises ``FileExistsError`` unless ``force`` is true.
/// ``type`` is ``"ext2"``, ``"ext3"`` or ``"ext4"``; ``features`` has the syntax of ``mke2fs -O``.
#[pyfunction]
#[pyo3(signature = (
    target, size = None, *, r#type = "ext4", block_size = None, label = "", features = "", inodes = None,
    bytes_per_inode = None, reserved_percent = 5.0, owner = (0, 0), force = false
))]
#[expect(clippy::too_many_arguments, reason = "keywords")]
pub(crate) fn mkfs(
    py: Python<'_>,
    target: HostPath,
    size: Option<u64>,
    r#type: &str,
    block_size: Option<u32>,
    label: &str,
    features: &str,
    inodes: Option<u32>,
    bytes_per_inode: Option<u32>,
    reserved_percent: f64,
    owner: (u32, u32),
    force: bool,
) -> PyResult<()> {
    let options = MkfsOptions {
        block_size,
        label: label.as_bytes().to_vec(),
        features: features.to_owned(),
        inodes,
        bytes_per_inode,
        reserved_percent,
        root_owner: crate::open::owner(Some(owner)),
        ..MkfsOptions::new(flavor(r#type)?)
    };
    let made = py.detach(|| match size {
        Some(size) => Filesystem::create(&target, size, &options)?.close(),
        None => make_on(&target, &options, force),
    });
    let made = made.map_err(|error| error.at(&target));
    Ok(made.map_err(Failure::from)?)
}

/// Make a volume on an existing target.
fn make_on(target: &HostPath, options: &MkfsOptions, force: bool) -> diorite::Result<()> {
    let not_text = Error::InvalidArgument("the name of an image must be text in UTF-8");
    let target = target.as_ref().to_str().ok_or(not_text)?;
    diorite::mkfs_on(target, options, if force { Existing::Overwrite } else { Existing::Keep })
}
