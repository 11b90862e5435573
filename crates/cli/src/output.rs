//! Standard output of a command: text, or one JSON object, which also has the failures.

use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use jiff::tz::TimeZone;
use serde_json::{Value, json};
use unicode_width::UnicodeWidthStr;

use crate::args;
use crate::failure::{self, Result, visible};
use crate::stdout::Stdout;

/// Buffered standard output. If the reader closes it, the command ends without a message.
pub(crate) struct Output {
    writer: BufWriter<Stdout>,
    is_terminal: bool,
    /// The object of a command with `--json`, written when the command ends.
    json: Option<Value>,
}

/// The longest readable line.
const WIDEST: usize = 100;

/// The width of a line of text: the width of the terminal, within limits.
fn width(is_terminal: bool) -> usize {
    let columns = is_terminal.then(|| rustix::termios::tcgetwinsize(io::stdout()).ok()).flatten();
    columns.map_or(WIDEST, |size| usize::from(size.ws_col).clamp(40, WIDEST))
}

impl Output {
    pub(crate) fn new() -> Self {
        let is_terminal = io::stdout().is_terminal();
        Self { writer: BufWriter::with_capacity(64 << 10, Stdout::lock()), is_terminal, json: None }
    }

    /// Whether standard output is a terminal.
    pub(crate) fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// The number of columns of the terminal, if standard output is one.
    pub(crate) fn columns(&self) -> Option<usize> {
        let size = self.is_terminal.then(|| rustix::termios::tcgetwinsize(io::stdout()).ok())?;
        Some(size.map_or(80, |size| usize::from(size.ws_col)).max(1))
    }

    /// The columns that a name takes.
    pub(crate) fn width_of(name: &[u8]) -> usize {
        visible(&String::from_utf8_lossy(name)).width()
    }

    /// Write a line.
    pub(crate) fn line(&mut self, text: impl AsRef<str>) -> Result<()> {
        self.writer.write_all(text.as_ref().as_bytes())?;
        self.writer.write_all(b"\n")?;
        Ok(())
    }

    /// Write a paragraph, wrapped at words; continuation lines begin with `indent`.
    pub(crate) fn paragraph(&mut self, text: &str, indent: &str) -> Result<()> {
        let width = width(self.is_terminal);
        let mut line = String::new();
        for word in text.split_inclusive(' ') {
            let is_full = line.chars().count() + word.trim_end().chars().count() > width;
            if is_full && line.trim().len() > indent.trim().len() {
                self.line(line.trim_end())?;
                indent.clone_into(&mut line);
            }
            line.push_str(word);
        }
        self.line(line.trim_end())
    }

    /// Write text.
    pub(crate) fn text(&mut self, text: &str) -> Result<()> {
        Ok(self.writer.write_all(text.as_bytes())?)
    }

    /// Write a file name. On a terminal its control characters are escaped.
    pub(crate) fn name(&mut self, name: &[u8]) -> Result<()> {
        if self.is_terminal {
            self.text(&visible(&String::from_utf8_lossy(name)))
        } else {
            Ok(self.writer.write_all(name)?)
        }
    }

    /// Write bytes.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> Result<()> {
        Ok(self.writer.write_all(bytes)?)
    }

    /// Write one JSON object when the command ends.
    #[expect(clippy::unnecessary_wraps, reason = "commands end with what they write")]
    pub(crate) fn json(&mut self, value: Value) -> Result<()> {
        self.json = Some(value);
        Ok(())
    }

    /// Write one line, now.
    pub(crate) fn say(mut self, line: &str) -> Result<()> {
        self.line(line)?;
        self.flush()
    }

    /// Flush the buffer.
    pub(crate) fn flush(&mut self) -> Result<()> {
        Ok(self.writer.flush()?)
    }

    /// Write the rest of the output. With `--json` the object has the failures, and it is written even without other content.
    pub(crate) fn finish(mut self, done: &Result<()>) -> Result<()> {
        let errors = if args::wants_json() { failure::json_errors(done) } else { Vec::new() };
        if let Some(first) = errors.first() {
            let object = self.json.get_or_insert_with(|| json!({}));
            object["error"] = first.clone();
            if errors.len() > 1 {
                object["errors"] = Value::from(errors);
            }
        }
        if let Some(object) = self.json.take() {
            serde_json::to_writer_pretty(&mut self.writer, &object).map_err(io::Error::from)?;
            self.line("")?;
        }
        Ok(self.writer.flush()?)
    }
}

/// A name as JSON: text, or also the bytes if they are not UTF-8.
pub(crate) fn json_name(name: &[u8]) -> Value {
    match std::str::from_utf8(name) {
        Ok(text) => Value::from(text),
        Err(_) => json!({ "lossy": String::from_utf8_lossy(name), "bytes": name }),
    }
}

/// A time as JSON: RFC 3339 in UTC with nanoseconds, or seconds if the year is out of range.
pub(crate) fn json_time(time: diorite::Timestamp) -> Value {
    jiff::Timestamp::new(time.seconds, time.nanoseconds as i32)
        .map_or_else(|_| Value::from(time.seconds), |time| Value::from(time.to_string()))
}

/// A time in the local time zone.
pub(crate) fn local_time(time: diorite::Timestamp, format: &str) -> String {
    jiff::Timestamp::new(time.seconds, time.nanoseconds as i32).map_or_else(
        |_| format!("@{}", time.seconds),
        |stamp| stamp.to_zoned(TimeZone::system()).strftime(format).to_string(),
    )
}

/// A path as JSON.
pub(crate) fn json_path(path: &Path) -> Value {
    json_name(path.as_os_str().as_bytes())
}

/// Bytes as hexadecimal digits.
pub(crate) fn hex(bytes: impl AsRef<[u8]>) -> String {
    bytes.as_ref().iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}

/// The bytes that hexadecimal digits mean.
pub(crate) fn bytes_of_hex(digits: &str) -> Option<Vec<u8>> {
    let is_hex = digits.len().is_multiple_of(2) && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let pair = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).ok();
    if is_hex { (0..digits.len()).step_by(2).map(pair).collect() } else { None }
}

#[cfg(test)]
mod tests {
    use diorite::Timestamp;

    use super::*;

    #[test]
    fn times_are_rfc_3339_as_far_as_that_goes() {
        let time = |seconds, nanoseconds| json_time(Timestamp { seconds, nanoseconds });
        assert_eq!(time(0, 0), "1970-01-01T00:00:00Z");
        assert_eq!(time(1_000_000_000, 5), "2001-09-09T01:46:40.000000005Z");
        assert_eq!(time(i64::MAX, 0), i64::MAX);
    }

    #[test]
    fn names_that_are_no_text_keep_their_bytes() {
        assert_eq!(json_name(b"abc"), "abc");
        assert_eq!(json_name(b"\xff")["bytes"], json!([255]));
    }
}
