//! The program `diorite`: arguments, output and progress. The libraries do the work.
//!
//! Where it sits: above all crates. Each command opens its images through [`images::Images`], which closes them in order even after
//! a failure, writes through [`output::Output`], and fails with a [`failure::Failure`].

mod advise;
mod args;
mod attributes;
mod blocks;
mod bonnie;
mod cat;
mod change;
mod check;
mod colors;
mod cp;
mod crash;
mod devices;
mod diff;
mod diskperf;
mod du;
mod each;
mod edit;
mod entry;
mod failure;
mod fill;
mod find;
mod fit;
mod foreign;
mod free_space;
mod generate;
mod hash;
mod identity;
mod images;
mod inherited;
mod inside;
mod interrupt;
mod job;
mod journal_sizes;
mod kernel_mount;
mod layout;
mod location;
mod logging;
mod ls;
mod make;
mod mount;
mod mv;
mod new_volume;
mod output;
#[cfg_attr(not(feature = "profile"), path = "no_profiling.rs")]
mod profiling;
mod progress;
mod raw;
mod replacement;
mod repro;
mod serve;
mod shell;
mod sides;
mod size;
mod sources;
mod stat;
mod stdout;
mod sync;
mod tar;
mod top;
mod tree;
mod truncate;
mod uncached;
mod verified;
mod verity;
mod volume;
mod xattr;

use std::process::ExitCode;

use args::{Cli, Command, Opening};
use failure::{Failure, Result};
use images::Images;
use output::Output;

