//! A short text of fixed size: causes travel through shared memory and rings without allocation.

use std::fmt;

/// Bytes that are kept.
pub const MAX_TEXT: usize = 240;

/// At most [`MAX_TEXT`] bytes of UTF-8; longer texts are cut at a character.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Text {
    bytes: [u8; MAX_TEXT],
    length: u8,
}

impl Text {
    pub const EMPTY: Self = Self { bytes: [0; MAX_TEXT], length: 0 };

    /// The first bytes of `text`.
    pub fn new(text: &str) -> Self {
        let mut end = text.len().min(MAX_TEXT);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let mut bytes = [0; MAX_TEXT];
        bytes[..end].copy_from_slice(&text.as_bytes()[..end]);
        Self { bytes, length: end as u8 }
    }

    /// A text of formatted arguments, without allocation.
    pub fn format(arguments: fmt::Arguments<'_>) -> Self {
        struct Cursor(Text, bool);
        impl fmt::Write for Cursor {
            fn write_str(&mut self, part: &str) -> fmt::Result {
                // Once something was cut, nothing may follow it.
                if self.1 {
                    return Ok(());
                }
                let text = &mut self.0;
                let at = usize::from(text.length);
                let mut end = part.len().min(MAX_TEXT - at);
                self.1 = end < part.len();
                while !part.is_char_boundary(end) {
                    end -= 1;
                }
                text.bytes[at..at + end].copy_from_slice(&part.as_bytes()[..end]);
                text.length += end as u8;
                Ok(())
            }
        }
        let mut cursor = Cursor(Self::EMPTY, false);
        // Writing into the cursor cannot fail; a Display that fails leaves what it wrote.
        let _ = fmt::write(&mut cursor, arguments);
        cursor.0
    }

    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..usize::from(self.length)]).unwrap_or("")
    }

    /// From the words of a shared memory, which may hold anything.
    pub(crate) fn from_words(length: u64, words: &[u64]) -> Self {
        let mut bytes = [0; MAX_TEXT];
        for (chunk, word) in bytes.chunks_mut(8).zip(words) {
            chunk.copy_from_slice(&word.to_le_bytes()[..chunk.len()]);
        }
        let length = length.min(MAX_TEXT as u64) as usize;
        match std::str::from_utf8(&bytes[..length]) {
            Ok(_) => Self { bytes, length: length as u8 },
            Err(error) => Self { bytes, length: error.valid_up_to() as u8 },
        }
    }

    pub(crate) fn word(&self, index: usize) -> u64 {
        let mut word = [0; 8];
        word.copy_from_slice(&self.bytes[index * 8..index * 8 + 8]);
        u64::from_le_bytes(word)
    }

    pub(crate) fn length(&self) -> u64 {
        u64::from(self.length)
    }
}

/// Words that a text takes in shared memory.
pub(crate) const TEXT_WORDS: usize = MAX_TEXT / 8;

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_at_a_character() {
        let long = "ö".repeat(200);
        assert_eq!(Text::new(&long).as_str(), "ö".repeat(120));
        assert_eq!(Text::format(format_args!("{}{long}", "a")).as_str(), format!("a{}", "ö".repeat(119)));
        assert_eq!(Text::format(format_args!("{long}{}", "tail")).as_str(), "ö".repeat(120));
    }

    proptest::proptest! {
        #[test]
        fn any_words_give_a_text(length: u64, words: [u64; TEXT_WORDS]) {
            let _ = Text::from_words(length, &words).as_str().len();
        }

        #[test]
        fn texts_survive_the_memory(text in "\\PC{0,100}") {
            let text = Text::new(&text);
            let words: Vec<u64> = (0..TEXT_WORDS).map(|i| text.word(i)).collect();
            proptest::prop_assert_eq!(Text::from_words(text.length(), &words), text);
        }
    }
}
