//! TSDL, the language of CTF 1.8's metadata: which types, streams, events and clocks a trace has.

mod error;
mod lexer;
mod parser;
mod resolve;
mod specs;
pub mod types;

pub use error::{TsdlError, TsdlProblem};
pub use types::Metadata;

/// Reads metadata from its text.
///
/// # Errors
///
/// The text is not TSDL 1.8, or declares what no event can be read by.
pub fn read(text: &str) -> Result<Metadata, TsdlError> {
    let mut metadata = parser::parse(text)?;
    resolve::resolve(text, &mut metadata)?;
    Ok(metadata)
}
