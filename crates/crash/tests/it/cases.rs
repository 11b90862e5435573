//! The answers: their words, their numbers, and repeated cases.

use diorite_crash::{CrashTest, Report, Tearing};

fn unsynced_rename(test: CrashTest) -> Report {
    test.size(16 << 20).filesystem(
        |volume, power| {
            volume.write("/settings.new", "depth=32\n")?;
            volume.rename("/settings.new", "/settings")?;
            power.acknowledge("saved");
            Ok(())
        },
        |volume, lines| {
            if lines.contains("saved") && volume.read("/settings")? != b"depth=32\n" {
                return Err("the settings are lost".into());
            }
            Ok(())
        },
    )
}

/// A failed test prints a case, and the case fails again with the same words.
#[test]
fn a_case_can_be_repeated() {
    let report = unsynced_rename(CrashTest::new());
    let failure = report.expect_failure();
    let case = failure.case.to_string();
    let again = unsynced_rename(CrashTest::new().case(&case));
    let repeated = again.expect_failure();
    assert_eq!((&repeated.case, &repeated.why), (&failure.case, &failure.why));
    assert_eq!(again.progress.states, 1);
}

/// The answer names the lost bytes of the file, and not more writes than are needed.
#[test]
fn the_answer_names_files_and_bytes() {
    let report = CrashTest::new()
        .size(16 << 20)
        .tearing(Tearing::Never)
        .prepared(|volume| Ok(volume.write("/app.db", vec![1; 64 << 10])?))
        .filesystem(
            |volume, power| {
                let file = volume.open_options().write(true).open("/app.db")?;
                for page in [3_u64, 7, 11] {
                    file.write_all_at(&[2; 4096], page * 4096)?;
                }
                power.acknowledge("three pages");
                Ok(file.sync_data()?)
            },
            |volume, _| {
                let found = volume.read("/app.db")?;
                let is_new = |page: usize| found[page * 4096] == 2;
                if is_new(11) && !is_new(7) { Err("page 11 without page 7".into()) } else { Ok(()) }
            },
        );
    let failure = report.expect_failure();
    assert_eq!(failure.explanation.lost.len(), 1, "{report}");
    let text = report.to_string();
    for words in
        ["lost: bytes 28672..32768 of `/app.db`", "old data in bytes 28672..32768 of `/app.db`", "case: "]
    {
        assert!(text.contains(words), "{words} is not in:\n{text}");
    }
}

/// Data that was never written to the disk is named, although no write is lost.
#[test]
fn the_answer_names_data_in_memory() {
    let report = unsynced_rename(CrashTest::new());
    let text = report.to_string();
    assert!(text.contains("following `saved`"), "{text}");
    assert!(text.contains("`/settings`"), "{text}");
}

/// A panic of a check is a failure with its words.
#[test]
fn a_check_can_panic() {
    let report = CrashTest::new().size(1 << 20).raw(
        |file, _| Ok(file.write_all_at(&[1; 512], 0)?),
        |file, _| {
            let mut byte = [0; 512];
            file.read_exact_at(&mut byte, 0)?;
            assert!(byte[0] == 0, "the byte is {}", byte[0]);
            Ok(())
        },
    );
    assert_eq!(report.expect_failure().why, "the byte is 1");
}

#[test]
#[should_panic(expected = "not a case of this test")]
fn a_case_of_another_test_is_an_error() {
    let _ = unsynced_rename(CrashTest::new().case("late:3:+++++++++++++++++++"));
}
