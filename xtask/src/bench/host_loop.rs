//! Suite `host`: loops over a file of the host, 64 KiB at a time, by `std::fs::File` and the builtin `open`, and by the library without a
//! cache, against fio's rate on the same file.

use std::path::Path;

use super::Options;
use super::measure::{build, build_peers, words};
use super::rates::{Bound, RateSuite, Runner, TargetRatio};
use crate::command::shell;
use crate::target;

const MIB: u32 = 2048;

pub(super) fn run(options: &Options) -> Result<(), String> {
    build(&["--package", "diorite-python"])?;
    build_peers(Some("host_loop"))?;
    let modules = options.directory.join("python");
    put_together(&modules)?;
    let file = options.directory.join("host.dat");
    let path = file.display().to_string();
    println!("--- making {path}");
    shell(&format!("dd if=/dev/urandom of={path} bs=1M count={MIB} conv=fsync status=none"))?;
    let result = suite(&path, &modules).run(options);
    let _ = std::fs::remove_file(&file);
    let _ = std::fs::remove_dir_all(&modules);
    result
}

/// The Python package as an import finds it.
fn put_together(modules: &Path) -> Result<(), String> {
    let (package, library) = (modules.join("diorite"), target::file("release/libdiorite_python.so"));
    let package = package.display();
    shell(&format!(
        "rm -rf {package}; mkdir -p {package}; cp crates/python/python/diorite/*.py {package}; \
         cp {library} {package}/_diorite.abi3.so"
    ))
    .map(drop)
}

fn suite(path: &str, modules: &Path) -> RateSuite {
    let program = target::file("peers/release/host_loop");
    let python = format!("PYTHONPATH={}", modules.display());
    let mib = MIB.to_string();
    let cold = vec!["sync; echo 3 > /proc/sys/vm/drop_caches 2>/dev/null || true".to_owned()];
    let (mut runners, mut targets) = (Vec::new(), Vec::new());
    for what in ["read", "write"] {
        let runner = |name, command| Runner {
            workload: what,
            name,
            before: cold.clone(),
            command,
            ..Runner::default()
        };
        let fio = words(&[
            "fio",
            "--name=host",
            &format!("--filename={path}"),
            &format!("--rw={what}"),
            "--bs=1M",
            "--iodepth=16",
            "--ioengine=io_uring",
            "--direct=1",
            &format!("--size={MIB}M"),
            "--end_fsync=1",
            "--output-format=json",
        ]);
        let rust = |way| words(&[&program, what, way, path, &mib]);
        let script =
            |way| words(&["env", &python, "python3", "bench/peers/host_loop.py", what, way, path, &mib]);
        runners.extend([
            runner("fio", fio),
            runner("std", rust("std")),
            runner("diorite", rust("diorite")),
            runner("builtin", script("builtin")),
            runner("python", script("diorite")),
        ]);
        for (ours, buffered) in [("diorite", "std"), ("python", "builtin")] {
            targets.push(TargetRatio::of("mb_per_s", ours, "fio", Bound::AtLeast(0.95)).on(what));
            targets.push(TargetRatio::of("own_cpu_s_per_gb", ours, buffered, Bound::AtMost(0.34)).on(what));
            targets.push(TargetRatio::of("mb_per_s", ours, buffered, Bound::AtLeast(1.0)).on(what));
        }
    }
    let about = format!(
        "A file of {MIB} MiB is read or overwritten in order, 64 KiB at a time, with the page cache dropped before each run; a write ends \
         with `fdatasync`. `std` is `std::fs::File`, `diorite` is `HostFile` without a cache, `builtin` is Python's `open`, `python` is \
         `diorite.open_host(direct=True)`. fio has 16 transfers of 1 MiB in flight. `own_cpu_s_per_gb` is the CPU time of the process, \
         `cpu_s_per_gb` that of the machine."
    );
    RateSuite { name: "host", title: "Plain loops over a file of the host", about, runners, targets }
}
