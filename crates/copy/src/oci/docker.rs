//! `manifest.json`: what `docker save` wrote before it wrote OCI layouts.

use std::path::{Component, Path, PathBuf};

use serde_json::Value;

use crate::Error;
use crate::oci::descriptor::Digest;
use crate::oci::platform::Platform;
use crate::oci::{Blob, Choice, Layout, is_named};

/// The references of an image.
fn tags_of(image: &Value) -> Vec<&str> {
    image["RepoTags"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

impl Layout {
    /// The layers of the image that is chosen. The digests of their content are in its configuration.
    pub(super) fn docker_layers(&self, choice: Choice<'_>) -> Result<Vec<Blob>, Error> {
        let list = self.json(Path::new("manifest.json"))?;
        let image = self.docker_image(list.as_array().map_or(&[][..], Vec::as_slice), choice.tag)?;
        let configuration = self.json(&self.docker_path(&image["Config"])?)?;
        let platform = Platform::of_json(&configuration);
        if let (Some(wanted), Some(platform)) = (choice.platform, &platform)
            && !wanted.accepts(platform)
        {
            return Err(self.error(format!("the image is for {platform}, not for {wanted}")));
        }
        let none = || self.error("manifest.json lists no layers");
        let layers = image["Layers"].as_array().ok_or_else(none)?;
        let digests = configuration["rootfs"]["diff_ids"].as_array().map_or(&[][..], Vec::as_slice);
        if digests.len() != layers.len() {
            return Err(self.error("its configuration has another number of layers than manifest.json"));
        }
        let blob = |(layer, digest): (&Value, &Value)| {
            let digest = Digest::parse(digest.as_str().unwrap_or_default());
            let content = Some(digest.map_err(|why| self.error(why))?);
            Ok(Blob { path: self.docker_path(layer)?, descriptor: None, content })
        };
        layers.iter().zip(digests).map(blob).collect()
    }

    fn docker_image<'v>(&self, list: &'v [Value], tag: Option<&str>) -> Result<&'v Value, Error> {
        let is_it =
            |image: &&'v Value| tag.is_none_or(|tag| tags_of(image).iter().any(|name| is_named(name, tag)));
        let found: Vec<_> = list.iter().filter(is_it).collect();
        if let [only] = found[..] {
            return Ok(only);
        }
        let what = match tag {
            Some(tag) if found.is_empty() => format!("it has no image {tag}"),
            _ if found.is_empty() => return Err(self.error("manifest.json lists no image")),
            _ => "it has several images".to_owned(),
        };
        let names: Vec<_> = list.iter().flat_map(tags_of).collect();
        Err(self.error(format!("{what}; choose one with :TAG: {}", names.join(", "))))
    }

    /// A path in the archive.
    fn docker_path(&self, value: &Value) -> Result<PathBuf, Error> {
        let path = Path::new(value.as_str().unwrap_or_default());
        let is_safe = path.components().all(|part| matches!(part, Component::Normal(_)));
        if is_safe && !path.as_os_str().is_empty() {
            return Ok(path.to_owned());
        }
        Err(self.error(format!("manifest.json names the file {value}, which is outside the image")))
    }
}
