//! Programs with the preloaded library behave as without it: same bytes, same errors, same exit status. Pages that were cached before
//! are cached after, and others are not.

#![allow(clippy::disallowed_methods, reason = "files of the host")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::common::{Bench, is_root, pattern, text, tool, wait_until};

const WAYS: [&str; 4] = ["", "dontcache", "direct", "fadvise"];

/// Compile the program that makes every call.
fn every_call(bench: &Bench) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/uncached/every_call.c");
    let program = bench.path("every_call");
    let words = ["-O2", "-w", "-D_FORTIFY_SOURCE=2", "-pthread", "-o"].map(Into::into);
    let words = words.into_iter().chain([program.clone().into_os_string(), source.into_os_string()]);
    let compiled = tool("cc", words)?;
    assert!(compiled.status.success(), "{}", text(&compiled.stderr));
    Some(program)
}

/// A line of a shell in a directory, with the library if there is a way.
fn shell(bench: &Bench, directory: &Path, line: &str, way: Option<&str>) -> Output {
    let mut command = match way {
        None => Command::new("sh"),
        Some(_) => bench.diorite(["uncached", "-q", "--", "sh"]),
    };
    if let Some(way) = way {
        command.env("DIORITE_UNCACHED_WAY", way);
    }
    command.args(["-c", line]).current_dir(directory).stdin(Stdio::null());
    command.env("LC_ALL", "C").output().expect("a shell")
}

/// Run a line without the library and in each way, in copies of a directory. Output, status and files must be the same.
fn must_be_same(bench: &Bench, prepared: Option<&Path>, line: &str) {
    let mut expected: Option<(Output, PathBuf)> = None;
    for way in [None].into_iter().chain(WAYS.map(Some)) {
        let directory = bench.path(&format!("run-{}", way.unwrap_or("plain")));
        let _ = std::fs::remove_dir_all(&directory);
        match prepared {
            Some(prepared) => {
                let copied = tool("cp", ["-a".as_ref(), prepared.as_os_str(), directory.as_os_str()]);
                assert!(copied.expect("cp").status.success());
            }
            None => std::fs::create_dir(&directory).expect("a directory"),
        }
        let found = shell(bench, &directory, line, way);
        let Some((output, first)) = &expected else {
            expected = Some((found, directory));
            continue;
        };
        let (plain, own) = (text(&output.stdout), text(&found.stdout));
        for (plain, own) in plain.lines().zip(own.lines()) {
            assert_eq!(own, plain, "{line} {way:?}");
        }
        assert_eq!(own, plain, "{line} {way:?}");
        assert_eq!(text(&found.stderr), text(&output.stderr), "{line} {way:?}");
        assert_eq!(found.status.code(), output.status.code(), "{line} {way:?}");
        let words = ["-r".as_ref(), "--no-dereference".as_ref(), first.as_os_str(), directory.as_os_str()];
        let differences = tool("diff", words).expect("diff");
        assert!(differences.status.success(), "{line} {way:?}: {}", text(&differences.stdout));
    }
}

/// Some files: small, large, sparse, a link.
fn tree(bench: &Bench) -> PathBuf {
    let directory = bench.path("tree");
    std::fs::create_dir_all(directory.join("src/sub")).expect("directories");
    for (name, len) in [("empty", 0), ("small", 700), ("page", 4096), ("middle", 100_001), ("large", 5 << 20)]
    {
        bench.write(&format!("tree/src/{name}"), &pattern(len, len as u64 + 1));
        bench.write(&format!("tree/src/sub/{name}"), &pattern(len, len as u64 + 2));
    }
    std::os::unix::fs::symlink("small", directory.join("src/link")).expect("a link");
    let sparse = std::fs::File::options().create_new(true).write(true).open(directory.join("src/sparse"));
    sparse.and_then(|file| file.set_len(3 << 20)).expect("a file");
    directory
}

#[test]
fn every_call_ends_as_without_the_library() {
    let bench = Bench::new();
    let Some(program) = every_call(&bench) else { return };
    must_be_same(&bench, None, &program.display().to_string());
}

#[test]
fn coreutils_do_the_same() {
    let bench = Bench::new();
    let tree = tree(&bench);
    let line = "cp -a src copy; cp --reflink=never --sparse=never src/large one; cat src/* 2>&1 | md5sum; sort src/middle | md5sum; \
                dd if=src/large of=part bs=100000 skip=3 seek=2 count=9 conv=notrunc status=none; tail -c 100 src/large | md5sum; \
                split -b 300000 src/large piece.; shuf --random-source=src/large -n 3 src/middle | md5sum; install -m 600 src/small x; \
                tee two three < src/large | wc -c; truncate -s 12345 two; cmp src/large three; mv three four; sha1sum src/*; \
                head -c 1000000 src/large > cut; cat missing; exit 7";
    must_be_same(&bench, Some(&tree), line);
}

