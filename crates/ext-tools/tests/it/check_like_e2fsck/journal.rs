//! The journal: replayed in memory, on another device, or with several users.

use std::os::unix::fs::FileExt;
use std::process::Command;
use std::sync::Arc;

use diorite_block::BlockDevice;
use diorite_device::{DirectIo, FileDevice, OpenOptions};
use diorite_ext_tools::check::{CheckOptions, CheckReport, ProblemKind, check_replayed};

use super::image::{our_check, run};
use crate::common::has_e2fsprogs;

/// A journal left by the kernel is replayed in memory. The volume is then sound, and the image unchanged.
#[test]
fn a_dirty_journal_is_replayed_in_memory() {
    if !has_e2fsprogs() {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let script = "truncate -s 64M image; mke2fs -q -F -t ext4 image; mkdir mnt; mount -o loop image mnt
        trap 'umount mnt' EXIT
        mkdir mnt/d; for i in $(seq 300); do echo $i > mnt/d/$i; done; rm mnt/d/1*; mv mnt/d mnt/e; sync -f mnt
        for i in $(seq 50); do echo $i > mnt/e/more$i; done; sync mnt/e/more50; cp image dirty";
    let done = Command::new("sh").args(["-ec", script]).current_dir(&scratch).output().unwrap();
    if !done.status.success() {
        println!("SKIPPED: cannot mount here: {}", String::from_utf8_lossy(&done.stderr));
        return;
    }
    let path = scratch.path().join("dirty");
    let (_, before) = run("cksum", &[], &path);
    let device: Arc<dyn BlockDevice> =
        FileDevice::open(&path, &OpenOptions::read_only().direct(DirectIo::Off)).unwrap();
    let report = check_replayed(&device, &CheckOptions::default(), &mut |_| {}).unwrap();
    let problems: Vec<String> = report.problems.iter().map(ToString::to_string).collect();
    assert!(report.is_clean(), "{}", problems.join("\n"));
    assert!(report.notes[0].contains("replayed in memory"), "{:?}", report.notes);
    assert!(report.files > 200, "{} files", report.files);
    assert_eq!(run("cksum", &[], &path).1, before, "the check wrote");
    run("e2fsck", &["-fy"], &path);
    let again = our_check(&path);
    assert_eq!((again.files, again.directories), (report.files, report.directories));
}

/// A sound image of ext2 or ext3, which have no checksums, with some bytes changed.
fn changed_image(kind: &str, changes: impl FnOnce(&[u8]) -> Vec<(u64, Vec<u8>)>) -> CheckReport {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("image");
    let file = std::fs::OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
    file.set_len(16 << 20).unwrap();
    let (code, output) = run("mke2fs", &["-q", "-F", "-t", kind, "-b", "1024"], &path);
    assert_eq!(code, Some(0), "{output}");
    let mut bytes = vec![0; 16 << 20];
    file.read_exact_at(&mut bytes, 0).unwrap();
    for (at, change) in changes(&bytes) {
        file.write_all_at(&change, at).unwrap();
    }
    our_check(&path)
}

/// The check said "clean" though it had not seen the journal, which is on another device.
#[test]
fn journal_on_another_device_is_not_clean() {
    if !has_e2fsprogs() {
        return;
    }
    // The feature, no inode, and the UUID of the other device.
    let report = changed_image("ext2", |bytes| {
        vec![(1024 + 0x5c, vec![bytes[1024 + 0x5c] | 4]), (1024 + 0xd0, vec![7; 16])]
    });
    assert!(!report.is_clean() && report.incomplete, "{:?} {:?}", report.problems, report.notes);
}

/// A journal that is a file of the volume has one user.
#[test]
fn journal_with_other_users_is_reported() {
    if !has_e2fsprogs() {
        return;
    }
    let report = changed_image("ext3", |bytes| {
        let is_journal = |at: &usize| bytes[*at..*at + 8] == [0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, 4];
        let journal = (0..bytes.len()).step_by(1024).find(is_journal).unwrap();
        vec![(journal as u64 + 0x43, vec![2])]
    });
    // Once: it was said twice.
    let said = report.problems.iter().filter(|problem| problem.kind == ProblemKind::Journal);
    assert_eq!(said.count(), 1, "{:?}", report.problems);
}

/// The check said "clean" though the journal has features that it does not know: e2fsck stops there.
#[test]
fn journal_with_unknown_features_is_not_clean() {
    if !has_e2fsprogs() {
        return;
    }
    for feature in [0x2a, 0x2e] {
        let report = changed_image("ext3", |bytes| {
            let is_journal = |at: &usize| bytes[*at..*at + 8] == [0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, 4];
            let journal = (0..bytes.len()).step_by(1024).find(is_journal).unwrap();
            vec![(journal as u64 + feature, vec![1])]
        });
        assert!(!report.is_clean() && report.incomplete, "{:?} {:?}", report.problems, report.notes);
    }
}
