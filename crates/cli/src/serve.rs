//! Serving a volume to other systems, in the foreground.

use std::sync::Arc;

use diorite_mount::nfs::{NfsOptions, NfsServer, Squash};
use diorite_mount::virtiofs::VirtioFs;
use diorite_mount::{MountOptions, ServeError};

use crate::args;
use crate::failure::{Failure, Result};
use crate::inherited::{raise_limits, warn_of_file_size};
use crate::interrupt;
use crate::logging::{self, Destination};

/// `diorite serve`.
pub(crate) fn serve(arguments: &args::Serve) -> Result<()> {
    match &arguments.protocol {
        args::Protocol::Nfs(arguments) => nfs(arguments),
        args::Protocol::Virtiofs(arguments) => virtiofs(arguments),
    }
}

fn options(arguments: &args::Served) -> Result<MountOptions> {
    let mut options = MountOptions { read_only: arguments.read_only, ..MountOptions::default() };
    for words in &arguments.options {
        options.set(words).map_err(Failure::Usage)?;
    }
    if let Some(name) = options.kernel_mount_option() {
        return Err(for_mounts(name));
    }
    logging::install(Destination::StandardError, arguments.log_level);
    raise_limits();
    warn_of_file_size(&arguments.image);
    Ok(options)
}

/// Reject options without effect: the user may rely on them.
fn for_mounts(option: &str) -> Failure {
    Failure::Usage(format!(
        "-o {option}: it is for mounts by this host's kernel, and has no effect on a volume that is served; leave it out (clients give \
         options of their own when they mount it)"
    ))
}

fn failure(image: &str, options: &MountOptions, error: ServeError) -> Failure {
    match error {
        ServeError::Volume(error) => Failure::of_mount(image, options, "serve", &error),
        error => Failure::Failed(error.to_string()),
    }
}

fn nfs(arguments: &args::Nfs) -> Result<()> {
    let options = options(&arguments.served)?;
    if options.direct {
        return Err(for_mounts("direct"));
    }
    let squash = Squash {
        root: arguments.root_squash,
        all: arguments.all_squash,
        anonymous_uid: arguments.anonuid,
        anonymous_gid: arguments.anongid,
    };
    let image = &arguments.served.image;
    let failure = |error| failure(image, &options, error);
    let nfs = NfsOptions { squash, insecure: arguments.insecure };
    interrupt::is_changing();
    let server = NfsServer::new(image, arguments.listen, &options, &nfs).map_err(failure)?;
    let stop = server.stop();
    stop_on_signal(move || stop.stop());
    server.serve().map_err(failure)
}

/// Call `stop` for a signal, also for one that came since the server said that it is ready.
fn stop_on_signal(stop: impl Fn() + Send + Sync + 'static) {
    let stop: interrupt::Action = Arc::new(move |_| stop());
    interrupt::act(Arc::clone(&stop));
    if interrupt::cancel().is_cancelled() {
        stop(1);
    }
}

fn virtiofs(arguments: &args::Virtiofs) -> Result<()> {
    let options = options(&arguments.served)?;
    let image = &arguments.served.image;
    let failure = |error| failure(image, &options, error);
    interrupt::is_changing();
    let server = VirtioFs::new(image, &arguments.socket, &options).map_err(failure)?;
    let stop = server.stop();
    stop_on_signal(move || stop.stop());
    server.serve().map_err(failure)
}
