//! Suite `load`: a model of 4 GiB in memory, by `diorite.load`, by other loaders, and by fio, which only reads.

use std::io::Write;
use std::path::Path;

use super::Options;
use super::rates::{Bound, RateSuite, Runner, TargetRatio, can_mount};
use crate::command::shell;
use crate::load::{environment, package};
use crate::target;

/// Tensors of the file, and bytes of each: 4 GiB in all.
const TENSORS: u32 = 64;
const TENSOR_BYTES: u64 = 64 << 20;
const DROP_CACHES: &str = "sync && echo 3 > /proc/sys/vm/drop_caches";
/// Loaders that need torch, if this environment exists: `python3 -m venv` and `pip install torch fastsafetensors numpy safetensors`.
const TORCH_ENVIRONMENT: &str = "load-torch-venv";

pub(super) fn run(options: &Options) -> Result<(), String> {
    if !can_mount() {
        println!("SKIPPED: load: it needs root to drop the host's page cache");
        return Ok(());
    }
    let python = environment()?.display().to_string();
    let package = package("release")?.canonicalize().map_err(|error| error.to_string())?;
    let model = options.directory.join("model.safetensors");
    make_model(&model)?;
    let result = suite(&python, &package, &model.to_string_lossy()).run(options);
    let _ = std::fs::remove_file(&model);
    result
}

/// Write the file: numbers that no compression of a disk shortens.
fn make_model(path: &Path) -> Result<(), String> {
    let entries: Vec<String> = (0..u64::from(TENSORS))
        .map(|at| {
            let (start, end) = (at * TENSOR_BYTES, (at + 1) * TENSOR_BYTES);
            format!(
                r#""layers.{at}.weight":{{"dtype":"F32","shape":[4096,4096],"data_offsets":[{start},{end}]}}"#
            )
        })
        .collect();
    let header = format!("{{{}}}", entries.join(","));
    let padded = format!("{header:<width$}", width = header.len().next_multiple_of(8));
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    let mut file =
        std::fs::OpenOptions::new().write(true).create(true).truncate(true).open(path).map_err(failed)?;
    file.write_all(&(padded.len() as u64).to_le_bytes()).map_err(failed)?;
    file.write_all(padded.as_bytes()).map_err(failed)?;
    drop(file);
    let (bytes, path) = (u64::from(TENSORS) * TENSOR_BYTES, path.display());
    let key = "0".repeat(32);
    let noise = format!("openssl enc -aes-128-ctr -nosalt -K {key} -iv {key} -in /dev/zero 2>/dev/null");
    shell(&format!("{noise} | head -c {bytes} >> {path}\nsync {path}")).map(drop)
}

fn loader(
    workload: &'static str,
    name: &'static str,
    python: &str,
    package: &Path,
    before: &str,
    model: &str,
) -> Runner {
    let variable = format!("PYTHONPATH={}", package.display());
    let command = ["env", &variable, python, "bench/peers/tensors.py", name, model];
    Runner {
        workload,
        name,
        before: vec![before.to_owned()],
        command: command.map(str::to_owned).into(),
        after: Vec::new(),
    }
}

/// fio at the sizes and depths of which one is its best on most disks.
fn fio(name: &'static str, block: &str, depth: u32, model: &str) -> Runner {
    let line = format!(
        "fio --name=read --filename={model} --readonly --rw=read --bs={block} --iodepth={depth} --ioengine=io_uring --direct=1 \
         --output-format=json"
    );
    Runner {
        workload: "cold",
        name,
        before: vec![DROP_CACHES.to_owned()],
        command: line.split(' ').map(str::to_owned).collect(),
        after: Vec::new(),
    }
}

fn suite(python: &str, package: &Path, model: &str) -> RateSuite {
    let warm = format!("cat {model} > /dev/null");
    let torch = target::file(&format!("{TORCH_ENVIRONMENT}/bin/python"));
    let mut runners = vec![
        fio("fio-1m-16", "1M", 16, model),
        fio("fio-1m-32", "1M", 32, model),
        fio("fio-4m-8", "4M", 8, model),
    ];
    for (workload, before) in [("cold", DROP_CACHES), ("warm", &*warm)] {
        for name in ["diorite", "diorite-direct", "mmap", "safetensors"] {
            runners.push(loader(workload, name, python, package, before, model));
        }
        if Path::new(&torch).exists() {
            for name in ["safetensors-torch", "fastsafetensors"] {
                runners.push(loader(workload, name, &torch, package, before, model));
            }
        }
    }
    let against_fio = |peer| TargetRatio {
        ours: ("cold", "diorite", "load_mb_per_s"),
        peer: ("cold", peer, "mb_per_s"),
        bound: Bound::AtLeast(0.95),
    };
    let touched = |workload, peer, least| {
        TargetRatio::of("mb_per_s", "diorite", peer, Bound::AtLeast(least)).on(workload)
    };
    let targets = vec![
        against_fio("fio-1m-16"),
        against_fio("fio-1m-32"),
        against_fio("fio-4m-8"),
        touched("cold", "mmap", 1.0),
        touched("cold", "safetensors", 1.0),
        touched("cold", "safetensors-torch", 1.0),
        touched("cold", "fastsafetensors", 1.0),
        touched("warm", "mmap", 0.9),
        touched("warm", "safetensors", 1.0),
        touched("warm", "safetensors-torch", 0.9),
        touched("warm", "fastsafetensors", 1.0),
    ];
    RateSuite {
        name: "load",
        title: "A model of 4 GiB in memory",
        about: "64 tensors of 64 MiB. `mb_per_s` of a loader ends when the CPU has read every byte, `load_mb_per_s` when the loader returned. \
                fio reads the same bytes and looks at none, so its rate bounds `load_mb_per_s`. Cold: the host's page cache is empty. Warm: the \
                file is in it. instanttensor 0.2.2 supports CUDA devices only, and kvikio 26.10 does not \
                read without libcuda.so.1; neither runs here."
            .to_owned(),
        runners,
        targets,
    }
}
