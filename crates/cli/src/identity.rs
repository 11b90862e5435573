//! UUID, hash seed and time of an image, so that equal content makes equal bytes.

use diorite::Timestamp;
use diorite::mkfs::MkfsOptions;
use diorite_copy::MemoryTree;
use sha2::{Digest as _, Sha256};

use crate::failure::{Failure, Result};
use crate::interrupt;
use crate::progress::{CopyProgress, CopySays};

/// The variable that bounds all times: <https://reproducible-builds.org/specs/source-date-epoch/>.
const SOURCE_DATE_EPOCH: &str = "SOURCE_DATE_EPOCH";

/// Values from the arguments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Given {
    /// `-E time=`.
    pub(crate) time: Option<Timestamp>,
    /// `-U random`.
    pub(crate) has_random_uuid: bool,
}

/// The identity of an image with content.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity {
    /// The time of the filesystem, and the latest one of a file.
    pub(crate) time: Timestamp,
    /// The digest of content and options.
    pub(crate) digest: [u8; 16],
}

/// Choose time, UUID and hash seed if they are not given.
pub(crate) fn identify(content: &MemoryTree, options: &mut MkfsOptions, given: Given) -> Result<Identity> {
    let time = match given.time {
        Some(time) => time,
        None => source_date()?.or_else(|| content.newest()).unwrap_or_default(),
    };
    options.time = Timestamp { nanoseconds: 0, ..time };
    let progress = CopyProgress::new(0, interrupt::cancel(), CopySays::default());
    let of_content = content.digest(&progress);
    progress.finish();
    let digest = digest_with(of_content?, options);
    let uuid = options.uuid;
    *options = std::mem::take(options).identified_by(digest);
    if given.has_random_uuid {
        options.uuid = uuid;
    }
    Ok(Identity { time, digest })
}

/// The digest of the content and of the options, which make another image of it.
fn digest_with(content: [u8; 16], options: &MkfsOptions) -> [u8; 16] {
    combined(content, options.named().as_bytes())
}

/// A digest and further bytes: the first half of a SHA-256.
pub(crate) fn combined(digest: [u8; 16], bytes: &[u8]) -> [u8; 16] {
    let combined = Sha256::new().chain_update(digest).chain_update(bytes).finalize();
    std::array::from_fn(|index| combined[index])
}

/// The time in `SOURCE_DATE_EPOCH`.
fn source_date() -> Result<Option<Timestamp>> {
    let Some(text) = std::env::var_os(SOURCE_DATE_EPOCH).filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let seconds = text.to_str().and_then(|text| text.parse::<i64>().ok()).filter(|seconds| *seconds >= 0);
    let Some(seconds) = seconds else {
        let text = text.display();
        return Err(Failure::Usage(format!(
            "{SOURCE_DATE_EPOCH}: `{text}` is not a time; write the seconds since 1970, or unset it"
        )));
    };
    Ok(Some(Timestamp { seconds, nanoseconds: 0 }))
}
