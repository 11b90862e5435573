//! A set of files of tensors, of which only the headers are read.
//!
//! Where it sits: the front door. It opens files, reads their headers, and chooses tensors by name.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use diorite::DirectIo;
use glob::Pattern;

use crate::Value;
use crate::error::{Damage, LoadError, Result};
use crate::format::{self, Contents};
use crate::plan::Layout;
use crate::reading::FileBytes;
use crate::source::{Opener, Source, Way};
use crate::tensor::TensorInfo;

/// Files of tensors, with their headers.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("model.safetensors");
/// # let header = r#"{"bias":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}}"#;
/// # let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
/// # bytes.extend_from_slice(header.as_bytes());
/// # bytes.extend_from_slice(&[1, 2, 3]);
/// # std::fs::write(&path, bytes)?;
/// use diorite_load::TensorFiles;
///
/// let files = TensorFiles::open(&[&path], diorite::DirectIo::Preferred)?;
/// for tensor in files.tensors() {
///     println!("{} {} {:?}", tensor.name(), tensor.dtype().name(), tensor.shape());
/// }
/// let tensors = files.load(&files.select(&["b*"])?)?;
/// assert_eq!(tensors.list[0].bytes(), [1, 2, 3]);
/// assert_eq!(tensors.report.copied_bytes, 0);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct TensorFiles {
    pub(crate) sources: Vec<Source>,
    tensors: Vec<TensorInfo>,
    metadata: Vec<(String, Value)>,
    numbers: HashMap<String, usize>,
    pub(crate) direct: DirectIo,
}

impl TensorFiles {
    /// Open files and read their headers. A path is a file of the host or `IMAGE:/path`; an index (`*.index.json`) stands for the files that it
    /// names.
    ///
    /// `direct`: with [`DirectIo::Preferred`], files that are mostly in the host's page cache, or whose filesystem has no direct I/O, are mapped,
    /// and all others are read past it. With [`DirectIo::Required`] all are read past it, with [`DirectIo::Off`] none.
    ///
    /// # Errors
    /// A file cannot be opened or read, is damaged, or has no supported format. Two files have a tensor of the same name.
    pub fn open<P: AsRef<Path>>(paths: &[P], direct: DirectIo) -> Result<Self> {
        let mut files = Self {
            sources: Vec::new(),
            tensors: Vec::new(),
            metadata: Vec::new(),
            numbers: HashMap::new(),
            direct,
        };
        let mut opener = Opener::new(direct);
        for path in paths {
            let source = opener.open(path.as_ref())?;
            if format::is_index(&source.name) {
                files.add_index(&mut opener, &source)?;
            } else {
                let contents = format::read(&FileBytes::new(&source.file, &source.name)?)?;
                files.add(source, contents)?;
            }
        }
        Ok(files)
    }

    fn add(&mut self, source: Source, contents: Contents) -> Result<()> {
        let file = self.sources.len();
        for tensor in contents.tensors {
            let number = self.tensors.len();
            if let Some(other) = self.numbers.insert(tensor.name.clone(), number) {
                let other = self.file_name(self.tensors[other].file).to_owned();
                return Err(Damage::TwiceInFiles(other).at(&source.name, Some(&tensor.name)));
            }
            self.tensors.push(TensorInfo { file, ..tensor });
        }
        self.metadata.extend(contents.metadata);
        self.sources.push(source);
        Ok(())
    }

    /// Add the files of an index. Tensors that the index does not name are left out.
    fn add_index(&mut self, opener: &mut Opener, index: &Source) -> Result<()> {
        let entries = format::read_index(&FileBytes::new(&index.file, &index.name)?)?;
        let mut shards: Vec<(&str, Vec<&str>)> = Vec::new();
        let mut numbers = HashMap::new();
        for (tensor, file) in &entries {
            let number = *numbers.entry(file.as_str()).or_insert(shards.len());
            if number == shards.len() {
                shards.push((file, Vec::new()));
            }
            shards[number].1.push(tensor);
        }
        for (file, names) in shards {
            let source = opener.open(&beside(&index.name, file))?;
            let mut contents = format::read(&FileBytes::new(&source.file, &source.name)?)?;
            let mut found: HashMap<String, TensorInfo> =
                contents.tensors.drain(..).map(|tensor| (tensor.name.clone(), tensor)).collect();
            for name in names {
                let missing = || Damage::NotInShard(source.name.clone()).at(&index.name, Some(name));
                contents.tensors.push(found.remove(name).ok_or_else(missing)?);
            }
            self.add(source, contents)?;
        }
        Ok(())
    }

    /// All tensors, in the order of the files and their headers.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// Text and numbers that the headers have beside the tensors. Arrays of GGUF are left out.
    pub fn metadata(&self) -> &[(String, Value)] {
        &self.metadata
    }

    /// The name of a file, as it was given or found in an index.
    pub fn file_name(&self, file: usize) -> &Path {
        self.sources.get(file).map_or(Path::new(""), |source| &source.name)
    }

    /// The numbers of the tensors with these names. A name that no tensor has is a pattern with `*`, `?` and `[...]`. Each tensor appears once, in
    /// the order of [`TensorFiles::tensors`].
    ///
    /// # Errors
    /// [`LoadError::UnknownName`] for a name that selects nothing.
    pub fn select<S: AsRef<str>>(&self, names: &[S]) -> Result<Vec<usize>> {
        let mut chosen = vec![false; self.tensors.len()];
        for name in names.iter().map(AsRef::as_ref) {
            let mut is_found = false;
            if let Some(number) = self.numbers.get(name) {
                (chosen[*number], is_found) = (true, true);
            } else if let Ok(pattern) = Pattern::new(name) {
                for (number, tensor) in self.tensors.iter().enumerate() {
                    if pattern.matches(&tensor.name) {
                        (chosen[number], is_found) = (true, true);
                    }
                }
            }
            if !is_found {
                let file = self.file_name(0).display().to_string();
                return Err(LoadError::UnknownName { name: name.to_owned(), file });
            }
        }
        Ok((0..chosen.len()).filter(|number| chosen[*number]).collect())
    }

    /// The numbers of all tensors.
    pub fn all(&self) -> Vec<usize> {
        (0..self.tensors.len()).collect()
    }

    /// The layout of tensors in an arena.
    pub(crate) fn layout(&self, chosen: &[&TensorInfo]) -> Result<Layout> {
        let layout = Layout::new(chosen, |file| unit(&self.sources[file]));
        layout.ok_or_else(|| Damage::Overflow.at(self.file_name(0), None))
    }
}

/// The alignment of transfers of a file.
pub(crate) fn unit(source: &Source) -> u64 {
    match source.way {
        Way::Direct => u64::from(source.file.alignment().offset).max(4096),
        Way::Buffered => 4096,
    }
}

/// The path of a file in the directory of another.
fn beside(path: &Path, name: &str) -> PathBuf {
    path.with_file_name(name)
}
