//! `find -printf`: the formats of GNU find.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use diorite::{ErrorKind, FileKind, Filesystem, InodeNumber, Timestamp, WalkEntry};
use diorite_files::Accounts;

use crate::entry::{link_target, location_bytes, mode_of};
use crate::failure::{Failure, Result, visible};
use crate::layout::{Kind, Layout};
use crate::output::local_time;
use crate::volume::type_of;

/// Directives that are one of a file's values.
const VALUES: &[u8] = b"pPfhHdsbkinmMuUgGyYlFSDZ";
/// Directives that are one of a file's times; with a letter after them, a part of it.
const TIMES: &[u8] = b"tacTACB";
/// Parts of times that strftime(3) has, too.
const PARTS: &[u8] = b"YmdHMIjklpZzaAbBUwWyCGgVueR";

/// A parsed format.
pub(super) struct Format {
    pieces: Vec<Piece>,
}

enum Piece {
    Text(Vec<u8>),
    Value {
        layout: Layout,
        /// A letter of [`VALUES`] or [`TIMES`].
        what: u8,
        /// The part of a time.
        part: Option<u8>,
    },
    /// `\c`: nothing more is printed for the file.
    Stop,
}

/// The context of the values of a file.
#[derive(Clone, Copy)]
pub(super) struct Shown<'a> {
    pub(super) filesystem: &'a Filesystem,
    pub(super) accounts: &'a Accounts,
    pub(super) image: &'a Path,
    /// The start of the search.
    pub(super) start: &'a Path,
    pub(super) depth: usize,
    /// Names are escaped.
    pub(super) is_terminal: bool,
}

impl Format {
    pub(super) fn parse(text: &OsStr) -> Result<Self> {
        let wrong = |what: &[u8]| {
            let (text, what) = (text.display(), String::from_utf8_lossy(what).into_owned());
            let known = "`diorite find --help` lists the directives";
            Failure::Usage(format!("-printf {text}: unknown directive `{what}`; {known}"))
        };
        let (mut pieces, mut plain, mut rest) = (Vec::new(), Vec::new(), text.as_bytes());
        while let [first, after @ ..] = rest {
            rest = after;
            match first {
                b'\\' => match escape(&mut rest) {
                    Some(byte) => plain.push(byte),
                    None => pieces.extend([Piece::Text(std::mem::take(&mut plain)), Piece::Stop]),
                },
                b'%' if rest.first() == Some(&b'%') => {
                    plain.push(b'%');
                    rest = &rest[1..];
                }
                b'%' => {
                    let layout = Layout::parse(&mut rest);
                    let [what, after @ ..] = rest else { return Err(wrong(b"%")) };
                    rest = after;
                    let part = match what {
                        b'A' | b'B' | b'C' | b'T' => {
                            let [part, after @ ..] = rest else { return Err(wrong(&[b'%', *what])) };
                            rest = after;
                            if !is_part(*part) {
                                return Err(wrong(&[b'%', *what, *part]));
                            }
                            Some(*part)
                        }
                        what if VALUES.contains(what) || TIMES.contains(what) => None,
                        other => return Err(wrong(&[b'%', *other])),
                    };
                    pieces.push(Piece::Text(std::mem::take(&mut plain)));
                    pieces.push(Piece::Value { layout, what: *what, part });
                }
                other => plain.push(*other),
            }
        }
        pieces.push(Piece::Text(plain));
        Ok(Self { pieces })
    }

    /// The text of a file.
    pub(super) fn text(&self, found: &WalkEntry, shown: &Shown<'_>) -> diorite::Result<Vec<u8>> {
        let mut out = Vec::new();
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => out.extend_from_slice(text),
                Piece::Stop => break,
                Piece::Value { layout, what, part } => {
                    let (value, kind) = value(*what, *part, *layout, found, shown)?;
                    layout.push(&value, kind, &mut out);
                }
            }
        }
        Ok(out)
    }
}

