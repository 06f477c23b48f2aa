//! How a charge stands, as merchants see it: its own status, and its transaction's in a session.

use proto::{charges::ChargeStatus as ProtoChargeStatus, sessions::TransactionStatus};

crate::closed_list! {
    /// A charge's status as merchants see it (spec §2.2 and §3.1).
    pub enum ChargeStatus: "a charge's status" {
        Initiated = "INITIATED",
        OtpRequired = "OTP_REQUIRED",
        Settled = "SETTLED",
        Failed = "FAILED",
    }
}

#[cfg(feature = "sql")]
crate::text_column!(ChargeStatus);

crate::proto_list! {
    ChargeStatus = ProtoChargeStatus { Initiated, OtpRequired, Settled, Failed }
}

crate::proto_list! {
    ChargeStatus = TransactionStatus { Initiated, OtpRequired, Settled, Failed }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_those_of_both_contracts() {
        for status in ChargeStatus::ALL {
            let of_charge = ProtoChargeStatus::from(*status);
            assert_eq!(of_charge.code(), Some(status.code()));
            let of_transaction = TransactionStatus::from(*status);
            assert_eq!(of_transaction.code(), Some(status.code()));
        }
    }
}
