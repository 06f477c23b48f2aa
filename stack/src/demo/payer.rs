//! A payer at the hosted checkout with a browser that runs no scripts: reads the page and sends
//! its form.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use chassis::http;
use reqwest::header::{CONTENT_TYPE, LOCATION};

/// Longest wait for a page. A form may take 12 s.
const PAGE_MAX: Duration = Duration::from_secs(20);

/// Pays a link in cedis from this number. Returns once the form is answered.
pub async fn pay(payment_url: &str, network: &str, number: &str) -> anyhow::Result<()> {
    let client = http::client(PAGE_MAX)?;
    println!("\nGET {payment_url}");
    let page = client.get(payment_url).send().await?;
    println!("  -> {}", page.status());
    let page = page.error_for_status()?.text().await?;
    let (_, rest) = page
        .split_once("name=\"attempt\" value=\"")
        .context("the page has no form")?;
    let (attempt, _) = rest.split_once('"').context("the page is cut off")?;
    let form = format!("attempt={attempt}&network={network}&mobile_number={number}");
    println!("\nPOST {payment_url}\n  {form}");
    let request = client
        .post(payment_url)
        .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
        .header("sec-fetch-site", "same-origin")
        .body(form);
    let answer = request.send().await?;
    let location = answer.headers().get(LOCATION);
    let location = location.and_then(|location| location.to_str().ok());
    println!("  -> {} {}", answer.status(), location.unwrap_or_default());
    ensure!(answer.status() == 303, "the form is not answered by 303");
    let leads_back = location.is_some_and(|location| payment_url.ends_with(location));
    ensure!(leads_back, "the form does not lead back to its page");
    Ok(())
}
