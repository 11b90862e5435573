//! The commands job and diskperf on files, images, whole and simulated devices: errors and reports.

use crate::common;
use common::{Bench, text};
use serde_json::Value;

/// A writing job must not destroy a volume on a whole device.
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

/// No file is created if the files together do not fit.
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

/// The keys that readers of fio's JSON use.
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
        let ios = |side: &str| job[side]["total_ios"].as_u64().expect("a number");
        // Each block is transferred once, and each written block is verified.
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

/// A drive that executes commands after the end of the jobs counts as busy until then.
#[test]
fn a_simulated_drive_is_busy_to_the_end() {
    let bench = Bench::new();
    bench.write(
        "j.fio",
        b"[w]\nrw=write\ndirect=1\nbs=64k\nsize=1g\nruntime=2\n[r]\nrw=read\nbs=64k\nsize=64m\n\
                           time_based\nruntime=2\n",
    );
    let json = bench.run("job j.fio --on sim:sata-2009 --scheduler none --json");
    let json: Value = serde_json::from_str(&json).expect("JSON");
    let busy = json["disk_util"][0]["util"].as_f64().expect("a number");
    assert!((80.0..=100.0).contains(&busy), "{busy}");
}

/// A seed gives the same run in two processes, although addresses and the order of threads differ.
#[test]
fn a_simulated_job_repeats_in_another_process() {
    let bench = Bench::new();
    let job = "[buffered]\nrw=write\nsize=8m\nbs=64k\nnumjobs=2\n[synced]\nrw=randwrite\nfsync=4\nsize=2m\nbs=4k\n\
               [direct]\nrw=write\ndirect=1\nsize=2m\nbs=4k\n[reader]\nrw=read\nsize=32m\nnumjobs=2\n";
    bench.write("j.fio", job.as_bytes());
    for scheduler in ["none", "cfq", "inject"] {
        let run = |seed| {
            let line = format!("job j.fio --on sim:sata-2009 --scheduler {scheduler} --seed {seed} --json");
            bench.run(&line)
        };
        let first = run(3);
        assert_eq!(first, run(3), "{scheduler}");
        assert_ne!(first, run(4), "{scheduler}: the seed decides");
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
    assert!(bench.fail("diskperf blocks=1 sim:ssd bare", 2).contains("cannot be in one test"));
    assert!(bench.fail("diskperf blocks=1 sim:floppy", 1).contains("unknown simulated disk"));
    assert!(bench.fail("diskperf blocks=1 --scheduler none --rules fixed sim:ssd", 2).contains("--rules"));
}

/// A file in an image can be a target. The test reads the file, not the image.
#[test]
fn diskperf_reads_and_writes_files_of_an_image() {
    let bench = Bench::new();
    bench.image("a.img", "ext4", "16M");
    bench.run("diskperf write blocks=4 direct depth=2 a.img:/data");
    // The file was overwritten without --force, and so was a file of the host.
    let said = bench.fail("diskperf write blocks=4 direct a.img:/data", 1);
    assert!(said.contains("a.img:/data: the file has content") && said.contains("--force"), "{said}");
    bench.run("diskperf write blocks=4 direct --force a.img:/data");
    bench.write("file", &vec![1; 1 << 20]);
    let said = bench.fail("diskperf write blocks=1 file", 1);
    assert!(said.contains("file: there is data, which the write test would destroy"), "{said}");
    let json = bench.json("diskperf blocks=4 direct depth=4 a.img:/data");
    let row = &json["rows"][0];
    assert_eq!(
        (row["engine"].as_str(), row["bytes"].as_u64(), row["bytes_copied"].as_u64()),
        (Some("diorite"), Some(4 << 20), Some(0))
    );
    assert!(row["bios"].as_u64() >= Some(1), "{row}");
    assert!(bench.run("diskperf blocks=512 bs=8k a.img:/data").starts_with("Completed reading 4 mbytes"));
    assert!(
        bench
            .fail("diskperf blocks=5 a.img:/data", 1)
            .contains("a.img:/data: too small: it has 4194304 bytes")
    );
    assert!(bench.fail("diskperf blocks=1 raw a.img:/data", 2).contains("raw needs devices"));
    assert!(bench.fail("diskperf blocks=1 a.img:/none", 1).contains("a.img:/none: cannot open"));
    bench.must_be_clean("a.img");
}

/// The rate of a job with one transfer is computed from the time of that transfer.
#[test]
fn a_job_of_one_transfer_has_its_rate() {
    let bench = Bench::new();
    bench.write("j.fio", b"[j]\nrw=write\nsize=4k\nbs=4k\nfilename=f\n");
    let json = bench.json("job j.fio --on .");
    let write = &json["jobs"][0]["write"];
    let number = |key: &str| write[key].as_f64().expect("a number");
    let seconds = write["lat_ns"]["mean"].as_f64().expect("a number") / 1e9;
    assert!((number("iops") * seconds - 1.0).abs() < 0.01, "{write}");
    assert!((number("bw_bytes") * seconds / 4096.0 - 1.0).abs() < 0.01, "{write}");
    assert!(number("iops_mean") > 0.0, "{write}");
}

/// Options that fio's examples use: several files, block sizes, verification by another job, content, waits.
#[test]
fn options_of_fios_examples_do_what_they_say() {
    let bench = Bench::new();
    let text = "[global]\nverify=md5\nbssplit=4k/50:16k/50\n[w]\nrw=randwrite\nnrfiles=3\nfilesize=64k\n\n\
                [v]\nfilename=w.0.0:w.0.1:w.0.2\nverify_interval=4k\nwait_for=w\nrw=write\nbs=4k\nexitall\nnumber_ios=8\n";
    bench.write("j.fio", text.as_bytes());
    let json = bench.json("job j.fio --on .");
    let bytes = |job: usize, side: &str| json["jobs"][job][side]["io_bytes"].as_u64().expect("a number");
    assert!(bytes(0, "write") >= 160 << 10, "all three files: {}", bytes(0, "write"));
    assert!(bytes(0, "read") > 0 && bytes(1, "write") <= 8 * 16384);
    assert_eq!([0, 1, 2].map(|file| bench.read(&format!("w.0.{file}")).len()), [64 << 10; 3]);
    bench.write("bad.fio", b"[v]\nrw=read\nbs=4k\nverify=meta\nfilename=zeros\n");
    bench.write("zeros", &[0; 8192]);
    assert!(bench.fail("job bad.fio --on .", 1).contains("verify failed at byte 0: no job wrote this block"));
    bench.write("none.fio", b"[v]\nfilename=absent\n[w]\nnuma_cpu_nodes=0\nsize=1m\n");
    assert!(bench.fail("job none.fio", 1).contains("none.fio:4: numa_cpu_nodes: not supported; remove it"));
    bench.write("none.fio", b"[v]\nfilename=absent\n");
    assert!(bench.fail("job none.fio", 1).contains("absent: no size"));
}

/// A failed job does not change the figures of the others. Its own figures end at the failure.
#[test]
fn a_job_that_fails_leaves_the_figures() {
    let bench = Bench::new();
    let jobs = "[good]\nrw=write\nsize=64k\n[bad]\nrw=read\nfilename=zeros\nverify=meta\nbs=4k\n[later]\nstonewall\nrw=write\nsize=8k\n";
    bench.write("j.fio", jobs.as_bytes());
    bench.write("zeros", &[0; 8192]);
    let output = bench.diorite(["job", "j.fio", "--on", ".", "--json"]).output().expect("runs");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("zeros: verify failed at byte 0"), "{}", text(&output.stderr));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let figures =
        |job: usize| (json["jobs"][job]["error"].as_i64(), json["jobs"][job]["write"]["io_bytes"].as_u64());
    assert_eq!(
        [figures(0), figures(1), figures(2)],
        [(Some(0), Some(64 << 10)), (Some(84), Some(0)), (Some(0), Some(8 << 10))]
    );
}

