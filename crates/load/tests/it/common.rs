//! Writers of small files, independent of the code under test, and known content.

use std::fmt::Write as _;
use std::path::Path;

use diorite::DirectIo;
use diorite_load::{Result, TensorFiles, Tensors};

/// Bytes that differ at each offset and for each seed.
pub(crate) fn content(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// Tensors of one file: name, dtype in the words of the format, shape, data.
pub(crate) type Given<'a> = (&'a str, &'a str, &'a [u64], Vec<u8>);

pub(crate) fn safetensors(tensors: &[Given<'_>]) -> Vec<u8> {
    let (mut header, mut data) = (r#"{"__metadata__":{"format":"pt"}"#.to_owned(), Vec::new());
    for (name, dtype, shape, bytes) in tensors {
        let (start, end) = (data.len(), data.len() + bytes.len());
        write!(header, r#",{name:?}:{{"dtype":"{dtype}","shape":{shape:?},"data_offsets":[{start},{end}]}}"#)
            .expect("memory");
        data.extend_from_slice(bytes);
    }
    with_header(&(header + "}"), &data)
}

/// A `.safetensors` file with this header.
pub(crate) fn with_header(header: &str, data: &[u8]) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), data].concat()
}

pub(crate) fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()
}

/// GGUF of version 3 with an alignment of 32. The dtype is the number of the format.
pub(crate) fn gguf(keys: &[(&str, u32, Vec<u8>)], tensors: &[Given<'_>]) -> Vec<u8> {
    let mut file = b"GGUF\x03\0\0\0".to_vec();
    file.extend((tensors.len() as u64).to_le_bytes());
    file.extend((keys.len() as u64).to_le_bytes());
    for (key, kind, value) in keys {
        file.extend([text(key), kind.to_le_bytes().to_vec(), value.clone()].concat());
    }
    let mut data = Vec::new();
    for (name, dtype, shape, bytes) in tensors {
        file.extend(text(name));
        file.extend((shape.len() as u32).to_le_bytes());
        file.extend(shape.iter().rev().flat_map(|len| len.to_le_bytes()));
        file.extend(dtype.parse::<u32>().expect("a number").to_le_bytes());
        file.extend((data.len() as u64).to_le_bytes());
        data.extend_from_slice(bytes);
        data.resize(data.len().next_multiple_of(32), 0);
    }
    file.resize(file.len().next_multiple_of(32), 0);
    file.extend(data);
    file
}

/// `.npy` of version 1. `shape` is a tuple of Python.
pub(crate) fn npy(descr: &str, fortran: bool, shape: &str, data: &[u8]) -> Vec<u8> {
    let order = if fortran { "True" } else { "False" };
    let mut header = format!("{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}");
    let len = (10 + header.len() + 1).next_multiple_of(64) - 10;
    while header.len() + 1 < len {
        header.push(' ');
    }
    header.push('\n');
    [b"\x93NUMPY\x01\0", &(header.len() as u16).to_le_bytes()[..], header.as_bytes(), data].concat()
}

/// A zip archive of members, deflated if so marked.
pub(crate) fn zip(members: &[(&str, bool, Vec<u8>)]) -> Vec<u8> {
    let (mut file, mut directory) = (Vec::new(), Vec::new());
    for (name, is_deflated, content) in members {
        let packed = if *is_deflated { deflated(content) } else { content.clone() };
        let mut fields = Vec::new();
        fields.extend(20_u16.to_le_bytes());
        fields.extend(0_u16.to_le_bytes());
        fields.extend(if *is_deflated { 8_u16 } else { 0 }.to_le_bytes());
        fields.extend([0; 4]);
        fields.extend(crc32fast::hash(content).to_le_bytes());
        fields.extend((packed.len() as u32).to_le_bytes());
        fields.extend((content.len() as u32).to_le_bytes());
        fields.extend((name.len() as u16).to_le_bytes());
        fields.extend(0_u16.to_le_bytes());
        let start = file.len() as u32;
        file.extend([b"PK\x03\x04", &fields[..], name.as_bytes(), &packed[..]].concat());
        directory.extend(
            [b"PK\x01\x02\x14\0", &fields[..], &[0; 10], &start.to_le_bytes(), name.as_bytes()].concat(),
        );
    }
    let (count, start) = ((members.len() as u16).to_le_bytes(), (file.len() as u32).to_le_bytes());
    let bytes = (directory.len() as u32).to_le_bytes();
    file.extend(directory);
    file.extend([b"PK\x05\x06\0\0\0\0", &count[..], &count, &bytes, &start, &[0; 2]].concat());
    file
}

fn deflated(content: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(content).expect("memory");
    encoder.finish().expect("memory")
}

/// Write a file.
#[expect(clippy::disallowed_methods, reason = "a file that is loaded")]
pub(crate) fn write(path: impl AsRef<Path>, bytes: impl AsRef<[u8]>) {
    std::fs::write(path, bytes).expect("written");
}

/// Load all tensors of files.
pub(crate) fn load<P: AsRef<Path>>(paths: &[P], direct: DirectIo) -> Result<Tensors> {
    let files = TensorFiles::open(paths, direct)?;
    files.load(&files.all())
}
