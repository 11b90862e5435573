//! Suite `readers`: 5,000 small files and one of 256 MiB, read by Diorite, by other readers of ext4 images from their registries, and by
//! mounts, all from one image made by mke2fs.
//!
//! Each reader is a program that walks a directory and reads each file whole in one thread. It measures its own time, from before the
//! image is opened. Before the rounds each reader prints the number, the bytes and the checksum of the files, which must be equal.
//! `warm`: the image is in the host's page cache, and Diorite reads it through that cache. `cold`: the cache is dropped before each
//! run, and Diorite opens the image by direct I/O.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::Options;
use super::measure::{build, build_peers, words};
use super::rates::{Bound, RateSuite, Runner, TargetRatio, can_mount};
use crate::command::{call, shell};
use crate::target;

const FILES: u32 = 5000;
const LARGE_MIB: usize = 256;
/// Workloads: the names with a warm and a cold cache, and the directory.
const WORKLOADS: &[([&str; 2], &str)] =
    &[(["small warm", "small cold"], "/many"), (["large warm", "large cold"], "/large")];
/// The published readers that Diorite is compared with.
const PEERS: &[&str] = &["rust-fs-ext4", "ext4-view", "dissect.extfs"];

/// A program that reads a tree.
struct Reader {
    name: &'static str,
    /// The command, and the image or mount point; the directory follows.
    command: Vec<String>,
    /// The shell command that mounts the image, if the program reads a mount.
    mount: Option<String>,
}

pub(super) fn run(options: &Options) -> Result<(), String> {
    build(&["--package", "diorite", "--example", "read_tree"])?;
    build_peers(None)?;
    let directory = options.directory.join("readers");
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(directory.join("mount")).map_err(|error| error.to_string())?;
    let image = directory.join("readers.img");
    let result = make_image(&directory, &image).and_then(|()| {
        let at = directory.join("mount").to_string_lossy().into_owned();
        let readers = readers(&directory, &image.to_string_lossy(), &at);
        verify(&readers, &at)?;
        suite(&readers, &at).run(options)
    });
    let _ = std::fs::remove_dir_all(&directory);
    result
}

/// An ext4 image filled by mke2fs: files of 0.5 to 16 KB in 50 directories, and the large one.
fn make_image(directory: &Path, image: &Path) -> Result<(), String> {
    let source = directory.join("source");
    println!("--- making {}", image.display());
    let mut seed = 1_u64;
    let mut noise = |len: usize| -> Vec<u8> {
        let words = std::iter::repeat_with(|| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed ^ (seed >> 29)).to_le_bytes()
        });
        words.take(len.div_ceil(8)).flatten().take(len).collect()
    };
    let write = |path: PathBuf, bytes: &[u8]| {
        let parent = path.parent().ok_or("a file in a directory")?;
        std::fs::create_dir_all(parent).map_err(|error| error.to_string())?;
        #[expect(clippy::disallowed_methods, reason = "the source of an image")]
        std::fs::write(&path, bytes).map_err(|error| format!("{}: {error}", path.display()))
    };
    for file in 0..FILES {
        let len = 500 + (file as usize * 7919) % 15_500;
        write(source.join(format!("many/{:02}/file-{file:04}", file / 100)), &noise(len))?;
    }
    write(source.join("large/file"), &noise(LARGE_MIB << 20))?;
    let (from, to) = (source.to_string_lossy(), image.to_string_lossy());
    call(&["mke2fs", "-q", "-F", "-t", "ext4", "-d", &from, &to, "400M"])?;
    std::fs::remove_dir_all(&source).map_err(|error| error.to_string())?;
    call(&["sync"]).map(drop)
}