/// One job, run by fio and by `diorite job`. `size` is the initial size of the file.
struct Cover {
    options: &'static str,
    size: u64,
    /// The sums depend on random choices, so only their bounds are compared.
    varies: bool,
}

const fn cover(options: &'static str) -> Cover {
    Cover { options, size: 0, varies: false }
}

/// Mixed sizes, shares of the file and hexadecimal numbers.
const COVERS: [Cover; 16] = [
    cover("rw=randwrite\nsize=8m\nbsrange=4k-64k\nverify=crc32c"),
    cover("rw=randwrite\nsize=8m\nbssplit=4k/30:16k/30:64k/40\nverify=crc32c"),
    cover("rw=randwrite\nsize=8m\nbssplit=4k/20:12k/20:128k/20:1m/20:2m/20\nverify=crc32c"),
    cover("rw=randwrite\nsize=8m\nbssplit=4k/50:6k/50\nverify=crc32c"),
    cover("rw=randwrite\nsize=8m\nbsrange=4k-64k\nverify=crc32c\nloops=2"),
    cover("rw=randwrite\nsize=8m\nbsrange=4k-64k\nverify=crc32c\nioengine=libaio\ndirect=1\niodepth=8"),
    cover("rw=randwrite\nsize=8m\nbs=3000"),
    cover("rw=randwrite\nsize=8m\nbsrange=4k-64k\nverify=crc32c\nsoftrandommap=1\ngtod_reduce=1"),
    cover("rw=write\nsize=0x800000\nbs=0x1000\nverify=md5"),
    cover("rw=write\nsize=8m\nbs=4k\nio_size=50%"),
    cover("rw=write\nsize=8m\nbs=4k\noffset=25%"),
    Cover { size: 16 << 20, ..cover("rw=write\nsize=50%\nbs=4k\noffset=25%") },
    Cover { size: 16 << 20, ..cover("rw=randwrite\nbsrange=4k-64k\noffset=25%\nverify=crc32c") },
    Cover { varies: true, ..cover("rw=randrw\nsize=8m\nbs=4k\nverify=crc32c") },
    Cover { varies: true, ..cover("rw=randrw\nsize=8m\nbsrange=4k-64k\nverify=crc32c") },
    Cover { varies: true, ..cover("rw=randwrite\nsize=8m\nbsrange=4k-64k\nbs_unaligned\nverify=crc32c") },
];

