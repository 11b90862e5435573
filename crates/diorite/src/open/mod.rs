//! Opens the device that a target string names.
//!
//! Where it sits: the one module with the grammar of targets ([`open_target`]), above the crates that open each kind of device.

pub(crate) mod bindings;
pub(crate) mod foreign;

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use diorite_arrays::{lvm, md, whole_of_part};
use diorite_block::BlockDevice;
use diorite_device::{Access, Create, FileDevice, JoinedDevice, OpenError, OpenOptions, PartitionDevice};
use diorite_nbd::{self as nbd, NbdDevice};

use self::bindings::RawBindings;

/// Default chunk of a stripe.
const CHUNK_BYTES: u64 = 64 << 10;

/// Open the device that a target names:
///
/// ```text
/// PATH                          an image file or a block device
/// raw:PATH                      the same
/// raw:NAME, /dev/raw/NAME       the device that the name is bound to (`diorite raw`)
/// stripe:TARGET,TARGET,...      several devices as one, striped by 64K or ?chunk=BYTES
/// linear:TARGET,TARGET,...      several devices as one, one after the other
/// md:TARGET,TARGET,...          the MD array of these members, in any order
/// lvm:TARGET,...?volume=NAME    a logical volume of LVM2 on these physical volumes; the only one without ?volume
/// nbd://HOST[:PORT]/EXPORT      an export of an NBD server; nbds:// with TLS
/// nbd+unix:///EXPORT?socket=PATH  the same over a Unix socket; nbds+unix:// with TLS
/// TARGET?partition=N            a partition of it
/// TARGET?offset=BYTES           everything from an offset on (K, M, G, T: powers of 1024)
/// TARGET?partition=N&offset=B   both: from an offset in the partition on
/// ```
/// An existing path is opened whatever characters it has. Options after a `?` belong to the target before it. After the last of several
/// joined targets, they belong to the whole (`lvm:A,B?volume=NAME&partition=1`). A trailing `?` ends the options of the last part:
/// `md:A?partition=1,B?partition=1?` joins partitions.
///
/// A member of an array or a volume group cannot be opened for writing: the other members would not receive the writes.
///
/// A size in the options applies to a plain file only. A partition or another window must be large enough already.
///
/// # Errors
/// The target does not exist, is in use, or does not follow the grammar. The error says what to do.
pub fn open_target(spec: &str, options: &OpenOptions) -> Result<Arc<dyn BlockDevice>, OpenError> {
    if Path::new(spec).exists() {
        return Ok(FileDevice::open(spec, options)?);
    }
    if let Some(target) = bound(spec)? {
        return open_target(&target, options);
    }
    if let Some(path) = spec.strip_prefix("raw:") {
        return open_target(path, options).map_err(|error| unbound(path, error));
    }
    if nbd::is_nbd(spec) {
        return open_nbd(spec, options);
    }
    if let Some((layout, list)) = joined_list(spec) {
        return open_joined(spec, layout, list, options);
    }
    let bad = |why: String| OpenError::BadTarget { spec: spec.to_owned(), why };
    if spec.is_empty() {
        return Err(bad("it is empty; give the path of an image or a device".to_owned()));
    }
    let Some((outer, query)) = split_query(spec) else {
        if let Some(scheme) = unknown_scheme(spec) {
            if scheme == "sim" {
                return Err(bad(
                    "a simulated disk has no content; only the commands job and diskperf take it".to_owned(),
                ));
            }
            return Err(bad(format!(
                "unknown scheme `{scheme}:`; use PATH, raw:PATH, stripe:A,B, linear:A,B, md:A,B, lvm:A,B or nbd://HOST/EXPORT"
            )));
        }
        return Ok(FileDevice::open(spec, options)?);
    };
    let window = Window::parse(query).map_err(bad)?;
    let device = open_target(outer, &options.clone().create(Create::Never))?;
    window.open(device, options)
}

