//! Handles the results of the attacher thread.

use std::time::Duration;

use tracing::{debug, info, warn};
use weir_config::{Interface, interface::Way};
use weir_datapath::interface::Counts;
use weir_system::{clock, text::with_causes};

use super::{
    arrivals::ShortLives,
    attachment::Attachment,
    attachments::Attachments,
    departures::Departure,
    error::AttachError,
    netlink::Device,
    obtained::Obtained,
    settle::table_entry,
    shared_slot::{self, SharedSlot},
    slots::Slots,
    tasks::{Number, Task, TaskResult},
    watch::{Order, Position, Watched},
    windows::ON_ITS_WAY,
};

impl Attachments<'_> {
    /// Handles a result of the attacher thread. Returns whether something was attached: from then on interfaces may
    /// feed differently, and their counts can be compared.
    pub fn hear(&mut self, done: TaskResult) -> bool {
        let is_attached = matches!(done, TaskResult::Attached(_, Ok(_)));
        self.act_and_note(done);
        self.send();
        is_attached
    }

    pub(super) fn act_and_note(&mut self, done: TaskResult) {
        let is_of_lists = matches!(done, TaskResult::Listed(_));
        let result = self.act(done);
        if is_of_lists || result.is_err() {
            self.log.following.note(result);
        }
    }

    pub(super) fn act(&mut self, done: TaskResult) -> Result<(), AttachError> {
        self.health.note_answered();
        match done {
            TaskResult::Listed(listed) => {
                self.health.end_list();
                let (devices, sources) = listed?;
                self.settle(devices, sources)
            }
            TaskResult::Checked { nth, found } => {
                self.health.end_check(nth);
                for (number, position, at) in found {
                    self.judge(number, position, at);
                }
                Ok(())
            }
            TaskResult::Attached(number, result) => {
                let done = match result {
                    Ok(obtained) => self.note_attached(number, obtained),
                    Err(error) => self.note_refused(number, error),
                };
                self.answer_returning(Some(number));
                done
            }
            TaskResult::Mended { number, position, result, is_attached } => {
                self.health.end_mending();
                self.note_mended(number, &position, result, is_attached);
                Ok(())
            }
            TaskResult::Detached(number) => self.note_detached(number),
            TaskResult::Ended => Ok(()),
        }
    }

    fn note_attached(&mut self, number: Number, obtained: Obtained) -> Result<(), AttachError> {
        if !self.budget.is_exceeded() && obtained.is_at_tc() {
            self.budget.spend(1);
        }
        if let Some(shared) = self.shared.as_mut().filter(|shared| shared.knows(number)) {
            shared.note_attached(number, obtained);
            return Ok(());
        }
        // It may have been released meanwhile.
        let Some(slot) = self.slots.slot_of(number) else { return Ok(()) };
        let Some(Some(attachment)) = self.slots.get_mut(slot) else { return Ok(()) };
        let Some(present) = attachment.here() else { return Ok(()) };
        attachment.obtained = obtained;
        attachment.attach(present);
        let is_due = attachment.arrived.is_none() || self.inventory.arrivals.take_turn(clock::now().monotonic);
        if attachment.departures.since().is_some() && is_due {
            // The packets that the interface has counted until now were missed.
            self.begin_coverage();
        }
        let Some(Some(attachment)) = self.slots.get_mut(slot) else { return Ok(()) };
        let (interface, direction) = (&attachment.name, attachment.way.name());
        let (ifindex, feeds) = (present.ifindex, attachment.feeds);
        info!(%interface, ifindex, direction, mode = obtained.name(), feeds = feeds.name(), "attached");
        self.feeding.tell(&Device { ifindex, name: interface.clone(), ..Device::default() }, attachment.way);
        if obtained.counts() == Counts::Buffers {
            warn!(
                %interface,
                "generic XDP counts a buffer that an offload has merged as one packet. To count each packet, use \
                 `mode: tcx` or `mode: tc`"
            );
        }
        self.health.forget_refusal(ifindex, attachment.way);
        self.thread.put(Task::SetFeeds(number, feeds));
        Ok(())
    }

    fn note_refused(&mut self, number: Number, error: AttachError) -> Result<(), AttachError> {
        let of_others = self.shared.as_mut().and_then(|shared| shared.remove(number));
        let (rule, way, ifindex, name) = if let Some(member) = of_others {
            member.what()
        } else {
            let Some(slot) = self.slots.slot_of(number) else { return Ok(()) };
            let Some(place) = self.slots.get_mut(slot) else { return Ok(()) };
            let Some(attachment) = place else { return Ok(()) };
            let Some(present) = attachment.here() else { return Ok(()) };
            let what = (attachment.rule, attachment.way, present.ifindex, attachment.name.clone());
            let came = attachment.forget_arrival();
            if let Some(arrived) = came.filter(|_| matches!(error, AttachError::Vanished(_))) {
                // The kernel's message with its last counts is still to be read.
                self.inventory.arrivals.note_came(present.ifindex, arrived.at, true);
            }
            let is_empty = attachment.short_lives == ShortLives::default();
            if attachment.note_refused(with_causes(&error)) && !self.rules[attachment.rule].is_named() {
                if is_empty {
                    *place = None;
                } else {
                    (attachment.obtained, attachment.refusal) = (Obtained::Gone, None);
                }
            }
            self.forget(present.ifindex, what.1)?;
            what
        };
        self.refuse(rule, way, &Device { ifindex, name, ..Device::default() }, error)
    }

    /// An interface cannot be attached: warns once, or makes the start fail.
    pub(super) fn refuse(
        &mut self,
        rule: usize,
        way: Way,
        device: &Device,
        error: AttachError,
    ) -> Result<(), AttachError> {
        let is_named = self.rules.get(rule).is_some_and(Interface::is_named);
        let (interface, direction) = (&device.name, way.name());
        if self.is_strict && error.forbids_start(is_named) {
            return Err(error);
        }
        if matches!(error, AttachError::Vanished(_)) && !is_named {
            // The kernel will report the change.
            debug!(%interface, direction, "cannot attach: {}", with_causes(&error));
            return Ok(());
        }
        let reason = with_causes(&error);
        if self.health.note_refused(device.ifindex, way, &reason) {
            warn!(%interface, direction, "cannot attach: {reason}");
        }
        Ok(())
    }

    fn note_detached(&mut self, number: Number) -> Result<(), AttachError> {
        self.requests.note_detached(number);
        self.answer_returning(Some(number));
        let others = self.readings.seen_of(SharedSlot::SLOT);
        for one in self.slots.iter_mut() {
            one.departures.note_detached(number, others);
        }
        // Remove it only now: until here its last packets still had their slot.
        self.going.remove(&number).map_or(Ok(()), |going| self.forget(going.ifindex, going.way))
    }

    /// Removes an entry from the kernel's table, unless the interface is attached again.
    fn forget(&mut self, ifindex: u32, way: Way) -> Result<(), AttachError> {
        let is_going = self.going.values().any(|going| (going.ifindex, going.way) == (ifindex, way));
        if let Some(table) = &mut self.table
            && !is_going
            && !self.slots.is_measured(ifindex, way)
        {
            table.remove(table_entry(ifindex, way))?;
        }
        Ok(())
    }

    /// Handles the position at which a check found an attachment.
    fn judge(&mut self, number: Number, position: Position, at: Duration) {
        let may_be_another = self.inventory.may_have_missed_news(clock::now().monotonic);
        let Some(Of { name, way, ifindex, watched }) = of(number, &mut self.slots, &mut self.shared) else { return };
        if self.inventory.is_gone(ifindex) {
            return;
        }
        if position == Position::Removed && may_be_another {
            // Another interface may already use its index.
            self.note_gone(ifindex, Departure::Unknown, None);
            self.list();
            return;
        }
        let direction = way.name();
        let Some(trouble) = position.trouble() else {
            if watched.note_well(at) {
                info!(interface = %name, direction, "weir's program sees all packets again");
            }
            return;
        };
        match watched.note_wrong(&position, at) {
            Order::Mend => {
                let device = self.inventory.listed(ifindex).cloned();
                if let Some(device) = device.map(Box::new) {
                    self.health.begin_mending();
                    self.thread.put(Task::Mend { number, device, position });
                } else {
                    watched.note_not_mended("the interface is not listed yet");
                }
            }
            Order::Tell => warn!(
                interface = %name, direction,
                "{trouble}: {}", match position {
                    Position::Behind { can_move: false, .. } => "weir cannot move before it",
                    _ => "this happens again and again, so weir restores its place only once a minute",
                }
            ),
            Order::Nothing => {}
        }
    }

    fn note_mended(&mut self, number: Number, position: &Position, result: Result<(), AttachError>, is_attached: bool) {
        let Some(Of { name, way, ifindex, watched }) = of(number, &mut self.slots, &mut self.shared) else { return };
        let (direction, trouble) = (way.name(), position.trouble().unwrap_or_default());
        match result {
            Ok(()) => {
                let done = if matches!(position, Position::Behind { .. }) {
                    "weir has moved before it"
                } else {
                    "weir attaches it again"
                };
                watched.note_mended(clock::now().monotonic);
                warn!(interface = %name, direction, "{trouble}: {done}. It may have missed packets of the last second");
            }
            Err(error) => {
                let why = with_causes(&error);
                watched.note_not_mended(&why);
                if !matches!(error, AttachError::Vanished(_)) {
                    warn!(interface = %name, direction, "{trouble}, and weir cannot put it back: {why}");
                }
            }
        }
        if is_attached {
            return;
        }
        if self.shared.as_mut().and_then(|shared| shared.remove(number)).is_none() {
            let slot = self.slots.slot_of(number);
            let attachment = slot.and_then(|slot| self.slots.get_mut(slot)).and_then(Option::as_mut);
            if let Some(one) = attachment {
                one.lose();
            }
        }
        if let Err(error) = self.forget(ifindex, way) {
            debug!("cannot remove an interface from the table: {error}");
        }
    }

    /// Starts to compare new attachments with the counts of their interfaces.
    pub(super) fn begin_coverage(&mut self) {
        let is_new = |one: &Attachment| one.present.is_some() && one.coverage.is_new();
        if !self.slots.iter().any(is_new) {
            return;
        }
        // The programs see all packets that are counted after this reading. Of those before, some may be on their way.
        let returns = self.slots.iter().any(|one| is_new(one) && one.departures.since().is_some());
        self.read(if returns { ON_ITS_WAY } else { Duration::ZERO });
        for (slot, attachment) in self.slots.numbered().filter(|(_, attachment)| is_new(attachment)) {
            let reading = attachment.reading(slot, &self.readings);
            attachment.begin(reading.filter(|reading| attachment.is_credible(reading)));
        }
    }
}

/// An attachment, either with a slot of its own or as a member of the shared slot.
struct Of<'a> {
    name: &'a str,
    way: Way,
    ifindex: u32,
    watched: &'a mut Watched,
}

fn of<'a>(number: Number, slots: &'a mut Slots, shared: &'a mut Option<SharedSlot>) -> Option<Of<'a>> {
    if let Some(member) = shared.as_mut().and_then(|shared| shared.get_mut(number)) {
        let (way, ifindex) = (member.way, member.ifindex);
        return Some(Of { name: shared_slot::NAME, way, ifindex, watched: &mut member.watched });
    }
    let slot = slots.slot_of(number)?;
    let Attachment { name, way, present, watched, .. } = slots.get_mut(slot)?.as_mut()?;
    Some(Of { name, way: *way, ifindex: present.as_ref()?.ifindex, watched })
}
