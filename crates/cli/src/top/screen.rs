//! A terminal that shows one page after another, and whose keys are read one by one.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

use crate::args::SortBy;
use crate::failure::Result;

/// To another screen, without a cursor; and back.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

/// A command of the user.
pub(super) enum Key {
    End,
    Sort(SortBy),
}

/// The terminal. Dropped, it is restored.
pub(super) struct Screen {
    before: Termios,
}

impl Screen {
    /// `None`: standard input or output is no terminal.
    pub(super) fn open() -> Result<Option<Self>> {
        if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
            return Ok(None);
        }
        let before = tcgetattr(io::stdin()).map_err(io::Error::from)?;
        let mut by_key = before.clone();
        by_key.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
        tcsetattr(io::stdin(), OptionalActions::Now, &by_key).map_err(io::Error::from)?;
        let screen = Self { before };
        write(ENTER)?;
        Ok(Some(screen))
    }

    /// Show lines, as many and as much of each as there is space for.
    pub(super) fn show(lines: &[String]) -> Result<()> {
        let size = tcgetwinsize(io::stdout()).map_err(io::Error::from)?;
        // A terminal that does not know its size says 0.
        let (rows, columns) = match (size.ws_row, size.ws_col) {
            (0, _) | (_, 0) => (24, 80),
            (rows, columns) => (usize::from(rows), usize::from(columns)),
        };
        let mut page = String::from("\x1b[H");
        for (index, line) in lines.iter().take(rows).enumerate() {
            page.push_str(if index > 0 { "\r\n" } else { "" });
            page.extend(line.chars().take(columns));
            page.push_str("\x1b[K");
        }
        page.push_str("\x1b[J");
        write(&page)
    }

    /// A known key, if one comes in time.
    pub(super) fn key(time: Duration) -> Result<Option<Key>> {
        let stdin = io::stdin();
        let timeout = Timespec { tv_sec: 0, tv_nsec: time.subsec_nanos().into() };
        let mut polled = [PollFd::new(&stdin, PollFlags::IN)];
        match poll(&mut polled, Some(&timeout)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(None),
            Ok(_) => {}
            Err(error) => return Err(io::Error::from(error).into()),
        }
        // Without a buffer, which would hide bytes from the next poll.
        let mut byte = [0];
        if rustix::io::read(&stdin, &mut byte).map_err(io::Error::from)? == 0 {
            // The terminal is gone.
            return Ok(Some(Key::End));
        }
        Ok(match byte[0] {
            b'q' | b'Q' => Some(Key::End),
            b't' => Some(Key::Sort(SortBy::Total)),
            b'r' => Some(Key::Sort(SortBy::Read)),
            b'w' => Some(Key::Sort(SortBy::Write)),
            b'o' => Some(Key::Sort(SortBy::Operations)),
            b'l' => Some(Key::Sort(SortBy::Latency)),
            _ => None,
        })
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = write(LEAVE);
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}

fn write(text: &str) -> Result<()> {
    let mut stdout = io::stdout();
    Ok(stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush())?)
}
