//! Each format, bit for bit, read and mapped.

use std::path::Path;

use diorite::DirectIo;
use diorite_load::{Dtype, LoadError, Order, TensorFiles, Tensors, Unsupported, Value};

use crate::common::{content, gguf, load, npy, safetensors, text, write, zip};

/// Load a file read and mapped; both must be equal. Reads copy nothing where the directory's filesystem has direct I/O.
fn both_ways(path: &Path) -> Tensors {
    let mapped = load(&[path], DirectIo::Off).expect("mapped");
    let read =
        load(&[path], DirectIo::Required).or_else(|_| load(&[path], DirectIo::Preferred)).expect("read");
    assert_eq!(mapped.list.len(), read.list.len());
    for (one, other) in mapped.list.iter().zip(&read.list) {
        assert_eq!(one.bytes(), other.bytes(), "{}", one.info().name());
    }
    if read.report.direct_bytes > 0 {
        assert_eq!(read.report.copied_bytes, read.report.decompressed_bytes);
    }
    read
}

fn written(name: &str, bytes: &[u8]) -> (tempfile::TempDir, std::path::PathBuf) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join(name);
    write(&path, bytes);
    (directory, path)
}

/// Tensors that begin at odd offsets, cross transfers and end inside of a block.
#[test]
fn safetensors_is_read_bit_for_bit() {
    let tensors = [
        ("a.weight", "F32", &[300, 1000][..], content(1, 1_200_000)),
        ("odd", "U8", &[3], content(2, 3)),
        ("b.weight", "BF16", &[700_001], content(3, 1_400_002)),
        ("empty", "F16", &[5, 0, 2], Vec::new()),
        ("scalar", "I64", &[], content(4, 8)),
        ("packed", "F4", &[3, 4], content(5, 6)),
    ];
    let (_directory, path) = written("model.safetensors", &safetensors(&tensors));
    let loaded = both_ways(&path);
    for (tensor, (name, dtype, shape, bytes)) in loaded.list.iter().zip(&tensors) {
        let info = tensor.info();
        assert_eq!((info.name(), &*info.dtype().name(), info.shape()), (*name, *dtype, *shape));
        assert!(tensor.bytes() == bytes, "{name}");
    }
    assert_eq!(loaded.list.len(), tensors.len());
    let files = TensorFiles::open(&[&path], DirectIo::Preferred).expect("opened");
    assert_eq!(files.metadata(), [("format".to_owned(), Value::Text("pt".to_owned()))]);
}

#[test]
fn gguf_is_read_bit_for_bit() {
    let tokens = [8_u32.to_le_bytes().to_vec(), 2_u64.to_le_bytes().to_vec(), text("<s>"), text("")].concat();
    let keys = [
        ("general.architecture", 8, text("llama")),
        ("tokenizer.ggml.tokens", 9, tokens),
        ("llama.rope.freq_base", 6, 0.5_f32.to_le_bytes().to_vec()),
        ("general.alignment", 4, 32_u32.to_le_bytes().to_vec()),
        ("flag", 7, vec![1]),
    ];
    let tensors = [
        ("blk.0.attn", "12", &[5, 512][..], content(1, 5 * 2 * 144)),
        ("norm", "0", &[7], content(2, 28)),
        ("blk.0.bias", "30", &[2, 3], content(3, 12)),
        ("q8", "8", &[32], content(4, 34)),
    ];
    let (_directory, path) = written("model.gguf", &gguf(&keys, &tensors));
    let loaded = both_ways(&path);
    for (tensor, (name, _, shape, bytes)) in loaded.list.iter().zip(&tensors) {
        assert_eq!((tensor.info().name(), tensor.info().shape()), (*name, *shape));
        assert!(tensor.bytes() == bytes, "{name}");
    }
    let names: Vec<_> = loaded.list.iter().map(|tensor| tensor.info().dtype().name()).collect();
    assert_eq!(names, ["Q4_K", "F32", "BF16", "Q8_0"]);
    let files = TensorFiles::open(&[&path], DirectIo::Preferred).expect("opened");
    let values: Vec<_> = files.metadata().iter().map(|(_, value)| value.clone()).collect();
    let expected =
        [Value::Text("llama".to_owned()), Value::Float(0.5), Value::Integer(32), Value::Bool(true)];
    assert_eq!(values, expected);
}

