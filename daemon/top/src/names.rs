//! The names of addresses: those that weir knows, and others that are looked up on separate threads, only while the
//! user wants that.
//!
//! The system's resolver answers: its hosts file, its name servers, and its other configured sources. It may take
//! seconds for one address whose server is silent, so several look-ups are in flight at a time.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
    time::Duration,
};

use weir_schema::{NameOf, NameSource};
use weir_system::{clock, text::escaped};

/// How many names are kept. When there would be more, all are forgotten.
const KNOWN_MAX: usize = 4096;
/// How many addresses may wait for their look-up. The next screen asks again for further ones.
const WAITING_MAX: usize = 64;
/// How many look-ups are in flight. Each has a thread, because the resolver has no other interface.
const IN_FLIGHT: usize = 8;
/// How long it is remembered that an address has no name: its server may only have been silent.
const NAMELESS: Duration = Duration::from_secs(60);

/// Looks up the name of an address; `None` if it has none, or no server answers.
type Resolver = Arc<dyn Fn(IpAddr) -> Option<String> + Send + Sync>;

/// The names that weir knows, and those that look-ups have found so far.
#[derive(Default)]
pub struct Names {
    of_weir: HashMap<IpAddr, (String, NameSource)>,
    known: HashMap<IpAddr, Known>,
    asker: Option<Asker>,
}

/// The state of an address.
enum Known {
    /// The name of the address.
    Name(String),
    /// It is being looked up.
    Asked,
    /// It had no name at this time, on the monotonic clock.
    Nameless(Duration),
}

struct Asker {
    wanted: SyncSender<IpAddr>,
    found: Receiver<(IpAddr, Option<String>)>,
}

impl Names {
    /// From now on, weir knows these names.
    pub fn know(&mut self, names: Vec<NameOf>) {
        let known = |NameOf { address, name, source }| (address, (escaped(&name), source));
        self.of_weir = names.into_iter().map(known).collect();
    }

    /// Where weir has the name of this address from.
    pub fn source(&self, address: IpAddr) -> Option<NameSource> {
        self.of_weir.get(&address).map(|(_, source)| *source)
    }

    /// Starts to look up names.
    pub fn start(&mut self) {
        let resolver: Resolver = Arc::new(|address| dns_lookup::lookup_addr(&address).ok());
        self.asker.get_or_insert_with(|| Asker::new(&resolver));
    }

    /// Stops to look up names.
    pub fn stop(&mut self) {
        self.asker = None;
        // Pending look-ups will have no answer.
        self.known.retain(|_, known| !matches!(known, Known::Asked));
    }

    /// Returns true if names are looked up.
    pub const fn is_on(&self) -> bool {
        self.asker.is_some()
    }

    /// The name of an address, if it is known already. Otherwise requests it.
    pub fn of(&mut self, address: IpAddr) -> Option<&str> {
        self.of_at(address, clock::now().monotonic)
    }

    fn of_at(&mut self, address: IpAddr, now: Duration) -> Option<&str> {
        if let Some((name, _)) = self.of_weir.get(&address) {
            return Some(name);
        }
        let asker = self.asker.as_ref()?;
        for (address, name) in asker.found.try_iter() {
            self.known.insert(address, name.map_or(Known::Nameless(now), Known::Name));
        }
        if self.known.len() > KNOWN_MAX {
            self.known.clear();
        }
        let is_due = match self.known.get(&address) {
            None => true,
            Some(Known::Nameless(since)) => now.saturating_sub(*since) >= NAMELESS,
            Some(_) => false,
        };
        // If too many addresses wait, the next screen asks again.
        if is_due && asker.wanted.try_send(address).is_ok() {
            self.known.insert(address, Known::Asked);
        }
        match self.known.get(&address)? {
            Known::Name(name) => Some(name),
            Known::Asked | Known::Nameless(_) => None,
        }
    }
}

impl Asker {
    fn new(resolver: &Resolver) -> Self {
        let (wanted, addresses) = sync_channel::<IpAddr>(WAITING_MAX);
        let (send, found) = sync_channel(WAITING_MAX);
        let addresses = Arc::new(Mutex::new(addresses));
        for _ in 0..IN_FLIGHT {
            let (addresses, send, resolver) = (addresses.clone(), send.clone(), resolver.clone());
            // The threads end when `wanted` is dropped. If none can be started, addresses are shown instead of names.
            drop(thread::Builder::new().name("weir-names".to_owned()).spawn(move || {
                while let Some(address) = next(&addresses) {
                    if send.send((address, resolver(address).map(|name| escaped(&name)))).is_err() {
                        return;
                    }
                }
            }));
        }
        Self { wanted, found }
    }
}

