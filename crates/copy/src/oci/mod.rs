//! Images of containers: an OCI image layout, or what `docker save` makes.
//!
//! Where it sits: above `input/`, which reads a layer. The layout is in any [`Source`]: a directory of the host, or an archive in memory.
//!
//! Format: OCI image-spec 1.1, "Image Layout", "Image Index", "Image Manifest" and "Content Descriptors"; archives of `docker save` before
//! version 25 have only `manifest.json`.
//!
//! Invariants:
//! 1. A path of a blob is made of checked hexadecimal digits. A path of `manifest.json` has no `..`.
//! 2. Size and digest of every blob are checked before it has an effect outside of memory.

mod descriptor;
mod docker;
mod platform;

use std::path::{Path, PathBuf};
use std::rc::Rc;

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::Error;
use crate::input::{FileReader, Recording, record_file};
use crate::memory::MemoryTree;
use crate::oci::descriptor::{Descriptor, Digest};
use crate::tree::{Follow, ReadFile, Source};

pub use platform::Platform;

/// Limit of a JSON file; registries have the same one.
const JSON_BYTES_MAX: u64 = 4 << 20;
/// Limit of indexes in indexes.
const NESTING_MAX: usize = 4;
/// Limit of layers: programs that make images allow 127.
const LAYERS_MAX: usize = 1000;
/// The reference of an image, as an annotation of its manifest.
const NAMES: [&str; 2] = ["org.opencontainers.image.ref.name", "io.containerd.image.name"];

/// The choice of an image of a layout.
#[derive(Clone, Copy, Debug, Default)]
pub struct Choice<'a> {
    /// Its reference.
    pub tag: Option<&'a str>,
    /// Its platform. `None` is that of this machine.
    pub platform: Option<&'a Platform>,
}

/// A layout of images.
pub struct Layout {
    source: Rc<dyn Source>,
    top: PathBuf,
    name: String,
}

/// A layer of an image.
#[derive(Debug)]
pub struct Blob {
    path: PathBuf,
    /// Size and digest of the file.
    descriptor: Option<Descriptor>,
    /// The digest of the layer without compression, if the file has no other.
    content: Option<Digest>,
}

impl Layout {
    /// The layout in the directory `top` of a tree. Messages call it `name`.
    pub fn new(source: Rc<dyn Source>, top: PathBuf, name: impl Into<String>) -> Self {
        Self { source, top, name: name.into() }
    }

    /// The layers of an image, from the bottom up.
    ///
    /// # Errors
    /// The layout has no such image, several that fit, or is malformed.
    pub fn layers(&self, choice: Choice<'_>) -> Result<Vec<Blob>, Error> {
        let layers = if self.exists("oci-layout") {
            self.check_version()?;
            let manifest = self.manifest(choice)?;
            self.layers_of(&manifest)?
        } else if self.exists("manifest.json") {
            self.docker_layers(choice)?
        } else {
            let why = "it has no file oci-layout and no manifest.json, so it is not an image; \
                       make one with `skopeo copy SOURCE oci:DIR`";
            return Err(self.error(why));
        };
        if layers.len() > LAYERS_MAX {
            return Err(self.error(format!("it has {} layers, more than {LAYERS_MAX}", layers.len())));
        }
        Ok(layers)
    }

    /// A tree in memory of one layer.
    ///
    /// # Errors
    /// The layer is missing, damaged, or not the one that the image means.
    pub fn record(&self, blob: &Blob, recording: Recording<'_>) -> Result<MemoryTree, Error> {
        let name = format!("{}: {}", self.name, blob.path.display());
        let (file, size) = self.open(&blob.path)?;
        if let Some(descriptor) = &blob.descriptor {
            self.check_size(&blob.path, size, descriptor.size)?;
        }
        let mut reader = FileReader::new(file, 0..size).with_checksum();
        let tree = record_file(&name, &mut reader, recording)?;
        let failed = |source| Error::Archive { archive: name.clone(), source };
        let expected = match (&blob.descriptor, &blob.content) {
            (Some(descriptor), _) => &descriptor.digest,
            (None, Some(digest)) => digest,
            (None, None) => return Ok(tree),
        };
        self.check_digest(&blob.path, reader.finish().map_err(failed)?, expected)?;
        Ok(tree)
    }

    fn error(&self, why: impl Into<String>) -> Error {
        Error::Refused { name: self.name.clone(), what: "cannot read the image", why: why.into() }
    }

