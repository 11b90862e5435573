//! Names that stand for devices, as `/dev/raw/raw1` stood for a disk that `raw(8)` had bound to it.
//!
//! Where it sits: beside the grammar of targets, which looks names up here. The bindings are a text file of the user's, a name and a target on
//! each line: `DIORITE_RAW_BINDINGS`, or `diorite/raw` in `XDG_CONFIG_HOME` or `~/.config`.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The directory in which bound devices had their names.
const DIRECTORY: &str = "/dev/raw/";

/// Names bound to targets.
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// # let directory = tempfile::tempdir()?;
/// let mut bindings = diorite_device::RawBindings::load(directory.path().join("raw"))?;
/// bindings.bind("raw1", "/srv/disk.img?partition=2")?;
/// assert_eq!(bindings.target("/dev/raw/raw1"), Some("/srv/disk.img?partition=2"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct RawBindings {
    file: PathBuf,
    targets: BTreeMap<String, String>,
}

impl RawBindings {
    /// The user's own; none are bound if the file is not there, or if there is no home directory.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn of_user() -> io::Result<Self> {
        let configuration = || {
            let given = env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
            given.or_else(|| env::home_dir().map(|home| home.join(".config")))
        };
        let file = env::var_os("DIORITE_RAW_BINDINGS").map(PathBuf::from);
        match file.or_else(|| configuration().map(|directory| directory.join("diorite/raw"))) {
            Some(file) => Self::load(file),
            None => Ok(Self { file: PathBuf::new(), targets: BTreeMap::new() }),
        }
    }

    /// Those in a file; none if it is not there.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn load(file: impl Into<PathBuf>) -> io::Result<Self> {
        let file = file.into();
        let text = match fs::read_to_string(&file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            read => read?,
        };
        let binding = |line: &str| {
            let (name, target) = line.trim().split_once(char::is_whitespace)?;
            (!name.starts_with('#')).then(|| (name.to_owned(), target.trim().to_owned()))
        };
        Ok(Self { file, targets: text.lines().filter_map(binding).collect() })
    }

    /// What `name` is bound to: `raw1`, or `/dev/raw/raw1`.
    pub fn target(&self, name: &str) -> Option<&str> {
        self.targets.get(name.strip_prefix(DIRECTORY).unwrap_or(name)).map(String::as_str)
    }

    /// All names with their targets.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.targets.iter().map(|(name, target)| (name.as_str(), target.as_str()))
    }

    /// Bind a name to a target, in place of what it was bound to. A relative path is made absolute.
    ///
    /// # Errors
    /// The name has other characters than letters, digits, `-` and `_`; the target has a line break; the file cannot be written.
    pub fn bind(&mut self, name: &str, target: &str) -> io::Result<()> {
        let name = name.strip_prefix(DIRECTORY).unwrap_or(name);
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        if name.is_empty() || !name.chars().all(is_part) {
            let why = format!("{name:?} cannot be bound: a name has letters, digits, - and _, such as raw1");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        if target.trim() != target || target.is_empty() || target.contains(['\n', '\r']) {
            let why =
                format!("{target:?} cannot be bound to: it is empty, or has line breaks or spaces around it");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let target = if Path::new(target).exists() || !target.contains(':') {
            std::path::absolute(target)?.to_string_lossy().into_owned()
        } else {
            target.to_owned()
        };
        self.targets.insert(name.to_owned(), target);
        self.store()
    }

    /// Unbind a name. Returns whether it was bound.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn unbind(&mut self, name: &str) -> io::Result<bool> {
        let was_bound = self.targets.remove(name.strip_prefix(DIRECTORY).unwrap_or(name)).is_some();
        self.store()?;
        Ok(was_bound)
    }

    /// All of the file, or nothing.
    #[expect(clippy::disallowed_methods, reason = "a file of the user's, no data of a volume")]
    fn store(&self) -> io::Result<()> {
        let no_place = || {
            io::Error::new(io::ErrorKind::NotFound, "there is no home directory; set DIORITE_RAW_BINDINGS")
        };
        let directory = self.file.parent().ok_or_else(no_place)?;
        fs::create_dir_all(directory)?;
        let new = self.file.with_extension("new");
        let mut file = fs::File::create(&new)?;
        for (name, target) in &self.targets {
            writeln!(file, "{name} {target}")?;
        }
        file.sync_all()?;
        fs::rename(&new, &self.file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bindings_last_and_bad_names_are_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("new/raw");
        let mut bindings = RawBindings::load(&file).expect("none");
        bindings.bind("raw1", "nbd://host/export").expect("bound");
        bindings.bind("/dev/raw/raw2", "stripe:/a b,/c").expect("bound");
        let again = RawBindings::load(&file).expect("two");
        assert_eq!(again.target("/dev/raw/raw1"), Some("nbd://host/export"));
        assert_eq!(again.target("raw2"), Some("stripe:/a b,/c"));
        assert_eq!(again.iter().count(), 2);
        for (name, target) in [("", "/a"), ("a/b", "/a"), ("a b", "/a"), ("raw1", ""), ("raw1", "a\nb")] {
            assert!(bindings.bind(name, target).is_err(), "{name} {target}");
        }
        assert!(bindings.unbind("raw1").expect("written"));
        assert!(!bindings.unbind("raw1").expect("written"));
        assert_eq!(RawBindings::load(&file).expect("one").target("raw1"), None);
    }
}
