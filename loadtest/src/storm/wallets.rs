//! Whose wallets pay and are paid. The last three digits of a number make its network tell a story:
//! docs/merchants/sandbox.md has them all.

use proto::charges::{DestinationType, Provider, SetPayoutAccountRequest};

use super::choices::Choices;

/// Providers, by weight, each with the beginning of its numbers. MTN goes over MTN's own rail, AT over
/// Hubtel (a third), and Telecel over Paystack.
const PROVIDERS: [(u64, (&str, Provider, &str)); 3] = [
    (4, ("MTN", Provider::Mtn, "024")),
    (3, ("AT", Provider::At, "027")),
    (2, ("TELECEL", Provider::Telecel, "020")),
];

/// How payers' stories begin, by weight. To a charge, those from 201 on are as good as 001; they say
/// what becomes of its refunds.
const PAYERS: [(u64, &str); 22] = [
    (30, "001"),
    (3, "003"),
    (4, "004"),
    (2, "006"),
    (2, "007"),
    (5, "008"),
    (5, "009"),
    (4, "010"),
    (2, "012"),
    (6, "013"),
    (3, "018"),
    (2, "019"),
    (3, "020"),
    (4, "203"),
    (2, "204"),
    (3, "206"),
    (6, "207"),
    (4, "208"),
    (4, "209"),
    (4, "210"),
    (6, "211"),
    (4, "215"),
];

/// What becomes of payouts, by weight.
const PAYEES: [(u64, &str); 13] = [
    (20, "201"),
    (5, "203"),
    (3, "204"),
    (3, "205"),
    (4, "206"),
    (8, "207"),
    (6, "208"),
    (6, "209"),
    (6, "210"),
    (8, "211"),
    (4, "213"),
    (4, "215"),
    (4, "218"),
];

/// The story in which a network reports a failure and takes the money after all.
pub const PAID_LATE: &str = "010";

/// A wallet that is charged.
pub struct Payer {
    pub provider: &'static str,
    pub number: String,
}

/// A wallet of this client's.
pub fn payer(choices: &mut Choices, client: u16) -> Payer {
    let (provider, _, prefix) = choices.weighted(&PROVIDERS);
    let story = choices.weighted(&PAYERS);
    Payer {
        provider,
        number: format!("{prefix}{client:04}{story}"),
    }
}

/// An account to which a merchant is paid out from now on, a wallet or sometimes one at a bank.
pub fn payee(choices: &mut Choices, merchant_id: &str) -> SetPayoutAccountRequest {
    let (_, provider, prefix) = choices.weighted(&PROVIDERS);
    let story = choices.weighted(&PAYEES);
    let account = SetPayoutAccountRequest {
        merchant_id: merchant_id.to_owned(),
        holder_name: "Ama Mensah".to_owned(),
        // The networks know no holder in story 204.
        confirm_holder_name: true,
        ..SetPayoutAccountRequest::default()
    };
    if choices.chance(15) {
        return SetPayoutAccountRequest {
            r#type: DestinationType::Bank.into(),
            bank_code: "030100".to_owned(),
            account: format!("1234567890{story}"),
            ..account
        };
    }
    SetPayoutAccountRequest {
        r#type: DestinationType::MobileMoney.into(),
        provider: provider.into(),
        account: format!("{prefix}0000{story}"),
        ..account
    }
}
