//! The payer's network, as the merchant chose it; never inferred from the number.

use proto::charges::Provider as ProtoProvider;

crate::closed_list! {
    /// A mobile-money network in Ghana.
    pub enum Provider: "a provider" {
        Mtn = "MTN",
        Telecel = "TELECEL",
        At = "AT",
    }
}

#[cfg(feature = "sql")]
crate::ids::text_column!(Provider);

crate::proto_list! {
    Provider = ProtoProvider { Mtn, Telecel, At }
}
