//! The histories of several routers together: what all of them had in a time.
//!
//! Each router answers for itself, with the code that answers for one. Their totals and lists are then added up like
//! those of windows: a key has at most what each router that does not list it says of keys without a row. Distinct
//! values count once, whichever routers saw them, if these have the secret of a fleet; else the count is at least that
//! of one router, and at most the sum.
//!
//! Nothing is added up that does not belong together. Rows of networks and rows of addresses are not the same keys, so
//! routers that mask addresses otherwise than most stay apart, with the reason.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use jiff::Timestamp;
use serde::Serialize;
use weir_config::Addresses;
use weir_schema::{Distinct, Gap, Length, Observer, PastAlert, Union, Unique};

use crate::{
    distinct::DistinctsOfTime,
    stored::{Stored, observer_of},
    time::Time,
    windows::Windows,
};

/// The most routers: each takes some megabytes while it answers.
const ROUTERS_MAX: usize = 1024;

/// What several routers had in a time.
#[derive(Clone, Debug)]
pub struct Several {
    /// The sums, lists and counts of all routers that are added up. It has no alerts, ids or gaps: each router has its
    /// own.
    pub union: Union,
    /// Each router, in the order of the folders.
    pub routers: Vec<OneOfSeveral>,
}

/// One of the routers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OneOfSeveral {
    /// Its name.
    pub name: String,
    /// Its identity.
    pub id: String,
    /// Its site, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub site: Option<String>,
    /// The folder of its history.
    pub folder: PathBuf,
    /// The start of its first window of this time, if it has any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<Timestamp>,
    /// The end of the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<Timestamp>,
    /// How many windows these are.
    pub windows: u64,
    /// How much of addresses it has: `full`, `prefix` or `none`.
    pub addresses: String,
    /// The parts of the time without windows.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<Gap>,
    /// From when on it remembers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reaches_back_to: Option<Timestamp>,
    /// Its alerts that were firing, with their evidence.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub alerts: Vec<PastAlert>,
    /// Why it is not added up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_out: Option<String>,
}

/// What a router answers.
struct Answered {
    router: OneOfSeveral,
    union: Option<Union>,
    /// The sketches of its distinct counts, and the counts of windows that have none.
    sketched: Option<(DistinctsOfTime, Vec<Unique>)>,
}

impl Several {
    /// Reads the histories in these folders.
    ///
    /// # Errors
    ///
    /// A folder has no history, two have that of the same router, or none has a window of this time.
    pub fn read(folders: &[PathBuf], time: &Time) -> Result<Self, String> {
        if folders.len() > ROUTERS_MAX {
            return Err(format!("{} folders: at most {ROUTERS_MAX} at a time", folders.len()));
        }
        distinct_routers(folders)?;
        let answered = folders.iter().map(|folder| Answered::of(folder, time)).collect::<Result<Vec<_>, String>>()?;
        Self::of(answered)
    }

    fn of(mut answered: Vec<Answered>) -> Result<Self, String> {
        let usual = usual(&answered);
        for Answered { router, union, .. } in &mut answered {
            let is_other = union.as_ref().is_some_and(|union| Some(union.shown_addresses()) != usual);
            if is_other {
                let most = usual.map_or("", Addresses::name);
                router.left_out = Some(format!(
                    "its rows have other keys than those of most: its addresses are masked as `{}` says, theirs as `{most}` \
                     does",
                    router.addresses
                ));
                *union = None;
            }
        }
        let (mut routers, mut parts) = (Vec::new(), Vec::new());
        let (mut sketches, mut others) = (DistinctsOfTime::default(), Vec::new());
        for Answered { router, union, sketched } in answered {
            routers.push(router);
            let Some(union) = union else { continue };
            match sketched {
                Some((of_router, counts)) => {
                    sketches.join(of_router);
                    others.extend(counts);
                }
                None => others.push(union.unique),
            }
            parts.push(union);
        }
        let mut union = Union::join(&parts).ok_or_else(|| {
            let why = routers
                .iter()
                .filter_map(|router| Some(format!("{}: {}", router.folder.display(), router.left_out.as_ref()?)));
            why.collect::<Vec<_>>().join("; ")
        })?;
        // They measured at the same time, so the time is as long as the longest.
        let seconds = parts.iter().filter_map(|part| part.window.seconds.seconds()).reduce(f64::max);
        union.window.seconds = seconds.map_or_else(Length::default, Length::new);
        union.window.clock_step_seconds = None;
        if let Some(counts) = sketches.counts() {
            union.narrow(others.into_iter().fold(counts, Unique::or));
        }
        union.reaches_back_to = routers.iter().filter_map(|router| router.reaches_back_to).max();
        (union.alerts, union.fired, union.missing, union.reports) = Default::default();
        Ok(Self { union, routers })
    }

