//! Paths in a volume: patterns, and names without symbolic links.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use diorite::{Filesystem, Result};
use glob::MatchOptions;

/// The number of symbolic links that a path may have, as in Linux.
const LINKS_MAX: u32 = 40;

/// A pattern of names, as in fnmatch(3): `*`, `?`, `[a-z]`, `[!a]`, and `\` before a literal character.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    pattern: glob::Pattern,
    options: MatchOptions,
}

impl Pattern {
    /// A pattern. `*` fits slashes and leading dots, too. A `[` without `]` stands for itself.
    pub fn new(text: &OsStr) -> Self {
        let pattern = in_words_of_glob(&text.to_string_lossy(), true);
        let pattern = glob::Pattern::new(&pattern)
            .or_else(|_| glob::Pattern::new(&in_words_of_glob(&text.to_string_lossy(), false)));
        let options = MatchOptions {
            case_sensitive: true,
            require_literal_separator: false,
            require_literal_leading_dot: false,
        };
        Self { pattern: pattern.unwrap_or_default(), options }
    }

    /// The same pattern, for names in any case.
    #[must_use]
    pub fn in_any_case(mut self) -> Self {
        self.options.case_sensitive = false;
        self
    }

    /// The same pattern; a dot at the start of a name fits only a dot, as in a shell.
    #[must_use]
    pub fn with_literal_dot(mut self) -> Self {
        self.options.require_literal_leading_dot = true;
        self
    }

    /// Whether a name fits. Bytes that are not UTF-8 fit `?`.
    pub fn fits(&self, name: &[u8]) -> bool {
        self.pattern.matches_with(&String::from_utf8_lossy(name), self.options)
    }
}

/// The pattern in the form that the crate `glob` takes: no `\`, no `**`, and `!` for a negated set.
fn in_words_of_glob(text: &str, has_sets: bool) -> String {
    let mut words = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(next) = rest.next() {
        match next {
            '\\' => {
                let literal = rest.next().unwrap_or('\\');
                words.extend(["[", literal.encode_utf8(&mut [0; 4]), "]"]);
            }
            '*' if words.ends_with('*') => {}
            '[' if !has_sets => words.push_str("[[]"),
            '[' => {
                words.push('[');
                if rest.next_if_eq(&'^').is_some() {
                    words.push('!');
                }
            }
            other => words.push(other),
        }
    }
    words
}

/// Whether a path has a pattern.
pub fn has_pattern(path: &Path) -> bool {
    path.as_os_str().as_bytes().iter().any(|byte| b"*?[".contains(byte))
}

/// The paths that fit a path with patterns, sorted. A pattern fits within one name, and a leading dot must be written, as in a shell. With
/// a slash at the end, only directories fit. A file with the whole name, and a path that nothing fits, stand for themselves.
///
/// # Errors
/// A directory cannot be read.
pub fn expand(filesystem: &Filesystem, path: &Path) -> Result<Vec<PathBuf>> {
    if !has_pattern(path) || filesystem.symlink_metadata(path).is_ok() {
        return Ok(vec![path.to_owned()]);
    }
    let mut found = vec![PathBuf::from("/")];
    for component in path.components() {
        let Component::Normal(name) = component else {
            if component == Component::ParentDir {
                for directory in &mut found {
                    directory.push("..");
                }
            }
            continue;
        };
        let before = std::mem::take(&mut found);
        for directory in before {
            if !has_pattern(Path::new(name)) {
                found.push(directory.join(name));
                continue;
            }
            if !filesystem.metadata(&directory).is_ok_and(|at| at.is_dir()) {
                continue;
            }
            let pattern = Pattern::new(name).with_literal_dot();
            let mut names = Vec::new();
            for entry in filesystem.read_dir(&directory)? {
                let name = entry?.name;
                if pattern.fits(&name) {
                    names.push(name);
                }
            }
            names.sort_unstable();
            found.extend(names.iter().map(|name| directory.join(OsStr::from_bytes(name))));
        }
    }
    if path.as_os_str().as_bytes().ends_with(b"/") {
        found.retain(|path| filesystem.metadata(path).is_ok_and(|at| at.is_dir()));
        // The slash stays, so that a link means its directory.
        for path in &mut found {
            path.push("");
        }
    }
    found.retain(|path| filesystem.symlink_metadata(path).is_ok());
    if found.is_empty() {
        found.push(path.to_owned());
    }
    Ok(found)
}

/// The path without symbolic links, `.` and `..`. The last name may be missing, as with `readlink -f`.
///
/// # Errors
/// A directory of the path is missing or is none; a loop of links.
pub fn canonical(filesystem: &Filesystem, path: &Path) -> Result<PathBuf> {
    let mut done = PathBuf::from("/");
    let mut rest = components(path);
    let mut links = 0;
    while let Some(name) = rest.pop() {
        if name == ".." {
            done.pop();
            continue;
        }
        let next = done.join(&name);
        match filesystem.symlink_metadata(&next) {
            Ok(attributes) if attributes.is_symlink() => {
                links += 1;
                if links > LINKS_MAX {
                    // The error of a loop.
                    filesystem.metadata(&next)?;
                }
                let target = filesystem.read_link(&next)?;
                if target.is_absolute() {
                    done = PathBuf::from("/");
                }
                rest.extend(components(&target));
            }
            Err(error) if !(error.is_not_found() && rest.is_empty()) => return Err(error),
            _ => done = next,
        }
    }
    Ok(done)
}

/// The names of a path, the last one first.
fn components(path: &Path) -> Vec<OsString> {
    let names = path.components().rev().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    });
    names.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fits(pattern: &str, name: &str) -> bool {
        Pattern::new(OsStr::new(pattern)).fits(name.as_bytes())
    }

    #[test]
    fn patterns_are_those_of_fnmatch() {
        for (pattern, name) in [
            ("*.conf", "a.conf"),
            ("*", ".hidden"),
            ("?", "é"),
            ("[a-c]x", "bx"),
            ("[!a-c]x", "dx"),
            ("[^a-c]x", "dx"),
            ("a**b", "a/x/b"),
            (r"\*", "*"),
            (r"a\[b", "a[b"),
            ("a[b", "a[b"),
            ("[]]", "]"),
            ("*/x", "a/b/x"),
        ] {
            assert!(fits(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [("*.conf", "a.con"), ("?", "ab"), ("[a-c]x", "dx"), (r"\*", "a"), ("a", "A")]
        {
            assert!(!fits(pattern, name), "{pattern} {name}");
        }
        assert!(Pattern::new(OsStr::new("*.JPG")).in_any_case().fits(b"a.jpg"));
        assert!(!Pattern::new(OsStr::new("*")).with_literal_dot().fits(b".a"));
        assert!(Pattern::new(OsStr::new(".*")).with_literal_dot().fits(b".a"));
    }
}