/// Bytes written, bytes read, and the blocks of 4 KiB with data.
fn came_of(json: &Value, file: &[u8]) -> (u64, u64, Vec<bool>) {
    let bytes = |side: &str| json["jobs"][0][side]["io_bytes"].as_u64().expect("a number");
    let filled = file.chunks(4096).map(|block| block.iter().any(|byte| *byte != 0)).collect();
    (bytes("write"), bytes("read"), filled)
}

/// With mixed sizes a third of the file was never written, and 7 to 41 % of it was verified.
#[test]
fn random_offsets_cover_a_file_as_fios_do() {
    if std::process::Command::new("fio").arg("--version").output().is_err() {
        println!("SKIPPED: fio is not installed");
        return;
    }
    for Cover { options, size, varies } in COVERS {
        let bench = Bench::new();
        bench.write("j.fio", format!("[j]\nfilename=f\nverify_state_save=0\n{options}\n").as_bytes());
        let before = || (size > 0).then(|| bench.write("f", &vec![0; size as usize]));
        before();
        let ran = std::process::Command::new("fio")
            .args(["j.fio", "--output-format=json"])
            .current_dir(bench.path(""))
            .output()
            .expect("fio starts");
        let said = text(&ran.stdout);
        assert!(ran.status.success(), "fio, {options}: {said} {}", text(&ran.stderr));
        let json: Value = serde_json::from_str(&said[said.find('{').expect("JSON")..]).expect("JSON");
        let fio = came_of(&json, &bench.read("f"));
        std::fs::remove_file(bench.path("f")).expect("removed");
        before();
        let ours = came_of(&bench.json("job j.fio"), &bench.read("f"));
        let sums = |(written, read, filled): &(u64, u64, Vec<bool>)| {
            let holes = filled.iter().filter(|is_filled| !**is_filled).count();
            // A mix reads each block, or verifies it after the write. Unaligned writes are verified with their own sizes.
            if varies { (u64::from(*read == 8 << 20 || read == written), holes) } else { (*written, holes) }
        };
        assert_eq!(
            sums(&ours),
            sums(&fio),
            "{options}: diorite {} {}, fio {} {}",
            ours.0,
            ours.1,
            fio.0,
            fio.1
        );
        if !varies {
            assert_eq!((ours.1, &ours.2), (fio.1, &fio.2), "{options}");
        }
    }
}

