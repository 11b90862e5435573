//! The two sides of a copy or a comparison, and its result.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use diorite::front_end::host_paths;
use diorite::{Access, DirectIo};
use diorite_copy::{HostTree, ImageTree, PastCache, Side, Summary};
use serde_json::json;

use crate::failure::Result;
use crate::images::Images;
use crate::location::{Location, is_same_image};
use crate::output::json_name;

/// Open a side of a copy; `others` are locations of the other side.
pub(crate) fn open_side(
    location: &Location,
    access: Access,
    others: &[Location],
    images: &mut Images,
) -> Result<Box<dyn Side>> {
    Ok(match location {
        Location::Host(_) => {
            let files = others.iter().filter_map(image_of);
            let files = files.flat_map(|image| host_paths(&image.to_string_lossy()));
            let is_on_host = !others.is_empty() && others.iter().all(|other| image_of(other).is_none());
            let past_cache = match images.direct() {
                Some(DirectIo::Required) => PastCache::Always,
                None if is_on_host => PastCache::LargeFiles,
                _ => PastCache::Never,
            };
            Box::new(HostTree::new().beside_images(files).past_cache(past_cache))
        }
        Location::Image { image, .. } => {
            let filesystem = images.open(image, access)?;
            Box::new(ImageTree::new(filesystem, image.display().to_string(), images.direct()))
        }
    })
}

pub(crate) fn image_of(location: &Location) -> Option<&Path> {
    match location {
        Location::Host(_) => None,
        Location::Image { image, .. } => Some(image),
    }
}

/// Whether both locations are in one image, or the same file of the host.
pub(crate) fn is_same_side(a: &Location, b: &Location) -> bool {
    match (image_of(a), image_of(b)) {
        (Some(a), Some(b)) => is_same_image(a, b),
        (a, b) => a == b,
    }
}

/// The file name of a path. For `..` on the host it is the name of that directory. The root of an image has none. `DIR/.` has none either,
/// because it stands for the content of the directory, as in cp(1).
pub(crate) fn name_of(path: &Path) -> Option<OsString> {
    let bytes = path.as_os_str().as_bytes();
    if bytes == b"." || bytes.ends_with(b"/.") {
        return None;
    }
    path.file_name().map(ToOwned::to_owned).or_else(|| {
        let is_relative = !path.has_root();
        is_relative.then(|| path.canonicalize().ok()?.file_name().map(ToOwned::to_owned)).flatten()
    })
}

/// The result of a copy as JSON.
pub(crate) fn summary_json(command: &str, summary: &Summary) -> serde_json::Value {
    json!({
        "command": json_name(command.as_bytes()),
        "files": summary.files,
        "directories": summary.directories,
        "others": summary.others,
        "skipped": summary.skipped,
        "failed": summary.failed,
        "attributes_lost": summary.attributes_lost,
        "bytes": summary.bytes,
    })
}
