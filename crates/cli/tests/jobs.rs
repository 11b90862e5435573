//! The commands job and diskperf on files, images, bare and simulated devices: what they refuse, and what they report.

mod common;

use common::Bench;
use serde_json::Value;

/// A job that writes would destroy a volume that it takes for a bare device.
#[test]
fn a_filesystem_is_not_overwritten_by_accident() {
    let bench = Bench::new();
    bench.image("a.img", "ext4", "16M");
    bench.write("w.fio", b"[w]\nrw=write\nsize=1m\n");
    assert!(bench.fail("job w.fio --on raw:a.img", 1).contains("--force"));
    assert!(bench.fail("diskperf write blocks=1 a.img", 1).contains("--force"));
    bench.must_be_clean("a.img");
    bench.run("job w.fio --on raw:a.img --force");
}

/// Nothing is made if the files together do not fit.
#[test]
fn files_that_do_not_fit_are_refused_before_anything_is_made() {
    let bench = Bench::new();
    bench.image("a.img", "ext4", "16M");
    bench.write("big.fio", b"[a]\nrw=write\nsize=4m\n\n[b]\nrw=read\nsize=200m\n");
    let said = bench.fail("job big.fio --on a.img", 1);
    assert!(
        said.contains("big.fio:5: [b]: b.0.0: no space") && said.contains("choose a smaller size"),
        "{said}"
    );
    assert!(!bench.run("ls a.img:/").contains(".0.0"));
    bench.write("bare", &vec![0; 1 << 20]);
    assert!(bench.fail("job big.fio --on raw:bare", 1).contains("no space"));
    bench.write("small.toml", b"base = \"ssd\"\ncapacity_gb = 0.1\n");
    assert!(bench.fail("job big.fio --on sim:small.toml", 1).contains("no space"));
}

/// The keys that readers of fio's JSON look for, filled.
#[test]
fn json_says_what_fio_says() {
    let bench = Bench::new();
    bench.image("a.img", "ext4", "32M");
    let text =
        "[global]\nsize=2m\n[j]\nrw=randrw\nbs=4k\ndirect=1\nioengine=libaio\niodepth=4\nverify=crc32c\n";
    bench.write("j.fio", text.as_bytes());
    for on in ["a.img", "sim:ssd"] {
        let json = bench.json(&format!("job j.fio --on {on}"));
        let job = &json["jobs"][0];
        let sum = |value: &Value| {
            value.as_object().expect("an object").values().filter_map(Value::as_f64).sum::<f64>()
        };
        for depths in ["iodepth_level", "iodepth_submit", "iodepth_complete"] {
            assert!((sum(&job[depths]) - 100.0).abs() < 1e-6, "{depths}: {}", job[depths]);
        }
        assert!(job["iodepth_level"]["4"].as_f64() > Some(90.0), "{}", job["iodepth_level"]);
        let ios = |side: &str| job[side]["total_ios"].as_u64().expect("a number");
        // Each block is moved once, and each that was written is read back.
        assert_eq!(ios("read"), 512);
        for side in ["read", "write"] {
            let [slat, clat, lat] = ["slat_ns", "clat_ns", "lat_ns"].map(|time| &job[side][time]);
            assert_eq!(clat["N"], job[side]["total_ios"]);
            assert_eq!(lat["N"], job[side]["total_ios"]);
            assert!(slat["N"].as_u64() > Some(0));
            assert!(clat["mean"].as_f64() <= lat["mean"].as_f64());
        }
        let usage = ["ctx", "majf", "minf", "usr_cpu", "sys_cpu"];
        assert!(usage.iter().all(|key| job[key].is_number()));
        assert_eq!(
            (&json["global options"]["size"], &job["job options"]["rw"]),
            (&"2m".into(), &"randrw".into())
        );
        if on.starts_with("sim:") {
            let disk = &json["disk_util"][0];
            assert_eq!(disk["name"], "sim:ssd");
            assert!(disk["read_ios"].as_u64() >= Some(512) && disk["util"].as_f64() <= Some(100.0), "{disk}");
        }
    }
}

