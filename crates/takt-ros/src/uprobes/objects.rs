//! The object of `rclcpp` that a callback lies in. Its type is what its virtual table says (the
//! Itanium C++ ABI: the word before a table's entries leads to the type's information, whose second
//! word leads to the mangled name), and its members are recognised by their content.
//!
//! Members that are relied on, alike in the sources of Humble and Jazzy: a timer, a service and a
//! subscription hold the handle of `rcl` before the callback (`timer.hpp`, `service.hpp`,
//! `subscription.hpp`); a subscription within the process holds the topic's name
//! (`subscription_intra_process_base.hpp`), and the subscription that it belongs to holds it, some
//! words behind its own handle (`subscription_base.hpp`).

use std::sync::Arc;

use super::memory::{Memory, words_before};
use super::nodes::Nodes;

/// Words from an object's beginning to its callback, at most: a subscription has functions for six
/// events before it.
const MAX_WORDS: u64 = 192;
/// Bytes of a type's name that are looked at: the longest below has 49.
const NAME_BYTES: usize = 56;
/// The shortest text that a `std::string` keeps elsewhere than within itself.
const OWN_TEXT_BYTES: u64 = 16;
const MAX_TOPIC_BYTES: u64 = 512;

/// Owner of a callback.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    Timer,
    Service,
    Subscription,
    /// A subscription's copy for messages from within the process.
    IntraProcess,
}

/// Prefixes of the types' names, as the compiler mangles them.
const TYPES: [(&str, What); 6] = [
    ("N6rclcpp9WallTimerI", What::Timer),
    ("N6rclcpp12GenericTimerI", What::Timer),
    ("N6rclcpp7ServiceI", What::Service),
    ("N6rclcpp12SubscriptionI", What::Subscription),
    ("N6rclcpp19GenericSubscriptionE", What::Subscription),
    ("N6rclcpp12experimental24SubscriptionIntraProcessI", What::IntraProcess),
];

/// An object, and the words from its beginning to its callback.
#[derive(Debug)]
pub struct Object {
    pub what: What,
    pub at: u64,
    words: Vec<u64>,
}

impl Object {
    /// The object that has this callback inside. With the process's nodes it is known what its
    /// writable memory is, in which no table lies: fewer words have to be followed.
    pub fn around(memory: &mut dyn Memory, pid: u32, callback: u64, nodes: Option<&Nodes>) -> Option<Self> {
        // An empty function lies anywhere behind the members, also within a word.
        let callback = callback & !7;
        let words = words_before(memory, pid, callback, MAX_WORDS);
        words.iter().enumerate().rev().find_map(|(index, &table)| {
            let may_be_table = nodes.is_none_or(|nodes| !nodes.is_writable(table));
            let what = may_be_table.then(|| type_of(memory, pid, table))??;
            let words = words[index..].to_vec();
            Some(Self { what, at: callback - words.len() as u64 * 8, words })
        })
    }

    /// Its members, the nearest to its callback first.
    pub fn members(&self) -> impl Iterator<Item = u64> + '_ {
        self.words.iter().rev().copied()
    }

    /// The topic's name that it holds, as a `std::string` (libstdc++: pointer, length, 16 bytes),
    /// and the queue's depth in the `rmw_qos_profile_t` behind it (history, depth); 0: unknown.
    pub fn topic(&self, memory: &mut dyn Memory, pid: u32) -> Option<(Arc<str>, u64)> {
        const KEEP_LAST: u64 = 1;
        self.words.windows(2).enumerate().find_map(|(index, two)| {
            let &[text, length] = two else { return None };
            let own = self.at + (index as u64 + 2) * 8;
            let fits = (2..MAX_TOPIC_BYTES).contains(&length) && (length < OWN_TEXT_BYTES) == (text == own);
            let text = fits.then(|| memory.text(pid, text))??;
            let fits = text.len() as u64 == length && text.starts_with('/');
            let depth = match self.words.get(index + 4..index + 6) {
                Some(&[history, depth]) if history & 0xffff_ffff == KEEP_LAST => depth,
                _ => 0,
            };
            fits.then_some((text, depth))
        })
    }
}

/// Type with this virtual table.
fn type_of(memory: &mut dyn Memory, pid: u32, table: u64) -> Option<What> {
    let pointer = |value: u64| value.is_multiple_of(8) && value > 0xffff && value < 1 << 56;
    let information = memory.word(pid, table.checked_sub(8).filter(|_| pointer(table))?)?;
    let name = memory.word(pid, information.checked_add(8).filter(|_| pointer(information))?)?;
    let mut bytes = [0; NAME_BYTES];
    let count = memory.read(pid, name, &mut bytes);
    let name = &bytes[..count];
    // GCC begins the names of types that one file alone has, of its lambdas too, with an asterisk.
    let name = name.strip_prefix(b"*").unwrap_or(name);
    TYPES.iter().find(|(begin, _)| name.starts_with(begin.as_bytes())).map(|(_, what)| *what)
}

