//! The device layer against fio's `io_uring` engine, on one image, interleaved.
//!
//! `cargo run --release -p diorite-device --example raw_bench -- [IMAGE] [rounds=5] [seconds=2] [only=NAME]`
//!
//! Without IMAGE it makes and removes a file of 1 GiB in the current directory. In each round of a workload, both run in
//! turn. The table shows medians and ratios of rate (higher is better) and CPU seconds per GB (lower is better). CPU time
//! is that of the process that moves the data, and that of the whole machine (`/proc/stat`, with kernel threads and
//! interrupts). The latter is meaningful only on an idle machine.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use diorite_block::{Bio, BioFlags, BlockDevice, IoOwner, Op, Piece, QueuedIo, Sector};
use diorite_device::{
    DirectIo, FileDevice, OpenOptions, RegisteredBuf, RegisteredBuffers, registered_memory,
};

const IMAGE_BYTES: u64 = 1 << 30;

struct Workload {
    name: &'static str,
    op: Op,
    random: bool,
    bytes: usize,
    depth: u32,
}

const WORKLOADS: [Workload; 8] = [
    Workload { name: "read-1m-qd1", op: Op::Read, random: false, bytes: 1 << 20, depth: 1 },
    Workload { name: "write-1m-qd1", op: Op::Write, random: false, bytes: 1 << 20, depth: 1 },
    Workload { name: "read-1m-qd8", op: Op::Read, random: false, bytes: 1 << 20, depth: 8 },
    Workload { name: "write-1m-qd8", op: Op::Write, random: false, bytes: 1 << 20, depth: 8 },
    Workload { name: "randread-4k-qd1", op: Op::Read, random: true, bytes: 4096, depth: 1 },
    Workload { name: "randread-4k-qd32", op: Op::Read, random: true, bytes: 4096, depth: 32 },
    Workload { name: "randwrite-4k-qd1", op: Op::Write, random: true, bytes: 4096, depth: 1 },
    Workload { name: "randwrite-4k-qd32", op: Op::Write, random: true, bytes: 4096, depth: 32 },
];

/// The result of one run.
#[derive(Clone, Copy, Default)]
struct Sample {
    per_second: f64,
    machine_cpu_per_gb: f64,
    own_cpu_per_gb: f64,
}

/// CPU seconds of the whole machine, without idle, waiting and stolen time.
fn machine_cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/stat").expect("procfs");
    let fields: Vec<f64> =
        stat.lines().next().unwrap_or("").split_whitespace().skip(1).filter_map(|f| f.parse().ok()).collect();
    [0, 1, 2, 5, 6].iter().filter_map(|index| fields.get(*index)).sum::<f64>() / 100.0
}

/// CPU seconds of this thread, from the scheduler's own count in nanoseconds.
fn own_cpu() -> f64 {
    let schedstat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("procfs");
    schedstat.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()).unwrap_or(0.0) / 1e9
}

/// A sequence of offsets that both directions of a workload share.
struct Offsets {
    state: u64,
    next: u64,
    slots: u64,
    random: bool,
}

impl Offsets {
    fn take(&mut self) -> u64 {
        if self.random {
            self.state ^= self.state << 13;
            self.state ^= self.state >> 7;
            self.state ^= self.state << 17;
            return self.state % self.slots;
        }
        self.next = (self.next + 1) % self.slots;
        self.next
    }
}

fn ours(path: &Path, workload: &Workload, time: Duration) -> Sample {
    let options = OpenOptions::read_write().direct(DirectIo::Required);
    let device = FileDevice::open(path, &options).unwrap_or_else(|error| panic!("{error}"));
    let slots = device.geometry().capacity_bytes / workload.bytes as u64;
    let mut offsets = Offsets { state: 88_172_645_463_325_252, next: 0, slots, random: workload.random };
    let pool = RegisteredBuffers::new(workload.bytes, workload.depth).expect("memory");
    let (machine, own) = (machine_cpu(), own_cpu());
    let (count, seconds) = if workload.depth == 1 {
        run_calls(&*device, workload, &pool, &mut offsets, time)
    } else {
        run_queue(&device, workload, &pool, &mut offsets, time)
    };
    let (machine, own) = (machine_cpu() - machine, own_cpu() - own);
    sample(count, workload.bytes, seconds, machine, own)
}

