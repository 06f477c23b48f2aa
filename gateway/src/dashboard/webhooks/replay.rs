//! Everything that was given up since a time, sent once more.

use std::sync::Arc;

use axum::{
    Router,
    extract::{Path, State},
    response::Response,
    routing::get,
};
use chassis::{clock::Timestamp, grpc::Reason};
use http::StatusCode;
use proto::{
    merchants::Action,
    webhooks::{GetReplayRequest, ListReplaysRequest, Replay, StartReplayRequest},
};
use uuid::Uuid;

use super::PATH;
use crate::{
    backend,
    dashboard::{
        Dashboard,
        login::{Login, Sent},
        page::{Cell, Control, DetailPage, Field, FormPage, Refusal, Section, Table},
        text::{Phrase, Text, moment, phrase},
    },
    error::Error,
    pages::see,
};

pub const REPLAY_PATH: &str = "/settings/integrations/webhooks/replay";

pub fn routes() -> Router<Arc<Dashboard>> {
    Router::new()
        .route(REPLAY_PATH, get(show).post(begin))
        .route(&format!("{REPLAY_PATH}/{{replay_id}}"), get(show_one))
}

/// The form for the time. A `datetime-local` field has no zone: it is GMT.
fn form(login: &Login, since: &str, error: Option<Phrase>) -> FormPage {
    let shell = login.shell(Section::Integrations, "Replay what was missed");
    let mut page = FormPage::new(shell, REPLAY_PATH, "Count them");
    let lead = "Events that were given up are sent once more, oldest first, with the same ids. Your program may have seen some of them: it must do nothing the second time.";
    page.lead = vec![lead.into()];
    page.hidden = vec![("step", "count".to_owned())];
    page.fields = vec![since_field().value(since).error(error)];
    page.links = vec![("Back", PATH)];
    page
}

pub fn since_field() -> Field {
    Field::new("since", "Since (GMT)", Control::Input("datetime-local"))
}

async fn show(State(dashboard): State<Arc<Dashboard>>, login: Login) -> Result<Response, Refusal> {
    let request = ListReplaysRequest {
        merchant_id: login.merchant_id(),
    };
    let replays = dashboard.webhooks.read(
        backend::DEADLINE,
        request,
        |mut webhooks, request| async move { webhooks.list_replays(request).await },
    );
    let replays = replays.await?.replays;
    let mut page = form(&login, "", None);
    if !replays.is_empty() {
        page.table = Some(Table {
            caption: "Replays so far",
            columns: vec!["Begun", "Since", "State", "Delivered"],
            rows: replays.iter().map(row).collect(),
        });
    }
    Ok(page.respond(StatusCode::OK))
}

fn row(replay: &Replay) -> Vec<Cell> {
    let state = match &replay.finished_at {
        Some(_) => Cell::state("Ended", "good"),
        None => Cell::state("Goes on", "wait"),
    };
    vec![
        Cell::time(&replay.created_at).link(format!("{REPLAY_PATH}/{}", replay.replay_id)),
        Cell::time(&replay.since),
        state,
        Cell::text(&format!("{} / {}", replay.delivered, replay.matched)),
    ]
}

async fn begin(
    State(dashboard): State<Arc<Dashboard>>,
    Sent { login, fields }: Sent,
) -> Result<Response, Refusal> {
    let typed = fields.get("since");
    let Some(since) = read_gmt(typed) else {
        let error = "Enter a day and a time, such as 25 November 2026, 09:00.";
        let page = form(&login, typed, Some(error.into()));
        return Ok(page.respond(StatusCode::BAD_REQUEST));
    };
    if fields.get("step") != "start" {
        return Ok(count(&dashboard, &login, typed, since).await?);
    }
    let object = format!("since {since}");
    dashboard
        .note_form(&login, Action::EventsReplayed, &object, fields.get("nonce"))
        .await?;
    let request = StartReplayRequest {
        merchant_id: login.merchant_id(),
        since: since.to_string(),
        nonce: fields.get("nonce").to_owned(),
    };
    let started = dashboard.webhooks.keyed(
        backend::DEADLINE,
        request,
        |mut webhooks, request| async move { webhooks.start_replay(request).await },
    );
    match started.await {
        Ok(replay) => Ok(see(&format!("{REPLAY_PATH}/{}", replay.replay_id))),
        Err(Error::NoWebhookEndpoint) => Ok(see(PATH)),
        Err(Error::AtDashboard {
            reason: Reason::ReplayRunning,
            ..
        }) => {
            let notice = "Another replay has not ended yet.".into();
            Ok(form(&login, typed, None).refuse(StatusCode::CONFLICT, Some(notice)))
        }
        Err(error) => Err(error.into()),
    }
}

