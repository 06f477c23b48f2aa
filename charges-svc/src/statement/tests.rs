use chassis::money::Currency;
use serde_json::Value;

use super::*;

fn keys() -> StatementKeys {
    let seed = "AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA=".to_owned();
    StatementKeys::new(&seed.into(), &[]).expect("32 bytes")
}

fn cedis(minor: i64) -> Money {
    Money::new(minor, Currency::GHS)
}

fn head(owner: Owner) -> Head {
    Head {
        owner,
        day: "2026-11-24".parse().expect("a day"),
        after_block: 0,
        after_hash: String::new(),
        last_block: 1,
        last_hash: "ab".repeat(32),
    }
}

fn line(account: &str) -> Line<'_> {
    Line {
        block: 1,
        kind: "SETTLEMENT",
        subject: Uuid::nil(),
        line: 2,
        account,
        amount: cedis(2_550),
        at: "2026-11-24T09:00:00.000Z".parse().expect("a timestamp"),
        reference: None,
        balance: None,
    }
}

fn text(mut writer: Writer) -> String {
    let mut bytes = writer.take();
    bytes.extend(writer.finish(&keys()));
    String::from_utf8(bytes).expect("UTF-8")
}

#[test]
fn a_merchants_statement_is_json_with_exact_amounts() {
    let merchant_id = MerchantId::new();
    let mut writer = Writer::new(Format::Json, &head(Owner::Merchant(merchant_id)));
    writer.open_account("available", cedis(0));
    let shown = Line {
        reference: Some("TX-1"),
        balance: Some(cedis(2_550)),
        ..line("available")
    };
    writer.line(&shown);
    writer.line(&shown);
    writer.close_account("available", cedis(2_550));
    writer.open_account("reserved", cedis(0));
    writer.close_account("reserved", cedis(0));
    let text = text(writer);
    assert!(text.contains(r#""amount":25.50,"balance":25.50"#), "{text}");
    let read: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(read["merchant_id"], merchant_id.to_string());
    assert_eq!(read["accounts"][0]["lines"][1]["reference"], "TX-1");
    assert_eq!(read["accounts"][1]["lines"], Value::Array(Vec::new()));
    assert_eq!(read["key_id"], keys().id());
}

#[test]
fn the_houses_statement_is_json_with_its_blocks() {
    let mut writer = Writer::new(Format::Json, &head(Owner::House));
    writer.account("house", cedis(0), cedis(2_550));
    writer.account("suspense", cedis(0), cedis(-2_550));
    writer.open_blocks();
    let block = Block {
        number: 1,
        hash: "ab".repeat(32),
        sealed_at: "2026-11-24T09:00:00.000Z".parse().expect("a timestamp"),
    };
    writer.open_block(&block);
    writer.line(&line("house"));
    writer.line(&line("suspense"));
    writer.close_block();
    writer.open_block(&block);
    writer.close_block();
    let read: Value = serde_json::from_str(&text(writer)).expect("JSON");
    assert_eq!(read["accounts"].as_array().map(Vec::len), Some(2));
    assert_eq!(read["blocks"][0]["lines"][1]["account"], "suspense");
    assert_eq!(read["blocks"][1]["lines"], Value::Array(Vec::new()));
}

#[test]
fn every_row_of_csv_has_every_column_and_odd_texts_are_quoted() {
    let mut writer = Writer::new(Format::Csv, &head(Owner::House));
    writer.account("fees:a", cedis(0), cedis(2_550));
    writer.open_blocks();
    writer.line(&line("fees:a"));
    let text = text(writer);
    let columns = COLUMNS.matches(',').count();
    for row in text.lines() {
        assert_eq!(row.matches(',').count(), columns, "{row}");
    }
    let mut writer = Writer::new(Format::Csv, &head(Owner::House));
    writer.take();
    writer.account("a,\"b\"", cedis(0), cedis(0));
    let row = "opening,\"a,\"\"b\"\"\",GHS,,0.00,,,,,,,\n";
    assert!(writer.text.starts_with(row), "{}", writer.text);
}

#[test]
fn what_is_signed_is_the_hash_of_everything_before_the_last_record() {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    use ring::signature::{ED25519, UnparsedPublicKey};

    for (format, mark) in [
        (Format::Json, "\"signature\":\""),
        (Format::Csv, "signature,"),
    ] {
        let text = text(Writer::new(format, &head(Owner::House)));
        let (signed, rest) = text.split_once(mark).expect("a signature");
        let signature = rest
            .trim_end_matches(['"', '}', '\n'])
            .trim_start_matches(',');
        let signature = STANDARD.decode(signature).expect("base64");
        let digest = hex::encode(Sha256::digest(signed));
        let message = format!("payments statement 1 {digest}");
        let key = hex::decode(keys().public()[0].to_string()).expect("hex");
        let key = UnparsedPublicKey::new(&ED25519, key);
        assert!(key.verify(message.as_bytes(), &signature).is_ok());
    }
}
