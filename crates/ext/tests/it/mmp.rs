//! Multi-mount protection: one of two hosts gets the volume. Tests without the kernel use virtual time.
#![allow(clippy::disallowed_methods, reason = "tests read and write image files")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use common::{Bench, MemoryDevice, have, run};
use diorite_block::sync::{now, sleep};
use diorite_block::{BlockDevice, IoOwner};
use diorite_device::{DirectIo, FileDevice, OpenOptions};
use diorite_ext::layout::mmp::{MmpBlock, SEQUENCE_CLEAN, SEQUENCE_FSCK};
use diorite_ext::{
    Access, Error, FileKind, InodeNumber, MmpWait, MmpWatch, NodeSpec, Owner, Result, Volume, VolumeOptions,
};
use diorite_sim::world::Simulation;

fn host(name: &str) -> VolumeOptions {
    VolumeOptions { host_name: name.to_owned(), ..VolumeOptions::default() }
}

fn create(volume: &Volume, name: &str) -> Result<()> {
    let spec = NodeSpec {
        kind: FileKind::Fifo,
        permissions: 0o600,
        umask: 0,
        owner: Owner::default(),
        device: (0, 0),
    };
    volume.names.create(&*volume.inodes.get(InodeNumber::ROOT)?, name.as_bytes(), &spec).map(drop)
}

/// A volume with the feature, and the byte of its block.
fn protected(bench: &Bench, interval: u32) -> Option<(Arc<MemoryDevice>, usize)> {
    if !have(&["mke2fs", "e2fsck"]) {
        return None;
    }
    let arguments = format!("-t ext4 -b 1024 -O mmp -E mmp_update_interval={interval}");
    let device = MemoryDevice::new(std::fs::read(bench.image(&arguments, "16M")).unwrap());
    let magic = device.bytes.read().unwrap();
    let block = (0..magic.len()).step_by(1024).find(|at| magic[*at..].starts_with(b"PMM\0")).unwrap();
    drop(magic);
    Some((device, block))
}

fn entry(device: &MemoryDevice, at: usize) -> MmpBlock {
    MmpBlock::parse(&device.bytes.read().unwrap()[at..], None).unwrap()
}

/// Store an entry with the checksum that belongs to it.
fn put(device: &MemoryDevice, at: usize, entry: &MmpBlock) {
    let superblock = diorite_ext::read_superblock(device).unwrap();
    entry.write_into(&mut device.bytes.write().unwrap()[at..at + 1024], Some(superblock.checksum_seed()));
}

fn in_virtual_time(body: impl FnOnce() + Send + 'static) {
    let simulation = Simulation::new(1);
    simulation.spawn("first", IoOwner::default(), body);
    simulation.run().unwrap();
}

#[test]
fn a_free_volume_is_taken_at_once_and_given_back() {
    let bench = Bench::new();
    let Some((device, at)) = protected(&bench, 2) else { return };
    let disk = device.clone();
    in_virtual_time(move || {
        let volume = Volume::open(device.clone(), host("here")).unwrap();
        assert_eq!((volume.read_only_reason(), now()), (None, Duration::ZERO));
        let found = entry(&device, at);
        assert_eq!((&found.node[..], found.check_interval), (&b"here"[..], 5));
        assert!(found.sequence > 0 && found.sequence < SEQUENCE_FSCK);
        create(&volume, "a").unwrap();
        volume.close().unwrap();
        assert_eq!(entry(&device, at).sequence, SEQUENCE_CLEAN);
        let before = now();
        Volume::open(device, host("there")).unwrap().close().unwrap();
        assert_eq!(now(), before, "a clean volume is taken without waiting");
    });
    bench.check(&disk);
}

