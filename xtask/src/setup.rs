//! The Debian packages that the tests need.

use std::path::Path;
use std::process::Command;

use crate::{command, target};

/// A program that tests call, and its Debian package.
struct Tool {
    program: &'static str,
    package: &'static str,
}

const TOOLS: &[Tool] = &[
    Tool { program: "mke2fs", package: "e2fsprogs" },
    Tool { program: "fuse2fs", package: "fuse2fs" },
    Tool { program: "fusermount3", package: "fuse3" },
    Tool { program: "fio", package: "fio" },
    // A file instead of a program: examples for the tests.
    Tool { program: "/usr/share/doc/fio/examples/fsx.fio", package: "fio-examples" },
    Tool { program: "setfattr", package: "attr" },
    Tool { program: "setfacl", package: "acl" },
    Tool { program: "fakeroot", package: "fakeroot" },
    Tool { program: "setcap", package: "libcap2-bin" },
    Tool { program: "bsdtar", package: "libarchive-tools" },
    Tool { program: "zstd", package: "zstd" },
    // Images of containers.
    Tool { program: "umoci", package: "umoci" },
    Tool { program: "skopeo", package: "skopeo" },
    Tool { program: "strace", package: "strace" },
    // Programs that run with a preloaded library.
    Tool { program: "git", package: "git" },
    Tool { program: "rsync", package: "rsync" },
    Tool { program: "sqlite3", package: "sqlite3" },
    Tool { program: "losetup", package: "mount" },
    Tool { program: "veritysetup", package: "cryptsetup-bin" },
    Tool { program: "sfdisk", package: "fdisk" },
    Tool { program: "sgdisk", package: "gdisk" },
    Tool { program: "bon_csv2txt", package: "bonnie++" },
    Tool { program: "gdb", package: "gdb" },
    Tool { program: "nfs-ls", package: "libnfs-utils" },
    Tool { program: "nbdkit", package: "nbdkit" },
    Tool { program: "qemu-nbd", package: "qemu-utils" },
    Tool { program: "openssl", package: "openssl" },
    Tool { program: "pvcreate", package: "lvm2" },
    Tool { program: "cc", package: "gcc" },
    Tool { program: "g++", package: "g++" },
    Tool { program: "valgrind", package: "valgrind" },
    // Files instead of programs: modules that the Python tests import.
    Tool { program: "/usr/lib/python3/dist-packages/pytest/__init__.py", package: "python3-pytest" },
    Tool { program: "/usr/lib/python3/dist-packages/numpy/__init__.py", package: "python3-numpy" },
    Tool { program: "/usr/lib/python3/dist-packages/fsspec/__init__.py", package: "python3-fsspec" },
    Tool { program: "mypy", package: "mypy" },
    // Shells whose completion is tested.
    Tool { program: "zsh", package: "zsh" },
    Tool { program: "fish", package: "fish" },
];

/// Programs of `cargo xtask mount` only.
const MOUNT_TOOLS: &[Tool] = &[
    Tool { program: "stress-ng", package: "stress-ng" },
    Tool { program: "dbench", package: "dbench" },
    Tool { program: "setpriv", package: "util-linux" },
    Tool { program: "mariadbd", package: "mariadb-server" },
    Tool { program: "pg_ctlcluster", package: "postgresql" },
];

/// Modules of `cargo xtask load` only.
const LOAD_TOOLS: &[Tool] =
    &[Tool { program: "/usr/lib/python3/dist-packages/torch/__init__.py", package: "python3-torch" }];

/// Programs of `cargo xtask guests` only.
const GUEST_TOOLS: &[Tool] = &[
    Tool { program: "qemu-system-x86_64", package: "qemu-system-x86" },
    Tool { program: "busybox", package: "busybox-static" },
    Tool { program: "cpio", package: "cpio" },
    Tool { program: "depmod", package: "kmod" },
    Tool { program: "mdadm", package: "mdadm" },
];

/// Programs of `cargo xtask hosts` only.
const HOST_TOOLS: &[Tool] = &[
    Tool { program: "mkfs.xfs", package: "xfsprogs" },
    Tool { program: "mkfs.btrfs", package: "btrfs-progs" },
];

/// As [`install_packages`], with the packages of `cargo xtask hosts`.
pub(crate) fn install_host_packages() -> Result<(), String> {
    install(TOOLS.iter().chain(HOST_TOOLS))
}

/// Programs of `cargo xtask dist-check` only.
const DIST_TOOLS: &[Tool] = &[
    Tool { program: "debootstrap", package: "debootstrap" },
    Tool { program: "dpkg-shlibdeps", package: "dpkg-dev" },
    Tool { program: "pkg-config", package: "pkgconf" },
    Tool { program: "file", package: "file" },
];

/// As [`install_packages`], with the packages of `cargo xtask dist` and `dist-check`.
pub(crate) fn install_dist_packages() -> Result<(), String> {
    install(TOOLS.iter().chain(DIST_TOOLS))
}

/// As [`install_packages`], with the packages of `cargo xtask guests`.
pub(crate) fn install_guest_packages() -> Result<(), String> {
    install(TOOLS.iter().chain(GUEST_TOOLS))
}

/// As [`install_packages`], with the packages of `cargo xtask mount`.
pub(crate) fn install_mount_packages() -> Result<(), String> {
    install(TOOLS.iter().chain(MOUNT_TOOLS))
}

/// As [`install_packages`], with the packages of `cargo xtask load`.
pub(crate) fn install_load_packages() -> Result<(), String> {
    install(TOOLS.iter().chain(LOAD_TOOLS))
}

/// Install missing packages on Debian as root; otherwise print their names. Missing packages are no error, because the tests that need
/// them are skipped and reported.
pub(crate) fn install_packages() -> Result<(), String> {
    install(TOOLS.iter())
}

/// Install the program of the crate `fsx`, which no Debian package has.
pub(crate) fn install_fsx() -> Result<(), String> {
    if target::directory().join("tools/bin/fsx").exists() {
        return Ok(());
    }
    // Compiling takes longer than running: no optimisation.
    super::cargo(
        &["install", "--quiet", "--debug", "--root", &target::file("tools"), "fsx", "--version", "0.3.2"],
        &[],
    )
}

fn install<'a>(tools: impl Iterator<Item = &'a Tool>) -> Result<(), String> {
    let missing: Vec<&Tool> = tools.filter(|tool| !is_installed(tool.program)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let packages: Vec<&str> = missing.iter().map(|tool| tool.package).collect();
    if !is_root() || !is_installed("apt-get") {
        println!("missing, so some tests will be skipped: apt-get install {}", packages.join(" "));
        return Ok(());
    }
    println!("--- apt-get install {}", packages.join(" "));
    let apt_get = || {
        let mut apt_get = Command::new("apt-get");
        apt_get.env("DEBIAN_FRONTEND", "noninteractive");
        apt_get
    };
    command::run(apt_get().args(["update", "-qq"]))?;
    command::run(apt_get().args(["install", "-y", "-qq", "--no-install-recommends"]).args(packages))
}

/// Whether `program` is in the search path or where Debian keeps system programs.
pub(crate) fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin"].map(|directory| Path::new(directory).to_owned()))
        .any(|directory| directory.join(program).is_file())
}

/// Whether the effective user is root, from the owner of this process's entry in `/proc`.
pub(crate) fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").is_ok_and(|metadata| metadata.uid() == 0)
}
