//! Suite `databases`: transactions a second of `PostgreSQL` and `MariaDB`, each with 8 clients, on a mount by `diorite mount` and on the
//! kernel's, from the same image.
//!
//! Each run gets a copy of an image that was filled through the kernel's mount. A run starts this program again
//! (`bench-databases DIRECTORY`), which starts the servers in turn and prints their rates.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::json;

use super::Options;
use super::measure::{build, words};
use super::mounts::ours;
use super::rates::{Bound, RateSuite, Runner, TargetRatio, can_mount, loop_mount, make_image};
use crate::command::{call, output_of, shell};
use crate::mount::databases::{Database, Mariadb, Memory, Postgresql, stop};
use crate::mount::transport::Transport;
use crate::setup;

const CLIENTS: u32 = 8;
/// Seconds of a run of each.
const SECONDS: u32 = 10;
/// `pgbench -s`: 100,000 accounts each.
const SCALE: u32 = 10;
const MARIADB_ROWS: u32 = 200_000;

pub(super) fn run(options: &Options) -> Result<(), String> {
    if !can_mount() {
        println!("SKIPPED: databases: the kernel's mount needs root");
        return Ok(());
    }
    setup::install_mount_packages()?;
    build(&["--package", "diorite-cli"])?;
    let directory = &options.directory;
    let template = make_image(
        &directory.join("databases.img"),
        1536,
        "-t ext4 -E lazy_itable_init=0,lazy_journal_init=0",
    )?;
    let image = directory.join("databases-run.img").to_string_lossy().into_owned();
    let mount = directory.join("databases").to_string_lossy().into_owned();
    let this = std::env::current_exe().map_err(|error| error.to_string())?.to_string_lossy().into_owned();
    shell(&loop_mount(&template, &mount))?;
    let filled = fill(Path::new(&mount));
    call(&["umount", &mount])?;
    filled?;
    // The copy is not sparse, so that no run pays for the host's allocation of blocks.
    let fresh = format!("cp --sparse=never {template} {image} && sync -f {image}");
    let runner = |name, before: String, after| Runner {
        name,
        before: vec![fresh.clone(), before],
        command: words(&[&this, "bench-databases", &mount]),
        after,
        ..Runner::default()
    };
    let mut runners = Vec::new();
    for transport in Transport::enabled() {
        let (before, after) = ours(&image, &mount, &format!("allow_other,{}", transport.option()))?;
        runners.push(runner(transport.runner(), before, after));
    }
    runners.push(runner("kernel", loop_mount(&image, &mount), vec![format!("umount {mount}")]));
    let about = format!(
        "A copy of one ext4 image for each run, mounted by `diorite mount -o allow_other` and by the kernel (loop device with direct I/O). \
         Each with {CLIENTS} clients for {SECONDS} s: PostgreSQL's pgbench (scale {SCALE}), and MariaDB (InnoDB with `O_DIRECT`, a commit \
         flushes the log) with mysqlslap: a transaction updates a random row of {MARIADB_ROWS} and inserts one. Transactions a second."
    );
    let targets = runners
        .iter()
        .filter(|runner| runner.name != "kernel")
        .flat_map(|runner| ["postgresql", "mariadb"].map(|figure| (runner.name, figure)))
        .map(|(ours, figure)| TargetRatio::of(figure, ours, "kernel", Bound::AtLeast(0.8)))
        .collect();
    let suite = RateSuite { name: "databases", title: "Databases on a mount", about, runners, targets };
    let result = suite.run(options);
    let _ = (std::fs::remove_file(&image), std::fs::remove_file(&template));
    result
}

fn postgresql() -> Result<Postgresql, String> {
    Postgresql::new(Memory::Usual)
}

const MARIADB: Mariadb = Mariadb { memory: Memory::Usual };

/// Create both databases with their rows.
fn fill(at: &Path) -> Result<(), String> {
    let postgresql = postgresql()?;
    postgresql.create(at)?;
    let server = postgresql.start(at)?;
    let filled = output_of(&mut postgresql.pgbench(at, &["-i", "-q", "-s", &SCALE.to_string()]));
    stop(server)?;
    filled?;
    MARIADB.create(at)?;
    let server = MARIADB.start(at)?;
    let filled = MARIADB.query(
        at,
        &format!(
            "CREATE TABLE d.account (n INT PRIMARY KEY, balance BIGINT, text CHAR(100)) ENGINE=InnoDB; \
             CREATE TABLE d.history (n BIGINT AUTO_INCREMENT PRIMARY KEY, account INT, text CHAR(100)) ENGINE=InnoDB; \
             INSERT INTO d.account SELECT seq, 0, REPEAT('x', 100) FROM seq_1_to_{MARIADB_ROWS}"
        ),
    );
    stop(server)?;
    filled.map(drop)
}

/// `bench-databases DIRECTORY`: run both and print their rates.
pub(crate) fn run_in(arguments: &[String]) -> Result<(), String> {
    let [directory] = arguments else {
        return Err("bench-databases is for `cargo xtask bench databases`".to_owned());
    };
    let at = Path::new(directory);
    let database = postgresql()?;
    let server = database.start(at)?;
    let (clients, seconds) = (CLIENTS.to_string(), SECONDS.to_string());
    let said = output_of(&mut database.pgbench(at, &["-n", "-c", &clients, "-j", "2", "-T", &seconds]));
    stop(server)?;
    let postgresql = number_after(&said?, "tps = ").ok_or("pgbench says no rate")?;
    let server = MARIADB.start(at)?;
    let mariadb = transactions(at);
    stop(server)?;
    println!("{}", json!({ "postgresql": postgresql, "mariadb": mariadb? }));
    Ok(())
}

/// Transactions a second of `MariaDB`.
fn transactions(at: &Path) -> Result<f64, String> {
    const COUNT: u32 = 1000;
    let transaction = format!(
        "SET @n = 1 + FLOOR(RAND() * {MARIADB_ROWS}); BEGIN; UPDATE account SET balance = balance + 1 WHERE n = @n; \
         INSERT INTO history (account, text) VALUES (@n, REPEAT('y', 100)); COMMIT;"
    );
    let start = Instant::now();
    let limit = Duration::from_secs(SECONDS.into());
    let mut done = 0;
    // mysqlslap takes a number of queries, and no time limit.
    while start.elapsed() < limit {
        let mut slap = Command::new("mysqlslap");
        slap.args(["--no-defaults", "-uroot", "--create-schema=d", "--no-drop", "--delimiter=;"]);
        slap.arg(format!("--socket={}", Mariadb::socket(at).display()));
        slap.arg(format!("--concurrency={CLIENTS}"));
        slap.arg(format!("--number-of-queries={}", COUNT * 5)).arg(format!("--query={transaction}"));
        output_of(&mut slap)?;
        done += COUNT;
    }
    Ok(f64::from(done) / start.elapsed().as_secs_f64())
}

fn number_after(text: &str, words: &str) -> Option<f64> {
    text.split_once(words)?.1.split_whitespace().next()?.parse().ok()
}
