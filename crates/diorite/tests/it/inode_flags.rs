//! Flags of inodes (`chattr +i`, `+a`): they forbid later changes, and data accepted before is not lost.

use crate::common;
use std::io::Write as _;
use std::sync::Arc;

use common::{aligned_pattern, assert_device_clean, memory_volume, pattern};
use diorite::{
    DirectIo, DirectQueue, Error, ErrorKind, File, FileKind, Filesystem, FilesystemOptions, NodeSpec, Owner,
    SetAttributes, SubmitError,
};
use diorite_ext_tools::mkfs::{Flavor, MkfsOptions};

const IMMUTABLE: u32 = 0x10;
const APPEND_ONLY: u32 = 0x20;

fn set_flags(filesystem: &Filesystem, path: &str, flags: u32) {
    let node = filesystem.resolve(path).expect("resolve");
    let others = node.attributes().expect("stat").flags & !(IMMUTABLE | APPEND_ONLY);
    let changes = SetAttributes { flags: Some(others | flags), ..SetAttributes::default() };
    node.set_attributes(&changes).expect("set flags");
}

fn assert_refused<T: std::fmt::Debug>(result: Result<T, Error>) {
    assert_eq!(result.expect_err("refused").kind(), ErrorKind::PermissionDenied);
}

/// Of a file that became immutable with dirty pages, a write-back wrote nothing: it was zeros for ever, and the sync succeeded.
#[test]
fn what_was_cached_before_a_file_became_immutable_is_written() {
    for flavor in [Flavor::Ext2, Flavor::Ext4] {
        let device = memory_volume(16, &MkfsOptions { flavor, ..MkfsOptions::default() });
        let filesystem = FilesystemOptions::new().open_device(Arc::clone(&device)).expect("open");
        let data = pattern(70_000, 3);
        for flags in [IMMUTABLE, APPEND_ONLY] {
            let path = format!("/file-{flags}");
            let file = filesystem.create_file(&path).expect("create");
            file.write_all_at(&data, 0).expect("write");
            set_flags(&filesystem, &path, flags);
            // Rights are those of the open, as far as writing goes; what the file has is not taken away.
            file.write_all_at(b"more", data.len() as u64).expect("write");
            assert_refused(file.punch_hole(0, 4096));
            assert_refused(file.zero_range(0, 4096));
            assert_refused(file.set_len(10));
            if flavor == Flavor::Ext4 {
                assert_refused(file.collapse_range(0, 4096));
                assert_refused(file.insert_range(0, 4096));
            }
            file.sync_all().expect("sync");
            drop(file);
        }
        filesystem.close().expect("close");
        let filesystem = FilesystemOptions::new().open_device(Arc::clone(&device)).expect("open");
        for flags in [IMMUTABLE, APPEND_ONLY] {
            let content = filesystem.read(format!("/file-{flags}")).expect("read");
            assert!(content == [&data[..], b"more"].concat(), "{flavor:?}, {flags}");
        }
        assert_refused(filesystem.open_options().write(true).open(format!("/file-{IMMUTABLE}")));
        filesystem.close().expect("close");
        assert_device_clean(&device);
    }
}