#[test]
fn a_host_that_renews_its_mark_keeps_the_volume() {
    let bench = Bench::new();
    let Some((device, _)) = protected(&bench, 2) else { return };
    let simulation = Simulation::new(1);
    let first = Arc::new(OnceLock::new());
    let done = Arc::new(AtomicBool::new(false));
    let (opened, own, ended) = (first.clone(), device.clone(), done.clone());
    simulation.spawn("first", IoOwner::default(), move || {
        let volume = opened.get_or_init(|| Volume::open(own, host("first")).unwrap());
        while !ended.load(Ordering::Acquire) {
            let next = volume.mmp_tick(now()).unwrap().unwrap();
            sleep(next.saturating_sub(now()).max(Duration::from_millis(1)));
        }
        create(volume, "still mine").unwrap();
    });
    let opened = first.clone();
    simulation.spawn("second", IoOwner::default(), move || {
        while opened.get().is_none() {
            sleep(Duration::from_millis(1));
        }
        let start = now();
        let refused = Volume::open(device.clone(), host("second")).unwrap_err();
        assert!(matches!(&refused, Error::InUse { node, .. } if node == "first"), "{refused}");
        assert_eq!((refused.errno(), now().saturating_sub(start)), (16, Duration::from_secs(11)));
        // Reading takes nothing and waits for nothing.
        let options = VolumeOptions { access: Access::ReadOnly, ..host("second") };
        Volume::open(device, options).unwrap().close().unwrap();
        assert_eq!(now().saturating_sub(start), Duration::from_secs(11));
        done.store(true, Ordering::Release);
    });
    simulation.run().unwrap();
    assert_eq!(first.get().unwrap().read_only_reason(), None);
}

/// ARCHITECTURE invariant 9: what another host has taken is not written any more.
#[test]
fn a_host_that_stood_still_loses_the_volume_and_learns_of_it() {
    let bench = Bench::new();
    let Some((device, at)) = protected(&bench, 2) else { return };
    for by_tick in [true, false] {
        let device = MemoryDevice::new(device.bytes.read().unwrap().clone());
        in_virtual_time(move || {
            let first = Volume::open(device.clone(), host("first")).unwrap();
            create(&first, "a").unwrap();
            let before = now();
            let second = Volume::open(device.clone(), host("second")).unwrap();
            assert_eq!(now(), before + Duration::from_secs(22), "its own mark is watched as well");
            let taken = entry(&device, at);
            let error = if by_tick {
                first.mmp_tick(now()).map(drop).unwrap_err()
            } else {
                create(&first, "b").unwrap_err()
            };
            assert!(matches!(&error, Error::InUse { node, .. } if node == "second"), "{error}");
            let reason = first.read_only_reason().unwrap();
            assert!(reason.contains("in use by second"), "{reason}");
            assert!(matches!(create(&first, "c"), Err(Error::ReadOnly(_))));
            assert!(first.close().is_err());
            drop(first);
            assert_eq!(entry(&device, at), taken, "the other's mark is left alone");
            second.close().unwrap();
        });
    }
}

#[test]
fn a_volume_under_e2fsck_is_refused_at_once_and_a_damaged_block_leaves_it_read_only() {
    let bench = Bench::new();
    let Some((device, at)) = protected(&bench, 2) else { return };
    let clean = entry(&device, at);
    put(&device, at, &MmpBlock { sequence: SEQUENCE_FSCK, node: b"elsewhere".to_vec(), ..clean });
    let refused = Volume::open(device.clone(), host("here")).unwrap_err();
    assert!(refused.to_string().contains("in use by e2fsck on elsewhere"), "{refused}");
    device.bytes.write().unwrap()[at + 200] ^= 1;
    let volume = Volume::open(device.clone(), host("here")).unwrap();
    let reason = volume.read_only_reason().unwrap();
    assert!(reason.contains("(MMP)"), "{reason}");
    // As e2fsck -fn, the check calls that a problem.
    let options = diorite_ext_tools::check::CheckOptions::default();
    let report = diorite_ext_tools::check::check(&*device, &options, &mut |_| {}).unwrap();
    assert_eq!(report.problem_count, 1, "{:?}", report.problems);
    let path = bench.path("damaged");
    device.save(&path);
    assert_ne!(run("e2fsck", &["-fn", &path.to_string_lossy()]).0, 0);
}

