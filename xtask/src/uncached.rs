//! Programs under `diorite uncached`, in each of its ways: `cargo xtask uncached`. Their output, status and files are the same as
//! without it; pages that were in the cache before stay there, and no others.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Instant;

use crate::command::{call, output_of, shell, text};
use crate::mount::databases::{Database as _, Memory, Postgresql, end};
use crate::{setup, target};

/// A program as a script. It runs in a new directory with the files `hot` (in the cache) and `cold` (not in it), and gets `$REPOSITORY` (a git
/// repository), `$EVERY_CALL` (a program) and `$SOCKET` (the directory of a socket of `PostgreSQL`).
struct Program {
    name: &'static str,
    script: &'static str,
    /// Maps files or starts programs that do: some pages may stay.
    maps: bool,
}

const fn program(name: &'static str, script: &'static str) -> Program {
    Program { name, script, maps: false }
}

const PROGRAMS: &[Program] = &[
    Program { name: "every-call", script: "$EVERY_CALL", maps: true },
    program(
        "coreutils",
        "cat hot cold > both; cp cold copy; cp --reflink=never --sparse=always cold sparse; dd if=cold of=dd bs=4k status=none; \
         dd if=cold of=dd-large bs=4M oflag=append conv=notrunc status=none; split -b 3000001 cold piece.; cat piece.* | cmp - cold; \
         sort -S 4M hot > sorted; md5sum *; tail -c 5000 cold | od | head -n 3; head -c 5000000 hot > head; shuf --random-source=cold -n 5 sorted | md5sum; \
         truncate -s 7M copy; tee t1 t2 < cold | wc -c; install -m 640 hot installed; comm -12 sorted sorted | wc -l; cat missing; rm piece.*",
    ),
    program(
        "rsync",
        "rsync -a $REPOSITORY/crates tree; rsync -ai --checksum $REPOSITORY/crates tree; rsync -a tree again; echo x >> again/tree/crates/cli/Cargo.toml; \
         rsync -ai --delete --inplace --no-whole-file tree/ again/tree; rsync -a hot cold tree; rsync missing tree; echo $?",
    ),
    program(
        "tar",
        "tar -cf a.tar --sort=name $REPOSITORY/crates hot cold 2>/dev/null; tar -tf a.tar | md5sum; mkdir out; tar -xf a.tar -C out; tar -df a.tar -C out; \
         tar -czf - --mtime=@0 hot | gzip -t; echo $?; tar -xf hot; echo $?; rm a.tar",
    ),
    Program {
        name: "sqlite3",
        script: "for mode in delete wal truncate persist memory; do \
             sqlite3 $mode.db \"pragma journal_mode=$mode; create table t(k integer primary key, v blob); begin; \
               with recursive n(i) as (select 1 union all select i+1 from n where i<60000) insert into t select i, zeroblob(i % 900) from n; commit; \
               create index i on t(v); update t set v = v || 'x' where k % 7 = 0; delete from t where k % 5 = 0; vacuum; pragma integrity_check; \
               select count(*), sum(length(v)) from t;\"; \
             sqlite3 $mode.db .dump | md5sum; done",
        maps: true,
    },
    Program {
        name: "git",
        script: "export HOME=$PWD GIT_AUTHOR_DATE='2001-01-01 00:00:00 +0000' GIT_COMMITTER_DATE='2001-01-01 00:00:00 +0000'; \
             git config --global user.name a; git config --global user.email a@b; git config --global safe.directory '*'; \
             git -c pack.threads=1 clone -q --no-local --depth 3 file://$REPOSITORY clone; cd clone; git fsck --full --no-progress; git status --porcelain | wc -l; \
             cp ../cold new; git add .; git commit -qm new; git rev-parse HEAD; git checkout -q HEAD~1; git -c pack.threads=1 gc -q; git archive HEAD | md5sum; \
             rm -rf .git",
        maps: true,
    },
    program(
        "pg_dump",
        "export PGHOST=$SOCKET PGUSER=postgres; pg_dump -f random.sql postgres; grep -v restrict random.sql > plain.sql; rm random.sql; pg_dump -Fc -Z0 postgres | pg_restore -f - | grep -v restrict | cmp - plain.sql; \
         pg_dump -Fd -j2 -Z0 -f directory postgres; rm directory/toc.dat; pg_dump -f x missing; echo $?",
    ),
];

const WAYS: [&str; 4] = ["", "dontcache", "direct", "fadvise"];
/// MB of written files that may stay in the cache: the last pages of programs that were killed, or that end after the command.
const LEFT_MB_MAX: f64 = 1.0;

/// `cargo xtask uncached`: all programs, or those whose names begin with an argument.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    if !setup::is_root() {
        return Err("uncached: PostgreSQL's user needs root".to_owned());
    }
    setup::install_mount_packages()?;
    super::cargo(&["build", "--quiet", "--package", "diorite-cli"], &[])?;
    let suite = Suite::new()?;
    let server = suite.start_postgresql()?;
    let chosen = |program: &&Program| {
        arguments.is_empty() || arguments.iter().any(|name| program.name.starts_with(name.as_str()))
    };
    let mut failed = Vec::new();
    for program in PROGRAMS.iter().filter(chosen) {
        let start = Instant::now();
        let result = suite.must_be_same(program);
        let seconds = start.elapsed().as_secs();
        match result {
            Ok(said) => println!("{:12} {seconds:4} s  passed  {said}", program.name),
            Err(why) => {
                println!("{:12} {seconds:4} s  FAILED  {why}", program.name);
                failed.push(program.name);
            }
        }
    }
    end(server);
    let _ = std::fs::remove_dir_all(&suite.directory);
    let _ = std::fs::remove_dir_all(database_directory());
    if failed.is_empty() { Ok(()) } else { Err(format!("uncached: {} failed", failed.join(", "))) }
}

