//! The answer about a time: its seconds in steps, and its windows.

use jiff::Timestamp;
use weir_schema::{History, Reach, Steps};

use crate::{seconds::Seconds, time::Time, windows::Windows};

/// The number of steps if the client does not say how many.
pub const POINTS: usize = 360;
/// Maximum number of steps.
pub const POINTS_MAX: usize = 3600;
/// The most steps of all interfaces together. With more interfaces, steps are longer, so that an answer fits into the
/// memory that is planned for it.
const CELLS_MAX: usize = 8 * POINTS_MAX;

/// The history of this time, in at most this many steps.
pub fn history(seconds: &Seconds, windows: &Windows, time: &Time, points: usize) -> History {
    let reach = Reach { seconds: seconds.oldest(), windows: windows.oldest() };
    let known = [seconds.newest(), windows.newest()].into_iter().flatten().max();
    let to = time.to.or(known).unwrap_or(Timestamp::UNIX_EPOCH);
    let from = time.from.or([reach.seconds, reach.windows].into_iter().flatten().min()).unwrap_or(to).min(to);
    let points = points.min(CELLS_MAX / seconds.tracks().max(1));
    let steps = Steps::new(from, to, points);
    History::new(steps, reach, seconds.sums(&steps), &windows.index(time), points)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use weir_config::Addresses;

    use super::*;
    use crate::{
        seconds::{Carried, Counts},
        testing::{START, add, at, report},
    };

    #[test]
    fn an_hour_is_answered_in_steps_of_whole_seconds() {
        let (mut seconds, mut windows) = (Seconds::default(), Windows::new(1 << 20, Addresses::Full));
        let nothing = history(&seconds, &windows, &Time::default(), 10);
        assert_eq!((nothing.windows, nothing.interfaces, nothing.step_seconds), (vec![], vec![], 1));
        for second in 1..=600 {
            let counts = Some(Counts { packets: 3, bytes: 180, lost: 0 });
            let interface = Carried { name: "eth0", direction: Some("ingress"), counts };
            seconds.add(at(second), Duration::from_secs(1), [interface].into_iter());
        }
        for nth in 0..60 {
            add(&mut windows, &report(nth, &[(1, 30)]));
        }
        let all = history(&seconds, &windows, &Time::default(), 7);
        assert_eq!((all.from, all.to, all.step_seconds), (at(0), at(7 * 86), 86));
        let packets = &all.interfaces[0].packets;
        assert_eq!(packets.iter().flatten().sum::<u64>(), 1800);
        assert_eq!((packets.len(), all.windows.len()), (7, 7));
        assert_eq!(all.windows.iter().map(|past| past.packets).sum::<u64>(), 1800);
        assert_eq!(all.reaches_back_to, Reach { seconds: Some(at(0)), windows: Some(at(0)) });
        let time = Time { from: Some(at(-50)), to: Some(at(50)) };
        let part = history(&seconds, &windows, &time, 100);
        assert_eq!((part.from.as_second() - START, part.step_seconds), (-50, 1));
        assert_eq!(part.interfaces[0].bytes[49..51], [None, Some(180)]);
        assert_eq!(part.windows.len(), 5);
    }

    #[test]
    fn many_interfaces_have_longer_steps() {
        let (mut seconds, windows) = (Seconds::default(), Windows::new(1 << 20, Addresses::Full));
        let names: Vec<_> = (0..64).map(|nth| format!("eth{nth}")).collect();
        let counts = Some(Counts { packets: 1, bytes: 60, lost: 0 });
        for second in 1..=3600 {
            let all = names.iter().map(|name| Carried { name, direction: None, counts });
            seconds.add(at(second), Duration::from_secs(1), all);
        }
        let all = history(&seconds, &windows, &Time::default(), POINTS_MAX);
        let cells: usize = all.interfaces.iter().map(|interface| interface.packets.len()).sum();
        assert!(all.interfaces.len() == 64 && cells <= CELLS_MAX, "{cells} cells");
        assert!(all.interfaces.iter().all(|one| one.packets.iter().flatten().sum::<u64>() == 3600));
    }
}
