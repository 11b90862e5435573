//! The workloads of the matrix, as job files: known programs, and generated workloads, each with its own seed.
//!
//! Written files have a fixed size and are overwritten, so that a run needs little memory. Block sizes are typical of such
//! programs; by default there is one transfer at a time.

use std::borrow::Cow;
use std::fmt::Write;
use std::sync::LazyLock;

/// One workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Its name in tables.
    pub name: Cow<'static, str>,
    /// A short description.
    pub what: &'static str,
    /// The job file, without a length.
    pub jobs: Cow<'static, str>,
}

/// The number of generated workloads.
const GENERATED: u64 = 16;

/// All workloads.
pub fn workloads() -> &'static [Workload] {
    static ALL: LazyLock<Vec<Workload>> =
        LazyLock::new(|| KNOWN.iter().cloned().chain((1..=GENERATED).map(generated)).collect());
    &ALL
}

/// Two to five owners, each of a random kind. One seed gives one workload.
fn generated(seed: u64) -> Workload {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut jobs = String::new();
    for owner in 0..random.usize(2..=5) {
        let pattern = ["read", "write", "randread", "randread", "randwrite"][random.usize(..5)];
        let is_random = pattern.starts_with("rand");
        let block_kib =
            if is_random { [4, 4, 16, 128][random.usize(..4)] } else { [4, 64, 1024][random.usize(..3)] };
        let is_direct = is_random || random.bool();
        let size = if pattern.ends_with("read") { "256m" } else { "64m" };
        let _ = write!(jobs, "[owner{owner}]\nrw={pattern}\nbs={block_kib}k\nsize={size}\n");
        if is_direct {
            jobs.push_str("direct=1\n");
        }
        if is_random {
            jobs.push_str("norandommap\n");
            let depth = [1, 1, 8, 32][random.usize(..4)];
            if depth > 1 {
                let _ = writeln!(jobs, "ioengine=io_uring\niodepth={depth}");
            }
        }
        let think_ms = [0, 0, 0, 2, 20][random.usize(..5)];
        if think_ms > 0 {
            let _ = writeln!(jobs, "thinktime={think_ms}ms");
        }
    }
    let name = format!("generated-{seed}").into();
    Workload { name, what: "two to five owners of random kinds", jobs: jobs.into() }
}

const fn workload(name: &'static str, what: &'static str, jobs: &'static str) -> Workload {
    Workload { name: Cow::Borrowed(name), what, jobs: Cow::Borrowed(jobs) }
}

