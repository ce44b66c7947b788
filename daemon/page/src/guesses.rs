//! Slows down clients that guess the token.
//!
//! Only refusals are delayed. The right token is always accepted at once, so no one can lock out its owner, not even
//! from the owner's own address or through the same proxy. A refusal that waits keeps no slot from other clients.

use std::{
    net::{IpAddr, Ipv6Addr},
    time::Duration,
};

/// How many wrong tokens of a client are refused at once: a user may mistype, or a browser may send an old one.
const AT_ONCE: u32 = 5;
/// The time in which one more refusal is sent after that.
const PERIOD: Duration = Duration::from_secs(1);
/// The longest delay after a wrong token.
const DELAY_MAX: Duration = Duration::from_secs(5);
/// A client that sends no wrong token for this long is forgotten.
const FORGOTTEN: Duration = Duration::from_secs(600);
/// Maximum number of clients that are remembered. A further one replaces the one that guessed longest ago.
const CLIENTS_MAX: usize = 256;

/// The clients that have sent wrong tokens.
#[derive(Debug, Default)]
pub struct Guesses(Vec<Guesser>);

#[derive(Debug)]
struct Guesser {
    client: Ipv6Addr,
    wrong: u32,
    /// The time at which the last refusal to the client is due.
    refused: Duration,
}

impl Guesses {
    /// Notes a wrong token. Returns how long the refusal waits.
    pub fn delay(&mut self, client: IpAddr, now: Duration) -> Duration {
        let guesser = self.guesser(network_of(client), now);
        guesser.wrong = guesser.wrong.saturating_add(1);
        if guesser.wrong <= AT_ONCE {
            guesser.refused = now;
            return Duration::ZERO;
        }
        let due = guesser.refused.max(now) + PERIOD;
        guesser.refused = due.min(now + DELAY_MAX);
        guesser.refused - now
    }

    fn guesser(&mut self, client: Ipv6Addr, now: Duration) -> &mut Guesser {
        self.0.retain(|one| now.saturating_sub(one.refused) < FORGOTTEN);
        let known = self.0.iter().position(|one| one.client == client);
        let place = known.unwrap_or_else(|| {
            if self.0.len() == CLIENTS_MAX {
                let oldest = self.0.iter().enumerate().min_by_key(|(_, one)| one.refused).map_or(0, |(nth, _)| nth);
                self.0.swap_remove(oldest);
            }
            self.0.push(Guesser { client, wrong: 0, refused: now });
            self.0.len() - 1
        });
        &mut self.0[place]
    }
}

/// Returns the addresses that one client can choose from: an IPv4 address, or an IPv6 network of 64 bits.
fn network_of(client: IpAddr) -> Ipv6Addr {
    match client.to_canonical() {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1_000);

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn one_client_gets_a_refusal_a_second_and_others_are_not_delayed() {
        let mut guesses = Guesses::default();
        let delays: Vec<_> = (0..9).map(|_| guesses.delay(address("192.0.2.1"), NOW).as_secs()).collect();
        assert_eq!(delays, [0, 0, 0, 0, 0, 1, 2, 3, 4], "all at the same time");
        for _ in 0..1_000 {
            assert!(guesses.delay(address("192.0.2.1"), NOW) <= DELAY_MAX);
        }
        assert_eq!(guesses.delay(address("192.0.2.2"), NOW), Duration::ZERO);
        assert_eq!(guesses.delay(address("192.0.2.1"), NOW + FORGOTTEN + DELAY_MAX), Duration::ZERO, "forgotten");
    }

    #[test]
    fn a_client_cannot_choose_another_address() {
        let mut guesses = Guesses::default();
        let delays = (0..9).map(|host| guesses.delay(address(&format!("2001:db8::{host}")), NOW)).collect::<Vec<_>>();
        assert_eq!(delays[8], Duration::from_secs(4));
        assert_eq!(guesses.delay(address("2001:db8:0:1::1"), NOW), Duration::ZERO);
        let delays = (0..6).map(|_| guesses.delay(address("192.0.2.1"), NOW)).collect::<Vec<_>>();
        assert_eq!(delays[5], PERIOD);
        assert!(guesses.delay(address("::ffff:192.0.2.1"), NOW) > PERIOD);
    }

    #[test]
    fn memory_stays_the_same_however_many_guess() {
        let mut guesses = Guesses::default();
        for nth in 0..10 * CLIENTS_MAX as u32 {
            guesses.delay(std::net::Ipv4Addr::from_bits(nth).into(), NOW + Duration::from_millis(nth.into()));
        }
        assert_eq!(guesses.0.len(), CLIENTS_MAX);
    }
}
