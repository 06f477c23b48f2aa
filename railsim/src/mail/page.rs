//! The page with the caught mails, and the same as JSON.

use std::sync::Arc;

use askama::Template;
use axum::{
    Json, Router,
    extract::{Query, State},
    response::Response,
    routing::get,
};
use serde::{Deserialize, Serialize};

use super::{Mail, Mailbox, Piece, pieces};
use crate::handset;

/// How many mails the page shows.
const MAILS_SHOWN_MAX: usize = 50;

pub fn routes(mailbox: Arc<Mailbox>) -> Router {
    Router::new()
        .route("/mail", get(page))
        .route("/mail.json", get(json))
        .with_state(mailbox)
}

/// Which mails to show.
#[derive(Deserialize)]
struct Filter {
    /// Everybody's if it is missing or empty.
    #[serde(default)]
    to: String,
    /// Only those with higher numbers.
    #[serde(default)]
    after: u64,
}

impl Filter {
    fn wants(&self, mail: &Mail) -> bool {
        let typed = self.to.trim();
        let mut to = mail.to.iter();
        typed.is_empty() || to.any(|address| address.eq_ignore_ascii_case(typed))
    }

    async fn newest_first(&self, mailbox: &Mailbox) -> Vec<(u64, Arc<Mail>)> {
        let mut mails = mailbox.newest_first().await;
        mails.retain(|(number, mail)| *number > self.after && self.wants(mail));
        mails
    }
}

/// A mail, as JSON.
#[derive(Serialize)]
struct MailLine<'a> {
    /// From 1, in the order in which they came.
    number: u64,
    from: &'a str,
    to: String,
    subject: &'a str,
    text: &'a str,
    /// Every http(s) link in the text, wherever it leads.
    links: Vec<&'a str>,
    at: String,
}

async fn json(
    State(mailbox): State<Arc<Mailbox>>,
    Query(filter): Query<Filter>,
) -> Json<serde_json::Value> {
    let mails = filter.newest_first(&mailbox).await;
    let lines = mails.iter().map(|(number, mail)| MailLine {
        number: *number,
        from: &mail.from,
        to: mail.to.join(", "),
        subject: &mail.subject,
        text: &mail.text,
        links: mail.links(),
        at: mail.at.to_string(),
    });
    Json(serde_json::json!(lines.collect::<Vec<_>>()))
}

#[derive(Template)]
#[template(path = "mail.html")]
struct Page {
    to: String,
    mails: Vec<Item>,
}

/// One mail as shown on the page.
struct Item {
    to: String,
    subject: String,
    at: String,
    text: Vec<Stretch>,
}

/// A stretch of the text. One that is linked leads to what it says.
struct Stretch {
    text: String,
    is_linked: bool,
}

impl Item {
    fn of(mail: &Mail, mailbox: &Mailbox) -> Self {
        let stretch = |piece| match piece {
            Piece::Words(words) => Stretch {
                text: words.to_owned(),
                is_linked: false,
            },
            Piece::Link(link) => Stretch {
                text: link.to_owned(),
                is_linked: mailbox.may_lead_to(link),
            },
        };
        Self {
            to: mail.to.join(", "),
            subject: mail.subject.clone(),
            at: mail.at.to_string(),
            text: pieces(&mail.text).into_iter().map(stretch).collect(),
        }
    }
}

async fn page(State(mailbox): State<Arc<Mailbox>>, Query(filter): Query<Filter>) -> Response {
    let mails = filter.newest_first(&mailbox).await;
    let shown = mails.iter().take(MAILS_SHOWN_MAX);
    let page = Page {
        mails: shown.map(|(_, mail)| Item::of(mail, &mailbox)).collect(),
        to: filter.to.trim().to_owned(),
    };
    handset::html(&page)
}
