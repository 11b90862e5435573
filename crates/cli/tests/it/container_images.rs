//! mkfs -d with images of containers, beside umoci and skopeo; platforms, tags, and hostile images.

#![allow(clippy::disallowed_methods, reason = "files of the host")]

use std::fmt::Write as _;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::archives::{archive, member};
use crate::common::{Bench, is_root};
use crate::layers::{differences, directory, file, program};

fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// A layout of images in a directory.
pub(crate) struct Layout<'a> {
    bench: &'a Bench,
    name: &'a str,
}

impl<'a> Layout<'a> {
    pub(crate) fn new(bench: &'a Bench, name: &'a str) -> Self {
        std::fs::create_dir_all(bench.path(&format!("{name}/blobs/sha256"))).expect("directories");
        bench.write(&format!("{name}/oci-layout"), br#"{"imageLayoutVersion":"1.0.0"}"#);
        Self { bench, name }
    }

    /// Store a blob. Returns its descriptor.
    fn blob(&self, kind: &str, bytes: &[u8]) -> Value {
        let digest = digest(bytes);
        self.bench.write(&format!("{}/blobs/sha256/{digest}", self.name), bytes);
        json!({ "mediaType": kind, "digest": format!("sha256:{digest}"), "size": bytes.len() })
    }

    fn json(&self, kind: &str, value: &Value) -> Value {
        self.blob(kind, value.to_string().as_bytes())
    }

    /// An image of layers for a platform. Returns the descriptor of its manifest.
    pub(crate) fn image(&self, architecture: &str, layers: &[Vec<u8>], compresses: bool) -> Value {
        let kind = "application/vnd.oci.image.layer.v1.tar";
        let stored: Vec<Value> = layers
            .iter()
            .map(|layer| {
                if compresses {
                    self.blob(&format!("{kind}+gzip"), &gzip(self.bench, layer))
                } else {
                    self.blob(kind, layer)
                }
            })
            .collect();
        let ids: Vec<String> = layers.iter().map(|layer| format!("sha256:{}", digest(layer))).collect();
        let config = json!({
            "os": "linux", "architecture": architecture, "config": {},
            "rootfs": { "type": "layers", "diff_ids": ids },
        });
        let config = self.json("application/vnd.oci.image.config.v1+json", &config);
        let manifest = json!({ "schemaVersion": 2, "config": config, "layers": stored });
        self.json("application/vnd.oci.image.manifest.v1+json", &manifest)
    }

    pub(crate) fn index(&self, manifests: &[Value]) {
        let index = json!({ "schemaVersion": 2, "manifests": manifests });
        self.bench.write(&format!("{}/index.json", self.name), index.to_string().as_bytes());
    }
}

fn gzip(bench: &Bench, bytes: &[u8]) -> Vec<u8> {
    bench.write("layer", bytes);
    program(bench, "gzip -f layer").expect("gzip is everywhere");
    bench.read("layer.gz")
}

fn with(mut descriptor: Value, key: &str, value: Value) -> Value {
    descriptor[key] = value;
    descriptor
}

fn named(descriptor: Value, name: &str) -> Value {
    with(descriptor, "annotations", json!({ "org.opencontainers.image.ref.name": name }))
}

pub(crate) fn native() -> &'static str {
    if cfg!(target_arch = "x86_64") { "amd64" } else { "arm64" }
}

/// Layers with whiteouts, replaced kinds, links, and parents that are links.
fn layers() -> Vec<Vec<u8>> {
    [
        vec![
            directory("etc"),
            file("etc/passwd", "root"),
            file("etc/hosts", "localhost"),
            directory("usr"),
            directory("usr/lib"),
            file("usr/lib/a", "a"),
            member("lib", b'2', "usr/lib", b""),
            directory("old"),
            file("old/x", "x"),
            directory("var"),
            file("var/a", "a"),
            file("var/b", "b"),
        ],
        vec![
            file("etc/.wh.passwd", ""),
            file("lib/b", "b"),
            file(".wh.old", ""),
            directory("var"),
            file("var/.wh..wh..opq", ""),
            file("var/c", "c"),
        ],
        vec![
            file("etc/passwd", "again"),
            member("etc/link", b'1', "etc/passwd", b""),
            file("usr/lib/.wh.a", ""),
            file("old", "a file"),
            directory("late"),
            directory("late/deep"),
            file("late/deep/f", "f"),
        ],
    ]
    .map(|members| archive(&members))
    .to_vec()
}

