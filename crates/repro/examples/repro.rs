//! The reproductions as plain text: `cargo run --release -p diorite-repro --example repro [name] [seed] [percent]`

use diorite_repro::{self as repro, Options, Outcome};

type Function = fn(&Options) -> Result<Outcome, repro::ReproError>;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let which = arguments.next().unwrap_or_else(|| "all".to_owned());
    let seed = arguments.next().map_or(1, |text| text.parse().expect("a seed"));
    let amount_percent = arguments.next().map_or(10, |text| text.parse().expect("a percentage"));
    let options = Options { seed, amount_percent, ..Options::default() };
    let all: [(&str, Function); 4] = [
        ("fairness", repro::fairness),
        ("boundary", repro::boundary),
        ("raw", repro::raw),
        ("odirect", repro::odirect),
    ];
    for (name, function) in all.into_iter().filter(|(name, _)| which == "all" || which == *name) {
        let started = std::time::Instant::now();
        match function(&options) {
            Ok(outcome) => print(&outcome),
            Err(error) => println!("{name}: {error}"),
        }
        println!("[{name}: {:?} of real time]", started.elapsed());
    }
}

fn print(outcome: &Outcome) {
    println!("{}", outcome.title);
    for line in &outcome.lines {
        let published = line.published.map_or("-".to_owned(), |published| format!("{published:.1}"));
        println!(
            "  {:42} {:22} {:>10} {:>10.1} {}",
            line.row, line.column, published, line.measured, line.unit
        );
    }
    for verdict in &outcome.verdicts {
        println!(
            "  {} {}: {:.3} (target {:.3})",
            if verdict.holds { "holds" } else { "FAILS" },
            verdict.name,
            verdict.measured,
            verdict.target
        );
    }
}
