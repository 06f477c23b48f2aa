//! The balance with the lines that it is the sum of.

use proto::charges::{CaseKind, CloseCaseRequest, close_case_request::Action};
use serde_json::json;

use super::Person;
use crate::shop::{NO_LIMITS, Shop};

/// The cells of a column of a file, without its name.
fn column(file: &str, place: usize) -> Vec<&str> {
    let lines = file.split_terminator("\r\n").skip(1);
    lines
        .map(|line| line.split(',').nth(place).unwrap())
        .collect()
}

#[tokio::test]
async fn the_balance_is_the_sum_of_its_lines_on_the_page_and_in_the_file() {
    let shop = Shop::open_with(NO_LIMITS).await;
    let other = Person::sign_up(&shop, "Kofi’s Garage").await;
    let person = Person::sign_up(&shop, "Ama’s Kitchen").await;
    person.get("/balance").await.says("Nothing has moved yet.");
    let mut taken = Vec::new();
    for number in ["0240000001", "0240010001", "0240020001"] {
        taken.push(person.take(number, json!({})).await);
    }
    taken.reverse();
    let page = person.get("/balance").await;
    assert_eq!(page.code, 200);
    for text in [
        "GHS 76.50",
        "GHS 51.00",
        "GHS 25.50",
        "Payment collected",
        "Balance after it",
        "Download the day&#39;s statement",
    ] {
        page.says(text);
    }
    page.says_not("Held for a decision");
    assert_eq!(page.links("/payments/"), taken);
    let file = person.get("/balance.csv").await;
    assert_eq!(file.code, 200);
    assert_eq!(column(&file.html, 1), ["SETTLEMENT"; 3]);
    assert_eq!(column(&file.html, 2), taken);
    assert_eq!(column(&file.html, 5), ["76.50", "51.00", "25.50"]);

    let reserved = person.get("/balance?part=RESERVED").await;
    reserved.says("Nothing matches these filters:");
    let none = person.get("/balance?currency=USD").await;
    none.says("Nothing matches these filters:");
    let wrong = person.get("/balance?currency=cedi").await;
    assert_eq!(wrong.code, 400);
    wrong.says("Give a currency such as GHS.");
    wrong.says("Available");

    let theirs = other.get("/balance").await;
    theirs.says("Nothing has moved yet.");
    let theirs = other.get("/balance.csv").await;
    assert!(column(&theirs.html, 0).is_empty(), "{}", theirs.html);
    shop.close().await;
}

#[tokio::test]
async fn what_is_held_is_shown_with_its_payments_until_it_is_decided() {
    let shop = Shop::open_with(NO_LIMITS).await;
    let other = Person::sign_up(&shop, "Kofi’s Garage").await;
    let person = Person::sign_up(&shop, "Ama’s Kitchen").await;
    let held = "/balance?part=SUSPENSE";
    let nothing = person.get(held).await;
    nothing.says("Nothing matches these filters:");
    nothing.says("is no part of the others");
    let late = person.take("0240000010", json!({})).await;
    let case = shop.wait_for_case(&late).await;
    let body = json!({ "amount": 10, "mobile_number": "0240000015", "provider": "MTN" });
    let asked = person.api.post("/api/v1/payments/charge", &body).await;
    let unlike = asked.unwrap().text("reference").unwrap().to_owned();
    let other_case = shop.wait_for_case(&unlike).await;
    assert_eq!(other_case.kind(), CaseKind::Mismatch);
    let came = other_case.suspense.unwrap().minor_units;
    let total = format!("{}.{:02}", (came + 2_550) / 100, (came + 2_550) % 100);

    let page = person.get("/balance").await;
    page.says(
        &format!("<a href=\"{held}&#38;currency=GHS\">GHS\u{a0}{total}<").replace('\u{a0}', " "),
    );
    let page = person.get(&format!("{held}&currency=GHS")).await;
    assert_eq!(page.links("/payments/"), [unlike.as_str(), late.as_str()]);
    for text in [
        "Paid after it had failed",
        "Paid, but not as asked for",
        "We are finding out whose it is.",
        "GHS 25.50",
        &format!("GHS {total}"),
    ] {
        page.says(text);
    }
    let file = person.get("/balance.csv?part=SUSPENSE").await.html;
    assert_eq!(column(&file, 2), [unlike.as_str(), late.as_str()]);
    assert_eq!(column(&file, 5), [total.as_str(), "25.50"]);
    assert_eq!(column(&file, 6), ["SUSPENSE"; 2]);
    assert_eq!(column(&file, 7), ["MISMATCH", "LATE_MONEY"]);
    let theirs = other.get(held).await;
    theirs.says("Nothing matches these filters:");

    let release = CloseCaseRequest {
        case_id: case.case_id,
        action: Action::Release.into(),
        ..CloseCaseRequest::default()
    };
    shop.operations().close_case(release).await.unwrap();
    let page = person.get(held).await;
    assert_eq!(page.links("/payments/"), [unlike]);
    let page = person.get("/balance").await;
    assert_eq!(page.links("/payments/"), [late]);
    page.says("Late money is yours");
    shop.close().await;
}