/// The numbers of syncs, the rate of each direction, and the transferred bytes are those of fio.
#[test]
fn jobs_do_as_much_as_fio() {
    let bench = Bench::new();
    let job = |options: &str| {
        bench.write("j.fio", format!("[j]\n{options}").as_bytes());
        bench.json("job j.fio --on .")["jobs"][0].clone()
    };
    let deep = "rw=randwrite\nioengine=libaio\ndirect=1\niodepth=32\nsize=1m\nbs=4k\n";
    assert_eq!(job(&format!("{deep}fsync=1\n"))["sync"]["total_ios"], 256);
    assert_eq!(job(&format!("{deep}fdatasync=8\n"))["sync"]["total_ios"], 32);
    let mixed = job("rw=randrw\nsize=16m\nbs=4k\ntime_based\nruntime=2\nrate_iops=400,40\n");
    let ios = |side: &str| mixed[side]["total_ios"].as_u64().expect("a number");
    assert!(
        (700..=810).contains(&ios("read")) && (60..=82).contains(&ios("write")),
        "{} {}",
        ios("read"),
        ios("write")
    );
    let moved = |job: &serde_json::Value, side: &str| job[side]["io_bytes"].as_u64();
    assert_eq!(moved(&job("rw=write\nsize=4m\nfilesize=1m\nnrfiles=2\n"), "write"), Some(2 << 20));
    assert_eq!(moved(&job("rw=write\nsize=50%\nfilesize=64k\nnrfiles=2\n"), "write"), Some(64 << 10));
    assert_eq!(moved(&job("rw=write:8k\nbs=4k\nsize=64k\nloops=2\n"), "write"), Some(12 * 4096));
    assert_eq!(moved(&job("rw=write\nsize=1m\nnumber_ios=10\nloops=3\n"), "write"), Some(30 * 4096));
    assert_eq!(
        moved(&job("rw=write\nsize=64k\nverify_pattern=0xff\n"), "read"),
        Some(64 << 10),
        "it is checked"
    );
    job("rw=write\nsize=64k\nnumjobs=3\nfilename=shared\nunlink=1\n");
    job("rw=write\nsize=8k\nnumjobs=3\ndirectory=d1:d2\nname=n\n");
    let names = |name: &str| std::fs::read_dir(bench.path(name)).expect("list").count();
    assert_eq!((names("d1"), names("d2")), (2, 1), "clones go to the directories in turn");
}

/// Without --force a job does not overwrite the content of a device, an image or a member of a joined device.
#[test]
fn tests_that_write_destroy_nothing_unasked() {
    let bench = Bench::new();
    bench.image("volume.img", "ext4", "16M");
    bench.write("blank.img", &vec![0; 16 << 20]);
    let mut swap = vec![0; 16 << 20];
    swap[4086..4096].copy_from_slice(b"SWAPSPACE2");
    bench.write("swap.img", &swap);
    let refused = |line: &str, what: &str| {
        let said = bench.fail(line, 1);
        assert!(said.contains(what), "{line}: {said}");
    };
    bench.write("w.fio", b"[w]\nrw=write\nbs=64k\nsize=8m\ndirect=1\n");
    let path = bench.path("volume.img").display().to_string();
    bench.write("named.fio", format!("[w]\nrw=write\nbs=64k\nsize=8m\nfilename={path}\n").as_bytes());
    refused("job named.fio", "there is a filesystem");
    // The option filename_format was ignored in the check.
    let formats = [path.as_str(), "volume.$filenum", "$jobname.$jobnum"];
    for link in ["volume.1", "w.1"] {
        std::os::unix::fs::symlink("volume.img", bench.path(link)).expect("a link");
    }
    for format in formats {
        let text =
            format!("[w]\nrw=write\nbs=64k\nsize=8m\nnrfiles=2\nnumjobs=2\nfilename_format={format}\n");
        bench.write("format.fio", text.as_bytes());
        refused("job format.fio", "there is a filesystem");
    }
    refused("job --on raw:swap.img w.fio", "there is swap space");
    refused("diskperf write blocks=1 bs=1m swap.img", "there is swap space");
    for name in ["stripe:blank.img,volume.img", "stripe:volume.img,blank.img", "volume.img?offset=1M"] {
        refused(&format!("job --on raw:{name} w.fio"), "there is a filesystem");
        refused(&format!("diskperf write blocks=1 bs=1m {name}"), "there is a filesystem");
        refused(&format!("mkfs -t ext4 {name}"), "there is a filesystem");
    }
    refused("mkfs -t ext4 swap.img", "there is swap space");
    bench.must_be_clean("volume.img");
    assert!(bench.read("swap.img") == swap, "nothing was written");
    bench.run("job --force --on raw:swap.img w.fio");
    assert!(bench.read("swap.img") != swap, "--force is for that");
}

