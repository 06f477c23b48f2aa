//! The mailbox: what is sent here by SMTP is on the page and nowhere else.

use std::{fmt::Write as _, time::Duration};

use serde_json::Value;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::world::World;

/// Longest wait for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(20);

/// An SMTP client that says whatever it is told.
pub struct Client(TcpStream);

impl Client {
    async fn connect(world: &World) -> Self {
        Self::connect_to(&world.smtp).await
    }

    pub async fn connect_to(address: &str) -> Self {
        let mut client = Self(TcpStream::connect(address).await.unwrap());
        client.expect("220").await;
        client
    }

    async fn say(&mut self, words: &str) {
        self.0.write_all(words.as_bytes()).await.unwrap();
    }

    /// Reads until a last line of an answer that begins with this code.
    async fn expect(&mut self, code: &str) -> String {
        let (mut heard, mut byte) = (String::new(), [0]);
        let reading = async {
            while !(heard.ends_with('\n') && last_line(&heard).starts_with(&format!("{code} "))) {
                let read = self.0.read(&mut byte).await.unwrap();
                assert!(read > 0, "closed after {heard:?}, not {code}");
                heard.push(char::from(byte[0]));
            }
        };
        let ended = tokio::time::timeout(ANSWER_MAX, reading).await.is_ok();
        assert!(ended, "{code} wanted, got {heard:?}");
        heard
    }

    async fn ask(&mut self, words: &str, code: &str) {
        self.say(words).await;
        let heard = self.expect(code).await;
        assert_eq!(heard.lines().filter(|line| !line.contains('-')).count(), 1);
    }

    /// Everything until the connection ends.
    async fn rest(mut self) -> String {
        let mut heard = Vec::new();
        let reading = self.0.read_to_end(&mut heard);
        let ended = tokio::time::timeout(ANSWER_MAX, reading).await;
        // A peer that closes with our bytes unread resets the connection.
        drop(ended.expect("the connection ends"));
        String::from_utf8(heard).unwrap()
    }

    pub async fn greet(&mut self) {
        self.ask("EHLO shop.example\r\n", "250").await;
    }

    pub async fn send(&mut self, to: &str, content: &str) {
        self.ask("MAIL FROM:<no-reply@pay.example> BODY=8BITMIME\r\n", "250")
            .await;
        self.ask(&format!("RCPT TO:<{to}>\r\n"), "250").await;
        self.ask("DATA\r\n", "354").await;
        self.ask(&format!("{content}\r\n.\r\n"), "250").await;
    }
}

fn last_line(heard: &str) -> &str {
    heard.lines().last().unwrap_or_default()
}

async fn mails(world: &World, query: &str) -> Vec<Value> {
    let answer = world.get(&format!("/mail.json{query}")).send().await;
    answer.unwrap().json().await.unwrap()
}

async fn page(world: &World, query: &str) -> String {
    let answer = world.get(&format!("/mail{query}")).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    let policy = answer.headers()["content-security-policy"].to_str();
    assert!(policy.unwrap().starts_with("default-src 'none'"));
    answer.text().await.unwrap()
}

#[tokio::test]
async fn a_mail_is_shown_as_it_was_meant() {
    let world = World::start_with(&["--mail-links=http://127.0.0.1:8082"]).await;
    let mut client = Client::connect(&world).await;
    client.greet().await;
    let content = "From: Pay <no-reply@pay.example>\r\n\
        To: ama@example.com\r\n\
        Subject: =?utf-8?q?Verify_=E2=80=9CAma=E2=80=99s_Shop=E2=80=9D?=\r\n\
        MIME-Version: 1.0\r\n\
        Content-Type: text/plain; charset=utf-8\r\n\
        Content-Transfer-Encoding: quoted-printable\r\n\r\n\
        Open http://127.0.0.1:8082/verify-email/abc?x=3D=\r\n\
        1&y=3D2.\r\n\
        ..and a line with a dot: GH=E2=82=B5 5";
    client.send("ama@example.com", content).await;
    client
        .send("kofi@example.com", "Subject: second\r\n\r\ntext")
        .await;
    client.ask("QUIT\r\n", "221").await;
    assert_eq!(client.rest().await, "");

    let all = mails(&world, "").await;
    assert_eq!(all.len(), 2);
    assert_eq!(all[0]["subject"], "second", "newest first");
    let mail = &all[1];
    assert_eq!(mail["to"], "ama@example.com");
    assert_eq!(mail["from"], "no-reply@pay.example");
    assert_eq!(mail["subject"], "Verify “Ama’s Shop”");
    let link = "http://127.0.0.1:8082/verify-email/abc?x=1&y=2";
    assert_eq!(mail["links"], serde_json::json!([link]));
    let text = mail["text"].as_str().unwrap();
    let end = "\n.and a line with a dot: GH₵ 5";
    assert!(text.trim_end().ends_with(end), "{text}");

    let shown = page(&world, "").await;
    let anchor =
        "<a href=\"http://127.0.0.1:8082/verify-email/abc?x=1&#38;y=2\" rel=\"noreferrer\">";
    assert!(shown.contains(anchor), "{shown}");
    assert_eq!((&mail["number"], &all[0]["number"]), (&1.into(), &2.into()));
    assert_eq!(mails(&world, "?after=1").await, all[..1]);
    let hers = mails(&world, "?to=AMA@example.com").await;
    assert_eq!(hers.len(), 1);
    assert!(
        !page(&world, "?to=ama%40example.com")
            .await
            .contains("second")
    );
}

