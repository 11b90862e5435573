//! Device tables of genext2fs, makedevs and Buildroot: owners and modes of files, and nodes that are made.
//!
//! Format (Buildroot manual, "Makedev syntax documentation"): a line `NAME TYPE MODE UID GID MAJOR MINOR START INC COUNT`; `#` begins a
//! comment; `-` or a missing field keeps what is there. A node with a COUNT of more than 1 is COUNT nodes `NAMEn` from START, and INC is the
//! difference of their minor numbers.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use diorite::FileKind;
use rustix::io::Errno;

use crate::Error;
use crate::memory::arena::{Content, Node, NodeId};
use crate::memory::{MemoryTree, directory_meta};
use crate::numbers::{MAJORS, MINORS, OWNERS, checked};
use crate::tree::{Follow, Meta};

/// Most nodes of one line.
const COUNT_MAX: i128 = 65_536;

/// The subject of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Type {
    /// A regular file, which must exist.
    File,
    /// The same, ignored if it does not exist.
    OptionalFile,
    /// A directory, which is made if it does not exist.
    Directory,
    /// An existing file or directory, and everything below it.
    Recursive,
    Node(FileKind),
}

/// A line of a table.
#[derive(Debug)]
struct Line {
    number: usize,
    path: PathBuf,
    kind: Type,
    permissions: Option<u16>,
    uid: Option<u32>,
    gid: Option<u32>,
    device: (u32, u32),
    start: u32,
    step: u32,
    count: u32,
}

/// A device table.
#[derive(Debug)]
pub struct Table {
    /// Its file in messages.
    name: String,
    lines: Vec<Line>,
}

impl Table {
    /// Parse the text of a table. Messages call it `name`.
    ///
    /// # Errors
    /// The first line that is malformed.
    pub fn parse(name: &str, text: &[u8]) -> Result<Self, Error> {
        let mut lines = Vec::new();
        for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
            let words: Vec<&[u8]> =
                line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).collect();
            if words.first().is_none_or(|word| word.starts_with(b"#")) {
                continue;
            }
            let number = index + 1;
            lines.push(Line::parse(number, &words).map_err(|why| wrong(name, number, why))?);
        }
        Ok(Self { name: name.to_owned(), lines })
    }
}

fn wrong(name: &str, line: usize, why: String) -> Error {
    Error::Refused { name: format!("{name}:{line}"), what: "cannot use the line", why }
}

impl Line {
    fn parse(number: usize, words: &[&[u8]]) -> Result<Self, String> {
        let word = |index: usize| words.get(index).copied().filter(|word| *word != b"-");
        let text = |index| word(index).map(String::from_utf8_lossy);
        let field = |index: usize, what: &str, range| {
            let parsed = word(index).map(|word| checked::<u32>(what, crate::numbers::record(word), range));
            parsed.transpose()
        };
        if words.len() > 10 {
            return Err(
                "it has more than ten fields: NAME TYPE MODE UID GID MAJOR MINOR START INC COUNT".to_owned()
            );
        }
        let kind = match text(1).as_deref() {
            Some("f") => Type::File,
            Some("F") => Type::OptionalFile,
            Some("d") => Type::Directory,
            Some("r") => Type::Recursive,
            Some("c") => Type::Node(FileKind::CharacterDevice),
            Some("b") => Type::Node(FileKind::BlockDevice),
            Some("p") => Type::Node(FileKind::Fifo),
            Some(other) => {
                return Err(format!("the type `{other}` is unknown; the types are f, d, r, c, b and p"));
            }
            None => return Err("it has no type; write NAME TYPE MODE UID GID ...".to_owned()),
        };
        let path = PathBuf::from(OsStr::from_bytes(words[0]));
        if path.components().any(|part| part == std::path::Component::ParentDir) {
            return Err("`..` cannot be in its name".to_owned());
        }
        let device = (field(5, "major number", &MAJORS)?, field(6, "minor number", &MINORS)?);
        let is_device = matches!(kind, Type::Node(FileKind::CharacterDevice | FileKind::BlockDevice));
        if is_device && device.0.zip(device.1).is_none() {
            return Err("a device needs a major and a minor number".to_owned());
        }
        let counts = 0..=COUNT_MAX;
        let line = Self {
            number,
            path: Path::new("/").join(path),
            kind,
            permissions: permissions(text(2).as_deref())?,
            uid: owner(text(3).as_deref(), "user")?,
            gid: owner(text(4).as_deref(), "group")?,
            device: (device.0.unwrap_or(0), device.1.unwrap_or(0)),
            start: field(7, "start", &MINORS)?.unwrap_or(0),
            step: field(8, "increment", &MINORS)?.unwrap_or(0),
            count: field(9, "count", &counts)?.unwrap_or(0),
        };
        let last = u64::from(line.device.1) + u64::from(line.count.saturating_sub(1)) * u64::from(line.step);
        if i128::from(last) > *MINORS.end() {
            return Err(format!("its last minor number is {last}, outside of 0 to {}", MINORS.end()));
        }
        Ok(line)
    }

