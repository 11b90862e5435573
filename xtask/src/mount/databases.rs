//! Databases that run transactions while the daemon is killed. No acknowledged transaction may be lost.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::served::Replay;
use super::{Served, Settings};
use crate::command::{call, output_of, shell, text};

const CLIENTS: usize = 3;
const START_LIMIT: Duration = Duration::from_secs(90);

/// A database in a directory of the mount.
pub(crate) trait Database: Sync {
    /// Create the database.
    fn create(&self, at: &Path) -> Result<(), String>;
    /// Start its server, if it has one.
    fn start(&self, at: &Path) -> Result<Option<Child>, String>;
    /// A client that reads statements from its input and prints their results line by line.
    fn client(&self, at: &Path) -> Command;
    /// Run the database's own check.
    fn is_sound(&self, at: &Path) -> Result<(), String>;
}

const SIZE: &str = "1G";

pub(crate) fn sqlite(settings: &Settings) -> Result<String, String> {
    kill_and_check(settings, &Sqlite)
}

pub(crate) fn postgresql(settings: &Settings) -> Result<String, String> {
    kill_and_check(settings, &Postgresql::new(Memory::Small)?)
}

pub(crate) fn mariadb(settings: &Settings) -> Result<String, String> {
    kill_and_check(settings, &Mariadb { memory: Memory::Small })
}

fn kill_and_check(settings: &Settings, database: &dyn Database) -> Result<String, String> {
    let mut served = Served::new(settings, "allow_other", "-t ext4", SIZE)?;
    served.mount()?;
    let at = served.at();
    database.create(&at)?;
    shell(&format!("sync -f {}", at.display()))?;
    let (next, acknowledged) = (AtomicU64::new(1), Mutex::new(BTreeSet::new()));
    let (start, mut rounds, mut random) =
        (Instant::now(), 0, settings.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut server = database.start(&at)?;
    while rounds < 3 || start.elapsed() < settings.time {
        (0..3).for_each(|_| random = next_random(random));
        let delay = Duration::from_millis(200 + random % 2000);
        std::thread::scope(|scope| {
            for _ in 0..CLIENTS {
                scope.spawn(|| transact(database.client(&at), &next, &acknowledged));
            }
            std::thread::sleep(delay);
            served.kill();
            end(server.take());
        });
        let replay = Replay::of_round(rounds);
        served.recover(replay).map_err(|error| format!("round {rounds}: {error}"))?;
        server = database.start(&at).map_err(|error| format!("round {rounds}, {replay:?}: {error}"))?;
        let checked = database.is_sound(&at).and_then(|()| check(database.client(&at), &acknowledged));
        if let Err(error) = checked {
            end(server.take());
            return Err(format!("round {rounds}, replayed by {replay:?}: {error}"));
        }
        rounds += 1;
    }
    end(server.take());
    served.end()?;
    let count = acknowledged.lock().map_or(0, |all| all.len());
    Ok(format!("{rounds} kills, {count} transactions acknowledged, none lost"))
}

fn next_random(mut random: u64) -> u64 {
    random ^= random << 13;
    random ^= random >> 7;
    random ^ (random << 17)
}

/// Run transactions until the database fails, and record the acknowledged ones.
fn transact(mut client: Command, next: &AtomicU64, acknowledged: &Mutex<BTreeSet<u64>>) {
    client.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let Ok(mut child) = client.spawn() else { return };
    let (Some(mut input), Some(output)) = (child.stdin.take(), child.stdout.take()) else { return };
    let mut lines = BufReader::new(output).lines();
    'all: loop {
        let key = next.fetch_add(1, Ordering::Relaxed);
        let text = "x".repeat((key % 700) as usize);
        let statements =
            format!("INSERT INTO t VALUES ({key}, '{text}');\nSELECT n FROM t WHERE n = {key};\n");
        if input.write_all(statements.as_bytes()).and_then(|()| input.flush()).is_err() {
            break;
        }
        loop {
            match lines.next() {
                Some(Ok(line)) if line.trim() == key.to_string() => break,
                Some(Ok(_)) => {}
                _ => break 'all,
            }
        }
        if let Ok(mut all) = acknowledged.lock() {
            all.insert(key);
        }
    }
    let _ = child.kill();
    let _ = child.wait();
}

