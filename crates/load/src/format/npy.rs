//! `.npy`: one array of NumPy.
//!
//! On disk: `\x93NUMPY`, the version (2 bytes), the length of the header (2 bytes, from version 2 on 4; little-endian), the header, the data.
//! The header is a dictionary of Python with `descr`, `fortran_order` and `shape`. Source: `numpy.lib.format`.

use super::literal::{Entry, Literal, dictionary};
use crate::dtype::Dtype;
use crate::error::{Damage, InFile, LoadError, Result, Unsupported};
use crate::header::HeaderReader;
use crate::tensor::{Data, Order, TensorInfo};

/// The first bytes of a file.
pub(super) const MAGIC: &[u8; 6] = b"\x93NUMPY";
/// Longest header in bytes. NumPy itself refuses more than 10,000 unless a caller trusts the file.
const HEADER_BYTES_MAX: u64 = 1 << 20;
/// Nesting of structures.
const DEPTH_MAX: u32 = 8;

/// The header of an array.
pub(super) struct Header {
    pub(super) dtype: Dtype,
    pub(super) order: Order,
    pub(super) shape: Vec<u64>,
}

/// Why a header is not read.
#[derive(Debug)]
pub(super) enum Wrong {
    Damage(Damage),
    Unsupported(Unsupported),
}

impl From<Damage> for Wrong {
    fn from(damage: Damage) -> Self {
        Self::Damage(damage)
    }
}

impl Wrong {
    pub(super) fn at(self, header: &HeaderReader<'_>, tensor: &str) -> LoadError {
        match self {
            Self::Damage(damage) => damage.at(header.name(), Some(tensor)),
            Self::Unsupported(what) => what.at(header.name(), Some(tensor)),
        }
    }
}

/// Read a file with one array, whose name is that of the file.
pub(super) fn read(header: &mut HeaderReader<'_>, name: &str) -> Result<TensorInfo> {
    let begin: [u8; 8] = header.array()?;
    let (version, width) = check_begin(begin).map_err(|wrong| wrong.at(header, name))?;
    let len = if width == 2 { u16::from_le_bytes(header.array()?).into() } else { header.u32()?.into() };
    check_length(len).map_err(|wrong| wrong.at(header, name))?;
    let text = header.bytes(len)?;
    let parsed = parse(&text, version).map_err(|wrong| wrong.at(header, name))?;
    let offset = header.position();
    let tensor = parsed.tensor(name.to_owned(), Data::Stored { offset, checksum: None });
    let tensor = tensor.in_tensor(header.name(), name)?;
    // NumPy reads other data after an array, so there may be some.
    if tensor.bytes > header.size() - offset {
        let end = offset.saturating_add(tensor.bytes);
        return Err(Damage::BeyondEnd { end, size: header.size() }.at(header.name(), Some(name)));
    }
    Ok(tensor)
}

/// Check the begin of a file. Returns the version and the width of the header's length.
pub(super) fn check_begin(begin: [u8; 8]) -> Result<(u8, usize), Wrong> {
    if !begin.starts_with(MAGIC) {
        return Err(Damage::Form("the array does not begin as .npy").into());
    }
    match (begin[6], begin[7]) {
        (1, 0) => Ok((1, 2)),
        (version @ (2 | 3), 0) => Ok((version, 4)),
        (major, minor) => {
            Err(Wrong::Unsupported(Unsupported::Version(u32::from(major) * 100 + u32::from(minor))))
        }
    }
}

/// Check the length of a header.
pub(super) fn check_length(len: u64) -> Result<(), Wrong> {
    if len > HEADER_BYTES_MAX {
        let rule = "at most 1 MiB is read";
        return Err(Damage::Field { field: "the length of the header", value: len, rule }.into());
    }
    Ok(())
}

