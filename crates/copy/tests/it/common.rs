//! Archives made by tests, and trees to compare.

use std::path::Path;

use diorite_copy::{
    Archive, CompareOptions, Difference, Error, HostTree, MemoryTree, Recording, Role, Source, Unwatched,
    compare,
};
use tar::{EntryType, Header};

/// An entry of an archive.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) kind: EntryType,
    pub(crate) name: String,
    pub(crate) link: String,
    pub(crate) data: Vec<u8>,
    pub(crate) mode: u32,
    pub(crate) time: u64,
}

impl Entry {
    pub(crate) fn new(kind: EntryType, name: &str, link: &str, data: &[u8]) -> Self {
        let (name, link, data) = (name.to_owned(), link.to_owned(), data.to_vec());
        Self { kind, name, link, data, mode: 0o755, time: 1_000_000_000 }
    }

    pub(crate) fn file(name: &str, data: &str) -> Self {
        Self { mode: 0o644, ..Self::new(EntryType::Regular, name, "", data.as_bytes()) }
    }

    pub(crate) fn directory(name: &str, mode: u32) -> Self {
        Self { mode, ..Self::new(EntryType::Directory, name, "", b"") }
    }

    pub(crate) fn link(name: &str, target: &str) -> Self {
        Self::new(EntryType::Symlink, name, target, b"")
    }

    pub(crate) fn hard_link(name: &str, original: &str) -> Self {
        Self::new(EntryType::Link, name, original, b"")
    }
}

/// An archive of entries that belong to this user.
pub(crate) fn archive(entries: &[Entry]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for entry in entries {
        let mut header = Header::new_gnu();
        header.set_entry_type(entry.kind);
        header.set_mode(entry.mode);
        header.set_mtime(entry.time);
        header.set_size(entry.data.len() as u64);
        header.set_device_major(1).expect("a small number");
        header.set_device_minor(3).expect("a small number");
        header.set_uid(u64::from(rustix::process::geteuid().as_raw()));
        header.set_gid(u64::from(rustix::process::getegid().as_raw()));
        // By hand, since the builder refuses names of hostile archives.
        header.as_old_mut().name[..entry.name.len()].copy_from_slice(entry.name.as_bytes());
        header.as_old_mut().linkname[..entry.link.len()].copy_from_slice(entry.link.as_bytes());
        header.set_cksum();
        builder.append(&header, entry.data.as_slice()).expect("memory");
    }
    builder.into_inner().expect("memory")
}

/// The tree of an archive, which is a file of `directory` for a while.
pub(crate) fn record(directory: &Path, bytes: &[u8], role: Role) -> Result<MemoryTree, Error> {
    let path = directory.join("recorded.tar");
    // A new file each time: trees keep the old one open.
    let _ = std::fs::remove_file(&path);
    std::fs::write(&path, bytes).expect("space");
    record_file(&path, directory, role)
}

/// The tree of an archive in a file.
pub(crate) fn record_file(path: &Path, temporary: &Path, role: Role) -> Result<MemoryTree, Error> {
    Archive::open(path, &Unwatched)?.record(Recording { role, temporary, watch: &Unwatched })
}

/// The tree of layers, from the bottom up.
pub(crate) fn layered(directory: &Path, layers: &[Vec<Entry>]) -> Result<MemoryTree, Error> {
    let mut tree = MemoryTree::new("layers", Role::Whole);
    for layer in layers {
        tree.apply(record(directory, &archive(layer), Role::Layer)?)?;
    }
    Ok(tree)
}

/// The content of a file of a tree.
pub(crate) fn content(tree: &MemoryTree, path: &str) -> Result<Vec<u8>, Error> {
    let meta = tree.meta(Path::new(path), diorite_copy::Follow::Yes)?;
    let file = tree.open(Path::new(path), &meta)?;
    let mut bytes = vec![0; meta.size as usize];
    let count = file.read_at(&mut bytes, 0)?;
    bytes.truncate(count);
    Ok(bytes)
}

/// The paths of all files, in order.
pub(crate) fn paths(tree: &MemoryTree) -> Vec<String> {
    let mut found = Vec::new();
    let mut waiting = vec![Path::new("/").to_owned()];
    while let Some(path) = waiting.pop() {
        if let Ok(names) = tree.names(&path) {
            let name = |name: Vec<u8>| path.join(String::from_utf8_lossy(&name).as_ref());
            waiting.extend(names.names.into_iter().map(name));
        }
        found.push(path.display().to_string());
    }
    found.sort();
    found.remove(0);
    found
}

/// The differences between a directory of the host and a tree. Their roots are not compared.
pub(crate) fn differences(directory: &Path, tree: &MemoryTree) -> Vec<String> {
    let mut found = Vec::new();
    let mut note = |path: &Path, difference: &Difference| {
        if !path.as_os_str().is_empty() {
            found.push(format!("{}: {difference:?}", path.display()));
        }
        Ok(())
    };
    let (host, options) = (HostTree::new(), CompareOptions::default());
    let sides = ((&host as &dyn Source, directory), (tree as &dyn Source, tree.top()));
    compare(sides.0, sides.1, options, &Unwatched, &mut note).expect("both can be read");
    found
}