#[tokio::test]
async fn nothing_in_a_mail_runs_and_links_to_elsewhere_are_only_text() {
    let world = World::start_with(&["--mail-links=http://127.0.0.1:8082"]).await;
    let mut client = Client::connect(&world).await;
    client.greet().await;
    let content = "Subject: <script>a</script>\r\n\r\n<script>b</script> javascript:c \
        http://127.0.0.1:80821/d http://127.0.0.1:8082@evil.example/e \
        http://127.0.0.1:8082.evil.example/f http://e@127.0.0.1:8082/g \
        https://127.0.0.1:8082/h http://127.0.0.1:8082/\"onclick=i HTTP://127.0.0.1:8082/j";
    client.send("ama@example.com", content).await;
    let shown = page(&world, "").await;
    assert_eq!(shown.matches("<script").count(), 1, "its own: {shown}");
    let hrefs = shown.split("href=\"").skip(1);
    let hrefs: Vec<&str> = hrefs.filter_map(|rest| rest.split('"').next()).collect();
    assert_eq!(hrefs, ["/handset.css", "/", "http://127.0.0.1:8082/"]);
    let shown = page(&world, "?to=%22%3E%3Cscript%3E").await;
    assert_eq!(shown.matches("<script").count(), 1);
}

#[tokio::test]
async fn acknowledged_mail_survives_a_restart_and_the_oldest_makes_room() {
    let mut world = World::start().await;
    let mut client = Client::connect(&world).await;
    client.greet().await;
    for number in 0..502 {
        let content = format!("Subject: {number}\r\n\r\ntext");
        client.send("ama@example.com", &content).await;
    }
    let before = mails(&world, "").await;
    assert_eq!(before.len(), 500);
    assert_eq!(before[0]["subject"], "501");
    assert_eq!(before[499]["subject"], "2");
    world.restart().await;
    assert_eq!(mails(&world, "").await, before);
    let mut client = Client::connect(&world).await;
    client.greet().await;
    client
        .send("ama@example.com", "Subject: newest\r\n\r\n")
        .await;
    let after = mails(&world, "").await;
    assert_eq!(after[0]["subject"], "newest");
    assert_eq!(after.len(), 500);
}

#[tokio::test]
async fn pipelined_commands_are_answered_in_their_order() {
    let world = World::start_in_memory().await;
    let mut client = Client::connect(&world).await;
    let all = "HELO a\r\nNOOP\r\nMAIL FROM:<>\r\nRCPT TO:<ama@example.com>\r\nRSET\r\n\
        DATA\r\nMAIL FROM:<a@b.example>\r\nMAIL FROM:<a@b.example>\r\nRCPT TO:<ama@example.com>\r\n\
        AUTH PLAIN AGEAYQ==\r\nnonsense\r\nDATA\r\nSubject: pipelined\r\n\r\n\
        .\r\nMAIL FROM:<a@b.example>\r\nQUIT\r\nNOOP\r\n";
    // Split wherever it hurts.
    for piece in all.as_bytes().chunks(7) {
        client.0.write_all(piece).await.unwrap();
        client.0.flush().await.unwrap();
    }
    let heard = client.rest().await;
    let codes: Vec<&str> = heard.lines().filter_map(|line| line.get(..3)).collect();
    let wanted = [
        "250", "250", "250", "250", "250", "503", "250", "503", "250", "502", "500", "354", "250",
        "250", "221",
    ];
    assert_eq!(codes, wanted, "{heard}");
    assert_eq!(mails(&world, "").await[0]["subject"], "pipelined");
}

#[tokio::test]
async fn a_line_that_never_ends_is_cut_off() {
    let world = World::start_in_memory().await;
    let mut client = Client::connect(&world).await;
    let (mut reader, mut writer) = client.0.split();
    let flood = vec![b'a'; 64 * 1024];
    let flooding = async { while writer.write_all(&flood).await.is_ok() {} };
    let mut heard = Vec::new();
    let reading = async { drop(reader.read_to_end(&mut heard).await) };
    tokio::time::timeout(ANSWER_MAX, async { tokio::join!(flooding, reading) })
        .await
        .expect("it is closed");
    // Still there for others.
    Client::connect(&world).await.greet().await;
}