/// Tells how many there are, and asks.
async fn count(
    dashboard: &Dashboard,
    login: &Login,
    typed: &str,
    since: Timestamp,
) -> Result<Response, Error> {
    let counted = dashboard.count_exhausted(login, since).await?;
    if counted.count == 0 {
        let mut page = form(login, typed, None);
        page.lead = vec!["Nothing was given up since then.".into()];
        return Ok(page.respond(StatusCode::OK));
    }
    let shell = login.shell(Section::Integrations, "Replay them?");
    let mut page = FormPage::new(shell, REPLAY_PATH, "Send them again");
    let (count, since) = (counted.count.to_string(), Text::Moment(since));
    page.lead = vec![match counted.is_more {
        true => phrase!("{0} or more given up since {1}.", count, since),
        false => phrase!("{0} given up since {1}.", count, since),
    }];
    let repeats = "Your server gets each under the same id as before: one that it has seen already, it must not act on again.";
    page.lead.push(repeats.into());
    page.hidden = vec![
        ("step", "start".to_owned()),
        ("since", typed.to_owned()),
        ("nonce", Uuid::new_v4().to_string()),
    ];
    page.links = vec![("Do not send them", PATH)];
    Ok(page.respond(StatusCode::OK))
}

/// `2026-11-25T09:00` or with seconds, in GMT.
fn read_gmt(text: &str) -> Option<Timestamp> {
    let seconds = if text.len() == "2026-11-25T09:00".len() {
        ":00"
    } else {
        ""
    };
    Timestamp::parse_rfc_3339(&format!("{text}{seconds}Z"))
}

async fn show_one(
    State(dashboard): State<Arc<Dashboard>>,
    login: Login,
    Path(replay_id): Path<String>,
) -> Result<Response, Refusal> {
    let request = GetReplayRequest {
        merchant_id: login.merchant_id(),
        replay_id,
    };
    let replay = dashboard.webhooks.read(
        backend::DEADLINE,
        request,
        |mut webhooks, request| async move { webhooks.get_replay(request).await },
    );
    let replay = replay.await?;
    let mut page = DetailPage::new(login.shell(Section::Integrations, "Replay"));
    let state = match &replay.finished_at {
        Some(at) => Cell::state("Ended", "good").detail(moment(at)),
        None => Cell::state("Goes on", "wait"),
    };
    let number = |number: u32| Cell::text(&number.to_string());
    page.follow(&state);
    page.facts = vec![
        ("State", state),
        ("Since", Cell::time(&replay.since)),
        ("To send", number(replay.matched)),
        ("Handed over", number(replay.queued)),
        ("Delivered", number(replay.delivered)),
        ("Failed again", number(replay.failed)),
    ];
    if replay.finished_at.is_none() {
        page.lead = vec!["It goes on by itself. Load this page again to see how far it is.".into()];
    }
    page.links = vec![("All replays", REPLAY_PATH.to_owned())];
    Ok(page.respond(StatusCode::OK))
}

#[cfg(test)]
mod tests {
    use super::read_gmt;

    #[test]
    fn a_browsers_local_time_is_read_as_gmt() {
        let read = |text| read_gmt(text).map(|at| at.to_string());
        let nine = Some("2026-11-25T09:00:00.000Z".to_owned());
        assert_eq!(read("2026-11-25T09:00"), nine);
        assert_eq!(read("2026-11-25T09:00:00"), nine);
        for wrong in [
            "",
            "yesterday",
            "2026-11-25",
            "2026-11-25T9:00",
            "2026-11-25T09:00Z",
        ] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
