//! A merchant that is paid out over MTN.

use charges_svc::{
    charge::{Charge, Event},
    disbursement::Disbursement,
    ledger, store,
};
use chassis::{
    ids::MerchantId,
    testing::{fake_server::FakeServer, until},
};
use db::Insert;
use proto::charges::{
    Case, CreatePayoutRequest, CreateRefundRequest, DestinationType, DisbursementStatus,
    GetBalanceRequest, GetBalanceResponse, GetPayoutRequest, ListCasesRequest, ListPayoutsRequest,
    Payout, Provider, Refund, SetPayoutAccountRequest, SetPayoutSwitchesRequest,
};
use tonic::Status;

use crate::{
    mtn::Mtn,
    world::{Neighbour, World, ghs, new_momo_charge},
};

/// A service over this MTN, with a merchant that has 25.50 cedis.
pub struct Shop {
    pub world: World,
    pub network: FakeServer,
    pub charge: Charge,
}

impl Shop {
    pub async fn open(mtn: &Mtn) -> Self {
        Self::open_with(mtn, &[]).await
    }

    /// With these settings, too.
    pub async fn open_with(mtn: &Mtn, settings: &[(&str, &str)]) -> Self {
        let network = mtn.start().await;
        let url = network.address();
        let database = db::testing::TestDb::new("charges-svc").await;
        let mut flags = vec![
            ("momo-base-url", url.as_str()),
            ("reconcile-schedule", "100ms,200ms,400ms,800ms,1600ms"),
            ("settlement-time", "0s"),
        ];
        flags.extend(settings);
        let world = World::start_through(database, Neighbour::Open, &flags).await;
        let charge = collect_for(&world, MerchantId::new()).await;
        Self {
            world,
            network,
            charge,
        }
    }

    /// Collects 25.50 cedis more.
    pub async fn collect(&self) {
        collect_for(&self.world, self.charge.facts.merchant_id).await;
    }

    /// Goes on as another merchant that has 25.50 cedis. Returns the charge of the one before.
    pub async fn change_merchant(&mut self) -> Charge {
        let other = collect_for(&self.world, MerchantId::new()).await;
        std::mem::replace(&mut self.charge, other)
    }

    pub fn merchant(&self) -> String {
        self.charge.facts.merchant_id.to_string()
    }

    /// Sets a payout account and lets the merchant ask for payouts.
    pub async fn enable_payouts(&mut self) {
        self.enable_payouts_to(Provider::Mtn, "024 123 4567").await;
    }

    pub async fn enable_payouts_to(&mut self, provider: Provider, account: &str) {
        let treasury = &mut self.world.treasury;
        let merchant_id = self.charge.facts.merchant_id.to_string();
        let account = SetPayoutAccountRequest {
            merchant_id: merchant_id.clone(),
            r#type: DestinationType::MobileMoney.into(),
            provider: provider.into(),
            account: account.to_owned(),
            holder_name: "MENSAH Ama".to_owned(),
            confirm_holder_name: true,
            ..SetPayoutAccountRequest::default()
        };
        treasury.set_payout_account(account).await.unwrap();
        let switches = SetPayoutSwitchesRequest {
            merchant_id,
            payouts_on_request: Some(true),
            daily_settlement: None,
        };
        treasury.set_payout_switches(switches).await.unwrap();
    }

    /// Sets a payout account and has every day settled.
    pub async fn settle_daily(&mut self) {
        self.enable_payouts().await;
        let switches = SetPayoutSwitchesRequest {
            merchant_id: self.merchant(),
            payouts_on_request: None,
            daily_settlement: Some(true),
        };
        let treasury = &mut self.world.treasury;
        treasury.set_payout_switches(switches).await.unwrap();
    }

    pub async fn pay_out(&mut self, minor: i64) -> Result<Payout, Status> {
        let request = self.payout(minor);
        let answer = self.world.disbursements.create_payout(request).await?;
        Ok(answer.into_inner().payout.unwrap())
    }

    pub fn payout(&self, minor: i64) -> CreatePayoutRequest {
        CreatePayoutRequest {
            merchant_id: self.merchant(),
            amount: Some(ghs(minor)),
            idempotency_key: format!("c:{}", MerchantId::new()),
            asked_by: None,
            seen: None,
        }
    }

    pub async fn refund(&mut self, minor: Option<i64>) -> Result<Refund, Status> {
        let request = CreateRefundRequest {
            merchant_id: self.merchant(),
            reference: self.charge.facts.reference.to_string(),
            amount: minor.map(ghs),
            idempotency_key: format!("c:{}", MerchantId::new()),
            asked_by: None,
        };
        let answer = self.world.disbursements.create_refund(request).await?;
        Ok(answer.into_inner().refund.unwrap())
    }

    pub async fn shown(&self, payout: &Payout) -> Payout {
        let request = GetPayoutRequest {
            merchant_id: self.merchant(),
            payout_id: payout.payout_id.clone(),
        };
        let mut disbursements = self.world.disbursements.clone();
        disbursements
            .get_payout(request)
            .await
            .unwrap()
            .into_inner()
    }

    /// All payouts, the newest first.
    pub async fn payouts(&self) -> Vec<Payout> {
        let request = ListPayoutsRequest {
            merchant_id: self.merchant(),
            ..ListPayoutsRequest::default()
        };
        let mut disbursements = self.world.disbursements.clone();
        let listed = disbursements.list_payouts(request).await;
        listed.unwrap().into_inner().payouts
    }

    /// The payout as it is stored.
    pub async fn disbursement(&self, payout: &Payout) -> Disbursement {
        let mut conn = self.world.db.read().await.unwrap();
        let found = store::disbursements::find_shown(&mut conn, &payout.payout_id).await;
        found.unwrap().unwrap()
    }

    pub async fn until_payout(&self, payout: &Payout, status: DisbursementStatus) -> Payout {
        let what = format!("the payout is {status:?}");
        until(&what, async || self.shown(payout).await.status() == status).await;
        self.shown(payout).await
    }

    /// Available and reserved pesewas.
    pub async fn told_balance(&self) -> GetBalanceResponse {
        let merchant_id = self.merchant();
        let mut charges = self.world.charges.clone();
        let balance = charges
            .get_balance(GetBalanceRequest {
                merchant_id,
                with_suspense: true,
            })
            .await;
        balance.unwrap().into_inner()
    }

    pub async fn balance(&self) -> (i64, i64) {
        let balance = self.told_balance().await;
        let minor = |of: &[proto::money::Money]| of.first().map_or(0, |money| money.minor_units);
        (minor(&balance.available), minor(&balance.reserved))
    }

    pub async fn open_cases(&self) -> Vec<Case> {
        let mut operations = self.world.operations.clone();
        let cases = operations.list_cases(ListCasesRequest {}).await;
        cases.unwrap().into_inner().cases
    }

    pub async fn end(self) {
        self.world.end().await;
    }
}

/// A settled charge of 25.50 cedis, with its posting.
async fn collect_for(world: &World, merchant_id: MerchantId) -> Charge {
    let mut charge = new_momo_charge(world.clock.now());
    charge.facts_mut().merchant_id = merchant_id;
    charge.facts_mut().phone = "+233241234001".parse().unwrap();
    let charge = world
        .given(charge, &[Event::Accepted, Event::Settled])
        .await;
    let mut tx = world.db.begin().await.unwrap();
    let settled = ledger::settlement(&charge.facts).unwrap();
    let posted = store::postings::post(&mut tx, &settled, world.clock.now()).await;
    assert_eq!(posted.unwrap(), Insert::Inserted);
    tx.commit().await.unwrap();
    charge
}
