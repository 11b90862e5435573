//! GGUF: typed keys and values, a list of tensors, and aligned data.
//!
//! On disk (all numbers little-endian): `GGUF`, the version (4 bytes), the numbers of tensors and of keys (8 bytes each), the keys with their
//! values, the tensors, zeros up to the alignment, the data. A text is its length (8 bytes) and its bytes. Each tensor is its name, its number of
//! dimensions, the dimensions with the fastest first, its type, and its offset in the data. The data of each tensor begins at the next multiple
//! of the alignment after the one before. Source: the format's page in the repository of `ggml`.

use std::collections::HashSet;

use super::Contents;
use crate::Value;
use crate::dtype::{BlockType, Dtype};
use crate::error::{Damage, InFile, Result, Unsupported};
use crate::header::HeaderReader;
use crate::tensor::{Data, TensorInfo, check_ranges};

/// The first bytes of a file.
pub(super) const MAGIC: &[u8; 4] = b"GGUF";
/// `GGML_MAX_DIMS`.
const DIMENSIONS_MAX: u32 = 4;
/// Alignment without `general.alignment`.
const ALIGNMENT: u64 = 32;
/// Longest key and longest name of a tensor in bytes.
const NAME_BYTES_MAX: u64 = 64 << 10;
/// Arrays of arrays of arrays.
const DEPTH_MAX: u32 = 4;

/// Read the header.
pub(super) fn read(header: &mut HeaderReader<'_>) -> Result<Contents> {
    header.skip(MAGIC.len() as u64)?;
    match header.u32()? {
        2 | 3 => {}
        0x0200_0000 | 0x0300_0000 => {
            return Err(Unsupported::BigEndian.at(header.name(), None));
        }
        version => return Err(Unsupported::Version(version).at(header.name(), None)),
    }
    let (tensor_count, key_count) = (header.u64()?, header.u64()?);
    let metadata = read_keys(header, key_count)?;
    let alignment = alignment(&metadata).in_file(header.name())?;
    let mut tensors = Vec::new();
    let mut names = HashSet::new();
    for _ in 0..tensor_count {
        let tensor = read_tensor(header, alignment)?;
        if !names.insert(tensor.name.clone()) {
            return Err(header.damaged(Damage::Twice(tensor.name)));
        }
        tensors.push(tensor);
    }
    let data_start = padded(header.position(), alignment).in_file(header.name())?;
    for tensor in &mut tensors {
        let Data::Stored { offset, .. } = &mut tensor.data else { continue };
        *offset =
            offset.checked_add(data_start).ok_or(Damage::Overflow).in_tensor(header.name(), &tensor.name)?;
    }
    check_data(&tensors, data_start, alignment, header.size())
        .map_err(|(number, damage)| damage.at(header.name(), Some(&tensors[number].name)))?;
    Ok(Contents { tensors, metadata })
}

fn padded(offset: u64, alignment: u64) -> Result<u64, Damage> {
    offset.checked_next_multiple_of(alignment).ok_or(Damage::Overflow)
}

/// Check that each tensor begins where the one before it ends, up to the alignment.
fn check_data(tensors: &[TensorInfo], start: u64, alignment: u64, size: u64) -> Result<(), (usize, Damage)> {
    let mut expected = start;
    for (offset, end, number) in check_ranges(tensors, size)? {
        if offset != expected {
            return Err((number, Damage::Gap { start: expected, end: offset }));
        }
        expected = padded(end, alignment).map_err(|damage| (number, damage))?;
    }
    Ok(())
}

fn alignment(metadata: &[(String, Value)]) -> Result<u64, Damage> {
    let Some((_, value)) = metadata.iter().find(|(key, _)| key == "general.alignment") else {
        return Ok(ALIGNMENT);
    };
    let Value::Integer(value) = value else { return Err(Damage::Form("general.alignment is not a number")) };
    match u64::try_from(*value) {
        Ok(alignment) if alignment.is_power_of_two() && alignment <= 1 << 30 => Ok(alignment),
        other => Err(Damage::Field {
            field: "general.alignment",
            value: other.unwrap_or(0),
            rule: "it must be a power of two and at most 2^30",
        }),
    }
}

fn read_text(header: &mut HeaderReader<'_>, bytes_max: u64) -> Result<String> {
    let len = header.u64()?;
    if len > bytes_max {
        let rule = "it is longer than its limit";
        return Err(header.damaged(Damage::Field { field: "the length of a text", value: len, rule }));
    }
    String::from_utf8(header.bytes(len)?).map_err(|_| header.damaged(Damage::Form("a text is not UTF-8")))
}

/// The keys, with all values but arrays, which are checked and skipped.
fn read_keys(header: &mut HeaderReader<'_>, count: u64) -> Result<Vec<(String, Value)>> {
    let (mut found, mut keys) = (Vec::new(), HashSet::new());
    for _ in 0..count {
        let key = read_text(header, NAME_BYTES_MAX)?;
        let kind = header.u32()?;
        let value = read_value(header, kind)?;
        if !keys.insert(key.clone()) {
            return Err(header.damaged(Damage::Twice(key)));
        }
        found.extend(value.map(|value| (key, value)));
    }
    Ok(found)
}

