//! Reads from a program's file whether it loads preloaded libraries.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

/// Why the dynamic loader does not load the library into a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unloadable {
    /// A statically linked program has no dynamic loader.
    Static,
    /// The program is for another machine or word size.
    OtherMachine,
    /// The program runs with the rights of its file, so the loader ignores the caller's libraries.
    Privileged,
}

impl fmt::Display for Unloadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Static => "it is statically linked, so no library can be preloaded; use a dynamically linked build",
            Self::OtherMachine => "it is built for another architecture; use a build for this machine",
            Self::Privileged => {
                "it is set-user-ID or set-group-ID, so the loader ignores preloaded libraries; run it as its owner"
            }
        })
    }
}

/// Scripts may name scripts, as deep as Linux allows.
const SCRIPTS_MAX: usize = 5;

/// `None` if the program at `path` can load the library, or if only its start will show it. A script is judged by its interpreter.
///
/// # Errors
/// The file cannot be read.
pub fn preloadable(path: &Path) -> io::Result<Option<Unloadable>> {
    let mut path = path.to_owned();
    for _ in 0..SCRIPTS_MAX {
        let file = File::options().read(true).open(&path)?;
        let mut head = [0; 256];
        let len = read_up_to(&file, &mut head, 0)?;
        let head = &head[..len];
        if let Some(line) = head.strip_prefix(b"#!") {
            match interpreter(line) {
                Some(next) => path = next,
                None => return Ok(None),
            }
            continue;
        }
        if !head.starts_with(b"\x7fELF") {
            return Ok(None);
        }
        if is_privileged(&file)? {
            return Ok(Some(Unloadable::Privileged));
        }
        return of_elf(&file, head);
    }
    Ok(None)
}

fn read_up_to(file: &File, memory: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut len = 0;
    while len < memory.len() {
        match file.read_at(&mut memory[len..], offset + len as u64) {
            Ok(0) => break,
            Ok(count) => len += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(len)
}

/// The program named in the first line of a script.
fn interpreter(line: &[u8]) -> Option<PathBuf> {
    let line = line.split(|byte| *byte == b'\n').next()?;
    let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    Some(PathBuf::from(std::ffi::OsStr::from_bytes(words.next()?)))
}

fn is_privileged(file: &File) -> io::Result<bool> {
    let (program, own) = (file.metadata()?, std::fs::metadata("/proc/self")?);
    let sets_user = program.mode() & 0o4000 != 0 && program.uid() != own.uid();
    let sets_group = program.mode() & 0o2010 == 0o2010 && program.gid() != own.gid();
    Ok(sets_user || sets_group)
}

/// By the ELF header and the program headers (System V gABI, "Object Files", "Program Loading").
fn of_elf(file: &File, head: &[u8]) -> io::Result<Option<Unloadable>> {
    const CLASS_64: u8 = 2;
    const PT_INTERP: u32 = 3;
    const HEADERS_MAX: u16 = 1024;
    let machine = if cfg!(target_arch = "x86_64") { 62 } else { 183 };
    let u16_at = |at: usize| head.get(at..at + 2).map(|raw| u16::from_le_bytes([raw[0], raw[1]]));
    if head.get(4) != Some(&CLASS_64) || u16_at(18) != Some(machine) {
        return Ok(Some(Unloadable::OtherMachine));
    }
    let (Some(table), Some(size), Some(count)) = (head.get(32..40), u16_at(54), u16_at(56)) else {
        return Ok(None);
    };
    let table = u64::from_le_bytes(table.try_into().unwrap_or_default());
    for index in 0..count.min(HEADERS_MAX) {
        let mut kind = [0; 4];
        let at = table.checked_add(u64::from(index) * u64::from(size));
        let Some(at) = at.filter(|at| i64::try_from(*at).is_ok()) else { return Ok(None) };
        if read_up_to(file, &mut kind, at)? < kind.len() {
            return Ok(None);
        }
        if u32::from_le_bytes(kind) == PT_INTERP {
            return Ok(None);
        }
    }
    Ok(Some(Unloadable::Static))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn judged(content: &[u8]) -> Option<Unloadable> {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.write_all(content).expect("space");
        preloadable(file.path()).expect("a readable file")
    }

    #[test]
    fn this_test_is_dynamic_and_a_header_without_interpreter_is_static() {
        let own = std::env::current_exe().expect("a path");
        assert_eq!(preloadable(&own).expect("readable"), None);
        let mut head = vec![0; 256];
        File::options()
            .read(true)
            .open(own)
            .expect("readable")
            .read_exact_at(&mut head, 0)
            .expect("an ELF header");
        // No program headers.
        head[56] = 0;
        head[57] = 0;
        assert_eq!(judged(&head), Some(Unloadable::Static));
        head[4] = 1;
        assert_eq!(judged(&head), Some(Unloadable::OtherMachine));
    }

    #[test]
    fn scripts_are_judged_by_their_interpreter() {
        assert_eq!(judged(b"#! /bin/sh -e\n"), None);
        assert_eq!(judged(b"#!\n"), None);
        assert_eq!(judged(b"no program"), None);
        assert_eq!(judged(b""), None);
    }

    #[test]
    fn hostile_headers_end() {
        let mut head = b"\x7fELF\x02\x01\x01".to_vec();
        head.resize(64, 0xff);
        head[18..20].copy_from_slice(&(if cfg!(target_arch = "x86_64") { 62u16 } else { 183 }).to_le_bytes());
        assert_eq!(judged(&head), None);
        head.truncate(20);
        assert_eq!(judged(&head), None);
    }
}