/// Parse the text of a header.
pub(super) fn parse(text: &[u8], version: u8) -> Result<Header, Wrong> {
    let text = if version == 3 {
        String::from_utf8(text.to_vec()).map_err(|_| Damage::Form("the header is not UTF-8"))?
    } else {
        text.iter().map(|byte| char::from(*byte)).collect()
    };
    let entries = dictionary(&text)?;
    let entry = |key: &str| entries.iter().find(|entry| entry.key == key);
    let (Some(descr), Some(order), Some(shape), 3) =
        (entry("descr"), entry("fortran_order"), entry("shape"), entries.len())
    else {
        return Err(Damage::Form("the header must have descr, fortran_order and shape, and no more").into());
    };
    let order = match order.value {
        Literal::Bool(true) => Order::Fortran,
        Literal::Bool(false) => Order::C,
        _ => return Err(Damage::Form("fortran_order is neither True nor False").into()),
    };
    Ok(Header { dtype: dtype(descr, &text)?, order, shape: lengths(&shape.value)? })
}

impl Header {
    /// The tensor with this header.
    pub(super) fn tensor(self, name: String, data: Data) -> Result<TensorInfo, Damage> {
        let order = self.order;
        Ok(TensorInfo { order, ..TensorInfo::new(name, self.dtype, self.shape, data)? })
    }
}

fn lengths(shape: &Literal) -> Result<Vec<u64>, Damage> {
    let wrong = Damage::Form("the shape is not a tuple of lengths");
    let Literal::Tuple(items) = shape else { return Err(wrong) };
    let length = |item: &Literal| match item {
        Literal::Number(len) => Ok(*len),
        _ => Err(wrong.clone()),
    };
    items.iter().map(length).collect()
}

fn dtype(descr: &Entry, text: &str) -> Result<Dtype, Wrong> {
    if let Literal::Text(code) = &descr.value
        && let Some(dtype) = plain(code)
    {
        return Ok(dtype);
    }
    let bytes = item_bytes(&descr.value, 0)?;
    let descr = match &descr.value {
        Literal::Text(code) => code.clone(),
        _ => text[descr.text.clone()].to_owned(),
    };
    Ok(Dtype::Numpy { descr, bytes })
}

/// The numbers that all formats have.
fn plain(code: &str) -> Option<Dtype> {
    let (kind, bytes) =
        split(code).filter(|(order, ..)| *order != '>' || code.ends_with('1')).map(|c| (c.1, c.2))?;
    Some(match (kind, bytes) {
        ('b', "1") => Dtype::Bool,
        ('i', "1" | "2" | "4" | "8") => Dtype::Int(bytes.parse::<u16>().ok()? * 8),
        ('u', "1" | "2" | "4" | "8") => Dtype::Uint(bytes.parse::<u16>().ok()? * 8),
        ('f', "2" | "4" | "8") => Dtype::Float(bytes.parse::<u16>().ok()? * 8),
        ('c', "8" | "16") => Dtype::Complex(bytes.parse::<u16>().ok()? * 8),
        _ => return None,
    })
}

/// Byte order, kind, and the rest of a code.
fn split(code: &str) -> Option<(char, char, &str)> {
    let mut chars = code.chars();
    let order = chars.next().filter(|order| matches!(order, '<' | '>' | '|' | '='))?;
    let kind = chars.next()?;
    Some((order, kind, chars.as_str()))
}

/// Bytes of an element of a dtype: a code, or a list of fields.
fn item_bytes(descr: &Literal, depth: u32) -> Result<u64, Wrong> {
    if depth > DEPTH_MAX {
        return Err(Damage::Form("the dtype is nested too deep").into());
    }
    match descr {
        Literal::Text(code) => code_bytes(code),
        Literal::List(fields) => {
            let mut total: u64 = 0;
            for field in fields {
                let bytes = field_bytes(field, depth)?;
                total = total.checked_add(bytes).ok_or(Damage::Overflow)?;
            }
            Ok(total)
        }
        _ => Err(Damage::Form("the dtype is neither text nor a list of fields").into()),
    }
}

