//! Splits a job file into its sections: comments, `include`, `[global]`, environment variables.

use std::collections::BTreeMap;
use std::path::Path;

use diorite_bench::reason;

/// One `option=value` line.
#[derive(Clone, Debug)]
pub(super) struct Setting {
    pub(super) value: String,
    /// Its position.
    pub(super) at: Origin,
}

/// A line of a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Origin {
    pub(super) file: String,
    pub(super) line: usize,
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.line {
            0 => f.write_str(&self.file),
            line => write!(f, "{}:{line}", self.file),
        }
    }
}

pub(super) type Settings = BTreeMap<String, Setting>;
pub(super) type Complaints = Vec<(Origin, String)>;

/// A section with unread options.
pub(super) struct Section {
    pub(super) name: String,
    pub(super) at: Origin,
    pub(super) settings: Settings,
    /// Options of the section itself, without `[global]`.
    pub(super) own: Vec<String>,
}

/// Deepest nesting of `include`.
const NESTED: u32 = 16;

/// Reads a job file and its included files.
pub(super) struct Reader<'a> {
    pub(super) global: Settings,
    pub(super) sections: Vec<Section>,
    pub(super) complaints: &'a mut Complaints,
    in_global: bool,
    depth: u32,
}

impl<'a> Reader<'a> {
    pub(super) fn new(complaints: &'a mut Complaints) -> Self {
        Self { global: Settings::new(), sections: Vec::new(), complaints, in_global: false, depth: 0 }
    }

    /// Read the lines of one file.
    pub(super) fn read(&mut self, file: &str, text: &str) {
        for (index, raw) in text.trim_start_matches('\u{feff}').lines().enumerate() {
            let at = Origin { file: file.to_owned(), line: index + 1 };
            // As in fio, a comment may follow an option.
            let text = raw.split([';', '#']).next().unwrap_or_default().trim();
            if text.is_empty() {
                continue;
            }
            if let Some(heading) = text.strip_prefix('[') {
                self.begin_section(heading, text, at);
            } else if let Some(name) =
                text.strip_prefix("include").filter(|rest| rest.starts_with([' ', '\t']))
            {
                self.include(file, name.trim(), at);
            } else {
                self.set(text, at);
            }
        }
    }

    fn begin_section(&mut self, heading: &str, text: &str, at: Origin) {
        let Some(name) = heading.strip_suffix(']').map(str::trim).filter(|name| !name.is_empty()) else {
            self.complaints.push((at, format!("{text}: a section heading is [name]")));
            return;
        };
        self.in_global = name == "global";
        if !self.in_global {
            let mut settings = self.global.clone();
            // As in fio, a name in [global] has no effect.
            settings.remove("name");
            self.sections.push(Section { name: name.to_owned(), at, settings, own: Vec::new() });
        }
    }

    fn include(&mut self, file: &str, name: &str, at: Origin) {
        // As in fio: in the directory of the including file, or in the current directory.
        let beside = Path::new(file).parent().unwrap_or(Path::new("")).join(name);
        let path = if beside.is_file() { beside } else { name.into() };
        let text = std::fs::read_to_string(&path);
        match text {
            Err(error) => {
                self.complaints.push((at, format!("include {name}: cannot read: {}", reason(&error))));
            }
            Ok(_) if self.depth == NESTED => {
                self.complaints
                    .push((at, format!("include {name}: include is nested more than {NESTED} times")));
            }
            Ok(text) => {
                self.depth += 1;
                self.read(&path.display().to_string(), &text);
                self.depth -= 1;
            }
        }
    }

    fn set(&mut self, text: &str, at: Origin) {
        let (option, value) = text.split_once('=').unwrap_or((text, "1"));
        let value = match substitute(value.trim(), |name| std::env::var(name).ok()) {
            Ok(value) => value,
            Err(what) => return self.complaints.push((at, format!("{text}: {what}"))),
        };
        let option = canonical(option.trim()).to_owned();
        let setting = Setting { value, at };
        match self.sections.last_mut() {
            Some(section) if !self.in_global => {
                section.own.push(option.clone());
                section.settings.insert(option, setting);
            }
            None if !self.in_global => {
                let what = format!("{option}: is in no section; begin with [global] or [name]");
                self.complaints.push((setting.at, what));
            }
            _ => {
                self.global.insert(option, setting);
            }
        }
    }
}

/// Replaces `${NAME}` by an environment variable.
fn substitute(value: &str, variable: impl Fn(&str) -> Option<String>) -> Result<String, String> {
    let mut text = String::new();
    let mut rest = value;
    while let Some((before, after)) = rest.split_once("${") {
        let (name, end) = after.split_once('}').ok_or("a variable must end with }")?;
        let value = variable(name).ok_or_else(|| format!("the environment variable {name} is not set"))?;
        text.push_str(before);
        text.push_str(&value);
        rest = end;
    }
    text.push_str(rest);
    Ok(text)
}

/// fio's aliases.
pub(super) fn canonical(option: &str) -> &str {
    match option {
        "readwrite" => "rw",
        "blocksize" => "bs",
        "blocksize_range" => "bsrange",
        "wait_for_previous" => "stonewall",
        "threads" => "thread",
        "timeout" => "runtime",
        "nr_files" => "nrfiles",
        "io_limit" => "io_size",
        "continueonerror" => "continue_on_error",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_come_from_the_environment() {
        let variable = |name: &str| (name == "RW").then(|| "randread".to_owned());
        assert_eq!(substitute("${RW}:8", variable).unwrap(), "randread:8");
        assert_eq!(substitute("plain", variable).unwrap(), "plain");
        assert!(substitute("a${DEPTH}", variable).unwrap_err().contains("DEPTH is not set"));
        assert!(substitute("${RW", variable).is_err());
    }
}
