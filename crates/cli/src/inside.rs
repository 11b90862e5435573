//! The current directory of the command shell, to which its paths belong.
//!
//! Where it sits: below `location.rs`, which resolves words, and `failure.rs`, whose advice depends on it.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// The image and the directory to which paths belong, in the command shell.
#[derive(Clone, Debug)]
pub(crate) struct Inside {
    pub(crate) image: PathBuf,
    pub(crate) directory: PathBuf,
    /// The words of the command that can be patterns.
    pub(crate) patterns: Vec<PathBuf>,
}

/// Begins a path of the host in the command shell.
pub(crate) const HOST: &[u8] = b"host:";

static INSIDE: Mutex<Option<Inside>> = Mutex::new(None);

impl Inside {
    /// The current directory of the shell, if there is one.
    pub(crate) fn current() -> Option<Self> {
        INSIDE.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Let all paths belong to this directory.
    pub(crate) fn set(self) {
        *INSIDE.lock().unwrap_or_else(PoisonError::into_inner) = Some(self);
    }

    /// Let only these words of the command be patterns.
    pub(crate) fn set_patterns(patterns: Vec<PathBuf>) {
        if let Some(inside) = &mut *INSIDE.lock().unwrap_or_else(PoisonError::into_inner) {
            inside.patterns = patterns;
        }
    }

    /// Whether a word of the command is a pattern: it has no quotes in the command shell.
    pub(crate) fn may_be_pattern(word: &Path) -> bool {
        Self::current().is_none_or(|inside| inside.patterns.iter().any(|pattern| pattern == word))
    }

    /// The start of a path as the commands print it.
    pub(crate) fn own_prefix(&self) -> Vec<u8> {
        [self.image.as_os_str().as_bytes(), b":"].concat()
    }
}
