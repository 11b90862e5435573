//! The answer for each group of files: which way, and what it changes.

mod page;
mod report;
mod sentence;

use serde::{Deserialize, Serialize};

use crate::group::{Group, Pattern, groups};
use crate::predict::{Conditions, DIRECT_WAYS, GroupPrediction, Prediction, Predictor, Way};
use crate::probe::Probes;
use crate::simulate::{CurvePoint, hit_curve, working_set_bytes};
use crate::trace::{Source, Trace};

pub use page::page;
pub use report::{plot, report, table};

/// Ways that differ by less than this factor are the same.
const SAME: f64 = 1.1;
/// A simpler way is preferred to one that is faster by less than this factor.
const SIMPLER: f64 = 1.03;
/// Groups whose calls take less of the run than this share do not matter.
const SHARE_MIN: f64 = 0.02;

/// What to do with a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Choice {
    /// Use direct I/O.
    UseDirect,
    /// Use the page cache.
    UseCache,
    /// The ways are the same, or the group does not matter.
    LeaveAsIs,
    /// The calls do not show it.
    Unknown,
}

/// The answer for one group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GroupAdvice {
    /// The group.
    pub group: Group,
    /// What to do.
    pub choice: Choice,
    /// In one sentence.
    pub sentence: String,
    /// The best way of direct I/O.
    pub way: Way,
    /// The way of the recorded run.
    pub recorded: Way,
    /// Rate of that way, as a multiple of the rate through the page cache.
    pub rate: f64,
    /// CPU time of the calls, as a multiple.
    pub cpu: f64,
    /// Rate of all other groups if only this one changes, as a multiple.
    pub others_rate: f64,
    /// The page cache that it would not use.
    pub freed_bytes: u64,
    /// Through the page cache.
    pub buffered: GroupPrediction,
    /// In the best way of direct I/O.
    pub direct: GroupPrediction,
    /// Elapsed time of the run if only this group uses that way.
    pub run_s: f64,
    /// CPU time of that run.
    pub run_cpu_s: Option<f64>,
}

/// How far the figures can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Confidence {
    /// The model reproduces the recorded run within a tenth, and nearly all input and output was seen.
    High,
    /// Within a quarter.
    Middle,
    /// Not reproduced, or much was not seen.
    Low,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Advice {
    /// The groups, those with the most bytes first.
    pub groups: Vec<GroupAdvice>,
    /// All groups through the page cache.
    pub buffered: Prediction,
    /// Each group in its best way of direct I/O.
    pub direct: Prediction,
    /// Each group as advised.
    pub advised: Prediction,
    /// What the model takes for the recorded run.
    pub modelled_s: f64,
    /// What the recorded run took, without the cost of recording.
    pub recorded_s: f64,
    /// See [`Confidence`].
    pub confidence: Confidence,
    /// Hit rates over the size of the cache.
    pub curve: Vec<CurvePoint>,
    /// Size of all used pages.
    pub working_set_bytes: u64,
    /// Memory for files.
    pub cache_bytes: u64,
    /// What the answer takes for granted.
    pub assumptions: Vec<String>,
}

/// What the caller knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Question {
    /// Memory for files, instead of what the probes found.
    pub memory_bytes: Option<u64>,
    /// Memory for a cache of the program, instead of as much.
    pub own_cache_bytes: Option<u64>,
    /// The caches hold what an earlier run left.
    pub is_warm: bool,
}

/// Answer.
pub fn advise(trace: &Trace, probes: &Probes, question: Question) -> Advice {
    let memory = question.memory_bytes.unwrap_or(probes.memory_bytes);
    let cache_bytes = memory.saturating_sub(trace.memory_bytes).max(memory / 16);
    let groups = groups(trace);
    let own_bytes = question.own_cache_bytes.unwrap_or(cache_bytes);
    let conditions = Conditions { probes, cache_bytes, own_bytes, is_warm: question.is_warm };
    let predictor = Predictor::new(trace, &groups, conditions);
    let recorded = predictor.recorded_ways();
    let buffered = predictor.predict(&vec![Way::Buffered; groups.len()]);
    let modelled_s = predictor.predict(&recorded).seconds;
    let recorded_s = (trace.seconds - trace.cost_s).max(0.0);
    let mut advice: Vec<GroupAdvice> = groups
        .iter()
        .enumerate()
        .map(|(number, group)| of_group(&predictor, &buffered, (number, group), recorded[number], probes))
        .collect();
    let best: Vec<Way> = advice.iter().map(|group| group.way).collect();
    let advised: Vec<Way> = advice.iter().map(GroupAdvice::advised).collect();
    for group in &mut advice {
        group.sentence = sentence::sentence(group, own_bytes, probes.direct.is_some());
    }
    Advice {
        groups: advice,
        direct: predictor.predict(&best),
        advised: predictor.predict(&advised),
        buffered,
        modelled_s,
        recorded_s,
        confidence: confidence(trace, modelled_s, recorded_s),
        curve: hit_curve(trace),
        working_set_bytes: working_set_bytes(trace),
        cache_bytes,
        assumptions: assumptions(trace, probes, question, (cache_bytes, own_bytes)),
    }
}

impl GroupAdvice {
    /// The way to use.
    pub fn advised(&self) -> Way {
        match self.choice {
            Choice::UseDirect => self.way,
            Choice::UseCache => Way::Buffered,
            Choice::LeaveAsIs | Choice::Unknown => self.recorded,
        }
    }
}

