//! Programs that check results, and the kernel's mounts.
#![allow(dead_code, reason = "each test program uses a part")]

use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Run a program; its exit code (-1 if there is none) and what it printed.
pub(crate) fn run(program: &str, arguments: &[&str]) -> (i32, String) {
    let output = Command::new(program).args(arguments).env("TZ", "UTC").output();
    let Ok(output) = output else { return (-1, format!("{program} is not installed")) };
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.code().unwrap_or(-1), text)
}

/// Whether the programs are there; says so if not.
pub(crate) fn have(programs: &[&str]) -> bool {
    let missing = programs.iter().find(|program| Command::new(program).arg("-V").output().is_err());
    if let Some(program) = missing {
        println!("SKIPPED: {program} is not installed");
    }
    missing.is_none()
}

/// Unmount what is mounted at `at`. A mount is busy for a moment where another thread starts a program (its child has all descriptors
/// until it executes it), or where another program of this machine looks into it.
pub(crate) fn unmount(at: &Path) {
    let (_, device) = run("findmnt", &["-n", "-o", "SOURCE", &at.to_string_lossy()]);
    let backing = || run("losetup", &["-n", "-O", "BACK-FILE", device.trim()]);
    let attached = backing();
    let unmount = || run("umount", &[&at.to_string_lossy()]);
    let (mut code, mut output) = unmount();
    for _ in 0..50 {
        if code == 0 {
            // A mount namespace that another program made meanwhile has a copy of the mount, which ends with that program.
            for _ in 0..100 {
                if attached.0 != 0 || backing() != attached {
                    return;
                }
                std::thread::sleep(Duration::from_millis(100));
            }
            return;
        }
        std::thread::sleep(Duration::from_millis(100));
        (code, output) = unmount();
    }
    assert!(code == 0 || std::thread::panicking(), "umount: {output}");
}
