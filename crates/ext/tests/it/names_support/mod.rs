//! Images in files: made by mke2fs, filled by the kernel or by Diorite, checked by e2fsck, debugfs and the kernel.
#![allow(dead_code, reason = "each test uses a part")]
#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests read and write image files")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(crate) use crate::common::{have, run, unmount};
use diorite_device::{DirectIo, FileDevice, OpenOptions};
use diorite_ext::{Access, FileKind, Inode, InodeNumber, NodeSpec, Owner, Result, Volume, VolumeOptions};

/// An image file with a filesystem.
pub(crate) struct Image {
    directory: tempfile::TempDir,
}

/// A kernel mount of an image, until it is dropped.
pub(crate) struct Mounted {
    pub(crate) at: PathBuf,
}

impl Image {
    /// A new filesystem: arguments of mke2fs in one string.
    pub(crate) fn new(arguments: &str, size: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let image = Self { directory };
        let path = image.path();
        let path = path.to_str().unwrap();
        // The hash is not an option of mke2fs.
        let (arguments, hash) = arguments.split_once(" hash=").unwrap_or((arguments, ""));
        let mut all: Vec<&str> = vec!["-q", "-F"];
        all.extend(arguments.split_whitespace());
        all.extend([path, size]);
        let (code, text) = run("mke2fs", &all);
        assert_eq!(code, 0, "mke2fs {arguments}: {text}");
        if !hash.is_empty() {
            let (code, text) = run("tune2fs", &["-E", &format!("hash_alg={hash}"), path]);
            assert_eq!(code, 0, "tune2fs: {text}");
        }
        image
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join("image")
    }

    pub(crate) fn open(&self) -> Arc<Volume> {
        self.open_with(Access::ReadWrite)
    }

    pub(crate) fn open_with(&self, access: Access) -> Arc<Volume> {
        self.try_open(access).unwrap()
    }

    pub(crate) fn try_open(&self, access: Access) -> Result<Arc<Volume>> {
        let options = match access {
            Access::ReadOnly => OpenOptions::read_only(),
            Access::ReadWrite => OpenOptions::read_write(),
        };
        let device = FileDevice::open(self.path(), &options.direct(DirectIo::Off)).unwrap();
        Volume::open(device, VolumeOptions { access, ..VolumeOptions::default() })
    }

    /// e2fsck finds nothing to say.
    #[track_caller]
    pub(crate) fn check(&self) {
        let (code, text) = run("e2fsck", &["-fn", self.path().to_str().unwrap()]);
        assert_eq!(code, 0, "{text}");
    }

    pub(crate) fn debugfs(&self, command: &str) -> String {
        run("debugfs", &["-w", "-R", command, self.path().to_str().unwrap()]).1
    }

    /// A kernel mount; says why not if it cannot be.
    pub(crate) fn mount(&self) -> Option<Mounted> {
        let at = self.directory.path().join("mount");
        std::fs::create_dir_all(&at).unwrap();
        let (code, text) = run("mount", &["-o", "loop", self.path().to_str().unwrap(), at.to_str().unwrap()]);
        if code != 0 {
            println!("SKIPPED: no kernel mount here: {}", text.trim());
            return None;
        }
        Some(Mounted { at })
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        unmount(&self.at);
    }
}

pub(crate) fn spec(kind: FileKind) -> NodeSpec {
    let permissions = if kind == FileKind::Directory { 0o755 } else { 0o644 };
    NodeSpec { kind, permissions, umask: 0, owner: Owner { uid: 0, gid: 0 }, device: (0, 0) }
}

pub(crate) fn root(volume: &Volume) -> Arc<Inode> {
    volume.inodes.get(InodeNumber::ROOT).unwrap()
}

/// The inode at a path of names separated by slashes.
pub(crate) fn at(volume: &Volume, path: &str) -> Result<Arc<Inode>> {
    let mut inode = root(volume);
    for name in path.split('/').filter(|name| !name.is_empty()) {
        inode = volume.names.lookup(&inode, name.as_bytes())?;
    }
    Ok(inode)
}

/// Names and inodes of a directory but the dots; checks that each comes once, listed in pieces of `piece` entries.
pub(crate) fn list(volume: &Volume, directory: &Inode, piece: usize) -> BTreeMap<Vec<u8>, InodeNumber> {
    let (mut all, mut cursor) = (BTreeMap::new(), 0);
    loop {
        let mut n = 0;
        volume
            .names
            .read_directory(directory, cursor, &mut |entry| {
                n += 1;
                cursor = entry.next_cursor;
                let before = all.insert(entry.name.clone(), entry.inode);
                assert!(before.is_none(), "{:?} twice", String::from_utf8_lossy(&entry.name));
                n < piece
            })
            .unwrap();
        if n == 0 {
            break;
        }
    }
    assert!(all.remove(&b"."[..]).is_some() && all.remove(&b".."[..]).is_some(), "no dots");
    all
}

/// Names that the kernel lists.
pub(crate) fn host_names(directory: &Path) -> Vec<Vec<u8>> {
    use std::os::unix::ffi::OsStringExt;
    let mut names: Vec<_> =
        std::fs::read_dir(directory).unwrap().map(|e| e.unwrap().file_name().into_vec()).collect();
    names.sort();
    names
}
