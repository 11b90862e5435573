//! The words of a search.
//!
//! The grammar: a list (`,`) of alternatives (`-o`) of sequences (`-a`, or nothing) of negations (`!`, `-not`) of words or `( ... )`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use diorite::{Attributes, FileKind, Filesystem, Timestamp};

use super::regex::{Dialect, compiled};
use super::test::{Fit, Number, Test, Time};
use super::{Action, Expression, Node};
use crate::Wrong;
use crate::accounts::{Accounts, Ownership};
use crate::date::{end_of_day, parse_duration, parse_time};
use crate::mode::ModeChange;
use crate::pattern::Pattern;

/// Deeper parentheses and negations are wrong.
const NESTED_MAX: usize = 100;

/// The context of the words: files of the volume, names of users, the current time.
#[derive(Clone, Copy, Debug)]
pub struct Given<'a> {
    /// The volume of the files that `-newer` and `-samefile` name.
    pub filesystem: &'a Filesystem,
    /// The names of users and groups.
    pub accounts: &'a Accounts,
    /// The time from which ages count.
    pub now: Timestamp,
    /// The path of a file in the volume, from the text of a word.
    pub path_of: fn(&OsStr) -> PathBuf,
}

impl Expression {
    /// Parse the words after the paths. Without an action, entries that fit are printed.
    ///
    /// # Errors
    /// A word is unknown or its value is wrong; a file that a word names cannot be read.
    pub fn parse(words: &[OsString], given: &Given<'_>) -> Result<Self, Wrong> {
        let mut parser = Parser {
            words: words.iter(),
            given: *given,
            nested: 0,
            depth_min: 0,
            depth_max: usize::MAX,
            contents_first: false,
            excluded: Vec::new(),
            formats: Vec::new(),
            dialect: Dialect::Emacs,
        };
        let mut root = if words.is_empty() { Node::Test(Test::Constant(true)) } else { parser.list()? };
        if let Some(word) = parser.words.next() {
            return Err(Wrong::new(word.to_string_lossy(), "no `(` is open"));
        }
        if !root.has_action() {
            root = Node::And(vec![root, Node::Action(Action::Print)]);
        }
        let contents_first = parser.contents_first || root.deletes();
        let Parser { depth_min, depth_max, excluded, formats, .. } = parser;
        Ok(Self { root, depth_min, depth_max, contents_first, excluded, formats })
    }

    /// Whether it removes files.
    pub fn deletes(&self) -> bool {
        self.root.deletes()
    }

    /// Whether a word begins the expression; the words before it are paths.
    pub fn begins_with(word: &OsStr) -> bool {
        let bytes = word.as_bytes();
        matches!(bytes, b"(" | b"!" | b")" | b",") || bytes.starts_with(b"-") && bytes.len() > 1
    }
}

