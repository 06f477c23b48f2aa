//! `payctl payout-account`, `payctl disbursement` and `payctl float`.

use anyhow::{Context as _, anyhow};
use chassis::{
    grpc,
    money::{Currency, Money},
};
use clap::{ArgGroup, Args, Subcommand, ValueEnum};
use proto::charges::{
    Destination, DestinationType, GetPayoutAccountRequest, MoveFloatRequest, Payout, PayoutAccount,
    Provider, RailFloat, Refund, ResolveDisbursementRequest, SetPayoutAccountRequest,
    SetPayoutSwitchesRequest, ShowDisbursementRequest, ShowDisbursementResponse, ShowFloatRequest,
    disbursement_operations_client::DisbursementOperationsClient, move_float_request,
    resolve_disbursement_request::Outcome, show_disbursement_response::Disbursement,
};
use rust_decimal::Decimal;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::{
    charge::{evidence_json, money_json, posting_json},
    services::{Failure, Services, refusal},
};

#[derive(Debug, Subcommand)]
pub enum PayoutAccountCommand {
    /// Sets where a merchant's payouts go. A change holds payouts for a while.
    Set(SetAccount),
    /// Shows where a merchant's payouts go.
    Show {
        /// The merchant's id.
        merchant_id: String,
    },
    /// Switches what the account is used for.
    Switch {
        /// The merchant's id.
        merchant_id: String,
        /// Whether the merchant may ask for payouts.
        #[arg(long, value_name = "BOOL")]
        on_request: Option<bool>,
        /// Whether the daily settlement pays out.
        #[arg(long, value_name = "BOOL")]
        daily: Option<bool>,
    },
}

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("account").required(true).args(["wallet", "bank_account"])))]
pub struct SetAccount {
    /// The merchant's id.
    merchant_id: String,
    /// A wallet's number.
    #[arg(long, value_name = "NUMBER", requires = "provider")]
    wallet: Option<String>,
    /// The wallet's network: MTN, TELECEL or AT.
    #[arg(long, requires = "wallet")]
    provider: Option<String>,
    /// A bank account's number.
    #[arg(long, value_name = "NUMBER", requires = "bank_code")]
    bank_account: Option<String>,
    /// The bank's code at Paystack.
    #[arg(long, requires = "bank_account")]
    bank_code: Option<String>,
    /// Whose account it is. The network is asked whether it knows the account under this name.
    #[arg(long)]
    name: String,
    /// You have made sure of the holder, although the network knows another name, or tells none.
    #[arg(long)]
    confirm_name: bool,
}

#[derive(Debug, Subcommand)]
pub enum DisbursementCommand {
    /// Shows a payout or a refund with everything that its rail said, and its postings.
    Show {
        /// PO-… or RF-….
        id: String,
    },
    /// Ends a payout or a refund on evidence from the rail.
    Resolve(Resolve),
}

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("outcome").required(true).args(["completed", "failed"])))]
pub struct Resolve {
    /// PO-… or RF-….
    id: String,
    /// Exactly this was paid.
    #[arg(long)]
    completed: bool,
    /// Nothing was paid, for this reason, such as `PAYEE_NOT_FOUND`.
    #[arg(long, value_name = "REASON")]
    failed: Option<String>,
    /// What was seen at the rail, and where.
    #[arg(long)]
    evidence: String,
}

#[derive(Debug, Subcommand)]
pub enum FloatCommand {
    /// Shows what each rail holds for us.
    Show,
    /// Posts what treasury moved by hand.
    Move(Move),
}

