//! Converts proto to domain and back, for statements.

use std::pin::Pin;

use chassis::{clock::Day, error_chain::chain};
use futures::{Stream, StreamExt as _};
use proto::charges::{
    ListStatementKeysRequest, ListStatementKeysResponse, ReadHouseStatementRequest,
    ReadStatementRequest, StatementFormat, StatementKey, StatementPiece,
    statement_operations_server::StatementOperations, statements_server::Statements,
};
use tonic::{Request, Response, Status as GrpcStatus};

use super::{Grpc, GrpcResult, parse};
use crate::{error::Result, statement::Format, statement_key::PublicKey};

type Pieces = Pin<Box<dyn Stream<Item = Result<StatementPiece, GrpcStatus>> + Send>>;

#[tonic::async_trait]
impl Statements for Grpc {
    type ReadStatementStream = Pieces;

    async fn read_statement(
        &self,
        request: Request<ReadStatementRequest>,
    ) -> GrpcResult<Self::ReadStatementStream> {
        let request = request.into_inner();
        let merchant_id = parse::merchant_id(&request.merchant_id)?;
        let (day, format) = (day(&request.day)?, format(request.format())?);
        let statement = self.0.read_statement(merchant_id, day, format).await?;
        Ok(Response::new(pieces(statement)))
    }

    async fn list_statement_keys(
        &self,
        _: Request<ListStatementKeysRequest>,
    ) -> GrpcResult<ListStatementKeysResponse> {
        let keys = self.0.statement_keys()?;
        Ok(Response::new(ListStatementKeysResponse {
            keys: keys.public().iter().map(Into::into).collect(),
        }))
    }
}

#[tonic::async_trait]
impl StatementOperations for Grpc {
    type ReadStatementStream = Pieces;
    type ReadHouseStatementStream = Pieces;

    async fn read_statement(&self, request: Request<ReadStatementRequest>) -> GrpcResult<Pieces> {
        Statements::read_statement(self, request).await
    }

    async fn list_statement_keys(
        &self,
        request: Request<ListStatementKeysRequest>,
    ) -> GrpcResult<ListStatementKeysResponse> {
        Statements::list_statement_keys(self, request).await
    }

    async fn read_house_statement(
        &self,
        request: Request<ReadHouseStatementRequest>,
    ) -> GrpcResult<Self::ReadHouseStatementStream> {
        let request = request.into_inner();
        let (day, format) = (day(&request.day)?, format(request.format())?);
        let statement = self.0.read_house_statement(day, format).await?;
        Ok(Response::new(pieces(statement)))
    }
}

fn day(text: &str) -> Result<Day> {
    let day = text.parse();
    day.map_err(|_| parse::invalid("day", "must be a day such as 2026-11-24"))
}

fn format(format: StatementFormat) -> Result<Format> {
    match format {
        StatementFormat::Json => Ok(Format::Json),
        StatementFormat::Csv => Ok(Format::Csv),
        StatementFormat::Unspecified => Err(parse::invalid("format", "must be JSON or CSV")),
    }
}

fn pieces(statement: impl Stream<Item = Result<Vec<u8>>> + Send + 'static) -> Pieces {
    Box::pin(statement.map(|piece| match piece {
        Ok(content) => Ok(StatementPiece { content }),
        Err(error) => {
            tracing::error!(error = %chain(&error), "the statement ends without a signature");
            Err(error.into())
        }
    }))
}

impl From<&PublicKey> for StatementKey {
    fn from(key: &PublicKey) -> Self {
        Self {
            key_id: key.id(),
            public_key: key.to_string(),
        }
    }
}
