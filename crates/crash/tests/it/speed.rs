//! The number of states and the memory of one.

use std::time::Instant;

use diorite_crash::CrashTest;

/// 200 writes in a volume of 64 MiB: the rate is printed, and the plan keeps to its limit.
#[test]
fn two_hundred_writes() {
    let started = Instant::now();
    let report = CrashTest::new().total_states(600).filesystem(
        |volume, power| {
            let file = volume.open_options().read(true).write(true).create(true).open("/table")?;
            for page in 0..200_u64 {
                file.write_all_at(&[page as u8 + 1; 4096], page * 37 % 200 * 4096)?;
                if page.is_multiple_of(40) {
                    file.sync_data()?;
                    power.acknowledge(page.to_string());
                }
            }
            Ok(file.sync_all()?)
        },
        |volume, lines| {
            if lines.is_empty() {
                return Ok(());
            }
            let mut page = [0; 4096];
            volume.open_file("/table")?.read_exact_at(&mut page, 0)?;
            if page == [1; 4096] { Ok(()) } else { Err("the first page is lost".into()) }
        },
    );
    report.assert_passed();
    let states = report.progress.states;
    println!(
        "{states} states in {:?}, {:.0} a second",
        started.elapsed(),
        states as f64 / started.elapsed().as_secs_f64()
    );
    assert!((300..=1800).contains(&states), "{report}");
}
