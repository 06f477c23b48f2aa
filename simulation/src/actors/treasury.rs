//! What operators do so that money can go out: payout accounts, and the rails' floats.

use anyhow::Context as _;
use proto::{
    charges::{
        DestinationType, MoveFloatRequest, Provider, SetPayoutAccountRequest,
        SetPayoutSwitchesRequest, disbursement_operations_client::DisbursementOperationsClient,
        move_float_request::Direction,
    },
    money::Money,
};
use uuid::Uuid;

use super::{MERCHANTS, Stage, insist};
use crate::{
    choice::Choices,
    history::{FloatMove, key, phone},
    rails::Rail,
    service::Service,
    time::{MINUTE, SECOND},
};

/// More than all payouts and refunds of a run.
const PLENTY_MINOR: i64 = 5_000_000;

/// Attempts at what must be done at last.
const TRIES_MAX: u32 = 100;

/// Says where the merchants' payouts go, and fills the floats, some of them with too little.
///
/// # Errors
/// A service refuses although nothing fails yet.
pub async fn begin(stage: &Stage) -> anyhow::Result<()> {
    for merchant in 0..MERCHANTS {
        insist(&stage.world.time, async || {
            set_account(stage, merchant, 0).await?;
            switch_on(stage, merchant).await
        })
        .await
        .context("no payouts")?;
    }
    for rail in Rail::ALL {
        let mut choices = Choices::of(stage.world.seed, &format!("float {}", rail.name()));
        let little = i64::try_from(choices.between(1, 120_000))?;
        let amount = choices.weighted(&[(50, PLENTY_MINOR), (40, little), (10, 0)]);
        if amount > 0 {
            fill(stage, rail, amount, &mut choices).await;
        }
    }
    Ok(())
}

/// Somebody notices after some minutes that a float is low.
pub async fn fill_later(stage: Stage) {
    let mut choices = Choices::of(stage.world.seed, "treasury");
    let when = choices.between(4 * MINUTE, 25 * MINUTE);
    stage.world.time.sleep(when).await;
    for rail in Rail::ALL {
        if choices.chance(600) {
            fill_up(&stage, rail, &mut choices).await;
        }
    }
}

/// Some merchants' payouts go elsewhere from then on, after a day in which they are held.
pub async fn change_account(stage: Stage) {
    let mut choices = Choices::of(stage.world.seed, "another payout account");
    let when = choices.between(MINUTE, 15 * MINUTE);
    let merchant = usize::from(choices.chance(500));
    if choices.chance(200) {
        stage.world.time.sleep(when).await;
        // It is only tried.
        set_account(&stage, merchant, 1).await.ok();
    }
}

/// Pays into a float unless it holds plenty.
pub async fn fill_up(stage: &Stage, rail: Rail, choices: &mut Choices) {
    if stage.world.rails.float(rail).held_minor < PLENTY_MINOR / 2 {
        fill(stage, rail, PLENTY_MINOR, choices).await;
    }
}

/// Pays into a float, and posts that until it is acknowledged, sometimes once more.
async fn fill(stage: &Stage, rail: Rail, amount_minor: i64, choices: &mut Choices) {
    stage.world.rails.fill(rail, amount_minor);
    let move_id: Uuid = key(choices.below(u64::MAX)).parse().expect("a key is one");
    let mut wanted = choices.weighted(&[(80, 1), (20, 2)]);
    for _ in 0..TRIES_MAX {
        if post(stage, rail, amount_minor, move_id).await.is_ok() {
            wanted -= 1;
        }
        if wanted == 0 {
            stage.history.float_move(FloatMove {
                at: stage.world.time.now(),
                move_id,
                amount_minor,
            });
            return;
        }
        let pause = choices.between(SECOND, 10 * SECOND);
        stage.world.time.sleep(pause).await;
    }
}

async fn post(stage: &Stage, rail: Rail, amount_minor: i64, move_id: Uuid) -> anyhow::Result<()> {
    let channel = stage.world.inside.channel(Service::Charges)?;
    let mut request = MoveFloatRequest {
        move_id: move_id.to_string(),
        rail: rail.name().to_owned(),
        amount: Some(Money {
            minor_units: amount_minor,
            currency: "GHS".to_owned(),
        }),
        note: "paid in by the bank".to_owned(),
        ..Default::default()
    };
    request.set_direction(Direction::HouseToFloat);
    DisbursementOperationsClient::new(channel)
        .move_float(request)
        .await?;
    Ok(())
}

async fn set_account(stage: &Stage, merchant: usize, number: u64) -> anyhow::Result<()> {
    let name = format!("payout account {merchant} {number}");
    let mut choices = Choices::of(stage.world.seed, &name);
    let provider = choices.weighted(&[
        (45, Some(Provider::Mtn)),
        (25, Some(Provider::Telecel)),
        (15, Some(Provider::At)),
        (15, None),
    ]);
    let owner = u64::try_from(merchant)?;
    let mut request = SetPayoutAccountRequest {
        merchant_id: stage.merchants[merchant].merchant_id.clone(),
        holder_name: "Ama Mensah".to_owned(),
        confirm_holder_name: true,
        ..Default::default()
    };
    let account = match provider {
        Some(provider) => {
            request.set_type(DestinationType::MobileMoney);
            request.set_provider(provider);
            phone(5_000_000 + owner * 10 + number).replacen('0', "+233", 1)
        }
        None => {
            request.set_type(DestinationType::Bank);
            request.bank_code = "040100".to_owned();
            format!("14400{owner}{number}7788")
        }
    };
    request.account.clone_from(&account);
    // It may be set although the answer is lost.
    stage.history.payout_account(merchant, account);
    let channel = stage.world.inside.channel(Service::Charges)?;
    DisbursementOperationsClient::new(channel)
        .set_payout_account(request)
        .await?;
    Ok(())
}

async fn switch_on(stage: &Stage, merchant: usize) -> anyhow::Result<()> {
    let mut choices = Choices::of(stage.world.seed, &format!("switches {merchant}"));
    let request = SetPayoutSwitchesRequest {
        merchant_id: stage.merchants[merchant].merchant_id.clone(),
        payouts_on_request: Some(true),
        daily_settlement: Some(choices.chance(700)),
    };
    let channel = stage.world.inside.channel(Service::Charges)?;
    DisbursementOperationsClient::new(channel)
        .set_payout_switches(request)
        .await?;
    Ok(())
}