fn sample(count: u64, bytes: usize, seconds: f64, machine: f64, own: f64) -> Sample {
    let gigabytes = count as f64 * bytes as f64 / 1e9;
    Sample {
        per_second: count as f64 / seconds,
        machine_cpu_per_gb: machine / gigabytes,
        own_cpu_per_gb: own / gigabytes,
    }
}

fn run_calls(
    device: &dyn BlockDevice,
    workload: &Workload,
    pool: &RegisteredBuffers,
    offsets: &mut Offsets,
    time: Duration,
) -> (u64, f64) {
    let (mut buffer, mut count, started) = (pool.take(), 0, Instant::now());
    while started.elapsed() < time {
        let sector = Sector::containing(offsets.take() * workload.bytes as u64);
        let bio = match workload.op {
            Op::Read => Bio::read(sector, &mut buffer),
            _ => Bio::write(sector, &buffer, BioFlags::SYNC),
        };
        device.execute(&mut [bio]).unwrap_or_else(|error| panic!("{error}"));
        count += 1;
    }
    (count, started.elapsed().as_secs_f64())
}

fn run_queue(
    device: &Arc<FileDevice>,
    workload: &Workload,
    pool: &RegisteredBuffers,
    offsets: &mut Offsets,
    time: Duration,
) -> (u64, f64) {
    let mut queue = Arc::clone(device).open_queue(workload.depth).expect("a queue");
    let (mut done, mut count, started) = (Vec::new(), 0, Instant::now());
    let mut running = true;
    for _ in 0..workload.depth {
        let memory: RegisteredBuf = pool.take();
        let piece = Piece { sector: Sector(0), memory: 0..memory.len() };
        let (pieces, memory) = (vec![piece], diorite_block::QueuedMemory::Owned(Box::new(memory)));
        let (op, flags, owner) = (workload.op, BioFlags::SYNC, IoOwner::current());
        queue.submit(QueuedIo { op, pieces, memory, flags, owner, tag: 0 }).expect("space");
    }
    while queue.in_flight() > 0 {
        queue.reap(1, &mut done).expect("a ring");
        running = running && started.elapsed() < time;
        for completed in done.drain(..) {
            completed.result.unwrap_or_else(|error| panic!("{error}"));
            count += 1;
            if running {
                let mut io = completed.io;
                io.pieces[0].sector = Sector::containing(offsets.take() * workload.bytes as u64);
                queue.submit(io).expect("space");
            }
        }
    }
    (count, started.elapsed().as_secs_f64())
}

fn fio(path: &Path, workload: &Workload, time: Duration) -> Sample {
    let direction = if workload.op == Op::Read { "read" } else { "write" };
    let rw = if workload.random { format!("rand{direction}") } else { direction.to_owned() };
    let memory = std::env::var("FIO_MEM").unwrap_or_else(|_| "mmaphuge".to_owned());
    let machine = machine_cpu();
    let output = Command::new("fio")
        .args(["--name=peer", "--ioengine=io_uring", "--direct=1", "--fixedbufs=1", "--registerfiles=1"])
        .args(["--time_based", "--output-format=json", "--norandommap", "--overwrite=1", "--thread"])
        .args(["--iodepth_batch_complete_min=1", "--iodepth_batch_complete_max=32", "--hugepage-size=2m"])
        .arg(format!("--filename={}", path.display()))
        .arg(format!("--size={}", std::fs::metadata(path).map_or(IMAGE_BYTES, |m| m.len())))
        .arg(format!("--runtime={}ms", time.as_millis()))
        .arg(format!("--rw={rw}"))
        .arg(format!("--bs={}", workload.bytes))
        .arg(format!("--iodepth={}", workload.depth))
        .arg(format!("--mem={memory}"))
        .output()
        .expect("fio is installed");
    let machine = machine_cpu() - machine;
    let text = String::from_utf8_lossy(&output.stdout);
    let json: serde_json::Value = serde_json::from_str(&text[text.find('{').unwrap_or(0)..])
        .unwrap_or_else(|error| panic!("fio: {error}: {text} {}", String::from_utf8_lossy(&output.stderr)));
    let job = &json["jobs"][0];
    let side = &job[direction];
    let number = |value: &serde_json::Value| value.as_f64().unwrap_or(0.0);
    let seconds = number(&side["runtime"]) / 1e3;
    let own = (number(&job["usr_cpu"]) + number(&job["sys_cpu"])) / 100.0 * seconds;
    sample(number(&side["total_ios"]) as u64, workload.bytes, seconds, machine, own)
}