/// The directory of the database, which its user can reach.
fn database_directory() -> PathBuf {
    std::env::temp_dir().join(format!("diorite-uncached-{}", std::process::id()))
}

struct Suite {
    directory: PathBuf,
    diorite: PathBuf,
    repository: PathBuf,
}

/// A run of a program.
struct Ran {
    output: Output,
    directory: PathBuf,
}

impl Suite {
    fn new() -> Result<Self, String> {
        let absolute = |path: PathBuf| std::path::absolute(path).map_err(|error| error.to_string());
        let directory = absolute(target::directory().join("uncached"))?;
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir_all(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
        let source = "crates/cli/tests/it/uncached/every_call.c";
        let every_call = directory.join("every_call");
        call(&[
            "cc",
            "-O2",
            "-w",
            "-D_FORTIFY_SOURCE=2",
            "-pthread",
            "-o",
            &every_call.to_string_lossy(),
            source,
        ])?;
        let diorite = absolute(target::directory().join("debug/diorite"))?;
        let repository = std::env::current_dir().map_err(|error| error.to_string())?;
        Ok(Self { directory, diorite, repository })
    }

    fn start_postgresql(&self) -> Result<Option<std::process::Child>, String> {
        let at = database_directory().join("volume");
        std::fs::create_dir_all(&at).map_err(|error| format!("{}: {error}", at.display()))?;
        shell(&format!(
            "chmod 755 {0} {0}/.. && ln -s {0}/../socket {1}/socket",
            at.display(),
            self.directory.display()
        ))?;
        let database = Postgresql::new(Memory::Usual)?;
        database.create(&at)?;
        let server = database.start(&at)?;
        let filled = output_of(&mut database.pgbench(&at, &["-i", "-q", "-s", "5"]));
        if let Err(error) = filled {
            end(server);
            return Err(error);
        }
        Ok(server)
    }

    fn must_be_same(&self, program: &Program) -> Result<String, String> {
        let plain = self.execute(program, None)?;
        let mut said = String::new();
        for way in WAYS {
            let ran = self.execute(program, Some(way))?;
            let name = if way.is_empty() { "any" } else { way };
            ran.must_equal(&plain).map_err(|why| format!("{name}: {why}"))?;
            let (hot, others) = ran.cached_mb()?;
            let _ = write!(said, "{name}: {others:.1} MB left; ");
            if hot < 7.9 {
                return Err(format!("{name}: of 8 MB in the cache {hot:.1} are left"));
            }
            if others > LEFT_MB_MAX && !program.maps {
                return Err(format!("{name}: {others:.1} MB are in the cache that were not there before"));
            }
            let _ = std::fs::remove_dir_all(&ran.directory);
        }
        let (_, others) = plain.cached_mb()?;
        let _ = std::fs::remove_dir_all(&plain.directory);
        Ok(format!("{said}without it {others:.1} MB"))
    }

    /// Run in a new directory.
    fn execute(&self, program: &Program, way: Option<&str>) -> Result<Ran, String> {
        let name = way.map_or_else(|| "plain".to_owned(), |way| format!("way-{way}"));
        let at = self.directory.join(name);
        let _ = std::fs::remove_dir_all(&at);
        shell(&format!(
            "mkdir -p {0} && cd {0} && seq 1 1100000 | head -c 8000000 > hot && seq 9000000 12000000 | head -c 20000000 > cold && sync hot cold && \
             dd if=cold iflag=nocache count=0 status=none && cat hot hot > /dev/null",
            at.display()
        ))?;
        let mut command = match way {
            None => Command::new("sh"),
            Some(way) => {
                let mut command = Command::new(&self.diorite);
                command.args(["uncached", "-q", "--", "sh"]).env("DIORITE_UNCACHED_WAY", way);
                command
            }
        };
        command.args(["-c", program.script]).current_dir(&at).env("LC_ALL", "C");
        command.env("EVERY_CALL", self.directory.join("every_call")).env("REPOSITORY", &self.repository);
        command.env("SOCKET", self.directory.join("socket"));
        let output = command.stdin(Stdio::null()).output().map_err(|error| error.to_string())?;
        Ok(Ran { output, directory: at })
    }
}

impl Ran {
    fn must_equal(&self, plain: &Self) -> Result<(), String> {
        let (own, other) = (&self.output, &plain.output);
        if own.status != other.status {
            return Err(format!("{}, and {} without it: {}", own.status, other.status, text(own)));
        }
        if own.stdout != other.stdout || own.stderr != other.stderr {
            return Err(format!("its output differs: {}, and without it {}", text(own), text(other)));
        }
        let paths = [&plain.directory, &self.directory].map(|path| path.to_string_lossy().into_owned());
        call(&["diff", "-rq", "--no-dereference", &paths[0], &paths[1]]).map(drop)
    }

    /// MB of `hot` and of all other files in the page cache.
    fn cached_mb(&self) -> Result<(f64, f64), String> {
        let hot = cached_mb(&self.directory, "-name hot")?;
        Ok((hot, cached_mb(&self.directory, "! -name hot")?))
    }
}

fn cached_mb(directory: &Path, which: &str) -> Result<f64, String> {
    let sum = "awk '{ sum += $1 } END { print sum / 1e6 }'";
    let script = format!(
        "find {} -maxdepth 99 -type f {which} -print0 | xargs -0 fincore -nbo RES | {sum}",
        directory.display()
    );
    shell(&script)?.trim().parse().map_err(|error| format!("fincore: {error}"))
}