/// A handle for appending wrote anywhere, by every call that takes an offset.
#[test]
fn an_append_only_file_is_written_at_its_end_alone() {
    let filesystem = common::open_memory(16, &MkfsOptions::default(), &FilesystemOptions::new());
    let data = pattern(8192, 5);
    filesystem.write("/log", &data).expect("write");
    set_flags(&filesystem, "/log", APPEND_ONLY);
    assert_refused(filesystem.open_options().write(true).open("/log"));
    let open = |direct| -> File {
        filesystem.open_options().read(true).append(true).direct(direct).open("/log").expect("open")
    };
    for file in [open(DirectIo::Off), open(DirectIo::Required)] {
        let page = aligned_pattern(4096, 6);
        assert_refused(file.write_at(&page, 0));
        assert_refused(file.write_at(&page, 4096));
        assert_refused(file.punch_hole(0, 4096));
        let end = file.size();
        file.write_all_at(&page, end).expect("at the end");
        assert_eq!(file.append(&page).expect("append"), end + 4096);
    }
    let mut queue = DirectQueue::new(2);
    let file = open(DirectIo::Required);
    match queue.write(&file, 0, aligned_pattern(4096, 7), 4096, 1) {
        Err(SubmitError { error, .. }) => assert_eq!(error.kind(), ErrorKind::PermissionDenied),
        other => panic!("{other:?}"),
    }
    // Where the flag is taken away, so is what it forbade; as long as a file is immutable, no other flag of it changes.
    set_flags(&filesystem, "/log", 0);
    file.write_all_at(&data[..4096], 0).expect("a file as others");
    set_flags(&filesystem, "/log", IMMUTABLE);
    let node = filesystem.resolve("/log").expect("resolve");
    let flags = Some(node.attributes().expect("stat").flags | APPEND_ONLY);
    assert_refused(node.set_attributes(&SetAttributes { flags, ..SetAttributes::default() }));
    set_flags(&filesystem, "/log", APPEND_ONLY);
    (&open(DirectIo::Off)).write_all(b"tail").expect("write");
    let content = filesystem.read("/log").expect("read");
    assert_eq!(content.len(), 8192 + 4 * 4096 + 4);
    assert!(content.starts_with(&data) && content.ends_with(b"tail"));
}

/// Two writers at the same end: the second one waited for the first one's range, and overwrote what was appended.
#[test]
fn an_append_only_file_is_not_overwritten_by_a_writer_that_waited() {
    let filesystem = common::open_memory(16, &MkfsOptions::default(), &FilesystemOptions::new());
    filesystem.write("/log", pattern(4096, 5)).expect("write");
    set_flags(&filesystem, "/log", APPEND_ONLY);
    let open = |direct| -> File {
        filesystem.open_options().read(true).append(true).direct(direct).open("/log").expect("open")
    };
    let by_call: fn(&File, u64) -> diorite::Result<()> =
        |file, end| file.write_all_at(&aligned_pattern(4096, 7), end);
    let by_queue: fn(&File, u64) -> diorite::Result<()> = |file, end| {
        let mut queue = DirectQueue::new(1);
        queue.write(file, end, aligned_pattern(4096, 7), 4096, 1)?;
        queue.next_finished()?.expect("in flight").result.map(drop)
    };
    for (direct, write) in
        [(DirectIo::Off, by_call), (DirectIo::Required, by_call), (DirectIo::Required, by_queue)]
    {
        let (first, second) = (open(DirectIo::Required), open(direct));
        let end = first.size();
        let mut queue = DirectQueue::new(1);
        queue.write(&first, end, aligned_pattern(4096, 6), 4096, 1).expect("submit");
        let thread = common::Observed::default();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                thread.begin();
                write(&second, end)
            });
            thread.wait_until_blocked(|| waiting.is_finished());
            queue.next_finished().expect("reap").expect("in flight").result.expect("appended");
            assert_refused(waiting.join().expect("no panic"));
        });
        let content = filesystem.read("/log").expect("read");
        assert!(content[end as usize..] == aligned_pattern(4096, 6)[..], "{direct:?}");
    }
}

/// `O_TMPFILE` asked for no flag of the directory.
#[test]
fn nothing_is_made_in_an_immutable_directory() {
    let filesystem = common::open_memory(16, &MkfsOptions::default(), &FilesystemOptions::new());
    filesystem.create_dir("/frozen").expect("mkdir");
    set_flags(&filesystem, "/frozen", IMMUTABLE);
    let directory = filesystem.resolve("/frozen").expect("resolve");
    let spec = NodeSpec {
        kind: FileKind::Regular,
        permissions: 0o600,
        umask: 0,
        owner: Owner::default(),
        device: (0, 0),
    };
    assert_refused(directory.create_nameless(&spec).map(drop));
    assert_refused(filesystem.write("/frozen/file", b"x"));
}
