//! Converts proto to domain and back, for where a merchant's payouts go.

use chassis::page::PageAsked;
use proto::charges::{
    HolderToConfirm as ProtoHolderToConfirm, ListPayoutAccountChangesRequest,
    ListPayoutAccountChangesResponse, PayoutAccount as ProtoPayoutAccount, PayoutAccountChange,
    SetOwnPayoutAccountRequest, SetOwnPayoutAccountResponse, SetPayoutAccountRequest,
    SwitchDailySettlementRequest, payout_accounts_server::PayoutAccounts,
    set_own_payout_account_response::Outcome,
};
use tonic::{Request, Response};
use uuid::Uuid;

use super::{Grpc, GrpcResult, parse};
use crate::{
    error::{Error, Result},
    payout_account::{
        AccountChange, HolderToConfirm, OwnOutcome, OwnSetting, PayoutAccount, is_same_name,
    },
};

#[tonic::async_trait]
impl PayoutAccounts for Grpc {
    async fn set_own_payout_account(
        &self,
        request: Request<SetOwnPayoutAccountRequest>,
    ) -> GrpcResult<SetOwnPayoutAccountResponse> {
        let request = request.into_inner();
        let merchant_id = parse::merchant_id(&request.merchant_id)?;
        let set = self.0.set_own_payout_account(merchant_id, own(request)?);
        let outcome = match set.await? {
            OwnOutcome::Set(account) => Outcome::Set(account.into()),
            OwnOutcome::ToConfirm(holder) => Outcome::ToConfirm(holder.into()),
        };
        Ok(Response::new(SetOwnPayoutAccountResponse {
            outcome: Some(outcome),
        }))
    }

    async fn switch_daily_settlement(
        &self,
        request: Request<SwitchDailySettlementRequest>,
    ) -> GrpcResult<ProtoPayoutAccount> {
        let request = request.into_inner();
        let merchant_id = parse::merchant_id(&request.merchant_id)?;
        let is_on = request.daily_settlement;
        let switched = self.0.switch_daily_settlement(merchant_id, is_on);
        Ok(Response::new(switched.await?.into()))
    }

    async fn list_payout_account_changes(
        &self,
        request: Request<ListPayoutAccountChangesRequest>,
    ) -> GrpcResult<ListPayoutAccountChangesResponse> {
        let request = request.into_inner();
        let merchant_id = parse::merchant_id(&request.merchant_id)?;
        let asked = PageAsked {
            size: request.page_size,
            token: &request.page_token,
            from: "",
            to: "",
        };
        let page = parse::page(asked, |id: Uuid| id)?;
        let page = self.0.list_account_changes(merchant_id, page).await?;
        Ok(Response::new(ListPayoutAccountChangesResponse {
            next_page_token: page.next.map_or_else(String::new, |next| next.to_string()),
            changes: page.rows.into_iter().map(Into::into).collect(),
        }))
    }
}

fn own(request: SetOwnPayoutAccountRequest) -> Result<OwnSetting> {
    let person_id = Uuid::try_parse(&request.person_id);
    let seen = match &*request.updated_at {
        "" => None,
        // A form that has seen no state of ours has seen another.
        seen => Some(seen.parse().map_err(|_| Error::FormUsed)?),
    };
    Ok(OwnSetting {
        person_id: person_id.map_err(|_| parse::invalid("person_id", "must be a UUID"))?,
        seen,
        confirmed_name: request.confirmed_name,
        destination: parse::destination(SetPayoutAccountRequest {
            r#type: request.r#type,
            provider: request.provider,
            bank_code: request.bank_code,
            account: request.account,
            holder_name: request.holder_name,
            ..SetPayoutAccountRequest::default()
        })?,
    })
}

impl From<PayoutAccount> for ProtoPayoutAccount {
    fn from(account: PayoutAccount) -> Self {
        Self {
            merchant_id: account.merchant_id.to_string(),
            holder_name: account.destination.holder_name.clone().unwrap_or_default(),
            destination: Some(account.destination.into()),
            rail_holder_name: account.rail_holder_name,
            payouts_on_request: account.payouts_on_request,
            daily_settlement: account.daily_settlement,
            held_until: account.held_until.to_string(),
            updated_at: account.updated_at.to_string(),
        }
    }
}

impl From<HolderToConfirm> for ProtoHolderToConfirm {
    fn from(holder: HolderToConfirm) -> Self {
        let ours = holder.destination.holder_name.as_deref();
        let is_same = ours
            .zip(holder.told.as_deref())
            .is_some_and(|(ours, told)| is_same_name(ours, told));
        Self {
            is_same,
            rail_holder_name: holder.told,
            destination: Some(holder.destination.into()),
        }
    }
}

impl From<AccountChange> for PayoutAccountChange {
    fn from(change: AccountChange) -> Self {
        let text = |at: chassis::clock::Timestamp| at.to_string();
        Self {
            changed_at: change.created_at.to_string(),
            account: change.account_after.unwrap_or_default(),
            held_until: change.held_until.map(text).unwrap_or_default(),
            person_id: change
                .person_id
                .map(|id| id.to_string())
                .unwrap_or_default(),
        }
    }
}