/// The target that a name is bound to. Bindings do not lead to each other.
fn bound(spec: &str) -> Result<Option<String>, OpenError> {
    let name = spec.strip_prefix("raw:").unwrap_or(spec);
    if !(spec.starts_with("raw:") || spec.starts_with("/dev/raw/")) || Path::new(name).exists() {
        return Ok(None);
    }
    let bad = |why: String| OpenError::Unbound { spec: spec.to_owned(), why };
    let bindings =
        RawBindings::of_user().map_err(|error| bad(format!("the bindings cannot be read: {error}")))?;
    match bindings.target(name) {
        Some(target) if leads_to_name(target) => {
            Err(bad(format!("it is bound to {target}, which is a bound name itself; bind it to the device")))
        }
        target => Ok(target.map(str::to_owned)),
    }
}

/// The target behind `raw:` and bound names.
fn resolved(spec: &str) -> Cow<'_, str> {
    if Path::new(spec).exists() {
        return spec.into();
    }
    match (bound(spec), spec.strip_prefix("raw:")) {
        (Ok(Some(target)), _) => resolved(&target).into_owned().into(),
        (_, Some(path)) => resolved(path),
        _ => spec.into(),
    }
}

/// The error for a name without a file says how to bind it.
fn unbound(name: &str, error: OpenError) -> OpenError {
    let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
    match error {
        OpenError::NotFound { .. } if is_name => OpenError::Unbound {
            spec: format!("raw:{name}"),
            why: format!(
                "there is no such file, and nothing is bound to the name; bind it (diorite raw {name} DEVICE)"
            ),
        },
        error => error,
    }
}

/// Whether a target contains a name that may be bound.
fn leads_to_name(target: &str) -> bool {
    !Path::new(target).exists() && (target.contains("raw:") || target.contains("/dev/raw/"))
}

fn open_nbd(spec: &str, options: &OpenOptions) -> Result<Arc<dyn BlockDevice>, OpenError> {
    let bad = |why: String| OpenError::BadTarget { spec: spec.to_owned(), why };
    let (uri, query) = nbd::parse(spec).map_err(bad)?;
    let window = if query.is_empty() { Window::default() } else { Window::parse(&query).map_err(bad)? };
    window.open(NbdDevice::open_parsed(uri, options)?, options)
}

/// The device, if it has the size that the options ask for.
fn large_enough(
    device: Arc<dyn BlockDevice>,
    options: &OpenOptions,
) -> Result<Arc<dyn BlockDevice>, OpenError> {
    match options.create {
        Create::Sized(wanted) | Create::NewSized(wanted) if wanted > device.geometry().capacity_bytes => {
            let (path, capacity) = (device.name().into(), device.geometry().capacity_bytes);
            Err(OpenError::CannotGrow { path, wanted, capacity })
        }
        _ => Ok(device),
    }
}

/// Whether opening the target with [`OpenOptions::create`] makes a file: it is a path that does not exist.
pub fn is_new_file(spec: &str) -> bool {
    let spec = &*resolved(spec);
    let has_grammar = nbd::is_nbd(spec) || joined_list(spec).is_some() || unknown_scheme(spec).is_some();
    !Path::new(spec).exists() && !has_grammar && split_query(spec).is_none()
}

/// The files and block devices of the host under a target that its name contains.
pub fn host_paths(spec: &str) -> Vec<PathBuf> {
    let spec = &*resolved(spec);
    if Path::new(spec).exists() {
        return vec![PathBuf::from(spec)];
    }
    if nbd::is_nbd(spec) {
        return Vec::new();
    }
    if let Some((_, list)) = joined_list(spec) {
        return Joined::of(list).members().flat_map(host_paths).collect();
    }
    split_query(spec).map_or_else(Vec::new, |(outer, _)| host_paths(outer))
}

/// The part that a target has of its files and devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TargetKind {
    /// All of one device, or of several that are striped or joined in a row.
    Whole,
    /// From an offset on, of the whole or of a member.
    Offset,
    /// A partition, of the whole or of a member.
    Partition,
    /// An MD array or an LVM2 volume: the metadata of its members says what belongs to it.
    Assembled,
}

