//! Times after 2038 on inodes that were made with short extra fields: debugfs makes them, debugfs and the kernel check them.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests read and write image files")]

use crate::names_support;
use std::os::unix::fs::MetadataExt;

use diorite_ext::{FileKind, SetAttributes, SetTime, Timestamp};
use names_support::{Image, at, have, root, run, spec};

const LATE: i64 = 5_000_000_000;

/// They were cut to 2038 although the inodes have space: the kernel widens their extra fields when it writes them.
#[test]
fn late_times_widen_the_extra_fields_where_there_is_space() {
    if !have(&["mke2fs", "debugfs", "e2fsck"]) {
        return;
    }
    for arguments in
        ["-t ext4 -b 1024 -I 256", "-t ext4 -b 1024 -I 256 -O ^metadata_csum", "-t ext3 -b 1024 -I 256"]
    {
        let image = Image::new(arguments, "8M");
        let path = image.path();
        {
            let volume = image.open();
            for name in ["none", "bare", "small", "full"] {
                volume.names.create(&root(&volume), name.as_bytes(), &spec(FileKind::Regular)).unwrap();
            }
            volume.close().unwrap();
        }
        // As made by a kernel that had no more fields; the attributes begin after the short ones.
        for command in [
            "sif none extra_isize 0",
            "sif bare extra_isize 4",
            "sif small extra_isize 4",
            "sif full extra_isize 4",
        ] {
            image.debugfs(command);
        }
        image.debugfs("ea_set small user.a value");
        image.debugfs(&format!("ea_set full user.a {}", "v".repeat(84)));
        let volume = image.open();
        let time = Timestamp { seconds: LATE, nanoseconds: 7 };
        let set = SetAttributes { modified: Some(SetTime::To(time)), ..SetAttributes::default() };
        for name in ["none", "bare", "small", "full"] {
            volume.set_attributes(&at(&volume, name).unwrap(), &set).unwrap();
        }
        volume.close().unwrap();
        drop(volume);
        let (code, said) = run("e2fsck", &["-fn", path.to_str().unwrap()]);
        assert_eq!(code, 0, "{arguments}: {said}");
        // Without space the latest time that fits; it does not wrap.
        let seconds = |name| if name == "full" { i64::from(i32::MAX) } else { LATE };
        let volume = image.open();
        for name in ["none", "bare", "small", "full"] {
            let inode = at(&volume, name).unwrap();
            assert_eq!(inode.attributes().modified.seconds, seconds(name), "{arguments}: {name}");
        }
        let value = |name| volume.xattrs.get(&at(&volume, name).unwrap(), b"user.a").unwrap();
        assert_eq!((value("small"), value("full")), (b"value".to_vec(), vec![b'v'; 84]), "{arguments}");
        volume.close().unwrap();
        drop(volume);
        let Some(mounted) = image.mount() else { continue };
        for name in ["none", "bare", "small", "full"] {
            let found = std::fs::symlink_metadata(mounted.at.join(name)).unwrap().mtime();
            assert_eq!(found, seconds(name), "{arguments}: {name}");
        }
    }
}
