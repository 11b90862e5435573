//! Suite `readers`: 5,000 small files and one of 256 MiB, read by Diorite, by other readers of ext4 images from their registries, and by
//! mounts, all from one image made by mke2fs.
//!
//! Every reader is a program that walks a directory and reads each file whole in one thread; it times itself, from before the image
//! is opened. Before the rounds all read everything once and print its checksum, which must be the same. `warm`: the image
//! is in the host's page cache, and Diorite reads it through that cache as the peers do. `cold`: the cache was dropped before
//! each run, and Diorite opens the image as it does by itself, past the cache.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::measure::{build, build_peers, call, median, range, shell, words};
use super::{Options, store};
use crate::target;

const FILES: u32 = 5000;
const LARGE_MIB: usize = 256;
const WORKLOADS: &[(&str, &str)] = &[("small", "/many"), ("large", "/large")];
/// The published readers that Diorite competes with.
const PEERS: &[&str] = &["rust-fs-ext4", "ext4-view", "dissect.extfs"];

/// Whether the host has the image in its page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cache {
    Warm,
    Cold,
}

impl Cache {
    fn name(self) -> &'static str {
        match self {
            Self::Warm => "warm",
            Self::Cold => "cold",
        }
    }
}

/// A program that reads a tree.
struct Reader {
    name: &'static str,
    /// The command, and the image or mount point; the directory follows.
    command: Vec<String>,
    /// How it is mounted before each run, and unmounted after.
    mount: Option<[Vec<String>; 2]>,
    /// The variable that opens the image through the host's cache, where there is one.
    through_cache: Option<&'static str>,
}

/// What a run said.
#[derive(Clone, Debug, PartialEq)]
struct Reported {
    files: u64,
    bytes: u64,
    sum: u64,
    seconds: f64,
}

pub(super) fn run(options: &Options) -> Result<(), String> {
    build(&["--package", "diorite", "--example", "read_tree"])?;
    let directory = options.directory.join("readers");
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(directory.join("mount")).map_err(|error| error.to_string())?;
    let image = directory.join("readers.img");
    let result = make_image(&directory, &image).and_then(|()| measure(options, &directory, &image));
    let _ = std::fs::remove_dir_all(&directory);
    result
}

/// An ext4 image as mke2fs fills it: files of 0.5 to 16 KB in 50 directories, and the large one.
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
        #[expect(clippy::disallowed_methods, reason = "what an image is made from")]
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

/// All readers that are available here; the others are named.
fn readers(directory: &Path, image: &Path) -> Vec<Reader> {
    let image = image.to_string_lossy().into_owned();
    let program = |path: &str| vec![path.to_owned(), image.clone()];
    let ours = &target::file("release/examples/read_tree");
    let mut list = vec![
        Reader {
            name: "diorite",
            command: program(ours),
            mount: None,
            through_cache: Some("DEVICE_DIRECT=0"),
        },
        Reader {
            name: "diorite, cached",
            command: words(&["env", "CACHED=1", ours, &image]),
            mount: None,
            through_cache: Some("DEVICE_DIRECT=0"),
        },
    ];
    match build_peers(None) {
        Ok(()) => {
            for name in ["rust-fs-ext4", "ext4-view"] {
                let command = program(&target::file(&format!("peers/release/{name}")));
                list.push(Reader { name, command, mount: None, through_cache: None });
            }
            list.extend(mounts(directory, &image));
        }
        Err(error) => println!("SKIPPED: rust-fs-ext4, ext4-view, mounts: {error}"),
    }
    match python(directory) {
        Ok(python) => {
            let command = vec![python, "bench/peers/dissect_extfs.py".to_owned(), image];
            list.push(Reader { name: "dissect.extfs", command, mount: None, through_cache: None });
        }
        Err(error) => println!("SKIPPED: dissect.extfs: {error}"),
    }
    list
}

