//! A mail server over real TCP, which can refuse and can leave without an answer.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU8, Ordering},
};

use chassis::{
    shutdown::Tasks,
    testing::{address, listen, until},
};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::TcpStream,
};

/// What it does once it has a whole mail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Manner {
    Takes = 0,
    /// Answers that it cannot now.
    Refuses = 1,
    /// Keeps the mail and never answers.
    Stalls = 2,
}

/// A mail as it arrived.
#[derive(Clone, Debug)]
pub struct Arrived {
    pub to: String,
    pub text: String,
}

impl Arrived {
    pub fn header(&self, name: &str) -> &str {
        let start = format!("{name}: ");
        let found = self
            .text
            .lines()
            .find_map(|line| line.strip_prefix(start.as_str()));
        found.unwrap_or_default()
    }

    /// The secret of its link to this path.
    pub fn token(&self, path: &str) -> String {
        let start = format!("http://dash.test:8082/{path}/");
        let (_, rest) = self.text.split_once(&start).expect("a link");
        rest.lines().next().unwrap_or_default().to_owned()
    }
}

#[derive(Clone)]
pub struct MailServer {
    pub url: String,
    arrived: Arc<Mutex<Vec<Arrived>>>,
    manner: Arc<AtomicU8>,
}

impl MailServer {
    pub async fn start() -> Self {
        let listener = listen().await;
        let server = Self {
            url: format!("smtp://{}", address(&listener)),
            arrived: Arc::default(),
            manner: Arc::default(),
        };
        let serving = server.clone();
        let tasks = Tasks::new();
        let connections = tasks.clone();
        tasks.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let serving = serving.clone();
                connections.spawn(async move {
                    // The client may leave at any time.
                    serving.serve(stream).await.ok();
                });
            }
        });
        server
    }

    pub fn behave(&self, manner: Manner) {
        self.manner.store(manner as u8, Ordering::SeqCst);
    }

    /// What has arrived for this address, oldest first; what was refused did not.
    pub fn arrived(&self, to: &str) -> Vec<Arrived> {
        let arrived = self.arrived.lock().unwrap();
        let theirs = arrived.iter().filter(|mail| mail.to == to);
        theirs.cloned().collect()
    }

    /// Waits until so many mails have arrived for this address. Returns the newest.
    pub async fn newest(&self, to: &str, count: usize) -> Arrived {
        until("the mail has arrived", async || {
            self.arrived(to).len() >= count
        })
        .await;
        let mut arrived = self.arrived(to);
        assert_eq!(arrived.len(), count, "{arrived:?}");
        arrived.pop().unwrap()
    }

    async fn serve(&self, stream: TcpStream) -> std::io::Result<()> {
        let mut stream = BufReader::new(stream);
        stream.write_all(b"220 mail.test\r\n").await?;
        let (mut to, mut line) = (String::new(), String::new());
        while stream.read_line(&mut line).await? > 0 {
            let command = std::mem::take(&mut line);
            if let Some(rest) = command.strip_prefix("RCPT TO:<") {
                to = rest.split('>').next().unwrap_or_default().to_owned();
            }
            let answer = match command.get(..4) {
                Some("DATA") => {
                    stream.write_all(b"354 go on\r\n").await?;
                    let text = read_mail(&mut stream).await?;
                    let manner = self.manner.load(Ordering::SeqCst);
                    if manner != Manner::Refuses as u8 {
                        let to = to.clone();
                        self.arrived.lock().unwrap().push(Arrived { to, text });
                    }
                    if manner == Manner::Stalls as u8 {
                        std::future::pending::<()>().await;
                    }
                    match manner == Manner::Refuses as u8 {
                        true => "451 not now, <nobody@example.com>\r\n",
                        false => "250 taken\r\n",
                    }
                }
                Some("QUIT") => "221 bye\r\n",
                _ => "250 mail.test\r\n",
            };
            stream.write_all(answer.as_bytes()).await?;
        }
        Ok(())
    }
}

async fn read_mail(stream: &mut BufReader<TcpStream>) -> std::io::Result<String> {
    let mut text = String::new();
    while !text.ends_with("\r\n.\r\n") {
        if stream.read_line(&mut text).await? == 0 {
            break;
        }
    }
    // Long lines are folded (quoted-printable).
    Ok(text.replace("=\r\n", ""))
}
