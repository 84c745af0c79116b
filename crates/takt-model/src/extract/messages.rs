//! Messages under way: the join from a publication to whoever takes it.
//!
//! `rmw_publish` and `rmw_take` carry the same source time stamp. The stamps of the last so many
//! publications are kept; two that fell into the same nanosecond on different topics are
//! distinguished by their topics.

use rustc_hash::FxHashMap;

use super::state::Tag;

#[derive(Debug)]
pub(crate) struct Message {
    /// Source time stamp, once known.
    pub stamp: Option<i64>,
    pub topic: usize,
    pub at_ns: u64,
    /// When its source stamp was taken.
    pub stamped_ns: u64,
    /// The thread that published it.
    pub by: usize,
    pub tags: Vec<Tag>,
    /// Of a service: whose request it is or answers; 0: unknown.
    pub client: u64,
    /// Its publisher's process was starting.
    pub starting: bool,
    /// The message before with the same stamp.
    same: Option<u64>,
}

/// The last messages published, by number.
#[derive(Debug)]
pub(crate) struct Messages {
    ring: Vec<Message>,
    capacity: usize,
    next: u64,
    by_stamp: FxHashMap<i64, u64>,
}

impl Messages {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { ring: Vec::new(), capacity: capacity.max(1), next: 0, by_stamp: FxHashMap::default() }
    }

    /// Remembers a publication and forgets the oldest one.
    pub(crate) fn publish(&mut self, by: usize, topic: usize, at_ns: u64, tags: &[Tag]) -> u64 {
        let number = self.next;
        self.next += 1;
        if self.ring.len() < self.capacity {
            let tags = tags.to_vec();
            self.ring.push(Message {
                stamp: None,
                topic,
                at_ns,
                stamped_ns: at_ns,
                by,
                tags,
                starting: false,
                client: 0,
                same: None,
            });
            return number;
        }
        let slot = (number % self.capacity as u64) as usize;
        let oldest = number - self.capacity as u64;
        let message = &mut self.ring[slot];
        if let Some(stamp) = message.stamp.take()
            && self.by_stamp.get(&stamp) == Some(&oldest)
        {
            self.by_stamp.remove(&stamp);
        }
        (message.topic, message.at_ns, message.same) = (topic, at_ns, None);
        (message.starting, message.client) = (false, 0);
        (message.stamped_ns, message.by) = (at_ns, by);
        message.tags.clear();
        message.tags.extend_from_slice(tags);
        number
    }

    /// The message came out of start-up.
    pub(crate) fn set_starting(&mut self, number: u64) {
        if let Some(message) = self.get_mut(number) {
            message.starting = true;
        }
    }

    /// The message's source time stamp has become known at `at_ns`.
    pub(crate) fn stamp(&mut self, number: u64, stamp: i64, at_ns: u64) {
        let Some(message) = self.get_mut(number) else { return };
        if message.stamp.is_some() {
            return;
        }
        message.stamped_ns = at_ns;
        message.stamp = Some(stamp);
        let same = self.by_stamp.insert(stamp, number);
        if let Some(message) = self.get_mut(number) {
            message.same = same;
        }
    }

    /// The message is a request of this client, or an answer to it.
    pub(crate) fn of_client(&mut self, number: u64, client: u64) {
        if let Some(message) = self.get_mut(number) {
            message.client = client;
        }
    }

    fn slot(&self, number: u64) -> Option<usize> {
        (number < self.next && self.next - number <= self.capacity as u64)
            .then_some((number % self.capacity as u64) as usize)
    }

    fn get_mut(&mut self, number: u64) -> Option<&mut Message> {
        let slot = self.slot(number)?;
        self.ring.get_mut(slot)
    }

    pub(crate) fn get(&self, number: u64) -> Option<&Message> {
        self.ring.get(self.slot(number)?)
    }

    /// The messages with this stamp, newest first; the newest sixty-four, so that a broken clock
    /// that stands still costs no time.
    pub(crate) fn stamped(&self, stamp: i64) -> impl Iterator<Item = (u64, &Message)> {
        let mut next = self.by_stamp.get(&stamp).copied();
        std::iter::from_fn(move || {
            let number = next?;
            let message = self.get(number).filter(|m| m.stamp == Some(stamp))?;
            next = message.same.filter(|&older| older < number);
            Some((number, message))
        })
        .take(64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_are_found_until_they_are_forgotten() {
        let mut messages = Messages::new(4);
        for i in 0..6 {
            let number = messages.publish(0, i, i as u64, &[]);
            messages.stamp(number, 100 + (i as i64) / 2, 0);
        }
        let topics = |stamp| messages.stamped(stamp).map(|(_, m)| m.topic).collect::<Vec<_>>();
        assert_eq!((topics(100), topics(101), topics(102)), (vec![], vec![3, 2], vec![5, 4]));
        assert!(messages.get(1).is_none() && messages.get(2).is_some() && messages.get(6).is_none());
        assert!(messages.by_stamp.len() <= 4);
    }

    #[test]
    fn memory_is_bounded() {
        let mut messages = Messages::new(8);
        for i in 0..10_000i64 {
            let number = messages.publish(0, 0, 0, &[Tag { watch: 0, position: 0, origin_ns: 0 }]);
            messages.stamp(number, i % 100, 0);
        }
        assert!(messages.by_stamp.len() <= 8 && messages.ring.len() == 8);
    }
}
