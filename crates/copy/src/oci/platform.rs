//! Platforms of images: operating system, architecture, and a variant of it.

use std::fmt;
use std::str::FromStr;

use serde_json::Value;

/// A platform, such as `linux/arm64` or `linux/arm/v7`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Platform {
    os: String,
    architecture: String,
    variant: Option<String>,
}

/// The name of this machine's architecture in images: that of the Go language.
const ARCHITECTURE: &str = if cfg!(target_arch = "x86_64") {
    "amd64"
} else if cfg!(target_arch = "x86") {
    "386"
} else if cfg!(target_arch = "aarch64") {
    "arm64"
} else if cfg!(all(target_arch = "powerpc64", target_endian = "little")) {
    "ppc64le"
} else if cfg!(target_arch = "loongarch64") {
    "loong64"
} else {
    std::env::consts::ARCH
};

impl Platform {
    /// The platform of this machine.
    pub fn native() -> Self {
        Self { os: "linux".to_owned(), architecture: ARCHITECTURE.to_owned(), variant: None }
    }

    /// The platform in a descriptor or a configuration. `None` if there is none, or it is `unknown`, as for attestations.
    pub(super) fn of_json(value: &Value) -> Option<Self> {
        let text = |key: &str| value[key].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        let (os, architecture) = (text("os")?, text("architecture")?);
        (architecture != "unknown").then(|| Self { os, architecture, variant: text("variant") })
    }

    /// Whether an image for `other` is one for this platform. Without a variant, any is.
    pub(super) fn accepts(&self, other: &Self) -> bool {
        let is_any = self.variant.is_none() || self.variant == other.variant;
        self.os == other.os && self.architecture == other.architecture && is_any
    }
}

impl FromStr for Platform {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split('/').map(str::to_owned);
        let found = (parts.next(), parts.next(), parts.next(), parts.next());
        let (Some(os), Some(architecture), variant, None) = found else {
            return Err(format!("`{text}` is not a platform; write OS/ARCH, such as linux/arm64"));
        };
        if [Some(&os), Some(&architecture), variant.as_ref()].into_iter().flatten().any(String::is_empty) {
            return Err(format!("`{text}` is not a platform; write OS/ARCH, such as linux/arm64"));
        }
        Ok(Self { os, architecture, variant })
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.os, self.architecture)?;
        self.variant.iter().try_for_each(|variant| write!(f, "/{variant}"))
    }
}