#[tokio::test]
async fn ten_thousand_recipients_are_not_taken() {
    let world = World::start_in_memory().await;
    let mut client = Client::connect(&world).await;
    client.greet().await;
    client.ask("MAIL FROM:<a@b.example>\r\n", "250").await;
    let mut all = String::new();
    for number in 0..10_000 {
        write!(all, "RCPT TO:<u{number}@example.com>\r\n").unwrap();
    }
    let (mut reader, mut writer) = client.0.split();
    let sending = async { drop(writer.write_all(all.as_bytes()).await) };
    let mut heard = vec![0; 64 * 1024];
    let mut length = 0;
    let reading = async {
        while let Ok(read) = reader.read(&mut heard[length..]).await
            && read > 0
        {
            length += read;
        }
    };
    tokio::time::timeout(ANSWER_MAX, async { tokio::join!(sending, reading) })
        .await
        .expect("it is closed");
    let heard = std::str::from_utf8(&heard[..length]).unwrap();
    assert!(heard.matches("250 ").count() <= 100);
    assert!(heard.matches("452 ").count() <= 51);
    assert_eq!(mails(&world, "").await.len(), 0);

    let mut client = Client::connect(&world).await;
    client.greet().await;
    client.ask("MAIL FROM:<a@b.example>\r\n", "250").await;
    for number in 0..100 {
        let recipient = format!("RCPT TO:<u{number}@example.com>\r\n");
        client.ask(&recipient, "250").await;
    }
    client.ask("RCPT TO:<u100@example.com>\r\n", "452").await;
    client.ask("DATA\r\n", "354").await;
    client.ask("Subject: many\r\n\r\n.\r\n", "250").await;
    let to = mails(&world, "").await[0]["to"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(to.split(", ").count(), 100);
}

#[tokio::test]
async fn a_mail_that_is_too_large_is_refused_and_the_next_is_taken() {
    let world = World::start_in_memory().await;
    let mut client = Client::connect(&world).await;
    client.greet().await;
    client
        .ask("MAIL FROM:<a@b.example> SIZE=262145\r\n", "552")
        .await;
    client
        .ask("MAIL FROM:<a@b.example> SIZE=262144\r\n", "250")
        .await;
    client.ask("RCPT TO:<ama@example.com>\r\n", "250").await;
    client.ask("DATA\r\n", "354").await;
    // A never-ending mail is the same until its sender gives up.
    for _ in 0..600 {
        client.say(&format!("{}\r\n", "x".repeat(998))).await;
    }
    client.ask(".\r\n", "552").await;
    client.ask("RCPT TO:<ama@example.com>\r\n", "503").await;
    let large = format!("Subject: large\r\n\r\n{}", "y".repeat(200_000));
    client.send("ama@example.com", &large).await;
    let all = mails(&world, "").await;
    assert_eq!(all.len(), 1);
    assert_eq!(all[0]["text"].as_str().unwrap().len(), 16 * 1024);
}

#[tokio::test]
async fn dots_at_the_beginning_of_lines_arrive_as_they_were() {
    let world = World::start_in_memory().await;
    let mut client = Client::connect(&world).await;
    client.greet().await;
    client
        .send(
            "ama@example.com",
            "Subject: dots\r\n\r\n..\r\n...\r\n. \r\n..a\r\nb.",
        )
        .await;
    let all = mails(&world, "").await;
    assert_eq!(all.len(), 1);
    let text = all[0]["text"].as_str().unwrap();
    assert_eq!(text.trim_end(), ".\r\n..\r\n \r\n.a\r\nb.");
}

#[tokio::test]
async fn bytes_that_are_no_text_are_a_mail_or_refused() {
    let world = World::start_in_memory().await;
    let mut client = Client::connect(&world).await;
    client.greet().await;
    client
        .0
        .write_all(b"\x00\xff\xfe\r\nMAIL FROM:<\xff>\r\n")
        .await
        .unwrap();
    client.expect("500").await;
    client.0.write_all(b"RSET\r\n").await.unwrap();
    client.expect("250").await;
    client.ask("RSET\r\n", "250").await;
    client.ask("MAIL FROM:<a@b.example>\r\n", "250").await;
    client.ask("RCPT TO:<ama@example.com>\r\n", "250").await;
    client.ask("DATA\r\n", "354").await;
    client.0.write_all(b"\x00\xff=\r\n.\r\n").await.unwrap();
    client.expect("250").await;
    assert_eq!(mails(&world, "").await.len(), 1);
}

#[tokio::test]
async fn who_comes_when_all_places_are_taken_is_turned_away() {
    let world = World::start_in_memory().await;
    let mut clients = Vec::new();
    for _ in 0..64 {
        clients.push(Client::connect(&world).await);
    }
    let mut late = Client(TcpStream::connect(&world.smtp).await.unwrap());
    late.expect("421").await;
    assert_eq!(late.rest().await, "");
    clients.pop().unwrap().ask("QUIT\r\n", "221").await;
    // Its place is free within moments.
    loop {
        let mut next = Client(TcpStream::connect(&world.smtp).await.unwrap());
        let mut code = [0; 3];
        next.0.read_exact(&mut code).await.unwrap();
        if &code == b"220" {
            break;
        }
    }
}