#[test]
fn npy_is_read_bit_for_bit() {
    for (descr, fortran, shape, bytes, dtype, lengths) in [
        ("'<f8'", true, "(3, 5)", 120, Dtype::Float(64), &[3, 5][..]),
        ("'|u1'", false, "()", 1, Dtype::Uint(8), &[]),
        ("'<c8'", false, "(100000,)", 800_000, Dtype::Complex(64), &[100_000]),
        ("'>i4'", false, "(2,)", 8, Dtype::Numpy { descr: ">i4".to_owned(), bytes: 4 }, &[2]),
    ] {
        let data = content(bytes as u64, bytes);
        let (_directory, path) = written("weights.npy", &npy(descr, fortran, shape, &data));
        let loaded = both_ways(&path);
        let info = loaded.list[0].info();
        assert_eq!((info.name(), info.dtype(), info.shape()), ("weights", &dtype, lengths));
        assert_eq!(info.order() == Order::Fortran, fortran);
        assert!(loaded.list[0].bytes() == data);
    }
    let (_directory, path) = written("objects.npy", &npy("'|O'", false, "(1,)", &[0; 8]));
    let error = load(&[path], DirectIo::Preferred).expect_err("pickle");
    assert!(matches!(error, LoadError::Unsupported { what: Unsupported::Objects, .. }), "{error}");
}

#[test]
fn npz_is_read_bit_for_bit() {
    let (big, small) = (content(1, 400_000), vec![7; 100_000]);
    let members = [
        ("big.npy", false, npy("'<f4'", false, "(1000, 100)", &big)),
        ("note.txt", false, b"no array".to_vec()),
        ("small.npy", true, npy("'|i1'", false, "(100000,)", &small)),
        ("dir/name.npy", true, npy("'<i2'", true, "(2, 2)", &big[..8])),
    ];
    let (_directory, path) = written("arrays.npz", &zip(&members));
    let loaded = both_ways(&path);
    let found: Vec<_> = loaded.list.iter().map(|tensor| (tensor.info().name(), tensor.bytes())).collect();
    assert!(found == [("big", &big[..]), ("small", &small[..]), ("dir/name", &big[..8])]);
    assert_eq!(loaded.report.decompressed_bytes, 100_008);
}

#[test]
fn an_index_stands_for_its_files() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = |name: &str| directory.path().join(name);
    let [one, two] = [("a", "U8", &[3][..], content(1, 3)), ("b", "U8", &[5][..], content(2, 5))];
    write(at("m-1.safetensors"), safetensors(&[one.clone(), ("unused", "U8", &[1], vec![0])]));
    write(at("m-2.safetensors"), safetensors(std::slice::from_ref(&two)));
    let index = |map: &str| {
        let path = at("m.safetensors.index.json");
        write(&path, format!(r#"{{"metadata":{{"total_size":8}},"weight_map":{{{map}}}}}"#));
        path
    };
    let path = index(r#""b":"m-2.safetensors","a":"m-1.safetensors""#);
    let loaded = load(&[path], DirectIo::Preferred).expect("loaded");
    let found: Vec<_> = loaded.list.iter().map(|tensor| (tensor.info().name(), tensor.bytes())).collect();
    assert_eq!(found, [("b", &two.3[..]), ("a", &one.3[..])]);
    for (map, why) in [
        (r#""a":"../m-1.safetensors""#, "not a plain name"),
        (r#""a":"/etc/passwd""#, "not a plain name"),
        (r#""c":"m-1.safetensors""#, "does not have it"),
        (r#""a":"m-3.safetensors""#, "m-3.safetensors"),
        (r#""a":"m-1.safetensors","a":"m-2.safetensors""#, "used twice"),
    ] {
        let error = load(&[index(map)], DirectIo::Preferred).expect_err(map).to_string();
        assert!(error.contains(why), "{error}");
    }
}
