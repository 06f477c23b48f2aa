//! The payer's network, as the merchant chose it; never read from the number.

use proto::charges::Provider as ProtoProvider;

use crate::closed_list::UnknownCode;

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

impl From<Provider> for ProtoProvider {
    fn from(provider: Provider) -> Self {
        match provider {
            Provider::Mtn => Self::Mtn,
            Provider::Telecel => Self::Telecel,
            Provider::At => Self::At,
        }
    }
}

impl TryFrom<ProtoProvider> for Provider {
    type Error = UnknownCode;

    fn try_from(provider: ProtoProvider) -> Result<Self, UnknownCode> {
        match provider {
            ProtoProvider::Mtn => Ok(Self::Mtn),
            ProtoProvider::Telecel => Ok(Self::Telecel),
            ProtoProvider::At => Ok(Self::At),
            ProtoProvider::Unspecified => Err(UnknownCode("a provider")),
        }
    }
}