/// Run the program with the arguments of the process. Returns the exit status.
pub fn main() -> ExitCode {
    inherited::reset_signals();
    let cli = match parsed() {
        Ok(cli) => cli,
        Err(said) => return show(&said),
    };
    mount::prepare_daemon();
    interrupt::install();
    match run(&cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

/// The stack for the declarations of all commands.
const PARSER_STACK_BYTES: usize = 1 << 20;

/// The arguments. They are parsed in a thread with a stack of its own, because the caller may allow only a small one.
fn parsed() -> std::result::Result<Cli, clap::Error> {
    let parse = || args::parse(args::normalized(std::env::args_os()));
    match std::thread::Builder::new().stack_size(PARSER_STACK_BYTES).spawn(parse) {
        Ok(parser) => parser.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
        // The caller allows no thread.
        Err(_) => parse(),
    }
}

/// Print the help or the error of clap, and return the exit status.
fn show(said: &clap::Error) -> ExitCode {
    let print = || {
        if !said.use_stderr() && stdout::was_closed() { Err(stdout::closed_error()) } else { said.print() }
    };
    match print() {
        Err(error) if !said.use_stderr() => Failure::from(error).report(),
        _ if said.use_stderr() => {
            // The names of missing arguments follow in lines of their own.
            let text = said.to_string();
            let lines = text.lines().map(str::trim).take_while(|line| !line.is_empty());
            let text = lines.collect::<Vec<_>>().join(" ");
            let wrong = Failure::Usage(text.trim_start_matches("error: ").to_owned());
            // The message is on standard error already.
            let _ = Output::new().finish(&Err(wrong));
            ExitCode::from(said.exit_code() as u8)
        }
        _ => ExitCode::from(said.exit_code() as u8),
    }
}

/// The options of a command for opening images.
fn opening_of(command: &Command) -> Opening {
    match command {
        Command::Trim(arguments) => arguments.common.opening,
        Command::Extents(arguments) => arguments.common.opening,
        Command::Ls(arguments) => arguments.common.opening,
        Command::Tree(arguments) => arguments.common.opening,
        Command::Stat(arguments) => arguments.common.opening,
        Command::Cat(arguments) => arguments.opening,
        Command::Cp(arguments) => arguments.common.opening,
        Command::Mv(arguments) => arguments.common.opening,
        Command::Rm(arguments) => arguments.common.opening,
        Command::Mkdir(arguments) => arguments.common.opening,
        Command::Ln(arguments) => arguments.common.opening,
        Command::Du(arguments) => arguments.common.opening,
        Command::Find(arguments) => arguments.common.opening,
        Command::Head(arguments) => arguments.common.opening,
        Command::Tail(arguments) => arguments.common.opening,
        Command::Rmdir(arguments) => arguments.common.opening,
        Command::Readlink(arguments) => arguments.common.opening,
        Command::Chmod(arguments) => arguments.common.opening,
        Command::Chown(arguments) => arguments.common.opening,
        Command::Touch(arguments) => arguments.common.opening,
        Command::Truncate(arguments) => arguments.common.opening,
        Command::Sync(arguments) => arguments.common.opening,
        Command::Diff(arguments) => arguments.common.opening,
        Command::Edit(arguments) => arguments.common.opening,
        Command::Shell(arguments) => arguments.opening,
        Command::Tar(arguments) => arguments.common.opening,
        Command::Hash(arguments) => arguments.common.opening,
        Command::Xattr(arguments) => arguments.action.common().opening,
        _ => Opening::default(),
    }
}

fn run(command: &Command) -> Result<()> {
    let mut images = Images::new(opening_of(command));
    let mut output = Output::new();
    let done = dispatch(command, &mut images, &mut output);
    // Images are closed and the output is written even after a failure. The first failure counts.
    let done = done.and(images.close());
    let shown = output.finish(&done);
    if stdout::has_lost_reader() { Err(Failure::OutputClosed) } else { done.and(shown) }
}

fn dispatch(command: &Command, images: &mut Images, output: &mut Output) -> Result<()> {
    match command {
        Command::Mkfs(arguments) => make::make(arguments, output),
        Command::Info(arguments) => volume::info(arguments, output),
        Command::Check(arguments) => check::check(arguments, output),
        Command::Trim(arguments) => volume::trim(arguments, images, output),
        Command::Extents(arguments) => stat::extents(arguments, images, output),
        Command::Ls(arguments) => ls::ls(arguments, images, output),
        Command::Tree(arguments) => tree::tree(arguments, images, output),
        Command::Stat(arguments) => stat::stat(arguments, images, output),
        Command::Cat(arguments) => cat::cat(&arguments.paths, images, output),
        Command::Cp(arguments) => cp::cp(arguments, images, output),
        Command::Mv(arguments) => mv::mv(arguments, images, output),
        Command::Rm(arguments) => change::rm(arguments, images, output),
        Command::Mkdir(arguments) => change::mkdir(arguments, images, output),
        Command::Rmdir(arguments) => change::rmdir(arguments, images, output),
        Command::Sync(arguments) => sync::sync(arguments, images, output),
        Command::Diff(arguments) => diff::diff(arguments, images, output),
        Command::Edit(arguments) => edit::edit(arguments, images, output),
        Command::Shell(arguments) => shell::shell(arguments, images),
        Command::Tar(arguments) => tar::tar(arguments, images, output),
        Command::Hash(arguments) => hash::hash(arguments, images, output),
        Command::Find(arguments) => find::find(arguments, images, output),
        Command::Head(arguments) => cat::head(arguments, images, output),
        Command::Tail(arguments) => cat::tail(arguments, images, output),
        Command::Readlink(arguments) => stat::readlink(arguments, images, output),
        Command::Chmod(arguments) => attributes::chmod(arguments, images, output),
        Command::Chown(arguments) => attributes::chown(arguments, images, output),
        Command::Touch(arguments) => attributes::touch(arguments, images, output),
        Command::Truncate(arguments) => truncate::truncate(arguments, images, output),
        Command::Xattr(arguments) => xattr::xattr(arguments, images, output),
        Command::Ln(arguments) => mv::ln(arguments, images, output),
        Command::Df(arguments) => volume::df(arguments, images, output),
        Command::Du(arguments) => du::du(arguments, images, output),
        Command::Mount(arguments) => mount::mount(arguments),
        Command::Umount(arguments) => mount::umount(arguments),
        Command::Serve(arguments) => serve::serve(arguments),
        Command::Top(arguments) => top::top(arguments, output),
        Command::Status(arguments) => top::status(arguments, output),
        Command::Bonnie(arguments) => bonnie::bonnie(arguments, output),
        Command::Diskperf(arguments) => diskperf::diskperf(arguments, output),
        Command::Raw(arguments) => raw::raw(arguments, output),
        Command::Advise(arguments) => advise::advise(arguments, output),
        Command::Uncached(arguments) => uncached::uncached(arguments),
        Command::Crash(arguments) => crash::crash(arguments, output),
        Command::Job(arguments) => job::job(arguments, output),
        Command::Repro(arguments) => repro::repro(arguments, output),
        Command::Completions(arguments) => generate::completions(arguments, output),
        Command::Man(arguments) => generate::man(arguments, output),
    }
}
