//! Names bound to targets, as `raw(8)` bound `/dev/raw/raw1` to a disk.
//!
//! Where it sits: beside the grammar of targets, which looks names up here. The bindings are a text file of the user, with a name and a target
//! on each line: `DIORITE_RAW_BINDINGS`, or `diorite/raw` in `XDG_CONFIG_HOME` or `~/.config`.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::{leads_to_name, missing_part};

/// The directory of bound names.
const DIRECTORY: &str = "/dev/raw/";

/// Names bound to targets.
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// # let directory = tempfile::tempdir()?;
/// let mut bindings = diorite::front_end::RawBindings::load(directory.path().join("raw"))?;
/// bindings.bind("raw1", "/dev/null?offset=4K")?;
/// assert_eq!(bindings.target("/dev/raw/raw1"), Some("/dev/null?offset=4K"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct RawBindings {
    file: PathBuf,
    targets: BTreeMap<String, String>,
}

impl RawBindings {
    /// The bindings of the user; none without the file or a home directory.
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

    /// The bindings in a file; none without the file.
    ///
    /// # Errors
    /// The file cannot be read, or a line of it is not a name and a target ([`InvalidData`](io::ErrorKind::InvalidData)).
    pub fn load(file: impl Into<PathBuf>) -> io::Result<Self> {
        let file = file.into();
        let text = match fs::read_to_string(&file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            read => read?,
        };
        let mut targets = BTreeMap::new();
        for (number, line) in (1..).zip(text.lines().map(str::trim)) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (name, target) = line.split_once(char::is_whitespace).ok_or_else(|| {
                let why = format!(
                    "{}: line {number} is not a name and a target; correct or remove it",
                    file.display()
                );
                io::Error::new(io::ErrorKind::InvalidData, why)
            })?;
            targets.insert(name.to_owned(), target.trim().to_owned());
        }
        Ok(Self { file, targets })
    }

    /// The target of `name`: `raw1`, or `/dev/raw/raw1`.
    pub fn target(&self, name: &str) -> Option<&str> {
        self.targets.get(name.strip_prefix(DIRECTORY).unwrap_or(name)).map(String::as_str)
    }

    /// All names with their targets.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.targets.iter().map(|(name, target)| (name.as_str(), target.as_str()))
    }

    /// Bind a name to a target, in place of its former target. A relative path is made absolute.
    ///
    /// # Errors
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) if the name has other characters than letters, digits, `-` and `_`, or the target has a line
    /// break, contains a bound name, or has a file or device that does not exist. The file cannot be written.
    pub fn bind(&mut self, name: &str, target: &str) -> io::Result<()> {
        let name = name.strip_prefix(DIRECTORY).unwrap_or(name);
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        if name.is_empty() || !name.chars().all(is_part) {
            return Err(refused(format!(
                "{name:?}: cannot be bound: the name is impossible; use letters, digits, - and _, as in raw1"
            )));
        }
        if target.trim() != target || target.is_empty() || target.contains(['\n', '\r']) {
            return Err(refused(format!(
                "{name}: cannot be bound to {target:?}: it is empty, or has line breaks or spaces around it; give a path"
            )));
        }
        let path = target.strip_prefix("raw:").filter(|path| Path::new(path).exists());
        let target = path.unwrap_or(target);
        self.check(target, name)
            .map_err(|why| refused(format!("{name}: cannot be bound to {target}: {why}")))?;
        let target = if Path::new(target).exists() || !target.contains(':') {
            std::path::absolute(target)?.to_string_lossy().into_owned()
        } else {
            target.to_owned()
        };
        self.targets.insert(name.to_owned(), target);
        self.store()
    }

    /// Fail if a target cannot be bound to this name, with the reason and what to do.
    fn check(&self, target: &str, name: &str) -> Result<(), String> {
        if leads_to_name(target) {
            let other = target.strip_prefix("raw:").unwrap_or(target);
            let other = other.strip_prefix(DIRECTORY).unwrap_or(other);
            return Err(match self.target(other) {
                _ if other == name => "it is the name itself; give the path of the device".to_owned(),
                Some(device) => format!("it is itself a bound name; give its device, {device}"),
                None => {
                    "a binding cannot refer to raw: or /dev/raw/; give the paths of the devices".to_owned()
                }
            });
        }
        match missing_part(target) {
            Some(part) if part == target => {
                Err("it does not exist; give an existing file or device".to_owned())
            }
            Some(part) => Err(format!("{part} does not exist; give existing files or devices")),
            None => Ok(()),
        }
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

    /// Replace the file atomically.
    #[expect(clippy::disallowed_methods, reason = "a file of the user, no data of a volume")]
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

fn refused(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
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
        bindings.bind("/dev/raw/raw2", "stripe:/dev/zero,/dev/null").expect("bound");
        let again = RawBindings::load(&file).expect("two");
        assert_eq!(again.target("/dev/raw/raw1"), Some("nbd://host/export"));
        assert_eq!(again.target("raw2"), Some("stripe:/dev/zero,/dev/null"));
        assert_eq!(again.iter().count(), 2);
        for (name, target) in
            [("", "/dev/null"), ("a/b", "/dev/null"), ("a b", "/dev/null"), ("raw1", ""), ("raw1", "a\nb")]
        {
            assert!(bindings.bind(name, target).is_err(), "{name} {target}");
        }
        assert!(bindings.unbind("raw1").expect("written"));
        assert!(!bindings.unbind("raw1").expect("written"));
        assert_eq!(RawBindings::load(&file).expect("one").target("raw1"), None);
    }

    /// A damaged file counted as empty, and the next binding replaced it.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "a file of the user's")]
    fn a_damaged_file_is_reported() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("raw");
        fs::write(&file, "# mine\n\nraw1 /dev/null\nraw2\n").expect("written");
        let error = RawBindings::load(&file).expect_err("damaged").to_string();
        assert!(error.contains("raw: line 4 is not a name and a target"), "{error}");
        fs::write(&file, "# mine\n\nraw1 /dev/null\n").expect("written");
        assert_eq!(RawBindings::load(&file).expect("one").target("raw1"), Some("/dev/null"));
    }

    /// Useless targets were bound: the name itself, another name, a missing file.
    #[test]
    fn a_name_is_bound_to_devices_that_are_there() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut bindings = RawBindings::load(directory.path().join("raw")).expect("none");
        bindings.bind("raw1", "/dev/null").expect("bound");
        let itself = "it is the name itself; give the path of the device";
        let bound = "it is itself a bound name; give its device, /dev/null";
        let absent = "it does not exist; give an existing file or device";
        for (target, why) in [
            ("raw:raw3", itself),
            ("/dev/raw/raw3", itself),
            ("raw:/dev/raw/raw3", itself),
            ("raw:raw1", bound),
            ("/dev/raw/raw1", bound),
            ("raw:raw9", "a binding cannot refer to raw: or /dev/raw/; give the paths of the devices"),
            ("/no/such", absent),
            ("such:thing", absent),
            ("/no/such?partition=1", "/no/such does not exist; give existing files or devices"),
            ("stripe:/dev/zero,/no/such?chunk=4K", "/no/such does not exist; give existing files or devices"),
        ] {
            let error = bindings.bind("raw3", target).expect_err(target);
            assert_eq!(error.to_string(), format!("raw3: cannot be bound to {target}: {why}"));
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        }
        assert_eq!(bindings.target("raw3"), None);
        // A path may be given as `raw:PATH`.
        bindings.bind("raw3", "raw:/dev/zero").expect("bound");
        assert_eq!(bindings.target("raw3"), Some("/dev/zero"));
    }
}
