//! The wheel, which contains the program, and the source distribution of the Python package.

use super::{Release, program};
use crate::command::shell;

/// The oldest C library that the wheel accepts: glibc 2.17, of 2012.
const PLATFORM: &str = "manylinux_2_17";

/// The tools. The compiler of `ziglang` links against old versions of the C library.
const TOOLS: &str = "maturin==1.9.6 wheel==0.45.1 ziglang==0.13.0";

pub(super) fn build(release: &Release) -> Result<(), String> {
    shell(&format!(
        "venv={work}/tools; [ -d $venv ] || python3 -m venv $venv
         $venv/bin/pip install --quiet --disable-pip-version-check {TOOLS}
         out=$PWD/{dist}; bin=$PWD/$venv/bin; program=$PWD/{program}
         rm -rf {work}/wheel $out/*.whl $out/diorite-{version}.tar.gz; mkdir -p {work}/wheel; wheel=$PWD/{work}/wheel
         cd crates/python
         PATH=\"$bin:$PATH\" maturin build --quiet --locked --profile packaged --strip --zig --compatibility {PLATFORM} --out $wheel
         PATH=\"$bin:$PATH\" maturin sdist --quiet --out $out
         cd $wheel; $bin/wheel unpack *.whl; rm *.whl
         install -D -m 755 $program diorite-{version}/diorite-{version}.data/scripts/diorite
         $bin/wheel pack --dest-dir $out diorite-{version}",
        work = release.work.display(),
        dist = release.directory.display(),
        version = release.version,
        program = program::path(release, std::env::consts::ARCH).display(),
    ))
    .map(drop)
}