/// A full disk ends only the job that fills it.
#[test]
fn a_full_volume_ends_a_job_that_fills_it() {
    let bench = Bench::new();
    bench.image("a.img", "ext4", "8M");
    bench.write("j.fio", b"[fill]\nrw=write\nbs=64k\nfill_device=1\nfilename=f\n");
    let json = bench.json("job j.fio --on a.img");
    assert!(json["jobs"][0]["write"]["io_bytes"].as_u64() > Some(4 << 20), "{}", json["jobs"][0]["write"]);
    bench.must_be_clean("a.img");
    bench.write(
        "k.fio",
        b"[w]\nrw=write\nbs=64k\nsize=1m\nfilename=g\nfallocate=none\ncontinue_on_error=write\n",
    );
    let json = bench.json("job k.fio --on a.img");
    assert_eq!(json["jobs"][0]["error"], 28, "ENOSPC is counted, and the job goes on");
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

/// A job in a directory of the host changes no file outside of it.
#[test]
fn a_job_runs_below_a_directory_of_the_host() {
    let bench = Bench::new();
    let text = "[global]\nsize=1m\nbs=4k\n[j]\nrw=randrw\nrwmixread=70\nverify=crc32c\nthinktime=10\nfsync=32\n\n\
                [k]\nrw=write\ndirectory=/deep/er\nfilename=made/k\n";
    bench.write("j.fio", text.as_bytes());
    std::fs::create_dir(bench.path("host")).expect("a directory");
    let json = bench.json("job j.fio --on host");
    let ios = |job: usize, side: &str| json["jobs"][job][side]["total_ios"].as_u64().expect("a number");
    assert_eq!((ios(0, "read"), ios(1, "write")), (256, 256), "each block is moved once, or read back");
    assert_eq!(bench.read("host/deep/er/made/k").len(), 1 << 20);
    assert_eq!(bench.names(), ["host", "j.fio"]);
    assert!(bench.fail("job j.fio --on nowhere", 1).contains("nowhere: cannot open: no such file"));
}

/// A profile without a sample is an error, and leaves no empty file.
#[test]
fn a_run_too_short_for_a_profile_leaves_no_file() {
    let bench = Bench::new();
    bench.write("disk", &[0; 4096]);
    bench.write("j.fio", b"[j]\nrw=read\nsize=4k\nfilename=disk\n");
    assert!(bench.fail("job j.fio --on sim:ssd --profile", 2).contains("--profile"));
    for line in ["diskperf blocks=1 bs=4k disk --profile=p.svg", "job j.fio --profile=p.svg"] {
        if !cfg!(feature = "profile") {
            let said = bench.fail(line, 1);
            assert!(said.contains("--profile: not part of this program; build it with"), "{said}");
            continue;
        }
        let output = bench.diorite(line.split(' ')).output().expect("the program starts");
        let (reported, failed) = (common::text(&output.stdout), common::text(&output.stderr));
        assert!(reported.contains("/s"), "the figures are there anyhow: {reported}");
        // The run may have taken a millisecond.
        let has_file = bench.names().contains(&"p.svg".to_owned());
        assert_eq!(has_file, output.status.success(), "{failed}");
        if has_file {
            assert!(bench.read("p.svg").starts_with(b"<?xml"));
            let _ = std::fs::remove_file(bench.path("p.svg"));
        } else {
            assert!(failed.contains("p.svg: not written: the run was too short"), "{failed}");
        }
    }
}