/// The kind of a target, from its name.
pub fn kind_of_target(spec: &str) -> TargetKind {
    let spec = &*resolved(spec);
    if Path::new(spec).exists() {
        return TargetKind::Whole;
    }
    let (of_parts, query) = match joined_list(spec) {
        Some((JoinKind::Md | JoinKind::Lvm, _)) => return TargetKind::Assembled,
        Some((_, list)) => {
            let joined = Joined::of(list);
            (joined.members().map(kind_of_target).max(), joined.query)
        }
        None => split_query(spec).map_or((None, ""), |(outer, query)| (Some(kind_of_target(outer)), query)),
    };
    let has = |key| query.split(['&', '?']).any(|parameter| is_key(parameter, &[key]));
    let of_query = match (has("partition"), has("offset")) {
        (true, _) => TargetKind::Partition,
        (_, true) => TargetKind::Offset,
        _ => TargetKind::Whole,
    };
    of_query.max(of_parts.unwrap_or(TargetKind::Whole))
}

/// The first part of a target that does not exist and is not on another host. Bound names are not looked up.
fn missing_part(spec: &str) -> Option<&str> {
    if Path::new(spec).exists() || nbd::is_nbd(spec) {
        return None;
    }
    if let Some(path) = spec.strip_prefix("raw:") {
        return missing_part(path);
    }
    if let Some((_, list)) = joined_list(spec) {
        return Joined::of(list).members().find_map(missing_part);
    }
    split_query(spec).map_or(Some(spec), |(outer, _)| missing_part(outer))
}

/// A list of joined targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Joined<'a> {
    targets: &'a str,
    /// Options of the whole, separated by `&` or `?`.
    query: &'a str,
}

impl<'a> Joined<'a> {
    /// Parse the list. The last options after the last target belong to the whole, as do earlier ones that only a whole has.
    fn of(list: &'a str) -> Self {
        let last_at = list.rfind(',').map_or(0, |at| at + 1);
        let mut end = list.len();
        while let Some(at) = Self::query_at(&list[last_at..end], end == list.len()) {
            end = last_at + at;
        }
        Self { targets: &list[..end], query: list[end..].strip_prefix('?').unwrap_or_default() }
    }

    /// The start of the last part of a target's query, if it belongs to the whole target.
    fn query_at(target: &str, is_last: bool) -> Option<usize> {
        const WHOLE_KEYS: [&str; 2] = ["chunk", "volume"];
        let at = target.rfind('?').filter(|_| !Path::new(target).exists())?;
        let mut parameters = target[at + 1..].split('&');
        let is_window = |parameter: &str| parameter.is_empty() || is_key(parameter, &WINDOW_KEYS);
        let is_wholes = |parameter: &str| is_key(parameter, &WHOLE_KEYS) || is_last && is_window(parameter);
        // An export has a query of its own.
        let is_found =
            if nbd::is_nbd(target) { parameters.all(is_wholes) } else { parameters.any(is_wholes) };
        is_found.then_some(at)
    }

    fn members(self) -> impl Iterator<Item = &'a str> {
        self.targets.split(',').map(|target| target.strip_suffix('?').unwrap_or(target))
    }

    /// Whether the options of the whole may be meant for the last target, as other targets have some.
    fn is_ambiguous(self) -> bool {
        let has_part =
            |target: &str| split_query(target).is_some_and(|(_, query)| Window::parse(query).is_ok());
        let last = self.targets.rsplit(',').next().unwrap_or_default();
        let is_alone = !last.contains('?') && !self.query.contains(['?', '&']);
        is_alone && !last.is_empty() && is_key(self.query, &WINDOW_KEYS) && self.members().any(has_part)
    }
}

/// Whether a parameter of a query is a known one.
fn is_key(parameter: &str, keys: &[&str]) -> bool {
    let (key, _) = parameter.split_once('=').unwrap_or((parameter, ""));
    keys.contains(&key)
}

/// The combination of several devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JoinKind {
    Striped { chunk_bytes: u64 },
    Linear,
    Md,
    Lvm,
}

