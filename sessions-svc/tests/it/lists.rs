//! Lists of sessions and customers, and the wallets beside sessions' transactions.

use std::time::Duration;

use chassis::{
    ids::{MerchantId, SessionId},
    testing::{check_invalid, check_refusal, until},
};
use proto::sessions::{
    AddWalletsRequest, CreateSessionRequest, Customer, GetCustomerRequest, ListCustomersRequest,
    ListSessionsRequest, ListTransactionsWithoutWalletRequest, Payer, Session, SessionStatus,
    TransactionPlace, Wallet, WalletOfTransaction,
};
use tokio::task::JoinSet;
use tonic::Code;

use crate::world::{DAY, World};

const AMA: &str = "+233241234567";

impl World {
    /// Waits until somebody waits for a lock of PostgreSQL.
    async fn until_locked_out(&self) {
        let is_waiting = async || {
            let mut conn = self.db.read().await.unwrap();
            let waiting = conn.sql(
                "select count(*) from pg_locks join pg_stat_activity using (pid)
                 where datname = current_database() and not granted",
            );
            let (waiting,): (i64,) = waiting.one().await.unwrap();
            waiting > 0
        };
        until("somebody waits for a lock", is_waiting).await;
    }

    async fn sessions(&self, request: ListSessionsRequest) -> (Vec<String>, String) {
        let (sessions, next) = self.shown_sessions(request).await;
        let ids = sessions.into_iter().map(|session| session.session_id);
        (ids.collect(), next)
    }

    async fn shown_sessions(&self, request: ListSessionsRequest) -> (Vec<Session>, String) {
        let request = ListSessionsRequest {
            merchant_id: self.merchant.clone(),
            ..request
        };
        let page = self.client.clone().list_sessions(request).await.unwrap();
        let page = page.into_inner();
        (page.sessions, page.next_page_token)
    }

    async fn all_customers(&self, request: ListCustomersRequest) -> Vec<Customer> {
        let request = ListCustomersRequest {
            merchant_id: self.merchant.clone(),
            ..request
        };
        let page = self.client.clone().list_customers(request).await.unwrap();
        page.into_inner().customers
    }

    async fn customer(&self, phone: &str, email: &str) {
        let payer = Payer {
            phone: Some(phone.to_owned()).filter(|text| !text.is_empty()),
            email: Some(email.to_owned()).filter(|text| !text.is_empty()),
            name: None,
        };
        let request = CreateSessionRequest {
            payer: Some(payer),
            ..self.request("USD", 1)
        };
        self.create(request).await.unwrap();
    }

    /// Writes this many sessions of the merchant's, one each millisecond, the last of them now.
    async fn write_sessions(&self, count: u64) {
        let now = self.clock.now();
        let created = (0..count).rev().map(|ago| now - Duration::from_millis(ago));
        let rows = usize::try_from(count).unwrap();
        let merchant: MerchantId = self.merchant.parse().unwrap();
        let mut tx = self.db.begin().await.unwrap();
        tx.sql_set(
            "given (session_id uuid, merchant_id uuid, created_at timestamptz,
                    expires_at timestamptz)
             insert into sessions
                 (session_id, merchant_id, origin, amount_minor, currency, status, created_at,
                  expires_at)
             select session_id, merchant_id, 'HOSTED', 100, 'GHS', 'PENDING', created_at,
                  expires_at
             from given",
            rows,
        )
        .column((0..count).map(|_| SessionId::new()))
        .column((0..count).map(|_| merchant))
        .column(created.clone())
        .column(created.map(|at| at + DAY))
        .run()
        .await
        .unwrap();
        tx.commit().await.unwrap();
    }
}

fn page(size: u32, token: &str) -> ListSessionsRequest {
    ListSessionsRequest {
        page_size: size,
        page_token: token.to_owned(),
        ..ListSessionsRequest::default()
    }
}

