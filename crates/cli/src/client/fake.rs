//! A server with prepared responses, for tests.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

pub struct Fake {
    pub url: String,
    bodies: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Fake {
    /// Sends these responses one after the other, and the last one from then on. An empty one closes the connection.
    pub fn start(answers: Vec<String>) -> Fake {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let bodies = Arc::<Mutex<Vec<Vec<u8>>>>::default();
        let taken = bodies.clone();
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                let mut connection = connection.unwrap();
                let body = read(&mut connection);
                let number = {
                    let mut taken = taken.lock().unwrap();
                    taken.push(body);
                    taken.len() - 1
                };
                let answer = &answers[number.min(answers.len() - 1)];
                connection.write_all(answer.as_bytes()).unwrap();
            }
        });
        Fake { url, bodies }
    }

    /// The bodies of all requests so far.
    pub fn bodies(&self) -> Vec<Vec<u8>> {
        self.bodies.lock().unwrap().clone()
    }
}

pub fn answer(status: u16, headers: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status} x\r\ncontent-length: {length}\r\n{headers}connection: close\r\n\r\n{body}"
    )
}

/// The body of the next request.
fn read(connection: &mut TcpStream) -> Vec<u8> {
    let mut lines = BufReader::new(connection);
    let (mut line, mut length) = (String::new(), 0);
    while lines.read_line(&mut line).unwrap() > 2 {
        let header = line.trim_end().to_ascii_lowercase();
        if let Some(value) = header.strip_prefix("content-length: ") {
            length = value.parse().unwrap();
        }
        line.clear();
    }
    let mut body = vec![0; length];
    lines.read_exact(&mut body).unwrap();
    body
}
