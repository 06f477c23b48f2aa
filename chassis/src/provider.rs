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

/// What a field that names no provider is told.
pub const MUST_BE_PROVIDER: &str = "must be MTN, TELECEL or AT";

#[cfg(feature = "sql")]
crate::ids::text_column!(Provider);

crate::proto_list! {
    Provider = ProtoProvider { Mtn, Telecel, At }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_told_of_each_provider() {
        let codes: Vec<&str> = Provider::ALL.iter().map(|known| known.code()).collect();
        let (last, others) = codes.split_last().expect("providers");
        let told = format!("must be {} or {last}", others.join(", "));
        assert_eq!(told, MUST_BE_PROVIDER);
    }
}
