//! Colours of names, from `LS_COLORS` as `dircolors` prints it. The defaults are the colours of GNU ls.

use std::collections::HashMap;

use diorite::{Attributes, FileKind};

use crate::args::When;

/// The colours of GNU ls.
const DEFAULTS: &str = "di=01;34:ln=01;36:pi=33:so=01;35:bd=01;33:cd=01;33:su=37;41:sg=30;43:tw=30;42:ow=34;42:st=37;44:ex=01;32";

/// The codes of kinds and of endings of names.
#[derive(Clone, Debug, Default)]
pub(crate) struct Colors {
    kinds: HashMap<String, String>,
    /// `*.gz`, without the star.
    endings: Vec<(String, String)>,
    is_on: bool,
}

impl Colors {
    /// The colours of the environment, if they are wanted.
    pub(crate) fn new(when: When, is_terminal: bool) -> Self {
        let is_quiet = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
            || std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let is_on = when == When::Always || when == When::Auto && is_terminal && !is_quiet;
        if !is_on {
            return Self::default();
        }
        let mut colors = Self { is_on, ..Self::default() };
        colors.read(DEFAULTS);
        colors.read(&std::env::var("LS_COLORS").unwrap_or_default());
        colors
    }

    fn read(&mut self, text: &str) {
        for (key, code) in text.split(':').filter_map(|part| part.split_once('=')) {
            // Only numbers and semicolons: nothing else may reach the terminal.
            if !code.bytes().all(|byte| byte.is_ascii_digit() || byte == b';') {
                continue;
            }
            match key.strip_prefix('*') {
                Some(ending) => self.endings.push((ending.to_owned(), code.to_owned())),
                None => {
                    self.kinds.insert(key.to_owned(), code.to_owned());
                }
            }
        }
    }

    /// Whether names have colours.
    pub(crate) fn is_on(&self) -> bool {
        self.is_on
    }

    /// The code of a file; empty for none.
    pub(crate) fn code(&self, name: &[u8], kind: FileKind, attributes: Option<&Attributes>) -> &str {
        let mode = attributes.map_or(0, |attributes| attributes.permissions);
        let has = |bits| mode & bits == bits;
        let key = match kind {
            FileKind::Directory if has(0o1002) => "tw",
            FileKind::Directory if has(0o0002) => "ow",
            FileKind::Directory if has(0o1000) => "st",
            FileKind::Directory => "di",
            FileKind::Symlink => "ln",
            FileKind::Fifo => "pi",
            FileKind::Socket => "so",
            FileKind::BlockDevice => "bd",
            FileKind::CharacterDevice => "cd",
            FileKind::Regular if has(0o4000) => "su",
            FileKind::Regular if has(0o2000) => "sg",
            FileKind::Regular if mode & 0o111 != 0 => "ex",
            FileKind::Regular => {
                let ending = self.endings.iter().rev().find(|(ending, _)| name.ends_with(ending.as_bytes()));
                return ending.map_or("", |(_, code)| code);
            }
        };
        self.kinds.get(key).map_or("", |code| if code.trim_matches('0').is_empty() { "" } else { code })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_come_from_the_environment_and_are_numbers() {
        let mut colors = Colors { is_on: true, ..Colors::default() };
        colors.read(DEFAULTS);
        colors.read("di=00:*.gz=01;31:ex=\x1b[31m:*.tar.gz=32");
        assert_eq!(colors.code(b"d", FileKind::Directory, None), "");
        assert_eq!(colors.code(b"l", FileKind::Symlink, None), "01;36");
        assert_eq!(colors.code(b"a.gz", FileKind::Regular, None), "01;31");
        assert_eq!(colors.code(b"a.tar.gz", FileKind::Regular, None), "32");
        assert_eq!(colors.kinds["ex"], "01;32");
    }
}
