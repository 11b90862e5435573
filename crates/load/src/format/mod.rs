//! The formats: each turns the header of a file into tensors with checked ranges.
//!
//! Interface: a format accepts no tensor that reaches beyond its file or overlaps another, and no name twice. Data is not read.

mod gguf;
mod literal;
mod npy;
mod npz;
mod safetensors;

use std::path::Path;

use crate::Value;
use crate::error::{Damage, Result, Unsupported};
use crate::header::HeaderReader;
use crate::reading::FileBytes;
use crate::tensor::TensorInfo;

/// What a header says.
#[derive(Default)]
pub(crate) struct Contents {
    pub(crate) tensors: Vec<TensorInfo>,
    pub(crate) metadata: Vec<(String, Value)>,
}

/// Whether the file is an index of other files.
pub(crate) fn is_index(name: &Path) -> bool {
    name.as_os_str().as_encoded_bytes().ends_with(b".index.json")
}

/// The tensors of an index, with the names of their files.
pub(crate) fn read_index(bytes: &FileBytes<'_>) -> Result<Vec<(String, String)>> {
    safetensors::read_index(&mut HeaderReader::new(bytes))
}

/// The contents of a file, in the format that its first bytes and its name show.
pub(crate) fn read(bytes: &FileBytes<'_>) -> Result<Contents> {
    let begin = bytes.with(0, 9, <[u8]>::to_vec)?;
    let header = &mut HeaderReader::new(bytes);
    let is_named = |extension: &str| bytes.name().extension().is_some_and(|found| found == extension);
    if begin.starts_with(gguf::MAGIC) {
        gguf::read(header)
    } else if begin.starts_with(npy::MAGIC) {
        let stem = bytes.name().file_stem().unwrap_or_default().to_string_lossy();
        Ok(Contents { tensors: vec![npy::read(header, &stem)?], ..Contents::default() })
    } else if npz::MAGICS.iter().any(|magic| begin.starts_with(&magic[..])) {
        let tensors = distinct(npz::read(bytes)?, bytes)?;
        Ok(Contents { tensors, ..Contents::default() })
    } else if begin.get(8) == Some(&b'{') || is_named("safetensors") {
        safetensors::read(header)
    } else {
        Err(Unsupported::Format.at(bytes.name(), None))
    }
}

/// The tensors, if their names are distinct.
fn distinct(tensors: Vec<TensorInfo>, bytes: &FileBytes<'_>) -> Result<Vec<TensorInfo>> {
    let mut names = std::collections::HashSet::new();
    match tensors.iter().find(|tensor| !names.insert(tensor.name.as_str())) {
        Some(twice) => Err(Damage::Twice(twice.name.clone()).at(bytes.name(), None)),
        None => Ok(tensors),
    }
}
