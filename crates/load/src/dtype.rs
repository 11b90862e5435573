//! Types of elements.

/// The type of the elements of a tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Dtype {
    /// One byte, 0 or 1.
    Bool,
    /// A signed integer of this many bits.
    Int(u16),
    /// An unsigned integer of this many bits.
    Uint(u16),
    /// An IEEE 754 number of this many bits: 16, 32 or 64.
    Float(u16),
    /// The upper half of a 32-bit IEEE 754 number.
    BFloat16,
    /// One byte, 4 bits of exponent.
    F8E4M3,
    /// One byte, 5 bits of exponent.
    F8E5M2,
    /// One byte, an exponent only.
    F8E8M0,
    /// A pair of floats with this many bits together: 64 or 128.
    Complex(u16),
    /// Blocks of several elements: quantized types, and types of less than a byte.
    Blocks(BlockType),
    /// Another dtype of NumPy: text, dates, structures, numbers in the other byte order.
    Numpy {
        /// The `descr` of the header, as it stands there.
        descr: String,
        /// Bytes of an element.
        bytes: u64,
    },
}

/// A type of which several elements lie in one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockType {
    /// The name of the format: `Q4_K`, `F4`.
    pub name: &'static str,
    /// Elements of a block.
    pub items: u32,
    /// Bytes of a block.
    pub bytes: u32,
}

impl Dtype {
    /// The name: that of `.safetensors` for common types, of GGUF for quantized types, and the `descr` of other types of NumPy.
    pub fn name(&self) -> String {
        match self {
            Self::Bool => "BOOL".to_owned(),
            Self::Int(bits) => format!("I{bits}"),
            Self::Uint(bits) => format!("U{bits}"),
            Self::Float(bits) => format!("F{bits}"),
            Self::BFloat16 => "BF16".to_owned(),
            Self::F8E4M3 => "F8_E4M3".to_owned(),
            Self::F8E5M2 => "F8_E5M2".to_owned(),
            Self::F8E8M0 => "F8_E8M0".to_owned(),
            Self::Complex(bits) => format!("C{bits}"),
            Self::Blocks(block) => block.name.to_owned(),
            Self::Numpy { descr, .. } => descr.clone(),
        }
    }

    /// Elements and bytes of the smallest unit.
    pub fn block(&self) -> (u64, u64) {
        match self {
            Self::Bool | Self::F8E4M3 | Self::F8E5M2 | Self::F8E8M0 => (1, 1),
            Self::Int(bits) | Self::Uint(bits) | Self::Float(bits) | Self::Complex(bits) => {
                (1, u64::from(bits / 8))
            }
            Self::BFloat16 => (1, 2),
            Self::Blocks(block) => (u64::from(block.items), u64::from(block.bytes)),
            Self::Numpy { bytes, .. } => (1, *bytes),
        }
    }

    /// Bytes of a tensor of this shape. `None` if the number is 2^63 or more, or a block is not whole.
    pub fn bytes_of(&self, shape: &[u64]) -> Option<u64> {
        let (items, bytes) = self.block();
        // An empty dimension makes the tensor empty, however large the others are.
        let total = if shape.contains(&0) {
            0
        } else {
            shape.iter().try_fold(1_u64, |total, len| total.checked_mul(*len))?
        };
        let blocks = total.is_multiple_of(items).then_some(total / items)?;
        blocks.checked_mul(bytes).filter(|total| *total < 1 << 63)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_checked() {
        let block = Dtype::Blocks(BlockType { name: "Q4_0", items: 32, bytes: 18 });
        for (dtype, shape, bytes) in [
            (Dtype::Float(32), &[2, 3][..], Some(24)),
            (Dtype::Float(64), &[], Some(8)),
            (Dtype::Bool, &[u64::MAX, 0, u64::MAX], Some(0)),
            (Dtype::Float(16), &[1 << 62], None),
            (Dtype::Float(16), &[1 << 32, 1 << 32], None),
            (block.clone(), &[2, 32], Some(36)),
            (block, &[33], None),
        ] {
            assert_eq!(dtype.bytes_of(shape), bytes, "{dtype:?} {shape:?}");
        }
    }
}