/// The next address to look up; `None` if there will be no more.
fn next(addresses: &Mutex<Receiver<IpAddr>>) -> Option<IpAddr> {
    addresses.lock().unwrap_or_else(PoisonError::into_inner).recv().ok()
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Condvar,
        atomic::{AtomicUsize, Ordering},
    };

    use super::*;

    const NOW: Duration = Duration::from_secs(1000);

    fn with(resolver: impl Fn(IpAddr) -> Option<String> + Send + Sync + 'static) -> Names {
        let resolver: Resolver = Arc::new(resolver);
        Names { asker: Some(Asker::new(&resolver)), ..Names::default() }
    }

    fn address(nth: u8) -> IpAddr {
        [192, 0, 2, nth].into()
    }

    /// Asks until this is so.
    fn wait(mut is_so: impl FnMut() -> bool) {
        let mut tries = 0..1000;
        while !is_so() {
            assert!(tries.next().is_some(), "nothing came in ten seconds");
            thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn a_name_is_looked_up_once_and_its_control_characters_are_escaped() {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = asked.clone();
        let mut names = with(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
            Some("n\x1b[2".to_owned())
        });
        wait(|| names.of_at(address(53), NOW).is_some());
        assert_eq!(names.of_at(address(53), NOW + 10 * NAMELESS), Some("n\\u{1b}[2"));
        assert_eq!(asked.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn silent_servers_do_not_delay_the_others() {
        // All but one of the threads wait for a server that does not answer before the test ends.
        let gate = Arc::new((Mutex::new(false), Condvar::new()));
        let shut = gate.clone();
        let mut names = with(move |asked| {
            if asked != address(100) {
                let open = shut.0.lock().unwrap();
                drop(shut.1.wait_while(open, |open| !*open).unwrap());
                return None;
            }
            Some("quick".to_owned())
        });
        for nth in 1..IN_FLIGHT as u8 {
            assert_eq!(names.of_at(address(nth), NOW), None);
        }
        wait(|| names.of_at(address(100), NOW) == Some("quick"));
        *gate.0.lock().unwrap() = true;
        gate.1.notify_all();
    }

    #[test]
    fn an_address_without_a_name_is_looked_up_again_after_a_minute() {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = asked.clone();
        let mut names = with(move |_| (count.fetch_add(1, Ordering::Relaxed) > 0).then(|| "late".to_owned()));
        wait(|| {
            let _ = names.of_at(address(1), NOW);
            matches!(names.known[&address(1)], Known::Nameless(_))
        });
        assert_eq!(names.of_at(address(1), NOW + NAMELESS / 2), None);
        assert_eq!(asked.load(Ordering::Relaxed), 1, "it is remembered for a minute");
        wait(|| names.of_at(address(1), NOW + NAMELESS) == Some("late"));
    }

    /// The hosts file has this name everywhere.
    #[test]
    fn the_hosts_file_is_asked() {
        let mut names = Names::default();
        names.start();
        wait(|| names.of([127, 0, 0, 1].into()).is_some());
        assert_eq!(names.of([127, 0, 0, 1].into()), Some("localhost"));
    }

    #[test]
    fn what_weir_knows_needs_no_look_up() {
        let mut names = Names::default();
        let of = |name: &str| NameOf { address: address(7), name: name.to_owned(), source: NameSource::Lease };
        names.know(vec![of("anna\x1b[2J")]);
        assert_eq!(names.of_at(address(7), NOW), Some("anna\\u{1b}[2J"));
        assert_eq!(names.source(address(7)), Some(NameSource::Lease));
        names.know(vec![]);
        assert_eq!(names.of_at(address(7), NOW), None);
    }

    #[test]
    fn nothing_is_looked_up_unless_the_user_wants_it() {
        let mut names = Names::default();
        assert!(!names.is_on());
        assert_eq!(names.of(address(53)), None);
        assert!(names.known.is_empty());
    }
}
