//! A package index on loopback, with wheels that are created here, counted requests, and responses that can be held
//! back.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};

/// A file of a wheel.
pub type File<'a> = (&'a str, &'a str);

#[derive(Default)]
struct Shelf {
    /// The files by path.
    files: BTreeMap<String, Vec<u8>>,
    asked: BTreeMap<String, usize>,
    is_held: bool,
}

pub struct Index {
    shelf: Arc<(Mutex<Shelf>, Condvar)>,
    port: u16,
}

impl Index {
    /// Contains `pip` and `setuptools`, which every environment has.
    pub fn start() -> Index {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let shelf: Arc<(Mutex<Shelf>, Condvar)> = Arc::default();
        let served = Arc::clone(&shelf);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shelf = Arc::clone(&served);
                std::thread::spawn(move || serve(&stream, &shelf));
            }
        });
        let index = Index { shelf, port };
        index.add("pip", &[("pip/__init__.py", "")]);
        index.add(
            "setuptools",
            &[("setuptools/__init__.py", ""), ("pkg_resources/__init__.py", "")],
        );
        index
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/simple", self.port)
    }

    pub fn add(&self, name: &str, files: &[File<'_>]) {
        let wheel = format!("{name}-1.0-py3-none-any.whl");
        let about = format!("{name}-1.0.dist-info");
        let metadata = format!("Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n");
        let kind = "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n";
        let mut all: Vec<(String, String)> = vec![
            (format!("{about}/METADATA"), metadata),
            (format!("{about}/WHEEL"), kind.to_owned()),
        ];
        for (path, content) in files {
            let path = path.replace("DIST-INFO", &about);
            all.push((path, (*content).to_owned()));
        }
        let record = all.iter().map(|(path, _)| format!("{path},,\n")).collect::<String>();
        all.push((format!("{about}/RECORD"), format!("{record}{about}/RECORD,,\n")));
        self.put(name, &wheel, zip(&all));
    }

    pub fn put(&self, name: &str, file: &str, bytes: Vec<u8>) {
        let page = format!(
            "<!DOCTYPE html><html><body><a href=\"/files/{file}\">{file}</a></body></html>"
        );
        let mut shelf = self.shelf.0.lock().unwrap();
        shelf.files.insert(format!("/simple/{name}/"), page.into_bytes());
        shelf.files.insert(format!("/files/{file}"), bytes);
    }

    /// Holds back all files until this is called with false.
    pub fn hold(&self, is_held: bool) {
        self.shelf.0.lock().unwrap().is_held = is_held;
        self.shelf.1.notify_all();
    }

    /// How often the page of a package was requested.
    pub fn asked(&self, name: &str) -> usize {
        self.shelf.0.lock().unwrap().asked.get(&format!("/simple/{name}/")).copied().unwrap_or(0)
    }

    pub fn all_asked(&self) -> usize {
        self.shelf.0.lock().unwrap().asked.values().sum()
    }
}

fn serve(stream: &TcpStream, shelf: &(Mutex<Shelf>, Condvar)) {
    let mut lines = BufReader::new(stream);
    loop {
        let mut first = String::new();
        if lines.read_line(&mut first).unwrap_or(0) == 0 {
            return;
        }
        let mut header = String::new();
        while lines.read_line(&mut header).unwrap_or(0) > 2 {
            header.clear();
        }
        let mut words = first.split_whitespace();
        let (method, path) = (words.next().unwrap_or(""), words.next().unwrap_or("").to_owned());
        let body = {
            let mut guard = shelf.0.lock().unwrap();
            *guard.asked.entry(path.clone()).or_default() += 1;
            while guard.is_held && path.starts_with("/files/") {
                guard = shelf.1.wait(guard).unwrap();
            }
            guard.files.get(&path).cloned()
        };
        let (status, body) = body.map_or(("404 Not Found", Vec::new()), |body| ("200 OK", body));
        let kind =
            if path.starts_with("/simple") { "text/html" } else { "application/octet-stream" };
        let length = body.len();
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n"
        );
        let body = if method == "HEAD" { Vec::new() } else { body };
        let mut stream = stream;
        if stream.write_all(&[head.as_bytes(), &body].concat()).is_err() {
            return;
        }
    }
}

/// Creates an archive without compression.
fn zip(files: &[(String, String)]) -> Vec<u8> {
    let (mut all, mut listing) = (Vec::new(), Vec::new());
    for (path, content) in files {
        let (offset, crc, size) =
            (all.len() as u32, crc32(content.as_bytes()), content.len() as u32);
        let mut common = Vec::new();
        common.extend(20u16.to_le_bytes());
        common.extend([0u8; 4]); // flags, method: stored
        common.extend([0, 0, 33, 0]); // 1 January 1980
        for number in [crc, size, size] {
            common.extend(number.to_le_bytes());
        }
        common.extend((path.len() as u16).to_le_bytes());
        common.extend([0u8; 2]);
        all.extend(
            b"PK\x03\x04".iter().chain(&common).chain(path.as_bytes()).chain(content.as_bytes()),
        );
        listing.extend(b"PK\x01\x02\x14\x03".iter().chain(&common));
        listing.extend([0u8; 6]); // comment, disk, internal attributes
        listing.extend((0o100_644u32 << 16).to_le_bytes());
        listing.extend(offset.to_le_bytes());
        listing.extend(path.as_bytes());
    }
    let (start, size, count) = (all.len() as u32, listing.len() as u32, files.len() as u16);
    all.extend(&listing);
    all.extend(b"PK\x05\x06\0\0\0\0");
    all.extend(count.to_le_bytes().into_iter().chain(count.to_le_bytes()));
    all.extend(size.to_le_bytes().into_iter().chain(start.to_le_bytes()));
    all.extend([0u8; 2]);
    all
}

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 }
        })
    })
}