fn median(samples: &[Sample], of: fn(&Sample) -> f64) -> f64 {
    let mut values: Vec<f64> = samples.iter().map(of).collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn compare(path: &Path, workload: &Workload, rounds: usize, time: Duration) {
    let (mut mine, mut peer) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        for turn in 0..2 {
            if (round + turn) % 2 == 0 {
                mine.push(ours(path, workload, time));
            } else {
                peer.push(fio(path, workload, time));
            }
        }
    }
    let row = |of: fn(&Sample) -> f64| (median(&mine, of), median(&peer, of));
    let (rate, peer_rate) = row(|s| s.per_second);
    let (machine, peer_machine) = row(|s| s.machine_cpu_per_gb);
    let (own, peer_own) = row(|s| s.own_cpu_per_gb);
    println!(
        "{:<18} {rate:>9.0} {peer_rate:>9.0} {:>6.3} | {machine:>7.3} {peer_machine:>7.3} {:>6.2} | {own:>7.3} {peer_own:>7.3} {:>6.2}",
        workload.name,
        rate / peer_rate,
        machine / peer_machine,
        own / peer_own,
    );
}

fn make_image() -> PathBuf {
    let path = PathBuf::from(format!("raw_bench-{}.img", std::process::id()));
    let create = diorite_device::Create::NewSized(IMAGE_BYTES);
    let device = FileDevice::open(&path, &OpenOptions::read_write().create(create))
        .unwrap_or_else(|error| panic!("{error}"));
    let mut buffer = RegisteredBuffers::new(1 << 20, 1).expect("memory").take();
    buffer.fill(0x5a);
    for offset in (0..IMAGE_BYTES).step_by(1 << 20) {
        let device: &dyn BlockDevice = &*device;
        device.write_bytes(offset, &buffer, BioFlags::SYNC).unwrap_or_else(|error| panic!("{error}"));
    }
    (&*device as &dyn BlockDevice).flush().unwrap_or_else(|error| panic!("{error}"));
    path
}

fn main() {
    let (mut rounds, mut seconds, mut only, mut image) = (5, 2.0, None, None);
    for argument in std::env::args().skip(1) {
        match argument.split_once('=') {
            Some(("rounds", value)) => rounds = value.parse().expect("rounds=NUMBER"),
            Some(("seconds", value)) => seconds = value.parse().expect("seconds=NUMBER"),
            Some(("only", value)) => only = Some(value.to_owned()),
            _ => image = Some(PathBuf::from(argument)),
        }
    }
    let (path, made) = image.map_or_else(|| (make_image(), true), |path| (path, false));
    println!(
        "{:<18} {:>26} | {:>22} | {:>22}",
        "", "I/O per second", "CPU s/GB, machine", "CPU s/GB, process"
    );
    println!(
        "{:<18} {:>9} {:>9} {:>6} | {:>7} {:>7} {:>6} | {:>7} {:>7} {:>6}",
        "workload", "ours", "fio", "ratio", "ours", "fio", "ratio", "ours", "fio", "ratio"
    );
    for workload in
        WORKLOADS.iter().filter(|w| only.as_ref().is_none_or(|only| w.name.contains(only.as_str())))
    {
        compare(&path, workload, rounds, Duration::from_secs_f64(seconds));
    }
    println!("registered by this thread's ring: {:?}", registered_memory());
    if made {
        let _ = std::fs::remove_file(&path);
    }
}
