//! The keys of the sketches: one for each day, the same on all routers with the same secret.
//!
//! The width of a row's bounds shows a reader of reports how full a cell of a sketch is. A reader who also sends
//! packets can learn a little about the key in each window. So this knowledge must not stay useful for long:
//!
//! - The key of a window is derived from the secret and from the UTC day on which the window begins. While a worker is
//!   late, the key stays: the worker still has records in sketches of the earlier key.
//! - Which keys share a cell of a top list also depends on secret places. All shards of a window have the same places,
//!   and each window has new ones. So knowledge about cells from a report is useless in the next window.
//! - Each shard has new coins for its top lists in each window. Neither coins nor places are derived from the secret of
//!   a fleet.
//!
//! The filter of seen flows outlives the last window of a day. A generation keeps the key with which it began;
//! otherwise each flow would be new at midnight. Until the generation is dropped, each shard also computes hashes with
//! that key.

use std::sync::Arc;

use jiff::Timestamp;
use weir_config::{Estimates, Secret};
use weir_sketch::{Seen, hash::Key};

use crate::{
    local::Local,
    local_shard::{Common, LocalShard},
    question::Views,
    shard::{Secrets, Shard},
};

const DAY_SECONDS: i64 = 86_400;

/// The secret, and which keys derived from it are in use.
pub struct Keys {
    secret: Secret,
    coins: Key,
    /// How many shards were given coins.
    equipped: u64,
    /// The key of the latest window.
    window: Key,
    /// The number of the latest window, from 0 on.
    number: u64,
    /// The places of the latest window.
    places: Key,
    /// The key of the previous window and the keys of the generations of seen flows, if they differ from the latest.
    earlier: Vec<Key>,
    /// What shards measure with the local key, if anything.
    local: Option<Common>,
}

impl Keys {
    /// The keys derived from `secret`, for a first window that begins at `start`. All coins and places are derived from
    /// `coins`, which must differ in each run.
    pub fn new(secret: impl Into<Secret>, coins: Key, start: Timestamp) -> Self {
        let secret = secret.into();
        let (window, places) = (of_day(&secret, start), of_window(coins, 0, start));
        Self { secret, coins, equipped: 0, window, number: 0, places, earlier: Vec::new(), local: None }
    }

    /// Has the shards that are made from now on measure with the local key, too.
    pub fn add_local(&mut self, local: Option<&Local>) {
        self.local = local.map(Local::common);
    }

    /// The fingerprint of the latest window's key.
    pub fn id(&self) -> u64 {
        self.window.id()
    }

    /// Starts again, with a first window that begins at `start` and an empty filter of seen flows.
    pub fn restart(&mut self, start: Timestamp, seen: &Seen) {
        self.window = of_day(&self.secret, start);
        self.begin(start);
        self.earlier.clear();
        seen.clear_for(self.id());
    }

    /// Returns true if a window that begins at `start` has another key than the latest one.
    pub fn change_by(&self, start: Timestamp) -> bool {
        of_day(&self.secret, start) != self.window
    }

    /// Advances to the window that begins at `start`.
    ///
    /// The filter of seen flows may be rotated at this moment, so the new generation may have the key of either window.
    pub fn advance(&mut self, start: Timestamp, seen: &Seen) {
        self.advance_with(of_day(&self.secret, start), start, seen);
    }

    /// Advances to the window that begins at `start`, and keeps the key of the window before.
    pub fn advance_with_same(&mut self, start: Timestamp, seen: &Seen) {
        self.advance_with(self.window, start, seen);
    }

    fn advance_with(&mut self, key: Key, start: Timestamp, seen: &Seen) {
        let before = std::mem::replace(&mut self.window, key);
        self.begin(start);
        let generations = seen.key_ids();
        self.earlier.retain(|key| *key != before && generations.contains(&key.id()));
        self.earlier.push(before);
        self.earlier.retain(|key| *key != self.window);
    }

    fn begin(&mut self, start: Timestamp) {
        self.number += 1;
        self.places = of_window(self.coins, self.number, start);
    }