struct Parser<'a> {
    words: std::slice::Iter<'a, OsString>,
    given: Given<'a>,
    nested: usize,
    depth_min: usize,
    depth_max: usize,
    contents_first: bool,
    excluded: Vec<Pattern>,
    formats: Vec<OsString>,
    /// The syntax of the following regular expressions.
    dialect: Dialect,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<&'a [u8]> {
        self.words.as_slice().first().map(|word| word.as_bytes())
    }

    /// Take the next word if it is one of these.
    fn take(&mut self, wanted: &[&str]) -> bool {
        let is_wanted = self.peek().is_some_and(|word| wanted.iter().any(|wanted| wanted.as_bytes() == word));
        if is_wanted {
            self.words.next();
        }
        is_wanted
    }

    fn list(&mut self) -> Result<Node, Wrong> {
        self.joined(Self::alternatives, &[","], Node::List)
    }

    fn alternatives(&mut self) -> Result<Node, Wrong> {
        self.joined(Self::sequence, &["-o", "-or"], Node::Or)
    }

    fn joined(
        &mut self,
        part: fn(&mut Self) -> Result<Node, Wrong>,
        between: &[&str],
        join: fn(Vec<Node>) -> Node,
    ) -> Result<Node, Wrong> {
        let mut parts = vec![part(self)?];
        while self.take(between) {
            parts.push(part(self)?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { join(parts) })
    }

    fn sequence(&mut self) -> Result<Node, Wrong> {
        let mut parts = vec![self.negation()?];
        loop {
            let is_and = self.take(&["-a", "-and"]);
            match self.peek() {
                None | Some(b")" | b"," | b"-o" | b"-or") if !is_and => break,
                _ => parts.push(self.negation()?),
            }
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Node::And(parts) })
    }

    fn negation(&mut self) -> Result<Node, Wrong> {
        self.nested += 1;
        if self.nested > NESTED_MAX {
            return Err(Wrong::new("find", format!("more than {NESTED_MAX} nested `(` and `!`")));
        }
        let node = if self.take(&["!", "-not"]) {
            Node::Not(Box::new(self.negation()?))
        } else if self.take(&["("]) {
            let node = self.list()?;
            if !self.take(&[")"]) {
                return Err(Wrong::new("(", "no `)` closes it"));
            }
            node
        } else {
            self.word()?
        };
        self.nested -= 1;
        Ok(node)
    }

    /// The value of a word.
    fn value(&mut self, word: &str) -> Result<&'a OsStr, Wrong> {
        self.words.next().map(OsString::as_os_str).ok_or_else(|| Wrong::new(word, "needs a value"))
    }

    fn text(&mut self, word: &str) -> Result<&'a str, Wrong> {
        self.value(word)?.to_str().ok_or_else(|| Wrong::new(word, "its value must be text in UTF-8"))
    }

    fn pattern(&mut self, word: &str) -> Result<Pattern, Wrong> {
        let pattern = Pattern::new(self.value(word)?);
        Ok(if word.starts_with("-i") { pattern.in_any_case() } else { pattern })
    }

    fn number(&mut self, word: &str) -> Result<Number, Wrong> {
        let text = self.text(word)?;
        Number::parse(text)
            .ok_or_else(|| Wrong::new(format!("{word} {text}"), "a number is needed: N, +N or -N"))
    }

    fn depth(&mut self, word: &str) -> Result<usize, Wrong> {
        let text = self.text(word)?;
        text.parse()
            .map_err(|_| Wrong::new(format!("{word} {text}"), "a number of levels is needed, such as 2"))
    }

    /// A file of the volume that a word names.
    fn file(&mut self, word: &str) -> Result<Attributes, Wrong> {
        let name = self.value(word)?;
        let attributes = self.given.filesystem.metadata((self.given.path_of)(name));
        attributes.map_err(|error| {
            Wrong::new(format!("{word} {}", name.display()), error.without_path().to_string())
        })
    }

    fn word(&mut self) -> Result<Node, Wrong> {
        let Some(word) = self.words.next() else {
            return Err(Wrong::new("find", "a test is missing at the end of the expression"));
        };
        let word = word.to_string_lossy();
        if let Some(action) = action(&word) {
            return Ok(Node::Action(action));
        }
        if word == "-printf" {
            let format = self.value("-printf")?.to_owned();
            self.formats.push(format);
            return Ok(Node::Action(Action::Format(self.formats.len() - 1)));
        }
        Ok(Node::Test(match &*word {
            "-maxdepth" | "--max-depth" => {
                self.depth_max = self.depth(&word)?;
                Test::Constant(true)
            }
            "-mindepth" | "--min-depth" => {
                self.depth_min = self.depth(&word)?;
                Test::Constant(true)
            }
            "-depth" | "-d" => {
                self.contents_first = true;
                Test::Constant(true)
            }
            // A volume has no mounts in it, and links are not followed.
            "-true" | "-xdev" | "-mount" | "-noleaf" | "-P" => Test::Constant(true),
            "-false" => Test::Constant(false),
            "-daystart" => {
                self.given.now = end_of_day(self.given.now);
                Test::Constant(true)
            }
            "-regextype" => {
                self.dialect = Dialect::named(self.text(&word)?)?;
                Test::Constant(true)
            }
            "-regex" | "-iregex" => {
                Test::Regex(compiled(self.text(&word)?, self.dialect, word == "-iregex")?)
            }
            "-name" | "-iname" => Test::Name(self.pattern(&word)?),
            "-path" | "-ipath" | "-wholename" | "-iwholename" => Test::Path(self.pattern(&word)?),
            "-lname" | "-ilname" => Test::LinkTarget(self.pattern(&word)?),
            "-xattr" => Test::Attribute(self.pattern(&word)?),
            "--extension" | "-e" => {
                let mut suffix = OsString::from("*.");
                suffix.push(self.value(&word)?);
                Test::Name(Pattern::new(&suffix).in_any_case())
            }
            // As in fd, wherever it stands in the expression.
            "--exclude" | "-E" => {
                let pattern = self.pattern(&word)?;
                self.excluded.push(pattern);
                Test::Constant(true)
            }
            "-type" | "--type" | "-t" => Test::Kind(self.kinds(&word)?),
            "-xtype" => Test::TargetKind(self.kinds(&word)?),
            "-size" | "--size" | "-S" => self.size(&word)?,
            "-empty" => Test::Empty,
            "-links" => Test::Links(self.number(&word)?),
            "-inum" => Test::Inode(self.number(&word)?),
            "-uid" => Test::User(self.number(&word)?),
            "-gid" => Test::Group(self.number(&word)?),
            "-user" => Test::User(Number::Exactly(self.given.accounts.uid(self.text("-user")?)?.into())),
            "-group" => Test::Group(Number::Exactly(self.given.accounts.gid(self.text("-group")?)?.into())),
            "--owner" => return self.owner(&word),
            "-nouser" => Test::NoUser(self.given.accounts.uids()),
            "-nogroup" => Test::NoGroup(self.given.accounts.gids()),
            "-perm" => self.permissions(&word)?,
            "-samefile" => Test::SameFile(self.file(&word)?.inode),
            "--changed-within" => self.changed(&word)?,
            "--changed-before" => return Ok(Node::Not(Box::new(Node::Test(self.changed(&word)?)))),
            _ => return self.time(&word),
        }))
    }

    fn owner(&mut self, word: &str) -> Result<Node, Wrong> {
        let owner = Ownership::parse(self.text(word)?, self.given.accounts)?;
        let uid = owner.uid.map(|uid| Node::Test(Test::User(Number::Exactly(uid.into()))));
        let gid = owner.gid.map(|gid| Node::Test(Test::Group(Number::Exactly(gid.into()))));
        Ok(Node::And(uid.into_iter().chain(gid).collect()))
    }

    fn kinds(&mut self, word: &str) -> Result<Vec<FileKind>, Wrong> {
        let text = self.text(word)?;
        let kind = |letter: &str| match letter {
            "f" | "file" => Some(FileKind::Regular),
            "d" | "dir" | "directory" => Some(FileKind::Directory),
            "l" | "symlink" => Some(FileKind::Symlink),
            "c" | "char-device" => Some(FileKind::CharacterDevice),
            "b" | "block-device" => Some(FileKind::BlockDevice),
            "p" | "pipe" => Some(FileKind::Fifo),
            "s" | "socket" => Some(FileKind::Socket),
            _ => None,
        };
        let kinds = text.split(',').map(kind).collect::<Option<Vec<_>>>();
        kinds.ok_or_else(|| {
            Wrong::new(format!("{word} {text}"), "kinds are f, d, l, c, b, p and s, separated by commas")
        })
    }

    /// `-size 10M`, `-size +1k`, `-size 3` (blocks of 512 bytes).
    fn size(&mut self, word: &str) -> Result<Test, Wrong> {
        let text = self.text(word)?;
        let wrong = || {
            let units = "a size is N, +N or -N with a unit: c (bytes), w (2), b (512, also without a unit), k, M, G, T";
            Wrong::new(format!("{word} {text}"), units)
        };
        let (digits, unit) = match text.trim_end_matches('B').char_indices().next_back() {
            Some((at, letter)) if letter.is_ascii_alphabetic() => {
                let unit = match letter {
                    'c' => 1,
                    'w' => 2,
                    'b' => 512,
                    'k' | 'K' => 1 << 10,
                    'm' | 'M' => 1 << 20,
                    'g' | 'G' => 1 << 30,
                    't' | 'T' => 1 << 40,
                    _ => return Err(wrong()),
                };
                (&text[..at], unit)
            }
            _ => (text, 512),
        };
        Ok(Test::Size { number: Number::parse(digits).ok_or_else(wrong)?, unit })
    }

    /// `-perm 644`, `-perm -u+w` (all of the bits), `-perm /222` (one of them).
    fn permissions(&mut self, word: &str) -> Result<Test, Wrong> {
        let text = self.text(word)?;
        let (how, change) = match text.as_bytes().first() {
            Some(b'-') => (Fit::All, &text[1..]),
            Some(b'/') => (Fit::Any, &text[1..]),
            _ => (Fit::Exactly, text),
        };
        let change = ModeChange::parse(change)?;
        Ok(Test::Permissions { wanted: change.apply(0, false, 0), how })
    }

    /// fd's `--changed-within 2d` or `--changed-within "2001-02-03 04:05:06"`.
    fn changed(&mut self, word: &str) -> Result<Test, Wrong> {
        let text = self.text(word)?;
        let than = match parse_duration(text) {
            Some(seconds) => {
                Timestamp { seconds: self.given.now.seconds.saturating_sub(seconds), ..self.given.now }
            }
            None => parse_time(text)?,
        };
        Ok(Test::Newer { time: Time::Modified, than })
    }

    /// `-mtime`, `-amin`, `-newer`, `-anewer`, `-newermt` and their like.
    fn time(&mut self, word: &str) -> Result<Node, Wrong> {
        let now = self.given.now;
        let time = |letter: u8| match letter {
            b'a' => Some(Time::Accessed),
            b'm' => Some(Time::Modified),
            b'c' => Some(Time::Changed),
            b'B' => Some(Time::Born),
            _ => None,
        };
        let age = match word {
            "-atime" | "-mtime" | "-ctime" => Some(Test::DAYS),
            "-amin" | "-mmin" | "-cmin" => Some(60),
            _ => None,
        };
        if let (Some(unit), Some(time)) = (age, word.as_bytes().get(1).copied().and_then(time)) {
            return Ok(Node::Test(Test::Age { time, number: self.number(word)?, unit, now }));
        }
        let newer = |time, than| Ok(Node::Test(Test::Newer { time, than }));
        match word {
            "-newer" => return newer(Time::Modified, self.file(word)?.modified),
            "-anewer" => return newer(Time::Accessed, self.file(word)?.modified),
            "-cnewer" => return newer(Time::Changed, self.file(word)?.modified),
            _ => {}
        }
        if let Some([of, reference]) = word.strip_prefix("-newer").map(str::as_bytes)
            && let Some(of) = time(*of)
        {
            if *reference == b't' {
                return newer(of, parse_time(self.text(word)?)?);
            }
            if let Some(reference) = time(*reference) {
                let file = self.file(word)?;
                let than = reference.of(&file);
                return newer(
                    of,
                    than.ok_or_else(|| Wrong::new(word, "this volume does not record birth times"))?,
                );
            }
        }
        Err(unknown(word))
    }
}

fn action(word: &str) -> Option<Action> {
    Some(match word {
        "-print" => Action::Print,
        "-print0" | "-0" => Action::Print0,
        "-ls" => Action::List,
        "-delete" => Action::Delete,
        "-prune" => Action::Prune,
        "-quit" => Action::Quit,
        _ => return None,
    })
}

/// The error of a word that does not exist here, with its reason.
fn unknown(word: &str) -> Wrong {
    let why = match word {
        "-exec" | "-execdir" | "-ok" | "-okdir" | "-x" | "--exec" => {
            "programs of the host cannot open files in an image; pipe -print0 to `xargs -0 diorite ...`, or mount the image"
        }
        "-L" | "-H" | "-follow" | "--follow" => {
            "links are not followed; search the directory of the link's target"
        }
        "-fstype" => "a volume is one filesystem; leave it out",
        "-fprint" | "-fprintf" | "-fls" | "-fprint0" => {
            "not supported; redirect the output of -print, -printf, -ls or --json"
        }
        "-readable" | "-writable" | "-executable" => "permissions are not enforced in an image; use -perm",
        _ if word.starts_with('-') => "unknown; `diorite find --help` lists the tests",
        _ => "paths come before the expression; quote patterns",
    };
    Wrong::new(word, why)
}
