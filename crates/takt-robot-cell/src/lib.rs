//! The cobot safety cell: speed and separation monitoring and its task set.