/// The kernel's ext4 and fuse2fs, as points of reference.
fn mounts(directory: &Path, image: &str) -> Vec<Reader> {
    let at = directory.join("mount").to_string_lossy().into_owned();
    let kinds = [
        ("kernel", words(&["mount", "-o", "loop,ro", image, &at])),
        ("fuse2fs", words(&["fuse2fs", "-o", "ro", image, &at])),
    ];
    let mut list = Vec::new();
    for (name, mount) in kinds {
        let unmount = words(&["umount", &at]);
        match call(&mount).and_then(|_| call(&unmount)) {
            Ok(_) => list.push(Reader {
                name,
                command: words(&[&target::file("peers/release/host"), &at]),
                mount: Some([mount, unmount]),
                through_cache: None,
            }),
            Err(error) => println!("SKIPPED: {name}: {error}"),
        }
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

impl Reader {
    fn run(&self, directory: &str, cache: Cache, verify: bool) -> Result<Reported, String> {
        if let Some([mount, _]) = &self.mount {
            call(mount)?;
        }
        let reported = self.run_mounted(directory, cache, verify);
        if let Some([_, unmount]) = &self.mount {
            call(unmount)?;
        }
        reported
    }

    fn run_mounted(&self, directory: &str, cache: Cache, verify: bool) -> Result<Reported, String> {
        if cache == Cache::Cold {
            shell("sync; echo 3 > /proc/sys/vm/drop_caches")?;
        }
        let mut command = Vec::new();
        if let (Some(variable), Cache::Warm) = (self.through_cache, cache) {
            command.extend(["env", variable]);
        }
        command.extend(self.command.iter().map(String::as_str));
        command.push(directory);
        if verify {
            command.push("verify");
        }
        let text = call(&command)?;
        let json: Value =
            serde_json::from_str(&text).map_err(|error| format!("{}: {error}: {text}", self.name))?;
        let number =
            |name: &str| json[name].as_u64().ok_or_else(|| format!("{}: no {name}: {text}", self.name));
        let seconds = json["seconds"].as_f64().ok_or_else(|| format!("{}: no seconds: {text}", self.name))?;
        Ok(Reported { files: number("files")?, bytes: number("bytes")?, sum: number("sum")?, seconds })
    }
}

/// All have read the same.
fn verify(readers: &[Reader]) -> Result<(), String> {
    for (_, directory) in WORKLOADS {
        let mut first: Option<Reported> = None;
        for reader in readers {
            let reported = reader.run(directory, Cache::Warm, true)?;
            let known = first.get_or_insert_with(|| reported.clone());
            if (reported.files, reported.bytes, reported.sum) != (known.files, known.bytes, known.sum) {
                return Err(format!("{}: {reported:?}; {}: {known:?}", reader.name, readers[0].name));
            }
        }
    }
    Ok(())
}

fn measure(options: &Options, directory: &Path, image: &Path) -> Result<(), String> {
    let store = store::directory("readers")?;
    let readers = readers(directory, image);
    verify(&readers)?;
    let can_drop_caches = std::fs::OpenOptions::new().write(true).open("/proc/sys/vm/drop_caches").is_ok();
    if !can_drop_caches {
        println!("SKIPPED: cold: dropping the host's caches needs root");
    }
    let caches = if can_drop_caches { &[Cache::Warm, Cache::Cold][..] } else { &[Cache::Warm][..] };
    let mut raw = String::from("cache,workload,round,reader,files,bytes,seconds\n");
    let mut report = String::new();
    for &cache in caches {
        // Mounts are points of reference: once is enough.
        let readers: Vec<&Reader> =
            readers.iter().filter(|reader| cache == Cache::Warm || reader.mount.is_none()).collect();
        for &(workload, path) in WORKLOADS {
            let mut rounds = vec![Vec::new(); readers.len()];
            for round in 0..options.rounds {
                for (reader, rounds) in readers.iter().zip(&mut rounds) {
                    let reported = reader.run(path, cache, false)?;
                    let (cache, name) = (cache.name(), reader.name);
                    let line = format!(
                        "{cache},{workload},{round},{name},{},{},{}",
                        reported.files, reported.bytes, reported.seconds
                    );
                    println!("{line}");
                    raw += &line;
                    raw.push('\n');
                    rounds.push(reported);
                }
            }
            report += &table(cache, workload, &readers, &rounds);
        }
    }
    let text = format!(
        "# Readers of one ext4 image\n\n{}- peers: `bench/peers/Cargo.lock`, dissect.extfs 3.15

Times are medians of {} interleaved rounds; ratios are taken within a round: \
         the time of a reader by that of Diorite. One thread each. `cargo xtask bench readers` does this again.\n{report}",
        store::versions(),
        options.rounds,
    );
    store::write(&store.join("runs.csv"), &raw)?;
    store::finish(&store, &text, &report)
}

fn table(cache: Cache, workload: &str, readers: &[&Reader], rounds: &[Vec<Reported>]) -> String {
    let mut text = format!(
        "\n## {workload} files, {}\n\n| reader | ms | MiB/s | / Diorite (range) | |\n|---|---|---|---|---|\n",
        cache.name()
    );
    for (reader, reported) in readers.iter().zip(rounds) {
        let seconds = median(reported.iter().map(|reported| reported.seconds));
        let ratios: Vec<f64> = reported.iter().zip(&rounds[0]).map(|(a, b)| a.seconds / b.seconds).collect();
        let (ratio, (least, most)) = (median(ratios.iter().copied()), range(&ratios));
        let verdict = match (PEERS.contains(&reader.name), ratio > 1.0) {
            (false, _) => "",
            (true, true) => "Diorite is faster",
            (true, false) => "MISSED",
        };
        let bytes = reported.first().map_or(0, |reported| reported.bytes);
        let _ = writeln!(
            text,
            "| {} | {:.0} | {:.0} | {ratio:.2} ({least:.2} to {most:.2}) | {verdict} |",
            reader.name,
            seconds * 1e3,
            bytes as f64 / f64::from(1 << 20) / seconds,
        );
    }
    text
}