#[test]
fn tar_rsync_and_git_do_the_same() {
    let bench = Bench::new();
    let tree = tree(&bench);
    must_be_same(
        &bench,
        Some(&tree),
        "tar -cSf - --sort=name --mtime=@0 src > src.tar; mkdir out; tar -xf src.tar -C out; tar -df src.tar; gzip -k src/middle",
    );
    if tool("rsync", ["--version"]).is_some() {
        must_be_same(
            &bench,
            Some(&tree),
            "rsync -a src/ copy; echo more >> src/large; rsync -a --no-whole-file --inplace src/ copy; rsync -a --checksum src/ copy; \
             rsync missing copy 2> /dev/null; echo $?",
        );
    }
    if tool("git", ["--version"]).is_some() {
        let who = "-c user.name=a -c user.email=a@b -c init.defaultBranch=main -c maintenance.auto=false -c gc.auto=0";
        let line = format!(
            "export GIT_AUTHOR_DATE='2001-01-01 00:00:00 +0000' GIT_COMMITTER_DATE='2001-01-01 00:00:00 +0000' HOME=$PWD; \
             git {who} init -q r; cp src/* r 2> /dev/null; cd r; git {who} add .; git {who} commit -qm one; echo x >> small; \
             git {who} commit -qam two; git rev-parse HEAD; git {who} fsck --no-progress; git archive HEAD | md5sum; cd ..; rm -rf r/.git"
        );
        must_be_same(&bench, Some(&tree), &line);
    }
}

#[test]
fn sqlite_does_the_same_also_beside_itself() {
    let bench = Bench::new();
    if tool("sqlite3", ["--version"]).is_none() {
        return;
    }
    let make = "create table t(k integer primary key, v blob); with recursive n(i) as (select 1 union all select i+1 from n where i<3000) \
                insert into t select i, zeroblob(i % 900) from n; update t set v = v || 'x' where k % 7 = 0;";
    let line = format!(
        "for mode in delete wal truncate; do sqlite3 $mode.db \"pragma journal_mode=$mode; {make}\"; \
         sqlite3 $mode.db 'begin immediate; insert into t values(9999,1);' '.shell sqlite3 '$mode'.db \"insert into t values(8888,1);\" 2>&1 | tail -c 60' 'commit;'; \
         sqlite3 $mode.db 'pragma integrity_check; select count(*), sum(length(v)) from t;' vacuum; done"
    );
    must_be_same(&bench, None, &line);
}

/// The cached pages of both halves of a file.
fn cached(program: &Path, file: &Path) -> (u64, u64) {
    let output =
        tool(&program.display().to_string(), ["cached".as_ref(), file.as_os_str()]).expect("it runs");
    let line = text(&output.stdout);
    let (first, second) = line.trim().split_once(' ').expect("two numbers");
    (first.parse().expect("a number"), second.parse().expect("a number"))
}

/// Write back a file and drop its pages.
fn drop_cache(path: &Path) {
    let file = std::fs::File::options().read(true).open(path).expect("a file");
    file.sync_all().expect("a sync");
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("advice");
}

#[test]
fn hot_pages_stay_hot_and_others_stay_out() {
    let bench = Bench::new();
    let Some(program) = every_call(&bench) else { return };
    let (from, to) = (bench.path("from"), bench.path("to"));
    bench.write("from", &pattern(24 << 20, 1));
    drop_cache(&from);
    if cached(&program, &from) != (0, 0) {
        eprintln!("SKIPPED: the filesystem of temporary files keeps all pages");
        return;
    }
    let half = (24 << 20) / 4096 / 2;
    for way in WAYS {
        for copy in [
            "cat from > to",
            "dd if=from of=to bs=4k status=none",
            "dd if=from of=to bs=1M status=none",
            "cp from to",
        ] {
            drop_cache(&from);
            // No readahead.
            let file = std::fs::File::options().read(true).open(&from).expect("the file");
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random).expect("advice");
            let mut memory = vec![0; 12 << 20];
            // Twice, because the kernel reclaims pages that were read once.
            for _ in 0..2 {
                std::os::unix::fs::FileExt::read_exact_at(&file, &mut memory, 0).expect("the first half");
            }
            let (loaded, beyond) = cached(&program, &from);
            assert_eq!(loaded, half);
            let _ = std::fs::remove_file(&to);
            let output = shell(&bench, bench.directory.path(), copy, Some(way));
            assert!(output.status.success(), "{copy}: {}", text(&output.stderr));
            let (first, second) = cached(&program, &from);
            // The kernel may reclaim a few for other programs.
            assert!(first + 32 >= half, "{way} {copy}: of {half} hot pages {first} are left");
            // Pages that the kernel read ahead after the last window was settled.
            assert!(
                second <= beyond + 64,
                "{way} {copy}: {second} pages of the source stay cached, {beyond} were"
            );
            // Writeback of the last pages may end after the program, which drops them then.
            wait_until("written pages are dropped", || {
                let (first, second) = cached(&program, &to);
                first + second <= 64
            });
            assert!(bench.read("to") == bench.read("from"), "{way} {copy}");
        }
    }
}