#[derive(Debug, Args)]
pub struct Move {
    /// momo, paystack or hubtel.
    #[arg(long)]
    rail: String,
    /// In GHS, such as 1000.00.
    #[arg(long, value_parser = cedis)]
    amount: Money,
    /// From where to where.
    #[arg(long, value_enum)]
    direction: Direction,
    /// What was done, and where it can be seen.
    #[arg(long)]
    note: String,
    /// Only to repeat a move whose answer was lost: the id that was printed with the failure.
    #[arg(long)]
    move_id: Option<Uuid>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Direction {
    /// What the rail collected becomes float.
    ClearingToFloat,
    /// The house pays into the float.
    HouseToFloat,
    /// The house takes from the float.
    FloatToHouse,
    /// The house takes what the rail collected.
    ClearingToHouse,
}

impl From<Direction> for move_float_request::Direction {
    fn from(direction: Direction) -> Self {
        match direction {
            Direction::ClearingToFloat => Self::ClearingToFloat,
            Direction::HouseToFloat => Self::HouseToFloat,
            Direction::FloatToHouse => Self::FloatToHouse,
            Direction::ClearingToHouse => Self::ClearingToHouse,
        }
    }
}

pub async fn run_account(
    services: &Services,
    command: PayoutAccountCommand,
) -> Result<Value, Failure> {
    let mut treasury = DisbursementOperationsClient::new(services.charges()?);
    let account = match command {
        PayoutAccountCommand::Set(set) => {
            let set = treasury.set_payout_account(set.into_request()?).await;
            if let Err(refused) = &set
                && let Some(known) = grpc::metadata(refused, "rail_holder_name")
            {
                return Err(match known.as_str() {
                    "" => anyhow!(
                        "the network does not tell whose account it is: make sure, and add --confirm-name"
                    ),
                    _ => anyhow!(
                        "the network knows the account as {known}: make sure, and add --confirm-name"
                    ),
                });
            }
            set
        }
        PayoutAccountCommand::Show { merchant_id } => {
            let request = GetPayoutAccountRequest { merchant_id };
            treasury.get_payout_account(request).await
        }
        PayoutAccountCommand::Switch {
            merchant_id,
            on_request,
            daily,
        } => {
            let request = SetPayoutSwitchesRequest {
                merchant_id,
                payouts_on_request: on_request,
                daily_settlement: daily,
            };
            treasury.set_payout_switches(request).await
        }
    };
    Ok(account_json(account.map_err(refusal)?.into_inner()))
}

pub async fn run_disbursement(
    services: &Services,
    command: DisbursementCommand,
) -> Result<Value, Failure> {
    let mut treasury = DisbursementOperationsClient::new(services.charges()?);
    let shown = match command {
        DisbursementCommand::Show { id } => {
            let request = ShowDisbursementRequest { id };
            treasury.show_disbursement(request).await
        }
        DisbursementCommand::Resolve(resolve) => {
            let outcome = match resolve.failed {
                Some(reason) => Outcome::FailedReason(reason),
                None => Outcome::Completed(resolve.completed),
            };
            let request = ResolveDisbursementRequest {
                id: resolve.id,
                outcome: Some(outcome),
                evidence: resolve.evidence,
            };
            treasury.resolve_disbursement(request).await
        }
    };
    Ok(shown_json(shown.map_err(refusal)?.into_inner()))
}

pub async fn run_float(services: &Services, command: FloatCommand) -> Result<Value, Failure> {
    let mut treasury = DisbursementOperationsClient::new(services.charges()?);
    let moved = match command {
        FloatCommand::Show => None,
        FloatCommand::Move(moved) => Some(moved),
    };
    if let Some(moved) = moved {
        let move_id = moved.move_id.unwrap_or_else(Uuid::new_v4);
        let request = MoveFloatRequest {
            move_id: move_id.to_string(),
            rail: moved.rail,
            amount: Some(moved.amount.into()),
            direction: move_float_request::Direction::from(moved.direction).into(),
            note: moved.note,
        };
        let answer = treasury.move_float(request).await.map_err(refusal);
        answer.with_context(|| {
            format!("if nobody knows whether it was posted, repeat it with --move-id {move_id}")
        })?;
    }
    let shown = treasury.show_float(ShowFloatRequest {}).await;
    let rails = shown.map_err(refusal)?.into_inner().rails;
    Ok(rails.into_iter().map(float_json).collect())
}

fn cedis(text: &str) -> Result<Money, &'static str> {
    let amount: Option<Decimal> = text.parse().ok();
    let money = amount.and_then(|amount| Money::from_major(amount, Currency::GHS).ok());
    money
        .filter(|money| money.is_positive())
        .ok_or("must be an amount of GHS, such as 10.00")
}

