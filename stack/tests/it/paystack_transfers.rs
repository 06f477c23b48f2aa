//! What only Paystack pays and tells: bank accounts, and what becomes of a transfer by its three
//! webhooks.

use std::time::Duration;

use proto::charges::{CaseKind, DisbursementStatus, SetPayoutSwitchesRequest, ShowFloatRequest};
use tokio::process::Command;

use crate::{
    money_out::{
        AT, Till, check_credit, check_event, collected, collected_with, events, only_case,
    },
    processes::binary,
    shop::{Shop, credits},
};

/// GCB Bank, which the simulated Paystack knows.
const BANK_CODE: &str = "040100";

/// Sets the merchant's payout account to this bank account as an operator does. Returns what payctl
/// says if it is refused.
async fn pays_to_bank(shop: &Shop, account: &str, code: &str) -> Result<(), String> {
    let merchant_id = &shop.ready.demo.merchant_id;
    let mut payctl = Command::new(binary("payctl"));
    payctl
        .args(["payout-account", "set", merchant_id])
        .args(["--bank-account", account, "--bank-code", code])
        .args(["--name", "Ama Mensah"])
        .env("CHARGES_GRPC_URL", &shop.ready.grpc.charges_operators);
    let output = payctl.output().await.unwrap();
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8(output.stderr).unwrap()),
    }
}

/// The simulated Paystack takes a bank account as a recipient of the type `ghipss` alone.
#[tokio::test]
async fn story_201_a_payout_to_a_bank_account_is_paid_and_the_ledgers_float_is_the_rails() {
    let shop = collected().await;
    let mut till = Till::of(&shop);
    pays_to_bank(&shop, "1440000201", BANK_CODE).await.unwrap();
    let switches = SetPayoutSwitchesRequest {
        merchant_id: shop.ready.demo.merchant_id.clone(),
        payouts_on_request: Some(true),
        daily_settlement: None,
    };
    till.treasury.set_payout_switches(switches).await.unwrap();
    let payout = till.pay_out(2_000, "bank").await;
    let paid = till.until(&payout, DisbursementStatus::Completed).await;
    assert_eq!(paid.destination.unwrap().account_masked, "••• 0201");
    assert_eq!(till.balance().await, (550, 0));
    check_credit(&till, &payout, (1, 2_000)).await;
    let lines = credits(&shop.ready.handset).await;
    let accounts: Vec<_> = lines.iter().map(|line| &line["account"]).collect();
    assert_eq!(accounts, ["1440000201"]);
    check_event(&shop, &payout, "payout.success").await;
    let floats = till.treasury.show_float(ShowFloatRequest {}).await;
    let mut floats = floats.unwrap().into_inner().rails.into_iter();
    let float = floats.find(|float| float.rail == "paystack").unwrap();
    // Nobody told the ledger what was in the float at first; a transfer to a bank costs 8.00.
    let spent = float.rail_balance.unwrap().minor_units - 100_000_000;
    assert_eq!(spent, -2_800);
    assert_eq!(float.float.unwrap().minor_units, spent);
    shop.close().await;
}

#[tokio::test]
async fn a_bank_account_of_somebody_else_or_of_nobody_is_not_taken() {
    let shop = collected().await;
    for (account, code, said) in [
        ("1440000212", BANK_CODE, "Kofi Boateng"),
        ("1440000204", BANK_CODE, "does not tell whose account it is"),
        ("1440000201", "999999", "does not tell whose account it is"),
        ("1440-0201", BANK_CODE, "must be an account number"),
        ("1440000201", "04/01", "must be a bank's code"),
    ] {
        let refused = pays_to_bank(&shop, account, code).await.unwrap_err();
        assert!(refused.contains(said), "{account} at {code}: {refused}");
    }
    shop.close().await;
}

/// Without them, nobody would ask for an hour.
#[tokio::test]
async fn a_webhook_has_paystack_asked_at_once_what_became_of_a_transfer() {
    let hourly = [("charges-svc", "--reconcile-schedule=1h")];
    for (story, status, event) in [
        ("201", DisbursementStatus::Completed, "payout.success"),
        ("203", DisbursementStatus::Failed, "payout.failed"),
        ("211", DisbursementStatus::Completed, "payout.success"),
    ] {
        let shop = collected_with(&hourly).await;
        let mut till = Till::of(&shop);
        let number = format!("{}{story}", AT.1);
        till.pays_to(AT.0, &number, "Ama Mensah").await;
        let payout = till.pay_out(2_000, story).await;
        till.until(&payout, status).await;
        check_event(&shop, &payout, event).await;
        if story == "211" {
            // It is taken back five seconds after Paystack told of the payment.
            shop.advance(Duration::from_secs(10)).await;
            only_case(&shop, &payout, CaseKind::TakenBack).await;
            assert!(till.read(&payout).await.reversed_at.is_some());
            assert_eq!(till.balance().await, (2_550, 0));
            assert_eq!(events(&shop, &payout.payout_id), [event]);
        }
        shop.close().await;
    }
}
