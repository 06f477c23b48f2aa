use super::*;
use crate::rails::payment::Failure;

impl World {
    async fn hubtel(&self, path: &str, body: Option<Value>) -> (u16, Value) {
        let address = format!("http://{}/{path}", self.rails.hubtel());
        let request = match body {
            Some(body) => self.client.post(address).json(&body),
            None => self.client.get(address),
        };
        let basic = BASE64_STANDARD.encode("simulated-api-id:simulated-hubtel-key");
        let request = request.header("Authorization", format!("Basic {basic}"));
        let answer = self.during(request.send()).await.unwrap();
        (
            answer.status().as_u16(),
            in_lower_case(&answer.text().await.unwrap()),
        )
    }
}

/// A JSON text with all in lower case, because its keys may be spelled in any.
fn in_lower_case(text: &str) -> Value {
    serde_json::from_str(&text.to_lowercase()).unwrap()
}

#[test]
fn a_reference_that_hubtel_takes_twice_is_debited_twice() {
    let mut twice = 0;
    for n in 0..300 {
        let mut book = Book::new(n);
        let asked = asked(PayerNetwork::Hubtel, &phone(n), "reference");
        let (life, _) = book.arrive(&asked, 0);
        book.take(&asked, life.clone(), 10);
        let again = book.take(&asked, life.clone(), 20).0;
        while let Some(due) = book.next_due() {
            book.pass(due);
        }
        let payment = book.payments().remove(0);
        if life.debits_again && life.ending == PaymentEnd::Approved {
            let debits = payment.taken_at.len();
            assert!(again == Word::Accepted || debits == 0, "{payment:?}");
            assert_eq!(payment.debits.len(), debits, "{payment:?}");
            twice += usize::from(debits == 2);
        }
    }
    assert!(twice > 50, "{twice}");
}

#[tokio::test]
async fn hubtel_shows_what_is_not_paid_as_unpaid_and_calls_back() {
    let world = World::new(7).await;
    world.rails.calm();
    let payers = [
        phone_with(7, PayerNetwork::Hubtel, |life, _| {
            is_plain(life, Entry::Prompt) && life.shape >> 8 & 15 > 3
        }),
        phone_with(7, PayerNetwork::Hubtel, |life, _| {
            let is_declined = life.ending == PaymentEnd::Failed(Failure::Declined);
            let is_soon = life.ends_after < 30 * SECOND && matches!(life.calls[..], [0..SECOND]);
            is_declined
                && life.entry == Entry::Prompt
                && life.lag + life.unseen == 0
                && life.late_after.is_none()
                && is_soon
                && life.strays.is_empty()
                && life.shape >> 8 & 15 > 3
        }),
    ];
    for (phone, status, code) in [(&payers[0], "paid", "0000"), (&payers[1], "unpaid", "2")] {
        let reference = uuid::Uuid::new_v4();
        let path = "merchantaccount/merchants/2017001/receive/mobilemoney";
        let body = json!({
            "CustomerMsisdn": &phone[1..],
            "Channel": "mtn-gh",
            "Amount": 25.5,
            "PrimaryCallbackUrl": "https://pay.example/rails/hubtel/abc",
            "Description": "Order 17",
            "ClientReference": reference.simple().to_string(),
        });
        let asking = format!(
            "transactions/2017001/status?clientReference={}",
            reference.simple()
        );
        assert_eq!(world.hubtel(&asking, None).await.0, 404);
        let (taken, answer) = world.hubtel(path, Some(body)).await;
        assert_eq!((taken, &answer["responsecode"]), (200, &json!("0001")));
        let (_, open) = world.hubtel(&asking, None).await;
        assert_eq!(open["data"]["status"], "unpaid");

        world.until(Rails::is_settled).await;
        let (_, found) = world.hubtel(&asking, None).await;
        assert_eq!(found["data"]["status"], status);
        assert_eq!(found["data"]["amount"], 25.5);
        let echoed = found["data"]["clientreference"].as_str().unwrap();
        assert_eq!(echoed.parse(), Ok(reference));
        let (method, uri, _, body) = world.called.try_recv().unwrap();
        assert_eq!((method, uri.path()), (Method::POST, "/rails/hubtel/abc"));
        let called = in_lower_case(std::str::from_utf8(&body).unwrap());
        let told = called["responsecode"].as_str().unwrap();
        assert!(told.starts_with(code), "{called}");
    }
    let debits: Vec<usize> = world
        .rails
        .book()
        .iter()
        .map(|it| it.debits.len())
        .collect();
    assert_eq!(debits, [1, 0]);
}
