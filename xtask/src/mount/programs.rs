//! Programs of other projects, each on a new volume.

use std::process::{Command, Stdio};

use super::{Served, Settings};
use crate::command::output_of;
use crate::{setup, target};

/// A program as a script in the directory of the mount. The script gets `$SECONDS_TO_RUN`, `$SEED`, `$TOOLS` (programs of registries) and
/// `$REPOSITORY` (a git repository).
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) name: &'static str,
    options: &'static str,
    mke2fs: &'static str,
    script: &'static str,
}

const fn program(name: &'static str, options: &'static str, script: &'static str) -> Program {
    Program { name, options, mke2fs: "-t ext4", script }
}

/// Random reads, writes, mappings and changes of size, compared with a copy in memory.
const FSX: &str = r"
cat > $OUTSIDE/fsx.toml <<END
flen = 8388608
[opsize]
max = 131072
[weights]
close_open = 1
invalidate = 1
truncate = 4
fsync = 1
fdatasync = 1
posix_fallocate = 2
punch_hole = 3
sendfile = 2
posix_fadvise = 1
copy_file_range = 3
END
end=$(($(date +%s) + SECONDS_TO_RUN)); run=0
while [ $(date +%s) -lt $end ]; do
  run=$((run + 1))
  $TOOLS/bin/fsx -q -f $OUTSIDE/fsx.toml -N 3000 -S $((SEED * 1000 + run)) -P $OUTSIDE file$((run % 5))
done
echo $run runs of 3,000 calls
";

const FIO: &str = r"
fio=fio\ --output-format=terse\ --size=24m\ --runtime=$SECONDS_TO_RUN\ --verify=crc32c\ --verify_fatal=1\ --end_fsync=1\ --randseed=$SEED
for engine in psync libaio io_uring mmap; do
  for direct in 0 1; do
    [ $engine.$direct = mmap.1 ] && continue
    for rw in write randwrite randrw; do
      $fio --name=$engine-$direct-$rw --ioengine=$engine --direct=$direct --rw=$rw --bsrange=4k-256k --blockalign=4k --iodepth=8 \
        --numjobs=2 --verify_backlog=64 > $OUTSIDE/fio.out || { cat $OUTSIDE/fio.out; exit 1; }
      rm -f $engine-*
    done
  done
done
echo 21 jobs of two processes
";

const STRESS_NG: &str = r#"
each=$(((SECONDS_TO_RUN + 19) / 20))
set -- access chattr chdir chmod chown copy-file dentry dir dirdeep dup fallocate fiemap file-ioctl filename flock fpunch fsize fstat getdent hdd \
  inode-flags io iomix lease link locka lockf mknod mmapfiles open punch readahead rename seek sync-file symlink touch truncate unlink utime xattr
count=0
known=" $(stress-ng --stressors) "
for stressor do
  # Not in each version.
  case $known in *" $stressor "*) ;; *) echo "SKIPPED: stress-ng has no $stressor"; continue ;; esac
  stress-ng --$stressor 2 --timeout ${each}s --temp-path . --verify --seed $SEED > $OUTSIDE/stress.out 2>&1 && count=$((count + 1)) || {
    code=$?
    # 3: it cannot run here; 4: not implemented.
    [ $code = 3 ] || [ $code = 4 ] || { echo $stressor: $code; cat $OUTSIDE/stress.out; exit 1; }
    echo "SKIPPED: stress-ng $stressor: $code"
  }
done
[ $count -ge 30 ] || { echo "only $count stressors ran"; exit 1; }
echo $count stressors
"#;

pub(crate) const PROGRAMS: &[Program] = &[
    program("fsx", "", FSX),
    program("fsx-direct", "direct", FSX),
    Program { name: "fsx-ext2", options: "", mke2fs: "-t ext2 -b 1024", script: FSX },
    program("fio", "", FIO),
    program("stress-ng", "", STRESS_NG),
    program(
        "bonnie++",
        "",
        "bonnie++ -q -d . -u root -s 256 -r 128 -n 4 -x 1; bonnie++ -D -q -d . -u root -s 256 -r 128 -n 0 -x 1",
    ),
    program(
        "dbench",
        "",
        "dbench -t $SECONDS_TO_RUN -c /usr/share/dbench/client.txt -D . 6 > $OUTSIDE/dbench.out; grep ^Throughput $OUTSIDE/dbench.out",
    ),
    program(
        "git",
        "",
        "git -c safe.directory='*' clone -q --no-local $REPOSITORY clone; cd clone; git fsck --full --strict; git checkout -q HEAD~5; \
         git gc -q; git fsck --full; git status --porcelain | wc -l",
    ),
    program(
        "compile",
        "",
        "git -c safe.directory='*' clone -q --no-local $REPOSITORY clone; cd clone; CARGO_TARGET_DIR=$PWD/target cargo build -q -p diorite-block; \
         ls target/debug/*.rlib; printf '#include <stdio.h>\nint main(void){puts(\"made here\");}' > a.c; gcc -O2 -o a a.c; ./a",
    ),
    program(
        "rsync",
        "",
        "rsync -aHAX --exclude target $REPOSITORY/ copy; rsync -aHAXi --delete --exclude target --checksum $REPOSITORY/ copy | wc -l; \
         diff -r --no-dereference --exclude target $REPOSITORY copy; cp -a copy again; diff -r --no-dereference copy again; rm -r copy",
    ),
];

pub(crate) fn run(program: &Program, settings: &Settings) -> Result<String, String> {
    if program.name.starts_with("fsx") {
        setup::install_fsx()?;
    }
    let mut served = Served::new(settings, program.options, program.mke2fs, "1G")?;
    served.mount()?;
    let here = std::env::current_dir().map_err(|error| error.to_string())?;
    let mut command = Command::new("sh");
    command.args(["-ec", program.script]).current_dir(served.at()).stdin(Stdio::null());
    command.env("SECONDS_TO_RUN", settings.time.as_secs().to_string()).env("SEED", settings.seed.to_string());
    command
        .env("TOOLS", here.join(target::directory()).join("tools"))
        .env("REPOSITORY", &here)
        .env("OUTSIDE", served.directory());
    let said = output_of(&mut command)?;
    served.end()?;
    Ok(said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default().to_owned())
}
