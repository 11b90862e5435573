//! The entries of an archive, as a list shows them.
//!
//! Where it sits: beside `archive.rs`, which makes files of the same entries.

use std::io::{self, Read};

use tar::EntryType;

use crate::Error;
use crate::entry_meta::{kind_of, meta_of};
use crate::members::Members;
use crate::pax::{Entries, Entry, Forward, last};
use crate::records::{Extended, Sparse};
use crate::tree::Meta;

/// An entry of an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedEntry {
    /// Its name, as the archive has it.
    pub name: Vec<u8>,
    /// The target of a symbolic link, or the original of a hard link; empty for others.
    pub target: Vec<u8>,
    /// Whether it is a hard link. The entry then has the attributes of a regular file without data.
    pub is_hard_link: bool,
    /// The name of its owner, if the archive has it.
    pub user: Option<Vec<u8>>,
    /// The name of its group, if the archive has it.
    pub group: Option<Vec<u8>>,
    /// Its attributes; `None` if the archive has numbers for them that no file can have.
    pub meta: Option<Meta>,
}

impl ListedEntry {
    fn of(entry: Entry) -> Self {
        let Entry { header, records, name, link, size, sparse } = entry;
        let kind = header.entry_type();
        let meta = Extended::of(&records).and_then(|extended| {
            let size = match sparse.map(Sparse::Known).as_ref().or(extended.sparse.as_ref()) {
                Some(Sparse::Known(map)) => map.size,
                Some(Sparse::Leading(size)) => *size,
                None => size,
            };
            meta_of(&header, kind_of(kind, &name), size, &extended)
        });
        let named = |keyword, field: Option<&[u8]>| {
            let field = field.filter(|name| !name.is_empty());
            last(&records, keyword).or(field).map(<[u8]>::to_vec)
        };
        Self {
            target: if matches!(kind, EntryType::Symlink | EntryType::Link) { link } else { Vec::new() },
            is_hard_link: kind.is_hard_link(),
            user: named("uname", header.username_bytes()),
            group: named("gname", header.groupname_bytes()),
            name,
            meta: meta.ok(),
        }
    }
}

/// Call `each` for every wanted entry of a tar stream, which messages call `archive`.
///
/// # Errors
/// The stream cannot be read, or `each` failed.
pub fn list_archive<E: From<Error>>(
    stream: impl Read,
    archive: &str,
    members: &mut Members,
    mut each: impl FnMut(&ListedEntry) -> Result<(), E>,
) -> Result<(), E> {
    let mut entries = Entries::new(Forward(stream));
    let failure = |source: io::Error| Error::Archive { archive: archive.to_owned(), source };
    while let Some(entry) = entries.next_entry().map_err(failure)? {
        if members.wants(&entry.name) {
            each(&ListedEntry::of(entry))?;
        }
    }
    Ok(())
}
