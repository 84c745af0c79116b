//! The first process of the guest.
