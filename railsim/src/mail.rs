//! The mailbox for trying things out: catches all mail that is sent here by SMTP, and shows it.
//!
//! Promises: a mail that was acknowledged survives `kill -9` if there is a data folder; nothing
//! leaves this process; what a mail says is shown as text and never runs.

mod mailbox;
mod page;
mod smtp;

use chassis::clock::Timestamp;
use mail_parser::MessageParser;
use serde::{Deserialize, Serialize};

pub use mailbox::Mailbox;
pub use page::routes;
pub use smtp::serve;

/// How much of a subject is kept. Longer ones are cut off.
const SUBJECT_CHARS_MAX: usize = 300;

/// How much of a text is kept. Longer ones are cut off.
const TEXT_CHARS_MAX: usize = 16 * 1024;

/// What a link begins with.
const SCHEMES: [&str; 2] = ["http://", "https://"];

/// A caught mail.
#[derive(Serialize, Deserialize)]
pub struct Mail {
    from: String,
    /// Whom it was sent to, which its headers need not say.
    to: Vec<String>,
    subject: String,
    text: String,
    #[serde(with = "crate::as_text")]
    at: Timestamp,
}

/// Whom a mail is from, and whom it is sent to.
#[derive(Default)]
pub struct Envelope {
    from: String,
    to: Vec<String>,
}

/// A stretch of a text.
#[derive(Debug, PartialEq, Eq)]
enum Piece<'a> {
    Words(&'a str),
    Link(&'a str),
}

impl Mail {
    /// Reads what came after DATA. Whatever it is, it is a mail.
    fn read(envelope: Envelope, content: &[u8], at: Timestamp) -> Self {
        let message = MessageParser::default().parse(content);
        let subject = message.as_ref().and_then(|message| message.subject());
        let text = message.as_ref().and_then(|message| message.body_text(0));
        Self {
            from: envelope.from,
            to: envelope.to,
            subject: cut(subject.unwrap_or_default(), SUBJECT_CHARS_MAX),
            text: cut(&text.unwrap_or_default(), TEXT_CHARS_MAX),
            at,
        }
    }

    fn links(&self) -> Vec<&str> {
        let link = |piece| match piece {
            Piece::Link(link) => Some(link),
            Piece::Words(_) => None,
        };
        pieces(&self.text).into_iter().filter_map(link).collect()
    }
}

fn cut(text: &str, chars_max: usize) -> String {
    text.chars().take(chars_max).collect()
}

/// Tells the links in a text from the words around them.
fn pieces(text: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some(start) = SCHEMES.iter().filter_map(|scheme| rest.find(scheme)).min() {
        let (words, from_link) = rest.split_at(start);
        let is_end = |letter: char| letter.is_whitespace() || "<>\"'".contains(letter);
        let (link, _) = from_link.split_at(from_link.find(is_end).unwrap_or(from_link.len()));
        // What ends a sentence does not belong to the link.
        let link = link.trim_end_matches(['.', ',', ';', ':', '!', '?', ')', ']']);
        if !words.is_empty() {
            pieces.push(Piece::Words(words));
        }
        pieces.push(Piece::Link(link));
        rest = from_link.split_at(link.len()).1;
    }
    if !rest.is_empty() {
        pieces.push(Piece::Words(rest));
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::{
        Piece::{Link, Words},
        pieces,
    };

    #[test]
    fn a_link_ends_where_its_sentence_does() {
        let text = "Open (https://a.example/x?y=1). Or http://b.example:81/\nhttp://<b>";
        let found = pieces(text);
        let wanted = [
            Words("Open ("),
            Link("https://a.example/x?y=1"),
            Words("). Or "),
            Link("http://b.example:81/"),
            Words("\n"),
            Link("http://"),
            Words("<b>"),
        ];
        assert_eq!(found, wanted);
        assert_eq!(pieces("no link: https:/x"), [Words("no link: https:/x")]);
        assert_eq!(pieces(""), []);
    }
}
