//! Files that a copy, an archive or a comparison leaves out: the patterns of `--exclude`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::pattern::Pattern;

/// Patterns in the rules of rsync. A pattern fits names at any depth. With a slash in it, it fits the end of a path; with a slash or `./` at
/// its start, the whole path below the source; with a slash at its end, only directories. `*` fits no slash, `**` does.
#[derive(Clone, Debug, Default)]
pub struct Exclusions {
    rules: Vec<Rule>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// A name at any depth.
    Name,
    /// The end of a path.
    End,
    /// The path from the source.
    Start,
}

#[derive(Clone, Debug)]
struct Rule {
    pattern: Pattern,
    place: Place,
    only_directories: bool,
}

impl Rule {
    /// The rule of a text; `None` if it is empty.
    fn of(text: &[u8]) -> Option<Self> {
        let mut path = text;
        while let Some(rest) = path.strip_suffix(b"/") {
            path = rest;
        }
        let only_directories = path.len() < text.len();
        let mut is_anchored = false;
        while let Some(rest) = path.strip_prefix(b"/").or_else(|| path.strip_prefix(b"./")) {
            (path, is_anchored) = (rest, true);
        }
        let place = match (is_anchored, path.contains(&b'/')) {
            (true, _) => Place::Start,
            (false, true) => Place::End,
            (false, false) => Place::Name,
        };
        (!path.is_empty()).then(|| Self { pattern: Pattern::of_path(path), place, only_directories })
    }

    fn fits(&self, source: &Path, below: &Path) -> bool {
        // A join with an empty path would end with a slash.
        let whole = if below.as_os_str().is_empty() { source.to_owned() } else { source.join(below) };
        let fits =
            |path: &Path| !path.as_os_str().is_empty() && self.pattern.fits(path.as_os_str().as_bytes());
        match self.place {
            Place::Name => whole.file_name().is_some_and(|name| fits(Path::new(name))),
            Place::Start => fits(&whole) || fits(below),
            Place::End => {
                let mut end = whole.components();
                std::iter::from_fn(|| {
                    let path = end.as_path();
                    end.next().map(|_| path)
                })
                .any(fits)
            }
        }
    }
}

impl Exclusions {
    /// The patterns.
    pub fn new(patterns: &[OsString]) -> Self {
        Self { rules: patterns.iter().filter_map(|text| Rule::of(text.as_bytes())).collect() }
    }

    /// Whether nothing is left out.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Whether the file at `below` in the tree `source` is left out. `source` is the name of the tree at the destination, empty if its content
    /// is copied; an empty `below` is the tree itself.
    pub fn leave_out(&self, source: &Path, below: &Path, is_directory: &dyn Fn() -> bool) -> bool {
        let source = source.strip_prefix("/").unwrap_or(source);
        let source = if source == Path::new(".") { Path::new("") } else { source };
        self.rules.iter().any(|rule| rule.fits(source, below) && (!rule.only_directories || is_directory()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaves_out(pattern: &str, source: &str, below: &str, is_directory: bool) -> bool {
        let exclusions = Exclusions::new(&[pattern.into()]);
        exclusions.leave_out(Path::new(source), Path::new(below), &|| is_directory)
    }

    #[test]
    fn a_name_fits_at_any_depth_and_a_path_from_its_place() {
        for (pattern, source, below, is_out) in [
            ("*.o", "", "a/b.o", true),
            ("*.o", "", "b.o/a", false),
            ("*.o", "b.o", "", true),
            ("build", "t", "x/build", true),
            ("/build", "t", "build", true),
            ("/build", "t", "x/build", false),
            ("./build", ".", "build", true),
            ("/t/build", "t", "build", true),
            ("t/build", "t", "build", true),
            ("src/*.o", "", "src/a.o", true),
            ("src/*.o", "", "x/src/a.o", true),
            ("src/*.o", "", "src/deep/a.o", false),
            ("src/**.o", "", "src/deep/a.o", true),
            ("usr/share/doc", "usr/share", "doc", true),
            ("**/x", "", "x", true),
            ("/", "t", "build", false),
            ("", "t", "build", false),
        ] {
            assert_eq!(leaves_out(pattern, source, below, false), is_out, "{pattern} {source} {below}");
        }
    }

    #[test]
    fn a_slash_at_the_end_means_a_directory() {
        for pattern in ["build/", "/build/", "./build//"] {
            assert!(leaves_out(pattern, "t", "build", true) && !leaves_out(pattern, "t", "build", false));
        }
    }
}