#[test]
fn the_summary_has_the_bytes_of_each_way() {
    let bench = Bench::new();
    bench.write("large", &pattern(8 << 20, 1));
    bench.write("kept.log", &pattern(100_000, 1));
    let summary = |way: &str, words: &[&str]| -> serde_json::Value {
        let output = bench.diorite(words).env("DIORITE_UNCACHED_WAY", way).output().expect("it starts");
        assert!(output.status.success(), "{words:?}: {}", text(&output.stderr));
        serde_json::from_str(text(&output.stderr).lines().last().unwrap_or_default()).expect("an object")
    };
    let size = 8 << 20;
    let copy = ["uncached", "--json", "--", "dd", "if=large", "of=copy", "bs=1M", "status=none"];
    let dropped = summary("fadvise", &copy);
    assert_eq!((&dropped["read_dropped"], &dropped["written_dropped"]), (&size.into(), &size.into()));
    assert_eq!(
        (&dropped["read_dontcache"], &dropped["read_direct"], &dropped["processes"]),
        (&0.into(), &0.into(), &1.into())
    );
    let all = |summary: &serde_json::Value, kind: &str| -> u64 {
        let ways = ["dontcache", "direct", "dropped"];
        ways.iter().filter_map(|way| summary[format!("{kind}_{way}")].as_u64()).sum()
    };
    for way in ["", "dontcache", "direct"] {
        let found = summary(way, &copy);
        assert_eq!((all(&found, "read"), all(&found, "written")), (size, size), "{found}");
    }
    let kept = summary("", &["uncached", "--json", "--keep", "*.log", "--", "cat", "kept.log"]);
    assert_eq!((&kept["kept"], all(&kept, "read")), (&100_000.into(), 0), "{kept}");
    let only = summary("", &["uncached", "--json", "--only", "./la*", "--", "cat", "kept.log", "large"]);
    assert_eq!((&only["kept"], all(&only, "read")), (&100_000.into(), size), "{only}");
    // `grep` maps nothing; `python3` and `git` do. A stream of `sed -n` on a cached file is counted as other.
    let other = summary("", &["uncached", "--json", "--", "sed", "-n", "$p", "large"]);
    let covered = all(&other, "read") + other["other_read"].as_u64().unwrap_or_default();
    assert!(covered >= size, "{other}");
    let children = summary(
        "",
        &["uncached", "--json", "--", "sh", "-c", "cat large | cat > copy; cat copy > /dev/null"],
    );
    assert!(children["processes"].as_u64() >= Some(4), "{children}");
}

#[test]
fn programs_that_cannot_load_the_library_are_named() {
    let bench = Bench::new();
    bench.write("static.c", b"int main(void) { return 0; }\n");
    let path = bench.path("static");
    let words = ["-static".as_ref(), "-o".as_ref(), path.as_os_str()];
    let source = bench.path("static.c");
    match tool("cc", words.into_iter().chain([source.as_os_str()])) {
        Some(compiled) if compiled.status.success() => {
            let said = bench.fail("uncached -- ./static", 1);
            assert!(said.contains("./static: cannot run uncached: it is statically linked"), "{said}");
            bench.write("script", b"#!./static\n");
            let said = bench.fail("uncached -- ./script", 1);
            assert!(said.contains("statically linked"), "{said}");
        }
        _ => eprintln!("SKIPPED: cc -static: no static C library"),
    }
    let said = bench.fail("uncached -- missing-program", 127);
    assert!(said.contains("missing-program: cannot start: no such file"), "{said}");
    let said = bench.fail("uncached -- .", 126);
    assert!(said.contains(".: cannot start: permission denied"), "{said}");
    bench.fail("uncached true", 2);
    bench.fail("uncached", 2);
    bench.fail("uncached --only  -- true", 2);
    if is_root("a program of another user") {
        std::fs::copy("/bin/true", bench.path("suid")).expect("a copy");
        let path = bench.path("suid");
        rustix::fs::chown(&path, Some(rustix::fs::Uid::from_raw(65534)), None).expect("an owner");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o4755);
        std::fs::set_permissions(&path, mode).expect("permissions");
        let said = bench.fail("uncached -- ./suid", 1);
        assert!(said.contains("set-user-ID"), "{said}");
    }
}

#[test]
fn the_exit_status_is_the_programs() {
    let bench = Bench::new();
    let status = |line: &str| {
        let output = bench.diorite(["uncached", "-q", "--", "sh", "-c", line]).output().expect("it starts");
        assert_eq!(text(&output.stderr), "", "{line}");
        output.status.code()
    };
    assert_eq!(status("exit 0"), Some(0));
    assert_eq!(status("exit 77"), Some(77));
    assert_eq!(status("kill -KILL $$"), Some(137));
    // A signal to diorite reaches the program, also at once. The child ends by itself if it does not.
    let counts = "n=0; while [ $n -lt 500 ]; do sleep 0.01; n=$((n + 1)); done";
    for _ in 0..10 {
        assert_eq!(status(&format!("trap 'exit 5' TERM; kill -TERM $PPID; {counts}; exit 6")), Some(5));
    }
}