const JOINS: [(&str, JoinKind); 4] = [
    ("stripe:", JoinKind::Striped { chunk_bytes: CHUNK_BYTES }),
    ("linear:", JoinKind::Linear),
    ("md:", JoinKind::Md),
    ("lvm:", JoinKind::Lvm),
];

/// The kind of a join and its list of targets.
fn joined_list(spec: &str) -> Option<(JoinKind, &str)> {
    JOINS.into_iter().find_map(|(name, kind)| spec.strip_prefix(name).map(|list| (kind, list)))
}

/// The end of the target in `TARGET:/path`: at the first `:/` that is not part of a scheme. Each of several joined targets may have a
/// scheme.
pub fn end_of_target(name: &[u8]) -> Option<usize> {
    let after = |schemes: &[&str], at: usize| {
        let found = schemes.iter().find(|scheme| name[at..].starts_with(scheme.as_bytes()));
        at + found.map_or(0, |scheme| scheme.len())
    };
    let after_one = |at| after(&["raw:"], at).max(after(&nbd::SCHEMES, at));
    let first = after(&JOINS.map(|(name, _)| name), 0);
    let mut start = after_one(first);
    for at in 0..name.len() {
        if at < start {
            continue;
        }
        if first > 0 && name[at] == b',' {
            start = after_one(at + 1);
        } else if name[at..].starts_with(b":/") {
            return (at > start).then_some(at);
        }
    }
    None
}

fn open_joined(
    spec: &str,
    mut layout: JoinKind,
    list: &str,
    options: &OpenOptions,
) -> Result<Arc<dyn BlockDevice>, OpenError> {
    let bad = |why: String| OpenError::BadTarget { spec: spec.to_owned(), why };
    let joined = Joined::of(list);
    if joined.is_ambiguous() {
        let query = joined.query;
        return Err(bad(format!(
            "?{query} may be a part of the last device or of the whole; write ?{query}? for that device, ??{query} for the whole"
        )));
    }
    let mut volume = None;
    let mut window = Vec::new();
    for parameter in joined.query.split(['&', '?']) {
        match parameter.split_once('=') {
            Some(("volume", _)) if layout != JoinKind::Lvm => {
                return Err(bad("?volume belongs to lvm:".to_owned()));
            }
            Some(("volume", name)) => volume = Some(name),
            Some(("chunk", chunk)) => {
                let JoinKind::Striped { chunk_bytes } = &mut layout else {
                    return Err(bad("?chunk belongs to stripe:".to_owned()));
                };
                let given = parse_size(chunk).filter(|bytes| *bytes > 0);
                *chunk_bytes = given.ok_or_else(|| bad(format!("chunk={chunk}: give bytes, such as 64K")))?;
            }
            _ => window.push(parameter),
        }
    }
    let window = Window::parse(&window.join("&")).map_err(bad)?;
    if joined.members().any(str::is_empty) {
        return Err(bad("give the targets with commas between them, as in stripe:A,B".to_owned()));
    }
    let targets: Vec<_> = joined.members().collect();
    if let Some(twice) = (1..targets.len()).find(|at| targets[..*at].contains(&targets[*at])) {
        return Err(bad(format!("{} is named twice; name each device once", targets[twice])));
    }
    let inner = options.clone().create(Create::Never);
    let children = targets.into_iter().map(|target| open_target(target, &inner)).collect::<Result<_, _>>()?;
    let for_writing = options.access == Access::ReadWrite;
    let device: Arc<dyn BlockDevice> = match layout {
        JoinKind::Striped { chunk_bytes } => JoinedDevice::striped(children, chunk_bytes)?,
        JoinKind::Linear => JoinedDevice::linear(children)?,
        JoinKind::Md => md::open(spec, children, for_writing)?,
        JoinKind::Lvm => lvm::open(spec, children, volume, for_writing)?,
    };
    window.open(device, options)
}

