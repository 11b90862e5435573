//! Completions and manual pages, generated from the declarations in `args.rs`.

use clap::CommandFactory;
use clap_mangen::Man as Page;

use crate::args::{Cli, Completions, Man};
use crate::failure::{Failure, Result};
use crate::output::Output;

pub(crate) fn completions(arguments: &Completions, output: &mut Output) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Cli::command(), "diorite", &mut script);
    output.bytes(&script)
}

pub(crate) fn man(arguments: &Man, output: &mut Output) -> Result<()> {
    let mut command = Cli::command();
    command.build();
    if let Some(directory) = &arguments.output {
        let failure = |error: std::io::Error| Failure::host(directory.display(), "write the pages", &error);
        std::fs::create_dir_all(directory).map_err(failure)?;
        return clap_mangen::generate_to(command, directory).map_err(failure);
    }
    let page = match &arguments.command {
        None => command,
        Some(name) => command
            .find_subcommand(name)
            .cloned()
            .ok_or_else(|| Failure::Usage(format!("{name}: no such command; `diorite help` lists them")))?,
    };
    let mut text = Vec::new();
    Page::new(page).render(&mut text)?;
    output.bytes(&text)
}