impl SetAccount {
    fn into_request(self) -> Result<SetPayoutAccountRequest, Failure> {
        let provider = match self.provider.as_deref() {
            Some(code) => Provider::from_code(&code.to_uppercase())
                .ok_or_else(|| anyhow!("--provider must be MTN, TELECEL or AT"))?,
            None => Provider::Unspecified,
        };
        let (account_type, account) = match (self.wallet, self.bank_account) {
            (Some(number), _) => (DestinationType::MobileMoney, number),
            (None, number) => (DestinationType::Bank, number.unwrap_or_default()),
        };
        Ok(SetPayoutAccountRequest {
            merchant_id: self.merchant_id,
            r#type: account_type.into(),
            provider: provider.into(),
            bank_code: self.bank_code.unwrap_or_default(),
            account,
            holder_name: self.name,
            confirm_holder_name: self.confirm_name,
        })
    }
}

fn account_json(account: PayoutAccount) -> Value {
    json!({
        "merchant_id": account.merchant_id,
        "destination": account.destination.map(destination_json),
        "holder_name": account.holder_name,
        "rail_holder_name": account.rail_holder_name,
        "payouts_on_request": account.payouts_on_request,
        "daily_settlement": account.daily_settlement,
        "held_until": account.held_until,
        "updated_at": account.updated_at,
    })
}

fn destination_json(destination: Destination) -> Value {
    json!({
        "type": destination.r#type().code(),
        "provider": destination.provider,
        "account": destination.account_masked,
    })
}

fn shown_json(shown: ShowDisbursementResponse) -> Value {
    let evidence: Value = shown.evidence.into_iter().map(evidence_json).collect();
    let postings: Value = shown.postings.into_iter().map(posting_json).collect();
    let (kind, disbursement) = match shown.disbursement {
        Some(Disbursement::Payout(payout)) => ("payout", payout_json(payout)),
        Some(Disbursement::Refund(refund)) => ("refund", refund_json(refund)),
        None => ("disbursement", Value::Null),
    };
    json!({
        kind: disbursement,
        "rail": shown.rail,
        "rail_reference": shown.rail_reference,
        "next_due_at": shown.next_due_at,
        "evidence": evidence,
        "postings": postings,
    })
}

fn payout_json(payout: Payout) -> Value {
    let status = payout.status().code();
    json!({
        "payout_id": payout.payout_id,
        "merchant_id": payout.merchant_id,
        "status": status,
        "amount": money_json(payout.amount),
        "fee": money_json(payout.fee),
        "destination": payout.destination.map(destination_json),
        "scheduled": payout.scheduled,
        "failure_reason": payout.failure_reason,
        "created_at": payout.created_at,
        "updated_at": payout.updated_at,
        "completed_at": payout.completed_at,
        "reversed_at": payout.reversed_at,
    })
}

fn refund_json(refund: Refund) -> Value {
    let status = refund.status().code();
    json!({
        "refund_id": refund.refund_id,
        "merchant_id": refund.merchant_id,
        "reference": refund.reference,
        "session_id": refund.session_id,
        "status": status,
        "amount": money_json(refund.amount),
        "destination": refund.destination.map(destination_json),
        "failure_reason": refund.failure_reason,
        "created_at": refund.created_at,
        "updated_at": refund.updated_at,
        "completed_at": refund.completed_at,
        "reversed_at": refund.reversed_at,
    })
}

/// What a rail holds, by our ledger and by its own word.
fn float_json(rail: RailFloat) -> Value {
    json!({
        "rail": rail.rail,
        "clearing": money_json(rail.clearing),
        "float": money_json(rail.float),
        "rail_balance": money_json(rail.rail_balance),
    })
}
