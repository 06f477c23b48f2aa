//! The codes of the contracts' closed lists, for JSON and for people: a value's name in its `.proto`
//! file without its list's.

/// Above every number that a closed list gives a value.
const NUMBERS_END: i32 = 64;

macro_rules! codes {
    ($($list:ty = $prefix:literal,)+) => {
        $(impl $list {
            /// Every value but UNSPECIFIED.
            pub fn all() -> impl Iterator<Item = Self> {
                (1..NUMBERS_END).filter_map(|number| Self::try_from(number).ok())
            }

            /// `None` for UNSPECIFIED, which is also what a value is read as that this version does
            /// not know.
            pub fn code(self) -> Option<&'static str> {
                let code = self.as_str_name().strip_prefix($prefix)?;
                Some(code).filter(|_| self != Self::Unspecified)
            }

            pub fn from_code(code: &str) -> Option<Self> {
                Self::all().find(|value| value.code() == Some(code))
            }
        })+

        #[cfg(test)]
        #[test]
        fn every_value_has_a_code_that_names_it() {
            $({
                assert_eq!(<$list>::Unspecified.code(), None);
                assert!(<$list>::all().count() > 1);
                for value in <$list>::all() {
                    assert_eq!(value.code().and_then(<$list>::from_code), Some(value));
                }
            })+
        }
    };
}

codes! {
    crate::charges::BalancePart = "BALANCE_PART_",
    crate::charges::CaseKind = "CASE_KIND_",
    crate::charges::ChargeStatus = "CHARGE_STATUS_",
    crate::charges::DestinationType = "DESTINATION_TYPE_",
    crate::charges::DisbursementStatus = "DISBURSEMENT_STATUS_",
    crate::charges::Provider = "PROVIDER_",
    crate::charges::StatementFormat = "STATEMENT_FORMAT_",
    crate::charges::TimelineKind = "TIMELINE_KIND_",
    crate::charges::TimelineOutcome = "TIMELINE_OUTCOME_",
    crate::charges::WalletState = "WALLET_STATE_",
    crate::charges::Weather = "WEATHER_",
    crate::merchants::BusinessKind = "BUSINESS_KIND_",
    crate::merchants::KycStatus = "KYC_STATUS_",
    crate::sessions::SessionStatus = "SESSION_STATUS_",
    crate::sessions::TransactionStatus = "TRANSACTION_STATUS_",
    crate::webhooks::DeliveryStatus = "DELIVERY_STATUS_",
    crate::webhooks::EventType = "EVENT_TYPE_",
    crate::webhooks::FailureCause = "FAILURE_CAUSE_",
    crate::webhooks::SignatureFinding = "SIGNATURE_FINDING_",
    crate::webhooks::ConformanceCase = "CONFORMANCE_CASE_",
    crate::webhooks::ConformanceState = "CONFORMANCE_STATE_",
}

impl crate::webhooks::EventType {
    /// Its name in an event's envelope (spec §6.1): `payment.success`.
    pub fn name(self) -> Option<String> {
        Some(self.code()?.to_ascii_lowercase().replacen('_', ".", 1))
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::all().find(|event_type| event_type.name().as_deref() == Some(name))
    }
}
