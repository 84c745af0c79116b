//! Reads run directories: tables, figures, comparisons, exports.
