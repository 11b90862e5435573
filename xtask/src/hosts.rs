//! Files of the host on several filesystems: `cargo xtask hosts [--cases N] [--seed N] [NAME...]`.
//!
//! Each filesystem is mounted in turn. On it run the byte model and the histories of `crates/torture` on files of the host, and the tests of
//! the library that concern them.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::{self, shell};
use crate::{setup, target};

/// A filesystem, and the commands that mount it at `$MOUNT`; `$IMAGE` is a sparse file of a GiB, and `$WORK` a directory on the disk.
const FILESYSTEMS: &[(&str, &str)] = &[
    ("ext4", "mkfs.ext4 -q -F $IMAGE && mount -o loop $IMAGE $MOUNT"),
    ("ext4-journalled", "mkfs.ext4 -q -F $IMAGE && mount -o loop,data=journal $IMAGE $MOUNT"),
    ("xfs", "mkfs.xfs -q -f -m reflink=1 $IMAGE && mount -o loop $IMAGE $MOUNT"),
    ("btrfs", "mkfs.btrfs -q -f $IMAGE && mount -o loop $IMAGE $MOUNT"),
    ("tmpfs", "mount -t tmpfs none $MOUNT"),
    (
        "overlayfs",
        "mkdir $WORK/lower $WORK/upper $WORK/work && \
         mount -t overlay none -o lowerdir=$WORK/lower,upperdir=$WORK/upper,workdir=$WORK/work $MOUNT",
    ),
    ("fuse", "$DIORITE mkfs $IMAGE && $DIORITE mount $IMAGE $MOUNT"),
    ("fuse-direct", "$DIORITE mkfs $IMAGE && $DIORITE mount -o direct $IMAGE $MOUNT"),
];

/// A filesystem that is mounted until this is dropped.
struct Mounted {
    work: PathBuf,
}

impl Mounted {
    fn new(name: &str, script: &str, diorite: &Path) -> Result<Self, String> {
        let work = target::directory().join("hosts").join(name);
        let _ = std::fs::remove_dir_all(&work);
        std::fs::create_dir_all(work.join("mount")).map_err(|error| error.to_string())?;
        let work = work.canonicalize().map_err(|error| error.to_string())?;
        let mounted = Self { work };
        let at = |name: &str| mounted.work.join(name).display().to_string();
        shell(&format!(
            "WORK={} MOUNT={} IMAGE={} DIORITE={}\nPATH=$PATH:/usr/sbin:/sbin\ntruncate -s 1G $IMAGE\n{script}",
            at(""),
            at("mount"),
            at("image"),
            diorite.display()
        ))?;
        Ok(mounted)
    }

    fn mount(&self) -> PathBuf {
        self.work.join("mount")
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let unmounted = shell(&format!("umount {}", self.mount().display()));
        if let Err(why) = unmounted {
            eprintln!("xtask: {why}");
            return;
        }
        let _ = std::fs::remove_dir_all(&self.work);
    }
}

/// The arguments.
struct Arguments {
    cases: u64,
    seed: u64,
    wanted: Vec<String>,
}

impl Arguments {
    fn parse(arguments: &[String]) -> Result<Self, String> {
        let mut parsed = Self { cases: 60_000, seed: 1, wanted: Vec::new() };
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            let mut number = || {
                let value = arguments.next().and_then(|value| value.parse().ok());
                value.ok_or_else(|| format!("hosts: {argument}: a number is needed"))
            };
            match argument.as_str() {
                "--cases" => parsed.cases = number()?,
                "--seed" => parsed.seed = number()?,
                name if FILESYSTEMS.iter().any(|(known, _)| *known == name) => {
                    parsed.wanted.push(name.to_owned());
                }
                name => {
                    let known: Vec<_> = FILESYSTEMS.iter().map(|(name, _)| *name).collect();
                    return Err(format!("hosts: no filesystem {name}; there are: {}", known.join(", ")));
                }
            }
        }
        Ok(parsed)
    }
}

/// Run all filesystems, or those that are named.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    let arguments = Arguments::parse(arguments)?;
    if !setup::is_root() {
        return Err("hosts: mounts need root".to_owned());
    }
    setup::install_host_packages()?;
    super::cargo(&["build", "--package", "diorite-cli", "--package", "diorite-torture"], &[])?;
    let program = |name: &str| {
        let path = target::directory().join("debug").join(name);
        path.canonicalize().map_err(|error| format!("{}: {error}", path.display()))
    };
    let (diorite, torture) = (program("diorite")?, program("diorite-torture")?);
    let mut failed = Vec::new();
    for (name, script) in FILESYSTEMS {
        if !arguments.wanted.is_empty() && !arguments.wanted.iter().any(|wanted| wanted == name) {
            continue;
        }
        println!("--- {name}");
        let done = Mounted::new(name, script, &diorite)
            .and_then(|mounted| on(&mounted.mount(), &torture, &arguments));
        if let Err(why) = done {
            println!("FAILED {name}: {why}");
            failed.push(*name);
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(format!("hosts: {} failed", failed.join(", "))) }
}

/// All suites in a directory.
fn on(directory: &Path, torture: &Path, arguments: &Arguments) -> Result<(), String> {
    let (cases, seed) = (arguments.cases.to_string(), arguments.seed.to_string());
    for suite in ["model", "history"] {
        let words = [suite, "--host", "1", "--cases", &cases, "--seed", &seed];
        command::run(Command::new(torture).args(words).env("TMPDIR", directory))?;
    }
    let tests = ["test", "--quiet", "--package", "diorite", "--test", "it", "--", "host_"];
    command::run(Command::new(env!("CARGO")).args(tests).env("TMPDIR", directory))
}
