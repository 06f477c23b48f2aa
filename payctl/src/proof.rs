//! `payctl proof`: fetches statements, and verifies them without any server.

mod chain;
mod check;
mod file;
mod signature;

use std::{
    fs::File,
    io::{self, Read as _, Write as _},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use chassis::{clock::Day, ids::MerchantId};
use clap::{Args, Subcommand, ValueEnum};
use proto::charges::{
    ListStatementKeysRequest, ReadHouseStatementRequest, ReadStatementRequest, StatementFormat,
    statement_operations_client::StatementOperationsClient,
};
use serde_json::{Value, json};

use crate::services::{Failure, Services, refusal};
use file::Statement;

#[derive(Debug, Subcommand)]
pub enum ProofCommand {
    /// Writes a day's statement to the standard output, byte for byte as it is signed.
    Statement(WhichStatement),
    /// Shows the public keys of statements, the one that signs first.
    Keys,
    /// Checks a statement without any server: signature, chain of blocks and sums. Exits with 1 and
    /// the first thing that is wrong.
    Verify(Verify),
}

#[derive(Debug, Args)]
pub struct WhichStatement {
    /// The UTC day, such as 2026-11-24.
    #[arg(long)]
    day: Day,
    /// A merchant's id. Without it, the statement of the whole house.
    #[arg(long)]
    merchant: Option<MerchantId>,
    /// How it is written.
    #[arg(long, value_enum, default_value_t = Format::Json)]
    format: Format,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    Json,
    Csv,
}

#[derive(Debug, Args)]
pub struct Verify {
    /// The statement, as it was given out: JSON or CSV. `-` is the standard input.
    file: PathBuf,
    /// The public key that you trust: 64 hex digits, or a file that has them or the published keys.
    #[arg(long, value_name = "FILE|HEX")]
    key: String,
    /// The statement before: this one must continue it.
    #[arg(long, value_name = "FILE")]
    after: Option<PathBuf>,
    /// The house's statement of the same day: this one must be a part of it.
    #[arg(long, value_name = "FILE")]
    house: Option<PathBuf>,
}

/// Returns what to print, if anything is left to print.
pub async fn run(services: &Services, command: ProofCommand) -> Result<Option<Value>, Failure> {
    match command {
        ProofCommand::Statement(which) => fetch(services, which).await.map(|()| None),
        ProofCommand::Keys => keys(services).await.map(Some),
        ProofCommand::Verify(verify) => verify.run().map(Some),
    }
}

async fn fetch(services: &Services, which: WhichStatement) -> Result<(), Failure> {
    let day = which.day.to_string();
    let format = match which.format {
        Format::Json => StatementFormat::Json,
        Format::Csv => StatementFormat::Csv,
    };
    let mut statements = StatementOperationsClient::new(services.charges()?);
    let answer = match which.merchant {
        Some(merchant_id) => {
            let mut request = ReadStatementRequest {
                merchant_id: merchant_id.to_string(),
                day,
                ..Default::default()
            };
            request.set_format(format);
            statements.read_statement(request).await
        }
        None => {
            let mut request = ReadHouseStatementRequest {
                day,
                ..Default::default()
            };
            request.set_format(format);
            statements.read_house_statement(request).await
        }
    };
    let mut pieces = answer.map_err(refusal)?.into_inner();
    let mut out = io::stdout().lock();
    while let Some(piece) = pieces.message().await.map_err(refusal)? {
        out.write_all(&piece.content)
            .context("the statement cannot be written")?;
    }
    out.flush().context("the statement cannot be written")
}

async fn keys(services: &Services) -> Result<Value, Failure> {
    let mut statements = StatementOperationsClient::new(services.charges()?);
    let answer = statements.list_statement_keys(ListStatementKeysRequest {});
    let keys = answer.await.map_err(refusal)?.into_inner().keys;
    let keys = keys.into_iter();
    let keys: Vec<Value> = keys
        .map(|key| json!({ "key_id": key.key_id, "public_key": key.public_key }))
        .collect();
    Ok(json!({ "keys": keys }))
}

impl Verify {
    fn run(&self) -> Result<Value, Failure> {
        let keys = signature::keys(&self.key)?;
        let statement = read(&self.file, &keys)?;
        if let Some(file) = &self.after {
            let before = read(file, &keys)?;
            check::continues(&statement, &before)?;
        }
        if let Some(file) = &self.house {
            let house = read(file, &keys)?;
            check::is_part_of(&statement, &house)?;
        }
        Ok(summary(&statement))
    }
}

/// Reads a statement and checks it by itself.
fn read(path: &Path, keys: &[signature::PublicKey]) -> Result<Statement, Failure> {
    let name = path.display();
    let mut bytes = Vec::new();
    let read = match path == Path::new("-") {
        true => io::stdin().lock().read_to_end(&mut bytes),
        false => File::open(path).and_then(|mut file| file.read_to_end(&mut bytes)),
    };
    read.with_context(|| format!("{name} cannot be read"))?;
    let checked = || {
        let signed = signature::split(&bytes)?;
        let key_id = signed.verify(keys)?;
        let statement = signed.statement()?;
        if statement.key_id != key_id {
            bail!("it names another key than the one that signed it");
        }
        check::alone(&statement)?;
        Ok(statement)
    };
    checked().with_context(|| format!("{name} is not good"))
}

fn summary(statement: &Statement) -> Value {
    let accounts = statement.accounts.iter().map(|account| {
        json!({
            "account": account.account,
            "currency": account.currency.code(),
            "opening": account.opening.to_major().to_string(),
            "closing": account.closing.to_major().to_string(),
        })
    });
    json!({
        "statement_of": statement.owner.to_string(),
        "day": statement.day.to_string(),
        "blocks": statement.last_block - statement.after_block,
        "lines": statement.lines().count(),
        "last_hash": statement.last_hash,
        "key_id": statement.key_id,
        "accounts": accounts.collect::<Vec<_>>(),
    })
}
