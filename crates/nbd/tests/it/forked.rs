//! An export in a forked child of its opener.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use diorite_block::{BioFlags, BlockDevice};
use diorite_device::OpenOptions;
use diorite_nbd::NbdDevice;

use crate::common::child::in_child;

/// A server of 8 MiB on a Unix socket, ended when dropped.
struct Nbdkit(std::process::Child);

impl Nbdkit {
    /// None, with a visible reason, where the program is not installed.
    fn start(socket: &Path) -> Option<Self> {
        let mut command = Command::new("nbdkit");
        command.args(["-f", "-U"]).arg(socket).args(["memory", "8M"]);
        let server = match command.stdin(Stdio::null()).stderr(Stdio::null()).spawn() {
            Ok(process) => Self(process),
            Err(error) => {
                println!("SKIPPED: no nbdkit: {error}");
                return None;
            }
        };
        let give_up = Instant::now() + Duration::from_secs(20);
        while UnixStream::connect(socket).is_err() {
            assert!(Instant::now() < give_up, "nbdkit does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
        Some(server)
    }
}

impl Drop for Nbdkit {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A child that read from an NBD server used its parent's connections: each got what the other had asked for.
#[test]
fn a_child_gets_no_answers_of_its_parents_server() {
    if !is_own_process!() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("socket");
    let Some(_server) = Nbdkit::start(&socket) else { return };
    let uri = format!("nbd+unix:///?socket={}&connections=1&reconnect=0&timeout=2", socket.display());
    let device: Arc<dyn BlockDevice> = NbdDevice::open(&uri, &OpenOptions::read_write()).unwrap();
    device.write_bytes(0, &[1; 4096], BioFlags::SYNC).unwrap();
    device.write_bytes(1 << 20, &[2; 4096], BioFlags::SYNC).unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let mut memory = [0; 4096];
            while !is_over.load(Ordering::Relaxed) {
                device.read_bytes(1 << 20, &mut memory).unwrap();
                assert!(memory == [2; 4096], "the answer to the child");
            }
        });
        // The child may be refused, but reads nothing else.
        let in_it = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            in_child(|| {
                let mut memory = [0; 4096];
                for _ in 0..500 {
                    let read = device.read_bytes(0, &mut memory);
                    assert!(read.is_err() || memory == [1; 4096], "the answer to the parent");
                }
            });
        }));
        is_over.store(true, Ordering::Relaxed);
        reading.join().unwrap();
        in_it.unwrap();
    });
}
