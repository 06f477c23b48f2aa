//! Hands mails to the mail server, each at least once: one that it does not take is tried again for
//! a day.

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use chassis::{
    clock::{Alarm, Clock, Timestamp},
    error_chain::chain,
};
use db::{
    Db, Update,
    work::{Claimed, TaskSet, Work},
};
use lettre::{
    AsyncSmtpTransport, AsyncTransport as _, Message, Tokio1Executor,
    message::{
        Mailbox,
        header::{ContentType, HeaderName, HeaderValue},
    },
    transport::smtp::{self, extension::ClientId, response::Code},
};
use secrecy::{ExposeSecret as _, SecretString};
use url::Url;

use crate::{
    letter::{self, Facts, Letter},
    link::LinkPurpose,
    mail::{Mail, MailKind},
    person::EmailAddress,
    store,
    token::Token,
};

/// The name of this work in logs.
pub const WORK: &str = "mails";

/// Most mails on their way at once.
const RUNNING_MAX: usize = 8;

/// How long the server may take for one mail.
const SENDING_MAX: Duration = Duration::from_secs(30);

/// How long a mail of a process that died waits for another. Longer than sending takes, with what
/// is read and written around it.
const LEASE: Duration = Duration::from_secs(60);

/// How long a mail is tried.
const TRIED_FOR: Duration = Duration::from_hours(24);

const FIRST_RETRY: Duration = Duration::from_secs(5);
const LAST_RETRY: Duration = Duration::from_mins(10);

/// A way to the mail server, and whom the mails are from.
#[derive(Debug)]
pub struct MailServer {
    transport: AsyncSmtpTransport<Tokio1Executor>,
    from: Mailbox,
}

impl MailServer {
    /// Reads certificates, but does not connect.
    pub fn new(url: &SecretString, from: &Mailbox) -> Result<Self, smtp::Error> {
        let transport = AsyncSmtpTransport::<Tokio1Executor>::from_url(url.expose_secret())?;
        let name = ClientId::Domain(from.email.domain().to_owned());
        Ok(Self {
            transport: transport
                .hello_name(name)
                .timeout(Some(SENDING_MAX))
                .build(),
            from: from.clone(),
        })
    }

