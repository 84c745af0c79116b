//! One input that stands for several files: they stand one behind the other with [`BETWEEN`]
//! between them, so that seeds are made by `cat` and a byte more or less in one part does not move
//! the others.

/// What stands between two parts.
pub const BETWEEN: &[u8] = b"\n%%%%\n";

/// The first `N` parts; missing ones are empty, and the last one takes all that is left.
pub fn parts<const N: usize>(data: &[u8]) -> [&[u8]; N] {
    let mut rest = data;
    std::array::from_fn(|index| {
        let end = match rest.windows(BETWEEN.len()).position(|window| window == BETWEEN) {
            Some(end) if index + 1 < N => end,
            _ => rest.len(),
        };
        let (part, behind) = rest.split_at(end);
        rest = behind.get(BETWEEN.len()..).unwrap_or(&[]);
        part
    })
}
