//! The operators' command line: a gRPC client that prints JSON. Errors go to stderr, with exit code
//! 1. `listen` and `trigger` are for merchants' developers, and call the merchants' API instead.

mod charge;
mod clock;
mod forward;
mod kyc;
mod listen;
mod merchant;
mod merchant_api;
mod proof;
mod reconcile;
mod report;
mod services;
mod treasury;
mod trigger;
mod webhook;

use std::{
    io::{self, Write as _},
    process::ExitCode,
};

use clap::{Parser, Subcommand};
use serde_json::Value;

use services::{Failure, Services};

/// Operates the payment service: merchants, keys, webhooks, charges, payouts, refunds
/// and cases. Prints JSON.
#[derive(Debug, Parser)]
#[command(name = "payctl", version)]
struct Cli {
    #[command(flatten)]
    services: Services,

    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Merchants and their verification.
    #[command(subcommand)]
    Merchant(merchant::MerchantCommand),
    /// What merchants told about their businesses, and the decisions on it.
    #[command(subcommand)]
    Kyc(kyc::KycCommand),
    /// Merchants' API keys.
    #[command(subcommand)]
    Key(merchant::KeyCommand),
    /// Webhook endpoints and deliveries.
    #[command(subcommand)]
    Webhook(webhook::WebhookCommand),
    /// Charges, with everything that their rail said.
    #[command(subcommand)]
    Charge(charge::ChargeCommand),
    /// Lists the open cases, oldest first.
    Cases,
    /// One case.
    #[command(subcommand)]
    Case(charge::CaseCommand),
    /// What a merchant has collected and not been paid out.
    Balance {
        /// The merchant's id.
        merchant_id: String,
    },
    /// Where merchants' payouts go.
    #[command(subcommand)]
    PayoutAccount(treasury::PayoutAccountCommand),
    /// Payouts and refunds, with everything that their rail said.
    #[command(subcommand)]
    Disbursement(treasury::DisbursementCommand),
    /// What the rails hold for payouts and refunds.
    #[command(subcommand)]
    Float(treasury::FloatCommand),
    /// Daily statements, and their proof.
    #[command(subcommand)]
    Proof(proof::ProofCommand),
    /// Compares a rail's own report with our records, and opens a case for each difference. Exits
    /// with 3 if there is one.
    Reconcile(Box<reconcile::Reconcile>),
    /// The local stack's clock.
    #[command(subcommand)]
    Clock(clock::ClockCommand),
    /// Forwards a merchant's events to a machine that webhooks cannot reach, with the merchant's key.
    Listen(listen::Listen),
    /// Makes an event of this type happen in the sandbox, with a merchant's test key.
    Trigger {
        /// Such as payment.failed.
        event: String,
    },
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(cli).await {
        Ok((Some(answer), code)) => print(&answer, code),
        // It was written as it came.
        Ok((None, code)) => code,
        Err(failure) => {
            eprintln!("payctl: {failure:#}");
            ExitCode::FAILURE
        }
    }
}

/// Returns `code` if the answer was printed.
fn print(answer: &Value, code: ExitCode) -> ExitCode {
    match writeln!(io::stdout(), "{answer:#}") {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            eprintln!("payctl: the answer cannot be printed: {error}");
            ExitCode::FAILURE
        }
        // The reader, such as `head`, may have seen enough.
        Ok(()) | Err(_) => code,
    }
}

/// What to print, and the exit code once it is printed.
async fn run(cli: Cli) -> Result<(Option<Value>, ExitCode), Failure> {
    let services = &cli.services;
    let answer = match cli.command {
        Command::Merchant(command) => merchant::run(services, command).await,
        Command::Kyc(command) => kyc::run(services, command).await,
        Command::Key(command) => merchant::run_key(services, command).await,
        Command::Webhook(command) => webhook::run(services, command).await,
        Command::Charge(command) => charge::run(services, command).await,
        Command::Cases => charge::list_cases(services).await,
        Command::Case(command) => charge::run_case(services, command).await,
        Command::Balance { merchant_id } => charge::balance(services, merchant_id).await,
        Command::PayoutAccount(command) => treasury::run_account(services, command).await,
        Command::Disbursement(command) => treasury::run_disbursement(services, command).await,
        Command::Float(command) => treasury::run_float(services, command).await,
        Command::Proof(command) => {
            let answer = proof::run(services, command).await?;
            return Ok((answer, ExitCode::SUCCESS));
        }
        Command::Reconcile(command) => {
            let (answer, code) = reconcile::run(services, *command).await?;
            return Ok((Some(answer), code));
        }
        Command::Clock(command) => clock::run(services, command).await,
        Command::Listen(listen) => listen::run(services, listen).await,
        Command::Trigger { event } => trigger::run(services, &event).await,
    };
    Ok((Some(answer?), ExitCode::SUCCESS))
}