/// A field: name (or title and name), dtype, and perhaps a shape.
fn field_bytes(field: &Literal, depth: u32) -> Result<u64, Wrong> {
    let wrong = || Wrong::from(Damage::Form("a field of the dtype is not a tuple of name, dtype and shape"));
    let Literal::Tuple(parts) = field else { return Err(wrong()) };
    let (name, descr, shape) = match &parts[..] {
        [name, descr] => (name, descr, Vec::new()),
        [name, descr, shape @ Literal::Tuple(_)] => (name, descr, lengths(shape)?),
        [name, descr, Literal::Number(len)] => (name, descr, vec![*len]),
        _ => return Err(wrong()),
    };
    let is_named = match name {
        Literal::Text(_) => true,
        Literal::Tuple(both) => both.len() == 2 && both.iter().all(|part| matches!(part, Literal::Text(_))),
        _ => false,
    };
    if !is_named {
        return Err(wrong());
    }
    let bytes = item_bytes(descr, depth + 1)?;
    let total = shape.iter().try_fold(bytes, |total, len| total.checked_mul(*len));
    Ok(total.ok_or(Damage::Overflow)?)
}

fn code_bytes(code: &str) -> Result<u64, Wrong> {
    let unknown = || Wrong::from(Damage::Type(code.to_owned()));
    let (_, kind, rest) = split(code).ok_or_else(unknown)?;
    let digits = match rest.split_once('[') {
        Some((digits, unit)) if matches!(kind, 'm' | 'M') && unit.ends_with(']') => digits,
        Some(_) => return Err(unknown()),
        None => rest,
    };
    let unit = match kind {
        'O' => return Err(Wrong::Unsupported(Unsupported::Objects)),
        'U' => 4,
        'b' | 'i' | 'u' | 'f' | 'c' | 'm' | 'M' | 'S' | 'a' | 'V' => 1,
        _ => return Err(unknown()),
    };
    if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return Err(unknown());
    }
    let number: u32 = digits.parse().map_err(|_| Damage::Overflow)?;
    let is_known = match kind {
        'b' => number == 1,
        'i' | 'u' => matches!(number, 1 | 2 | 4 | 8),
        'f' => matches!(number, 2 | 4 | 8 | 12 | 16),
        'c' => matches!(number, 8 | 16 | 24 | 32),
        'm' | 'M' => number == 8,
        _ => true,
    };
    if is_known { Ok(u64::from(number) * unit) } else { Err(unknown()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dtype_of(descr: &str) -> Result<Dtype, Wrong> {
        let text = format!("{{'descr': {descr}, 'fortran_order': True, 'shape': (2,), }}\n");
        parse(text.as_bytes(), 1).map(|header| header.dtype)
    }

    #[test]
    fn dtypes_have_their_sizes() {
        for (descr, expected) in [
            ("'<f4'", Dtype::Float(32)),
            ("'|b1'", Dtype::Bool),
            ("'>u1'", Dtype::Uint(8)),
            ("'=c16'", Dtype::Complex(128)),
        ] {
            assert_eq!(dtype_of(descr).expect("known"), expected);
        }
        for (descr, expected) in [
            ("'>f4'", 4),
            ("'<U5'", 20),
            ("'|S0'", 0),
            ("'<M8[ns]'", 8),
            ("'|V7'", 7),
            ("[('a', '<f4'), ('', '|V4'), ('b', [('c', '>i2', (2, 3))], (2,))]", 32),
            ("[(('title', 'a'), '|S3')]", 3),
        ] {
            let Ok(Dtype::Numpy { bytes, .. }) = dtype_of(descr) else { panic!("{descr}") };
            assert_eq!(bytes, expected, "{descr}");
        }
    }

    #[test]
    fn other_dtypes_are_refused() {
        assert!(matches!(dtype_of("'|O'"), Err(Wrong::Unsupported(Unsupported::Objects))));
        assert!(matches!(dtype_of("[('a', '|O8')]"), Err(Wrong::Unsupported(Unsupported::Objects))));
        let deep = format!("{}'<f4'{}", "[('a', ".repeat(9), ")]".repeat(9));
        let large = "[('a', '|S4000000000', (4000000000, 4000000000))]";
        for descr in
            ["'f4'", "'<f3'", "'<f'", "'<f4[ns]'", "''", "'<é4'", "['<f4']", "[('a',)]", "3", &deep, large]
        {
            assert!(matches!(dtype_of(descr), Err(Wrong::Damage(_))), "{descr:.60}");
        }
    }
}
