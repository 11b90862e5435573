//! `.safetensors`: a JSON header and contiguous data.
//!
//! On disk: the length of the header in 8 bytes (little-endian), the header, the data. The header is an object: names with `dtype`, `shape`
//! and `data_offsets` (relative to the data), and `__metadata__` with text. The data of all tensors has no gap and no overlap, and ends with
//! the file. Source: the format's page in the repository of `safetensors`.

use std::collections::HashSet;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

use super::Contents;
use crate::Value;
use crate::dtype::{BlockType, Dtype};
use crate::error::{Damage, InFile, LoadError, Result};
use crate::header::HeaderReader;
use crate::tensor::{Data, TensorInfo, check_ranges};

/// Read the header.
pub(super) fn read(header: &mut HeaderReader<'_>) -> Result<Contents> {
    let len = header.u64()?;
    let text = header.bytes(len)?;
    let parsed: Header =
        serde_json::from_slice(&text).map_err(|error| header.damaged(Damage::Json(error.to_string())))?;
    let data_start = header.position();
    let mut tensors = Vec::with_capacity(parsed.tensors.len());
    for (name, entry) in parsed.tensors {
        let tensor = tensor(&name, entry, data_start).in_tensor(header.name(), &name)?;
        tensors.push(tensor);
    }
    check_contiguous(&tensors, data_start, header.size()).map_err(|(number, damage)| {
        let name = number.map(|number| tensors[number].name.as_str());
        damage.at(header.name(), name)
    })?;
    let metadata = parsed.metadata.into_iter().map(|(key, value)| (key, Value::Text(value))).collect();
    Ok(Contents { tensors, metadata })
}

fn tensor(name: &str, entry: Entry, data_start: u64) -> Result<TensorInfo, Damage> {
    let dtype = dtype(&entry.dtype).ok_or(Damage::Type(entry.dtype))?;
    let [start, end] = entry.data_offsets;
    let given = end.checked_sub(start).ok_or(Damage::Field {
        field: "the end of the data",
        value: end,
        rule: "it lies before the start",
    })?;
    let offset = data_start.checked_add(start).ok_or(Damage::Overflow)?;
    let data = Data::Stored { offset, checksum: None };
    let tensor = TensorInfo::new(name.to_owned(), dtype, entry.shape.0, data)?;
    if tensor.bytes != given {
        return Err(Damage::Length { needed: tensor.bytes, given });
    }
    Ok(tensor)
}

/// Check that the data has no gap from its start to the end of the file.
fn check_contiguous(tensors: &[TensorInfo], start: u64, size: u64) -> Result<(), (Option<usize>, Damage)> {
    let ranges = check_ranges(tensors, size).map_err(|(number, damage)| (Some(number), damage))?;
    let mut expected = start;
    for (offset, end, number) in ranges {
        if offset != expected {
            return Err((Some(number), Damage::Gap { start: expected, end: offset }));
        }
        expected = end;
    }
    if expected == size { Ok(()) } else { Err((None, Damage::Gap { start: expected, end: size })) }
}

fn dtype(name: &str) -> Option<Dtype> {
    let blocks = |name, items, bytes| Dtype::Blocks(BlockType { name, items, bytes });
    Some(match name {
        "BOOL" => Dtype::Bool,
        "I8" => Dtype::Int(8),
        "I16" => Dtype::Int(16),
        "I32" => Dtype::Int(32),
        "I64" => Dtype::Int(64),
        "U8" => Dtype::Uint(8),
        "U16" => Dtype::Uint(16),
        "U32" => Dtype::Uint(32),
        "U64" => Dtype::Uint(64),
        "F16" => Dtype::Float(16),
        "F32" => Dtype::Float(32),
        "F64" => Dtype::Float(64),
        "BF16" => Dtype::BFloat16,
        "F8_E4M3" => Dtype::F8E4M3,
        "F8_E5M2" => Dtype::F8E5M2,
        "F8_E8M0" => Dtype::F8E8M0,
        "C64" => Dtype::Complex(64),
        "F4" => blocks("F4", 2, 1),
        "F6_E2M3" => blocks("F6_E2M3", 4, 3),
        "F6_E3M2" => blocks("F6_E3M2", 4, 3),
        _ => return None,
    })
}

/// A header with distinct names.
#[derive(Default)]
struct Header {
    tensors: Vec<(String, Entry)>,
    metadata: Vec<(String, String)>,
}

#[derive(Deserialize)]
struct Entry {
    dtype: String,
    shape: Shape,
    data_offsets: [u64; 2],
}

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(HeaderVisitor)
    }
}

struct HeaderVisitor;

impl<'de> Visitor<'de> for HeaderVisitor {
    type Value = Header;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with tensors")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Header, M::Error> {
        let (mut header, mut names) = (Header::default(), HashSet::new());
        while let Some(name) = map.next_key::<String>()? {
            if !names.insert(name.clone()) {
                return Err(M::Error::custom(Damage::Twice(name)));
            }
            if name == "__metadata__" {
                header.metadata = map.next_value::<Metadata>()?.0;
            } else {
                header.tensors.push((name, map.next_value()?));
            }
        }
        Ok(header)
    }
}

/// Text by distinct keys.
struct Metadata(Vec<(String, String)>);

impl<'de> Deserialize<'de> for Metadata {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Texts;
        impl<'de> Visitor<'de> for Texts {
            type Value = Metadata;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object with text")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Metadata, M::Error> {
                let (mut texts, mut keys) = (Vec::new(), HashSet::new());
                while let Some((key, text)) = map.next_entry::<String, String>()? {
                    if !keys.insert(key.clone()) {
                        return Err(M::Error::custom(Damage::Twice(key)));
                    }
                    texts.push((key, text));
                }
                Ok(Metadata(texts))
            }
        }
        deserializer.deserialize_map(Texts)
    }
}

/// A shape, which ends early if it has too many dimensions: a header of 100 MB must not become a list of 800 MB.
struct Shape(Vec<u64>);

impl<'de> Deserialize<'de> for Shape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Lengths;
        impl<'de> Visitor<'de> for Lengths {
            type Value = Shape;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of at most 64 lengths")
            }

            fn visit_seq<S: SeqAccess<'de>>(self, mut list: S) -> Result<Shape, S::Error> {
                let mut shape = Vec::new();
                while let Some(len) = list.next_element()? {
                    if shape.len() == 64 {
                        return Err(S::Error::invalid_length(65, &self));
                    }
                    shape.push(len);
                }
                Ok(Shape(shape))
            }
        }
        deserializer.deserialize_seq(Lengths)
    }
}

/// The files of an index (`model.safetensors.index.json`): each tensor with the name of its file, in the order of the index.
pub(super) fn read_index(header: &mut HeaderReader<'_>) -> Result<Vec<(String, String)>> {
    #[derive(Deserialize)]
    struct Index {
        weight_map: Metadata,
    }
    let text = header.bytes(header.size())?;
    let index: Index =
        serde_json::from_slice(&text).map_err(|error| header.damaged(Damage::Json(error.to_string())))?;
    for (tensor, file) in &index.weight_map.0 {
        let is_plain = !file.is_empty() && file != "." && file != ".." && !file.contains(['/', '\0']);
        if !is_plain {
            let damage = Damage::ShardName(file.clone());
            return Err::<_, LoadError>(damage.at(header.name(), Some(tensor)));
        }
    }
    Ok(index.weight_map.0)
}
