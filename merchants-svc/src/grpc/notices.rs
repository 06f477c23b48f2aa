//! What other services call.

use chassis::clock::Timestamp;
use proto::merchants::{
    NoticeKind as ProtoNoticeKind, TellMerchantRequest, TellMerchantResponse,
    notices_server::Notices,
};
use tonic::{Request, Response, Status};
use uuid::Uuid;

use super::{invalid, parse_id, people::PeopleGrpc};
use crate::{
    error::Error,
    notice::{Notice, NoticeKind},
};

/// Characters of what a notice is about: a URL and more.
const ABOUT_CHARACTERS_MAX: usize = 4_000;

chassis::proto_list! { NoticeKind = ProtoNoticeKind { PayoutAccountSet, WebhookExhausted } }

#[tonic::async_trait]
impl Notices for PeopleGrpc {
    async fn tell_merchant(
        &self,
        request: Request<TellMerchantRequest>,
    ) -> Result<Response<TellMerchantResponse>, Status> {
        let notice = parse(request.into_inner())?;
        self.0.tell(notice).await?;
        Ok(Response::new(TellMerchantResponse {}))
    }
}

fn parse(request: TellMerchantRequest) -> Result<Notice, Error> {
    let notice_id = Uuid::try_parse(&request.notice_id);
    let at: Result<Timestamp, _> = request.at.parse();
    let kind = request.kind().try_into();
    let person_id = request.person_id.as_deref().map(str::parse).transpose();
    let about = request.about;
    if about.chars().count() > ABOUT_CHARACTERS_MAX || about.chars().any(char::is_control) {
        let message = format!(
            "must be at most {ABOUT_CHARACTERS_MAX} characters, without control characters"
        );
        return Err(invalid("about", message));
    }
    Ok(Notice {
        notice_id: notice_id.map_err(|_| invalid("notice_id", "must be a UUID"))?,
        merchant_id: parse_id(&request.merchant_id, Error::MerchantNotFound)?,
        kind: kind.map_err(|_| invalid("kind", "must be one of the kinds"))?,
        about,
        at: at.map_err(|_| invalid("at", "must be a time such as 2026-01-31T09:00:00.000Z"))?,
        person_id: person_id.map_err(|_| invalid("person_id", "must be a UUID"))?,
    })
}
