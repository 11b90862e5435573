//! Names bound to devices.

use diorite::front_end::RawBindings;
use serde_json::json;

use crate::args::Raw;
use crate::failure::{Failure, Result, visible};
use crate::output::Output;

pub(crate) fn raw(arguments: &Raw, output: &mut Output) -> Result<()> {
    let failed = |error: std::io::Error| Failure::Failed(format!("bindings: {error}"));
    let mut bindings = RawBindings::of_user().map_err(failed)?;
    let unknown =
        |name: &str| Failure::Failed(format!("{name}: not bound; `diorite raw` lists the bound names"));
    match (&arguments.name, &arguments.target) {
        (Some(name), Some(target)) => bindings.bind(name, target).map_err(|error| {
            // The message of a rejected name includes the name.
            let is_refused = error.kind() == std::io::ErrorKind::InvalidInput;
            if is_refused { Failure::Failed(error.to_string()) } else { failed(error) }
        })?,
        (Some(name), None) if arguments.unbind => {
            if !bindings.unbind(name).map_err(failed)? {
                return Err(unknown(name));
            }
            return Ok(());
        }
        (Some(name), None) if bindings.target(name).is_none() => return Err(unknown(name)),
        _ => {}
    }
    let shown = |name: &str| {
        arguments.name.as_deref().is_none_or(|wanted| wanted.trim_start_matches("/dev/raw/") == name)
    };
    let list: Vec<_> = bindings.iter().filter(|(name, _)| shown(name)).collect();
    if arguments.reporting.json {
        let list: Vec<_> =
            list.iter().map(|(name, target)| json!({ "name": name, "target": target })).collect();
        return output.json(json!({ "command": "raw", "bindings": list }));
    }
    list.iter().try_for_each(|(name, target)| output.line(format!("/dev/raw/{name}: {}", visible(target))))
}
