//! What a guest boots from: an initramfs in memory, with programs, their libraries and kernel modules.