#[tokio::test]
async fn sessions_are_listed_newest_first_and_what_is_added_meanwhile_moves_nothing() {
    let world = World::start().await;
    let mut created = Vec::new();
    for number in 0..7 {
        created.push(world.hosted().await.session_id);
        // Some at the same moment.
        if number % 2 == 0 {
            world.advance(Duration::from_secs(1)).await;
        }
    }
    let (mut listed, mut next) = world.sessions(page(3, "")).await;
    loop {
        world.hosted().await;
        let (more, then) = world.sessions(page(3, &next)).await;
        listed.extend(more);
        next = then;
        if next.is_empty() {
            break;
        }
    }
    let (all, _) = world.sessions(page(100, "")).await;
    assert_eq!(all.len(), 7 + 2);
    assert_eq!(listed, all[2..], "each once, in the same order");
    listed.sort();
    created.sort();
    assert_eq!(listed, created);
    world.end().await;
}

#[tokio::test]
async fn sessions_are_found_by_what_they_are_and_never_another_merchants() {
    let mut world = World::start().await;
    let pending = world.hosted().await;
    let paid = world.hosted().await;
    let charge = world.hosted_charge(&paid, 1);
    world.recorded(charge.settled(2)).await;
    let direct = world.direct_charge();
    world.recorded(direct.failed(2)).await;
    let by = |status: SessionStatus, provider: Option<&str>| ListSessionsRequest {
        status: status.into(),
        provider: provider.map(ToOwned::to_owned),
        ..ListSessionsRequest::default()
    };
    for (request, found) in [
        (by(SessionStatus::Pending, None), &pending.session_id),
        (by(SessionStatus::Completed, None), &paid.session_id),
        (by(SessionStatus::Failed, Some("MTN")), &direct.session_id),
    ] {
        let expected = (vec![found.clone()], String::new());
        assert_eq!(world.sessions(request).await, expected);
    }
    let none = (Vec::new(), String::new());
    let telecel = by(SessionStatus::Unspecified, Some("TELECEL"));
    assert_eq!(world.sessions(telecel).await, none);
    world.advance(DAY).await;
    let expired = world.sessions(by(SessionStatus::Expired, None)).await;
    assert_eq!(expired.0, [pending.session_id]);
    assert_eq!(world.sessions(by(SessionStatus::Pending, None)).await, none);

    let one = ListSessionsRequest {
        session_id: Some(paid.session_id.clone()),
        ..ListSessionsRequest::default()
    };
    let (found, _) = world.shown_sessions(one.clone()).await;
    let transaction = found[0].transaction.clone().unwrap();
    assert_eq!(transaction.transaction_id, charge.transaction_id);
    assert_eq!(transaction.wallet, charge.wallet);
    world.merchant = MerchantId::new().to_string();
    assert_eq!(world.sessions(one).await, none);
    assert_eq!(world.sessions(page(100, "")).await, none);
    world.end().await;
}

#[tokio::test]
async fn a_list_keeps_to_its_times() {
    let world = World::start().await;
    let mut created = Vec::new();
    for _ in 0..3 {
        created.push(world.hosted().await);
        world.advance(Duration::from_secs(60)).await;
    }
    let within = |from: &str, to: &str| ListSessionsRequest {
        from: from.to_owned(),
        to: to.to_owned(),
        ..ListSessionsRequest::default()
    };
    let (first, third) = (&created[0].created_at, &created[2].created_at);
    let (found, _) = world.sessions(within(first, third)).await;
    let expected = [created[1].session_id.clone(), created[0].session_id.clone()];
    assert_eq!(found, expected, "the end is left out");
    let (found, _) = world.sessions(within(third, "")).await;
    assert_eq!(found, [created[2].session_id.clone()]);
    world.end().await;
}

#[tokio::test]
async fn a_search_among_many_leads_on_without_having_found_any() {
    let world = World::start().await;
    let old = world.hosted().await;
    world
        .recorded(world.hosted_charge(&old, 1).settled(2))
        .await;
    world.advance(Duration::from_secs(60)).await;
    world.write_sessions(10_500).await;
    let paid = |token: String| ListSessionsRequest {
        status: SessionStatus::Completed.into(),
        page_token: token,
        ..ListSessionsRequest::default()
    };
    let (found, next) = world.sessions(paid(String::new())).await;
    assert_eq!(found, Vec::<String>::new());
    assert!(!next.is_empty(), "the search goes on");
    let expected = (vec![old.session_id], String::new());
    assert_eq!(world.sessions(paid(next)).await, expected);
    world.end().await;
}

