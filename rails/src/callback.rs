//! What rails send to us. A hint: it makes the rail be asked, and is never believed.

use std::collections::HashMap;

use chassis::ids::RailReference;

/// What came to a rail's callback address, as it arrived.
#[derive(Debug)]
pub struct Callback {
    /// The last segment of the address.
    pub token: String,
    /// Those of [`Terms::callback_headers`](crate::Terms::callback_headers) that came.
    pub headers: HashMap<String, String>,
    /// A signature is over these bytes.
    pub body: Vec<u8>,
}

/// Which charge a callback is about, as far as its rail can be trusted to say so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallbackSubject {
    /// The one with this callback address.
    Address,
    /// The one with this reference at the rail.
    Reference(RailReference),
    /// None that the callback names.
    Nothing,
}

/// What came to the callback address is not from the rail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallbackError {
    #[error("the callback's token is not the configured one")]
    WrongToken,
    #[error("the callback's signature is missing or wrong")]
    WrongSignature,
}
