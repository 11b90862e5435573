//! Properties of the disk models: rates, latencies, overlap, and content that survives from one world to the next.

use std::sync::Arc;
use std::time::Duration;

use diorite_block::{Bio, BioFlags, BlockDevice, IoOwner, Sector};
use diorite_sim::{DiskParameters, SimDisk, Simulation, WorldOptions};

/// Run `body` on a disk in a world of its own; how long it took.
fn timed(disk: &Arc<SimDisk>, body: impl FnOnce(&dyn BlockDevice) + Send + 'static) -> Duration {
    let disk = Arc::clone(disk);
    let ((), report) =
        Simulation::run_one(WorldOptions::default(), move || body(&*disk)).expect("no deadlock");
    report.virtual_time
}

fn read(device: &dyn BlockDevice, offset: u64, len: usize) {
    let mut memory = vec![0; len];
    device.execute(&mut [Bio::read(Sector::containing(offset), &mut memory)]).expect("no faults");
}

fn write(device: &dyn BlockDevice, offset: u64, len: usize, flags: BioFlags) {
    let memory = vec![1; len];
    device.execute(&mut [Bio::write(Sector::containing(offset), &memory, flags)]).expect("no faults");
}

fn sequential(device: &dyn BlockDevice, writes: bool, megabytes: u64) {
    for at in 0..megabytes * 8 {
        if writes {
            write(device, at * 131_072, 131_072, BioFlags::SYNC);
        } else {
            read(device, at * 131_072, 131_072);
        }
    }
}

fn rate(megabytes: u64, time: Duration) -> f64 {
    megabytes as f64 * 1.048_576 / time.as_secs_f64()
}

#[test]
fn sequential_rates_are_those_of_the_medium() {
    for (name, least, most) in [
        ("sata-2009", 135.0, 146.0),
        ("ide-2001", 13.0, 14.0),
        ("fc-2002", 60.0, 79.0),
        ("ideal", 990.0, 1001.0),
    ] {
        let disk = SimDisk::named(name).expect("known");
        let got = rate(64, timed(&disk, |device| sequential(device, false, 64)));
        assert!((least..=most).contains(&got), "{name}: {got:.1} MB/s");
    }
}

#[test]
fn write_cache_hides_the_arm_until_it_is_full() {
    let small = |name: &str, flags| {
        let disk = SimDisk::named(name).expect("known");
        timed(&disk, move |device| (0..100).for_each(|at| write(device, at * 4096, 4096, flags))) / 100
    };
    assert!(small("sata-2009", BioFlags::SYNC) < Duration::from_micros(450));
    // A write-through drive turns once for each sequential synchronous write: 120 a second.
    for (name, flags) in [("sata-2009-nocache", BioFlags::SYNC), ("sata-2009", BioFlags::FUA)] {
        let each = small(name, flags);
        assert!((each.as_secs_f64() - 1.0 / 120.0).abs() < 0.0003, "{name}: {each:?}");
    }
    let disk = SimDisk::named("sata-2009").expect("known");
    let written = |device: &dyn BlockDevice| {
        sequential(device, true, 256);
        device.execute(&mut [Bio::flush()]).expect("no faults");
    };
    let got = rate(256, timed(&disk, written));
    assert!((100.0..146.0).contains(&got), "beyond its cache it writes at the medium's rate: {got:.1} MB/s");
}

#[test]
fn flush_waits_for_the_medium() {
    let disk = SimDisk::named("sata-2009").expect("known");
    let time = timed(&disk, |device| {
        write(device, 0, 4096, BioFlags::SYNC);
        write(device, 500_000_000_000, 4096, BioFlags::SYNC);
        device.execute(&mut [Bio::flush()]).expect("no faults");
    });
    assert!((Duration::from_millis(10)..Duration::from_millis(40)).contains(&time), "two seeks: {time:?}");
}

#[test]
fn random_reads_pay_seek_and_half_a_turn_and_queueing_helps() {
    let run = |processes: u64| {
        let disk = SimDisk::named("sata-2009").expect("known");
        let simulation = Simulation::new(3);
        for process in 0..processes {
            let disk = Arc::clone(&disk);
            simulation.spawn("reader", IoOwner::default(), move || {
                let mut random = fastrand::Rng::with_seed(process);
                for _ in 0..50 {
                    read(&*disk, random.u64(0..200_000_000) * 4096, 4096);
                }
            });
        }
        50.0 * processes as f64 / simulation.run().expect("no deadlock").virtual_time.as_secs_f64()
    };
    let (alone, queued) = (run(1), run(16));
    assert!((65.0..100.0).contains(&alone), "{alone:.0} a second");
    assert!(queued > 1.5 * alone, "{queued:.0} a second with 16 in the queue");
}

#[test]
fn eight_disks_share_one_link() {
    let parameters = DiskParameters::named("fc-2002").expect("known");
    let disks = SimDisk::array("fc-2002", &parameters, 8);
    let simulation = Simulation::new(1);
    for disk in &disks {
        let disk = Arc::clone(disk);
        simulation.spawn("reader", IoOwner::default(), move || sequential(&*disk, false, 32));
    }
    let report = simulation.run().expect("no deadlock");
    let got = rate(8 * 32, report.virtual_time);
    assert!((185.0..=201.0).contains(&got), "2 Gbit/s: {got:.1} MB/s");
}

#[test]
fn content_stays_and_time_starts_anew() {
    let disk = SimDisk::named("ssd").expect("known");
    let outside: &dyn BlockDevice = &*disk;
    outside.write_bytes(0, &[7; 8192], BioFlags::SYNC).expect("no time outside a world");
    for _ in 0..2 {
        let time = timed(&disk, |device| {
            let mut memory = [0; 4096];
            device.execute(&mut [Bio::read(Sector(8), &mut memory)]).expect("no faults");
            assert_eq!(memory, [7; 4096]);
        });
        assert!((Duration::from_micros(80)..Duration::from_micros(100)).contains(&time), "{time:?}");
    }
    assert_eq!(disk.image().memory_bytes(), 65_536);
}