/// Check that all acknowledged transactions are in the database.
fn check(mut client: Command, acknowledged: &Mutex<BTreeSet<u64>>) -> Result<(), String> {
    client.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = client.spawn().map_err(|error| error.to_string())?;
    let mut input = child.stdin.take().ok_or("no input")?;
    input.write_all(b"SELECT n FROM t;\n").map_err(|error| error.to_string())?;
    drop(input);
    let output = child.wait_with_output().map_err(|error| error.to_string())?;
    let there: BTreeSet<u64> =
        String::from_utf8_lossy(&output.stdout).lines().filter_map(|line| line.trim().parse().ok()).collect();
    let all = acknowledged.lock().map_err(|error| error.to_string())?;
    let missing: Vec<_> = all.difference(&there).take(10).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let mut said = format!("acknowledged and lost: {missing:?}; {} rows of {}", there.len(), all.len());
    let _ = write!(said, "; {}", text(&output));
    Err(said)
}

/// Stop a server by SIGTERM.
pub(crate) fn stop(server: Option<Child>) -> Result<(), String> {
    let Some(mut server) = server else { return Ok(()) };
    shell(&format!("kill -TERM {}", server.id()))?;
    server.wait().map(drop).map_err(|error| error.to_string())
}

/// Kill a server and all its child processes.
pub(crate) fn end(server: Option<Child>) {
    let Some(mut server) = server else { return };
    let mut all = vec![server.id()];
    let mut at = 0;
    while at < all.len() {
        let children =
            std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", all[at])).unwrap_or_default();
        all.extend(children.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
        at += 1;
    }
    let pids = all.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
    let _ = shell(&format!("kill -KILL {pids} 2> /dev/null || true"));
    let _ = server.wait();
    let start = Instant::now();
    while all.iter().any(|pid| Path::new(&format!("/proc/{pid}/root/proc")).exists())
        && start.elapsed() < START_LIMIT
    {
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Wait until the server answers.
fn wait_for(
    mut server: Child,
    log: &Path,
    mut client: impl FnMut() -> Command,
) -> Result<Option<Child>, String> {
    let start = Instant::now();
    loop {
        let mut command = client();
        let asked = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
        if asked.is_ok_and(|status| status.success()) {
            return Ok(Some(server));
        }
        let ended = server.try_wait().ok().flatten();
        if ended.is_some() || start.elapsed() > START_LIMIT {
            end(Some(server));
            let log = std::fs::read_to_string(log).unwrap_or_default();
            let lines: Vec<_> = log.lines().collect();
            let last = lines[lines.len().saturating_sub(15)..].join(" | ");
            return Err(format!("the server does not start ({ended:?}): {last}"));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn log_of(at: &Path, name: &str) -> PathBuf {
    at.with_file_name(name)
}

fn spawn(mut command: Command, log: &Path) -> Result<Child, String> {
    let file =
        std::fs::File::options().create(true).append(true).open(log).map_err(|error| error.to_string())?;
    let other = file.try_clone().map_err(|error| error.to_string())?;
    command.stdin(Stdio::null()).stdout(file).stderr(other).spawn().map_err(|error| error.to_string())
}

struct Sqlite;

impl Database for Sqlite {
    fn create(&self, at: &Path) -> Result<(), String> {
        let make = "PRAGMA journal_mode=WAL; CREATE TABLE t (n INTEGER PRIMARY KEY, text TEXT);";
        shell(&format!("sqlite3 {}/db '{make}'", at.display())).map(drop)
    }

    fn start(&self, _: &Path) -> Result<Option<Child>, String> {
        Ok(None)
    }

    fn client(&self, at: &Path) -> Command {
        let mut command = Command::new("stdbuf");
        command.args([
            "-oL",
            "sqlite3",
            "-batch",
            "-bail",
            "-cmd",
            ".timeout 60000",
            "-cmd",
            "PRAGMA synchronous=FULL",
        ]);
        command.arg(at.join("db"));
        command
    }

    fn is_sound(&self, at: &Path) -> Result<(), String> {
        let said = call(&["sqlite3", &at.join("db").to_string_lossy(), "PRAGMA integrity_check"])?;
        if said.trim() == "ok" { Ok(()) } else { Err(said) }
    }
}

/// The memory of a server for its pages and its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    /// So little that the server constantly writes pages and recycles its log.
    Small,
    /// The defaults.
    Usual,
}

pub(crate) struct Postgresql {
    programs: PathBuf,
    memory: Memory,
}

impl Postgresql {
    pub(crate) fn new(memory: Memory) -> Result<Self, String> {
        let programs = shell("ls -d /usr/lib/postgresql/*/bin | tail -1")?;
        Ok(Self { programs: programs.trim().into(), memory })
    }

    /// The benchmark of `PostgreSQL`.
    pub(crate) fn pgbench(&self, at: &Path, arguments: &[&str]) -> Command {
        let mut command = self.as_user("pgbench");
        command.arg("-h").arg(log_of(at, "socket")).args(arguments).arg("postgres");
        command
    }

    fn as_user(&self, program: &str) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "postgres", "--regid", "postgres", "--clear-groups"]);
        command.arg(self.programs.join(program)).current_dir("/");
        command
    }
}

impl Database for Postgresql {
    fn create(&self, at: &Path) -> Result<(), String> {
        shell(&format!(
            "mkdir {0}/pg; chown postgres: {0}/pg; mkdir -p {1}; chown postgres: {1}",
            at.display(),
            log_of(at, "socket").display()
        ))?;
        output_of(self.as_user("initdb").arg("-D").arg(at.join("pg")).args(["-A", "trust"]))?;
        let server = self.start(at)?;
        let made =
            output_of(self.client(at).args(["-c", "CREATE TABLE t (n bigint PRIMARY KEY, text text)"]));
        end(server);
        made.map(drop)
    }

    fn start(&self, at: &Path) -> Result<Option<Child>, String> {
        let log = log_of(at, "postgres.log");
        let mut server = self.as_user("postgres");
        server.arg("-D").arg(at.join("pg")).arg("-k").arg(log_of(at, "socket"));
        server.args(["-c", "listen_addresses="]);
        if self.memory == Memory::Small {
            for setting in ["shared_buffers=16MB", "max_wal_size=64MB", "checkpoint_timeout=30s"] {
                server.args(["-c", setting]);
            }
        }
        wait_for(spawn(server, &log)?, &log, || {
            let mut client = self.client(at);
            client.args(["-c", "SELECT 1"]);
            client
        })
    }

    fn client(&self, at: &Path) -> Command {
        let mut command = self.as_user("psql");
        command
            .args(["-qAt", "-X", "-v", "ON_ERROR_STOP=1", "-h"])
            .arg(log_of(at, "socket"))
            .args(["-d", "postgres"]);
        command
    }

    fn is_sound(&self, at: &Path) -> Result<(), String> {
        let scan = "SET enable_indexscan=off; SET enable_bitmapscan=off; SET enable_indexonlyscan=off; SELECT count(text) FROM t";
        output_of(self.client(at).args(["-c", scan])).map(drop)
    }
}

pub(crate) struct Mariadb {
    pub(crate) memory: Memory,
}

impl Mariadb {
    /// The socket. The server's user creates it in a world-writable directory.
    pub(crate) fn socket(at: &Path) -> PathBuf {
        let name = at
            .parent()
            .and_then(Path::file_name)
            .map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        std::env::temp_dir().join(format!("{name}.sock"))
    }

    pub(crate) fn query(&self, at: &Path, statements: &str) -> Result<String, String> {
        output_of(self.client(at).args(["-e", statements]))
    }
}

impl Database for Mariadb {
    fn create(&self, at: &Path) -> Result<(), String> {
        let data = at.join("my");
        shell(&format!(
            "mkdir {0}; chown mysql: {0}; mariadb-install-db --no-defaults --user=mysql --datadir={0} --skip-test-db --auth-root-authentication-method=normal",
            data.display()
        ))?;
        let server = self.start(at)?;
        let made = self.query(
            at,
            "CREATE DATABASE IF NOT EXISTS d; CREATE TABLE d.t (n BIGINT PRIMARY KEY, text TEXT) ENGINE=InnoDB",
        );
        end(server);
        made.map(drop)
    }

    fn start(&self, at: &Path) -> Result<Option<Child>, String> {
        let log = log_of(at, "mariadb.log");
        let mut server = Command::new("mariadbd");
        server.args(["--no-defaults", "--user=mysql", "--skip-networking", "--innodb-flush-method=O_DIRECT"]);
        server.arg("--innodb-flush-log-at-trx-commit=1");
        if self.memory == Memory::Small {
            server.args(["--innodb-buffer-pool-size=16M", "--innodb-log-file-size=8M"]);
        }
        server.arg(format!("--datadir={}", at.join("my").display()));
        server.arg(format!("--socket={}", Self::socket(at).display()));
        wait_for(spawn(server, &log)?, &log, || {
            let mut client = self.client(at);
            client.args(["-e", "SELECT 1"]);
            client
        })
    }

    fn client(&self, at: &Path) -> Command {
        let mut command = Command::new("mariadb");
        command.args(["--no-defaults", "-uroot", "-N", "-B", "-n", "--skip-reconnect"]);
        command.arg(format!("--socket={}", Self::socket(at).display()));
        // The database does not exist before `create`.
        if at.join("my/d").exists() {
            command.arg("-Dd");
        }
        command
    }

    fn is_sound(&self, at: &Path) -> Result<(), String> {
        let said = self.query(at, "CHECK TABLE d.t EXTENDED")?;
        if said.contains("OK") { Ok(()) } else { Err(said) }
    }
}
