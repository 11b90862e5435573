//! One reader, or writer, over eight devices moves what the eight move together.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use diorite::{DirectIo, DirectReader, DirectWriter, Filesystem, FilesystemOptions};
use diorite_block::{BlockDevice, IoOwner, sync};
use diorite_device::JoinedDevice;
use diorite_ext_tools::mkfs::{Flavor, MkfsOptions, mkfs};
use diorite_sim::{SimDisk, Simulation, WorldOptions};

/// Each device moves as much, alone and with others.
const BYTES_EACH: usize = 24 << 20;
const BUFFER: usize = 4 << 20;
const CHUNK: u64 = 512 << 10;

/// Bytes a second of a stream that reads, and of one that writes, over so many devices.
fn rates(disk: &str, count: usize) -> (f64, f64) {
    let bytes = count * BYTES_EACH;
    let children: Vec<Arc<dyn BlockDevice>> =
        (0..count).map(|_| SimDisk::named(disk).expect("a disk") as Arc<dyn BlockDevice>).collect();
    let device: Arc<dyn BlockDevice> = if count == 1 {
        children[0].clone()
    } else {
        JoinedDevice::striped(children, CHUNK).expect("striped")
    };
    let options = MkfsOptions { size_bytes: Some(400 << 20), ..MkfsOptions::new(Flavor::Ext4) };
    mkfs(&*device, &options).expect("mkfs");
    // Outside of a simulation nothing takes time.
    let filesystem = FilesystemOptions::new().open_device(device.clone()).expect("open");
    filesystem.write("/file", vec![7; bytes]).expect("write");
    filesystem.close().expect("close");

    let took = Arc::new(Mutex::new((Duration::ZERO, Duration::ZERO)));
    let of_world = Arc::clone(&took);
    let simulation = Simulation::with_options(WorldOptions::default());
    simulation.spawn("main", IoOwner::default(), move || {
        let filesystem = FilesystemOptions::new().open_device(device).expect("open");
        let times = (timed(|| read(&filesystem, bytes)), timed(|| write(&filesystem, bytes)));
        *of_world.lock().unwrap_or_else(PoisonError::into_inner) = times;
        filesystem.close().expect("close");
        sync::sleep(Duration::from_secs(100));
    });
    simulation.run().expect("no deadlock");
    let (reading, writing) = *took.lock().unwrap_or_else(PoisonError::into_inner);
    (bytes as f64 / reading.as_secs_f64(), bytes as f64 / writing.as_secs_f64())
}

fn timed(work: impl FnOnce()) -> Duration {
    let begin = sync::now();
    work();
    sync::now().saturating_sub(begin)
}

fn read(filesystem: &Filesystem, bytes: usize) {
    let file = filesystem.open_options().read(true).direct(DirectIo::Required).open("/file").expect("file");
    let mut reader = DirectReader::new(file, 0, BUFFER, 4).expect("reader");
    let mut len = 0;
    while let Some(chunk) = reader.next_chunk().expect("read") {
        assert!(chunk[0] == 7 && chunk[chunk.len() - 1] == 7);
        len += chunk.len();
    }
    assert_eq!(len, bytes);
}

fn write(filesystem: &Filesystem, bytes: usize) {
    let open = filesystem.open_options().read(true).write(true).direct(DirectIo::Required);
    let mut writer = DirectWriter::new(open.open("/file").expect("file"), 0, BUFFER, 4).expect("writer");
    for _ in 0..bytes / BUFFER {
        writer.buffer().expect("buffer").fill(9);
        writer.submit(BUFFER).expect("submitted");
    }
    writer.finish().expect("finished");
}

#[test]
fn one_stream_over_eight_devices_has_the_rate_of_all() {
    // Of constant bandwidth: a short stream on rotating disks waits for the slowest of eight first rotations.
    let (one, eight) = (rates("ideal", 1), rates("ideal", 8));
    let ratios = (eight.0 / one.0, eight.1 / one.1);
    println!("{:.1} and {:.1} MB/s of one, {ratios:?} times that of eight", one.0 / 1e6, one.1 / 1e6);
    assert!(ratios.0 >= 8.0 * 0.95, "reads {:.2} times the rate of one", ratios.0);
    assert!(ratios.1 >= 8.0 * 0.95, "writes {:.2} times the rate of one", ratios.1);
}