    /// The distinct counts with their names.
    pub fn distinct(&self) -> [(&'static str, Distinct); 3] {
        let Unique { src_ip, dst_ip, flows } = self.union.unique;
        [("sources", src_ip), ("destinations", dst_ip), ("flows", flows)]
    }
}

/// No router may be there twice: its packets would count twice.
fn distinct_routers(folders: &[PathBuf]) -> Result<(), String> {
    let mut known: BTreeMap<String, &Path> = BTreeMap::new();
    for folder in folders {
        let Some(observer) = observer_of(folder) else { return Err(no_history(folder)) };
        if let Some(other) = known.insert(observer.clone(), folder) {
            return Err(format!(
                "{} and {} have the history of the same router ({observer}): name one of them",
                other.display(),
                folder.display()
            ));
        }
    }
    Ok(())
}

fn no_history(folder: &Path) -> String {
    format!("{} has no history: name a folder with files such as windows-000000000000", folder.display())
}

/// How most routers mask addresses; if it is undecided, how the first of these does.
fn usual(answered: &[Answered]) -> Option<Addresses> {
    let shown = |answered: &Answered| answered.union.as_ref().map(Union::shown_addresses);
    let count = |addresses: Addresses| answered.iter().filter(|of| shown(of) == Some(addresses)).count();
    // Of equal ones, `max_by_key` takes the last.
    answered.iter().rev().filter_map(shown).max_by_key(|addresses| count(*addresses))
}

impl Answered {
    fn of(folder: &Path, time: &Time) -> Result<Self, String> {
        let stored = Stored::open(folder).ok_or_else(|| no_history(folder))?;
        let windows = stored.windows();
        let Some(union) = windows.span(time) else { return Self::without_windows(folder, windows) };
        let sketched = windows.sketched(&windows.cuts(time), time);
        let Observer { name, id, site, .. } = union.observer.clone();
        let router = OneOfSeveral {
            name,
            id,
            site,
            folder: folder.to_owned(),
            from: Some(union.window.start),
            to: Some(union.window.end),
            windows: union.windows,
            addresses: union.shown_addresses().name().to_owned(),
            missing: union.missing.clone(),
            reaches_back_to: union.reaches_back_to,
            alerts: union.alerts.clone(),
            left_out: None,
        };
        Ok(Self { router, union: Some(union), sketched })
    }

    /// A router that has nothing of this time. Its name is that of its newest window.
    fn without_windows(folder: &Path, windows: &Windows) -> Result<Self, String> {
        let newest = windows.last(1, None).and_then(|time| windows.span(&time)).ok_or_else(|| no_history(folder))?;
        let (oldest, latest) = (windows.oldest().unwrap_or_default(), windows.newest().unwrap_or_default());
        let addresses = newest.shown_addresses().name().to_owned();
        let Observer { name, id, site, .. } = newest.observer;
        let router = OneOfSeveral {
            name,
            id,
            site,
            folder: folder.to_owned(),
            from: None,
            to: None,
            windows: 0,
            addresses,
            missing: Vec::new(),
            reaches_back_to: windows.oldest(),
            alerts: Vec::new(),
            left_out: Some(format!("it has no window of this time, only from {oldest:.0} to {latest:.0}")),
        };
        Ok(Self { router, union: None, sketched: None })
    }
}

#[cfg(test)]
mod tests;
