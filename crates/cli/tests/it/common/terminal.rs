//! A program on a pseudo-terminal.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

/// The time limit of a step.
const LONGEST_WAIT: Duration = Duration::from_secs(120);

/// The text that the program has written, and whether its terminal is closed.
#[derive(Default)]
struct Shown {
    text: String,
    is_closed: bool,
}

/// See the module's head.
pub(crate) struct Terminal {
    child: Child,
    keyboard: File,
    shown: Arc<(Mutex<Shown>, Condvar)>,
}

impl Terminal {
    /// Start a program on a terminal of this width.
    pub(crate) fn start(mut command: Command, columns: u16) -> Self {
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&terminal).and_then(|()| unlockpt(&terminal)).expect("unlock");
        let size = Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&terminal, size).expect("a size");
        let name = ptsname(&terminal, Vec::new()).expect("its name");
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let open = || rustix::fs::open(&name, flags, Mode::empty()).expect("open");
        let (input, output, errors): (OwnedFd, OwnedFd, OwnedFd) = (open(), open(), open());
        let child = command.stdin(input).stdout(output).stderr(errors).spawn().expect("the program starts");
        drop(command);
        let (keyboard, shown) = (File::from(terminal), Arc::<(Mutex<Shown>, Condvar)>::default());
        let (mut reader, theirs) = (keyboard.try_clone().expect("a descriptor"), Arc::clone(&shown));
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            let change = |act: &dyn Fn(&mut Shown)| {
                act(&mut theirs.0.lock().unwrap_or_else(PoisonError::into_inner));
                theirs.1.notify_all();
            };
            while let Ok(len @ 1..) = reader.read(&mut bytes) {
                let piece = String::from_utf8_lossy(&bytes[..len]).into_owned();
                change(&|shown| shown.text.push_str(&piece));
            }
            change(&|shown| shown.is_closed = true);
        });
        Self { child, keyboard, shown }
    }

    fn shown(&self) -> MutexGuard<'_, Shown> {
        self.shown.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wait until the shown text fits. Returns the text.
    fn wait(&self, what: &str, is_so: impl Fn(&Shown) -> bool) -> String {
        let (shown, result) = self
            .shown
            .1
            .wait_timeout_while(self.shown(), LONGEST_WAIT, |shown| !is_so(shown))
            .unwrap_or_else(PoisonError::into_inner);
        assert!(!result.timed_out(), "{what} in {:?}", shown.text);
        shown.text.clone()
    }

    /// Wait until the program has shown `expected` since the last keys. Returns the text.
    pub(crate) fn shows(&self, expected: &str) -> String {
        self.wait(&format!("no {expected:?}"), |shown| shown.text.contains(expected))
    }

    /// Type keys, and wait until the program shows `expected`. Returns the shown text.
    pub(crate) fn types(&mut self, keys: impl AsRef<[u8]>, expected: &str) -> String {
        self.shown().text.clear();
        let keys = keys.as_ref();
        self.keyboard.write_all(keys).expect("the program reads");
        self.wait(&format!("{:?}: no {expected:?}", keys.escape_ascii()), |shown| {
            shown.text.contains(expected)
        })
    }

    /// Type keys, and wait until the program shows `expected` and later `last`. Returns the shown text.
    pub(crate) fn types_until(&mut self, keys: &str, expected: &str, last: &str) -> String {
        self.shown().text.clear();
        self.keyboard.write_all(keys.as_bytes()).expect("the program reads");
        let is_so =
            |shown: &Shown| shown.text.split_once(expected).is_some_and(|(_, later)| later.contains(last));
        self.wait(&format!("{keys:?}: no {expected:?} with a later {last:?}"), is_so)
    }

    /// Wait until the program has ended. Returns its status, and all that it has shown since the last keys.
    pub(crate) fn ends(&mut self) -> (ExitStatus, String) {
        let text = self.wait("the terminal is not closed", |shown| shown.is_closed);
        (self.child.wait().expect("it has ended"), text)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