/// Those of known programs.
const KNOWN: &[Workload] = &[
    workload("lone-reader", "one buffered sequential reader", "[reader]\nrw=read\nsize=2g\nbs=64k\n"),
    workload(
        "readers",
        "four buffered sequential readers",
        "[reader]\nrw=read\nsize=1g\nbs=128k\nnumjobs=4\n",
    ),
    workload(
        "direct-readers",
        "eight direct sequential readers",
        "[reader]\nrw=read\nsize=512m\nbs=128k\ndirect=1\nnumjobs=8\n",
    ),
    workload(
        "writers",
        "four buffered sequential writers",
        "[writer]\nrw=write\nsize=128m\nbs=1m\nnumjobs=4\n",
    ),
    workload(
        "direct-writers",
        "sixteen direct sequential writers of 4 KiB",
        "[writer]\nrw=write\nsize=32m\nbs=4k\ndirect=1\nnumjobs=16\n",
    ),
    workload(
        "random-readers",
        "eight direct random readers of 4 KiB",
        "[random]\nrw=randread\nsize=256m\nbs=4k\ndirect=1\nnorandommap\nnumjobs=8\n",
    ),
    workload(
        "random-writers",
        "eight direct random writers of 4 KiB",
        "[random]\nrw=randwrite\nsize=64m\nbs=4k\ndirect=1\nnorandommap\nnumjobs=8\n",
    ),
    workload(
        "random-mixed",
        "four direct random programs of 16 KiB, 70 % reads",
        "[random]\nrw=randrw\nrwmixread=70\nsize=128m\nbs=16k\ndirect=1\nnorandommap\nnumjobs=4\n",
    ),
    workload(
        "deep-beside-shallow",
        "random readers of 4 KiB: one with 32 in flight, one with 1",
        "[deep]\nrw=randread\nsize=512m\nbs=4k\ndirect=1\nnorandommap\nioengine=io_uring\niodepth=32\n\
         [shallow]\nrw=randread\nsize=512m\nbs=4k\ndirect=1\nnorandommap\n",
    ),
    workload(
        "deep-queues",
        "two random readers of 4 KiB with 32 in flight",
        "[deep]\nrw=randread\nsize=512m\nbs=4k\ndirect=1\nnorandommap\nioengine=io_uring\niodepth=32\nnumjobs=2\n",
    ),
    workload(
        "seed-2009",
        "the job of 2009: a direct writer of 4 KiB beside two buffered readers",
        "[seqwrite]\nrw=write\nsize=256m\ndirect=1\n[seqread]\nrw=read\nsize=2g\nnumjobs=2\n",
    ),
    workload(
        "readers-and-writer",
        "two buffered readers beside a buffered writer",
        "[reader]\nrw=read\nsize=1g\nbs=128k\nnumjobs=2\n[writer]\nrw=write\nsize=256m\nbs=1m\n",
    ),
    workload(
        "stream-beside-random",
        "a direct stream of 1 MiB reads beside four random readers of 4 KiB",
        "[stream]\nrw=read\nsize=1g\nbs=1m\ndirect=1\n\
         [random]\nrw=randread\nsize=256m\nbs=4k\ndirect=1\nnorandommap\nnumjobs=4\n",
    ),
    workload(
        "random-beside-writer",
        "four random readers of 4 KiB beside a direct sequential writer",
        "[random]\nrw=randread\nsize=256m\nbs=4k\ndirect=1\nnorandommap\nnumjobs=4\n\
         [writer]\nrw=write\nsize=64m\nbs=4k\ndirect=1\n",
    ),
    workload(
        "burst-beside-readers",
        "bursts of sixteen direct writes of 16 KiB, ten a second, beside two buffered readers",
        "[burst]\nrw=write\nsize=64m\nbs=16k\ndirect=1\nthinktime=100ms\nthinktime_blocks=16\n\
         [reader]\nrw=read\nsize=1g\nbs=128k\nnumjobs=2\n",
    ),
    workload(
        "fsync-beside-readers",
        "three writers that sync every 4 KiB beside two buffered readers",
        "[log]\nrw=write\nsize=32m\nbs=4k\nfsync=1\nnumjobs=3\n[reader]\nrw=read\nsize=1g\nbs=128k\nnumjobs=2\n",
    ),
    workload(
        "many-owners",
        "32 direct writers of 4 KiB beside 32 buffered readers",
        "[writer]\nrw=write\nsize=16m\nbs=4k\ndirect=1\nnumjobs=32\n[reader]\nrw=read\nsize=96m\nbs=64k\nnumjobs=32\n",
    ),
    workload(
        "sparse-beside-64",
        "a random read every 200 ms beside 64 direct sequential readers",
        "[sparse]\nrw=randread\nsize=256m\nbs=4k\ndirect=1\nnorandommap\nthinktime=200ms\n\
         [busy]\nrw=read\nsize=64m\nbs=128k\ndirect=1\nnumjobs=64\n",
    ),
    workload(
        "backup-beside-database",
        "a buffered reader of 1 MiB beside four random readers of 8 KiB and a log that is synced",
        "[backup]\nrw=read\nsize=2g\nbs=1m\n\
         [query]\nrw=randread\nsize=512m\nbs=8k\ndirect=1\nnorandommap\nthinktime=2ms\nnumjobs=4\n\
         [log]\nrw=write\nsize=32m\nbs=8k\nfdatasync=1\nthinktime=5ms\n",
    ),
    workload(
        "copy-beside-editor",
        "a buffered reader and a buffered writer of 1 MiB beside a program that reads a little and saves with fsync",
        "[from]\nrw=read\nsize=1g\nbs=1m\n[to]\nrw=write\nsize=256m\nbs=1m\n\
         [open]\nrw=randread\nsize=256m\nbs=16k\nthinktime=100ms\nnorandommap\n\
         [save]\nrw=write\nsize=16m\nbs=16k\nfsync=4\nthinktime=400ms\nthinktime_blocks=4\n",
    ),
    workload(
        "single-reader",
        "a random reader of 4 KiB beside a direct random writer with 32 in flight and a reader that goes backwards",
        "[strided]\nrw=read:-256k\nbs=128k\nsize=512m\ndirect=1\n\
         [deep]\nrw=randwrite\nbs=4k\nsize=256m\ndirect=1\nnorandommap\nioengine=io_uring\niodepth=32\n\
         [one]\nrw=randread\nbs=4k\nsize=256m\ndirect=1\nnorandommap\n",
    ),
    workload(
        "reader-beside-stream",
        "a random reader of 4 KiB beside a direct stream",
        "[stream]\nrw=read\nbs=128k\nsize=1g\ndirect=1\n[one]\nrw=randread\nbs=4k\nsize=256m\ndirect=1\nnorandommap\n",
    ),
    workload(
        "reader-beside-streams",
        "a random reader of 4 KiB beside four direct streams",
        "[stream]\nrw=read\nbs=128k\nsize=512m\ndirect=1\nnumjobs=4\n\
         [one]\nrw=randread\nbs=4k\nsize=256m\ndirect=1\nnorandommap\n",
    ),
    workload(
        "reader-beside-buffered",
        "a random reader of 4 KiB beside a buffered stream",
        "[stream]\nrw=read\nbs=128k\nsize=1g\n[one]\nrw=randread\nbs=4k\nsize=256m\ndirect=1\nnorandommap\n",
    ),
    workload(
        "reader-beside-writer",
        "a random reader of 4 KiB beside a direct sequential writer",
        "[writer]\nrw=write\nbs=4k\nsize=64m\ndirect=1\n[one]\nrw=randread\nbs=4k\nsize=256m\ndirect=1\nnorandommap\n",
    ),
    workload(
        "reader-beside-deep-writer",
        "a random reader of 4 KiB beside a direct random writer with 32 in flight",
        "[deep]\nrw=randwrite\nbs=4k\nsize=256m\ndirect=1\nnorandommap\nioengine=io_uring\niodepth=32\n\
         [one]\nrw=randread\nbs=4k\nsize=256m\ndirect=1\nnorandommap\n",
    ),
    workload(
        "stream-beside-deep-writer",
        "a direct stream beside a direct random writer with 16 in flight",
        "[stream]\nrw=read\nbs=128k\nsize=1g\ndirect=1\n\
         [deep]\nrw=randwrite\nbs=4k\nsize=256m\ndirect=1\nnorandommap\nioengine=io_uring\niodepth=16\n",
    ),
    workload(
        "stream-beside-deep-reader",
        "a direct stream beside a random reader with 32 in flight",
        "[stream]\nrw=read\nbs=128k\nsize=1g\ndirect=1\n\
         [deep]\nrw=randread\nbs=4k\nsize=256m\ndirect=1\nnorandommap\nioengine=io_uring\niodepth=32\n",
    ),
    workload(
        "thinking-reader",
        "a random reader that thinks for 5 ms beside a direct stream and a random writer with 8 in flight",
        "[stream]\nrw=read\nbs=128k\nsize=1g\ndirect=1\n\
         [deep]\nrw=randwrite\nbs=4k\nsize=256m\ndirect=1\nnorandommap\nioengine=io_uring\niodepth=8\n\
         [one]\nrw=randread\nbs=4k\nsize=256m\ndirect=1\nnorandommap\nthinktime=5ms\n",
    ),
    workload(
        "readers-and-writers",
        "a direct stream beside two random readers of 4 KiB and two direct sequential writers",
        "[stream]\nrw=read\nbs=128k\nsize=1g\ndirect=1\n\
         [random]\nrw=randread\nbs=4k\nsize=256m\ndirect=1\nnorandommap\nnumjobs=2\n\
         [writer]\nrw=write\nbs=4k\nsize=64m\ndirect=1\nnumjobs=2\n",
    ),
    workload(
        "large-random-reads",
        "a random reader of 4 KiB beside one of 1 MiB and a direct stream",
        "[stream]\nrw=read\nbs=128k\nsize=1g\ndirect=1\n\
         [large]\nrw=randread\nbs=1m\nsize=512m\ndirect=1\nnorandommap\n\
         [one]\nrw=randread\nbs=4k\nsize=256m\ndirect=1\nnorandommap\n",
    ),
    workload(
        "three-deep",
        "a random reader of 4 KiB beside a random writer with 32 in flight and a random reader with 16",
        "[writer]\nrw=randwrite\nbs=4k\nsize=256m\ndirect=1\nnorandommap\nioengine=io_uring\niodepth=32\n\
         [reader]\nrw=randread\nbs=4k\nsize=256m\ndirect=1\nnorandommap\nioengine=io_uring\niodepth=16\n\
         [one]\nrw=randread\nbs=4k\nsize=256m\ndirect=1\nnorandommap\n",
    ),
];