/// The readers that run on this machine.
fn readers(directory: &Path, image: &str, at: &str) -> Vec<Reader> {
    let ours = target::file("release/examples/read_tree");
    let reader = |name, command: &[&str]| Reader { name, command: words(command), mount: None };
    let mut list = vec![
        reader("diorite", &[&ours, image]),
        reader("diorite-cached", &["env", "CACHED=1", &ours, image]),
    ];
    for name in ["rust-fs-ext4", "ext4-view"] {
        list.push(reader(name, &[&target::file(&format!("peers/release/{name}")), image]));
    }
    match python(directory) {
        Ok(python) => list.push(reader("dissect.extfs", &[&python, "bench/peers/dissect_extfs.py", image])),
        Err(error) => println!("SKIPPED: dissect.extfs: {error}"),
    }
    // Mounts are points of reference.
    if can_mount() {
        let host = target::file("peers/release/host");
        let mounts = [("kernel", "mount -o loop,ro"), ("fuse2fs", "fuse2fs -o ro")];
        list.extend(mounts.map(|(name, mount)| Reader {
            mount: Some(format!("{mount} {image} {at}")),
            ..reader(name, &[&host, at])
        }));
    } else {
        println!("SKIPPED: kernel, fuse2fs: they need root");
    }
    list
}

/// A Python with dissect.extfs, in the scratch directory.
fn python(directory: &Path) -> Result<String, String> {
    let venv = directory.join("venv").to_string_lossy().into_owned();
    call(&["python3", "-m", "venv", &venv])?;
    shell(&format!("{venv}/bin/pip --quiet --disable-pip-version-check install dissect.extfs==3.15"))?;
    Ok(format!("{venv}/bin/python"))
}

/// Check that all readers read the same content.
fn verify(readers: &[Reader], at: &str) -> Result<(), String> {
    for (_, directory) in WORKLOADS {
        let mut first = None;
        for Reader { name, command, mount } in readers {
            let unmount = mount.as_ref().map(|_| format!("umount {at}"));
            mount.as_deref().map_or(Ok(String::new()), shell)?;
            let said = call(&[&command[..], &words(&[directory, "verify"])].concat());
            unmount.as_deref().map_or(Ok(String::new()), shell)?;
            let json: Value = serde_json::from_str(&said?).map_err(|error| format!("{name}: {error}"))?;
            let content = ["files", "bytes", "sum"].map(|figure| json[figure].clone());
            let (known, of) = first.get_or_insert_with(|| (content.clone(), *name));
            if content != *known {
                return Err(format!("{name}: {content:?}; {of}: {known:?}"));
            }
        }
    }
    Ok(())
}

fn suite(readers: &[Reader], at: &str) -> RateSuite {
    let (mut runners, mut targets) = (Vec::new(), Vec::new());
    for (names, path) in WORKLOADS {
        for (workload, is_warm) in names.iter().zip([true, false]) {
            if !is_warm && !can_mount() {
                println!("SKIPPED: {workload}: only root can drop the host's caches");
                continue;
            }
            for Reader { name, command, mount } in readers.iter().filter(|r| is_warm || r.mount.is_none()) {
                let drop_caches = (!is_warm).then(|| "sync; echo 3 > /proc/sys/vm/drop_caches".to_owned());
                let through_cache: &[&str] = if is_warm { &["env", "DEVICE_DIRECT=0"] } else { &[] };
                runners.push(Runner {
                    workload,
                    name,
                    before: mount.clone().into_iter().chain(drop_caches).collect(),
                    command: [&words(through_cache)[..], command, &words(&[path])].concat(),
                    after: mount.iter().map(|_| format!("umount {at}")).collect(),
                });
            }
            let target = |peer: &&'static str| {
                TargetRatio::of("seconds", peer, "diorite", Bound::AtLeast(1.0)).on(workload)
            };
            targets.extend(PEERS.iter().map(target));
        }
    }
    RateSuite {
        name: "readers",
        title: "Readers of one ext4 image",
        about: "Peers: `bench/peers/Cargo.lock`, dissect.extfs 3.15. One thread each. Ratios are the time of a reader / the time of Diorite.\n"
            .to_owned(),
        runners,
        targets,
    }
}
