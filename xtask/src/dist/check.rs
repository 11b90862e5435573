//! Installs each package in a fresh root, and uses it there.

use std::path::Path;

use super::Release;
use crate::command::shell;
use crate::setup;

/// A package, and the function that installs and uses it.
struct Check {
    name: &'static str,
    run: fn(&Release) -> Result<(), String>,
}

const CHECKS: &[Check] = &[
    Check { name: "checksums", run: checksums },
    Check { name: "deb", run: deb },
    Check { name: "static", run: static_program },
    Check { name: "wheel", run: wheel },
    Check { name: "library", run: library },
    Check { name: "source", run: source },
    Check { name: "sbom", run: sbom },
];

/// Run the named checks, or all, and report all failures.
pub(crate) fn run(names: &[String]) -> Result<(), String> {
    setup::install_dist_packages()?;
    let release = Release::new()?;
    let mut failed = Vec::new();
    for check in CHECKS.iter().filter(|check| names.is_empty() || names.iter().any(|name| name == check.name))
    {
        println!("--- dist-check: {}", check.name);
        if let Err(why) = (check.run)(&release) {
            println!("FAILED: {}: {why}", check.name);
            failed.push(check.name);
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(format!("dist-check: {}", failed.join(", "))) }
}

fn checksums(release: &Release) -> Result<(), String> {
    shell(&format!("cd {}; sha256sum --quiet --strict -c SHA256SUMS", release.directory.display())).map(drop)
}

/// In a Debian system made by debootstrap: install, use, mount by fstab's type, and remove.
fn deb(release: &Release) -> Result<(), String> {
    let package = release.package(".deb")?;
    let base = release.work.join("debian.tar");
    if !base.exists() {
        shell(&format!(
            "rm -rf {root}; debootstrap --variant=minbase --include=fuse3,man-db,e2fsprogs,bash-completion stable {root} >/dev/null
             tar -C {root} -cf {base} .; rm -rf {root}",
            root = release.work.join("debootstrap").display(),
            base = base.display(),
        ))?;
    }
    let root = release.work.join("debian");
    let in_root = "
        dpkg -i /diorite.deb
        dpkg -s diorite | grep -q '^Status: install ok installed'
        diorite mkfs -q /disk.img 32M; e2fsck -fn /disk.img; echo hello > /hello; diorite cp /hello disk.img:/
        diorite ls disk.img | grep -qx hello
        mount -t fuse.diorite /disk.img /mnt; grep -qx hello /mnt/hello; echo more > /mnt/more
        mount -o remount,ro /mnt; ! touch /mnt/other 2>/dev/null; diorite umount /mnt
        diorite cat disk.img:/more | grep -qx more; e2fsck -fn /disk.img
        man -P cat diorite-cp | grep -q EXAMPLES
        bash -ic '. /usr/share/bash-completion/bash_completion; _comp_load diorite 2>/dev/null || _completion_loader diorite; complete -p diorite' | grep -q _diorite
        dpkg -r diorite; ! command -v diorite; [ ! -e /usr/sbin/mount.fuse.diorite ]";
    shell(&format!(
        "rm -rf {root}; mkdir -p {root}; tar -C {root} -xf {base}; cp {package} {root}/diorite.deb",
        root = root.display(),
        base = base.display(),
        package = package.display()
    ))?;
    super::write(&root.join("test.sh"), in_root)?;
    let result = in_namespace(&root, "sh -exc '. /test.sh' 2>&1");
    shell(&format!("rm -rf {}", root.display()))?;
    result
}

/// Run a command in a root directory with devices and processes of its own.
fn in_namespace(root: &Path, command: &str) -> Result<(), String> {
    let script = format!(
        "cd {root}; mkdir -p dev proc; mount --rbind /dev dev; mount -t proc proc proc; exec chroot . {command}",
        root = root.display()
    );
    crate::command::call(&[
        "unshare",
        "--mount",
        "--propagation",
        "private",
        "--fork",
        "--pid",
        "sh",
        "-ec",
        &script,
    ])
    .map(drop)
}

/// In a root directory with nothing but the program, as in a container from scratch.
fn static_program(release: &Release) -> Result<(), String> {
    let program = super::program::path(release, std::env::consts::ARCH);
    let root = release.work.join("empty");
    shell(&format!(
        "rm -rf {root}; mkdir -p {root}/data; cp {program} {root}/diorite; head -c 3000000 /dev/urandom > {root}/data/file
         file {program} | grep -q 'static'",
        root = root.display(), program = program.display()
    ))?;
    for command in [
        "--version",
        "mkfs -q -d /data /disk.img",
        "check /disk.img",
        "cp /disk.img:/file /again",
        "diff /disk.img /data",
    ] {
        shell(&format!("chroot {} /diorite {command}", root.display()))?;
    }
    shell(&format!("cmp {root}/again {root}/data/file; rm -rf {root}", root = root.display())).map(drop)
}

/// In a fresh environment of Python: the package, the program, and `python -m diorite`.
fn wheel(release: &Release) -> Result<(), String> {
    let venv = release.work.join("venv");
    shell(&format!(
        "rm -rf {venv}; python3 -m venv {venv}; {venv}/bin/pip install --quiet --disable-pip-version-check {wheel}
         cd {venv}; bin/diorite mkfs -q disk.img 16M; echo content | bin/python -m diorite cp - disk.img:/file
         bin/python -c 'import diorite; assert diorite.Filesystem(\"disk.img\").open(\"/file\").read() == b\"content\\n\"'
         bin/python -m diorite --version; bin/pip uninstall --quiet -y diorite; [ ! -e bin/diorite ]; ! bin/python -c 'import diorite' 2>/dev/null",
        venv = venv.display(),
        wheel = std::path::absolute(release.package(".whl")?).map_err(|error| error.to_string())?.display(),
    ))
    .map(drop)
}

/// Examples in C, linked with the shared and with the static library by the flags of pkg-config.
fn library(release: &Release) -> Result<(), String> {
    let archive = release.package("-linux-gnu.tar.gz")?;
    let directory = release.work.join("library");
    shell(&format!(
        "rm -rf {directory}; mkdir -p {directory}; tar -C {directory} -xf {archive} --strip-components=1
         example=$PWD/crates/c/examples/copy_out.c; program=$PWD/{program}; cd {directory}; export PKG_CONFIG_PATH=$PWD/lib/pkgconfig
         $program mkfs -q disk.img 16M; head -c 100000 /dev/urandom > file; $program cp file disk.img:/
         cc -o shared $example $(pkg-config --cflags --libs diorite)
         readelf -d shared | grep -q 'libdiorite.so.0.1'
         LD_LIBRARY_PATH=lib ./shared disk.img /file > out1; cmp file out1
         cc -o static $example $(pkg-config --cflags diorite) lib/libdiorite.a $(pkg-config --static --libs-only-l diorite | sed 's/-ldiorite//')
         ./static disk.img /file > out2; cmp file out2",
        directory = directory.display(),
        archive = archive.display(),
        program = super::program::path(release, std::env::consts::ARCH).display(),
    ))
    .map(drop)
}

/// The source distribution builds the program and the Python package.
fn source(release: &Release) -> Result<(), String> {
    let directory = release.work.join("source");
    let check = format!(
        "rm -rf {directory}; mkdir -p {directory}; tar -C {directory} -xf {archive} --strip-components=1; cd {directory}
         cargo build --quiet --locked --target-dir target; target/debug/diorite --version",
        directory = directory.display(),
        archive = release.package("-source.tar.gz")?.display(),
    );
    shell(&check)?;
    let venv = release.work.join("venv-source");
    shell(&format!(
        "rm -rf {venv} {directory}; python3 -m venv {venv}; {venv}/bin/pip install --quiet --disable-pip-version-check {sdist}
         cd {venv}; bin/python -c 'import diorite; diorite.mkfs(\"d.img\", 8 << 20)'",
        venv = venv.display(),
        directory = directory.display(),
        sdist = std::path::absolute(release.package(&format!("diorite-{}.tar.gz", release.version))?)
            .map_err(|error| error.to_string())?
            .display(),
    ))
    .map(drop)
}

/// The list names each crate of the lock file that the program is linked from.
fn sbom(release: &Release) -> Result<(), String> {
    let path = release.package(".cdx.json")?;
    let text = std::fs::read_to_string(&path).map_err(|error| error.to_string())?;
    let sbom: serde_json::Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    let components = sbom["components"].as_array().ok_or("no components")?;
    for component in components {
        let name = component["name"].as_str().unwrap_or_default();
        if component["licenses"].as_array().is_none_or(Vec::is_empty) {
            return Err(format!("{name}: no licence"));
        }
        if !name.starts_with("diorite") && component["hashes"].as_array().is_none_or(Vec::is_empty) {
            return Err(format!("{name}: no checksum"));
        }
    }
    println!("{} components", components.len());
    Ok(())
}
