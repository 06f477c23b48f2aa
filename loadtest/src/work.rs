//! What can be asked of the gateway.

use clap::ValueEnum;

/// One kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Work {
    /// POST initiate: a payment session is created.
    Initiate,
    /// POST charge, to its 202.
    Charge,
    /// GET a session's status.
    Status,
    /// GET a charge.
    ReadCharge,
    /// A path that does not exist.
    UnknownPath,
    /// POST charge, until the merchant has received the webhook of its success.
    Life,
}

impl Work {
    /// What its report is called.
    pub fn name(self) -> String {
        let value = self.to_possible_value();
        let name = value.map_or(String::new(), |value| value.get_name().to_owned());
        format!("gateway {name}")
    }
}
