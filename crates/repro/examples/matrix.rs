//! Schedulers on workloads on simulated disks: `cargo run --release -p diorite-repro --example matrix -- [OPTIONS]`.
//!
//! Options, each with comma-separated values: `--disks`, `--schedulers`, `--workloads` (parts of names), `--seeds`; `--seconds N`;
//! `--json FILE`; `--owners` shows each owner.

use std::time::Duration;

use diorite_bench::{Cancel, Silent};
use diorite_repro::matrix::{self, Matrix, MatrixOptions};

#[expect(clippy::disallowed_methods, reason = "reports, not data I/O")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut options = MatrixOptions::default();
    let (mut json, mut owners) = (None, false);
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        if name == "--owners" {
            owners = true;
            continue;
        }
        let value = arguments.next().ok_or_else(|| format!("{name} needs a value"))?;
        let list = || value.split(',').map(str::to_owned).collect::<Vec<_>>();
        match &*name {
            "--disks" => options.disks = list(),
            "--schedulers" => {
                options.schedulers = list().iter().map(|name| name.parse()).collect::<Result<_, _>>()?;
            }
            "--workloads" => options.workloads = list(),
            "--seeds" => options.seeds = list().iter().map(|seed| seed.parse()).collect::<Result<_, _>>()?,
            "--seconds" => options.length = Duration::from_secs_f64(value.parse()?),
            "--json" => json = Some(value),
            _ => return Err(format!("unknown option {name}").into()),
        }
    }
    let mut matrix = Matrix::default();
    for disk in options.disks.clone() {
        let part = MatrixOptions { disks: vec![disk], ..options.clone() };
        let part = matrix::run(&part, &Silent, &Cancel::default())?;
        print!("{}", part.text());
        matrix.cells.extend(part.cells);
    }
    if owners {
        print_owners(&matrix);
    }
    matrix.verdicts("inject").iter().for_each(|verdict| println!("{verdict}"));
    if let Some(file) = json {
        std::fs::write(file, serde_json::to_string_pretty(&matrix.json())?)?;
    }
    Ok(())
}

fn print_owners(matrix: &Matrix) {
    for cell in &matrix.cells {
        println!(
            "{} on {}, {}, seed {}: jain {:.2}",
            cell.workload, cell.disk, cell.scheduler, cell.seed, cell.jain
        );
        cell.state.lines().take(6).for_each(|line| println!("  | {line}"));
        let mut shown: Vec<(&str, u32)> = Vec::new();
        for owner in &cell.owners {
            // Of many equal jobs the first two are shown.
            match shown.iter_mut().find(|(name, _)| *name == owner.name) {
                Some((_, count)) if *count >= 2 => continue,
                Some((_, count)) => *count += 1,
                None => shown.push((&owner.name, 1)),
            }
            println!(
                "    {:<12} {:>9.3} MB/s {:>8} operations, p50 {:>9.3} p99 {:>9.3} p99.9 {:>9.3} max {:>9.3} ms",
                owner.name,
                owner.mb_per_s,
                owner.operations,
                owner.p50_ms,
                owner.p99_ms,
                owner.p99_9_ms,
                owner.max_ms
            );
        }
    }
}
