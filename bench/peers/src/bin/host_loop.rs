//! A loop that reads or writes a file of the host, by `std::fs::File` or by the library, for `cargo xtask bench host`.
//!
//! `host_loop read|write std|diorite|diorite-cached FILE MIB` moves 64 KiB at a time and prints rate and CPU time. A write ends with `fdatasync`.

use std::error::Error;
use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::time::Instant;

use diorite::HostFile;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const STEP: usize = 64 << 10;

fn read_all(mut file: impl Read) -> Result<u64> {
    let (mut buffer, mut bytes) = (vec![0; STEP], 0);
    loop {
        let len = file.read(&mut buffer)?;
        if len == 0 {
            return Ok(bytes);
        }
        bytes += len as u64;
    }
}

fn write_all(file: &mut impl Write, bytes: u64) -> Result<u64> {
    let buffer = vec![0x5a; STEP];
    for _ in 0..bytes / STEP as u64 {
        file.write_all(&buffer)?;
    }
    Ok(bytes)
}

/// User and system seconds of this process.
fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Seconds in which the CPUs of the machine were not idle.
fn machine_seconds() -> Result<f64> {
    let text = String::from_utf8(std::process::Command::new("head").args(["-1", "/proc/stat"]).output()?.stdout)?;
    let field = |at: usize| text.split_whitespace().nth(at).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
    Ok([1, 2, 3, 6, 7].into_iter().map(field).sum::<f64>() / 100.0)
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [what, way, path, mib] = &arguments[..] else {
        return Err("usage: read|write std|diorite|diorite-cached FILE MIB".into());
    };
    let bytes = mib.parse::<u64>()? << 20;
    let (machine, cpu, start) = (machine_seconds()?, cpu_seconds(), Instant::now());
    let mut std = OpenOptions::new();
    let moved = match (what.as_str(), way.as_str()) {
        ("read", "std") => read_all(std.read(true).open(path)?)?,
        ("read", "diorite") => read_all(HostFile::open(path)?)?,
        ("read", _) => read_all(HostFile::options().read(true).open(path)?)?,
        (_, "std") => {
            let mut file = std.write(true).open(path)?;
            let moved = write_all(&mut file, bytes)?;
            file.sync_data()?;
            moved
        }
        (_, way) => {
            let options = HostFile::options().write(true);
            let options = if way == "diorite" { options.cache(diorite::HostCache::None) } else { options };
            let mut file = options.open(path)?;
            let moved = write_all(&mut file, bytes)?;
            file.sync_data()?;
            file.close()?;
            moved
        }
    };
    let (seconds, gb) = (start.elapsed().as_secs_f64(), moved as f64 / 1e9);
    let (cpu, machine) = ((cpu_seconds() - cpu) / gb, (machine_seconds()? - machine) / gb);
    println!(
        "{{\"mb_per_s\": {}, \"own_cpu_s_per_gb\": {cpu}, \"cpu_s_per_gb\": {machine}}}",
        gb * 1e3 / seconds
    );
    Ok(())
}
