//! Filters together: a list holds what passes each of them, and its file holds the same.

use std::{collections::HashSet, time::Duration};

use chassis::testing::until;
use proto::charges::{DisbursementStatus, Provider};
use serde_json::json;

use super::{DELIVERIES, Person};
use crate::{
    money_out::Till,
    shop::{NO_LIMITS, Shop},
};

/// Every so many of all mixes of all filters are asked for, as well as all pairs.
const MIXES_STEP: usize = 97;

/// All attempts of a delivery take 35 hours.
const GIVEN_UP_AFTER: Duration = Duration::from_secs(36 * 60 * 60);

/// A list, its filters, and values of each that leave something in, and something out.
struct List {
    path: &'static str,
    filters: Vec<(&'static str, Vec<String>)>,
}

/// A filter's name and a value.
type Set<'l> = (&'l str, &'l str);

impl List {
    fn new(path: &'static str, filters: &[(&'static str, &[&str])]) -> Self {
        let filters = filters.iter().map(|(name, values)| {
            let values = values.iter().map(|value| (*value).to_owned());
            (*name, values.collect())
        });
        Self {
            path,
            filters: filters.collect(),
        }
    }

    /// Each filter with each of its values.
    fn singles(&self) -> Vec<Vec<Set<'_>>> {
        let filters = self.filters.iter().map(|(name, values)| {
            let values = values.iter();
            values.map(|value| (*name, value.as_str())).collect()
        });
        filters.collect()
    }

    /// All pairs of values of two filters, and some mixes of all filters.
    fn mixes(&self) -> Vec<Vec<Set<'_>>> {
        let singles = self.singles();
        let mut mixes = Vec::new();
        for (index, first) in singles.iter().enumerate() {
            for second in &singles[index + 1..] {
                let pairs = first
                    .iter()
                    .flat_map(|first| second.iter().map(|second| vec![*first, *second]));
                mixes.extend(pairs);
            }
        }
        let mut all: Vec<Vec<Set<'_>>> = vec![Vec::new()];
        for values in &singles {
            let without = all.clone();
            for value in values {
                let with = without.iter().map(|mix| [&mix[..], &[*value]].concat());
                all.extend(with);
            }
        }
        mixes.extend(all.into_iter().step_by(MIXES_STEP));
        mixes
    }
}