/// The layout is what skopeo copies and umoci unpacks; the image holds what umoci makes of it.
#[test]
fn layers_are_applied_as_by_umoci() {
    let bench = Bench::new();
    for compresses in [false, true] {
        let layout = Layout::new(&bench, "image");
        layout.index(&[named(layout.image(native(), &layers(), compresses), "latest")]);
        bench.run("mkfs -F -t ext4 -d oci:image a.img 16M");
        bench.must_be_clean("a.img");
        assert_eq!(bench.run("ls a.img:/usr/lib a.img:/var"), "a.img:/usr/lib:\nb\n\na.img:/var:\nc\n");
        assert_eq!(bench.run("cat a.img:/etc/passwd a.img:/etc/link a.img:/old"), "againagaina file");
        if is_root("umoci unpack as root")
            && program(&bench, "umoci unpack --image image:latest bundle").is_some()
        {
            let mut found = differences(&bench, "bundle/rootfs", "a.img:/");
            // No layer describes the root.
            found.retain(|line| !line.starts_with("bundle/rootfs: time "));
            assert_eq!(found, Vec::<String>::new());
            std::fs::remove_dir_all(bench.path("bundle")).expect("it is there");
        }
        bench.run("mkfs -F -t ext4 -d oci:image:latest b.img 16M");
        assert_eq!(differences(&bench, "a.img:/", "b.img:/"), Vec::<String>::new());
        let copies = [
            ("oci-archive:copy.tar:registry.test/name:v1", "oci-archive:copy.tar"),
            ("docker-archive:docker.tar:name:v2", "oci-archive:docker.tar:v2"),
        ];
        for (to, source) in copies {
            let line = format!("skopeo --insecure-policy copy -q oci:image:latest {to}");
            if program(&bench, &line).is_none() {
                continue;
            }
            let path = to.split(':').nth(1).expect("a file");
            bench.run(&format!("mkfs -F -t ext4 -d {source} b.img 16M"));
            assert_eq!(differences(&bench, "a.img:/", "b.img:/"), Vec::<String>::new(), "{source}");
            // The archive may be compressed as a whole, or come with another tag.
            program(&bench, &format!("gzip -f {path}"));
            bench.run(&format!("mkfs -F -t ext4 -d oci-archive:{path}.gz b.img 16M"));
            assert_eq!(differences(&bench, "a.img:/", "b.img:/"), Vec::<String>::new(), "{source}");
            let said = bench.fail(&format!("mkfs -F -d oci-archive:{path}.gz:none b.img"), 1);
            assert!(said.contains("it has no image none"), "{said}");
        }
        std::fs::remove_dir_all(bench.path("image")).expect("it is there");
    }
}

#[test]
fn platform_of_an_image_is_chosen() {
    let bench = Bench::new();
    let layout = Layout::new(&bench, "image");
    let one = |architecture: &str| {
        let image = layout.image(architecture, &[archive(&[file("name", architecture)])], false);
        with(image, "platform", json!({ "os": "linux", "architecture": architecture }))
    };
    let unknown = with(one("x"), "platform", json!({ "os": "unknown", "architecture": "unknown" }));
    let inner = json!({ "schemaVersion": 2, "manifests": [one("s390x"), unknown, one(native())] });
    layout.index(&[layout.json("application/vnd.oci.image.index.v1+json", &inner)]);
    bench.run("mkfs -d oci:image a.img 8M");
    assert_eq!(bench.run("cat a.img:/name"), native());
    bench.run("mkfs -F -d oci:image --platform linux/s390x a.img 8M");
    assert_eq!(bench.run("cat a.img:/name"), "s390x");
    let said = bench.fail("mkfs -F -d oci:image --platform linux/mips a.img", 1);
    assert!(said.contains("no image for linux/mips") && said.contains("linux/s390x, linux/"), "{said}");
    bench.fail("mkfs -F -d oci:image --platform linux a.img", 2);
    bench.fail("mkfs -F --platform linux/mips a.img", 2);
    // A single image is taken as it is, unless another platform is asked for.
    layout.index(&[layout.image("s390x", &[archive(&[file("name", "only")])], false)]);
    bench.run("mkfs -F -d oci:image a.img");
    assert_eq!(bench.run("cat a.img:/name"), "only");
    let said = bench.fail("mkfs -F -d oci:image --platform linux/mips a.img", 1);
    assert!(said.contains("the image is for linux/s390x, not for linux/mips"), "{said}");
    layout.index(&[named(one("s390x"), "a"), named(one(native()), "b")]);
    bench.run("mkfs -F -d oci:image:b a.img");
    assert_eq!(bench.run("cat a.img:/name"), native());
    let other = layout.image(native(), &[archive(&[file("name", "other")])], false);
    layout.index(&[
        named(one(native()), "a"),
        with(named(other, "b"), "platform", json!({ "os": "linux", "architecture": native() })),
    ]);
    let said = bench.fail("mkfs -F -d oci:image a.img", 1);
    assert!(said.contains("several of its images match; choose one with :TAG: a, b"), "{said}");
}