#[cfg(test)]
mod tests {
    use super::super::memory::{Image, Space};
    use super::*;

    const CALLBACK: u64 = 0x2000;
    /// Pointers are above the first 64 KiB of any process.
    const TABLE: u64 = 0x1_0010;

    /// An object of this type whose words before its callback are `words`.
    fn space(name: &str, words: &[u64]) -> (Space, u64) {
        let mut space = Space::new();
        let at = CALLBACK - (words.len() as u64 + 1) * 8;
        put_table(&mut space, TABLE, name);
        space.put(at, &[TABLE]);
        space.put(at + 8, words);
        (space, at)
    }

    fn put_table(space: &mut Space, table: u64, name: &str) {
        let [information, text] = [table + 0x100, table + 0x200];
        space.put(table - 8, &[information]);
        space.put(information + 8, &[text]);
        space.text(text, name);
    }

    #[test]
    fn the_object_around_a_callback_is_known_by_its_type() {
        for (name, what) in [
            ("N6rclcpp9WallTimerIZN5truth5everyE", What::Timer),
            ("*N6rclcpp9WallTimerIZN7OutsideC4EvEUlvE_E", What::Timer),
            ("N6rclcpp12GenericTimerISt8functionE", What::Timer),
            ("N6rclcpp7ServiceIN8std_srvs3srv7TriggerEEE", What::Service),
            ("N6rclcpp12SubscriptionIN11sensor_msgs3msg12Temperature_E", What::Subscription),
            ("N6rclcpp19GenericSubscriptionE", What::Subscription),
            ("N6rclcpp12experimental24SubscriptionIntraProcessIN11sensor_msgsE", What::IntraProcess),
        ] {
            // An object with its own table lies in between.
            let (mut space, at) = space(name, &[7, 0x1_8010, 9, 0x77]);
            put_table(&mut space, 0x1_8010, "N6rclcpp7ContextE");
            let odd = Object::around(&mut Image(&space.0), 1, CALLBACK + 1, None).unwrap();
            assert_eq!((odd.what, odd.at), (what, at), "{name}");
            let object = Object::around(&mut Image(&space.0), 1, CALLBACK, None).unwrap();
            assert_eq!((object.what, object.at), (what, at), "{name}");
            assert_eq!(object.members().take(2).collect::<Vec<_>>(), [0x77, 9]);
        }
        for other in ["N6rclcpp7ContextE", "N6rclcpp11ServiceBaseE", "N5other9WallTimerIE", ""] {
            let (space, _) = space(other, &[7, 8, 9]);
            assert!(Object::around(&mut Image(&space.0), 1, CALLBACK, None).is_none(), "{other}");
        }
        assert!(Object::around(&mut Image(&[]), 1, CALLBACK, None).is_none());
        assert!(Object::around(&mut Image(&[0; 4096]), 1, 13, None).is_none());
    }

    #[test]
    fn a_topic_is_believed_where_text_and_length_agree() {
        const NAME: &str = "N6rclcpp12experimental24SubscriptionIntraProcessI";
        let topic = |words: &[u64], text: (u64, &str)| {
            let (mut space, at) = space(NAME, words);
            space.text(text.0, text.1);
            let mut memory = Image(&space.0);
            Object::around(&mut memory, 1, CALLBACK, None)
                .unwrap()
                .topic(&mut memory, 1)
                .map(|found| (at, found))
        };
        let long = "/front/camera/image_raw";
        let length = long.len() as u64;
        // Pointer, length, allocated, unused; keep the last 10.
        let found = topic(&[5, 0x3000, length, length, 0, 1, 10, 0], (0x3000, long));
        assert_eq!(found.map(|it| it.1), Some((long.into(), 10)));
        let found = topic(&[5, 0x3000, length, length, 0, 2, 10, 0], (0x3000, long));
        assert_eq!(found.map(|it| it.1), Some((long.into(), 0)), "all are kept");
        assert_eq!(topic(&[5, 0x3000, length + 1, length, 0, 1, 10, 0], (0x3000, long)), None);
        assert_eq!(
            topic(&[5, 0x3000, length, length, 0, 1, 10, 0], (0x3000, "front/camera/image_raw/")),
            None
        );
        // Within the string itself: its third word.
        let words = |text: u64| [5, text, 4, 0, 0, 1, 3, 0];
        let own = CALLBACK - 5 * 8;
        assert_eq!(topic(&words(own), (own, "/odo")).map(|it| it.1), Some(("/odo".into(), 3)));
        assert_eq!(topic(&words(0x3000), (0x3000, "/odo")), None, "so short a text is kept within");
    }
}
