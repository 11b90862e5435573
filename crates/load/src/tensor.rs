//! What a header says about a tensor.

use crate::Dtype;
use crate::error::Damage;

/// NumPy has no arrays of more dimensions.
const DIMENSIONS_MAX: usize = 64;
/// Longest name in bytes.
const NAME_BYTES_MAX: usize = 64 << 10;

/// The order of elements in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The last dimension varies first.
    C,
    /// The first dimension varies first.
    Fortran,
}

/// The bytes of a tensor in its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Data {
    /// They are there as they are.
    Stored { offset: u64, checksum: Option<Checksum> },
    /// They are deflated: a stream at `offset`, whose first `skip` bytes are a header.
    Deflated { offset: u64, deflated_bytes: u64, skip: u64, checksum: Checksum },
}

/// The CRC-32 of an archive's member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Checksum {
    /// That of the bytes before the data, and their number.
    pub(crate) before: (u32, u64),
    /// That of the whole member.
    pub(crate) whole: u32,
}

/// A tensor of a file: what its header says.
#[derive(Clone, Debug)]
pub struct TensorInfo {
    pub(crate) name: String,
    pub(crate) dtype: Dtype,
    pub(crate) shape: Vec<u64>,
    pub(crate) order: Order,
    pub(crate) bytes: u64,
    /// The number of its file.
    pub(crate) file: usize,
    pub(crate) data: Data,
}

impl TensorInfo {
    /// A tensor with checked name and shape. Its range is checked by the format.
    pub(crate) fn new(name: String, dtype: Dtype, shape: Vec<u64>, data: Data) -> Result<Self, Damage> {
        if name.len() > NAME_BYTES_MAX || name.contains('\0') {
            return Err(Damage::Form("a name is longer than 64 KiB, or contains a null character"));
        }
        if shape.len() > DIMENSIONS_MAX {
            let rule = "at most 64 are possible";
            return Err(Damage::Field { field: "the number of dimensions", value: shape.len() as u64, rule });
        }
        let bytes = dtype.bytes_of(&shape).ok_or(Damage::Overflow)?;
        Ok(Self { name, dtype, shape, order: Order::C, bytes, file: 0, data })
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The type of the elements.
    pub fn dtype(&self) -> &Dtype {
        &self.dtype
    }

    /// The dimensions, slowest first in order C.
    pub fn shape(&self) -> &[u64] {
        &self.shape
    }

    /// The order of elements in memory.
    pub fn order(&self) -> Order {
        self.order
    }

    /// Its size in memory.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The number of its file, for [`crate::TensorFiles::file_name`].
    pub fn file(&self) -> usize {
        self.file
    }

    /// First byte of the data in the file; of the compressed data, if it is compressed.
    pub fn offset(&self) -> u64 {
        match self.data {
            Data::Stored { offset, .. } | Data::Deflated { offset, .. } => offset,
        }
    }

    /// Whether the data is compressed in the file.
    pub fn is_compressed(&self) -> bool {
        matches!(self.data, Data::Deflated { .. })
    }
}

/// Begin and end of a tensor in its file, and its number.
pub(crate) type PlacedRange = (u64, u64, usize);

/// Check that stored tensors lie in the file and do not overlap. Returns their ranges in the order of the file, or the damage of one by its number.
pub(crate) fn check_ranges(tensors: &[TensorInfo], size: u64) -> Result<Vec<PlacedRange>, (usize, Damage)> {
    let mut ranges = Vec::with_capacity(tensors.len());
    for (number, tensor) in tensors.iter().enumerate() {
        let offset = tensor.offset();
        let end = offset.checked_add(tensor.bytes).ok_or((number, Damage::Overflow))?;
        if end > size {
            return Err((number, Damage::BeyondEnd { end, size }));
        }
        ranges.push((offset, end, number));
    }
    ranges.sort_unstable();
    for pair in ranges.windows(2) {
        let [(_, end, before), (start, _, number)] = pair else { continue };
        if start < end {
            return Err((*number, Damage::Overlap(tensors[*before].name.clone())));
        }
    }
    Ok(ranges)
}