    fn exists(&self, file: &str) -> bool {
        self.source.meta(&self.top.join(file), Follow::Yes).is_ok()
    }

    /// The file at a path below the top, and its size.
    fn open(&self, path: &Path) -> Result<(Rc<dyn ReadFile>, u64), Error> {
        let at = self.top.join(path);
        let meta = self
            .source
            .meta(&at, Follow::Yes)
            .map_err(|_| self.error(format!("it has no file {}; copy the image again", path.display())))?;
        if meta.kind != diorite::FileKind::Regular {
            return Err(self.error(format!("{} is not a regular file", path.display())));
        }
        let file = self.source.open(&at, &meta)?;
        let size = file.size()?;
        Ok((Rc::from(file), size))
    }

    /// A whole small file.
    fn read(&self, path: &Path) -> Result<Vec<u8>, Error> {
        let (file, size) = self.open(path)?;
        if size > JSON_BYTES_MAX {
            return Err(self.error(format!("{} is too large for a description", path.display())));
        }
        let mut bytes = vec![0; size as usize];
        let count = file.read_at(&mut bytes, 0)?;
        bytes.truncate(count);
        Ok(bytes)
    }

    fn json(&self, path: &Path) -> Result<Value, Error> {
        self.parse(path, &self.read(path)?)
    }

    fn parse(&self, path: &Path, bytes: &[u8]) -> Result<Value, Error> {
        let parsed: Result<Value, _> = serde_json::from_slice(bytes);
        let value = parsed.map_err(|error| self.error(format!("{} is not JSON: {error}", path.display())))?;
        if value.is_object() || value.is_array() {
            return Ok(value);
        }
        Err(self.error(format!("{} holds no JSON object", path.display())))
    }

    /// The description that a descriptor leads to.
    fn described(&self, descriptor: &Descriptor) -> Result<Value, Error> {
        let path = descriptor.digest.path();
        let bytes = self.read(&path)?;
        self.check_size(&path, bytes.len() as u64, descriptor.size)?;
        self.check_digest(&path, Sha256::digest(&bytes).into(), &descriptor.digest)?;
        self.parse(&path, &bytes)
    }

    fn check_size(&self, path: &Path, size: u64, expected: u64) -> Result<(), Error> {
        if size == expected {
            return Ok(());
        }
        let path = path.display();
        Err(self.error(format!("{path} has {size} bytes instead of {expected}; copy the image again")))
    }

    fn check_digest(&self, path: &Path, found: [u8; 32], expected: &Digest) -> Result<(), Error> {
        if Digest::of(found) == *expected {
            return Ok(());
        }
        let path = path.display();
        Err(self
            .error(format!("{path} is damaged: its SHA-256 digest is not {expected}; copy the image again")))
    }

    fn check_version(&self) -> Result<(), Error> {
        let layout = self.json(Path::new("oci-layout"))?;
        match layout["imageLayoutVersion"].as_str() {
            Some(version) if version.starts_with("1.") => Ok(()),
            Some(version) => {
                Err(self.error(format!("its layout has version {version}, and only 1 is known")))
            }
            None => Err(self.error("its file oci-layout has no version")),
        }
    }

    /// The manifest of the image that is chosen.
    fn manifest(&self, choice: Choice<'_>) -> Result<Value, Error> {
        let index = self.json(Path::new("index.json"))?;
        let listed = self.descriptors(&index["manifests"], "index.json")?;
        let mut descriptor = match choice.tag {
            Some(tag) => {
                let named: Vec<_> =
                    listed.iter().filter(|(_, entry)| has_name(entry, tag)).cloned().collect();
                if named.is_empty() {
                    return Err(self.error(format!("it has no image {tag}{}", images(&listed))));
                }
                self.choose(&named, choice)?
            }
            None => self.choose(&listed, choice)?,
        };
        for _ in 0..NESTING_MAX {
            let value = self.described(&descriptor)?;
            if value["manifests"].is_null() {
                self.check_configuration(&value, choice)?;
                return Ok(value);
            }
            let listed = self.descriptors(&value["manifests"], "an index")?;
            descriptor = self.choose(&listed, choice)?;
        }
        Err(self.error("its indexes are nested too deep"))
    }

    /// The descriptors in a list, with their JSON.
    fn descriptors(&self, list: &Value, what: &str) -> Result<Vec<(Descriptor, Value)>, Error> {
        let list = list.as_array().ok_or_else(|| self.error(format!("{what} lists no manifests")))?;
        list.iter().map(|entry| Ok((self.descriptor(entry)?, entry.clone()))).collect()
    }