    /// A shard for the latest window, with a sketch for each of these views.
    pub fn shard(&mut self, settings: &Estimates, views: &Arc<Views>) -> Box<Shard> {
        let mut shard = Box::new(Shard::new(settings, views, self.window));
        shard.local = self.local.as_ref().map(|common| Box::new(LocalShard::new(common)));
        self.equip(&mut shard);
        shard
    }

    /// Prepares an empty shard for the latest window.
    pub fn equip(&mut self, shard: &mut Shard) {
        let coins = self.coins.derive(&format!("shard {}", self.equipped));
        self.equipped += 1;
        let secrets = Secrets { window: self.number, coins, places: self.places };
        shard.rekey(self.window, &self.earlier, secrets);
    }
}

/// The key of the UTC day of this instant.
fn of_day(secret: &Secret, instant: Timestamp) -> Key {
    key_of(secret, instant.as_second().div_euclid(DAY_SECONDS))
}

fn key_of(secret: &Secret, day: i64) -> Key {
    secret.on(day).derive(&format!("sketches, day {day}"))
}

/// The fingerprint of the key of a UTC day, counted from 1970: the `key_id` of its reports.
pub fn id_of_day(secret: &Secret, day: i64) -> u64 {
    key_of(secret, day).id()
}

/// The places of a window. They also depend on the start, because in replays the coins may follow from a seed.
fn of_window(coins: Key, number: u64, start: Timestamp) -> Key {
    coins.derive(&format!("places, window {number} at {}", start.as_nanosecond()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: Key = Key([1, 2]);
    const COINS: Key = Key([3, 4]);

    fn at(instant: &str) -> Timestamp {
        instant.parse().unwrap()
    }

    fn keys(start: &str) -> Keys {
        Keys::new(SECRET, COINS, at(start))
    }

    #[test]
    fn the_key_changes_at_midnight_utc_and_is_the_same_on_every_router() {
        let day = keys("2026-11-20T00:00:00Z").id();
        assert_eq!(keys("2026-11-20T23:59:59.999Z").id(), day);
        assert_ne!(keys("2026-11-19T23:59:59.999Z").id(), day);
        assert_ne!(keys("2026-11-21T00:00:00Z").id(), day);
        let [early, late] = ["1969-12-31T23:59:59Z", "1970-01-01T00:00:00Z"].map(|instant| keys(instant).id());
        assert_ne!(early, late, "the day before the first is another day");
        let other_run = Keys::new(SECRET, Key([5, 6]), at("2026-11-20T12:00:00Z"));
        assert_eq!(other_run.id(), day);
        assert_ne!(Keys::new(Key([1, 3]), COINS, at("2026-11-20T12:00:00Z")).id(), day);
    }

    #[test]
    fn a_new_secret_takes_over_with_the_first_window_of_its_day() {
        let path = std::env::temp_dir().join(format!("weir-turn-{}", std::process::id()));
        let (old_key, new_key) = (Key([0x8f3c_1a7b_e02d_4965, 7]), Key([0x2b90_ee4d_7713_fa06, 8]));
        let [old, new] = [old_key, new_key].map(|Key([high, low])| format!("{high:016x}{low:016x}"));
        std::fs::write(&path, format!("{old}\n2026-11-21 {new}\n")).unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        let secret = weir_config::HashKey::File(path.clone()).secret();
        std::fs::remove_file(&path).unwrap();
        let secret = secret.unwrap();
        let ids = |secret: Secret| {
            let mut keys = Keys::new(secret, COINS, at("2026-11-20T23:59:50Z"));
            let seen = Seen::with_capacity(1_000, 0.01, keys.id()).unwrap();
            let first = keys.id();
            keys.advance(at("2026-11-21T00:00:00Z"), &seen);
            [first, keys.id()]
        };
        let [before, after] = ids(secret.clone());
        assert_eq!([before, after], [ids(old_key.into())[0], ids(new_key.into())[1]]);
        let day = at("2026-11-21T00:00:00Z").as_second() / DAY_SECONDS;
        assert_eq!([before, after], [day - 1, day].map(|day| id_of_day(&secret, day)));
    }

    #[test]
    fn the_earlier_keys_are_those_of_the_generations() {
        let mut keys = keys("2026-11-20T23:59:50Z");
        let seen = Seen::with_capacity(1_000, 0.01, keys.id()).unwrap();
        let first = keys.window;
        keys.advance(at("2026-11-20T23:59:55Z"), &seen);
        assert!(keys.earlier.is_empty(), "it is the same day");
        keys.advance(at("2026-11-21T00:00:00Z"), &seen);
        let second = keys.window;
        assert_eq!(keys.earlier, [first]);
        // The filter is rotated now, with the key of the window that ended.
        seen.rotate_to(first.id());
        keys.advance(at("2026-11-21T00:00:05Z"), &seen);
        assert_eq!(keys.earlier, [first], "both generations have this key");
        seen.rotate_to(second.id());
        keys.advance(at("2026-11-22T00:00:00Z"), &seen);
        assert_eq!(keys.earlier, [first, second]);
        seen.rotate_to(second.id());
        keys.advance(at("2026-11-22T00:00:05Z"), &seen);
        assert_eq!(keys.earlier, [second]);
        keys.advance(at("2026-11-21T23:59:59Z"), &seen);
        assert_eq!((keys.window, keys.earlier.len()), (second, 1), "a clock that was set back");
        keys.restart(at("2026-11-20T12:00:00Z"), &seen);
        assert_eq!((keys.window, keys.earlier.len(), seen.key_ids()), (first, 0, [first.id(); 2]));
    }

    #[test]
    fn a_key_that_has_to_stay_changes_with_the_next_window() {
        let mut keys = keys("2026-11-20T23:59:50Z");
        let seen = Seen::with_capacity(1_000, 0.01, keys.id()).unwrap();
        let (first, places, midnight) = (keys.window, keys.places, at("2026-11-21T00:00:00Z"));
        assert!(keys.change_by(midnight) && !keys.change_by(at("2026-11-20T23:59:55Z")));
        keys.advance_with_same(midnight, &seen);
        assert_eq!((keys.window, keys.number, keys.earlier.len()), (first, 1, 0));
        assert_ne!(keys.places, places, "only the key stays");
        assert!(keys.change_by(at("2026-11-21T00:00:05Z")));
        keys.advance(at("2026-11-21T00:00:05Z"), &seen);
        assert_eq!((keys.window == first, keys.earlier.clone()), (false, vec![first]));
    }

    #[test]
    fn each_window_has_its_own_places_which_do_not_follow_from_the_secret() {
        let noon = "2026-11-20T12:00:00Z";
        let mut keys = keys(noon);
        let seen = Seen::with_capacity(1_000, 0.01, keys.id()).unwrap();
        let mut places = vec![keys.places];
        keys.advance(at("2026-11-20T12:00:10Z"), &seen);
        places.push(keys.places);
        // A clock that was set back.
        keys.advance(at(noon), &seen);
        places.push(keys.places);
        keys.restart(at(noon), &seen);
        places.push(keys.places);
        places.push(Keys::new(SECRET, Key([5, 6]), at(noon)).places);
        places.push(Keys::new(SECRET, COINS, at("2026-11-20T12:00:10Z")).places);
        let mut ids: Vec<_> = places.iter().map(|key| key.id()).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 6, "{places:?}");
        assert_eq!(Keys::new(Key([9, 9]), COINS, at(noon)).places, places[0]);
    }

    #[test]
    fn shards_of_a_window_share_a_key_but_not_coins() {
        let settings = Estimates::default();
        let mut keys = keys("2026-11-20T23:59:50Z");
        let seen = Seen::with_capacity(1_000, 0.01, keys.id()).unwrap();
        let views = Views::built_in(&settings, 10);
        let (mut one, mut other) = (keys.shard(&settings, &views), keys.shard(&settings, &views));
        assert_eq!([one.key_id(), other.key_id()], [keys.id(); 2]);
        assert_eq!(one.unique.flows.key_id(), keys.id());
        let hash = one.hash().clone();
        let by = &views.questions[0].by;
        one.views[0].merge_all(&[&other.views[0]], None, by, &hash).unwrap();
        // Sketches of two days are not merged.
        keys.advance(at("2026-11-21T00:00:00Z"), &seen);
        keys.equip(&mut other);
        assert_eq!(other.key_id(), keys.id());
        assert!(one.views[0].merge_all(&[&other.views[0]], None, by, &hash).is_err());
        assert!(one.unique.sources.merge(&other.unique.sources).is_err());
    }
}