    /// Every try of a mail has the same id, by which mailboxes know a repetition.
    async fn send(
        &self,
        mail: &Mail,
        to: &EmailAddress,
        letter: Letter,
        now: Timestamp,
    ) -> anyhow::Result<()> {
        let id = format!("<{}@{}>", mail.mail_id, self.from.email.domain());
        // So that nobody's absence note answers.
        let automatic = HeaderName::new_from_ascii_str("Auto-Submitted");
        let message = Message::builder()
            .from(self.from.clone())
            .to(Mailbox::new(None, to.as_str().parse()?))
            .subject(letter.subject)
            .date(now.datetime().into())
            .message_id(Some(id))
            .raw_header(HeaderValue::new(automatic, "auto-generated".to_owned()))
            .header(ContentType::TEXT_PLAIN)
            .body(letter.body)?;
        let sent = tokio::time::timeout(SENDING_MAX, self.transport.send(message)).await;
        match sent.context("the mail server is too slow")? {
            Ok(_) => Ok(()),
            // What it says may repeat the address.
            Err(error) => match error.status() {
                Some(code) => Err(NotTaken(code).into()),
                None => Err(error.into()),
            },
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the mail server answered {0}")]
struct NotTaken(Code);

/// The work that sends mails.
#[derive(Clone, Debug)]
pub struct Post {
    pub db: Db,
    pub clock: Clock,
    /// Its own.
    pub alarm: Alarm,
    pub server: Arc<MailServer>,
    /// The address of the dashboard.
    pub dashboard: Url,
}

impl Work for Post {
    fn running_max(&self) -> usize {
        RUNNING_MAX
    }

    async fn next_due(&mut self) -> anyhow::Result<Option<Timestamp>> {
        let due = store::mails::next_due(&self.db, &self.clock).await;
        due.context("nobody knows when a mail is next due")
    }

    async fn claim(&mut self, tasks: &mut TaskSet) -> anyhow::Result<Claimed> {
        let room = tasks.room();
        let limit = i64::try_from(room).unwrap_or(i64::MAX);
        let now = self.clock.now();
        let claimed = store::mails::claim(&self.db, &self.clock, limit, LEASE).await;
        let claimed = claimed.context("the mails to send cannot be read")?;
        let found = claimed.rows.len() + claimed.unknown;
        for mail in claimed.rows {
            let post = self.clone();
            tasks.start(async move {
                if let Err(error) = post.handle(&mail).await {
                    tracing::error!(mail.id = %mail.mail_id, error = %chain(error.as_ref()), "the mail waits for its lease");
                }
            });
        }
        Ok(match found {
            0 => Claimed::Nothing,
            found if found < room => Claimed::All,
            _ => Claimed::Part(now),
        })
    }
}

impl Post {
    /// Sends a mail that this process holds, and records how that ended.
    async fn handle(&self, mail: &Mail) -> anyhow::Result<()> {
        let addressee = store::mails::addressee(&self.db, mail.person_id).await?;
        let Some((email, verified_at)) = addressee else {
            return self.end(mail, "nobody").await;
        };
        let email = mail.recipient.clone().unwrap_or(email);
        if self.clock.now() >= mail.created_at + TRIED_FOR {
            tracing::error!(kind = %mail.kind, to = %email, "a mail is given up");
            return self.end(mail, "given_up").await;
        }
        if mail.kind == MailKind::VerifyEmail && verified_at.is_some() {
            return self.end(mail, "not_needed").await;
        }
        let letter = self.write(mail).await?;
        let sent = self
            .server
            .send(mail, &email, letter, self.clock.now())
            .await;
        let Err(error) = sent else {
            return self.end(mail, "sent").await;
        };
        tracing::warn!(kind = %mail.kind, to = %email, error = %chain(error.as_ref()), "a mail is not sent, will try again");
        let due = self.clock.now() + backoff(mail.attempts);
        let released = store::mails::release(&self.db, mail, due).await?;
        self.alarm.ring_at(due);
        self.note_lost(mail, released);
        Ok(())
    }

    /// Writes the letter. The secret of its link is made now and kept nowhere.
    async fn write(&self, mail: &Mail) -> db::Result<Letter> {
        let dashboard = self.dashboard.as_str().trim_end_matches('/');
        let purpose = match mail.kind {
            MailKind::VerifyEmail => Some(LinkPurpose::VerifyEmail),
            MailKind::ConfirmEmail => Some(LinkPurpose::ChangeEmail),
            MailKind::EmailChanged => Some(LinkPurpose::RevertEmail),
            MailKind::ResetPassword => Some(LinkPurpose::ResetPassword),
            MailKind::Invited => Some(LinkPurpose::AcceptInvitation),
            _ => None,
        };
        let link = match purpose {
            Some(purpose) => {
                let token = self.make_link(mail, purpose).await?;
                format!("{dashboard}/{}/{}", purpose.path(), token.expose())
            }
            None => String::new(),
        };
        let facts = Facts {
            about: &mail.about,
            address: &mail.address,
            at: mail.created_at,
            dashboard,
            link: &link,
        };
        Ok(letter::write(mail.kind, &facts))
    }

    async fn make_link(&self, mail: &Mail, purpose: LinkPurpose) -> db::Result<Token> {
        let token = Token::new();
        let from = match purpose {
            // In the order of the changes, whenever their mails get through: a link also ends those
            // of later changes.
            LinkPurpose::RevertEmail => mail.created_at,
            _ => self.clock.now(),
        };
        let expires_at = from + purpose.lasts();
        let (person_id, email) = (mail.person_id, mail.recipient.as_ref());
        store::links::insert(
            &self.db,
            &token.sha256(),
            person_id,
            purpose,
            email,
            expires_at,
        )
        .await?;
        Ok(token)
    }

    async fn end(&self, mail: &Mail, outcome: &'static str) -> anyhow::Result<()> {
        let labels = [("kind", mail.kind.code()), ("outcome", outcome)];
        metrics::counter!("mails_total", &labels).increment(1);
        let deleted = store::mails::delete(&self.db, mail).await?;
        self.note_lost(mail, deleted);
        Ok(())
    }

    fn note_lost(&self, mail: &Mail, update: Update) {
        if update == Update::NotThere {
            tracing::info!(mail.id = %mail.mail_id, "a lease ran out and somebody else has the mail");
        }
    }
}

/// How long to wait after this many tries: 5 s, doubling up to 10 minutes.
fn backoff(tries: i64) -> Duration {
    let doublings = u32::try_from(tries.max(1) - 1).unwrap_or(u32::MAX);
    let factor = 2_u32.saturating_pow(doublings);
    FIRST_RETRY.saturating_mul(factor).min(LAST_RETRY)
}
