//! Faults around a mount: a failing device, an unmount under load, little memory.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{Served, Settings};
use crate::command::shell;

const LOAD: &str = "i=0; while :; do i=$((i+1)); mkdir d$i && cp /bin/ls d$i/a && mv d$i/a d$i/b && ln d$i/b d$i/c && rm d$i/b; [ $i -gt 50 ] && rm -r d$((i-50)); done";

/// An NBD server that fails while a trigger file exists.
struct FailingDevice(Child);

impl Drop for FailingDevice {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Errors of the device reach only the program that caused them. Errors of the journal make the volume read-only. Synced data is kept.
pub(crate) fn device_errors(settings: &Settings) -> Result<String, String> {
    let mut served = Served::new(settings, "", "-t ext4", "256M")?;
    let directory = served.directory().to_owned();
    let (socket, trigger) = (directory.join("socket"), directory.join("fail"));
    let mut nbdkit = Command::new("nbdkit");
    nbdkit.args(["-f", "--filter=error", "-U"]).arg(&socket).arg("file").arg(served.image());
    nbdkit.args(["error=EIO", "error-rate=100%"]).arg(format!("error-file={}", trigger.display()));
    let device =
        FailingDevice(nbdkit.stdin(Stdio::null()).spawn().map_err(|error| format!("nbdkit: {error}"))?);
    let start = Instant::now();
    while !socket.exists() && start.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(10));
    }
    served.set_target(format!("nbd+unix:///?socket={}", socket.display()));
    served.mount()?;
    let at = served.at();
    let (at, trigger) = (at.display(), trigger.display());
    shell(&format!(
        "cd {at}; cp /bin/ls kept; cp /bin/ls read; sync kept read .; echo 3 > /proc/sys/vm/drop_caches"
    ))?;
    // Reads and direct writes fail in the call, a cached write fails in its sync. Afterwards other calls succeed.
    shell(&format!(
        "cd {at}; exec 2>&1; dd if=/dev/zero of=direct bs=64k count=4 oflag=direct conv=fsync; touch {trigger}; \
         ! dd if=/dev/zero of=direct bs=64k count=1 oflag=direct conv=notrunc || exit 1; \
         ! dd if=read of=/dev/null iflag=direct || exit 2; rm {trigger}; cmp read /bin/ls"
    ))?;
    shell(&format!(
        "cd {at}; cp /bin/ls cached; touch {trigger}; ! sync cached || exit 1; ! touch other 2> /dev/null || ! sync other 2> /dev/null || exit 2; \
         rm {trigger}; ! sh -c 'echo x > refused' 2> /dev/null || exit 3; cmp kept /bin/ls; cmp read /bin/ls"
    ))?;
    let _ = served.unmount();
    drop(device);
    served.set_target(served.image().display().to_string());
    served.mount()?;
    shell(&format!("cmp {at}/kept /bin/ls; cmp {at}/read /bin/ls"))?;
    served.end()?;
    Ok("reads, direct and cached writes, the journal; the volume is read-only until the next open".to_owned())
}

fn load(served: &Served) -> Result<Child, String> {
    let mut shell = Command::new("sh");
    shell
        .args(["-c", LOAD])
        .current_dir(served.at())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    shell.spawn().map_err(|error| error.to_string())
}

/// SIGTERM, `umount -l` and `diorite umount -l` while programs run. Each must leave a clean volume.
pub(crate) fn unmount_under_load(settings: &Settings) -> Result<String, String> {
    let start = Instant::now();
    let mut rounds = 0;
    while rounds < 3 || start.elapsed() < settings.time {
        let mut served = Served::new(settings, "", "-t ext4", "256M")?;
        served.mount()?;
        let mut loads = Vec::new();
        for number in 0..3 {
            shell(&format!("mkdir {}/{number}", served.at().display()))?;
            loads.push(load(&served)?);
        }
        std::thread::sleep(Duration::from_millis(300 + rounds * 37 % 700));
        let refused = shell(&format!("umount {}", served.at().display()));
        match rounds % 3 {
            0 => shell(&format!("kill -TERM {}", served.pid()))?,
            1 => shell(&format!("umount -l {}", served.at().display()))?,
            _ => shell(&format!("{} umount -l {}", settings.diorite.display(), served.at().display()))?,
        };
        let gone = Instant::now();
        while served.is_mounted() && gone.elapsed() < Duration::from_secs(30) {
            std::thread::sleep(Duration::from_millis(5));
        }
        for load in &mut loads {
            let _ = load.kill();
            let _ = load.wait();
        }
        if refused.is_ok() {
            return Err("umount of a busy mount succeeded".to_owned());
        }
        served.wait()?;
        served.must_be_clean()?;
        rounds += 1;
    }
    Ok(format!("{rounds} times, each clean"))
}

/// Correct with a cache of 256 KiB, and within the documented memory.
pub(crate) fn small_memory(settings: &Settings) -> Result<String, String> {
    let mut served = Served::new(settings, "cache=256K", "-t ext4", "512M")?;
    served.mount()?;
    let at = served.at();
    shell(&format!(
        "cd {}; mkdir many; seq 20000 | xargs -n 500 sh -c 'for i; do echo $i > many/$i; done' sh; cp -r /usr/include include; diff -r --no-dereference /usr/include include; \
         dd if=/dev/urandom of=a bs=1M count=64; cp a b; cmp a b; [ $(ls many | wc -l) = 20000 ]",
        at.display()
    ))?;
    let status = std::fs::read_to_string(format!("/proc/{}/status", served.pid())).unwrap_or_default();
    let peak = status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or_default();
    let kilobytes: u64 =
        peak.split_whitespace().nth(1).and_then(|number| number.parse().ok()).unwrap_or(u64::MAX);
    served.end()?;
    if kilobytes > 100 << 10 {
        Err(format!("the daemon took {kilobytes} KiB"))
    } else {
        Ok(format!("the daemon took {kilobytes} KiB at most"))
    }
}