/// Why the MD array that a target names is read-only, if it is. Nothing is opened for writing.
pub fn array_read_only_reason(spec: &str) -> Option<String> {
    let (JoinKind::Md, list) = joined_list(spec)? else { return None };
    let members = Joined::of(list).members().map(|member| open_target(member, &OpenOptions::read_only()));
    md::read_only_reason(members.collect::<Result<_, _>>().ok()?)
}

/// Splits at the last `?`, unless an earlier one ends an existing path.
fn split_query(spec: &str) -> Option<(&str, &str)> {
    let path_of = |name: &'_ str| name.strip_prefix("raw:").unwrap_or(name).to_owned();
    let mut splits = spec.match_indices('?').map(|(at, _)| (&spec[..at], &spec[at + 1..]));
    splits.clone().rev().find(|(outer, _)| Path::new(&path_of(outer)).exists()).or_else(|| splits.next_back())
}

/// `name` of `name:...`, if it is hardly a path.
fn unknown_scheme(spec: &str) -> Option<&str> {
    let (scheme, _) = spec.split_once(':')?;
    (scheme.len() > 1 && scheme.bytes().all(|byte| byte.is_ascii_alphabetic())).then_some(scheme)
}

/// Options that choose a part of a target.
const WINDOW_KEYS: [&str; 2] = ["partition", "offset"];

/// The options after the `?`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Window {
    partition: Option<u32>,
    offset_bytes: Option<u64>,
}

impl Window {
    fn parse(query: &str) -> Result<Self, String> {
        let mut window = Self::default();
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            let (key, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            match key {
                "partition" if window.partition.is_some() => return Err(format!("{key} is given twice")),
                "offset" if window.offset_bytes.is_some() => return Err(format!("{key} is given twice")),
                "partition" => {
                    let number = value.parse().ok().filter(|number| *number > 0);
                    let why = || format!("partition={value}: give a number from 1 on");
                    window.partition = Some(number.ok_or_else(why)?);
                }
                "offset" => {
                    let why = || format!("offset={value}: give bytes, or a number with K, M, G or T");
                    window.offset_bytes = Some(parse_size(value).ok_or_else(why)?);
                }
                _ => return Err(format!("?{key} is not known; use ?partition=N or ?offset=BYTES")),
            }
        }
        Ok(window)
    }

    /// Open the part of the device.
    fn open(
        self,
        mut device: Arc<dyn BlockDevice>,
        options: &OpenOptions,
    ) -> Result<Arc<dyn BlockDevice>, OpenError> {
        let is_part = self != Self::default();
        if is_part && options.access == Access::ReadWrite {
            let whole = whole_of_part(&*device, self.partition.is_some());
            if let Some(whole) = whole {
                return Err(OpenError::PartOfMember { device: device.name(), whole });
            }
        }
        if let Some(number) = self.partition {
            device = PartitionDevice::open(device, number)?;
        }
        if let Some(offset) = self.offset_bytes {
            device = PartitionDevice::at_offset(device, offset)?;
        }
        large_enough(device, options)
    }
}