/// The byte of an escape, whose text is taken; `None` for `\c`.
fn escape(rest: &mut &[u8]) -> Option<u8> {
    let digits = rest.iter().take(3).take_while(|byte| (b'0'..=b'7').contains(*byte)).count();
    if digits > 0 {
        let (octal, after) = rest.split_at(digits);
        *rest = after;
        return Some(octal.iter().fold(0u8, |byte, digit| byte.wrapping_mul(8).wrapping_add(digit - b'0')));
    }
    let byte = match rest.first() {
        Some(b'a') => 7,
        Some(b'b') => 8,
        Some(b'c') => {
            *rest = &rest[1..];
            return None;
        }
        Some(b'f') => 12,
        Some(b'n') => b'\n',
        Some(b'r') => b'\r',
        Some(b't') => b'\t',
        Some(b'v') => 11,
        Some(b'\\') => b'\\',
        // The backslash stands for itself.
        _ => return Some(b'\\'),
    };
    *rest = &rest[1..];
    Some(byte)
}

fn is_part(part: u8) -> bool {
    PARTS.contains(&part) || b"@s+STXcxrDFh".contains(&part)
}

/// A value, and what it is.
fn value(
    what: u8,
    part: Option<u8>,
    layout: Layout,
    found: &WalkEntry,
    shown: &Shown<'_>,
) -> diorite::Result<(Vec<u8>, Kind)> {
    let at = found.metadata()?;
    // As in GNU find, only the depth and the permissions are laid out as numbers.
    let numeric = |number: u64| Ok((number.to_string().into_bytes(), Kind::Text));
    let text = |text: String| Ok((text.into_bytes(), Kind::Text));
    let name = |name: &[u8]| {
        let escaped = || visible(&String::from_utf8_lossy(name)).into_bytes();
        Ok((if shown.is_terminal { escaped() } else { name.to_vec() }, Kind::Text))
    };
    match what {
        b'p' => name(&location_bytes(shown.image, found.path())),
        b'P' => name(found.path().strip_prefix(shown.start).unwrap_or(found.path()).as_os_str().as_bytes()),
        b'f' => name(found.path().file_name().unwrap_or(OsStr::new("/")).as_bytes()),
        b'h' => name(&location_bytes(shown.image, found.path().parent().unwrap_or(Path::new("")))),
        b'H' => name(&location_bytes(shown.image, shown.start)),
        b'd' => Ok((shown.depth.to_string().into_bytes(), Kind::Signed)),
        b's' => numeric(at.size),
        b'b' => numeric(at.sectors),
        b'k' => numeric(at.sectors.div_ceil(2)),
        b'i' => numeric(at.inode.0.into()),
        b'n' => numeric(at.links.into()),
        b'm' if layout.alternate => Ok((format!("0{:o}", at.permissions).into_bytes(), Kind::Unsigned)),
        b'm' => Ok((format!("{:o}", at.permissions).into_bytes(), Kind::Unsigned)),
        // A volume has one device.
        b'D' => numeric(0),
        b'S' => text(sparseness(at.size, at.sectors)),
        b'Z' => Ok((security_label(shown.filesystem, at.inode)?, Kind::Text)),
        b'M' => text(mode_of(at.kind, at.permissions)),
        b'u' => text(shown.accounts.user(at.owner.uid)),
        b'g' => text(shown.accounts.group(at.owner.gid)),
        b'U' => numeric(at.owner.uid.into()),
        b'G' => numeric(at.owner.gid.into()),
        b'y' => text(letter(at.kind).into()),
        b'Y' => text(target_letter(found, shown).into()),
        b'l' if at.kind == FileKind::Symlink => name(&link_target(shown.filesystem, at.inode)?),
        b'F' => text(type_of(shown.filesystem).to_owned()),
        b'a' | b'A' => text(time_text(Some(at.accessed), part)),
        b't' | b'T' => text(time_text(Some(at.modified), part)),
        b'c' | b'C' => text(time_text(Some(at.changed), part)),
        b'B' => text(time_text(at.created, part)),
        _ => text(String::new()),
    }
}

/// The allocated bytes for each byte of the file, with six digits.
fn sparseness(size: u64, sectors: u64) -> String {
    match (size, sectors) {
        (0, 0) => "1".to_owned(),
        (0, _) => "inf".to_owned(),
        _ => general(sectors as f64 * 512.0 / size as f64),
    }
}