/// Simulated devices: the same seed gives the same figures.
#[test]
fn diskperf_runs_in_virtual_time() {
    let bench = Bench::new();
    let run = || bench.run("diskperf blocks=4 direct depth=2 sim:fc-array --seed 7");
    let said = run();
    assert!(said.starts_with("Completed reading 32 mbytes in "), "{said}");
    assert_eq!(said, run());
    assert!(bench.fail("diskperf blocks=1 sim:ssd bare", 2).contains("do not go together"));
    assert!(bench.fail("diskperf blocks=1 sim:floppy", 1).contains("unknown simulated disk"));
    assert!(bench.fail("diskperf blocks=1 --scheduler none --rules fixed sim:ssd", 2).contains("--rules"));
}

/// One seed gives the same bytes, dates included, in any run of the program.
#[test]
fn a_simulated_job_says_the_same_twice() {
    let bench = Bench::new();
    let text = "[global]\nsize=96m\nbs=64k\n[r]\nrw=randrw\ndirect=1\nfsync=16\n[w]\nrw=write\nnumjobs=2\n";
    bench.write("j.fio", text.as_bytes());
    for form in ["", " --json"] {
        let run = || bench.run(&format!("job j.fio --on sim:sata-2009 --seed 7{form}"));
        assert_eq!(run(), run());
    }
}

/// All that a job does to a file, in a directory of the host: below it, and nowhere else.
#[test]
fn a_job_runs_below_a_directory_of_the_host() {
    let bench = Bench::new();
    let text = "[global]\nsize=1m\nbs=4k\n[j]\nrw=randrw\nrwmixread=70\nverify=crc32c\nthinktime=10\nfsync=32\n\n\
                [k]\nrw=write\ndirectory=/deep/er\nfilename=k\n";
    bench.write("j.fio", text.as_bytes());
    std::fs::create_dir(bench.path("host")).expect("a directory");
    let json = bench.json("job j.fio --on host");
    let ios = |job: usize, side: &str| json["jobs"][job][side]["total_ios"].as_u64().expect("a number");
    assert_eq!((ios(0, "read"), ios(1, "write")), (256, 256), "each block is moved once, or read back");
    assert_eq!(bench.read("host/deep/er/k").len(), 1 << 20);
    assert_eq!(bench.names(), ["host", "j.fio"]);
    assert!(bench.fail("job j.fio --on nowhere", 1).contains("nowhere: cannot open: no such file"));
}

/// A profile without a sample is none: it is said, and no empty file stays.
#[test]
fn a_run_too_short_for_a_profile_leaves_no_file() {
    let bench = Bench::new();
    bench.write("disk", &[0; 4096]);
    bench.write("j.fio", b"[j]\nrw=read\nsize=4k\nfilename=disk\n");
    for line in ["diskperf blocks=1 bs=4k disk --profile=p.svg", "job j.fio --profile=p.svg"] {
        let output = bench.diorite(line.split(' ')).output().expect("the program starts");
        let (reported, failed) = (common::text(&output.stdout), common::text(&output.stderr));
        assert!(reported.contains("/s"), "the figures are there anyhow: {reported}");
        // It may have taken a millisecond after all.
        let has_file = bench.names().contains(&"p.svg".to_owned());
        assert_eq!(has_file, output.status.success(), "{failed}");
        if has_file {
            assert!(bench.read("p.svg").starts_with(b"<?xml"));
            let _ = std::fs::remove_file(bench.path("p.svg"));
        } else {
            assert!(failed.contains("p.svg: not written: the run was too short"), "{failed}");
        }
    }
    assert!(bench.fail("job j.fio --on sim:ssd --profile", 2).contains("--profile"));
}
