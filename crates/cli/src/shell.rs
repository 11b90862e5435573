//! The command shell: commands on the files of one open image, from a terminal, a script or `-c`.
//!
//! Each line is parsed as the arguments of the program. A path is in the image, relative to the current directory; `host:PATH` is a file of
//! the host.

mod complete;
mod words;

use std::ffi::OsString;
use std::io::{BufRead as _, IsTerminal as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use diorite::{Access, Filesystem};
use rustyline::error::ReadlineError;
use rustyline::history::DefaultHistory;
use rustyline::{CompletionType, Config, Editor};

use crate::args::{self, Command, Shell};
use crate::failure::{Failure, Result, visible};
use crate::images::Images;
use crate::inside::Inside;
use crate::interrupt;
use crate::location::Location;
use crate::output::Output;
use crate::stdout;
use complete::Names;
use words::{Word, words};

/// Commands of the shell itself.
const OWN: [&str; 5] = ["cd", "pwd", "help", "exit", "quit"];

/// Commands that list the current directory if they are given no path, beside `find`.
const OF_A_DIRECTORY: [&str; 3] = ["du", "ls", "tree"];

/// The number of lines in the history.
const HISTORY_MAX: usize = 1000;

/// The exit status of wrong usage.
const WRONG_USAGE: u8 = 2;

/// A command that does not end after this number of interrupts ends with the shell.
const INTERRUPTS_MAX: u32 = 3;

const HELP: &str = "\
Commands on files work as in `diorite`: cat, chmod, chown, cp, df, diff, du, edit, extents, find, hash, head, info, ln, ls, mkdir, mv,
readlink, rm, rmdir, stat, sync, tail, tar, touch, tree, trim, truncate, xattr. `COMMAND --help` shows its options.
Paths are in the image; host:PATH is a file of the host: `cp host:a.jpg /photos`.
cd [DIRECTORY], pwd, help, exit [STATUS]; `;` between commands. Quotes make *, ? and [ literal.";

/// Whether the command makes sense in the shell: it works on files of open images.
fn is_allowed(command: &Command) -> bool {
    !matches!(
        command,
        Command::Mkfs(_)
            | Command::Mount(_)
            | Command::Umount(_)
            | Command::Serve(_)
            | Command::Shell(_)
            | Command::Bonnie(_)
            | Command::Job(_)
            | Command::Repro(_)
            | Command::Diskperf(_)
            | Command::Top(_)
            | Command::Check(_)
    )
}

/// The outcome of a line.
enum Next {
    Continue,
    /// End the shell with this status.
    Exit(u8),
}

struct Session<'a> {
    image: PathBuf,
    filesystem: Filesystem,
    images: &'a mut Images,
}

impl Session<'_> {
    fn directory() -> PathBuf {
        Inside::current().map_or_else(|| "/".into(), |inside| inside.directory)
    }

    fn enter(&self, directory: PathBuf) {
        Inside { image: self.image.clone(), directory, patterns: Vec::new() }.set();
    }

    /// Run the commands of a text up to the first failure.
    fn lines(&mut self, mut text: &str) -> Result<Next> {
        while !text.is_empty() {
            let (command, rest) = words(text)?;
            if let Next::Exit(status) = self.command(command)? {
                return Ok(Next::Exit(status));
            }
            interrupt::check()?;
            text = rest;
        }
        Ok(Next::Continue)
    }

    fn command(&mut self, words: Vec<Word>) -> Result<Next> {
        Inside::set_patterns(patterns(&words));
        let words: Vec<String> = words.into_iter().map(|word| word.text).collect();
        let Some((command, rest)) = words.split_first() else { return Ok(Next::Continue) };
        interrupt::begin_again();
        match command.as_str() {
            "exit" | "quit" => return status(rest).map(Next::Exit),
            "help" | "?" => Output::new().say(HELP)?,
            "pwd" => Output::new().say(&Self::directory().display().to_string())?,
            "cd" => self.change_directory(rest.first().map_or("/", String::as_str))?,
            _ => self.run(&words)?,
        }
        Ok(Next::Continue)
    }

    fn change_directory(&self, to: &str) -> Result<()> {
        let location = Location::parse(Path::new(to));
        let path = location.path_inside();
        let failure = |error| Failure::of(&location, "change to", &error);
        let path = diorite_files::canonical(&self.filesystem, path).map_err(failure)?;
        if !self.filesystem.metadata(&path).map_err(failure)?.is_dir() {
            return Err(Failure::Failed(format!(
                "{location}: cannot change the directory: it is not a directory"
            )));
        }
        self.enter(path);
        Ok(())
    }

    fn run(&mut self, words: &[String]) -> Result<()> {
        let parse = |words: &[String]| {
            args::parse(
                std::iter::once("diorite").chain(words.iter().map(String::as_str)).map(OsString::from),
            )
        };
        // A word may be the value of an option, or a request for help: then the words are parsed as they are.
        let parsed = parse(&with_directory(words)).or_else(|_| parse(words));
        let cli = match parsed {
            Ok(cli) => cli,
            Err(said) if said.kind() == ErrorKind::InvalidSubcommand => {
                return Err(unknown_command(&words[0], &said));
            }
            Err(said) => {
                let _ = said.print();
                return if said.use_stderr() { Err(Failure::Exit(WRONG_USAGE)) } else { Ok(()) };
            }
        };
        if !is_allowed(&cli.command) {
            return Err(Failure::Failed(format!(
                "{}: not a command of this shell; run it outside",
                words[0]
            )));
        }
        let mut output = Output::new();
        let done = crate::dispatch(&cli.command, self.images, &mut output);
        let shown = output.finish(&done);
        if stdout::has_lost_reader() { Err(Failure::OutputClosed) } else { done.and(shown) }
    }
}