/// A mark with the largest interval that it can hold made an open wait for hours, with no message and no way to end it: the wait is at
/// most what the kernel's longest interval makes it, is reported while it lasts, and can be ended.
#[test]
fn a_wait_for_a_mark_is_bounded_reported_and_can_be_ended() {
    let bench = Bench::new();
    let Some((device, at)) = protected(&bench, 2) else { return };
    let clean = entry(&device, at);
    put(
        &device,
        at,
        &MmpBlock { sequence: 7, node: b"gone".to_vec(), check_interval: u16::MAX, time: 99, ..clean },
    );
    in_virtual_time(move || {
        let said = Arc::new(std::sync::Mutex::new(Vec::new()));
        let heard = said.clone();
        let watch = MmpWatch::new(move |wait: &MmpWait| {
            heard.lock().unwrap().push(wait.clone());
            if wait.elapsed < Duration::from_secs(5) {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        });
        let options = VolumeOptions { mmp_watch: Some(watch), ..host("here") };
        let ended = Volume::open(device.clone(), options).unwrap_err();
        assert!(matches!(ended, Error::Interrupted), "{ended}");
        assert_eq!(now(), Duration::from_secs(5));
        let said = said.lock().unwrap();
        assert_eq!((said[0].node.as_str(), said[0].time, said[0].elapsed), ("gone", 99, Duration::ZERO));
        assert_eq!(said[0].total, Duration::from_secs(720));
        Volume::open(device, host("here")).unwrap().close().unwrap();
        assert_eq!(now(), Duration::from_secs(5 + 720));
    });
}

/// A wait that was ended after our own mark was written left that mark: the next open, and e2fsck, named this host as the one that has
/// the volume. The mark that was found is restored.
#[test]
fn an_ended_wait_leaves_the_mark_that_was_there() {
    let bench = Bench::new();
    let Some((device, at)) = protected(&bench, 2) else { return };
    let gone = MmpBlock { sequence: 7, node: b"gone".to_vec(), time: 99, ..entry(&device, at) };
    put(&device, at, &gone);
    in_virtual_time(move || {
        let disk = device.clone();
        let watch = MmpWatch::new(move |wait: &MmpWait| {
            let is_ours = entry(&disk, at).node == b"here";
            assert_eq!(is_ours, wait.elapsed >= wait.total / 2);
            if is_ours { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        let options = VolumeOptions { mmp_watch: Some(watch), ..host("here") };
        assert!(matches!(Volume::open(device.clone(), options), Err(Error::Interrupted)));
        assert_eq!(entry(&device, at), gone);
    });
}

fn shell(directory: &Path, script: &str) -> bool {
    Command::new("sh").args(["-ec", script]).current_dir(directory).output().unwrap().status.success()
}

fn open_file(path: &Path) -> Arc<dyn BlockDevice> {
    FileDevice::open(path, &OpenOptions::read_write().direct(DirectIo::Off)).unwrap()
}

/// Against the kernel, which waits 11 seconds before it believes or refuses: both ways at once.
#[test]
fn the_kernel_and_we_keep_each_other_away() {
    let bench = Bench::new();
    if protected(&bench, 1).is_none() {
        return;
    }
    let (ours, theirs) = (bench.path("ours"), bench.path("theirs"));
    for image in [&ours, &theirs] {
        std::fs::copy(bench.path("image"), image).unwrap();
    }
    let directory = ours.parent().unwrap();
    // Storage that two hosts share, in one host: seen through two loop devices, the image is not known as mounted here.
    let mount_theirs = "mkdir mnt mnt2 && losetup -f --show theirs >lower && \
                        losetup -f --show --direct-io=on $(cat lower) >upper && mount $(cat upper) mnt";
    let unmount_theirs = "umount mnt; losetup -d $(cat upper); losetup -d $(cat lower)";
    if !shell(directory, mount_theirs) {
        shell(directory, unmount_theirs);
        println!("SKIPPED: cannot mount here");
        return;
    }
    let theirs_device = open_file(&theirs);
    let volume = Volume::open(open_file(&ours), host("ours")).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                volume.mmp_tick(now()).unwrap();
                sleep(Duration::from_millis(100));
            }
        });
        let kernel = scope.spawn(|| shell(directory, "mount -o loop ours mnt2"));
        let refused = Volume::open(theirs_device, host("ours")).map(drop);
        let mounted = kernel.join().unwrap();
        done.store(true, Ordering::Release);
        shell(directory, unmount_theirs);
        if mounted {
            shell(directory, "umount mnt2");
        }
        assert!(!mounted, "the kernel took a volume that is open here");
        assert!(matches!(refused, Err(Error::InUse { .. })), "{refused:?}");
    });
    create(&volume, "made here").unwrap();
    volume.close().unwrap();
    // Both are free now, and at once.
    assert!(shell(directory, "timeout 5 mount -o loop ours mnt2; test -p 'mnt2/made here'; umount mnt2"));
    let volume = Volume::open(open_file(&theirs), host("ours")).unwrap();
    create(&volume, "made later").unwrap();
    volume.close().unwrap();
    for image in [&ours, &theirs] {
        let (code, output) = run("e2fsck", &["-fn", &image.to_string_lossy()]);
        assert_eq!(code, 0, "{output}");
    }
}
