//! Addresses of the ESC's registers that this segment gives a meaning (ETG.1000.4 section 6, ET1100
//! data sheet).

pub(super) const STATION: u16 = 0x0010;
pub(super) const ALIAS: u16 = 0x0012;
pub(super) const DL_STATUS: u16 = 0x0110;
pub(super) const AL_CONTROL: u16 = 0x0120;
pub(super) const AL_STATUS: u16 = 0x0130;
pub(super) const AL_STATUS_CODE: u16 = 0x0134;
pub(super) const PDI_CONTROL: u16 = 0x0140;
pub(super) const WATCHDOG_DIVIDER: u16 = 0x0400;
pub(super) const WATCHDOG_PROCESS_DATA: u16 = 0x0420;
pub(super) const WATCHDOG_STATUS: u16 = 0x0440;
pub(super) const WATCHDOG_EXPIRED: u16 = 0x0442;
pub(super) const SII_CONFIG: u16 = 0x0500;
pub(super) const SII_CONTROL: u16 = 0x0502;
pub(super) const SII_ADDRESS: u16 = 0x0504;
pub(super) const SII_DATA: u16 = 0x0508;
pub(super) const FMMU: u16 = 0x0600;
pub(super) const FMMU_END: u16 = FMMU + 16 * FMMUS as u16;
pub(super) const SYNC_MANAGER: u16 = 0x0800;
pub(super) const SYNC_MANAGER_END: u16 = SYNC_MANAGER + 8 * SYNC_MANAGERS as u16;
pub(super) const DC_RECEIVE: u16 = 0x0900;
pub(super) const DC_SYSTEM_TIME: u16 = 0x0910;
pub(super) const DC_RECEIVE_UNIT: u16 = 0x0918;
pub(super) const DC_OFFSET: u16 = 0x0920;
pub(super) const DC_DELAY: u16 = 0x0928;
pub(super) const DC_DIFFERENCE: u16 = 0x092C;
pub(super) const DC_SPEED_START: u16 = 0x0930;
/// Activation of the cyclic unit: bit 0 the unit, bit 1 Sync0.
pub(super) const DC_ACTIVATION: u16 = 0x0981;
/// System time of the first Sync0 pulse; then of the next.
pub(super) const DC_SYNC_START: u16 = 0x0990;
/// Time between Sync0 pulses, nanoseconds.
pub(super) const DC_SYNC0_CYCLE: u16 = 0x09A0;
pub(super) const DC_END: u16 = 0x0A00;
/// Start of the memory behind the registers.
pub(super) const RAM: u16 = 0x1000;

/// FMMUs of an ET1100.
pub(super) const FMMUS: usize = 8;
/// Sync managers of an ET1100.
pub(super) const SYNC_MANAGERS: usize = 8;
/// Registers and 8 KiB of memory, as an ET1100 has it.
pub(super) const MEMORY: usize = 0x3000;

/// Registers that the master may write below [`RAM`]; the device reports all others.
pub(super) fn is_writable(address: u16) -> bool {
    !matches!(address, 0x0000..=0x000F | 0x0012..=0x001F | 0x0110..=0x011F | 0x0130..=0x013F | 0x0140..=0x015F
        | 0x0440..=0x0441 | 0x0918..=0x091F | DC_DIFFERENCE..=0x092F | 0x0E00..=0x0EFF)
}

/// As [`is_writable`] for the status bytes inside the sync manager blocks.
pub(super) fn is_sync_manager_status(address: u16) -> bool {
    (SYNC_MANAGER..SYNC_MANAGER_END).contains(&address) && matches!(address & 7, 5 | 7)
}
