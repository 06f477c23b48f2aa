//! The merchant behind a request, and whether it may use the API (spec §5.7, §7).

use chassis::ids::MerchantId;
use proto::{
    charges::AskedBy,
    merchants::{self as contract, KycStatus},
};

use crate::{error::Error, front::RequestId};

/// What the edge knows of a merchant.
#[derive(Clone, Debug)]
pub struct Merchant {
    pub id: MerchantId,
    /// Shown to payers.
    pub name: String,
    /// What the merchant calls the API key by which it was found, if it was.
    pub key_name: Option<String>,
    email_verified: bool,
    kyc_status: KycStatus,
    accepting_payments: bool,
}

/// What a request is for, as far as that decides who may make it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Begins a session or a charge.
    TakePayment,
    /// Reads, or continues a charge that was accepted before.
    Other,
}

impl Merchant {
    /// Whether an operator has approved the business, and the approval has not ended.
    pub fn is_approved(&self) -> bool {
        self.kyc_status == KycStatus::Approved
    }

    /// What is put on record of a request that asks for something.
    pub fn asked_by(&self, RequestId(request_id): RequestId) -> AskedBy {
        AskedBy {
            request_id: Some(request_id),
            key_name: self.key_name.clone(),
        }
    }

    /// Checks in the specified order: e-mail, KYC and, for new payments, whether the merchant
    /// accepts them.
    pub fn may(&self, purpose: Purpose) -> Result<(), Error> {
        if !self.email_verified {
            return Err(Error::EmailNotVerified);
        }
        if self.kyc_status != KycStatus::Approved {
            // Null if there is no record (spec §3.3).
            return Err(Error::KycNotApproved(self.kyc_status.code()));
        }
        if purpose == Purpose::TakePayment && !self.accepting_payments {
            return Err(Error::MerchantNotAcceptingPayments);
        }
        Ok(())
    }
}

impl TryFrom<contract::Merchant> for Merchant {
    type Error = Error;

    fn try_from(merchant: contract::Merchant) -> Result<Self, Error> {
        Ok(Self {
            id: merchant.merchant_id.parse().map_err(Error::internal)?,
            kyc_status: merchant.kyc_status(),
            name: merchant.name,
            key_name: merchant.key_name,
            email_verified: merchant.email_verified,
            accepting_payments: merchant.accepting_payments,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merchant(email_verified: bool, kyc: KycStatus, accepting_payments: bool) -> Merchant {
        Merchant {
            id: MerchantId::new(),
            name: "Kente Shop".to_owned(),
            key_name: None,
            email_verified,
            kyc_status: kyc,
            accepting_payments,
        }
    }

    #[test]
    fn only_approved_kyc_with_a_verified_email_may_use_the_api() {
        let check = |email, kyc| merchant(email, kyc, false).may(Purpose::Other);
        assert!(check(true, KycStatus::Approved).is_ok());
        for (kyc, told) in [
            (KycStatus::Unspecified, None),
            (KycStatus::Pending, Some("PENDING")),
            (KycStatus::InReview, Some("IN_REVIEW")),
            (KycStatus::Rejected, Some("REJECTED")),
            (KycStatus::Expired, Some("EXPIRED")),
        ] {
            let refused = check(true, kyc).expect_err("not approved");
            assert!(matches!(refused, Error::KycNotApproved(status) if status == told));
            let refused = check(false, kyc).expect_err("not verified");
            assert!(
                matches!(refused, Error::EmailNotVerified),
                "e-mail comes first"
            );
        }
    }

    #[test]
    fn a_merchant_that_accepts_no_payments_may_still_do_all_else() {
        let merchant = merchant(true, KycStatus::Approved, false);
        assert!(merchant.may(Purpose::Other).is_ok());
        let refused = merchant
            .may(Purpose::TakePayment)
            .expect_err("not accepting");
        assert!(matches!(refused, Error::MerchantNotAcceptingPayments));
    }
}