/// A number of bytes, with K, M, G or T for powers of 1024.
fn parse_size(text: &str) -> Option<u64> {
    let unit_at = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(unit_at);
    let factor = match unit.to_ascii_uppercase().as_str() {
        "" => 1,
        "K" | "KIB" => 1 << 10,
        "M" | "MIB" => 1 << 20,
        "G" | "GIB" => 1 << 30,
        "T" | "TIB" => 1_u64 << 40,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units_and_do_not_wrap() {
        assert_eq!(parse_size("512"), Some(512));
        assert_eq!(parse_size("64k"), Some(65536));
        assert_eq!(parse_size("2GiB"), Some(2 << 30));
        assert_eq!(parse_size("16777216T"), None);
        assert_eq!(parse_size("K"), None);
        assert_eq!(parse_size("-1"), None);
        assert_eq!(parse_size("1.5M"), None);
    }

    #[test]
    fn a_name_says_what_part_of_a_device_it_is() {
        use TargetKind::{Assembled, Offset, Partition, Whole};
        for (name, kind) in [
            ("a.img", Whole),
            ("a.img?offset=1M", Offset),
            ("a.img?partition=2", Partition),
            ("a.img?offset=1M&partition=2", Partition),
            ("stripe:a,b", Whole),
            ("stripe:a,b?chunk=64K", Whole),
            ("stripe:a?partition=1,b?partition=1?", Partition),
            ("linear:a,b?chunk=64K&offset=4K", Offset),
            ("md:a,b", Assembled),
            ("md:a,b?partition=1", Assembled),
            ("lvm:a,b?volume=v", Assembled),
            ("nbd://host/export", Whole),
        ] {
            assert_eq!(kind_of_target(name), kind, "{name}");
        }
    }

    #[test]
    fn windows_are_understood_or_explained() {
        let both = Window { partition: Some(2), offset_bytes: Some(4096) };
        assert_eq!(Window::parse("partition=2&offset=4K"), Ok(both));
        assert!(Window::parse("partition=0").unwrap_err().contains("from 1 on"));
        assert!(Window::parse("partition=1&partition=2").unwrap_err().contains("twice"));
        assert!(Window::parse("part=1").unwrap_err().contains("?partition=N"));
        assert!(Window::parse("offset=x").unwrap_err().contains("bytes"));
    }

    #[test]
    fn what_a_target_stands_on_is_in_its_name() {
        assert_eq!(host_paths("raw:/dev/null?offset=4K"), [PathBuf::from("/dev/null")]);
        let both = host_paths("stripe:/dev/null,/dev/zero?partition=1?chunk=4K");
        assert_eq!(both, [PathBuf::from("/dev/null"), PathBuf::from("/dev/zero")]);
        assert!(host_paths("sim:ideal").is_empty());
    }

    /// `linear:A,B?offset=16M` opened all of A and a part of B.
    #[test]
    fn what_follows_the_last_target_is_said_of_the_whole() {
        for (list, targets, query) in [
            ("a,b", "a,b", ""),
            ("a,b?offset=1M", "a,b", "offset=1M"),
            ("a,b?chunk=4K&offset=1M", "a,b", "chunk=4K&offset=1M"),
            ("a,b?partition=1&volume=x", "a,b", "partition=1&volume=x"),
            ("a,b?volume=x?partition=1", "a,b", "volume=x?partition=1"),
            ("a,b?offset=1M?chunk=4K", "a,b?offset=1M", "chunk=4K"),
            ("a?partition=1,b?partition=2?", "a?partition=1,b?partition=2", ""),
            ("a?partition=1,b?partition=2?partition=3", "a?partition=1,b?partition=2", "partition=3"),
            ("a?partition=1,b??partition=3", "a?partition=1,b?", "partition=3"),
            ("nbd://h/a,nbd+unix:///b?socket=/s", "nbd://h/a,nbd+unix:///b?socket=/s", ""),
            ("nbd://h/a,nbd+unix:///b?socket=/s?offset=1M", "nbd://h/a,nbd+unix:///b?socket=/s", "offset=1M"),
            ("a,b?colour=red", "a,b?colour=red", ""),
        ] {
            assert_eq!(Joined::of(list), Joined { targets, query }, "{list}");
        }
        assert_eq!(Joined::of("a,b??offset=1M").members().collect::<Vec<_>>(), ["a", "b"]);
        for (list, is_ambiguous) in [
            ("a?partition=1,b?partition=1", true),
            ("a,b?partition=1", false),
            ("a?partition=1,b?partition=1?", false),
            ("a?partition=1,b??partition=1", false),
            ("a?partition=1,b?volume=x&partition=1", false),
        ] {
            assert_eq!(Joined::of(list).is_ambiguous(), is_ambiguous, "{list}");
        }
    }

    #[test]
    fn the_last_question_mark_starts_the_query() {
        assert_eq!(split_query("/no/such?x?partition=1"), Some(("/no/such?x", "partition=1")));
        assert_eq!(split_query("raw:/?offset=1"), Some(("raw:/", "offset=1")));
        assert_eq!(split_query("plain"), None);
    }
}
