//! Options of a copy.

/// Treatment of a file that exists at the destination.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clobber {
    /// It is replaced.
    #[default]
    Replace,
    /// It is kept.
    Keep,
    /// It is replaced if the source was changed later.
    KeepNewer,
    /// It is replaced unless it has the size and the modification time of the source; then only its attributes are set.
    KeepSame,
}

/// Whether directories are copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Depth {
    /// Files only; a symbolic link is followed.
    #[default]
    File,
    /// Directories with everything in them; symbolic links stay links.
    Tree,
}

/// The method by which a file gets the content of its source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Data {
    /// A copy.
    #[default]
    Copy,
    /// It is a hard link to the source, which is in the same tree.
    Link,
}

/// Whether a copy is durable when it returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sync {
    /// It is.
    #[default]
    AtEnd,
    /// It is written some time later.
    Never,
}

/// Consequence of one file's error for the rest of its tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFailure {
    /// The rest is not copied.
    #[default]
    Stop,
    /// The rest is copied. [`Watch::failed`](crate::Watch::failed) gets the error.
    GoOn,
}

/// Options of a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopyOptions {
    /// Treatment of existing files.
    pub clobber: Clobber,
    /// Whether directories are copied.
    pub depth: Depth,
    /// The method by which files get their content.
    pub data: Data,
    /// Whether the copy is durable when it returns.
    pub sync: Sync,
    /// Consequence of one file's error for the rest of its tree.
    pub on_failure: OnFailure,
}
