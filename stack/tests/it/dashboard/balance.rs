//! The balance with the lines that it is the sum of.

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
