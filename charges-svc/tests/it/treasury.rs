//! What operators say of money that goes out: where a merchant's payouts go, and what they moved
//! between a rail's accounts.

use chassis::{
    ids::MerchantId,
    testing::{check_invalid, check_refusal},
};
use proto::charges::{
    DestinationType, MoveFloatRequest, Provider, SetPayoutAccountRequest, ShowFloatRequest,
    move_float_request::Direction,
};
use tonic::Code;
use uuid::Uuid;

use crate::world::{World, ghs};

fn wallet() -> SetPayoutAccountRequest {
    SetPayoutAccountRequest {
        merchant_id: MerchantId::new().to_string(),
        r#type: DestinationType::MobileMoney.into(),
        provider: Provider::Mtn.into(),
        account: "0241234567".to_owned(),
        holder_name: "Ama Mensah".to_owned(),
        confirm_holder_name: true,
        ..SetPayoutAccountRequest::default()
    }
}

fn bank() -> SetPayoutAccountRequest {
    SetPayoutAccountRequest {
        r#type: DestinationType::Bank.into(),
        provider: Provider::Unspecified.into(),
        bank_code: "040100".to_owned(),
        account: "1440000201".to_owned(),
        ..wallet()
    }
}

#[tokio::test]
async fn a_payout_account_that_cannot_be_is_refused_with_its_field() {
    let mut world = World::start().await;
    let text = str::to_owned;
    let wallets = [
        ("merchant_id", {
            let merchant_id = text("nobody");
            SetPayoutAccountRequest {
                merchant_id,
                ..wallet()
            }
        }),
        ("type", {
            let r#type = DestinationType::Unspecified.into();
            SetPayoutAccountRequest { r#type, ..wallet() }
        }),
        ("provider", {
            let provider = Provider::Unspecified.into();
            SetPayoutAccountRequest {
                provider,
                ..wallet()
            }
        }),
    ];
    let accounts = ["", "024123456", "0301234567", "024 123 456x", "1440000201"];
    let accounts = accounts.map(|account| {
        let account = text(account);
        (
            "account",
            SetPayoutAccountRequest {
                account,
                ..wallet()
            },
        )
    });
    let numbers = [
        text(""),
        text("1440-0002"),
        text("1440 0002"),
        "1".repeat(35),
    ];
    let numbers = numbers.map(|account| ("account", SetPayoutAccountRequest { account, ..bank() }));
    let codes = [text(""), text("040/100"), text("040 100"), "4".repeat(21)];
    let codes = codes.map(|bank_code| {
        let of_bank = SetPayoutAccountRequest {
            bank_code,
            ..bank()
        };
        ("bank_code", of_bank)
    });
    let names = [text(""), text(" "), "A".repeat(1_000)];
    let names = names.map(|holder_name| {
        let named = SetPayoutAccountRequest {
            holder_name,
            ..bank()
        };
        ("holder_name", named)
    });
    let refused = wallets.into_iter().chain(accounts).chain(numbers);
    for (field, request) in refused.chain(codes).chain(names) {
        let shown = format!("{request:?}");
        let answer = world.treasury.set_payout_account(request).await;
        assert!(answer.is_err(), "{shown}");
        check_invalid(answer, field);
    }
    // So it is those fields that were refused.
    for request in [wallet(), bank()] {
        world.treasury.set_payout_account(request).await.unwrap();
    }
    world.end().await;
}

#[tokio::test]
async fn a_move_of_a_float_is_posted_once_for_its_id_and_its_id_stands_for_no_other() {
    let mut world = World::start().await;
    let first = MoveFloatRequest {
        move_id: Uuid::new_v4().to_string(),
        rail: "momo".to_owned(),
        direction: Direction::HouseToFloat.into(),
        amount: Some(ghs(100_000)),
        note: "bank transfer of 24 November, 1234".to_owned(),
    };
    for note in ["bank transfer of 24 November, 1234", "the same again"] {
        let repeated = MoveFloatRequest {
            note: note.to_owned(),
            ..first.clone()
        };
        world.treasury.move_float(repeated).await.unwrap();
    }
    for another in [
        MoveFloatRequest {
            amount: Some(ghs(100_001)),
            ..first.clone()
        },
        MoveFloatRequest {
            rail: "paystack".to_owned(),
            ..first.clone()
        },
        MoveFloatRequest {
            direction: Direction::FloatToHouse.into(),
            ..first.clone()
        },
    ] {
        let refused = world.treasury.move_float(another).await;
        check_refusal(refused, Code::AlreadyExists, "FLOAT_MOVE_REUSED");
    }
    let shown = world.treasury.show_float(ShowFloatRequest {}).await;
    let floats = shown.unwrap().into_inner().rails;
    let floats: Vec<_> = floats
        .into_iter()
        .map(|shown| (shown.rail, shown.float.unwrap().minor_units))
        .collect();
    let expected = [("momo", 100_000), ("paystack", 0), ("hubtel", 0)];
    assert_eq!(
        floats,
        expected.map(|(rail, minor)| (rail.to_owned(), minor))
    );
    world.end().await;
}