#[tokio::test]
async fn customers_are_listed_newest_first_whoever_pays_meanwhile() {
    let world = World::start().await;
    let phone = |number| format!("+23324000000{number}");
    for number in 0..5 {
        world.customer(&phone(number), "").await;
        world.advance(Duration::from_secs(1)).await;
    }
    let mut request = ListCustomersRequest {
        merchant_id: world.merchant.clone(),
        page_size: 2,
        ..ListCustomersRequest::default()
    };
    let mut listed = Vec::new();
    loop {
        let page = world.client.clone().list_customers(request.clone()).await;
        let page = page.unwrap().into_inner();
        listed.extend(page.customers.into_iter().filter_map(|one| one.phone));
        let mut charge = world.direct_charge();
        charge.payer = Some(Payer {
            phone: Some(phone(0)),
            ..Payer::default()
        });
        world.recorded(charge.settled(2)).await;
        request.page_token = page.next_page_token;
        if request.page_token.is_empty() {
            break;
        }
    }
    assert_eq!(listed, [4, 3, 2, 1, 0].map(phone));
    world.end().await;
}

#[tokio::test]
async fn customers_are_looked_up_by_phone_email_and_id_and_never_anothers() {
    let mut world = World::start().await;
    world.customer(AMA, "").await;
    world.customer("", "Kofi@example.com").await;
    let by_phone = ListCustomersRequest {
        phone: Some(AMA.to_owned()),
        ..ListCustomersRequest::default()
    };
    let by_email = ListCustomersRequest {
        email: Some("KOFI@example.com".to_owned()),
        ..ListCustomersRequest::default()
    };
    let both = ListCustomersRequest {
        email: by_email.email.clone(),
        ..by_phone.clone()
    };
    let [ama] = world
        .all_customers(by_phone.clone())
        .await
        .try_into()
        .unwrap();
    assert_eq!(ama.phone.as_deref(), Some(AMA));
    let [kofi] = world
        .all_customers(by_email.clone())
        .await
        .try_into()
        .unwrap();
    assert_eq!(kofi.email.as_deref(), Some("Kofi@example.com"));
    assert_eq!(world.all_customers(both).await, []);
    let get = |merchant_id: &str, customer_id: &str| GetCustomerRequest {
        merchant_id: merchant_id.to_owned(),
        customer_id: customer_id.to_owned(),
    };
    let found = get(&world.merchant, &ama.customer_id);
    let found = world.client.get_customer(found).await.unwrap();
    assert_eq!(found.into_inner(), ama);

    world.merchant = MerchantId::new().to_string();
    for request in [by_phone, by_email] {
        assert_eq!(world.all_customers(request).await, []);
    }
    for id in [ama.customer_id.as_str(), "CUS-0123456789", "CUS-1"] {
        let answer = world.client.get_customer(get(&world.merchant, id)).await;
        check_refusal(answer, Code::NotFound, "CUSTOMER_NOT_FOUND");
    }
    world.end().await;
}

#[tokio::test]
async fn bad_places_and_times_are_named() {
    let mut world = World::start().await;
    let id = SessionId::new();
    for token in [
        "x".to_owned(),
        id.to_string(),
        format!("x.{id}"),
        format!("1.{id}."),
        "1.CUS-0123456789".to_owned(),
    ] {
        let answer = world.client.list_sessions(ListSessionsRequest {
            merchant_id: world.merchant.clone(),
            ..page(0, &token)
        });
        check_invalid(answer.await, "page_token");
    }
    let answer = world.client.list_sessions(ListSessionsRequest {
        merchant_id: world.merchant.clone(),
        ..page(101, "")
    });
    check_invalid(answer.await, "page_size");
    let answer = world.client.list_customers(ListCustomersRequest {
        merchant_id: world.merchant.clone(),
        to: "tomorrow".to_owned(),
        ..ListCustomersRequest::default()
    });
    check_invalid(answer.await, "to");
    world.end().await;
}