/// A value; none for an array.
fn read_value(header: &mut HeaderReader<'_>, kind: u32) -> Result<Option<Value>> {
    Ok(Some(match kind {
        0 => Value::Integer(header.array().map(u8::from_le_bytes)?.into()),
        1 => Value::Integer(header.array().map(i8::from_le_bytes)?.into()),
        2 => Value::Integer(header.array().map(u16::from_le_bytes)?.into()),
        3 => Value::Integer(header.array().map(i16::from_le_bytes)?.into()),
        4 => Value::Integer(header.u32()?.into()),
        5 => Value::Integer(header.array().map(i32::from_le_bytes)?.into()),
        6 => Value::Float(header.array().map(f32::from_le_bytes)?.into()),
        7 => match header.array()? {
            [value @ (0 | 1)] => Value::Bool(value == 1),
            [value] => {
                let rule = "it must be 0 or 1";
                let value = value.into();
                return Err(header.damaged(Damage::Field { field: "a truth value", value, rule }));
            }
        },
        8 => Value::Text(read_text(header, u64::MAX)?),
        9 => {
            skip_array(header, DEPTH_MAX)?;
            return Ok(None);
        }
        10 => Value::Integer(header.u64()?.into()),
        11 => Value::Integer(header.array().map(i64::from_le_bytes)?.into()),
        12 => Value::Float(header.array().map(f64::from_le_bytes)?),
        other => return Err(unknown_kind(header, other)),
    }))
}

fn unknown_kind(header: &HeaderReader<'_>, kind: u32) -> crate::LoadError {
    let rule = "it must be 0 to 12";
    header.damaged(Damage::Field { field: "the type of a value", value: kind.into(), rule })
}

fn skip_array(header: &mut HeaderReader<'_>, depth: u32) -> Result<()> {
    if depth == 0 {
        return Err(header.damaged(Damage::Form("arrays are nested too deep")));
    }
    let (kind, count) = (header.u32()?, header.u64()?);
    let item_bytes = match kind {
        0 | 1 | 7 => 1,
        2 | 3 => 2,
        4..=6 => 4,
        10..=12 => 8,
        8 => {
            for _ in 0..count {
                let len = header.u64()?;
                header.skip(len)?;
            }
            return Ok(());
        }
        9 => {
            for _ in 0..count {
                skip_array(header, depth - 1)?;
            }
            return Ok(());
        }
        other => return Err(unknown_kind(header, other)),
    };
    let bytes = count.checked_mul(item_bytes).ok_or(Damage::Overflow).in_file(header.name())?;
    header.skip(bytes)
}

/// A tensor, whose offset is relative to the data.
fn read_tensor(header: &mut HeaderReader<'_>, alignment: u64) -> Result<TensorInfo> {
    let name = read_text(header, NAME_BYTES_MAX)?;
    let dimensions = header.u32()?;
    if dimensions > DIMENSIONS_MAX {
        let field = "the number of dimensions";
        let damage = Damage::Field { field, value: dimensions.into(), rule: "at most 4 are possible" };
        return Err(damage.at(header.name(), Some(&name)));
    }
    let mut shape = (0..dimensions).map(|_| header.u64()).collect::<Result<Vec<_>>>()?;
    let kind = header.u32()?;
    let offset = header.u64()?;
    let dtype = dtype(kind).ok_or(Damage::Type(kind.to_string())).in_tensor(header.name(), &name)?;
    let check = || {
        if !offset.is_multiple_of(alignment) {
            let rule = "it is no multiple of the alignment";
            return Err(Damage::Field { field: "the offset", value: offset, rule });
        }
        let row = shape.first().copied().unwrap_or(1);
        if !row.is_multiple_of(dtype.block().0) {
            let rule = "it is no multiple of the block of its type";
            return Err(Damage::Field { field: "the first dimension", value: row, rule });
        }
        shape.reverse();
        TensorInfo::new(name.clone(), dtype, shape, Data::Stored { offset, checksum: None })
    };
    check().in_tensor(header.name(), &name)
}

/// The types by number: names, elements of a block, bytes of a block.
const BLOCK_TYPES: &[(u32, &str, u32, u32)] = &[
    (2, "Q4_0", 32, 18),
    (3, "Q4_1", 32, 20),
    (6, "Q5_0", 32, 22),
    (7, "Q5_1", 32, 24),
    (8, "Q8_0", 32, 34),
    (9, "Q8_1", 32, 40),
    (10, "Q2_K", 256, 84),
    (11, "Q3_K", 256, 110),
    (12, "Q4_K", 256, 144),
    (13, "Q5_K", 256, 176),
    (14, "Q6_K", 256, 210),
    (15, "Q8_K", 256, 292),
    (16, "IQ2_XXS", 256, 66),
    (17, "IQ2_XS", 256, 74),
    (18, "IQ3_XXS", 256, 98),
    (19, "IQ1_S", 256, 50),
    (20, "IQ4_NL", 32, 18),
    (21, "IQ3_S", 256, 110),
    (22, "IQ2_S", 256, 82),
    (23, "IQ4_XS", 256, 136),
    (29, "IQ1_M", 256, 56),
    (34, "TQ1_0", 256, 54),
    (35, "TQ2_0", 256, 66),
    (39, "MXFP4", 32, 17),
    (40, "NVFP4", 64, 36),
    (41, "Q1_0", 128, 18),
];

fn dtype(kind: u32) -> Option<Dtype> {
    Some(match kind {
        0 => Dtype::Float(32),
        1 => Dtype::Float(16),
        24 => Dtype::Int(8),
        25 => Dtype::Int(16),
        26 => Dtype::Int(32),
        27 => Dtype::Int(64),
        28 => Dtype::Float(64),
        30 => Dtype::BFloat16,
        _ => {
            let (_, name, items, bytes) = *BLOCK_TYPES.iter().find(|known| known.0 == kind)?;
            Dtype::Blocks(BlockType { name, items, bytes })
        }
    })
}