/// Whether the mix wants what ends before it begins.
fn is_contradiction(mix: &[Set<'_>]) -> bool {
    let of = |name| mix.iter().find(|(known, _)| *known == name);
    let days = of("from").zip(of("to"));
    days.is_some_and(|((_, from), (_, to))| to < from)
}

fn query(mix: &[Set<'_>]) -> String {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    query.extend_pairs(mix).finish()
}

impl Person {
    /// What a list holds on its pages, which its file holds, too.
    pub async fn lists(&self, path: &str, query: &str) -> Vec<String> {
        let address = format!("{path}?{query}");
        let listed = self.walk(&address, &format!("{path}/")).await;
        let file = self.get(&format!("{path}.csv?{query}")).await;
        assert_eq!(file.code, 200, "{address}");
        let lines = file.html.split_terminator("\r\n").skip(1);
        let ids = lines.map(|line| line.split(',').next().unwrap());
        assert!(ids.eq(listed.iter().map(String::as_str)), "{address}");
        listed
    }

    /// Looks at a list through all mixes of its filters.
    async fn mixes(&self, list: &List) {
        let path = list.path;
        let all = self.lists(path, "").await;
        let mut passing = Vec::new();
        for values in list.singles() {
            let mut has_some = false;
            let mut leaves_some = false;
            for single in values {
                let found = self.lists(path, &query(&[single])).await;
                has_some |= !found.is_empty();
                leaves_some |= found.len() < all.len();
                let found: HashSet<String> = found.into_iter().collect();
                passing.push((single, found));
            }
            let (name, _) = passing.last().unwrap().0;
            assert!(has_some && leaves_some, "{path}: {name} tells nothing");
        }
        for mix in list.mixes() {
            let query = query(&mix);
            if is_contradiction(&mix) {
                let address = format!("{path}?{query}");
                assert_eq!(self.get(&address).await.code, 400, "{address}");
                let file = self.get(&format!("{path}.csv?{query}")).await;
                file.leads_to(&format!("{path}?"));
                continue;
            }
            let found = self.lists(path, &query).await;
            let passes = |id: &&String| {
                let of_mix = passing.iter().filter(|(single, _)| mix.contains(single));
                of_mix.into_iter().all(|(_, found)| found.contains(*id))
            };
            let expected: Vec<&String> = all.iter().filter(passes).collect();
            assert!(found.iter().eq(expected), "{path}?{query}: {found:?}");
        }
    }

    async fn refund(&self, reference: &str) -> String {
        let address = format!("/payments/{reference}/refund");
        let nonce = self.get(&address).await.field("nonce");
        let asked = [("amount", "5"), ("nonce", nonce.as_str())];
        self.post(&address, &asked).await.leads_to("/refunds/")
    }

    /// Of its events none waits for its first attempt or runs.
    async fn until_all_ended(&self) {
        let waiting = format!("{DELIVERIES}?status=PENDING");
        let links = format!("{DELIVERIES}/");
        until("all has ended", async || {
            self.walk(&waiting, &links).await.is_empty()
        })
        .await;
    }

    async fn day_of(&self, reference: &str) -> String {
        let path = format!("/api/v1/payments/charge/{reference}");
        let charge = self.api.get(&path).await.unwrap();
        charge.text("created_at").unwrap()[..10].to_owned()
    }
}

/// Has something of each kind happen on two days. Returns a payment of each.
async fn sell(shop: &Shop, person: &mut Person) -> (String, String) {
    let mut till = Till::of_merchant(shop, &person.merchant_id);
    let nowhere = "http://127.0.0.1:9/";
    shop.set_endpoint_of(&person.merchant_id, nowhere).await;
    let esi = json!({ "payer_email": "esi@example.com" });
    let first = person.take("0240000001", esi).await;
    person.take("0240000004", json!({})).await;
    let refused = person.take("0240000203", json!({})).await;
    person.refund(&first).await;
    person.refund(&refused).await;
    till.pays_to(Provider::Mtn, "0240000201", "Ama Mensah")
        .await;
    let paid = till.pay_out(100, "one").await;
    till.until(&paid, DisbursementStatus::Completed).await;
    // Payouts to another account wait for a day.
    till.pays_to(Provider::Mtn, "0240000203", "Ama Mensah")
        .await;
    // Nothing there takes an event.
    let api = format!("{}/", shop.ready.api);
    shop.set_endpoint_of(&person.merchant_id, &api).await;
    let large = json!({ "amount": 1250, "provider": "TELECEL" });
    person.take("0200000001", large).await;
    shop.advance(GIVEN_UP_AFTER).await;
    person.log_in().await;

    shop.set_endpoint_of(&person.merchant_id, &shop.receiver.url)
        .await;
    let last = person.take("0240000001", json!({})).await;
    person.take("0240000003", json!({})).await;
    person.refund(&last).await;
    let returned = till.pay_out(100, "two").await;
    till.until(&returned, DisbursementStatus::Failed).await;
    person.until_all_ended().await;
    let off = [("enabled", "false")];
    let switch = "/settings/integrations/webhooks/enabled";
    person
        .post(switch, &off)
        .await
        .leads_to("/settings/integrations/webhooks");
    person.take("0240000011", json!({})).await;
    for status in ["PENDING", "PROCESSING"] {
        for list in ["/payouts", "/refunds"] {
            let open = format!("{list}?status={status}");
            until("all has ended", async || {
                person.walk(&open, &format!("{list}/")).await.is_empty()
            })
            .await;
        }
    }
    (first, last)
}

#[tokio::test]
async fn each_mix_of_filters_lists_what_passes_all_of_them() {
    let shop = Shop::open_with(NO_LIMITS).await;
    let mut person = Person::sign_up(&shop, "Ama’s Kitchen").await;
    let (first, last) = sell(&shop, &mut person).await;
    let (day, next) = (person.day_of(&first).await, person.day_of(&last).await);
    let from = ("from", &[next.as_str()][..]);
    let to = ("to", &[day.as_str(), next.as_str()][..]);
    let (shown, _) = first.rsplit_once('-').unwrap();
    for list in [
        List::new(
            "/payments",
            &[
                ("q", &[&first, shown, "0240000001", "esi@example.com"]),
                ("status", &["SETTLED", "FAILED", "WAITING"]),
                ("network", &["MTN", "TELECEL", "AT"]),
                ("reason", &["PAYER_DECLINED", "INSUFFICIENT_FUNDS"]),
                ("amount_from", &["1000"]),
                ("amount_to", &["1000", "2000"]),
                from,
                to,
            ],
        ),
        List::new(
            "/customers",
            &[("q", &["0240000001", "esi@example.com"]), from, to],
        ),
        List::new(
            "/payouts",
            &[("status", &["COMPLETED", "FAILED", "PENDING"]), from, to],
        ),
        List::new(
            "/refunds",
            &[
                ("q", &[&first, &last]),
                ("status", &["COMPLETED", "FAILED", "PROCESSING"]),
                from,
                to,
            ],
        ),
        List::new(
            DELIVERIES,
            &[
                ("q", &[&first, &last]),
                ("status", &["PENDING", "DELIVERED", "EXHAUSTED"]),
                (
                    "event",
                    &["payment.success", "payment.failed", "payout.failed"],
                ),
                ("answer", &["2xx", "4xx", "none"]),
                from,
                to,
            ],
        ),
    ] {
        person.mixes(&list).await;
    }
    shop.close().await;
}
