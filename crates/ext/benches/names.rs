//! How many names one thread makes, looks up and removes in a second of CPU time: `cargo bench -p diorite-ext --bench names [COUNT]`.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark program")]

use std::time::Duration;

use diorite_ext::{FileKind, InodeNumber, NodeSpec, Owner, Volume, VolumeOptions};
use diorite_ext_tools::mkfs::{Flavor, MkfsOptions, mkfs};
use diorite_sim::image::ImageDevice;

/// CPU time of this thread: other work on the machine does not count.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn main() {
    let count: u32 = std::env::args().find_map(|argument| argument.parse().ok()).unwrap_or(100_000);
    for (flavor, name) in [(Flavor::Ext2, "ext2"), (Flavor::Ext4, "ext4")] {
        let size = (u64::from(count) * 2048).max(256 << 20);
        let device = ImageDevice::zeroed(size);
        let inodes = count + count / 4 + 1000;
        let options = MkfsOptions {
            inodes: Some(inodes),
            features: "^has_journal".to_owned(),
            flavor,
            ..MkfsOptions::default()
        };
        mkfs(&*device, &options).unwrap();
        let volume = Volume::open(device, VolumeOptions::default()).unwrap();
        let root = volume.inodes.get(InodeNumber::ROOT).unwrap();
        let spec = |kind| NodeSpec {
            kind,
            permissions: 0o755,
            umask: 0,
            owner: Owner { uid: 0, gid: 0 },
            device: (0, 0),
        };
        let directory = volume.names.create(&root, b"d", &spec(FileKind::Directory)).unwrap();
        let names: Vec<Vec<u8>> = (0..count).map(|n| format!("file-{n:08}").into_bytes()).collect();
        let measure = |what: &str, rounds: u32, work: &mut dyn FnMut(usize)| {
            let start = cpu_time();
            for _ in 0..rounds {
                (0..names.len()).for_each(&mut *work);
            }
            let per_second =
                f64::from(rounds) * f64::from(count) / cpu_time().saturating_sub(start).as_secs_f64();
            println!("{name} {count} names: {what:<8} {per_second:>12.0}/s");
        };
        measure("create", 1, &mut |n| {
            drop(volume.names.create(&directory, &names[n], &spec(FileKind::Regular)).unwrap());
        });
        measure("stat", 3, &mut |n| {
            let inode = volume.names.lookup(&directory, &names[n]).unwrap();
            assert_eq!(inode.attributes().links, 1);
        });
        let hot = &names[..names.len().min(1000)];
        measure("hot stat", 3, &mut |n| {
            let inode = volume.names.lookup(&directory, &hot[n % hot.len()]).unwrap();
            assert_eq!(inode.attributes().links, 1);
        });
        let start = cpu_time();
        let mut listed = 0_u32;
        volume
            .names
            .read_directory(&directory, 0, &mut |_| {
                listed += 1;
                true
            })
            .unwrap();
        let per_second = f64::from(listed) / cpu_time().saturating_sub(start).as_secs_f64();
        println!("{name} {count} names: list     {per_second:>12.0}/s");
        measure("unlink", 1, &mut |n| drop(volume.names.unlink(&directory, &names[n]).unwrap()));
        volume.close().unwrap();
    }
}
