//! `payctl reconcile` over the whole stack: a report made from the networks' own books, as they
//! are and with planted differences.

use std::{path::Path, process::Output, time::Duration};

use chassis::{
    clock::{Clock, Timestamp},
    testing::until,
};
use proto::{
    charges::{
        CaseKind, CreateRefundRequest, DisbursementStatus, GetRefundRequest, Payout,
        ShowChargeRequest, ShowDisbursementRequest,
        disbursement_operations_client::DisbursementOperationsClient,
        disbursements_client::DisbursementsClient,
    },
    money::Money,
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;
use uuid::Uuid;

use crate::{
    money_out::{MTN, Till},
    processes::binary,
    shop::{Shop, book, credits},
};

/// The period of these reports ends this long after the last movement, and has begun before the
/// first: no record is at its edges.
const LATER: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(24 * 3_600);

/// A line of a report, in the columns of a made-up rail.
#[derive(Clone, Debug)]
struct Line {
    at: Timestamp,
    reference: String,
    id: String,
    way: &'static str,
    amount_minor: i64,
    currency: &'static str,
    outcome: &'static str,
}

/// What happened at MTN by its own books.
async fn lines(shop: &Shop) -> Vec<Line> {
    let handset = &shop.ready.handset;
    let (payments, credits) = (book(handset).await, credits(handset).await);
    let payments = payments
        .iter()
        .map(|entry| ("Credit", entry, "debited_minor"));
    let credits = credits
        .iter()
        .map(|entry| ("Debit", entry, "credited_minor"));
    let of_mtn = payments
        .chain(credits)
        .filter(|(_, entry, _)| entry["rail"] == "momo");
    // The books tell no times. All has moved by now.
    let now = Clock::system().now();
    of_mtn
        .zip(1..)
        .map(|((way, entry, moved), place)| {
            let moved = entry[moved].as_i64().unwrap();
            let reference = entry["reference"].as_str().unwrap().to_owned();
            Line {
                at: now - Duration::from_millis(place),
                id: format!("{way} of {reference}"),
                reference,
                way,
                amount_minor: match moved {
                    0 => entry["amount_minor"].as_i64().unwrap(),
                    moved => moved,
                },
                currency: "GHS",
                outcome: if moved == 0 { "DECLINED" } else { "SETTLED" },
            }
        })
        .collect()
}

/// Writes a report and compares it. The rail has words, and an order of columns, of its own.
async fn reconcile(shop: &Shop, folder: &Path, lines: &[Line], to: Timestamp) -> Output {
    let mut report = "When,Way,Sum,Ccy,Outcome,\"Their, id\",Our id\n".to_owned();
    for line in lines {
        let (major, minor) = (line.amount_minor / 100, line.amount_minor % 100);
        let Line {
            at,
            reference,
            id,
            way,
            currency,
            outcome,
            ..
        } = line;
        report += &format!(
            "\"{at}\",{way},\"{major}.{minor:02}\",{currency},{outcome},{id},{reference}\n"
        );
    }
    let file = folder.join("report.csv");
    std::fs::write(&file, report).unwrap();
    let (from, to) = ((to - DAY).to_string(), to.to_string());
    let flags = [
        "reconcile",
        "--rail",
        "momo",
        "--layout",
        "momo-collection",
        "--from",
        &from,
        "--to",
        &to,
        "--reference",
        "our_id",
        "--rail-id",
        "Their, id",
        "--amount",
        "Sum",
        "--currency",
        "ccy",
        "--time",
        "when",
        "--direction",
        "Way",
        "--status",
        "Outcome",
        "--word",
        "credit=in",
        "--word",
        "debit=out",
        "--word",
        "settled=paid",
        "--word",
        "declined=failed",
    ];
    let mut payctl = Command::new(binary("payctl"));
    payctl
        .args(flags)
        .arg(&file)
        .env("CHARGES_GRPC_URL", &shop.ready.grpc.charges_operators);
    payctl.output().await.unwrap()
}

fn summary(output: &Output, code: i32) -> Value {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{said}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A stack with seven settled charges at MTN, one that failed, two payouts, a refund, and something
/// at another rail.
async fn busy_shop() -> (Shop, Vec<String>, [Payout; 2], String) {
    let shop = Shop::open().await;
    let mut settled = Vec::new();
    for _ in 0..7 {
        let answer = shop.charge("0240000001", "MTN").await;
        settled.push(answer.text("reference").unwrap().to_owned());
    }
    let other_rail = shop.charge("0270000001", "AT").await;
    let failed = shop.charge("0240000004", "MTN").await;
    for answer in [&other_rail, &failed] {
        shop.wait_for_end(answer.text("reference").unwrap()).await;
    }
    for reference in &settled {
        shop.wait_for_end(reference).await;
    }
    let mut till = Till::of(&shop);
    till.pays_to(MTN.0, "0240000201", "Ama Mensah").await;
    let payouts = [
        till.pay_out(2_000, "1").await,
        till.pay_out(3_000, "2").await,
    ];
    for payout in &payouts {
        till.until(payout, DisbursementStatus::Completed).await;
    }
    let refund = refund(&shop, &settled[4]).await;
    settled.push(failed.text("reference").unwrap().to_owned());
    (shop, settled, payouts, refund)
}

/// Refunds 5.00 of a charge. Returns the refund's id once the payer has it.
async fn refund(shop: &Shop, reference: &str) -> String {
    let mut disbursements = DisbursementsClient::new(shop.charges_channel());
    let merchant_id = shop.ready.demo.merchant_id.clone();
    let request = CreateRefundRequest {
        merchant_id: merchant_id.clone(),
        reference: reference.to_owned(),
        amount: Some(Money {
            minor_units: 500,
            currency: "GHS".to_owned(),
        }),
        idempotency_key: "c:refund".to_owned(),
        asked_by: None,
    };
    let made = disbursements.create_refund(request).await.unwrap();
    let refund_id = made.into_inner().refund.unwrap().refund_id;
    until("it is refunded", async || {
        let request = GetRefundRequest {
            merchant_id: merchant_id.clone(),
            refund_id: refund_id.clone(),
        };
        let found = disbursements.clone().get_refund(request).await.unwrap();
        found.into_inner().status() == DisbursementStatus::Completed
    })
    .await;
    refund_id
}

/// Moves the clock past the end of a report's period, and returns that end.
async fn later(shop: &Shop) -> Timestamp {
    let to = Clock::system().now() + LATER / 2;
    shop.advance(LATER).await;
    to
}

async fn rail_reference_of(shop: &Shop, reference: &str) -> String {
    let reference = reference.to_owned();
    let mut operations = shop.operations();
    let shown = operations.show_charge(ShowChargeRequest { reference });
    shown.await.unwrap().into_inner().rail_reference
}

async fn rail_reference_out(shop: &Shop, id: &str) -> String {
    let id = id.to_owned();
    let mut treasury = DisbursementOperationsClient::new(shop.charges_operators());
    let shown = treasury.show_disbursement(ShowDisbursementRequest { id });
    shown.await.unwrap().into_inner().rail_reference
}

#[tokio::test]
async fn a_report_of_what_the_networks_did_matches_what_we_booked() {
    let (shop, ..) = busy_shop().await;
    let (folder, to) = (TempDir::new().unwrap(), later(&shop).await);
    let lines = lines(&shop).await;
    assert_eq!(lines.len(), 11);
    let told = summary(&reconcile(&shop, folder.path(), &lines, to).await, 0);
    assert_eq!((&told["lines"], &told["matched"]), (&json!(11), &json!(11)));
    assert_eq!(told["differences"], json!({}), "{told}");
    assert_eq!(told["undecided"], 0, "{told}");
    assert!(shop.cases().await.is_empty());
    shop.close().await;
}

#[tokio::test]
async fn seven_planted_differences_are_found_and_nothing_else_and_once() {
    let (shop, charges, payouts, refund) = busy_shop().await;
    let (folder, to) = (TempDir::new().unwrap(), later(&shop).await);
    let mut lines = lines(&shop).await;
    let mut rails = Vec::new();
    for reference in &charges {
        rails.push(rail_reference_of(&shop, reference).await);
    }
    let unpaid = rail_reference_out(&shop, &payouts[0].payout_id).await;
    let refunded = rail_reference_out(&shop, &refund).await;
    lines.retain(|line| line.reference != unpaid && line.reference != rails[0]);
    let place = |lines: &[Line], reference: &str| {
        let found = lines.iter().position(|line| line.reference == reference);
        found.unwrap()
    };
    let again = Line {
        id: "another movement".to_owned(),
        ..lines[place(&lines, &rails[1])].clone()
    };
    let stranger = Line {
        id: "a stranger".to_owned(),
        reference: Uuid::new_v4().to_string(),
        ..again.clone()
    };
    lines.extend([again, stranger.clone()]);
    let dearer = place(&lines, &refunded);
    lines[dearer].amount_minor += 1;
    let foreign = place(&lines, &rails[3]);
    lines[foreign].currency = "USD";
    let paid = place(&lines, &rails[7]);
    lines[paid].outcome = "SETTLED";

    let told = summary(&reconcile(&shop, folder.path(), &lines, to).await, 3);
    let differences = json!({
        "REPORT_UNKNOWN": 1, "REPORT_DIFFERS": 2, "REPORT_CONTRADICTS": 1, "REPORT_TWICE": 1,
        "REPORT_LACKS": 2,
    });
    assert_eq!(told["differences"], differences, "{told}");
    assert_eq!(told["cases_opened"], 7);
    assert_eq!((&told["lines"], &told["matched"]), (&json!(11), &json!(6)));
    let cases = shop.cases().await;
    let of_stranger = cases
        .iter()
        .find(|case| case.kind() == CaseKind::ReportUnknown);
    let told_at = format!("at {}", stranger.at);
    assert!(of_stranger.unwrap().detail.contains(&told_at), "{cases:?}");
    let mut found: Vec<(CaseKind, String)> = cases
        .into_iter()
        .map(|case| (case.kind(), case.reference))
        .collect();
    let mut planted = vec![
        (CaseKind::ReportLacks, charges[0].clone()),
        (CaseKind::ReportLacks, payouts[0].payout_id.clone()),
        (CaseKind::ReportTwice, charges[1].clone()),
        (CaseKind::ReportUnknown, stranger.reference),
        (CaseKind::ReportDiffers, refund),
        (CaseKind::ReportDiffers, charges[3].clone()),
        (CaseKind::ReportContradicts, charges[7].clone()),
    ];
    found.sort();
    planted.sort();
    assert_eq!(found, planted);

    let again = summary(&reconcile(&shop, folder.path(), &lines, to).await, 3);
    assert_eq!(again["differences"], differences, "{again}");
    assert_eq!(again["cases_opened"], 0);
    assert_eq!(shop.cases().await.len(), 7);
    let failed = shop.read_charge(&charges[7]).await;
    assert_eq!(failed["status"], "FAILED", "a report settles nothing");
    shop.close().await;
}