/// The type of layers.
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";

fn small_layer() -> Vec<u8> {
    archive(&[file("f", "x")])
}

/// The descriptor of a manifest with these layers.
fn manifest(layout: &Layout<'_>, layers: &Value) -> Value {
    let config = layout.json("application/vnd.oci.image.config.v1+json", &json!({}));
    let manifest = json!({ "schemaVersion": 2, "config": config, "layers": layers });
    layout.json("application/vnd.oci.image.manifest.v1+json", &manifest)
}

/// Makes a sound image hostile.
type Make<'a> = &'a dyn Fn(&Layout<'_>);

/// Each image that `make` makes of a sound one is an error of one line with `part`, and nothing is written.
fn must_be_refused(cases: &[(Make<'_>, &str)]) {
    let bench = Bench::new();
    for (make, part) in cases {
        let layout = Layout::new(&bench, "image");
        layout.index(&[manifest(&layout, &json!([layout.blob(LAYER, &small_layer())]))]);
        bench.run("mkfs -F -q -d oci:image good.img 8M");
        make(&layout);
        for source in ["oci:image", "oci-archive:image.tar"] {
            program(&bench, "tar -C image -cf image.tar .");
            let said = bench.fail(&format!("mkfs -d {source} a.img 8M"), 1);
            assert!(said.contains(part) && said.lines().count() == 1, "{part}: {said}");
            assert!(!bench.path("a.img").exists());
        }
        std::fs::remove_dir_all(bench.path("image")).expect("it is there");
    }
}

#[test]
fn hostile_indexes_are_errors() {
    let zeros = "0".repeat(64);
    let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    must_be_refused(&[
        (&|layout| layout.bench.write("image/index.json", b"{"), "index.json is not JSON"),
        (&|layout| layout.bench.write("image/index.json", deep.as_bytes()), "index.json is not JSON"),
        (&|layout| layout.bench.write("image/index.json", &vec![b' '; 5 << 20]), "too large"),
        (&|layout| layout.bench.write("image/index.json", b"7"), "no JSON object"),
        (&|layout| layout.bench.write("image/index.json", b"{}"), "index.json lists no manifests"),
        (&|layout| layout.index(&[]), "its index is empty"),
        (&|layout| layout.index(&[json!({ "size": 3 })]), "a descriptor has no digest"),
        (
            &|layout| layout.index(&[json!({ "digest": "sha256:../../../etc/passwd", "size": 3 })]),
            "malformed",
        ),
        (&|layout| layout.index(&[json!({ "digest": "md5:00", "size": 3 })]), "not of SHA-256"),
        (&|layout| layout.index(&[json!({ "digest": format!("sha256:{zeros}"), "size": -3 })]), "not a size"),
        (
            &|layout| layout.index(&[json!({ "digest": format!("sha256:{zeros}"), "size": 3 })]),
            "it has no file blobs",
        ),
        (&|layout| layout.bench.write("image/oci-layout", br#"{"imageLayoutVersion":"2.0"}"#), "version 2.0"),
        (&|layout| drop(std::fs::remove_file(layout.bench.path("image/oci-layout"))), "not an image"),
        (
            &|layout| {
                let mut descriptor = layout.json("", &json!({ "schemaVersion": 2 }));
                for _ in 0..6 {
                    descriptor = layout.json("", &json!({ "manifests": [descriptor] }));
                }
                layout.index(&[descriptor]);
            },
            "nested too deep",
        ),
        (
            &|layout| {
                let descriptor = layout.json("", &json!({ "schemaVersion": 2 }));
                layout.index(&[with(descriptor, "size", json!(1u64 << 40))]);
            },
            "bytes instead of 1099511627776",
        ),
    ]);
    let said = Bench::new().fail("mkfs -d oci:missing:latest a.img 8M", 1);
    assert!(said.contains("oci:missing:latest"), "{said}");
}

#[test]
fn hostile_layers_are_errors() {
    let layer = small_layer();
    let refuse = |make: &dyn Fn(&Layout<'_>) -> Value, part: &str| {
        let make = |layout: &Layout<'_>| layout.index(&[manifest(layout, &make(layout))]);
        must_be_refused(&[(&make, part)]);
    };
    refuse(&|_| json!(3), "lists no layers");
    refuse(&|layout| json!([layout.blob("text/plain", b"x")]), "the type text/plain");
    refuse(&|layout| json!([layout.blob(LAYER, b"no archive")]), "not a tar archive");
    refuse(&|layout| json!([with(layout.blob(LAYER, &layer), "size", json!(10))]), "instead of 10");
    let flip = |layout: &Layout<'_>| {
        let blob = layout.blob(LAYER, &layer);
        let digits = blob["digest"].as_str().expect("text").trim_start_matches("sha256:");
        let mut bytes = layer.clone();
        bytes[512] ^= 1;
        layout.bench.write(&format!("image/blobs/sha256/{digits}"), &bytes);
        json!([blob])
    };
    refuse(&flip, "is damaged: its SHA-256 digest is not");
    let nameless = |layout: &Layout<'_>| json!([layout.blob(LAYER, &archive(&[file("a/.wh...", "")]))]);
    refuse(&nameless, "a whiteout must name a file");
    refuse(&|layout| json!(vec![layout.blob(LAYER, &layer); 1001]), "it has 1001 layers");
}

/// The configuration was not read where the platform was known.
#[test]
fn damaged_configurations_are_errors() {
    let refuse = |damage: &dyn Fn(&Layout<'_>, &str), part: &str| {
        let make = |layout: &Layout<'_>| {
            let manifest = manifest(layout, &json!([layout.blob(LAYER, &small_layer())]));
            let digits = manifest["digest"].as_str().expect("text").trim_start_matches("sha256:").to_owned();
            let text = layout.bench.read(&format!("image/blobs/sha256/{digits}"));
            let text: Value = serde_json::from_slice(&text).expect("JSON");
            let config = text["config"]["digest"].as_str().expect("text").trim_start_matches("sha256:");
            damage(layout, &format!("image/blobs/sha256/{config}"));
            layout.index(&[manifest]);
        };
        must_be_refused(&[(&make, part)]);
    };
    let change = |layout: &Layout<'_>, path: &str| {
        let mut bytes = layout.bench.read(path);
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        layout.bench.write(path, &bytes);
    };
    refuse(&change, "is damaged: its SHA-256 digest is not");
    refuse(&|layout, path| std::fs::remove_file(layout.bench.path(path)).expect("the blob"), "blobs/sha256");
}

/// Paths in `manifest.json` lead nowhere else.
#[test]
fn hostile_manifests_of_docker_are_errors() {
    let bench = Bench::new();
    std::fs::create_dir(bench.path("image")).expect("a directory");
    bench.write("layer.tar", &archive(&[file("f", "x")]));
    bench.write("image/layer.tar", &bench.read("layer.tar"));
    let id = format!("sha256:{}", digest(&bench.read("layer.tar")));
    let zeros = format!("sha256:{}", "0".repeat(64));
    let config = |id: &str| json!({ "rootfs": { "diff_ids": [id] } }).to_string();
    for (manifest, ids, part) in [
        (json!([{ "Config": "c.json", "Layers": ["layer.tar"] }]), &id, ""),
        (json!([{ "Config": "c.json", "Layers": ["../layer.tar"] }]), &id, "is outside the image"),
        (json!([{ "Config": "/etc/passwd", "Layers": ["layer.tar"] }]), &id, "is outside the image"),
        (json!([{ "Config": "c.json", "Layers": ["missing.tar"] }]), &id, "it has no file missing.tar"),
        (json!([{ "Config": "c.json", "Layers": ["layer.tar"] }]), &zeros, "is damaged"),
        (json!([{ "Config": "c.json", "Layers": [] }]), &id, "another number of layers"),
        (json!([{ "Config": "c.json" }]), &id, "lists no layers"),
        (json!([]), &id, "lists no image"),
    ] {
        bench.write("image/manifest.json", manifest.to_string().as_bytes());
        bench.write("image/c.json", config(ids).as_bytes());
        if part.is_empty() {
            bench.run("mkfs -F -d oci:image a.img 8M");
            assert_eq!(bench.run("cat a.img:/f"), "x");
            continue;
        }
        let said = bench.fail("mkfs -F -d oci:image a.img", 1);
        assert!(said.contains(part) && said.lines().count() == 1, "{part}: {said}");
    }
}

/// The longest path that exists is the place of the image; the rest is its reference.
#[test]
fn names_of_sources_may_have_colons() {
    let bench = Bench::new();
    let layout = Layout::new(&bench, "a:b");
    layout.index(&[named(
        layout.image(native(), &[archive(&[file("f", "x")])], false),
        "registry.test:5000/x:v1",
    )]);
    for source in ["oci:a:b", "oci:a:b:v1", "oci:a:b:registry.test:5000/x:v1"] {
        bench.run(&format!("mkfs -F -q -d {source} a.img 8M"));
        assert_eq!(bench.run("cat a.img:/f"), "x");
    }
}