/// The error of a word that is no command, with a similar one if there is one.
fn unknown_command(word: &str, said: &clap::Error) -> Failure {
    let similar = match said.get(ContextKind::SuggestedSubcommand) {
        Some(ContextValue::Strings(names)) => names.first(),
        Some(ContextValue::String(name)) => Some(name),
        _ => None,
    };
    let similar = similar.map_or(String::new(), |name| format!("did you mean `{name}`? "));
    Failure::Usage(format!("{word}: not a command of this shell; {similar}`help` lists the commands"))
}

/// The words that can be patterns: quotes make a word literal.
fn patterns(words: &[Word]) -> Vec<PathBuf> {
    let is_literal = |text: &str| words.iter().any(|word| word.is_quoted && word.text == text);
    words.iter().filter(|word| !is_literal(&word.text)).map(|word| PathBuf::from(&word.text)).collect()
}

/// The status of `exit`.
fn status(arguments: &[String]) -> Result<u8> {
    match arguments {
        [] => Ok(0),
        [status] if status.parse::<u8>().is_ok() => Ok(status.parse().unwrap_or_default()),
        _ => Err(Failure::Usage(format!("exit {}: write one number from 0 to 255", arguments.join(" ")))),
    }
}

/// The words, with the current directory if a command needs a path and has none.
fn with_directory(words: &[String]) -> Vec<String> {
    let mut all = words.to_vec();
    let is_option = |word: &String| word.starts_with('-');
    let (at, lacks_path) = match words[0].as_str() {
        "find" => (1, words.get(1).is_none_or(is_option)),
        command if OF_A_DIRECTORY.contains(&command) => (words.len(), words[1..].iter().all(is_option)),
        _ => return all,
    };
    if lacks_path {
        all.insert(at, ".".to_owned());
    }
    all
}

pub(crate) fn shell(arguments: &Shell, images: &mut Images) -> Result<()> {
    let image = match &arguments.image {
        Location::Host(image) | Location::Image { image, .. } => image.clone(),
    };
    let access = if images.is_read_only() { Access::ReadOnly } else { Access::ReadWrite };
    let filesystem = images.open(&image, access)?;
    let mut session = Session { image, filesystem, images };
    session.enter(arguments.image.in_image().1.to_owned());
    if let Some(commands) = &arguments.commands {
        return script(&mut session, std::iter::once(Ok(commands.clone())));
    }
    if std::io::stdin().is_terminal() {
        return interactive(&mut session);
    }
    script(&mut session, std::io::stdin().lock().lines())
}