    /// The paths of its nodes, with their minor numbers.
    fn nodes(&self) -> Vec<(PathBuf, u32)> {
        if self.count <= 1 {
            return vec![(self.path.clone(), self.device.1)];
        }
        let node = |index: u32| {
            let mut path = self.path.clone().into_os_string();
            path.push((self.start + index).to_string());
            (PathBuf::from(path), self.device.1 + index * self.step)
        };
        (0..self.count).map(node).collect()
    }

    fn set(&self, meta: &mut Meta) {
        if meta.kind != FileKind::Symlink {
            meta.permissions = self.permissions.unwrap_or(meta.permissions);
        }
        meta.uid = self.uid.unwrap_or(meta.uid);
        meta.gid = self.gid.unwrap_or(meta.gid);
        meta.has_unknown_owner &= self.uid.is_none() || self.gid.is_none();
    }
}

/// `-1` keeps the permissions, as in makedevs.
fn permissions(text: Option<&str>) -> Result<Option<u16>, String> {
    let Some(text) = text.filter(|text| *text != "-1") else { return Ok(None) };
    let parsed = u16::from_str_radix(text, 8).ok().filter(|bits| *bits <= 0o7777);
    parsed.map(Some).ok_or_else(|| format!("the mode `{text}` is not octal, such as 755"))
}

fn owner(text: Option<&str>, what: &str) -> Result<Option<u32>, String> {
    let Some(text) = text.filter(|text| *text != "-1") else { return Ok(None) };
    let name = || format!("the {what} `{text}` is not a number, and a device table has no user names");
    let number: i128 = text.parse().map_err(|_| name())?;
    checked(&format!("{what} number"), Some(number), &OWNERS).map(Some)
}

impl MemoryTree {
    /// Set owners and modes as given in a table, and make its nodes and directories.
    ///
    /// # Errors
    /// The first line that cannot be obeyed; a file that it names does not exist, or is of another kind.
    pub fn obey(&mut self, table: &Table) -> Result<(), Error> {
        let time = self.newest().unwrap_or_default();
        for line in &table.lines {
            self.obey_line(line, &directory_meta(time))
                .map_err(|why| wrong(&table.name, line.number, why))?;
        }
        Ok(())
    }

    fn obey_line(&mut self, line: &Line, new: &Meta) -> Result<(), String> {
        let arena = &mut self.state.get_mut().arena;
        let shown = line.path.display();
        let found = match arena.find(&line.path, Follow::Yes) {
            Ok(id) => Some(id),
            Err(Errno::NOENT | Errno::NOTDIR) => None,
            Err(errno) => return Err(format!("{shown} cannot be resolved: {errno}")),
        };
        let missing = || format!("{shown} is not in the content; a line of type d, c, b or p makes files");
        match line.kind {
            Type::OptionalFile if found.is_none() => {}
            Type::File | Type::OptionalFile => {
                let id = found.ok_or_else(missing)?;
                if !arena.is_regular(id) {
                    return Err(format!("{shown} is not a regular file"));
                }
                line.set(&mut arena[id].meta);
            }
            Type::Recursive => {
                for id in arena.all(found.ok_or_else(missing)?) {
                    line.set(&mut arena[id].meta);
                }
            }
            Type::Directory => {
                let made = arena.make_directories(NodeId::ROOT, &line.path, new);
                let node = &mut arena[made.map_err(|_| format!("{shown} is not a directory"))?];
                line.set(&mut node.meta);
                node.is_implied = false;
            }
            Type::Node(kind) => {
                for (path, minor) in line.nodes() {
                    let device = if kind == FileKind::Fifo { (0, 0) } else { (line.device.0, minor) };
                    self.make_node_of(
                        &path,
                        &Meta { kind, device, permissions: 0o644, ..new.clone() },
                        line,
                    )?;
                }
            }
        }
        Ok(())
    }

    /// Make a node, or change the owner of one that is there.
    fn make_node_of(&mut self, path: &Path, meta: &Meta, line: &Line) -> Result<(), String> {
        let arena = &mut self.state.get_mut().arena;
        let above = path.parent().unwrap_or(path);
        let made = arena.make_directories(NodeId::ROOT, above, &directory_meta(meta.modified));
        let parent = made.map_err(|_| format!("{} is not a directory", above.display()))?;
        let name = path.file_name().ok_or("a node cannot be the root")?.as_bytes();
        let id = match arena.child(parent, name) {
            Some(id) if (arena[id].meta.kind, arena[id].meta.device) == (meta.kind, meta.device) => id,
            Some(_) => return Err(format!("{} exists already with another type", path.display())),
            None => {
                let id = arena.add(Node::new(meta.clone(), Content::Nothing));
                arena.insert(parent, name.to_vec(), id);
                id
            }
        };
        line.set(&mut arena[id].meta);
        Ok(())
    }
}