fn of_group(
    predictor: &Predictor<'_>,
    buffered: &Prediction,
    (number, group): (usize, &Group),
    recorded: Way,
    probes: &Probes,
) -> GroupAdvice {
    let own = buffered.groups[number];
    let with = |way| {
        let mut ways = vec![Way::Buffered; buffered.groups.len()];
        ways[number] = way;
        (way, predictor.predict(&ways))
    };
    let is_seen = group.pattern != Pattern::Mapped && group.totals.calls() > 0;
    let (way, best) = if is_seen && probes.direct.is_some() {
        DIRECT_WAYS
            .into_iter()
            // Without hits a cache of the program would hold nothing that is used again.
            .filter(|way| *way != Way::OwnCache || own.hit_rate() > 0.05)
            .map(with)
            .reduce(|best, other| if other.1.seconds * SIMPLER < best.1.seconds { other } else { best })
            .unwrap_or_else(|| (Way::Buffered, buffered.clone()))
    } else {
        (Way::Buffered, buffered.clone())
    };
    let direct = best.groups[number];
    let ratio = |above: f64, below: f64| if below > 0.0 { above / below } else { 1.0 };
    let others = |run: &Prediction| run.groups[number].others_s;
    let mut advice = GroupAdvice {
        group: group.clone(),
        choice: Choice::Unknown,
        sentence: String::new(),
        way,
        recorded,
        rate: ratio(own.seconds(), direct.seconds()),
        cpu: ratio(direct.cpu_s, own.cpu_s),
        others_rate: ratio(others(buffered), others(&best)),
        freed_bytes: own.cached_bytes.saturating_sub(direct.cached_bytes),
        buffered: own,
        direct,
        run_s: best.seconds,
        run_cpu_s: best.cpu_s,
    };
    advice.choice = if is_seen { choice(&advice, buffered) } else { Choice::Unknown };
    advice
}

fn choice(advice: &GroupAdvice, buffered: &Prediction) -> Choice {
    let calls = advice.buffered.call_s.max(advice.direct.call_s);
    let affects_others = advice.others_rate > SAME || advice.others_rate < 1.0 / SAME;
    if advice.way == Way::Buffered || (calls < SHARE_MIN * buffered.seconds && !affects_others) {
        return Choice::LeaveAsIs;
    }
    if advice.rate >= SAME {
        return Choice::UseDirect;
    }
    if advice.rate <= 1.0 / SAME {
        return Choice::UseCache;
    }
    if affects_others {
        return if advice.others_rate > 1.0 { Choice::UseDirect } else { Choice::UseCache };
    }
    let cpu = match (advice.run_cpu_s, buffered.cpu_s) {
        (Some(direct), Some(buffered)) if buffered > 0.0 => direct / buffered,
        _ => advice.cpu,
    };
    if cpu <= 1.0 / SAME {
        Choice::UseDirect
    } else if cpu >= SAME {
        Choice::UseCache
    } else {
        Choice::LeaveAsIs
    }
}

fn confidence(trace: &Trace, modelled_s: f64, recorded_s: f64) -> Confidence {
    let ratio = (modelled_s / recorded_s.max(1e-9)).max(recorded_s / modelled_s.max(1e-9));
    let unseen = trace.unseen.mapped.saturating_add(trace.unseen.read).saturating_add(trace.unseen.written);
    let unseen_share = unseen as f64 / trace.bytes().saturating_add(unseen).max(1) as f64;
    if ratio <= SAME && unseen_share < 0.1 && trace.unseen.rings == 0 {
        Confidence::High
    } else if ratio <= 1.25 && unseen_share < 0.3 {
        Confidence::Middle
    } else {
        Confidence::Low
    }
}

fn assumptions(
    trace: &Trace,
    probes: &Probes,
    question: Question,
    (cache_bytes, own_bytes): (u64, u64),
) -> Vec<String> {
    use sentence::size;
    let begin = if question.is_warm { "hold what an earlier run left" } else { "begin without these files" };
    let mut all = vec![
        format!("The page cache has {}. A cache of the program would have {}. Caches {begin}.",
            size(cache_bytes),
            size(own_bytes)),
        "Times between calls stay the same. CPU time is that of the program; threads of the kernel that write dirty pages are not in it."
            .to_owned(),
    ];
    if probes.direct.is_none() {
        all.push("This filesystem has no direct I/O.".to_owned());
    }
    if trace.source == Source::Strace {
        all.push(format!(
            "strace took about {:.1} s of the recorded {:.1} s; it is subtracted.",
            trace.cost_s, trace.seconds
        ));
    }
    let unseen = trace.unseen;
    if unseen.mapped > 0 {
        all.push(format!("{} of files were mapped. Accesses to them were not seen.", size(unseen.mapped)));
    }
    if unseen.read + unseen.written > 1 << 20 {
        all.push(format!(
            "{} were read and {} written by calls that were not seen; pipes and terminals are included.",
            size(unseen.read),
            size(unseen.written)
        ));
    }
    if unseen.rings > 0 {
        all.push(format!(
            "{} rings of io_uring or AIO were used. Their transfers were not seen.",
            unseen.rings
        ));
    }
    if unseen.lost > 0 {
        all.push(format!("{} records were lost.", unseen.lost));
    }
    if std::fs::read_to_string("/sys/kernel/mm/lru_gen/enabled").is_ok_and(|text| text.trim() != "0x0000") {
        all.push("This kernel uses the multi-generational LRU. The model has the two lists.".to_owned());
    }
    all
}

#[cfg(test)]
mod tests;
