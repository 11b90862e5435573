//! The package for Debian: program, manual pages, completions, mount helpers and a systemd unit.

use std::path::Path;

use super::{Release, cargo_build, gnu_triple};
use crate::command::shell;

pub(super) fn build(release: &Release) -> Result<(), String> {
    let built = cargo_build("diorite-cli", &gnu_triple())?;
    pack(release, &built.join("diorite"), &release.directory)
}

/// Pack a program, and install the package in an empty root: the part of the suite that CI runs.
pub(crate) fn lays_out(program: &Path) -> Result<(), String> {
    if !crate::setup::is_installed("dpkg-deb") || !crate::setup::is_root() {
        println!("SKIPPED: the Debian package: dpkg-deb and root are needed");
        return Ok(());
    }
    let release = Release::new()?;
    let directory = release.work.join("layout");
    pack(&release, program, &directory)?;
    let root = directory.join("root");
    let script = format!(
        "rm -rf {root}; mkdir -p {root}/var/lib/dpkg {root}/tmp; touch {root}/var/lib/dpkg/status
         dpkg --root={root} --log=/dev/null --force-depends --force-script-chrootless -i {directory}/diorite_*.deb
         cd {root}; export PATH=\"$PWD/usr/bin:$PATH\"
         diorite mkfs -q disk.img 8M; echo installed | diorite cp - disk.img:/file; diorite cat disk.img:/file | grep -qx installed
         usr/sbin/mount.fuse.diorite disk.img tmp -f
         zcat usr/share/man/man1/diorite-cp.1.gz | grep -q EXAMPLES
         grep -q _diorite usr/share/bash-completion/completions/diorite
         dpkg --root=. --log=/dev/null -r diorite; [ -z \"$(find usr ! -type d)\" ]",
        root = root.display(),
        directory = directory.display(),
    );
    shell(&script).map(drop).map_err(|why| format!("the Debian package: {why}"))
}

/// Pack the program into `directory/diorite_VERSION_ARCHITECTURE.deb`.
fn pack(release: &Release, program: &Path, directory: &Path) -> Result<(), String> {
    let root = release.work.join("deb");
    let architecture = shell("dpkg --print-architecture")?.trim().to_owned();
    lay_out(release, program, &root)?;
    let dependencies = dependencies(release, &root)?;
    let size = shell(&format!("du -sk {} | cut -f1", root.display()))?;
    let values = [("ARCHITECTURE", architecture.as_str()), ("DEPENDS", &dependencies), ("SIZE", size.trim())];
    let control = release.filled("control", &values)?;
    std::fs::create_dir_all(root.join("DEBIAN")).map_err(|error| error.to_string())?;
    super::write(&root.join("DEBIAN/control"), &control)?;
    shell(&format!(
        "mkdir -p {directory}; (cd {root}; find usr -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum > DEBIAN/md5sums)
         dpkg-deb --root-owner-group --build {root} {directory}/diorite_{version}_{architecture}.deb",
        root = root.display(),
        directory = directory.display(),
        version = release.version,
    ))
    .map(drop)
}

/// The files of the package.
fn lay_out(release: &Release, program: &Path, root: &Path) -> Result<(), String> {
    shell(&format!(
        "rm -rf {root}; mkdir -p {root}/usr; cd {root}/usr
         install -D -m 755 {program} bin/diorite; strip bin/diorite
         mkdir sbin; ln -s ../bin/diorite sbin/mount.fuse.diorite; ln -s ../bin/diorite sbin/mount.fuseblk.diorite
         bin/diorite man --output share/man/man1; gzip -9n share/man/man1/*
         mkdir -p share/bash-completion/completions share/zsh/vendor-completions share/fish/vendor_completions.d
         bin/diorite completions bash > share/bash-completion/completions/diorite
         bin/diorite completions zsh > share/zsh/vendor-completions/_diorite
         bin/diorite completions fish > share/fish/vendor_completions.d/diorite.fish
         install -D -m 644 {source}/packaging/diorite-mount@.service lib/systemd/system/diorite-mount@.service
         install -D -m 644 -t share/doc/diorite {source}/README.md {source}/LICENSE-MIT {source}/LICENSE-APACHE {source}/packaging/copyright
         gzip -9nc {source}/CHANGELOG.md > share/doc/diorite/changelog.gz
         chmod -R go+rX,go-w .",
        root = absolute(root)?,
        program = absolute(program)?,
        source = absolute(Path::new("."))?,
    ))
    .map_err(|why| format!("the files of version {}: {why}", release.version))
    .map(drop)
}

/// The packages with the shared libraries of the program.
fn dependencies(release: &Release, root: &Path) -> Result<String, String> {
    // The tool needs a source package around it.
    let script = format!(
        "mkdir -p {work}/shlibs/debian; cd {work}/shlibs; printf 'Source: diorite\\n\\nPackage: diorite\\nArchitecture: any\\n' > debian/control
         dpkg-shlibdeps -O {root}/usr/bin/diorite 2>/dev/null | sed -n 's/^shlibs:Depends=//p'",
        work = absolute(&release.work)?,
        root = absolute(root)?,
    );
    let found = shell(&script)?.trim().to_owned();
    if found.is_empty() {
        Err(format!("{}: dpkg-shlibdeps finds no libraries", root.display()))
    } else {
        Ok(found)
    }
}

fn absolute(path: &Path) -> Result<String, String> {
    std::path::absolute(path).map(|path| path.display().to_string()).map_err(|error| error.to_string())
}