/// The format `%g` of printf(3), for a number that is not negative.
fn general(number: f64) -> String {
    const DIGITS: i32 = 6;
    let scientific = format!("{number:.5e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    let short = |digits: &str| digits.trim_end_matches('0').trim_end_matches('.').to_owned();
    if (-4..DIGITS).contains(&exponent) {
        let fixed = format!("{number:.0$}", usize::try_from(DIGITS - 1 - exponent).unwrap_or(0));
        return if fixed.contains('.') { short(&fixed) } else { fixed };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", short(digits), exponent.abs())
}

/// The label of `SELinux`; empty without one.
fn security_label(filesystem: &Filesystem, inode: InodeNumber) -> diorite::Result<Vec<u8>> {
    match filesystem.node(inode)?.xattr(b"security.selinux") {
        Ok(mut label) => {
            label.pop_if(|last| *last == 0);
            Ok(label)
        }
        Err(error) if error.kind() == ErrorKind::NoAttribute => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

fn letter(kind: FileKind) -> char {
    match kind {
        FileKind::Regular => 'f',
        FileKind::Directory => 'd',
        FileKind::Symlink => 'l',
        FileKind::CharacterDevice => 'c',
        FileKind::BlockDevice => 'b',
        FileKind::Fifo => 'p',
        FileKind::Socket => 's',
    }
}

/// The kind of the file that a link leads to: `N` for none, `L` for a loop.
fn target_letter(found: &WalkEntry, shown: &Shown<'_>) -> char {
    if found.kind != FileKind::Symlink {
        return letter(found.kind);
    }
    match shown.filesystem.metadata(found.path()) {
        Ok(target) => letter(target.kind),
        Err(error) if error.kind() == ErrorKind::FilesystemLoop => 'L',
        Err(error) if error.is_not_found() || error.kind() == ErrorKind::NotADirectory => 'N',
        Err(_) => '?',
    }
}

/// A time, or a part of it. As in GNU find, seconds have ten digits after the point.
fn time_text(time: Option<Timestamp>, part: Option<u8>) -> String {
    let Some(time) = time else { return String::new() };
    let fraction = format!(".{:09}0", time.nanoseconds);
    let local = |format: &str| local_time(time, format);
    match part {
        None => local(&format!("%a %b %e %H:%M:%S{fraction} %Y")),
        Some(b'@') => format!("{}{fraction}", time.seconds),
        Some(b's') => time.seconds.to_string(),
        Some(b'S') => local("%S") + &fraction,
        Some(b'T' | b'X') => local("%H:%M:%S") + &fraction,
        Some(b'+') => local("%Y-%m-%d+%H:%M:%S") + &fraction,
        Some(b'c') => local("%a %b %e %H:%M:%S %Y"),
        Some(b'x' | b'D') => local("%m/%d/%y"),
        Some(b'F') => local("%Y-%m-%d"),
        Some(b'r') => local("%I:%M:%S %p"),
        Some(b'h') => local("%b"),
        Some(other) => local(&format!("%{}", char::from(other))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_a_time_can_be_shown() {
        let time = Timestamp { seconds: 981_173_106, nanoseconds: 5 };
        for part in (0..=u8::MAX).filter(|part| is_part(*part)) {
            assert!(!time_text(Some(time), Some(part)).is_empty(), "{}", char::from(part));
        }
        assert_eq!(time_text(Some(time), Some(b'@')), "981173106.0000000050");
    }

    #[test]
    fn sparseness_has_six_digits() {
        let shown: Vec<_> =
            [(0, 0), (0, 8), (6, 8), (1 << 20, 0), (1, 1 << 21), (1 << 40, 8), (3 << 20, 6144)]
                .map(|(size, sectors)| sparseness(size, sectors))
                .into();
        assert_eq!(shown, ["1", "inf", "682.667", "0", "1.07374e+09", "3.72529e-09", "1"]);
    }

    #[test]
    fn other_directives_are_wrong() {
        for wrong in ["%", "%q", "%T", "%TE", "%-5", "%A"] {
            assert!(Format::parse(OsStr::new(wrong)).is_err(), "{wrong}");
        }
        assert!(Format::parse(OsStr::new("%-10.3p%%%TY\\n\\101\\c")).is_ok());
    }
}