/// Run lines up to the first failure.
fn script(session: &mut Session<'_>, lines: impl Iterator<Item = std::io::Result<String>>) -> Result<()> {
    for line in lines {
        let line = line.map_err(|error| Failure::host("standard input", "read", &error))?;
        if let Next::Exit(status) = session.lines(&line)? {
            return ended_with(status);
        }
    }
    Ok(())
}

fn ended_with(status: u8) -> Result<()> {
    if status == 0 { Ok(()) } else { Err(Failure::Exit(status)) }
}

/// Whether the line was not in UTF-8.
fn is_damage(error: &ReadlineError) -> bool {
    matches!(error, ReadlineError::Io(error) if error.kind() == std::io::ErrorKind::InvalidData)
}

fn interactive(session: &mut Session<'_>) -> Result<()> {
    let failure =
        |error: ReadlineError| Failure::Failed(format!("shell: the terminal cannot be read: {error}"));
    let config = Config::builder().completion_type(CompletionType::List);
    let config = config.max_history_size(HISTORY_MAX).map_err(failure)?.build();
    let mut editor: Editor<Names, DefaultHistory> = Editor::with_config(config).map_err(failure)?;
    editor.set_helper(Some(Names::new(session.filesystem.clone())));
    // Ctrl-C ends the command, which checks for it, and not the shell.
    interrupt::act(Arc::new(|signals| {
        if signals >= INTERRUPTS_MAX {
            std::process::exit(1);
        }
    }));
    let history = std::env::var_os("HOME").map(|home| Path::new(&home).join(".local/state/diorite/history"));
    if let Some(history) = &history {
        // The first session has none.
        let _ = editor.load_history(history);
    }
    let (mut status, mut is_damaged) = (0, false);
    loop {
        if std::mem::take(&mut is_damaged) {
            // The rest of that line is read, so that it is no command.
            match editor.readline("the line has a byte that is not UTF-8, and is dropped; Enter continues ") {
                Err(error) if is_damage(&error) => is_damaged = true,
                Err(ReadlineError::Eof) => break,
                _ => {}
            }
            continue;
        }
        let prompt = format!("{}:{}> ", session.image.display(), Session::directory().display());
        // A name in an image may have control characters.
        let prompt = visible(&prompt);
        match editor.readline(&prompt) {
            Ok(line) => {
                let _ = editor.add_history_entry(&line);
                match session.lines(&line) {
                    Ok(Next::Exit(given)) => {
                        status = given;
                        break;
                    }
                    Ok(Next::Continue) => {}
                    Err(Failure::OutputClosed) => return Err(Failure::OutputClosed),
                    Err(failure) => {
                        failure.report();
                    }
                }
            }
            Err(ReadlineError::Interrupted) => {}
            Err(ReadlineError::Eof) => break,
            Err(error) if is_damage(&error) => is_damaged = true,
            Err(error) => return Err(failure(error)),
        }
    }
    if let Some(history) = &history
        && let Some(directory) = history.parent()
        && std::fs::create_dir_all(directory).is_ok()
    {
        // A history that cannot be kept is no failure of the session.
        let _ = editor.save_history(history);
    }
    ended_with(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_begin_in_the_current_directory() {
        let with = |line: &str| {
            with_directory(&line.split(' ').map(ToOwned::to_owned).collect::<Vec<_>>()).join(" ")
        };
        assert_eq!(with("ls -l"), "ls -l .");
        assert_eq!(with("ls -l a"), "ls -l a");
        assert_eq!(with("find -name x"), "find . -name x");
        assert_eq!(with("find a -name x"), "find a -name x");
        assert_eq!(with("cat"), "cat");
    }
}