    fn descriptor(&self, entry: &Value) -> Result<Descriptor, Error> {
        Descriptor::parse(entry).map_err(|why| self.error(why))
    }

    /// The descriptor for the platform. A single one that names none fits any.
    fn choose(&self, listed: &[(Descriptor, Value)], choice: Choice<'_>) -> Result<Descriptor, Error> {
        let native = Platform::native();
        let wanted = choice.platform.unwrap_or(&native);
        let with_platform: Vec<_> = listed
            .iter()
            .filter_map(|(descriptor, entry)| Some((descriptor, Platform::of_json(&entry["platform"])?)))
            .collect();
        let mut fitting: Vec<_> =
            with_platform.iter().filter(|(_, platform)| wanted.accepts(platform)).collect();
        if fitting.iter().any(|(_, platform)| platform == wanted) {
            fitting.retain(|(_, platform)| platform == wanted);
        }
        match (&fitting[..], listed) {
            ([(first, _), others @ ..], _) if others.iter().all(|(other, _)| other == first) => {
                Ok((*first).clone())
            }
            ([], []) => Err(self.error("its index is empty")),
            ([], [(only, _)]) if with_platform.is_empty() => Ok(only.clone()),
            ([], _) if !with_platform.is_empty() => {
                let names: Vec<_> = with_platform.iter().map(|(_, platform)| platform.to_string()).collect();
                Err(self.error(format!(
                    "it has no image for {wanted}; choose one with --platform: {}",
                    names.join(", ")
                )))
            }
            _ => Err(self.error(format!("several of its images match{}", images(listed)))),
        }
    }

    /// The configuration is whole. A manifest in no index has its platform there.
    fn check_configuration(&self, manifest: &Value, choice: Choice<'_>) -> Result<(), Error> {
        let configuration = self.described(&self.descriptor(&manifest["config"])?)?;
        match (choice.platform, Platform::of_json(&configuration)) {
            (Some(wanted), Some(platform)) if !wanted.accepts(&platform) => {
                Err(self.error(format!("the image is for {platform}, not for {wanted}")))
            }
            _ => Ok(()),
        }
    }

    fn layers_of(&self, manifest: &Value) -> Result<Vec<Blob>, Error> {
        let Some(layers) = manifest["layers"].as_array() else {
            return Err(self.error("its manifest lists no layers: it is not an image with files"));
        };
        layers
            .iter()
            .map(|entry| {
                let descriptor = self.descriptor(entry)?;
                let kind = entry["mediaType"].as_str().unwrap_or_default();
                if !is_layer(kind) {
                    return Err(
                        self.error(format!("a layer has the type {kind}, which is not a tar archive"))
                    );
                }
                Ok(Blob { path: descriptor.digest.path(), descriptor: Some(descriptor), content: None })
            })
            .collect()
    }
}

/// Types of layers with files. Compression is known by the first bytes.
const LAYERS: [&str; 4] = [
    "application/vnd.oci.image.layer.v1.tar",
    "application/vnd.oci.image.layer.nondistributable.v1.tar",
    "application/vnd.docker.image.rootfs.diff.tar",
    "application/vnd.docker.image.rootfs.foreign.diff.tar",
];

fn is_layer(kind: &str) -> bool {
    LAYERS.iter().any(|known| {
        kind.strip_prefix(known)
            .is_some_and(|rest| matches!(rest, "" | "+gzip" | "+zstd" | ".gzip" | ".zstd"))
    })
}

/// The references of a descriptor.
fn names_of(entry: &Value) -> impl Iterator<Item = &str> {
    NAMES.iter().filter_map(|key| entry["annotations"][*key].as_str())
}

fn name_of(entry: &Value) -> Option<&str> {
    names_of(entry).next()
}

fn has_name(entry: &Value, tag: &str) -> bool {
    names_of(entry).any(|name| is_named(name, tag))
}

/// Whether a reference is `tag`, in full or its part after the name.
fn is_named(reference: &str, tag: &str) -> bool {
    reference == tag || reference.strip_suffix(tag).is_some_and(|rest| rest.ends_with([':', '/']))
}

/// The references of images, as the end of a message.
fn images(listed: &[(Descriptor, Value)]) -> String {
    let mut names: Vec<&str> = listed.iter().filter_map(|(_, entry)| name_of(entry)).collect();
    names.dedup();
    if names.is_empty() { String::new() } else { format!("; choose one with :TAG: {}", names.join(", ")) }
}