#[tokio::test]
async fn wallets_are_added_once_to_transactions_that_an_older_version_told() {
    let world = World::start().await;
    let mut old = world.direct_charge();
    let wallet = old.wallet.take().unwrap();
    world.recorded(old.open()).await;
    world.recorded(old.settled(2)).await;
    // The place of a charge that was never seen lacks none, and a new one has it.
    let unseen = world.direct_charge();
    world.recorded(unseen.withdraw(1)).await;
    world.recorded(world.direct_charge().settled(2)).await;

    let mut operations = world.operations.clone();
    let lacking = async || {
        let request = ListTransactionsWithoutWalletRequest::default();
        let mut operations = world.operations.clone();
        let page = operations.list_transactions_without_wallet(request).await;
        page.unwrap().into_inner().transactions
    };
    let place = TransactionPlace {
        session_id: old.session_id.clone(),
        charge_number: 1,
        transaction_id: old.transaction_id.clone(),
    };
    let expected = std::slice::from_ref(&place);
    assert_eq!(lacking().await, expected);
    let another = Wallet {
        provider: "AT".to_owned(),
        last_four: "0000".to_owned(),
    };
    for added in [wallet.clone(), another] {
        let request = AddWalletsRequest {
            wallets: vec![WalletOfTransaction {
                transaction: Some(place.clone()),
                wallet: Some(added),
            }],
        };
        operations.add_wallets(request).await.unwrap();
    }
    assert_eq!(lacking().await, []);
    let shown = world.get(&old.session_id).await.unwrap();
    assert_eq!(shown.transaction.unwrap().wallet, Some(wallet));
    world.end().await;
}

/// Only PostgreSQL locks rows.
#[tokio::test]
async fn who_adds_wallets_and_who_records_never_wait_for_each_other() {
    let world = World::start().await;
    if !world.db.is_postgres() {
        return world.end().await;
    }
    let mut added = Vec::new();
    for _ in 0..2 {
        let mut old = world.direct_charge();
        let wallet = old.wallet.take();
        world.recorded(old.open()).await;
        added.push(WalletOfTransaction {
            transaction: Some(TransactionPlace {
                session_id: old.session_id,
                charge_number: 1,
                transaction_id: old.transaction_id,
            }),
            wallet,
        });
    }
    let sessions = added.iter().map(|added| {
        let place = added.transaction.as_ref().unwrap();
        place.session_id.parse::<SessionId>().unwrap()
    });
    let sessions: Vec<SessionId> = sessions.collect();
    // Somebody who records both, as the service does: sessions first, then one charge after the
    // other.
    let mut recording = world.db.begin().await.unwrap();
    let locked = recording.sql("select session_id from sessions order by session_id for update");
    let _locked: Vec<(SessionId,)> = locked.all().await.unwrap();
    const RECORD: &str = "update transactions set version = version + 1 where session_id = $1";
    recording.sql(RECORD).bind(sessions[1]).run().await.unwrap();
    let mut operations = world.operations.clone();
    let request = AddWalletsRequest { wallets: added };
    let mut adding = JoinSet::new();
    adding.spawn(async move { operations.add_wallets(request).await });
    world.until_locked_out().await;
    recording.sql(RECORD).bind(sessions[0]).run().await.unwrap();
    recording.commit().await.unwrap();
    adding.join_next().await.unwrap().unwrap().unwrap();
    world.end().await;
}

/// Only PostgreSQL can be made to search for long.
#[tokio::test]
async fn a_merchants_searches_wait_for_each_other_and_not_for_long() {
    let world = World::start().await;
    if !world.db.is_postgres() {
        return world.end().await;
    }
    let search = || {
        let request = ListSessionsRequest {
            merchant_id: world.merchant.clone(),
            provider: Some("AT".to_owned()),
            ..ListSessionsRequest::default()
        };
        let mut client = world.client.clone();
        async move { client.list_sessions(request).await }
    };
    for hangs_up in [false, true] {
        let mut held_up = world.db.begin().await.unwrap();
        let lock = held_up.sql("lock table sessions in access exclusive mode");
        lock.run().await.unwrap();
        let mut searching = JoinSet::new();
        searching.spawn(search());
        world.until_locked_out().await;
        if hangs_up {
            // PostgreSQL goes on with what nobody waits for any more.
            searching.shutdown().await;
        }
        check_refusal(search().await, Code::ResourceExhausted, "NOTHING_STARTED");
        held_up.commit().await.unwrap();
        searching.join_all().await;
        search().await.unwrap();
    }
    world.end().await;
}
