//! What rails send to us. A callback is a hint that triggers a query; its content is never
//! trusted.

use std::collections::HashMap;

use chassis::ids::RailReference;

/// A request to a rail's callback address, as it arrived.
#[derive(Debug)]
pub struct Callback {
    /// The last segment of the address.
    pub token: String,
    /// Those of [`Terms::callback_headers`](crate::Terms::callback_headers) that it has.
    pub headers: HashMap<String, String>,
    /// The bytes that a signature covers.
    pub body: Vec<u8>,
}

/// Which charge a callback is about, as far as its rail can be trusted to say so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallbackSubject {
    /// The one with this callback address.
    Address,
    /// The one with this reference at the rail.
    Reference(RailReference),
    /// None: the callback names no charge.
    Nothing,
}

/// A request to the callback address is not from the rail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallbackError {
    #[error("the callback's token is not the configured one")]
    WrongToken,
    #[error("the callback's signature is missing or wrong")]
    WrongSignature,
}
