//! Looks whether what is attached is where it was put, and puts it back. Programs of others stay as they are.

use tracing::{debug, info, warn};

use super::{
    ladder::{Hold, Ladder},
    netlink::{Devices, Traffic},
    obtained::Obtained,
    watch::{Order, Seat, Watched},
};
use crate::{clock, interface::Way, text::with_causes};

/// One direction of an interface, to be looked at.
pub struct Checked<'c> {
    /// The interface's index.
    pub ifindex: u32,
    /// Its name; that of the account where it has none of its own.
    pub name: &'c str,
    /// The direction.
    pub way: Way,
    /// How it is attached.
    pub obtained: Obtained,
    /// By what.
    pub hold: &'c mut Option<Hold>,
    /// What is known of its place.
    pub watched: &'c mut Watched,
}

/// What it takes to look.
pub struct Checker<'c, 'a> {
    /// Puts things back.
    pub ladder: &'c mut Ladder<'a>,
    /// Describes interfaces.
    pub devices: &'c mut Devices,
    /// Tells of filters; opened when there are some.
    pub traffic: Option<Traffic>,
}

impl Checker<'_, '_> {
    /// Looks at one of them, and puts it back if it is not where it should be. What is attached no more and cannot be
    /// put back is gone from `hold`.
    pub fn check(&mut self, one: Checked<'_>) {
        let Some(hold) = one.hold else { return };
        let (interface, direction) = (one.name, one.way.name());
        let seat = match hold.seat(&mut self.traffic) {
            Ok(seat) => seat,
            // The interface has vanished; its own news will come.
            Err(error) => return debug!(%interface, "cannot look what is attached: {error}"),
        };
        let Some(trouble) = seat.trouble() else {
            if one.watched.is_well(clock::now().monotonic) {
                info!(%interface, direction, "weir's program sees all packets again");
            }
            return;
        };
        match one.watched.is_wrong(&seat, clock::now().monotonic) {
            Order::Mend => self.mend(one, &seat, &trouble),
            Order::Tell => warn!(
                %interface, direction,
                "{trouble}: {}", match seat {
                    Seat::Behind { can_move: false, .. } => "weir cannot move before it",
                    _ => "this happens again and again, and weir tries once a minute to get its place back",
                }
            ),
            Order::Nothing => {}
        }
    }

    fn mend(&mut self, one: Checked<'_>, seat: &Seat, trouble: &str) {
        let Checked { ifindex, name: interface, way, obtained, hold, watched } = one;
        let direction = way.name();
        let listed = self.devices.list().unwrap_or_default();
        let Some(device) = listed.iter().find(|device| device.ifindex == ifindex) else { return };
        match self.ladder.mend(hold, device, (way, obtained), seat) {
            Ok(()) => {
                let now = clock::now().monotonic;
                watched.is_mended(now);
                let done = if matches!(seat, Seat::Behind { .. }) {
                    "weir has moved before it"
                } else {
                    "weir attaches it again"
                };
                warn!(%interface, direction, "{trouble}: {done}. It may have missed packets of the last second");
            }
            Err(error) => {
                let why = with_causes(&error);
                warn!(%interface, direction, "{trouble}, and weir cannot put it back: {why}");
                watched.is_not_mended(&why);
                if matches!(seat, Seat::Removed) {
                    *hold = None;
                }
            }
        }
    }
}
